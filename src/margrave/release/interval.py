"""Intervals of unbiased estimates: the ends as computed, and the ends for a reader who knows that counts are counts.

With Gaussian noise, standard error s and the normal quantile z, the interval μ̂ ± z s covers the true count with the
stated probability. A true count is a whole number and not negative. Therefore the ends may be rounded inwards and
clipped at zero without losing a single draw that covered it:

    low = max(0, ⌈μ̂ − z s⌉),   high = max(0, ⌊μ̂ + z s⌋)      where a whole number lies between the raw ends,         (1)

and where none does, the raw ends are only clipped. An interval that lies below zero becomes [0, 0].

margrave's noise is discrete. A count that was measured by itself is off by one discrete Gaussian, and its interval is
exact: μ̂ ± q with the smallest whole number q that covers at least the level (``discrete_gaussian``). Any other estimate
is off by a sum Σ c_i ξ_i of many, and μ̂ ± z s may cover a little less than the level. How much less, with a proof:
docs/math.md; by exact convolution: tests/laws/test_coverage.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from statistics import NormalDist

import numpy as np

from margrave.algebra.kernels import Floats
from margrave.discrete_gaussian import reach
from margrave.errors import ReleaseError
from margrave.measurements.entries import read_only

LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Interval:
    """An interval for each cell of a table.

    Attributes
    ----------
    level
        How often it covers the true count.
    low_raw, high_raw
        The ends as computed, read-only; below zero and between whole numbers as they come.
    margin
        Half the width of the raw interval, the same for all cells.
    """

    level: float
    low_raw: Floats
    high_raw: Floats
    margin: float

    @cached_property
    def low(self) -> Floats:
        """The lower ends for the reader, equation (1)."""
        return read_only(_clipped(np.where(self._holds_whole, np.ceil(self.low_raw), self.low_raw)))

    @cached_property
    def high(self) -> Floats:
        """The upper ends for the reader, equation (1)."""
        return read_only(_clipped(np.where(self._holds_whole, np.floor(self.high_raw), self.high_raw)))

    @property
    def _holds_whole(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.asarray(np.ceil(self.low_raw) <= np.floor(self.high_raw))


def normal_interval(estimate: Floats, std_error: float, level: float) -> Interval:
    """Return the interval of an estimate with Gaussian error.

    Parameters
    ----------
    estimate
        The unbiased estimate.
    std_error
        Its standard error, the same for all cells.
    level
        How often the interval shall cover the true value, above 0 and below 1.
    """
    return _interval(estimate, quantile(level) * std_error, level)


def discrete_interval(estimate: Floats, parameter: float, level: float) -> Interval:
    """Return the interval of counts that were measured by themselves, with discrete Gaussian noise.

    Parameters
    ----------
    estimate
        The noisy counts: whole numbers, but for the rounding of what was computed with them.
    parameter
        g² of the noise.
    level
        How often the interval shall cover the true value at least, above 0 and below 1.
    """
    return _interval(np.rint(estimate), float(reach(parameter, checked_level(level))), level)


def quantile(level: float) -> float:
    """Return z such that a normal number lies within z standard deviations of its mean with probability ``level``."""
    return -NormalDist().inv_cdf((1 - checked_level(level)) / 2)


def checked_level(level: object) -> float:
    """Return the level of an interval as a float if it is a probability between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < float(level) < 1:
        raise ReleaseError(f"the level is {level!r}; give a probability above 0 and below 1, such as 0.95")
    return float(level)


def _interval(estimate: Floats, margin: float, level: float) -> Interval:
    """Return the interval that reaches so far to both sides."""
    return Interval(level, read_only(np.asarray(estimate - margin)), read_only(np.asarray(estimate + margin)), margin)


def _clipped(ends: Floats) -> Floats:
    """Return the ends, those below zero as zero; adding zero makes −0.0 a plain 0.0."""
    return np.asarray(np.maximum(ends, 0.0) + 0.0)
