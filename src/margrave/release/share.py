"""Shares: one count divided by another that contains it, with an interval that holds for any denominator.

R = N/D is a ratio of two unbiased estimates N̂ and D̂ with known variances and covariance. N̂ − R D̂ has mean zero at the
true R and the variance v(R) = Var N̂ − 2R Cov(N̂, D̂) + R² Var D̂. So the set of all R with

    (N̂ − R D̂)² ≤ z² v(R),     a R² − 2b R + e ≤ 0,                                                               (1)
    a = D̂² − z² Var D̂,   b = N̂ D̂ − z² Cov(N̂, D̂),   e = N̂² − z² Var N̂,

covers the true share exactly as often as a normal number lies within z standard deviations, whatever D is (Fieller
1954). Where D̂ is more than z standard errors above zero, a > 0 and the set is the interval (b ± √(b² − a e))/a;
elsewhere it is not an interval, and the answer is that nothing is known: 0 to 1. Both are cut to 0 … 1, where every
share lies.

The standard error is that of the ratio's linear approximation (the delta method), √v(R̂)/D̂. It means something only
where D̂ is far from zero next to its own error, and is given from CLEAR = 5 standard errors on.
Law: tests/laws/test_shares.py.

**The published share** is n/d, of the published counts, and has an error of its own. With m = d − n, the rest, its
linear approximation is off by ((1 − R) e_n − R e_m)/d. The expected squares of e_n and e_m and their expected product
are those of ``count_errors`` (6), so that

    count_error² = ((1 − R)² E e_n² − 2R(1 − R) E e_n e_m + R² E e_m²)/d²,                                         (2)

which a share and its rest have in common; at most one half, since every share lies between 0 and 1. By "mle", where
counts are estimates, it is the standard error above. The interval is the set (1) with these moments and the published
counts, a little wider as for counts, and contains what lies within half a standard error of the estimated share. Where
d is not clearly above zero next to its own error it is 0 to 1. Laws: tests/laws/test_count_shares.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from margrave.domain.values import table_label
from margrave.escaping import visible
from margrave.measurements.entries import read_only
from margrave.release.count_errors import BOUNDS, HEAVIER, HEAVY, Bounds, PartErrors
from margrave.release.table import LongForm, Table, arrow_table
from margrave.release.uncertainty import Mask, quantile

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from margrave.algebra.kernels import Floats

# From how many standard errors of the denominator on the ratio is nearly linear in both counts.
CLEAR = 5.0
# An interval contains what lies within so many standard errors of the unbiased estimate.
_NEAR = 0.5


@dataclass(frozen=True, eq=False, repr=False)
class Share(LongForm):
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
        denominator is less than 5 standard errors above zero. None where a count has none.
    ci_low_raw, ci_high_raw
        The ends of Fieller's interval, equation (1); below 0 and above 1 as they come, and infinite where the
        denominator is within z standard errors of zero.
    level
        How often the interval covers the truth.
    note
        Where nothing is known about the share, where it has no standard error, or why there is no interval at all;
        empty where every group has all of it.
    share_error
        The expected error of the published share, equation (2), for each group; NaN where the share is. None where
        errors were not learned.
    share_low, share_high
        An interval around the published share; None as for the errors.
    people
        The published counts that are divided by, for each group.
    bounds
        Where shares stop being reliable.
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
    share_error: Floats | None = None
    share_low: Floats | None = None
    share_high: Floats | None = None
    people: Floats | None = None
    bounds: Bounds = BOUNDS
    _decimals: ClassVar[int] = 3

    @classmethod
    def of(cls, part: Table, whole: Table, covariance: float | None, errors: PartErrors | None = None) -> Share:
        """Return the share of one table in another with the same axes.

        Parameters
        ----------
        part, whole
            The counts to divide.
        covariance
            That of a cell of one and the same cell of the other.
        errors
            What is expected of the errors of the counts, if it was learned.
        """
        share = cls._unbiased(part, whole, covariance)
        if errors is None:
            return share
        moments = _Moments(part.values, whole.values, errors.part, errors.whole, errors.shared)
        known = np.isfinite(share.values)
        error = np.where(known, np.minimum(moments.error(share.values), 0.5), np.nan)
        low, high = moments.interval(quantile(part.level) * (HEAVIER if share.estimate is None else HEAVY))
        if share.estimate is not None and share.std_error is not None:
            near = _NEAR * share.std_error
            low, high = np.fmin(low, share.estimate - near), np.fmax(high, share.estimate + near)
        low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
        ends = read_only(np.where(known, low, np.nan)), read_only(np.where(known, high, np.nan))
        return replace(
            share,
            share_error=read_only(error),
            share_low=ends[0],
            share_high=ends[1],
            people=whole.values,
            bounds=part.bounds,
        )

    @classmethod
    def _unbiased(cls, part: Table, whole: Table, covariance: float | None) -> Share:
        """Return the share with the interval of its unbiased estimate."""
        values = _ratio(part.values, whole.values)
        blank = cls(part.attributes, part.categories, values, None, None, None, None, part.level, "")
        if part.estimate is None or whole.estimate is None:
            return replace(blank, note=part.note or whole.note)
        ratio = _ratio(part.estimate, whole.estimate)
        if part.variance is None or whole.variance is None or covariance is None:
            return replace(blank, estimate=ratio, note=part.note or whole.note)
        moments = _Moments(part.estimate, whole.estimate, part.variance, whole.variance, covariance)
        z = quantile(part.level)
        low, high = moments.interval(z)
        return replace(
            blank,
            estimate=ratio,
            std_error=read_only(moments.std_error(ratio)),
            ci_low_raw=read_only(low),
            ci_high_raw=read_only(high),
            note=moments.note(z),
        )

    @property
    def ci_low(self) -> Floats | None:
        """The lower ends for the reader, within 0 and 1."""
        return None if self.ci_low_raw is None else np.clip(self.ci_low_raw, 0.0, 1.0)

    @property
    def ci_high(self) -> Floats | None:
        """The upper ends for the reader, within 0 and 1."""
        return None if self.ci_high_raw is None else np.clip(self.ci_high_raw, 0.0, 1.0)

    def reliability(self, bounds: Bounds | None = None) -> NDArray[np.object_] | None:
        """Return "reliable", "use with care" or "too uncertain to quote" for each share; None as for their errors.

        The bounds are those of counts: by relative error, and by the number of people that the error amounts to. A
        share that cannot be computed is too uncertain.

        Parameters
        ----------
        bounds
            Where the lines are drawn; by default those of the release.
        """
        if self.share_error is None or self.people is None:
            return None
        people = np.maximum(self.people, 0.0)
        judge = (self.bounds if bounds is None else bounds).judge
        return judge(np.nan_to_num(self.values) * people, np.nan_to_num(self.share_error * people, nan=np.inf))

    def to_arrow(self) -> pa.Table:
        """Return the shares in long form: attributes, share, estimate, std_error, ci_low, ci_high; see `Table`.

        Where errors were learned, share_error, share_low, share_high and reliability of the published share follow.
        """
        columns: dict[str, NDArray[Any] | float | None] = {
            "share": self.values,
            "estimate": self.estimate,
            "std_error": self.std_error,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
        }
        if self.share_error is not None:
            columns |= {"share_error": self.share_error, "share_low": self.share_low, "share_high": self.share_high}
            columns["reliability"] = self.reliability()
        return arrow_table(self._axes, columns, {"level": str(self.level), "note": self.note})

    def __repr__(self) -> str:
        noun = "group" if self.values.size == 1 else "groups"
        by = f" by {visible(table_label(self.attributes))}" if self.attributes else ""
        interval = self.note or f"intervals at level {self.level:g}"
        return f"Share({self.values.size:,} {noun}{by}; {interval})"


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return one table divided by another, NaN where that is not above zero or too small to divide by."""
    ratio = np.full(part.shape, np.nan)
    with np.errstate(over="ignore"):
        np.divide(part, whole, out=ratio, where=whole > 0)
    ratio[np.isinf(ratio)] = np.nan
    return read_only(ratio)


