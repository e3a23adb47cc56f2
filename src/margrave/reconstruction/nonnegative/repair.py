r"""From tables with small negative cells to tables with none, all in agreement.

The rounds of the solver end with tables x = S r that agree and are negative here and there. Cutting the negative cells
off makes tables disagree; mixing in a positive table costs its weight in every table (``lift``). Instead, look for a
point near x that is in both sets: the tables that agree (and keep what is held), and the tables that are not negative.

That is the problem of ``splitting`` with all weights zero, and its rounds are then the Douglas–Rachford iteration for
two sets, an affine and a polyhedral one. Where the sets meet in a positive table, this iteration ends after *finitely*
many rounds, exactly in the intersection (Bauschke, Dao, Noll & Phan, 2015, "On Slater's condition and finite
convergence of the Douglas–Rachford algorithm"); alternating projections only come ever nearer. Measured: 4 to 20 rounds
on wide workloads, 40 to 110 on sparse ones, where half of all cells are at zero (docs/solver.md). A round reads and
writes one array.

Any penalties will do. Equal ones move least. Penalties in proportion to the cells of a table, for which all tables are
alike in what an even spread of people costs, move more and end two to four times earlier. So a repair begins with equal
ones, and where `FIRST_ROUNDS` are not enough, goes on with the others from where it has come.

Two fallbacks see to it that there is always an answer:

- after `LAST_ROUNDS` more, what is still negative, by then next to nothing, is *lifted*: mixed with a positive table by
  the least weight that leaves no negative cell;
- where more than the total is held, the positive table must keep the holds: an *interior* point, if one is found.

The lift is made to measure. Let d_γ = max(−μ_γ − t T/n_γ, 0) be what table γ lacks beyond a uniform floor t T. Spread
each missing count evenly over the attributes outside γ: that is a non-negative data vector, so its tables agree with
each other and cover all that is lacking. Its residuals are C_τ Σ_{γ⊇τ} (sum of d_γ over γ∖τ), one adjoint with weights
n_γ, divided by n_τ. Its mass, t T + Σ d, against T is the weight. The floor t that costs least leaves above it cells of
total uniform share one: Σ_{cells above} 1/n_γ = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats, over_tables
from margrave.reconstruction.nonnegative.kernels import (
    BINS,
    absolute_sums,
    count_violations,
    keep_deficits,
    least_share,
)
from margrave.reconstruction.nonnegative.problem import ROUNDING, Problem
from margrave.reconstruction.nonnegative.splitting import Splitting

if TYPE_CHECKING:
    from margrave.algebra.layout import Layout

# The most rounds of a repair, with equal penalties and then with those in proportion to cells; and of the search for an
# interior point.
FIRST_ROUNDS, LAST_ROUNDS = 50, 60
_SEARCH_ROUNDS = 300
# Sums of cell shares that differ by less are equal: they depend on how the tables were cut into ranges for threads.
_SAME_SHARE = 1e-9


@dataclass(frozen=True, eq=False)
class Repair:
    """Residuals whose tables are not negative, but for rounding.

    Attributes
    ----------
    residuals
        In one of the two buffers that were lent; meaningless where ``moved`` is infinite.
    moved
        The share of the total that the repair moved, ½ ‖x' − x‖₁ / T, mean over the outer tables; infinite where no
        tables without negative cells were found.
    rounds
        How many rounds it took.
    """

    residuals: Floats
    moved: float
    rounds: int


class Repairer:
    """Repairs tables of one problem.

    Parameters
    ----------
    problem
        The problem; its holds are kept.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._interior: Floats | None = None
        self._searched = False

    @property
    def interior(self) -> Floats | None:
        """Residuals of positive tables that keep all holds, searched for when first asked for; None if not found."""
        if not self._searched:
            self._interior, self._searched = interior_point(self.problem), True
        return self._interior

    def repair(self, residuals: Floats, tables: Floats) -> Repair:
        """Return residuals near the given ones whose tables are not negative.

        Parameters
        ----------
        residuals, tables
            r and S r; both buffers are worked in.
        """
        layout = self.problem.layout
        if not _negative(layout, tables):
            return Repair(residuals, 0.0, 0)
        near, rounds, facets = self._search(tables)
        np.subtract(residuals, near, out=residuals)
        moved = _share(layout, transform.reconstruct(layout, residuals, out=residuals), float(near[0]))
        marginals = transform.reconstruct(layout, near, out=residuals)
        weight, lifted = self._lift(near, marginals, facets) if _negative(layout, marginals) else (0.0, near)
        return Repair(lifted, moved + weight, rounds)

    def _search(self, tables: Floats) -> tuple[Floats, int, Floats]:
        """Return residuals near by whose tables are not negative, if the rounds are enough; the rounds; free facets.

        The residuals take the place of the tables.
        """
        layout = self.problem.layout
        near_by, outer = feasibility(self.problem), transform.outer_weights(layout)
        search = Splitting(near_by, tables[layout.inner_cells :], outer)
        found = run_to_feasibility(search, FIRST_ROUNDS)
        rounds, near = search.steps, search.residuals(tables, search.facets)
        if not found:
            transform.reconstruct(layout, near, out=tables)
            search = Splitting(near_by, tables[layout.inner_cells :], outer * np.diff(layout.index.offset))
            run_to_feasibility(search, LAST_ROUNDS)
            rounds, near = rounds + search.steps, search.residuals(tables, search.facets)
        return near, rounds, search.facets

    def _lift(self, residuals: Floats, marginals: Floats, facets: Floats) -> tuple[float, Floats]:
        """Return the weight of the lift and the lifted residuals; it is infinite if there is nothing to mix in."""
        layout, total = self.problem.layout, float(residuals[0])
        if self.problem.holds_more:
            if rounding_only(layout, marginals, total):
                return 0.0, residuals
            return mix(layout, residuals, marginals, self.interior)
        if total <= 0:
            residuals[:] = 0.0
            return 1.0, residuals
        return lift(layout, residuals, marginals, facets, total)


