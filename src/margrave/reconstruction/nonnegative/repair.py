r"""From tables with small negative cells to tables with none, all in agreement.

The rounds of the solver end with tables x = S r that agree and are negative here and there. Cutting the negative cells
off makes tables disagree; mixing in a positive table costs its weight in every table (``lift``). Instead, look for a
point near x that is in both sets: the tables that agree (and keep what is held), and the tables that are not negative.

That is the problem of ``splitting`` with all weights zero, and its rounds are then the Douglas–Rachford iteration for
two sets, an affine and a polyhedral one. Where the sets meet in a positive table, this iteration ends after *finitely*
many rounds, exactly in the intersection (Bauschke, Dao, Noll & Phan, 2015, "On Slater's condition and finite
convergence of the Douglas–Rachford algorithm"); alternating projections only come closer and closer. Measured: 4 to 20
rounds on wide workloads, 40 to 110 on sparse ones, where half of all cells are at zero (docs/solver.md). A round reads
and writes one array.

Any penalties will do. Equal ones move least. Penalties in proportion to the cells of a table, for which all tables are
alike in what an even spread of people costs, move more and end two to four times earlier. So a repair begins with equal
ones, and where `FIRST_ROUNDS` are not enough, continues with the others from there.

Two fallbacks see to it that there is always an answer:

- after `LAST_ROUNDS` more, what is still negative, by then a negligible amount, is *lifted*: mixed with a positive
table by
  the least weight that leaves no negative cell;
- where more than the total is held, the positive table must keep the holds: an *interior* point, if one is found.

The lift is as small as possible. Let d_γ = max(−μ_γ − t T/n_γ, 0) be what table γ lacks beyond a uniform floor t T.
Spread each missing count evenly over the attributes outside γ: that is a non-negative data vector, so its tables agree
with each other and cover all that is lacking. Its residuals are C_τ Σ_{γ⊇τ} (sum of d_γ over γ∖τ), one adjoint with
weights n_γ, divided by n_τ. Its mass, t T + Σ d, against T is the weight. The floor t that costs least leaves above it
cells of total uniform share one: Σ_{cells above} 1/n_γ = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.reconstruction.nonnegative.kernels import BINS
from margrave.reconstruction.nonnegative.outer import REPAIR, Part, Parts
from margrave.reconstruction.nonnegative.problem import ROUNDING, Problem
from margrave.reconstruction.nonnegative.splitting import Splitting, added

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats

# The most rounds of a repair, with equal penalties and then with those in proportion to cells; and of the search for an
# interior point.
FIRST_ROUNDS, LAST_ROUNDS = 50, 60
_SEARCH_ROUNDS = 300
# Sums of cell shares that differ by less are equal: they depend on how the tables were cut into ranges for threads.
_SAME_SHARE = 1e-9


@dataclass(frozen=True, eq=False)
class Repair:
    """Tables without negative cells, except for rounding; the outer ones are in the place of the repair.

    Attributes
    ----------
    inner
        The inner tables; meaningless, like the outer ones, where ``moved`` is infinite.
    violation
        The most negative cell before the repair, as a positive number.
    moved
        The share of the total that the repair moved, ½ ‖x' − x‖₁ / T, mean over the outer tables; infinite where no
        tables without negative cells were found.
    rounds
        How many rounds it took.
    """

    inner: Floats
    violation: float
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

    def repair(self, state: Splitting) -> Repair:
        """Return tables near those of a state that are not negative."""
        parts, least = state.parts, state.write_tables(REPAIR)
        if least >= 0:
            return Repair(state.inner.copy(), 0.0, 0.0, 0)
        inner, total, still, rounds = self._search(parts)
        outer = len(self.problem.layout.sets) - self.problem.layout.outer
        moved = 0.5 * state.distance(REPAIR) / outer / total if total > 0 else 0.0
        weight = self._lift(parts, inner, total) if still < 0 else 0.0
        return Repair(inner, -least, moved + weight, rounds)

    def _search(self, parts: Parts) -> tuple[Floats, float, float, int]:
        """Look for tables near by that are not negative; return inner tables, total, least cell, and rounds taken."""
        layout = self.problem.layout
        near_by, outer = feasibility(self.problem), transform.outer_weights(layout)
        rounds = 0
        for penalties, most in ((outer, FIRST_ROUNDS), (outer * np.diff(layout.index.offset), LAST_ROUNDS)):
            search = Splitting(near_by, penalties=penalties, parts=parts, state=REPAIR, with_loss=False)
            found = run_to_feasibility(search, most)
            rounds += search.steps
            total, least = search.total, search.write_tables(REPAIR)
            if found:
                break
        return search.inner, total, least, rounds

    def _lift(self, parts: Parts, inner: Floats, total: float) -> float:
        """Lift what is negative and return the weight of the lift, infinite if there is nothing to mix in."""
        if self.problem.holds_more:
            # Tables that the holds fix can have cells that are zero, and come out as −1e-17; nothing can change that.
            # The sum of a table counts, since cutting it off is what makes tables disagree.
            lacking = max(one.mass for one in parts.run(Part.violations, REPAIR, total))
            return 0.0 if lacking <= ROUNDING * total else mix(self.problem, parts, inner, self.interior)
        if total <= 0:
            parts.run(Part.clear, REPAIR)
            inner[:] = 0.0
            return 1.0
        return lift(self.problem, parts, inner, total)


def feasibility(problem: Problem, z: Floats | None = None) -> Problem:
    """Return the problem without a loss: any tables that agree, are not negative and keep the holds (those of z)."""
    weights = np.where(np.isinf(problem.weights), np.inf, 0.0)
    return Problem(problem.layout, problem.z if z is None else z, weights)


def run_to_feasibility(search: Splitting, most: int) -> bool:
    """Do rounds until no cell of the tables of the state is negative, at most this many; tell whether that was reached.

    A round tells what was negative before it, so that its tables are gone; a round that moves nothing asks again.
    """
    while search.steps < most:
        if search.step() == 0.0 and search.step(relaxation=0.0) == 0.0:
            return True
    return False


def lift(problem: Problem, parts: Parts, inner: Floats, total: float) -> float:
    """Lift the tables in the place of the repair, and these inner ones, and return the weight of the lift."""
    layout, within = problem.layout, problem.layout.within
    violations = parts.run(Part.violations, REPAIR, total)
    from_above = np.cumsum(np.sum([one.spread for one in violations], axis=0)[::-1])
    # Bin b holds relative violations below 2^(b − BINS/2); the floor is the top of the first bin that need not be cut.
    uncut = int(np.searchsorted(from_above, 1.0 - _SAME_SHARE))
    floor = total * 2.0 ** (BINS // 2 - 1 - min(uncut, BINS - 1))
    floor = min(floor, max(one.largest for one in violations))
    lacking = parts.run(Part.deficits, REPAIR, floor)
    mass = floor + sum(one for _, one in lacking)
    scale = total / (total + mass)
    lifted = added(gathered for gathered, _ in lacking)
    if lifted.size:
        ones, cells = np.ones(layout.outer), np.diff(within.index.offset)
        facets = np.empty(within.facet_cells)
        transform.lower_inner(within, facets, lifted, weights=ones, factors=1 / cells)
        lifted[0] += floor
        transform.raise_inner(within, lifted, lifted)
    parts.run(Part.lift, REPAIR, floor, lifted, scale)
    inner += lifted
    inner *= scale
    return mass / (total + mass)


def mix(problem: Problem, parts: Parts, inner: Floats, interior: Floats | None) -> float:
    """Mix an interior point into the tables in the place of the repair, and into these inner ones; return its weight.

    Infinite if there is no such point.
    """
    if interior is None:
        return math.inf
    positive = transform.reconstruct(problem.layout, interior)
    own = parts.cells_per_part(positive[problem.layout.inner_cells :])
    share = max(parts.run_each(Part.least_share, [(REPAIR, one) for one in own]))
    if not math.isfinite(share):
        return math.inf
    parts.run_each(Part.mix, [(REPAIR, share, one) for one in own])
    inner *= 1.0 - share
    inner += share * positive[: inner.size]
    return share


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
            residuals = search.residuals(np.empty(layout.cells), np.empty(layout.facet_cells))
            residuals += margin * independent
            if transform.reconstruct(layout, residuals)[layout.inner_cells :].min() > 0:
                return residuals
    return None
