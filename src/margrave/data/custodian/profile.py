"""PRIVATE: what the values of a column look like, as far as a draft of its attribute needs it; in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# Distinct values that are kept; a column with more is one of many values.
MANY = 2**14
_SAMPLE = 2**16
# Where so many of the texts in a file without types are of one form, the few others are slips or signs for missing.
_NEARLY_ALL = 0.95
# The forms of texts; one that has several counts as the first of them.
_FORMS = {
    "numbers": r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?$",
    "truth values": r"(?i)^(true|false)$",
    "dates": (
        r"^([12][0-9]{3}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([12][0-9])?[0-9]{2})"
        r"([T ][0-9]{1,2}:[0-9]{2}.*)?$"
    ),
    "thousands": r"^-?([0-9]{1,3}(\.[0-9]{3})+(,[0-9]+)?|[0-9]{1,3}((,[0-9]{3})+\.[0-9]+|(,[0-9]{3}){2,}))$",
    # 1,234 may be a little more than one, or more than a thousand.
    "either": r"^-?[1-9][0-9]{0,2},[0-9]{3}$",
    "decimal commas": r"^-?[0-9]{1,18},[0-9]{1,18}$",
    # Codes, as those of towns: read as numbers they would lose a digit.
    "codes": r"^0[0-9]+$",
}
_COMMAS = ("thousands", "either", "decimal commas")


class Profile:
    """What was seen of one column.

    Parameters
    ----------
    untyped
        Whether the column holds texts that numbers and truth values are read from.
    decimal
        The mark before the fraction of such numbers.

    Attributes
    ----------
    odd
        Of a column of texts, some of those that are not numbers.
    missing
        Whether any value is missing.
    repeated
        Whether any value came twice, as far as values were kept.
    rows
        How many values were seen.
    """

    def __init__(self, *, untyped: bool, decimal: str = ".") -> None:
        self._untyped, self._decimal, self._kind = untyped, decimal, ""
        self._of_form = dict.fromkeys(_FORMS, 0)
        self._sample: list[NDArray[np.float64]] = []
        self._step = 1
        self._distinct: set[Any] | None = set()
        self.odd: set[str] = set()
        self.missing = self.repeated = False
        self.rows = 0

    @property
    def kind(self) -> str:
        """What the values are: "texts", "numbers", "truth values", "dates", "others"; empty before any was seen.

        Of texts in a file without types also "decimal commas" and "thousands": numbers, but not as they are read.
        """
        if not self._untyped or not self.rows:
            return self._kind
        if self._of_form["truth values"] == self.rows:
            return "truth values"
        if self._of_form["codes"]:
            return "texts"
        for kind in ("numbers", "dates"):
            if self._are_nearly_all(kind):
                return kind
        if self._are_nearly_all("numbers", *_COMMAS) and any(self._of_form[form] for form in _COMMAS):
            plainly = self._of_form["decimal commas"] and not self._of_form["thousands"]
            return "decimal commas" if plainly else "thousands"
        return "texts"

    @property
    def distinct(self) -> set[Any] | None:
        """The different values, those of another kind left out; None if there are many."""
        if self._distinct is None or not self._untyped or self.kind != "numbers":
            return self._distinct
        return {self._pointed(value) for value in self._distinct - self.odd}

    def add(self, column: pa.Array) -> None:
        """Look at some more rows."""
        values = plain_values(column).drop_null()
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        if self._untyped:
            values = values.filter(pc.not_equal(values, ""))
        self.missing |= len(values) < len(column)
        if len(values):
            self.rows += len(values)
            numbers = self._read(values) if self._untyped else self._typed(values)
            self._keep(values)
            self._keep_sample(numbers)

    def sample(self) -> NDArray[np.float64]:
        """Return some of the numbers, spread over all rows."""
        return np.concatenate(self._sample) if self._sample else np.empty(0)

    def _are_nearly_all(self, *forms: str) -> bool:
        return sum(self._of_form[form] for form in forms) >= _NEARLY_ALL * self.rows

    def _pointed(self, text: str) -> str:
        return text.replace(self._decimal, ".")

    def _read(self, texts: pa.Array) -> pa.Array:
        """Count the texts of each form, and return those that are numbers; each distinct text is looked at once."""
        encoded = texts.dictionary_encode()
        distinct, places = encoded.dictionary, encoded.indices.to_numpy()
        readable = distinct
        if self._decimal != ".":
            # A text with a point is not a number here, so none must become one.
            readable = pc.replace_substring(pc.replace_substring(distinct, ".", "’"), self._decimal, ".")
        forms = _forms_of(distinct, readable)
        counts = np.bincount(forms[places] + 1, minlength=len(_FORMS) + 1)
        for form, count in zip(_FORMS, counts[1:].tolist(), strict=True):
            self._of_form[form] += count
        if len(self.odd) <= MANY:
            self.odd.update(distinct.filter(pa.array(forms != 0))[: MANY + 1].to_pylist())
        return readable.take(pa.array(places[forms[places] == 0]))

    def _typed(self, values: pa.Array) -> pa.Array | None:
        """Note the kind of a column that has one, and return its values if they are numbers."""
        kind = values.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            self._kind = "texts"
        elif pa.types.is_boolean(kind):
            self._kind = "truth values"
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            self._kind = "numbers"
            return values
        else:
            self._kind = "dates" if pa.types.is_date(kind) else "others"
        return None

    def _keep(self, values: pa.Array) -> None:
        """Keep the distinct values while they are few."""
        if self._distinct is None or self._kind == "others":
            return
        fresh = pc.unique(values)
        before = len(self._distinct)
        self._distinct.update(fresh.to_pylist() if len(fresh) <= MANY else fresh[: MANY + 1].to_pylist())
        self.repeated |= len(fresh) < len(values) or len(self._distinct) < before + min(len(fresh), MANY + 1)
        if len(self._distinct) > MANY:
            self._distinct = None

    def _keep_sample(self, numbers: pa.Array | None) -> None:
        """Keep every n-th number; when there are too many, drop every second one."""
        if numbers is None:
            return
        chosen = numbers.take(pa.array(np.arange(0, len(numbers), self._step)))
        values = pc.cast(chosen, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        self._sample.append(values[np.isfinite(values)])
        while sum(part.size for part in self._sample) > _SAMPLE:
            self._sample = [self.sample()[::2]]
            self._step *= 2


def _forms_of(texts: pa.Array, readable: pa.Array) -> NDArray[np.intp]:
    """Return which form each text has, by its place among the forms; −1 for none.

    Parameters
    ----------
    texts
        The texts.
    readable
        The same with a point before the fraction of what is a number.
    """
    forms = np.full(len(texts), -1, dtype=np.intp)
    for place, (form, pattern) in enumerate(_FORMS.items()):
        matches = pc.match_substring_regex(readable if form == "numbers" else texts, pattern)
        forms[(forms < 0) & matches.to_numpy(zero_copy_only=False)] = place
    return forms


def plain_values(column: pa.Array) -> pa.Array:
    """Return a column without dictionaries, views and names of types."""
    if isinstance(column.type, pa.BaseExtensionType):
        return plain_values(column.storage)
    if pa.types.is_dictionary(column.type):
        return plain_values(column.dictionary_decode())
    if pa.types.is_run_end_encoded(column.type):
        return plain_values(pc.run_end_decode(column))
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column
