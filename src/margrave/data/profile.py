"""PRIVATE: what the values of a column look like, as far as a draft of its attribute needs to know; in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# Distinct values that are kept; a column with more is one of many values.
MANY = 2**14
_SAMPLE = 2**16
_NUMBER = r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?$"
_TRUTH = r"(?i)^(true|false)$"


class Profile:
    """What was seen of one column.

    Parameters
    ----------
    untyped
        Whether the column holds texts that numbers and truth values are read from.

    Attributes
    ----------
    kind
        "texts", "numbers", "truth values", "dates" or "others"; empty before any value was seen.
    distinct
        The different values, or None if there are many.
    missing
        Whether any value is missing.
    repeated
        Whether any value came twice, as far as values were kept.
    rows
        How many values were seen.
    """

    def __init__(self, *, untyped: bool) -> None:
        self._untyped = untyped
        self._numbers, self._truths = untyped, untyped
        self._sample: list[NDArray[np.float64]] = []
        self._step = 1
        self.kind = ""
        self.distinct: set[Any] | None = set()
        self.missing = self.repeated = False
        self.rows = 0

    def add(self, column: pa.Array) -> None:
        """Look at some more rows."""
        values = _plain(column).drop_null()
        self.missing |= len(values) < len(column)
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        if self._untyped:
            values = values.filter(pc.not_equal(values, ""))
        self.missing |= len(values) < len(column)
        if len(values):
            self.kind = self._kind_of(values)
            self._keep(values)
            self._keep_sample(values)
            self.rows += len(values)

    def sample(self) -> NDArray[np.float64]:
        """Return some of the numbers, spread over all rows."""
        return np.concatenate(self._sample) if self._sample else np.empty(0)

    def _kind_of(self, values: pa.Array) -> str:
        """Return what the values seen so far are; the texts of a file without types are what all of them can be."""
        kind = values.type
        if self._untyped:
            self._numbers = self._numbers and _all_match(values, _NUMBER)
            self._truths = self._truths and _all_match(values, _TRUTH)
            return "numbers" if self._numbers else "truth values" if self._truths else "texts"
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return "texts"
        if pa.types.is_boolean(kind):
            return "truth values"
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return "numbers"
        return "dates" if pa.types.is_date(kind) else "others"

    def _keep(self, values: pa.Array) -> None:
        """Keep the distinct values while they are few."""
        if self.distinct is None or self.kind == "others":
            return
        fresh = pc.unique(values)
        before = len(self.distinct)
        self.distinct.update(fresh.to_pylist() if len(fresh) <= MANY else fresh[: MANY + 1].to_pylist())
        self.repeated |= len(fresh) < len(values) or len(self.distinct) < before + min(len(fresh), MANY + 1)
        if len(self.distinct) > MANY:
            self.distinct = None

    def _keep_sample(self, values: pa.Array) -> None:
        """Keep every so manieth number; where there are too many, every other one of them."""
        if self.kind != "numbers":
            return
        chosen = values.take(pa.array(np.arange(0, len(values), self._step)))
        numbers = pc.cast(chosen, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        self._sample.append(numbers[np.isfinite(numbers)])
        while sum(part.size for part in self._sample) > _SAMPLE:
            self._sample = [self.sample()[::2]]
            self._step *= 2


def _plain(column: pa.Array) -> pa.Array:
    """Return a column without dictionaries, views and names of types."""
    if isinstance(column.type, pa.BaseExtensionType):
        return _plain(column.storage)
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary_decode())
    if pa.types.is_run_end_encoded(column.type):
        return _plain(pc.run_end_decode(column))
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _all_match(texts: pa.Array, pattern: str) -> bool:
    """Return whether a pattern describes all texts."""
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())
