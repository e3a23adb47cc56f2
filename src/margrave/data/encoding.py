"""PRIVATE: values become codes here, and nowhere else, so that a table gives the same counts wherever it is stored.

What a column is compared with depends on its type:

- *Texts* (also categories of a frame, enumerations): declared texts, byte for byte. Nothing is trimmed, no case is
  folded and no character is normalised: ``"F"``, ``"f"`` and ``" F"`` are three values.
- *Dates*: labels of the form ``2024-02-29``. *Timestamps* without a time zone: labels of the forms ``2024-02-29``
  (midnight), ``2024-02-29T23:59:59`` and ``2024-02-29 23:59:59.5``, up to nine places of a second; timestamps with a
  time zone: labels that end in ``Z`` or in an offset such as ``+01:00``. Both are compared as timestamps.
- *Numbers* of every width, decimals too: declared numbers, see `margrave.domain.values`.
- *Booleans*: declared booleans.

In a file without types, such as CSV, a text that is a declared text is that text; an empty one is missing; and for
attributes with numbers or booleans the rest is read as a number (``-12``, ``1.50``, ``1e6``, ``inf``; ``nan`` is
missing) or as ``true`` or ``false`` in any case. Where the mark of decimals is a comma, ``1,50`` is a number and
``1.50`` is not: there the point may separate thousands.

Null and NaN are missing. A column of a type that the attribute does not declare is an error, unless all of it is
missing. The policies of the attribute decide what happens to undeclared and missing values. No message contains a value
or a number of rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from margrave.domain.values import MISSING, OUTSIDE, CodeArray, Lookup, Numbers
from margrave.errors import DataError

if TYPE_CHECKING:
    from margrave.domain.attribute import Attribute

# The code of a row that is left out of every table.
DROPPED = -1
_LARGEST_SIZE = 2**31 - 1
_MOST_PLACES = 18
_NUMBER = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)$"
_WHOLE = re.compile(r"[+-]?[0-9]+")
# A larger whole number need not be a double.
_LARGEST_EXACT = 2.0**53
# Python reads no whole number of more digits than about this; none is declared either.
_MOST_DIGITS = 4000
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1)
_DAY = 86_400  # seconds
_BILLION = 10**9
# How many of a column's units a second has.
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": _BILLION}


class Encoder:
    """Turns the values of a column into the codes of an attribute.

    Parameters
    ----------
    attribute
        What is declared.
    untyped
        Whether the column comes from a file without types, so that numbers and booleans are read from texts.
    decimal
        The mark before the fraction of a number that is read.
    """

    def __init__(self, attribute: Attribute, *, untyped: bool = False, decimal: str = ".") -> None:
        if attribute.size > _LARGEST_SIZE:
            raise DataError(
                f"attribute {attribute.name!r} has {attribute.size:,} values",
                remedy=f"at most {_LARGEST_SIZE:,} can be encoded",
            )
        values = attribute.values
        self._attribute, self._untyped, self._decimal = attribute, untyped, decimal
        self._texts, self._timestamps = Texts(values.texts, values.text_rule), Timestamps(attribute.name, values.texts)
        self._numbers, self._truths = values.numbers(), values.truths

    def encode(self, column: pa.Array | pa.ChunkedArray) -> CodeArray:
        """Return the code of each row; ``DROPPED`` for a row to be left out of every table."""
        return self.settle(self.classify(column))

    def settle(self, codes: CodeArray) -> CodeArray:
        """Return the codes of `classify` after the policies of the attribute; they are changed in place."""
        if not codes.size:
            return codes
        if codes.max() >= self._attribute.declared:
            raise self._no_such_code()
        if codes.min() < 0:
            outside, missing = codes == OUTSIDE, codes == MISSING
            if not ((codes >= 0) | outside | missing).all():
                raise self._no_such_code()
            self._settle_outside(codes, outside)
            self._settle_missing(codes, missing)
        return codes

    def _no_such_code(self) -> DataError:
        """Return the error for a kind of values that is wrongly implemented."""
        kind = type(self._attribute.values).__name__
        return DataError(
            f"the values of attribute {self._attribute.name!r} give codes that the attribute does not have",
            remedy=f"correct the class {kind}",
        )

    def _settle_outside(self, codes: CodeArray, outside: NDArray[np.bool_]) -> None:
        """Apply the policy of the attribute to values outside the declared set."""
        attribute = self._attribute
        if attribute.other_code is not None:
            codes[outside] = attribute.other_code
        elif attribute.outside == "drop":
            codes[outside] = DROPPED
        elif outside.any():
            raise DataError(
                f"column {attribute.name!r} has values that its attribute does not declare",
                remedy="declare them, or give the "
                'attribute an "other" category or "outside": "drop" (margrave validate shows how a table fits)',
            )

    def _settle_missing(self, codes: CodeArray, missing: NDArray[np.bool_]) -> None:
        """Count the missing values in their category, if there is one."""
        if self._attribute.missing_code is not None:
            codes[missing] = self._attribute.missing_code
        elif missing.any():
            raise DataError(
                f"column {self._attribute.name!r} has missing values and its attribute no category for them",
                remedy='give it one, as in "missing": "unknown"',
            )

    def classify(self, column: pa.Array | pa.ChunkedArray) -> CodeArray:
        """Return the code of each row before the policies: ``OUTSIDE`` or ``MISSING`` for what is not declared."""
        if isinstance(column, pa.ChunkedArray):
            parts = [self.classify(chunk) for chunk in column.chunks]
            return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
        if column.null_count == len(column):
            return np.full(len(column), MISSING, dtype=np.int32)
        if pa.types.is_dictionary(column.type):
            # A category that no row has is not a value of the table.
            found: CodeArray = self.classify(column.dictionary)[filled(column.indices)]
        else:
            found = self._of_kind(column)
        if column.null_count:
            found[column.is_null().to_numpy(zero_copy_only=False)] = MISSING
        return found

    def _of_kind(self, column: pa.Array) -> CodeArray:
        """Return the codes of a column by its type; missing values get any code."""
        kind = column.type
        if isinstance(kind, pa.BaseExtensionType):
            truth = isinstance(kind, pa.Bool8Type)
            return self._truth_values(pc.not_equal(column.storage, 0)) if truth else self._of_kind(column.storage)
        if pa.types.is_run_end_encoded(kind):
            return self.classify(pc.run_end_decode(column))
        if pa.types.is_boolean(kind):
            return self._truth_values(column)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return self._number_values(column)
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return self._timestamp_values(column)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return self._text_values(column)
        raise self._wrong_kind("values of another kind")

    def _text_values(self, column: pa.Array) -> CodeArray:
        if self._untyped:
            return read_texts(column, self._texts, self._numbers, self._truths, self._decimal)
        if not self._texts.declared:
            raise self._wrong_kind("texts")
        return self._texts.find(column)

    def _truth_values(self, column: pa.Array) -> CodeArray:
        if not self._truths:
            raise self._wrong_kind("booleans")
        codes = [self._truths.get(truth, OUTSIDE) for truth in (False, True)]
        found: CodeArray = np.array(codes, dtype=np.int32)[filled(column.cast(pa.uint8()))]
        return found

    def _number_values(self, column: pa.Array) -> CodeArray:
        if self._numbers is not None:
            return number_codes(column, self._numbers)
        # Where all values are missing, a frame may have made a column of NaN, whatever its type should be.
        if pa.types.is_floating(column.type) and np.isnan(filled(column)[column.is_valid()]).all():
            return np.full(len(column), MISSING, dtype=np.int32)
        raise self._wrong_kind("numbers")

    def _timestamp_values(self, column: pa.Array) -> CodeArray:
        kind = column.type
        dates, zoned = pa.types.is_date(kind), pa.types.is_timestamp(kind) and kind.tz is not None
        if not self._timestamps.known(dates=dates, zoned=zoned):
            raise self._wrong_kind("dates" if dates else "times with a zone" if zoned else "times without a zone")
        if pa.types.is_date32(kind):
            return self._timestamps.dates(buffer_of(column, np.int32))
        values = buffer_of(column, np.int64)
        if dates:  # in milliseconds
            return self._timestamps.dates(values // (1000 * _DAY))
        return self._timestamps.times(values, kind.unit, zoned=zoned)

    def _wrong_kind(self, found: str) -> DataError:
        """Return the error for a column of a type that the attribute does not declare."""
        attribute = self._attribute
        wanted = [("texts", self._texts.declared), ("numbers", self._numbers), ("booleans", self._truths)]
        declared = " or ".join(kind for kind, present in wanted if present)
        # Dates are declared as texts of a certain form.
        form = ", none of them of that form" if found.startswith(("dates", "times")) and self._texts.declared else ""
        return DataError(
            f"column {attribute.name!r} holds {found} and its attribute declares {declared}{form}",
            remedy="declare what the column holds, or convert the column",
        )


def buffer_of(column: pa.Array, dtype: DTypeLike) -> NDArray[Any]:
    """Return the values of a column of fixed width without copying them."""
    width = np.dtype(dtype).itemsize
    return np.frombuffer(column.buffers()[1], dtype=dtype, count=len(column), offset=column.offset * width)


def filled(column: pa.Array) -> NDArray[Any]:
    """Return the values of a column with 0 where one is missing."""
    values: NDArray[Any] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return values


def number_codes(column: pa.Array, numbers: Numbers) -> CodeArray:
    """Return the codes of a column of whole numbers, floating-point numbers or decimals."""
    if pa.types.is_decimal(column.type):
        return _decimal_codes(column, numbers)
    values = buffer_of(column, column.type.to_pandas_dtype())
    return numbers.whole(values) if values.dtype.kind in "iu" else numbers.real(values.astype(np.float64))


def _decimal_codes(column: pa.Array, numbers: Numbers) -> CodeArray:
    """Return the codes of decimals: as whole numbers of their last place, and where these are too large one by one."""
    values, fits = _last_places(column)
    if not 0 <= column.type.scale <= _MOST_PLACES:
        fits[:] = False
    codes = np.zeros(len(column), dtype=np.int32)
    if fits.any():
        codes[fits] = numbers.whole(values[fits], column.type.scale)
    if not fits.all():
        large = column.filter(pa.array(~fits)).cast(pa.decimal256(76, column.type.scale)).dictionary_encode()
        each = [0 if value is None else numbers.exact(Fraction(value)) for value in large.dictionary.to_pylist()]
        codes[~fits] = np.array(each or [0], dtype=np.int32)[filled(large.indices)]
    return codes


def _last_places(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return decimals as whole numbers of their last place, and which of them 64 bits can hold."""
    width = column.type.bit_width // 8
    if width <= np.dtype(np.int64).itemsize:
        values = buffer_of(column, f"<i{width}").astype(np.int64)
        return values, np.ones(len(column), dtype=np.bool_)
    words = np.frombuffer(column.buffers()[1], dtype="<i8").reshape(-1, width // 8)
    words = words[column.offset : column.offset + len(column)]
    values = words[:, 0].astype(np.int64)
    # All further words of a number that fits repeat its sign.
    return values, np.all(words[:, 1:] == (values >> 63)[:, None], axis=1)


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
        The code of each declared boolean.
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


class Timestamps:
    """The labels of an attribute that are dates or timestamps.

    Parameters
    ----------
    name
        The name of the attribute.
    texts
        The code of each label that is a text.
    """

    def __init__(self, name: str, texts: Mapping[str, int]) -> None:
        self._name = name
        self._dates = {text: code for text, code in texts.items() if _day(text) is not None}
        self._times = {text: code for text, code in texts.items() if _timestamp(text) is not None}
        self._lookups: dict[tuple[str, bool], Lookup] = {}

    def known(self, *, dates: bool, zoned: bool = False) -> bool:
        """Return whether any label is a date, or a timestamp with or without a time zone."""
        return bool(self._dates) if dates else bool(self._labels(zoned))

    def dates(self, days: NDArray[np.integer[Any]]) -> CodeArray:
        """Return the codes of dates, given as days since 1970."""
        if ("day", False) not in self._lookups:
            self._lookups["day", False] = Lookup({_day(text) or 0: code for text, code in self._dates.items()})
        return self._lookups["day", False].find(days)

    def times(self, values: NDArray[np.int64], unit: str, *, zoned: bool) -> CodeArray:
        """Return the codes of timestamps, given as seconds, milliseconds, … since 1970.

        Parameters
        ----------
        values
            The timestamps.
        unit
            ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.
        zoned
            Whether they are timestamps of a time zone, counted in UTC, or times on a clock.
        """
        if (unit, zoned) not in self._lookups:
            timestamps = {}
            for nanoseconds, code in self._labels(zoned).items():
                counted, rest = divmod(nanoseconds * _UNITS[unit], _BILLION)
                if not rest:
                    timestamps[counted] = code
            self._lookups[unit, zoned] = Lookup(timestamps)
        return self._lookups[unit, zoned].find(values)

    def _labels(self, zoned: bool) -> dict[int, int]:
        """Return the code of each declared timestamp, in nanoseconds since 1970."""
        codes: dict[int, int] = {}
        for text, code in self._times.items():
            timestamp = _timestamp(text)
            if timestamp is None or timestamp[1] is not zoned:
                continue
            if timestamp[0] in codes:
                raise DataError(
                    f"attribute {self._name!r} has two labels for one timestamp, one of them {text!r}, and its column "
                    "holds timestamps",
                    remedy="keep one of the two",
                )
            codes[timestamp[0]] = code
        return codes


def _day(text: str) -> int | None:
    """Return the days since 1970 of a date, or None if the text is not a date."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return (date.fromisoformat(text) - _EPOCH.date()).days
    except ValueError:
        return None


def _timestamp(text: str) -> tuple[int, bool] | None:
    """Return the nanoseconds since 1970 of a timestamp, and whether it has a time zone; None for any other text."""
    found = _TIME.fullmatch(text)
    day = _day(text) if found is None else _day(found[1])
    if day is None:
        return None
    if found is None:
        return day * _DAY * _BILLION, False
    try:
        clock = datetime.fromisoformat(f"1970-01-01T{found[2]}")
        offset = datetime.fromisoformat(f"1970-01-01T00:00:00{found[4] or 'Z'}").utcoffset() or timedelta(0)
    except ValueError:
        return None
    seconds = day * _DAY + (clock - _EPOCH) // timedelta(seconds=1) - offset // timedelta(seconds=1)
    return seconds * _BILLION + int((found[3] or "").ljust(9, "0")), found[4] is not None
