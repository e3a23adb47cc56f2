"""Shares: one count divided by another that contains it, with the approximate error of the ratio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra.kernels import Floats
from margrave.escaping import visible
from margrave.measurements.entries import read_only, spoken
from margrave.release import frames
from margrave.release.interval import normal_interval
from margrave.release.table import Table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True, eq=False, repr=False)
class Share:
    """A share for each group; made by `margrave.Release`.

    Attributes
    ----------
    attributes
        Names of the attributes grouped by, one for each axis.
    categories
        The categories of each axis.
    values
        The ratio of the counts by the method of the release, NaN where it would divide by zero.
    estimate
        The ratio of the unbiased estimates, nearly unbiased itself where its error is given; NaN where the estimated
        denominator is not above zero. None if the measurements do not determine both counts.
    std_error
        The standard error of the estimate by the delta method, an approximation, for each group; NaN where the
        denominator is not clearly above zero. None where a count has none.
    ci_low_raw, ci_high_raw
        The ends of the interval as computed from it; below 0 and above 1 as they come.
    level
        How often the interval covers the truth, approximately.
    note
        Why some or all groups have no interval, in a sentence; empty where all have one.
    """

    attributes: tuple[str, ...]
    categories: tuple[tuple[str, ...], ...]
    values: Floats
    estimate: Floats | None
    std_error: Floats | None
    ci_low_raw: Floats | None
    ci_high_raw: Floats | None
    level: float
    note: str

    @classmethod
    def of(cls, part: Table, whole: Table, covariance: float | None, clear: float) -> Share:
        """Return the share of one table in another with the same axes.

        Parameters
        ----------
        part, whole
            The counts to divide.
        covariance
            That of a cell of one and the same cell of the other.
        clear
            How many standard errors the denominator must be above zero for an interval.
        """
        estimate = std_error = low = high = None
        note = part.note or whole.note
        if part.estimate is not None and whole.estimate is not None:
            estimate = _ratio(part.estimate, whole.estimate)
            std_error = _std_error(estimate, part, whole, covariance, clear)
        if estimate is not None and std_error is not None:
            interval = normal_interval(estimate, std_error, part.level)
            low, high = interval.low_raw, interval.high_raw
            if np.isnan(std_error).any():
                note = f"no interval where the denominator is less than {clear:g} standard errors above zero"
        values = _ratio(part.values, whole.values)
        return cls(part.attributes, part.categories, values, estimate, std_error, low, high, part.level, note)

    @property
    def ci_low(self) -> Floats | None:
        """The lower ends for the reader, within 0 and 1."""
        return None if self.ci_low_raw is None else np.clip(self.ci_low_raw, 0.0, 1.0)

    @property
    def ci_high(self) -> Floats | None:
        """The upper ends for the reader, within 0 and 1."""
        return None if self.ci_high_raw is None else np.clip(self.ci_high_raw, 0.0, 1.0)

    def to_arrow(self) -> pa.Table:
        """Return the shares in long form: attributes, share, estimate, std_error, ci_low, ci_high; see `Table`."""
        columns = {
            "share": self.values,
            "estimate": self.estimate,
            "std_error": self.std_error,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
        }
        return frames.arrow_table(self._axes, columns, {"level": str(self.level), "note": self.note})

    def to_pandas(self) -> pd.DataFrame:
        """Return the shares in long form as a pandas frame."""
        return frames.pandas_frame(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """Return the shares in long form as a Polars frame."""
        return frames.polars_frame(self.to_arrow(), self._axes)

    def __repr__(self) -> str:
        noun = "group" if self.values.size == 1 else "groups"
        by = f" by {visible(spoken(self.attributes))}" if self.attributes else ""
        return f"Share({self.values.size:,} {noun}{by}; {self.note or 'approximate intervals'})"

    @property
    def _axes(self) -> list[frames.Axis]:
        return list(zip(self.attributes, self.categories, strict=True))


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return one table divided by another, NaN where that is not above zero."""
    ratio = np.full(part.shape, np.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return read_only(ratio)


def _std_error(ratio: Floats, part: Table, whole: Table, covariance: float | None, clear: float) -> Floats | None:
    """Return the delta method's standard error, NaN where the denominator is not clearly above zero."""
    if part.variance is None or whole.variance is None or covariance is None or whole.estimate is None:
        return None
    variance = part.variance - 2 * ratio * covariance + ratio**2 * whole.variance
    error = np.full(ratio.shape, np.nan)
    # Where part and whole are one, rounding may leave a little less than nothing.
    np.divide(np.sqrt(np.maximum(variance, 0.0)), whole.estimate, out=error, where=_clear(whole, clear))
    return read_only(error)


def _clear(whole: Table, clear: float) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Tell where an estimate is so many standard errors above zero."""
    error = whole.std_error
    none = np.zeros(whole.values.shape, dtype=np.bool_)
    return none if whole.estimate is None or error is None else np.asarray(whole.estimate >= clear * error)