def feasibility(problem: Problem, z: Floats | None = None) -> Problem:
    """Return the problem without a loss: any tables that agree, are not negative and keep the holds (those of z)."""
    weights = np.where(np.isinf(problem.weights), np.inf, 0.0)
    return Problem(problem.layout, problem.z if z is None else z, weights)


def run_to_feasibility(search: Splitting, most: int) -> bool:
    """Do rounds until no cell of the tables of the state is negative, at most so many; tell whether that was reached.

    A round tells what was negative before it, so that its tables are gone; a round that moves nothing asks again.
    """
    while search.steps < most:
        if search.step() == 0.0 and search.step(relaxation=0.0) == 0.0:
            return True
    return False


def _negative(layout: Layout, marginals: Floats) -> bool:
    """Tell whether a cell of an outer table is negative."""
    return bool(marginals[layout.inner_cells :].min() < 0)


def rounding_only(layout: Layout, marginals: Floats, total: float) -> bool:
    """Tell whether all that is negative in any one outer table adds up to no more than rounding.

    Tables that the holds fix can have cells that are zero, and come out as −1e-17; nothing can mend that. The sum
    counts, since cutting it off is what makes tables disagree.
    """
    negative = np.minimum(marginals[layout.inner_cells :], 0.0)
    starts = layout.index.offset[layout.outer : -1] - layout.inner_cells
    return bool(np.add.reduceat(negative, starts).min() >= -ROUNDING * total)


def _share(layout: Layout, differences: Floats, total: float) -> float:
    """Return ½ ‖d‖₁ / T of the outer tables, on average; zero where nobody is there to be moved."""
    sums = np.zeros(len(layout.sets))

    def task(begin: int, end: int) -> None:
        absolute_sums(begin, end, layout.index, differences, sums)

    over_tables(task, layout.outer, len(layout.sets), layout.index.offset)
    return float(0.5 * sums[layout.outer :].mean() / total) if total > 0 else 0.0


