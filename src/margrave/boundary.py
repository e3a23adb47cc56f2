r"""The boundary: the only place where exact counts and noise meet. What comes out is noisy; what goes in never does.

A residual is measured in integers (the noise: ``privacy.noise``; the cost: ``planning.coefficients``).
From the counts v of the table on τ,

    w = H v + ξ,      H = ⊗_{k∈τ} (n_k I − 11ᵀ) = n_τ C_τ,      ξ independent discrete Gaussians, parameter g²,      (1)
    z = C_τ w / n_τ,                                            post-processing, in floating point.                (2)

H v is exact: n_k v less the sum along axis k, axis after axis, in 64-bit integers. One person with at most c rows moves
H v by at most c √∏ n_k(n_k − 1) in length, so (1) costs ρ = c² ∏ n_k(n_k − 1) / 2g², and (2) nothing. Should a sum in
(1) leave the range of 64 bits it wraps around, and a wrapped sum is still a function of the sum: the guarantee does not
depend on the range, only the usefulness does. It is checked against a public bound on the number of rows.

A marginal is measured as v + ξ with ρ = c² / 2σ²: one person moves v by at most c.

**Stages** (`StagedResiduals`). A stage is a choice of residuals, each with noise of a parameter g². What it costs
depends on the choice, which may depend on all noisy values before it; so the exact sum of all costs is checked against
the budget before every stage (`margrave.privacy.budget.PrivacyFilter`). This is the only place where residuals are
drawn more than once. Several measurements z_i of a residual with parameters σ²_i are combined by inverse variance
(``measurements``). The first one is kept as well: it alone is unbiased (`margrave.measurements.measurements.First`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats, Integers, thread_count
from margrave.discrete_gaussian import exact_variance
from margrave.errors import MeasurementError
from margrave.measurements.measurements import First, Measurements
from margrave.planning.coefficients import cell_counts, exact_cost

if TYPE_CHECKING:
    from margrave.algebra.layout import Layout
    from margrave.domain.domain import Domain
    from margrave.measurements.provenance import Provenance
    from margrave.privacy.budget import PrivacyFilter
    from margrave.privacy.noise import Sampler

# No table has more rows than this; public, so that a refusal says nothing about the table.
MOST_ROWS = 2**36
_RANGE = 2**62
_ROUNDING = 1e-12


def measure_residuals(layout: Layout, counts: Integers, noise: Sequence[Fraction | None], sampler: Sampler) -> Floats:
    """Return noisy residuals of a closure as centred arrays, by (1) and (2).

    Parameters
    ----------
    layout
        The closure.
    counts
        Shape (layout.cells,); the exact counts of every table. PRIVATE.
    noise
        g² of each table's residual; None where it is not measured, which gives zeros.
    sampler
        What draws the noise; each table has a sampler spawned for it alone, whatever the thread.
    """
    check_range(layout, noise)
    noisy = np.zeros(layout.cells)
    offset = layout.index.offset

    samplers = sampler.spawn(len(layout.sets))

    def one(table: int) -> None:
        variance = noise[table]
        if variance is None:
            return
        start, end = int(offset[table]), int(offset[table + 1])
        exact = integer_residual(counts[start:end].reshape(layout.shape(table)))
        exact += _drawn(samplers[table], variance, end - start).reshape(exact.shape)
        noisy[start:end] = exact.ravel() / float(end - start)

    # The largest first, so that no thread is left with a large one at the end.
    by_size = np.argsort(-np.diff(offset), kind="stable").tolist()
    with ThreadPoolExecutor(thread_count()) as pool:
        try:
            for _ in pool.map(one, by_size):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)  # ending the run at once must not wait for the other tables
            raise
    return transform.center(layout, noisy, out=noisy)


def integer_residual(counts: Integers) -> Integers:
    """Return H v of equation (1), exactly, in 64-bit integers; shape of the table."""
    residual = counts.astype(np.int64)
    for axis, size in enumerate(counts.shape):
        total = residual.sum(axis=axis, keepdims=True)
        residual *= size
        residual -= total
    return residual


def measure_marginal(counts: Integers, variance: Fraction, sampler: Sampler) -> Integers:
    """Return a table of counts with independent discrete Gaussian noise of this variance on each cell."""
    return counts + _drawn(sampler, variance, counts.size).reshape(counts.shape)


def _drawn(sampler: Sampler, variance: Fraction, count: int) -> Integers:
    """Return noise if it is whole numbers, as many as asked for: floating point would void the guarantee."""
    noise = sampler.draw(variance, count)
    if not isinstance(noise, np.ndarray) or noise.dtype != np.int64 or noise.shape != (count,):
        raise MeasurementError(
            f"sampler {sampler.name!r} did not give {count:,} whole numbers (int64)", remedy="use another"
        )
    return noise


def check_range(layout: Layout, noise: Sequence[Fraction | None]) -> None:
    """Raise `MeasurementError`, from public numbers alone, if a residual could leave the range of 64 bits.

    |H v| is at most n_τ times the number of rows.
    """
    cells = np.diff(layout.index.offset)
    for table in np.flatnonzero(cells > _RANGE // MOST_ROWS).tolist():
        if noise[table] is not None:
            raise MeasurementError(
                f"a table of {len(layout.sets[table])} attributes has {int(cells[table]):,} cells",
                remedy=f"at most {_RANGE // MOST_ROWS:,} can be measured exactly; ask for tables of fewer attributes",
            )


class StagedResiduals:
    """What was measured of the residuals of a closure, stage by stage.

    Parameters
    ----------
    domain
        The domain of the private table.
    layout
        The closure.
    counts
        Shape (layout.cells,); the exact counts of every table. PRIVATE: nothing gives them out.
    spending
        The filter that every stage passes.
    contributions
        The most rows that one person has.
    sampler
        What draws the noise.
    """

    def __init__(
        self,
        domain: Domain,
        layout: Layout,
        counts: Integers,
        *,
        spending: PrivacyFilter,
        contributions: int,
        sampler: Sampler,
    ) -> None:
        tables = len(layout.sets)
        self._domain, self._layout, self._counts = domain, layout, counts
        self._filter, self._contributions, self._sampler = spending, contributions, sampler
        self._values = np.zeros(layout.cells)
        self._precisions, self._spread = np.zeros(tables), np.zeros(tables)
        self._often = np.zeros(tables, dtype=np.int64)
        self._sums: dict[int, Floats] = {}
        self._first_values: dict[int, Floats] = {}
        self._first_precisions, self._first_variances = np.zeros(tables), np.zeros(tables)
        self._total_noise: float | None = None

    def costs(self, noise: Floats) -> list[Fraction]:
        """Return the exact cost of measuring each residual with noise g²; those with zero are not measured."""
        return [
            exact_cost(self._layout.shape(table), Fraction(float(noise[table])), self._contributions)
            for table in np.flatnonzero(noise).tolist()
        ]

    def measure(self, noise: Floats, purpose: str) -> None:
        """Measure residuals, once the filter has let the stage pass.

        Parameters
        ----------
        noise
            Shape (tables,); g² of the noise on each integer residual, exactly; zero for those that are not measured.
        purpose
            What the stage is, in words.
        """
        layout = self._layout
        wanted = [Fraction(float(one)) if one > 0 else None for one in noise.tolist()]
        check_range(layout, wanted)
        self._filter.spend(purpose, self.costs(noise))
        drawn = measure_residuals(layout, self._counts, wanted, self._sampler)
        squares = cell_counts(layout) ** 2
        exact = exact_variance(noise) / squares
        for table in np.flatnonzero(noise).tolist():
            precision = float(squares[table]) / float(noise[table])
            self._combine(table, layout.view(drawn, table), precision, float(exact[table]))
        if self._total_noise is None and noise[layout.places[()]] > 0:
            self._total_noise = float(noise[layout.places[()]])

    def _combine(self, table: int, values: Floats, precision: float, exact: float) -> None:
        """Add one measurement of a residual to those before it."""
        combined = self._layout.view(self._values, table)
        if self._often[table] == 0:
            self._first_precisions[table], self._first_variances[table] = precision, exact
        elif self._often[table] == 1:
            self._first_values[table] = combined.copy()
            self._sums[table] = combined + values
        else:
            self._sums[table] += values
        self._often[table] += 1
        self._precisions[table] += precision
        self._spread[table] += exact * precision**2
        combined += (values - combined) * (precision / self._precisions[table])

    def measurements(self, provenance: Provenance | None = None) -> Measurements:
        """Return all that was measured so far."""
        again = sorted(self._first_values)
        first = averages = None
        if again:
            joined = np.concatenate([self._first_values[table].ravel() for table in again])
            first = First(joined, self._first_precisions.copy(), self._first_variances.copy())
            averages = np.concatenate([(self._sums[table] / self._often[table]).ravel() for table in again])
        known = self._precisions > 0
        variances = np.divide(self._spread, self._precisions**2, out=np.zeros(len(known)), where=known)
        inverse = np.divide(1.0, self._precisions, out=np.zeros(len(known)), where=known)
        # Where they are the inverse of the precisions, as they are but for very small noise, they need not be kept.
        same = bool((variances >= inverse * (1 - _ROUNDING)).all())
        return Measurements.from_centered(
            self._domain,
            self._layout,
            values=self._values.copy(),
            precisions=self._precisions.copy(),
            counts=self._often.copy(),
            variances=None if same else np.minimum(variances, inverse),
            averages=averages,
            # The residual of no attributes is the total itself.
            direct=None if self._total_noise is None else ((), self._total_noise),
            provenance=provenance,
            first=first,
        )
