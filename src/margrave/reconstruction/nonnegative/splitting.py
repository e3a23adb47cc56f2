r"""The rounds of the non-negative solver: ADMM between tables that agree and tables that are not negative.

With residuals r of a closure, S r their outer tables, estimates z and weights w (``problem``), split

    minimise  Σ_τ w_τ ‖r_τ − z_τ‖²     subject to   y = S r,  y ≥ 0                                                (1)

into a part that knows r and a part that knows y. With a penalty ρ_γ > 0 for each outer table and scaled multipliers u,
the method of multipliers alternates

    r_τ = (w_τ z_τ + (S_ρᵀ (y − u))_τ) / (w_τ + h_τ)          h_τ = Σ_{γ⊇τ} ρ_γ n_τ/n_γ                            (2)
    x = S r,    x' = α x + (1 − α) y,    y⁺ = max(x' + u, 0),    u⁺ = x' + u − y⁺.                                 (3)

S_ρᵀ = Sᵀ diag(ρ). The solve (2) is exact and costs nothing, because residuals of different sets are orthogonal: S_ρᵀ S
is diagonal. α = 1.7 over-relaxes.

**One array.** y⁺ and u⁺ are the positive and the negative part of one number v = x' + u, and y − u = |v|. So v is the
whole state, and a round is one pass that reads z and v and writes v (``kernels``).

**Multipliers.** u ≤ 0 after every round, so λ = −2 ρ u ≥ 0 is feasible for the dual of (1) and proves a lower bound
(``certificate``). At λ, with r from (2),

    f(r) − g(λ) = λ · x + Σ_τ (1/w_τ) ‖(S_ρᵀ (y − x))_τ‖²                                                          (4)

is known from the same numbers, without evaluating f or g: stationarity of (2) is w (r − z) = S_ρᵀ (y − u − x).

**Penalty.** A large ρ makes tables agree with non-negative ones early and moves the loss slowly; a small one the other
way round. The error bound of the method is a sum of ρ ‖y − y*‖² and ρ ‖u − u*‖², so that the best ρ makes both alike.
Each penalty starts at a multiple of w/h and follows the moves of its own table: every few rounds it is multiplied by
(‖u moved‖ / ‖y moved‖)^½. Penalties grow as the solution comes near and fewer cells change sides.

With w = 0 the same rounds look for any tables that agree and are not negative (``repair``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats, over_tables
from margrave.reconstruction.nonnegative.kernels import (
    Factors,
    Moves,
    Sums,
    add_targets,
    look_tables,
    step_tables,
    sum_states,
    write_multipliers,
    write_states,
)

if TYPE_CHECKING:
    from margrave.reconstruction.nonnegative.problem import Problem

_RELAXATION = 1.7
# Where penalties start, in units of w/h; how often they follow the moves, and by how much at most.
_FIRST_PENALTY = 10.0
_ROUNDS_PER_PENALTY, _PENALTY_GROWTH = 2, 1.1
_LARGEST_CHANGE = 10.0
# The ratio of moves of one table counts as far as it is within this factor of the ratio of all of them together.
_LARGEST_SPREAD = 3.0
_AT_REST = 1e-150
# Penalties stay within this factor of where they started.
_LARGEST_DRIFT = 1e8


@dataclass(frozen=True)
class Look:
    """Where the rounds stand, without an evaluation of the loss or of its bound.

    Attributes
    ----------
    excess
        f(r) − g(λ) of equation (4); may be negative, as the tables of r may have negative cells.
    owed
        Σ λ max(−x, 0): what making these cells zero costs to first order.
    violation
        The most negative cell of x, as a positive number.
    negative
        Σ max(−x, 0), mean over the outer tables.
    total
        The total of x.
    """

    excess: float
    owed: float
    violation: float
    negative: float
    total: float


class Splitting:
    """The state of the rounds.

    Parameters
    ----------
    problem
        What to solve.
    point
        v of the outer tables to start from; taken over, not copied. By default the tables of the estimates.
    penalties
        ρ of each outer table, one number a table of the closure; by default chosen from the problem.
    """

    def __init__(self, problem: Problem, point: Floats | None = None, penalties: Floats | None = None) -> None:
        layout = problem.layout
        self.problem = problem
        self.steps = 0
        self.point = tables_of(problem) if point is None else point
        self.facets = np.empty(layout.facet_cells)
        self._base = problem.z[layout.inner_cells :]
        self._inner = np.zeros(layout.inner_cells)
        self._nothing = np.zeros(len(layout.sets))
        self._moves = Moves(*(np.zeros(len(layout.sets)) for _ in Moves._fields))
        self._start = first_penalties(problem) if penalties is None else penalties
        self._factors = _factors(problem, self._start)
        self._next_penalties = _ROUNDS_PER_PENALTY
        self.refresh()

    @property
    def penalties(self) -> Floats:
        """ρ of each outer table, zero for the inner ones; shape (tables,)."""
        return self._factors.penalty

    def run(self, rounds: int) -> None:
        """Do some rounds, penalties following the moves."""
        for _ in range(rounds):
            due = self.steps >= self._next_penalties
            if due:
                self._next_penalties = max(self.steps + _ROUNDS_PER_PENALTY, int(self.steps * _PENALTY_GROWTH))
            self.step(_RELAXATION, self._balanced() if due else self.penalties)

    def step(self, relaxation: float = _RELAXATION, penalties: Floats | None = None) -> float:
        """Do one round and return what was negative in x before it, Σ max(−x, 0) over all outer tables.

        Parameters
        ----------
        relaxation
            α; zero leaves the state as it is.
        penalties
            ρ from now on; by default as before.
        """
        layout = self.problem.layout
        following = self.penalties if penalties is None else penalties

        def task(begin: int, end: int) -> None:
            step_tables(
                begin,
                end,
                layout.index,
                layout.inner_cells,
                self._inner,
                self._base,
                self.point,
                self.facets,
                self._factors,
                relaxation,
                following,
                self._moves,
            )

        over_tables(task, layout.outer, len(layout.sets), layout.index.offset)
        if following is not self.penalties:
            self._factors = _factors(self.problem, following)
            self._moves.kept[:] = 0.0
            self._moves.multiplier[:] = 0.0
        self._refresh_inner()
        self.steps += 1
        return float(self._moves.negative[layout.outer :].sum())

    def look(self, lags: Floats) -> Look:
        """Return where the rounds stand; ``lags`` is a buffer of facets to work in."""
        layout = self.problem.layout
        sums = Sums(*(np.zeros(len(layout.sets)) for _ in Sums._fields))

        def task(begin: int, end: int) -> None:
            look_tables(
                begin,
                end,
                layout.index,
                layout.inner_cells,
                self._inner,
                self._base,
                self.point,
                self.facets,
                self._factors,
                lags,
                sums,
            )

        over_tables(task, layout.outer, len(layout.sets), layout.index.offset)
        inner = np.zeros(layout.inner_cells)
        ones = np.ones(len(layout.sets))
        transform.lower_inner(layout, lags, inner, weights=self._nothing, factors=ones)
        squares = self.penalties**2 * sums.distance
        if layout.inner_cells:
            squares[: layout.outer] = np.add.reduceat(inner * inner, layout.index.offset[: layout.outer])
        outer = slice(layout.outer, None)
        # A weight that is infinite holds the residual: it does not lag.
        lag = float((squares / self.problem.weights).sum())
        return Look(
            excess=float(-2 * self.penalties @ sums.complementarity) + lag,
            owed=float(2 * self.penalties @ sums.paid),
            violation=max(0.0, -float(sums.lowest[outer].min())),
            negative=float(sums.negative[outer].mean()),
            total=self._total(),
        )

    def _total(self) -> float:
        """Return the total of x; the only table there is, if it is not inside another one."""
        if self._inner.size:
            return float(self._inner[0])
        return float(self._factors.target[0] * self._base[0] + self._factors.own[0] * abs(self.point[0]))

    def residuals(self, buffer: Floats, facets: Floats) -> Floats:
        """Return r of equation (2), written to a buffer of the closure; a buffer of facets is worked in."""
        layout = self.problem.layout
        buffer[: layout.inner_cells] = 0.0
        np.abs(self.point, out=buffer[layout.inner_cells :])
        transform.adjoint(
            layout, buffer, weights=self.penalties, factors=self._factors.inverse, out=buffer, facets=facets
        )

        def task(begin: int, end: int) -> None:
            add_targets(begin, end, layout.index, self._factors.target, self.problem.z, buffer)

        over_tables(task, 0, len(layout.sets), layout.index.offset)
        return buffer

    def multipliers(self, out: Floats) -> Floats:
        """Return λ = −2 ρ u, written to a buffer of the outer tables, which may be that of the state itself."""
        layout = self.problem.layout

        def task(begin: int, end: int) -> None:
            write_multipliers(begin, end, layout.index, layout.inner_cells, self.point, self.penalties, out)

        over_tables(task, layout.outer, len(layout.sets), layout.index.offset)
        return out

    def refresh(self) -> None:
        """Sum up the state, at the beginning or after its facets were lent out."""
        layout = self.problem.layout

        def task(begin: int, end: int) -> None:
            sum_states(begin, end, layout.index, layout.inner_cells, self.point, self.penalties, self.facets)

        over_tables(task, layout.outer, len(layout.sets), layout.index.offset)
        self._refresh_inner()

    def _refresh_inner(self) -> None:
        """Bring the marginals of the inner tables to the current state: (2) downwards, then S upwards again."""
        layout, inner = self.problem.layout, self._inner
        inner[:] = 0.0
        transform.lower_inner(layout, self.facets, inner, weights=self._nothing, factors=self._factors.inverse)
        add_targets(0, layout.outer, layout.index, self._factors.target, self.problem.z, inner)
        transform.raise_inner(layout, inner, inner)

    def _balanced(self) -> Floats:
        """Return penalties that follow the moves since they last did."""
        outer = slice(self.problem.layout.outer, None)
        kept, multiplier = self._moves.kept[outer], self._moves.multiplier[outer]
        following = self.penalties.copy()
        # Next to nothing is added to both, so that tables at rest stay as they are.
        together = (np.sqrt(multiplier.sum()) + _AT_REST) / (np.sqrt(kept.sum()) + _AT_REST)
        own = (np.sqrt(multiplier) + _AT_REST) / (np.sqrt(kept) + _AT_REST)
        ratio = np.clip(own, together / _LARGEST_SPREAD, together * _LARGEST_SPREAD)
        following[outer] *= np.clip(np.sqrt(ratio), 1 / _LARGEST_CHANGE, _LARGEST_CHANGE)
        start = self._start[outer]
        following[outer] = np.clip(following[outer], start / _LARGEST_DRIFT, start * _LARGEST_DRIFT)
        return following


def first_penalties(problem: Problem) -> Floats:
    """Return where ρ starts: one number for all outer tables, zero for the inner ones; shape (tables,).

    A multiple of the quotients w_τ/h_τ with ρ = 1: of their medians, order by order, the least. Residuals with smaller
    quotients would follow the loss slowly.
    """
    layout = problem.layout
    spectrum = transform.tables_spectrum(layout, transform.outer_weights(layout))
    free = np.isfinite(problem.weights)
    order = layout.index.order
    quotients = problem.weights / spectrum
    medians = [np.median(quotients[free & (order == k)]) for k in np.unique(order[free]).tolist()]
    typical = float(min(medians)) if medians else 1.0
    return transform.outer_weights(layout) * _FIRST_PENALTY * typical


def warm_start(problem: Problem, multipliers: Floats, tables: Floats) -> Splitting:
    """Return rounds that go on from multipliers of an earlier solve.

    Parameters
    ----------
    problem
        What to solve.
    multipliers
        λ ≥ 0 of the outer tables.
    tables
        The outer tables at the residuals z + κ Sᵀ λ; taken over as the state.
    """
    layout, penalties = problem.layout, first_penalties(problem)

    def task(begin: int, end: int) -> None:
        write_states(begin, end, layout.index, layout.inner_cells, multipliers, penalties, tables)

    over_tables(task, layout.outer, len(layout.sets), layout.index.offset)
    return Splitting(problem, tables, penalties)


def _factors(problem: Problem, penalties: Floats) -> Factors:
    """Return what a round with these penalties multiplies with; weights may be zero or infinite."""
    free = np.isfinite(problem.weights)
    weights = np.where(free, problem.weights, 0.0)
    denominators = weights + transform.tables_spectrum(problem.layout, penalties)
    inverse = np.divide(1.0, denominators, out=np.zeros_like(weights), where=free)
    return Factors(np.where(free, weights * inverse, 1.0), penalties * inverse, inverse, penalties)


def tables_of(problem: Problem) -> Floats:
    """Return the outer tables of the estimates."""
    layout = problem.layout
    inner = np.array(problem.z[: layout.inner_cells])
    transform.raise_inner(layout, inner, inner)
    tables = np.empty(layout.cells - layout.inner_cells)
    transform.raise_outer(layout, inner, problem.z[layout.inner_cells :], tables, shift=layout.inner_cells)
    return tables