def lift(layout: Layout, residuals: Floats, marginals: Floats, facets: Floats, total: float) -> tuple[float, Floats]:
    """Return the weight of the lift and the lifted residuals, which take the place of ``marginals``."""
    index, tables = layout.index, len(layout.sets)
    spread: list[Floats] = []
    worst, masses = np.zeros(tables), np.zeros(tables)

    def count(begin: int, end: int) -> None:
        spread.append(count_violations(begin, end, index, marginals, total, worst))

    def lack(begin: int, end: int) -> None:
        keep_deficits(begin, end, index, floor, marginals, masses)

    over_tables(count, layout.outer, tables, index.offset)
    from_above = np.cumsum(np.sum(spread, axis=0)[::-1])
    # Bin b holds relative violations below 2^(b − BINS/2); the floor is the top of the first bin that need not be cut.
    uncut = int(np.searchsorted(from_above, 1.0 - _SAME_SHARE))
    floor = total * 2.0 ** (BINS // 2 - 1 - min(uncut, BINS - 1))
    floor = min(floor, float((worst[layout.outer :] * np.diff(index.offset)[layout.outer :]).max()))
    over_tables(lack, layout.outer, tables, index.offset)
    mass = floor + float(masses.sum())
    cells = np.diff(index.offset).astype(np.float64)
    weights = transform.outer_weights(layout) * cells
    added = transform.adjoint(layout, marginals, weights=weights, factors=1 / cells, out=marginals, facets=facets)
    added += residuals
    added *= total / (total + mass)
    added[0] = total
    return mass / (total + mass), added


def mix(layout: Layout, residuals: Floats, marginals: Floats, interior: Floats | None) -> tuple[float, Floats]:
    """Return the weight of the lift and the residuals mixed with those of an interior point, if there is one."""
    if interior is None:
        return math.inf, residuals
    positive = transform.reconstruct(layout, interior)
    shares = np.zeros(len(layout.sets))

    def task(begin: int, end: int) -> None:
        least_share(begin, end, layout.index, marginals, positive, shares)

    over_tables(task, layout.outer, len(layout.sets), layout.index.offset)
    share = float(shares.max())
    if not math.isfinite(share):
        return math.inf, residuals
    residuals *= 1.0 - share
    residuals += share * interior
    return share, residuals


def interior_point(problem: Problem) -> Floats | None:
    """Return residuals that keep all holds and whose tables are positive, or None if none was found.

    Where the total is free, adding to it makes any tables positive. Where it is held, the first guess has the held
    one-way tables and independence, with the other holds put in. If that is negative somewhere, look for tables that
    keep the holds and are at least a share of independent tables.
    """
    layout = problem.layout
    held = np.flatnonzero(np.isinf(problem.weights)).tolist()
    independent = problem.independent() if problem.holds_total else np.zeros(layout.cells)
    point = independent.copy()
    for table in held:
        layout.view(point, table)[...] = layout.view(problem.z, table)
    marginals = transform.reconstruct(layout, point)
    cells = np.diff(layout.index.offset)[layout.outer :]
    needed = float((-np.minimum.reduceat(marginals, layout.index.offset[layout.outer : -1]) * cells).max())
    if not problem.holds_total:
        point[0] += max(2 * needed, 0.0) + 1.0
        return point
    return point if needed < 0 else _search_interior(problem, point, independent, marginals)


def _search_interior(problem: Problem, point: Floats, independent: Floats, marginals: Floats) -> Floats | None:
    """Return positive tables with all holds, at least a share of the independent ones, or None.

    A table that the holds fix bounds the share.
    """
    layout, most = problem.layout, 1.0
    independent_marginals = transform.reconstruct(layout, independent)
    for table in np.flatnonzero(problem.fixed).tolist():
        cells = slice(*layout.index.offset[table : table + 2])
        most = min(most, float((marginals[cells] / independent_marginals[cells]).min()))
    for margin in (0.5 * most, 0.1 * most, 0.02 * most, 0.004 * most) if most > 0 else ():
        inside = feasibility(problem, point - margin * independent)
        search = Splitting(inside, penalties=transform.outer_weights(layout))
        if run_to_feasibility(search, _SEARCH_ROUNDS):
            residuals = search.residuals(np.empty(layout.cells), search.facets)
            residuals += margin * independent
            if transform.reconstruct(layout, residuals)[layout.inner_cells :].min() > 0:
                return residuals
    return None
