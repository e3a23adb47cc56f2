r"""Residuals that are measured in stages: every draw passes the filter first, and first measurements are kept apart.

A stage is a choice of residuals, each with noise of a variance g². What it costs depends on the choice, which may
depend on all noisy values before it; so the exact sum of all costs is checked against the budget before every stage
(``privacy.filter``). This is the only place where residuals are drawn more than once.

Several measurements z_i of a residual with parameters σ²_i are combined by inverse variance (``measurements``). The
first one is kept as well: it alone is unbiased (`margrave.measurements.measurements.First`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from margrave.boundary import check_range, measure_residuals
from margrave.discrete_gaussian import exact_variance
from margrave.measurements.measurements import First, Measurements
from margrave.planning.coefficients import cell_counts, exact_cost

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats, Integers
    from margrave.algebra.layout import Layout
    from margrave.domain.domain import Domain
    from margrave.measurements.provenance import Provenance
    from margrave.privacy.filter import PrivacyFilter
    from margrave.privacy.noise import Sampler

_ROUNDING = 1e-12


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
