"""One published table: its counts by the method of the release, and the unbiased estimate with its error bars.

Two products side by side. ``values`` is the method's table (by "lnn" non-negative and in agreement with all others);
``estimate`` is the unbiased maximum-likelihood table, and ``std_error`` and the interval belong to it alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.kernels import Floats
from margrave.errors import ReleaseError
from margrave.escaping import visible
from margrave.measurements.entries import read_only, spoken
from margrave.release import frames
from margrave.release.uncertainty import LEVEL, Interval, discrete_interval, normal_interval

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A cross-tabulation, or the counts that answer a query; made by `margrave.Release`.

    Attributes
    ----------
    attributes
        Names of the attributes, one for each axis, in the order asked for.
    values
        The counts by the method of the release, read-only; one axis per attribute.
    estimate
        The unbiased (maximum-likelihood) table, negative cells and all, read-only. None if the measurements do not
        determine the table: then part of it was filled in without knowledge.
    variance
        The exact variance of each cell of the unbiased (maximum-likelihood) estimate of this table, the same for all
        cells; None if the table is not determined, its noise has no single variance, or the measurements are adaptive.
    categories
        The categories of each axis, as in the domain.
    note
        Why there is no interval, in a sentence; empty where there is one.
    level
        How often the intervals ``ci_low`` … ``ci_high`` cover the truth.
    whole
        Whether ``values`` are whole numbers, by `rounded`.
    direct
        The parameter g² where each cell was measured by itself, so that its estimate is a true count plus one discrete
        Gaussian; intervals are exact then. None for all other tables.
    """

    attributes: tuple[str, ...]
    values: Floats
    estimate: Floats | None
    variance: float | None
    categories: tuple[tuple[str, ...], ...]
    note: str
    level: float = LEVEL
    whole: bool = False
    direct: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", read_only(self.values))
        if self.estimate is not None:
            object.__setattr__(self, "estimate", read_only(self.estimate))

    def __reduce__(self) -> tuple[type[Table], tuple[object, ...]]:
        # Made anew by its fields: what was computed from them is not kept, and arrays are read-only again.
        return Table, tuple(getattr(self, one.name) for one in fields(self))

    @property
    def determined(self) -> bool:
        """Whether the measurements determine the table; if not, part of it was filled in without knowledge."""
        return self.estimate is not None

    @property
    def std_error(self) -> float | None:
        """The exact standard error of each cell of the estimate, the same for all cells; None as for the variance."""
        return None if self.variance is None else math.sqrt(self.variance)

    @property
    def ci_low(self) -> Floats | None:
        """The lower ends for the reader: rounded up where a whole number lies inside, never below zero."""
        return None if self._interval is None else self._interval.low

    @property
    def ci_high(self) -> Floats | None:
        """The upper ends for the reader: rounded down where a whole number lies inside, never below zero."""
        return None if self._interval is None else self._interval.high

    @property
    def ci_low_raw(self) -> Floats | None:
        """The lower ends as computed."""
        return None if self._interval is None else self._interval.low_raw

    @property
    def ci_high_raw(self) -> Floats | None:
        """The upper ends as computed."""
        return None if self._interval is None else self._interval.high_raw

    def interval(self, level: float) -> Interval | None:
        """Return the interval of the estimate at another level; None where there is none, and ``note`` says why.

        Parameters
        ----------
        level
            How often it shall cover the truth, above 0 and below 1. It holds for each cell by itself.
        """
        if self.estimate is None or self.std_error is None:
            return None
        if self.direct is not None:
            return discrete_interval(self.estimate, self.direct, level)
        return normal_interval(self.estimate, self.std_error, level)

    def rounded(self) -> Table:
        """Return the table with whole numbers for ``values`` that add up to its rounded total.

        The cells with the largest remainders are rounded up, the others down. Only for tables without negative counts.
        Each table is rounded by itself, so tables that agreed need not agree afterwards: publish one kind or the other.
        """
        return replace(self, values=read_only(round_to_total(self.values)), whole=True)

    def to_arrow(self) -> pa.Table:
        """Return the table in long form as a `pyarrow.Table`: attributes, count, estimate, std_error, ci_low, ci_high.

        One row a cell; attributes as ordered dictionaries, numbers that do not exist as nulls.
        """
        counts: NDArray[Any] = self.values.astype(np.int64) if self.whole else self.values
        columns = {
            "count": counts,
            "estimate": self.estimate,
            "std_error": self.std_error,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
        }
        return frames.arrow_table(self._axes, columns, {"level": str(self.level), "note": self.note})

    def to_pandas(self) -> pd.DataFrame:
        """Return the table in long form as a pandas frame, attributes as ordered categoricals; see `to_arrow`."""
        return frames.pandas_frame(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """Return the table in long form as a Polars frame, attributes as Enum; see `to_arrow`."""
        return frames.polars_frame(self.to_arrow(), self._axes)

    def __repr__(self) -> str:
        noun = "cell" if self.values.size == 1 else "cells"
        error = self.note if self.std_error is None else f"standard error {self.std_error:.4g}"
        return f"Table({visible(spoken(self.attributes))}, {self.values.size:,} {noun}; {error})"

    @property
    def _axes(self) -> list[frames.Axis]:
        return list(zip(self.attributes, self.categories, strict=True))

    @cached_property
    def _interval(self) -> Interval | None:
        return self.interval(self.level)


def round_to_total(counts: Floats) -> Floats:
    """Return whole numbers near the counts of a table that add up to its rounded total.

    Every count is rounded down; then the cells with the largest remainders, the first ones among equals, get one each
    until the sum is the total, rounded half to even. No cell moves by one or more, and whole numbers stay as they are.

    Parameters
    ----------
    counts
        Any shape; no count negative.
    """
    if (counts < 0).any():
        raise ReleaseError(
            "the table has negative counts, and whole numbers are for tables without",
            remedy="reconstruct it with method='lnn'",
        )
    flat = counts.ravel()
    down = np.floor(flat)
    # The exact sum, so that its rounding is the same on every machine.
    lacking = round(math.fsum(flat)) - int(math.fsum(down))
    raised = np.argsort(down - flat, kind="stable")[:lacking]
    down[raised] += 1
    return down.reshape(counts.shape)
