r"""The rounds of the non-negative solver: ADMM between tables that agree and tables that are not negative.

With residuals r of a closure, S r their outer tables, estimates z and weights w (``problem``), split

    minimise  Σ_τ w_τ ‖r_τ − z_τ‖²     subject to   y = S r,  y ≥ 0                                                (1)

into a step for r and a step for y. With a penalty ρ_γ > 0 for each outer table and scaled multipliers u,
the method of multipliers alternates

    r_τ = (w_τ z_τ + (S_ρᵀ (y − u))_τ) / (w_τ + h_τ)          h_τ = Σ_{γ⊇τ} ρ_γ n_τ/n_γ                            (2)
    x = S r,    x' = α x + (1 − α) y,    y⁺ = max(x' + u, 0),    u⁺ = x' + u − y⁺.                                 (3)

S_ρᵀ = Sᵀ diag(ρ). The solve (2) is exact and needs no linear system, because residuals of different sets are
orthogonal: S_ρᵀ S is diagonal. α = 1.7 over-relaxes.

**One array.** y⁺ and u⁺ are the positive and the negative part of one number v = x' + u, and y − u = |v|. So v is the
whole state, and a round is one pass that reads z and v and writes v (``kernels``).

**Multipliers.** u ≤ 0 after every round, so λ = −2 ρ u ≥ 0 is feasible for the dual of (1) and proves a lower bound
(``solver``). At λ, with r from (2),

    f(r) − g(λ) = λ · x + Σ_τ (1/w_τ) ‖(S_ρᵀ (y − x))_τ‖²                                                          (4)

is known from the same numbers, without evaluating f or g: stationarity of (2) is w (r − z) = S_ρᵀ (y − u − x).

**Penalty.** With a large ρ tables soon agree with non-negative ones, but the loss decreases slowly; with a small ρ it
is the other way round. The error bound of the method is a sum of ρ ‖y − y*‖² and ρ ‖u − u*‖², so the best ρ makes both
equal. All penalties start at a multiple of a typical w/h. Then each follows the moves of its own table: every few
rounds it is multiplied by (‖u moved‖ / ‖y moved‖)^½, within limits (``outer``). Penalties grow as the rounds approach
the solution and fewer cells change sign.

**Inner and outer tables.** Nearly all cells are in the outer tables, and ``outer`` has the passes over them. This
module connects them: it solves (2) for the inner tables, which are small. Of an outer table it needs only the facets.

With w = 0 the same rounds look for any tables that agree and are not negative (``repair``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats, over_tables
from margrave.reconstruction.nonnegative.kernels import add_targets, squared_distances
from margrave.reconstruction.nonnegative.outer import AT_REST, ROUNDS, LocalParts, Part, Parts, Stepped, solved_factors

if TYPE_CHECKING:
    from margrave.reconstruction.nonnegative.problem import Problem

_RELAXATION = 1.7
# Where penalties start, in units of w/h; and the rounds between two changes, which become more with time.
_FIRST_PENALTY = 10.0
_ROUNDS_PER_PENALTY, _PENALTY_GROWTH = 2, 1.1


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
    """The rounds: their state, and what is known about it.

    Parameters
    ----------
    problem
        What to solve.
    point
        v of the outer tables to start from; taken over, not copied. By default the tables of the estimates.
    penalties
        ρ of each outer table, one number per table of the closure; by default `first_penalties`.
    parts
        The outer tables, with v of the state already set; by default one part in this process.
    state
        The state to use: ``ROUNDS`` or ``REPAIR``.
    with_loss
        Whether the outer tables have a loss; if not, only their held residuals matter.
    """

    def __init__(
        self,
        problem: Problem,
        point: Floats | None = None,
        penalties: Floats | None = None,
        *,
        parts: Parts | None = None,
        state: int = ROUNDS,
        with_loss: bool = True,
    ) -> None:
        self.problem, self.state, self.steps = problem, state, 0
        self._within = problem.layout.within
        self._facets = np.empty(self._within.facet_cells)
        self._ones = np.ones(problem.layout.outer)
        self.inner = np.zeros(problem.layout.inner_cells)
        self._local: LocalParts | None = None
        if parts is None:
            parts = self._local = LocalParts(problem)
            if point is None:
                lay_out(problem, parts, state)
            else:
                self._local.part.put(state, point)
        elif isinstance(parts, LocalParts):
            self._local = parts
        self.parts: Parts = parts
        penalties = first_penalties(problem) if penalties is None else penalties
        started = parts.run_each(Part.begin, [(state, own) for own in parts.per_part(penalties)], with_loss=with_loss)
        self._inverse, self._target = np.empty(0), np.empty(0)
        self._next_penalties = _ROUNDS_PER_PENALTY
        self._together = 1.0
        self._settle(started)

    @property
    def penalties(self) -> Floats:
        """ρ of each outer table, zero for the inner ones; shape (tables,). Only for rounds in this process."""
        return self._part.penalties(self.state)

    @property
    def point(self) -> Floats:
        """The state v of the outer tables. Only for rounds in this process."""
        return self._part.point(self.state)

    @property
    def total(self) -> float:
        """The total of x: an inner table, unless the total is the only table of the closure."""
        if self.inner.size:
            return float(self.inner[0])
        factors = self._part.factors(self.state)
        return float(factors.target[0] * self._part.z[0] + factors.own[0] * abs(self.point[0]))

    def run(self, rounds: int) -> None:
        """Do some rounds, in which penalties follow the moves."""
        for _ in range(rounds):
            due = self.steps >= self._next_penalties
            if due:
                self._next_penalties = max(self.steps + _ROUNDS_PER_PENALTY, int(self.steps * _PENALTY_GROWTH))
            self._settle(
                self.parts.run(Part.step, self.state, self.inner, _RELAXATION, self._together if due else None)
            )
            self.steps += 1

    def step(self, relaxation: float = _RELAXATION, penalties: Floats | None = None) -> float:
        """Do one round and return what was negative in x before it, Σ max(−x, 0) over all outer tables.

        Parameters
        ----------
        relaxation
            α; zero leaves the state as it is.
        penalties
            ρ from now on, one number per table of the closure; by default as before.
        """
        if penalties is None:
            stepped = self.parts.run(Part.step, self.state, self.inner, relaxation)
        else:
            given = [(self.state, self.inner, relaxation, None, own) for own in self.parts.per_part(penalties)]
            stepped = self.parts.run_each(Part.step, given)
        self._settle(stepped)
        self.steps += 1
        return sum(one.negative for one in stepped)

    def look(self) -> Look:
        """Return where the rounds stand."""
        layout = self.problem.layout
        looked = self.parts.run(Part.look, self.state, self.inner)
        lags = self._lowered(added(one.gathered for one in looked), self._ones)
        lag = self._inner_sum(lags, 1 / self.problem.weights[: layout.outer]) + sum(one.lag for one in looked)
        return Look(
            excess=-2 * sum(one.complementarity for one in looked) + lag,
            owed=2 * sum(one.paid for one in looked),
            violation=max(0.0, -min(one.lowest for one in looked)),
            negative=sum(one.negative for one in looked) / (len(layout.sets) - layout.outer),
            total=self.total,
        )

    def bound(self) -> float:
        """Return g(λ), a lower bound on the loss of tables without negative cells."""
        outer = self.problem.layout.outer
        bounded = self.parts.run(Part.bound, self.state)
        pulled = self._lowered(added(one.gathered for one in bounded), self._ones)
        quadratic = self._inner_sum(pulled, 0.5 * self.problem.curvatures[:outer])
        linear = float(pulled @ self.problem.z[: pulled.size])
        return -(quadratic + sum(one.quadratic for one in bounded)) - (linear + sum(one.linear for one in bounded))

    def write_tables(self, place: int) -> float:
        """Write the outer tables x to the place of a state, and return the least cell."""
        return min(self.parts.run(Part.write_tables, self.state, self.inner, place))

    def distance(self, place: int) -> float:
        """Return Σ |x − x'| between the outer tables x and those in the place of a state."""
        return sum(self.parts.run(Part.distance, self.state, self.inner, place))

    def loss(self, place: int, inner: Floats) -> float:
        """Return the loss f of tables that agree: the outer ones in the place of a state, and these inner ones."""
        layout, outer = self.problem.layout, self.problem.layout.outer
        residuals, distances = transform.center(self._within, inner), np.zeros(outer)
        squared_distances(0, outer, self._within.index, self.problem.z[: layout.inner_cells], residuals, distances)
        free = np.isfinite(self.problem.weights[:outer])
        own = float(self.problem.weights[:outer][free] @ distances[free])
        return own + sum(self.parts.run(Part.loss, place))

    def residuals(self, buffer: Floats, facets: Floats) -> Floats:
        """Return r of equation (2), written to a buffer of the closure. Only for rounds in this process.

        The buffer of facets is working memory.
        """
        layout, factors = self.problem.layout, self._part.factors(self.state)
        inverse, target = factors.inverse.copy(), factors.target.copy()
        inverse[: layout.outer], target[: layout.outer] = self._inverse, self._target
        buffer[: layout.inner_cells] = 0.0
        np.abs(self.point, out=buffer[layout.inner_cells :])
        transform.adjoint(layout, buffer, weights=self.penalties, factors=inverse, out=buffer, facets=facets)

        def task(begin: int, end: int) -> None:
            add_targets(begin, end, layout.index, target, self.problem.z, buffer)

        over_tables(task, 0, len(layout.sets), layout.index.offset)
        return buffer

    @property
    def _part(self) -> Part:
        """The only part. Only for rounds in this process."""
        if self._local is None:
            raise RuntimeError("the outer tables are in other processes")
        return self._local.part

    def _settle(self, stepped: list[Stepped]) -> None:
        """Update the inner tables to the state of the outer ones: solve (2) for their residuals, then apply S."""
        problem, within = self.problem, self._within
        spectra = [one.spectrum for one in stepped if one.spectrum is not None]
        if spectra:
            self._inverse, self._target = solved_factors(problem.weights[: problem.layout.outer], added(spectra))
        kept, multiplier = sum(one.kept for one in stepped), sum(one.multiplier for one in stepped)
        self._together = (math.sqrt(multiplier) + AT_REST) / (math.sqrt(kept) + AT_REST)
        self.inner = self._lowered(added(one.gathered for one in stepped), self._inverse)
        add_targets(0, problem.layout.outer, within.index, self._target, problem.z, self.inner)
        transform.raise_inner(within, self.inner, self.inner)

    def _lowered(self, gathered: Floats, factors: Floats) -> Floats:
        """Run the adjoint through the inner tables, in place, given what the outer ones pass on to them."""
        transform.lower_inner(self._within, self._facets, gathered, weights=self._ones, factors=factors)
        return gathered

    def _inner_sum(self, residuals: Floats, factors: Floats) -> float:
        """Return Σ c_τ ‖r_τ‖² over the inner tables."""
        if not residuals.size:
            return 0.0
        squares = np.add.reduceat(residuals * residuals, self._within.index.offset[:-1])
        return float(squares @ factors)


