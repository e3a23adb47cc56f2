r"""Completion: tables for all that was asked from measurements of a part of it.

Scalable MWEM measures some tables of a workload; most residuals of the others are never measured. Zero is a poor guess
for those: it means flat tables, not unrelated attributes. The table to expect, given the tables inside it, is the one
of largest entropy with those facets (``fitting``): for a pair of attributes, independence. So an estimate is built up
level by level, from the total to the largest tables. For a set τ whose facets have been estimated,

    expected     q = the most even table with the facets of τ                                                     (1)
    observed     y = q + (z_τ − C_τ q)                     noise of variance up to σ²_τ a cell                      (2)
    estimated    t = posterior mean of the cells given y and q (``denoising``)                                    (3)
    fitted       μ_τ = t, scaled to the facets                                                                    (4)

and where τ was never measured μ_τ = q. In (2) z_τ itself brings σ²_τ m_τ/n_τ. For the facets behind q (3) allows the
rest of σ²_τ, which is what they would bring if they were the sums of this noisy table. A pair (a, b) that was not
measured, but whose members were both measured with some c, is expected to be independent given c:
μ_ab = Σ_c μ_ac μ_bc / μ_c, for the c that tells most about both.

*Back down.* (3) moves the sums of t too: a count that stands out of the noise of a large table belongs to its facets
as well. So before (4) every smaller table becomes the mean of what the estimates of this level say about it, weighted
by their precision (and moved back to its own measurement by (5), where that says otherwise), and all tables between are
fitted again. Then the whole is done a second time, from the pairs up, with what the tables of one attribute have
learned; more sweeps gain little.

*What noise cannot explain.* Where z_τ is further from the completed residual c_τ than noise would bring it, the
completion is wrong and the truth is nearer to z_τ. With m_τ degrees of freedom, noise has the squared length m_τ σ²_τ
on average and, but for one time in forty-five at most, below b_τ = (m_τ + 3 √(2 m_τ)) σ²_τ. After James and Stein the
centre is

    c_τ + s (z_τ − c_τ),   s = 1 − b_τ / ‖z_τ − c_τ‖²,       if s is above one half, else c_τ.                    (5)

(Below one half most of what would be put back is noise, and non-negativity makes of noise what squares do not see.)

The tables before (5) are not negative, so the non-negative solver has little left to do where (5) changes little.
docs/completion.md has what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats, center_before
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.prior.denoising import LEAST_SHARE, denoise
from margrave.reconstruction.prior.fitting import fit_proportionally, most_even, ratio
from margrave.reconstruction.prior.total import likely_total

# Equation (5) puts a difference back when more than this share of it is not noise.
_MOSTLY_SIGNAL = 0.5
_SWEEPS = 2


@dataclass(frozen=True, eq=False)
class Completion:
    """Centres for every residual of a closure, and how the solver should use them.

    Attributes
    ----------
    estimates
        The residuals to be near to, measured or not; how often and how precisely each was measured is as given.
    weights
        Shape (tables,); weights for the solver: infinite for the total, which is held and positive, 2^(−|τ|) for
        the rest.
    marginals
        Shape (layout.cells,), read-only; the completed tables before (5): not negative, in agreement up to the
        tolerance of proportional fitting.
    """

    estimates: Estimates
    weights: Floats
    marginals: Floats


def complete(estimates: Estimates, *, total: float | None = None) -> Completion:
    """Return what to expect of every residual of a closure, given those that were measured.

    Parameters
    ----------
    estimates
        The measured residuals. One whose noise has no single variance is taken as it stands.
    total
        The number of people to spread over every table; by default `likely_total`.

    Notes
    -----
    Never fails: where nothing says that there are people at all, one is spread over every table.
    """
    layout = estimates.layout
    asked = likely_total(estimates) if total is None else total
    people = asked if asked > 0 else 1.0
    marginals = _Cascade(estimates, people).run()
    residuals = transform.decompose(layout, marginals)
    _keep_unexplained(estimates, residuals)
    # The total is held: what was measured may be negative, and no table has that.
    residuals[layout.places[()]] = people
    weights: Floats = np.ldexp(1.0, -layout.index.order)
    weights[layout.places[()]] = np.inf
    marginals.setflags(write=False)
    return Completion(Estimates(layout, residuals, estimates.counts, estimates.precisions), weights, marginals)


def share_unexplained(estimates: Estimates, table: int, difference: Floats) -> float:
    """Return the share of the difference between a measured residual and a guess that is to be put back, by (5)."""
    precision, distance = float(estimates.precisions[table]), float(np.vdot(difference, difference))
    if math.isnan(precision):
        return 1.0
    degrees = float(estimates.layout.degrees[table])
    noise = (degrees + 3 * math.sqrt(2 * degrees)) / precision
    share = 1 - noise / distance if distance > 0 else 0.0
    return share if share > _MOSTLY_SIGNAL else 0.0


def _keep_unexplained(estimates: Estimates, residuals: Floats) -> None:
    """Move completed residuals towards their measurements by equation (5), in place; the total stays."""
    layout = estimates.layout
    for table in np.flatnonzero((estimates.counts > 0) & (layout.degrees > 0)).tolist():
        if layout.sets[table]:
            completed = layout.view(residuals, table)
            difference = layout.view(estimates.values, table) - completed
            completed += share_unexplained(estimates, table, difference) * difference


class _Cascade:
    """The tables of a closure while they are completed, level by level.

    Parameters
    ----------
    estimates
        The measured residuals.
    total
        What every table adds up to, positive.
    """

    def __init__(self, estimates: Estimates, total: float) -> None:
        layout = estimates.layout
        self._estimates, self._layout, self._total = estimates, layout, total
        self._tables = np.zeros(layout.cells)
        self._tables[layout.places[()]] = total
        self._measured = (estimates.counts > 0) & (layout.degrees > 0)
        known = estimates.precisions[self._measured & ~np.isnan(estimates.precisions)]
        # Noise without a variance counts as that of the best measurement where estimates are averaged.
        self._precisions = np.nan_to_num(estimates.precisions, nan=float(known.max()) if known.size else 1.0)
        orders = layout.index.order
        self._levels = [np.flatnonzero(orders == order).tolist() for order in range(int(orders.max()) + 1)]

    def run(self) -> Floats:
        """Return the completed tables."""
        largest = len(self._levels) - 1
        for sweep in range(_SWEEPS):
            # Tables of one attribute keep what the first sweep has learned about them.
            for order in range(1 if sweep == 0 else 2, largest + 1):
                for table in self._levels[order]:
                    if self._measured[table]:
                        self._view(table)[...] = self._estimated(table)
                self._inform_smaller(order)
                if order < largest or sweep == _SWEEPS - 1:
                    self._fill(order)
        return self._tables

    def _view(self, table: int) -> Floats:
        return self._layout.view(self._tables, table)

    def _facets(self, table: int) -> list[Floats]:
        """Return the tables that lack one axis of a table, in the order of the axes."""
        return [self._view(facet) for facet in self._layout.index.facet[table, : len(self._layout.sets[table])]]

    def _expected(self, table: int) -> Floats:
        """Return q of equation (1)."""
        shape = self._layout.shape(table)
        return np.full(shape, self._total / shape[0]) if len(shape) == 1 else most_even(self._facets(table))

    def _estimated(self, table: int) -> Floats:
        """Return t of equation (3), scaled to the total."""
        expected = self._expected(table)
        observed = expected + (self._layout.view(self._estimates.values, table) - _centred(expected))
        precision = float(self._estimates.precisions[table])
        if math.isnan(precision):
            found = np.maximum(observed, LEAST_SHARE * expected)
        else:
            found = denoise(observed, expected, 1 / precision)
        scaled: Floats = found * (self._total / found.sum())
        return scaled

    def _inform_smaller(self, order: int) -> None:
        """Make smaller tables the mean of what the measured ones of an order say about them, and fit those between."""
        informed = [table for table in self._levels[order] if self._measured[table]]
        weights = self._precisions
        for _ in range(order - 1):
            informed, weights = self._averaged(informed, weights)
        for level in range(2, order):
            for table in self._levels[level]:
                fit_proportionally(self._view(table), self._facets(table))

    def _averaged(self, informed: Sequence[int], precisions: Floats) -> tuple[list[int], Floats]:
        """Replace every facet of some tables by the weighted mean of their sums; return the facets and their weights.

        A sum over n cells of precision π has precision π/n.
        """
        sums: dict[int, Floats] = {}
        weights = np.zeros(len(self._layout.sets))
        for table in informed:
            values = self._view(table)
            for axis, facet in enumerate(self._layout.index.facet[table, : values.ndim].tolist()):
                weight = float(precisions[table]) / values.shape[axis]
                sums[facet] = sums.get(facet, 0.0) + weight * values.sum(axis=axis)
                weights[facet] += weight
        for facet, values in sums.items():
            self._view(facet)[...] = self._corrected(facet, values / weights[facet])
        return sorted(sums), weights

    def _corrected(self, table: int, values: Floats) -> Floats:
        """Return a table moved towards its own measurement by (5), positive where it was, with its total."""
        if not self._measured[table]:
            return values
        difference = self._layout.view(self._estimates.values, table) - _centred(values)
        moved = values + share_unexplained(self._estimates, table, difference) * difference
        moved = np.maximum(moved, LEAST_SHARE * values)
        scaled: Floats = moved * (self._total / moved.sum())
        return scaled

    def _fill(self, order: int) -> None:
        """Fit the measured tables of an order to their facets, and put what is expected in place of the others."""
        missing = [table for table in self._levels[order] if not self._measured[table]]
        for table in self._levels[order]:
            if self._measured[table] and order > 1:
                fit_proportionally(self._view(table), self._facets(table))
        dependence = self._dependence() if order == 2 and missing else {}
        for table in missing:
            chained = self._through_another(table, dependence) if order == 2 else None
            self._view(table)[...] = self._expected(table) if chained is None else chained

    def _dependence(self) -> dict[tuple[int, ...], float]:
        """Return the mutual information of the members of every measured pair, by pair, times the total."""
        found = {}
        for table in self._levels[2]:
            if self._measured[table]:
                joint, expected = self._view(table), self._expected(table)
                positive = (joint > 0) & (expected > 0)
                counts = joint[positive]
                found[self._layout.sets[table]] = float(np.vdot(counts, np.log(counts / expected[positive])))
        return found

    def _through_another(self, table: int, dependence: dict[tuple[int, ...], float]) -> Floats | None:
        """Return a pair's table as independent given the attribute most dependent with both; None if there is none."""
        first, second = self._layout.sets[table]
        best, most = None, 0.0
        for other in range(len(self._layout.sizes)):
            shared = min(dependence.get(_pair(first, other), 0.0), dependence.get(_pair(second, other), 0.0))
            if shared > most:
                best, most = other, shared
        if best is None:
            return None
        rows, columns = self._oriented(first, best), self._oriented(best, second)
        # Both tables say how many have each value of c, up to the tolerance of fitting; neither is preferred.
        middle = np.sqrt(rows.sum(axis=0) * columns.sum(axis=1))
        joint: Floats = rows @ ratio(columns, middle[:, None])
        return fit_proportionally(joint, self._facets(table))

    def _oriented(self, row: int, column: int) -> Floats:
        """Return the table of two attributes with the first one along the rows."""
        table = self._view(self._layout.places[_pair(row, column)])
        return table if row < column else table.T


def _pair(one: int, other: int) -> tuple[int, int]:
    """Return two attributes in ascending order."""
    return (one, other) if one < other else (other, one)


def _centred(table: Floats) -> Floats:
    """Return a table with its mean along every axis taken away."""
    centred = table.copy()
    center_before(centred.reshape(-1), np.array(table.shape, dtype=np.int64), table.ndim)
    return centred
