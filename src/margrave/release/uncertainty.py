r"""Error bars of the maximum-likelihood tables: exact variances and covariances, and the intervals made of them.

The estimate of residual τ has covariance σ²_τ C_τ with σ²_τ = 1/π_τ (less where discrete noise is small; then the exact
variance is given). Estimates of different residuals are independent, and μ̂_γ = Σ_{τ⊆γ} broadcast(r̂_τ) n_τ/n_γ. An
entry of C_τ is ∏_{k∈τ} (1[a_k = b_k] − 1/n_k). Therefore

    Cov(μ̂_A(a), μ̂_B(b)) = Σ_{τ⊆A∩B} σ²_τ ∏_{k∈τ} (1[a_k = b_k] − 1/n_k) ∏_{k∈A∖τ} n_k⁻¹ ∏_{k∈B∖τ} n_k⁻¹           (1)
    Var(μ̂_γ(a))          = Σ_{τ⊆γ} σ²_τ p_τ ∏_{k∈γ∖τ} n_k⁻²,      p_τ = ∏_{k∈τ} (n_k − 1)/n_k,                    (2)

the same for all cells of a table. A table with a residual that was never measured is not unbiased, and has no error
bars; nor has one with noise that has no single variance. Law: tests/laws/test_uncertainty.py.

A *product query* over γ adds up the cells a with a_k in a set Q_k for every k ∈ γ. With q_k the vector of ones and
zeros of Q_k and |q| its sum, two of them, q and q′, have

    Cov(qᵀμ̂_γ, q′ᵀμ̂_γ) = Σ_{τ⊆γ} σ²_τ ∏_{k∈τ} (q_k·q′_k − |q_k||q′_k|/n_k) ∏_{k∈γ∖τ} |q_k||q′_k|/n_k².               (3)

A cell is the query with one value in each Q_k, and a query that does not ask for attribute k has Q_k = all values: its
factor in τ ∋ k is zero. Residuals with a factor of zero need not have been measured. Law: tests/laws/test_intervals.py.

**Intervals.** With Gaussian noise, standard error s and the normal quantile z, the interval μ̂ ± z s covers the true
count with the stated probability. A true count is a whole number and not negative. Therefore the ends may be rounded
inwards and clipped at zero without losing a single draw that covered it:

    low = max(0, ⌈μ̂ − z s⌉),   high = max(0, ⌊μ̂ + z s⌋)      where a whole number lies between the raw ends,         (4)

and where none does, the raw ends are only clipped. An interval that lies below zero becomes [0, 0].

margrave's noise is discrete. A count that was measured by itself is off by one discrete Gaussian, and its interval is
exact: μ̂ ± q with the smallest whole number q that covers at least the level (``discrete_gaussian``). Any other estimate
is off by a sum Σ c_i ξ_i of many, and μ̂ ± z s may cover a little less than the level. How much less, with a proof:
docs/math.md; by exact convolution: tests/laws/test_coverage.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from margrave.discrete_gaussian import reach
from margrave.errors import ReleaseError
from margrave.measurements.entries import read_only

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.reconstruction.estimates import Estimates

Mask = NDArray[np.bool_]

LEVEL = 0.95


def cell_variance(estimates: Estimates, table: int) -> float:
    """Return the variance of a cell of a maximum-likelihood table, equation (2); NaN where it has none.

    Parameters
    ----------
    estimates
        The estimated residuals.
    table
        Number of the table in the layout of the estimates.
    """
    layout = estimates.layout
    cells = math.prod(layout.shape(table))
    variance = 0.0
    for part in layout.subsets(table):
        inside = math.prod(layout.shape(part))
        variance += residual_variance(estimates, part) * float(layout.degrees[part]) / inside * (inside / cells) ** 2
    return variance


def covariance(estimates: Estimates, one: Mapping[int, int], other: Mapping[int, int]) -> float:
    """Return the covariance of two cells of maximum-likelihood tables, equation (1); NaN where a table has none.

    Parameters
    ----------
    estimates
        The estimated residuals.
    one, other
        A cell of a table of the closure: the code of each of its attributes, by domain position.
    """
    layout = estimates.layout
    first, second = (_table(estimates, cell) for cell in (one, other))
    if math.isnan(cell_variance(estimates, first)) or math.isnan(cell_variance(estimates, second)):
        return math.nan
    shares = math.prod(layout.shape(first)) * math.prod(layout.shape(second))
    total = 0.0
    for part in set(layout.subsets(first)) & set(layout.subsets(second)):
        attributes = layout.sets[part]
        centred = math.prod(float(one[k] == other[k]) - 1 / layout.sizes[k] for k in attributes)
        total += residual_variance(estimates, part) * centred * math.prod(layout.shape(part)) ** 2 / shares
    return total


def query_covariance(estimates: Estimates, table: int, one: Sequence[Mask], other: Sequence[Mask]) -> float:
    """Return the covariance of two product queries over one table, equation (3); NaN where it is not known.

    Parameters
    ----------
    estimates
        The estimated residuals.
    table
        Number of the table in the layout of the estimates.
    one, other
        For each attribute of the table, in domain order, which of its values are counted; shape (n_k,).
    """
    factors = query_factors(estimates, table, one, other)
    return math.fsum(residual_variance(estimates, part) * factor for part, factor in factors)


def unmeasured(estimates: Estimates, table: int, query: Sequence[Mask]) -> tuple[int, ...]:
    """Return the residuals that a product query over a table needs and that were never measured, as table numbers."""
    factors = query_factors(estimates, table, query, query)
    return tuple(part for part, _ in factors if estimates.counts[part] == 0)


def direct_noise(estimates: Estimates, table: int, query: Sequence[Mask]) -> float | None:
    """Return the parameter g² if a product query over a table is one cell of the table that was measured as it is.

    Then its unbiased estimate is a true count plus one discrete Gaussian. None for all other queries.

    Parameters
    ----------
    estimates
        The estimated residuals.
    table
        Number of the table in the layout of the estimates.
    query
        For each attribute of the table, in domain order, which of its values are counted; shape (n_k,).
    """
    if estimates.direct is None:
        return None
    place, noise = estimates.direct
    measured, counted = set(estimates.layout.sets[place]), dict(zip(estimates.layout.sets[table], query, strict=True))
    one = all(k in counted and np.count_nonzero(counted[k]) == 1 for k in measured)
    return noise if one and all(mask.all() for k, mask in counted.items() if k not in measured) else None


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
        """The lower ends for the reader, equation (4)."""
        return read_only(_clipped(np.where(self._holds_whole, np.ceil(self.low_raw), self.low_raw)))

    @cached_property
    def high(self) -> Floats:
        """The upper ends for the reader, equation (4)."""
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
        How often the interval covers the true value, above 0 and below 1.
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
        How often the interval covers the true value at least, above 0 and below 1.
    """
    return _interval(np.rint(estimate), float(reach(parameter, checked_level(level))), level)


