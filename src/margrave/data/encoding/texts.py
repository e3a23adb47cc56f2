"""Codes of texts: compared with the declared texts byte for byte, and in files without types read as values first.

Nothing is trimmed, no case is folded and no character is normalised: ``"F"``, ``"f"`` and ``" F"`` are three values.
In a file without types, such as CSV, a text that is a declared text is that text; an empty one is missing; and for
attributes with numbers or truth values the rest is read as a number (``-12``, ``1.50``, ``1e6``, ``inf``; ``nan`` is
missing) or as ``true`` or ``false`` in any case. Where the mark of decimals is a comma, ``1,50`` is a number and
``1.50`` is not: there the point may separate thousands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from margrave.domain.values import MISSING, OUTSIDE, CodeArray, Numbers
from margrave.errors import DataError

_NUMBER = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)$"
_WHOLE = re.compile(r"[+-]?[0-9]+")
# A larger whole number need not be a double.
_LARGEST_EXACT = 2.0**53
# Python reads no whole number of more digits than about this; none is declared either.
_MOST_DIGITS = 4000


class Texts:
    """The declared texts of an attribute.

    Parameters
    ----------
    codes
        The code of each text that is declared by itself.
    rule
        The code of a text that is not, if a rule gives it; None from the rule leaves the text outside.
    """

    def __init__(self, codes: Mapping[str, int], rule: Callable[[str], int | None] | None = None) -> None:
        self._labels = pa.array(list(codes), pa.large_string())
        self._codes = np.array([*codes.values(), OUTSIDE], dtype=np.int32)
        self._rule = rule

    @property
    def declared(self) -> bool:
        """Whether any text is declared."""
        return len(self._labels) > 0 or self._rule is not None

    def find(self, texts: pa.Array) -> CodeArray:
        """Return the code of each text, or ``OUTSIDE``; also for a missing one."""
        values = texts.cast(pa.large_string()) if texts.type == pa.string_view() else texts
        places = pc.index_in(values, value_set=self._labels.cast(values.type))
        # A text that is not declared has the place −1, which is the last code, ``OUTSIDE``.
        codes: CodeArray = self._codes[_numpy(places.fill_null(-1))]
        return codes if self._rule is None else self._ruled(values, codes)

    def _ruled(self, values: pa.Array, codes: CodeArray) -> CodeArray:
        """Fill in the codes that the rule gives; it is asked once for each distinct text."""
        rest = np.flatnonzero(codes == OUTSIDE)
        encoded = values.take(pa.array(rest)).dictionary_encode()
        found = self._asked(encoded.dictionary.to_pylist())
        each = np.array([*(OUTSIDE if code is None else code for code in found), OUTSIDE], dtype=np.int32)
        codes[rest] = each[_numpy(encoded.indices.fill_null(-1))]
        return codes

    def _asked(self, texts: list[str]) -> list[int | None]:
        """Return what the rule says of each text."""
        failure = ""
        try:
            return [None if self._rule is None else self._rule(text) for text in texts]
        except Exception as error:
            failure = type(error).__name__
        # Raised here, the error has no context, in which a text of the table could travel along.
        raise DataError(
            f"the rule that codes texts failed ({failure})", remedy="correct the class of the attribute's values"
        )


def read_texts(
    column: pa.Array, texts: Texts, numbers: Numbers | None, truths: Mapping[bool, int], decimal: str = "."
) -> CodeArray:
    """Return the codes of a column of a file without types; each distinct text is read once.

    Parameters
    ----------
    column
        The texts; missing ones get any code.
    texts
        The declared texts; one of them is never read as anything else.
    numbers
        The declared numbers, if any.
    truths
        The code of each declared truth value.
    decimal
        The mark before the fraction of a number.
    """
    encoded = column.cast(pa.large_string()).dictionary_encode()
    distinct = encoded.dictionary
    codes = texts.find(distinct)
    _fill(codes, np.flatnonzero(_numpy(pc.equal(distinct, ""))), MISSING)
    for truth, code in truths.items():
        _fill(codes, np.flatnonzero(_matches(distinct, f"(?i)^{truth}$")), code)
    if numbers is not None:
        _read_numbers(distinct, numbers, codes, decimal)
    found: CodeArray = (
        codes[_numpy(encoded.indices.fill_null(0))] if len(distinct) else np.full(len(column), MISSING, np.int32)
    )
    return found


def _read_numbers(texts: pa.Array, numbers: Numbers, codes: CodeArray, decimal: str) -> None:
    """Fill in the codes of texts that are numbers and not declared as texts."""
    places = np.flatnonzero(codes == OUTSIDE)
    if decimal != ".":
        places = places[~_numpy(pc.match_substring(texts.take(pa.array(places)), "."))]
        texts = pc.replace_substring(texts, decimal, ".")
    chosen = texts.take(pa.array(places))
    values = _doubles(chosen)
    if values is None:
        places = places[_matches(chosen, _NUMBER)]
        chosen = texts.take(pa.array(places))
        values = _doubles(chosen)
        if values is None:
            values = np.array([float(text) for text in chosen.to_pylist()])
    codes[places] = numbers.real(values)
    # A large number that is written need not be exactly a double; and not every NaN is written as nan.
    for place in places[~(np.abs(values) < _LARGEST_EXACT)]:
        codes[place] = _code_by_hand(texts[int(place)].as_py(), int(codes[place]), numbers)


def _doubles(texts: pa.Array) -> NDArray[np.float64] | None:
    """Return the doubles that texts stand for, or None if one of them is not a number."""
    try:
        return _numpy(texts.cast(pa.float64()))
    except pa.ArrowInvalid:
        return None


def _code_by_hand(text: str, code: int, numbers: Numbers) -> int:
    """Return the code of a text whose double has the code given, where that double is NaN or large."""
    if _WHOLE.fullmatch(text) and len(text) <= _MOST_DIGITS:
        return numbers.exact(Fraction(int(text)))
    return code if re.fullmatch(_NUMBER, text) else OUTSIDE


def _fill(codes: CodeArray, places: NDArray[np.intp], found: CodeArray | int) -> None:
    """Set the codes at these places where the text itself is not declared."""
    open_places = codes[places] == OUTSIDE
    codes[places] = np.where(open_places, found, codes[places])


def _matches(texts: pa.Array, pattern: str) -> NDArray[np.bool_]:
    """Return which texts the pattern describes."""
    return _numpy(pc.match_substring_regex(texts, pattern))


def _numpy(array: pa.Array) -> NDArray[Any]:
    """Return the values of an array without missing ones."""
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values