@dataclass(frozen=True, eq=False)
class _Moments:
    """Part and whole, one for each group, with their variances and covariance, by group or the same for all."""

    part: Floats
    whole: Floats
    part_variance: Floats | float
    whole_variance: Floats | float
    covariance: Floats | float

    def interval(self, z: float) -> tuple[Floats, Floats]:
        """Return the ends of Fieller's interval, equation (1), infinite where the denominator may be zero."""
        a = self.whole**2 - z**2 * self.whole_variance
        b = self.part * self.whole - z**2 * self.covariance
        e = self.part**2 - z**2 * self.part_variance
        known = self._above(z)
        # Where part and whole are equal, rounding may make it negative.
        root = np.sqrt(np.maximum(b**2 - a * e, 0.0))
        low, high = np.full(a.shape, -np.inf), np.full(a.shape, np.inf)
        np.divide(b - root, a, out=low, where=known)
        np.divide(b + root, a, out=high, where=known)
        return low, high

    def std_error(self, ratio: Floats) -> Floats:
        """Return the delta method's standard error, NaN where the denominator is not clearly above zero."""
        return np.where(self._above(CLEAR), self.error(ratio), np.nan)

    def error(self, ratio: Floats) -> Floats:
        """Return the error of the ratio's linear approximation, √v(R)/D; NaN where there is no ratio."""
        with np.errstate(over="ignore"):  # of a denominator next to zero: infinite, as its error is
            variance = self.part_variance - 2 * ratio * self.covariance + ratio**2 * self.whole_variance
        error = np.full(ratio.shape, np.nan)
        np.divide(np.sqrt(np.maximum(variance, 0.0)), self.whole, out=error, where=np.isfinite(ratio))
        return error

    def note(self, z: float) -> str:
        """Return which groups have no interval or no standard error, in words; nothing where all have both."""
        said = []
        if not self._above(z).all():
            said.append(
                f"no information where the denominator is within {z:.3g} standard errors of zero: the share may be "
                "anything from 0 to 1"
            )
        if not self._above(CLEAR).all():
            said.append(f"no standard error where the denominator is less than {CLEAR:g} standard errors above zero")
        return "; ".join(said)

    def _above(self, errors: float) -> Mask:
        """Tell where the denominator is so many of its standard errors above zero."""
        return np.asarray((self.whole > errors * np.sqrt(self.whole_variance)) & (self.whole > 0))
