r"""What a set of multipliers proves: a lower bound on the best loss, and tables that are feasible and near it.

The problem (``nonnegative`` has the derivation): minimise f(r) = Σ_τ w_τ ‖r_τ − z_τ‖² over residuals whose tables
μ = S r are not negative. With κ_τ = 1/(2 w_τ) and multipliers λ ≥ 0 on the outer tables, m = Sᵀ λ gives

    dual        g(λ) = −Σ_τ ½ κ_τ ‖m_τ‖² − Σ_τ m_τ · z_τ  ≤  best f,        at the residuals  r = z + κ m.         (1)

The tables of r have small negative cells until λ is optimal. They are *lifted*: mixed with a positive table that agrees
with itself by the least weight θ that leaves no negative cell,

    μ' = (1 − θ) μ + θ u,      f(r') − g(λ) ≥ f(r') − best f ≥ 0.                                                   (2)

The uniform table of the same total would do for u, but a single bad cell then sets θ: a cell of a large sparse table
has a uniform share of 0.05. So u is made to measure. Let d_γ = max(−μ_γ − t T/n_γ, 0) be what table γ lacks beyond a
uniform floor t T. Spread each missing count evenly over the attributes outside γ: that is a non-negative data vector,
so its tables agree with each other and cover all that is lacking. Its residuals are C_τ Σ_{γ⊇τ} (sum of d_γ over γ∖τ),
one adjoint with weights n_γ, divided by n_τ. Its mass, t T + Σ d, against T is the weight θ. The floor t that costs
least leaves above it cells of total uniform share one: Σ_{cells above} 1/n_γ = 1. A lift 3 to 23 times smaller
than with the uniform table, at the same λ (docs/solver.md).

Where more than the total is held, u must keep the holds too; see ``interior``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from margrave.algebra import transform
from margrave.algebra.kernels import Floats
from margrave.algebra.layout import Layout
from margrave.algebra.threads import over_tables
from margrave.reconstruction import rounds

# A loss that is below that of all-zero tables by less than this share of it is not worth telling from it.
_NEXT_TO_NOTHING = 1e-12
# Residuals that differ from z by rounding alone have a loss of about 2⁻¹⁰⁴ of that of all-zero tables; where the loss
# is that small the gap is absolute.
_ROUNDED_LOSS = 1e-26
# Cells of tables that are held may be negative by rounding, by this share of the total; no mixture could mend that.
ROUNDING = 1e-12
# Sums of cell shares that differ by less are equal: they depend on how the tables were cut into ranges for threads.
_SAME_SHARE = 1e-9


@dataclass(frozen=True, eq=False)
class Problem:
    """Nearest residuals under non-negativity: what to be near to, and how much each residual counts.

    Attributes
    ----------
    layout
        The closure.
    z
        Shape (layout.cells,); the residuals to be near to.
    weights
        Shape (tables,); w_τ > 0; infinite for residuals that stay at z, and for those that are identically zero.
    """

    layout: Layout
    z: Floats
    weights: Floats

    @property
    def curvatures(self) -> Floats:
        """κ_τ = 1/(2 w_τ), zero for residuals that are held."""
        return 0.5 / self.weights

    @property
    def holds_total(self) -> bool:
        """Whether the total stays as it is."""
        return bool(np.isinf(self.weights[0]))

    @property
    def holds_more(self) -> bool:
        """Whether a residual other than the total, and not identically zero, stays as it is."""
        return bool((np.isinf(self.weights) & (self.layout.degrees > 0))[1:].any())

    def __post_init__(self) -> None:
        # Always read-only, so that the kernels are compiled for one kind of array.
        view = self.z.view()
        view.setflags(write=False)
        object.__setattr__(self, "z", view)

    def loss(self, residuals: Floats) -> float:
        """Return f(r) = Σ_τ w_τ ‖r_τ − z_τ‖² over the residuals that are not held."""
        layout = self.layout
        distances = np.zeros(len(layout.sets))

        def task(begin: int, end: int) -> None:
            rounds.squared_distances(begin, end, layout.index, self.z, residuals, distances)

        over_tables(task, 0, len(layout.sets), layout.index.offset)
        free = np.isfinite(self.weights)
        return float(self.weights[free] @ distances[free])

    @cached_property
    def loss_of_zero(self) -> float:
        """f(0), the loss of tables that are all zero."""
        offset = self.layout.index.offset.tolist()
        free = np.flatnonzero(np.isfinite(self.weights)).tolist()
        tables = (self.z[offset[t] : offset[t + 1]] for t in free)
        return float(sum(self.weights[t] * (x @ x) for t, x in zip(free, tables, strict=True)))

    @cached_property
    def fixed(self) -> NDArray[np.bool_]:
        """Whether the holds fix each table: its own residual is held and all its facets are fixed; shape (tables,)."""
        layout = self.layout
        fixed = np.isinf(self.weights)
        for table in range(len(layout.sets)):
            facets = layout.index.facet[table, : layout.index.order[table]]
            fixed[table] &= bool(fixed[facets].all())
        return fixed

    def independent(self) -> Floats:
        """Return residuals of independent attributes: held one-way tables where they are positive, else even ones.

        With the held total T the tables are T ∏ (μ_k / T), so that the residuals are T ∏ (r_k / T).
        """
        layout, total = self.layout, float(self.z[0])
        shares: dict[int, Floats] = {}
        for attribute, size in enumerate(layout.sizes):
            table = layout.places.get((attribute,))
            if table is not None and np.isinf(self.weights[table]):
                share = layout.view(self.z, table) / total
                if share.min() > -1 / size:
                    shares[attribute] = share
        residuals = np.zeros(layout.cells)
        for table, attributes in enumerate(layout.sets):
            if shares.keys() >= set(attributes):
                parts = np.ix_(*(shares[attribute] for attribute in attributes))
                layout.view(residuals, table)[...] = total * math.prod(parts)
        return residuals

    @cached_property
    def largest_loss(self) -> float:
        """A bound on f over all non-negative tables with the held total T, where it is held; else infinity.

        Cells between 0 and T that add up to T have ‖r_τ‖ ≤ ‖μ_τ‖ ≤ T, so that f ≤ Σ w_τ (T + ‖z_τ‖)². A dual value
        above it proves that no such tables keep all holds.
        """
        if not self.holds_total:
            return math.inf
        free = np.isfinite(self.weights)
        norms = np.sqrt(np.add.reduceat(self.z * self.z, self.layout.index.offset[:-1]))
        return float(self.weights[free] @ (abs(float(self.z[0])) + norms[free]) ** 2)


@dataclass(frozen=True, eq=False)
class Certificate:
    """How good a feasible point is, proven by multipliers.

    Attributes
    ----------
    gap
        (f(r') − g(λ)) / f(r'); absolute where f(r') is next to nothing. Infinite where no feasible point was found.
    lift
        The weight θ of the lift; zero where all-zero tables are the best that is known.
    dual
        g(λ), which no feasible loss is below.
    violation
        The most negative cell before the lift, as a positive number.
    residuals
        The feasible residuals r', in the buffer that was lent; meaningless where the gap is infinite.
    """

    gap: float
    lift: float
    dual: float
    violation: float
    residuals: Floats


def certify(
    problem: Problem, multipliers: Floats, *, buffers: tuple[Floats, Floats, Floats], interior: Floats | None
) -> Certificate:
    """Return what the multipliers prove.

    Parameters
    ----------
    problem
        The problem.
    multipliers
        λ ≥ 0 of the outer tables; not changed.
    buffers
        Two buffers of the closure and one of its facets to work in; the residuals of the certificate stand in one of
        the first two.
    interior
        Residuals of a positive table that keeps all holds, where more than the total is held.
    """
    first, second, facets = buffers
    layout = problem.layout
    dual = dual_residuals(problem, multipliers, first, facets)
    marginals = transform.reconstruct(layout, first, out=second)
    total = float(first[0])
    violation = max(0.0, -float(marginals[layout.inner_cells :].min()))
    if violation == 0.0 or (problem.holds_more and _rounding_only(layout, marginals, total)):
        lift, residuals = 0.0, first
    elif problem.holds_more:
        lift, residuals = _mix(layout, first, second, interior)
    elif total > 0:
        lift, residuals = _lift(layout, first, second, facets, total)
    else:
        lift, residuals = 1.0, _zero(first)
    loss = problem.loss(residuals) if math.isfinite(lift) else math.inf
    scale = problem.loss_of_zero
    if not problem.holds_total and not problem.holds_more and loss >= (1 - _NEXT_TO_NOTHING) * scale:
        # Nothing is left to lift. Near an optimum of no people at all, θ says only how two roundings compare.
        loss, lift, residuals = scale, 0.0, _zero(first)
    gap = abs(loss - dual)  # below zero by rounding alone, which is then what is not known
    return Certificate(gap / loss if loss > _ROUNDED_LOSS * scale else gap, lift, dual, violation, residuals)


def dual_residuals(problem: Problem, multipliers: Floats, buffer: Floats, facets: Floats) -> float:
    """Fill the buffer with the residuals z + κ Sᵀ λ and return the dual value (1); the facets are worked in."""
    layout = problem.layout
    buffer[: layout.inner_cells] = 0.0
    buffer[layout.inner_cells :] = multipliers
    transform.adjoint(layout, buffer, weights=transform.outer_weights(layout), out=buffer, facets=facets)
    norms, products = np.zeros(len(layout.sets)), np.zeros(len(layout.sets))
    curvatures = problem.curvatures

    def task(begin: int, end: int) -> None:
        rounds.move_residuals(begin, end, layout.index, problem.z, curvatures, buffer, norms, products)

    over_tables(task, 0, len(layout.sets), layout.index.offset)
    return float(-0.5 * curvatures @ norms - products.sum())


def _rounding_only(layout: Layout, marginals: Floats, total: float) -> bool:
    """Tell whether all that is negative in any one outer table adds up to no more than rounding.

    Tables that the holds fix can have cells that are zero, and come out as −1e-17; no interior point can mend that.
    It is the sum that counts, since cutting it off is what makes tables disagree.
    """
    negative = np.minimum(marginals[layout.inner_cells :], 0.0)
    starts = layout.index.offset[layout.outer : -1] - layout.inner_cells
    return bool(np.add.reduceat(negative, starts).min() >= -ROUNDING * total)


def _lift(layout: Layout, residuals: Floats, marginals: Floats, facets: Floats, total: float) -> tuple[float, Floats]:
    """Return the weight of the lift and the lifted residuals, which take the place of ``marginals``."""
    index, tables = layout.index, len(layout.sets)
    spread: list[Floats] = []
    worst, masses = np.zeros(tables), np.zeros(tables)

    def count(begin: int, end: int) -> None:
        spread.append(rounds.count_violations(begin, end, index, marginals, total, worst))

    def lack(begin: int, end: int) -> None:
        rounds.keep_deficits(begin, end, index, floor, marginals, masses)

    over_tables(count, layout.outer, tables, index.offset)
    from_above = np.cumsum(np.sum(spread, axis=0)[::-1])
    # Bin b holds relative violations below 2^(b − BINS/2); the floor is the top of the first bin that need not be cut.
    uncut = int(np.searchsorted(from_above, 1.0 - _SAME_SHARE))
    floor = total * 2.0 ** (rounds.BINS // 2 - 1 - min(uncut, rounds.BINS - 1))
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


def _mix(layout: Layout, residuals: Floats, marginals: Floats, interior: Floats | None) -> tuple[float, Floats]:
    """Return the weight of the lift and the residuals mixed with those of an interior point, if there is one."""
    if interior is None:
        return math.inf, residuals
    positive = transform.reconstruct(layout, interior)
    shares = np.zeros(len(layout.sets))

    def task(begin: int, end: int) -> None:
        rounds.least_share(begin, end, layout.index, marginals, positive, shares)

    over_tables(task, layout.outer, len(layout.sets), layout.index.offset)
    share = float(shares.max())
    if not math.isfinite(share):
        return math.inf, residuals
    residuals *= 1.0 - share
    residuals += share * interior
    return share, residuals


def _zero(buffer: Floats) -> Floats:
    """Return the buffer filled with zeros."""
    buffer[:] = 0.0
    return buffer