def quantile(level: float) -> float:
    """Return z such that a normal number lies within z standard deviations of its mean with probability ``level``."""
    return -NormalDist().inv_cdf((1 - checked_level(level)) / 2)


def checked_level(level: object) -> float:
    """Return the level of an interval as a float if it is a probability between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < float(level) < 1:
        raise ReleaseError(f"the level is {level!r}", remedy="give a probability above 0 and below 1, such as 0.95")
    return float(level)


def query_factors(
    estimates: Estimates, table: int, one: Sequence[Mask], other: Sequence[Mask]
) -> Iterator[tuple[int, float]]:
    """Iterate over the residuals inside a table with their factors in equation (3), where these are not zero."""
    layout = estimates.layout
    sizes = layout.shape(table)
    # In whole numbers, so that what cancels is exactly zero.
    shared = [int(np.count_nonzero(a & b)) for a, b in zip(one, other, strict=True)]
    products = [int(np.count_nonzero(a)) * int(np.count_nonzero(b)) for a, b in zip(one, other, strict=True)]
    inside = [(both * size - product) / size for both, product, size in zip(shared, products, sizes, strict=True)]
    outside = [product / size**2 for product, size in zip(products, sizes, strict=True)]
    for mask, part in enumerate(layout.subsets(table)):
        factor = math.prod(inside[k] if mask >> k & 1 else outside[k] for k in range(len(sizes)))
        if factor != 0:
            yield part, factor


def residual_variance(estimates: Estimates, part: int) -> float:
    """Return σ²_τ of one residual: zero if it has no degree of freedom, NaN if it is not known."""
    if estimates.layout.degrees[part] == 0:
        return 0.0
    precision = float(estimates.precisions[part])
    if not precision > 0:
        return math.nan
    return 1 / precision if estimates.variances is None else float(estimates.variances[part])


def _table(estimates: Estimates, cell: Mapping[int, int]) -> int:
    """Return the number of the table that a cell belongs to."""
    layout = estimates.layout
    attributes = tuple(sorted(cell))
    if attributes not in layout.places:
        raise ReleaseError(
            f"no table over the attributes at {attributes} in the closure", remedy="give a cell of one that is"
        )
    for attribute, code in cell.items():
        if not 0 <= code < layout.sizes[attribute]:
            most = layout.sizes[attribute] - 1
            raise ReleaseError(
                f"no code {code!r} for the attribute at {attribute}", remedy=f"codes run from 0 to {most}"
            )
    return layout.places[attributes]


def _interval(estimate: Floats, margin: float, level: float) -> Interval:
    """Return the interval that reaches so far to both sides."""
    return Interval(level, read_only(np.asarray(estimate - margin)), read_only(np.asarray(estimate + margin)), margin)


def _clipped(ends: Floats) -> Floats:
    """Return the ends, those below zero as zero; adding zero makes −0.0 a plain 0.0."""
    return np.asarray(np.maximum(ends, 0.0) + 0.0)