def added(arrays: Iterable[Floats]) -> Floats:
    """Return the sum of arrays, one for each part; overwrites the first of them."""
    first, *others = arrays
    for other in others:
        first += other
    return first


def lay_out(problem: Problem, parts: Parts, state: int = ROUNDS) -> float:
    """Set a state of all parts to the tables of the estimates, and return their least cell."""
    inner = np.array(problem.z[: problem.layout.inner_cells])
    transform.raise_inner(problem.layout.within, inner, inner)
    return min(parts.run(Part.lay_out, state, inner))


def first_penalties(problem: Problem) -> Floats:
    """Return where ρ starts: in proportion to the weights of outer tables, zero for inner ones; shape (tables,).

    Its geometric mean is a multiple of a typical quotient w_τ/h_τ, with h at ρ = 1: the least of the medians of each
    order. With a larger ρ, residuals of that order would follow the loss slowly.
    """
    layout = problem.layout
    spectrum = transform.tables_spectrum(layout, transform.outer_weights(layout))
    free = np.isfinite(problem.weights)
    order = layout.index.order
    quotients = problem.weights / spectrum
    medians = [np.median(quotients[free & (order == k)]) for k in np.unique(order[free]).tolist()]
    typical = float(min(medians)) if medians else 1.0
    penalties = transform.outer_weights(layout) * _FIRST_PENALTY * typical
    own = free & (penalties > 0)
    if own.any():
        penalties[own] *= problem.weights[own] / np.exp(np.log(problem.weights[own]).mean())
    return penalties
