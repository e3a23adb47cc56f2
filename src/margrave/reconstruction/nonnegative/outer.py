r"""The outer tables, which have nearly all cells: their arrays, and the passes over them.

A `Part` holds some or all of the outer tables of a problem: their estimated residuals z, and up to two *states*, one of
the rounds and one of a repair. Of arrays as long as its cells, only the result leaves a part. A pass takes the
marginals of the *inner* tables, which are small, and returns what the inner tables need: the facets of its outer
tables, each added to the inner table of the same attributes, and a few sums. The results of all parts are added up, so
it does not matter where a part is. `Parts` run a pass on every part; `LocalParts` are one part in this process, and
``workers`` has parts in other processes.

Passes that need working memory overwrite the facets of the repair; those of the rounds stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np

from margrave.algebra import kernels as algebra
from margrave.algebra.kernels import Floats, Index, over_tables
from margrave.memory import large_array
from margrave.reconstruction.nonnegative.kernels import (
    Factors,
    Moves,
    Sums,
    count_violations,
    dual_sums,
    gather_outer,
    least_share,
    lift_tables,
    look_tables,
    residual_distances,
    step_tables,
    sum_deficits,
    sum_states,
    write_tables,
)

if TYPE_CHECKING:
    from margrave.reconstruction.nonnegative.problem import Problem

Given = ParamSpec("Given")
Found = TypeVar("Found")
Task = Callable[Concatenate["Part", Given], Found]

# The two states of a part.
ROUNDS, REPAIR = 0, 1
# The largest factor by which a penalty changes at once.
_LARGEST_CHANGE = 10.0
# The ratio of moves of one table is clipped to within this factor of the ratio of all tables together.
_LARGEST_SPREAD = 3.0
# Added to both moves of a ratio, which is 1 where nothing moves.
AT_REST = 1e-150
# Penalties stay within this factor of where they started.
_LARGEST_DRIFT = 1e8
# A penalty grows to at most w times the rounds so far and these. With ρ a table takes about ρ/w rounds to follow the
# loss, so a larger one, as the moves of the first rounds may ask for, would not let it arrive.
_ROUNDS_AHEAD = 40


class Stepped(NamedTuple):
    """What a round, or the beginning of rounds, returns.

    Attributes
    ----------
    gathered
        Shape (inner cells,); the facets ρ C_{<j} s_j / n_j of |v|, gathered into the inner tables.
    kept, multiplier
        ‖y⁺ − y‖² and ‖u⁺ − u‖², added up since the penalties last changed.
    negative
        Σ max(−x, 0) before the round.
    spectrum
        Shape (inner tables,); Σ ρ_γ n_τ/n_γ over the outer tables above each inner one, if penalties changed.
    """

    gathered: Floats
    kept: float
    multiplier: float
    negative: float
    spectrum: Floats | None


class Looked(NamedTuple):
    """What a look returns.

    Attributes
    ----------
    gathered
        The facets of ρ (y − x), gathered.
    complementarity, paid, lag
        Σ ρ u·x, Σ ρ u min(x, 0) and Σ ‖ρ C_γ (y − x)‖² / w over the outer tables.
    lowest, negative
        The least cell of x, and Σ max(−x, 0).
    """

    gathered: Floats
    complementarity: float
    paid: float
    lag: float
    lowest: float
    negative: float


class Bounded(NamedTuple):
    """What a bound is made of: the facets of λ, gathered, Σ ½ κ ‖m‖² and Σ m·z over the outer tables."""

    gathered: Floats
    quadratic: float
    linear: float


class Violations(NamedTuple):
    """What is negative: its histogram (`BINS`), the largest −μ n_γ, and the largest sum in one table."""

    spread: Floats
    largest: float
    mass: float


@dataclass
class _State:
    """A state of the rounds: v, facets, weights, first penalties, factors of a round, sums of moves, rounds so far."""

    point: Floats
    facets: Floats
    weights: Floats
    start: Floats
    factors: Factors
    moves: Moves
    rounds: int = 0


class Part:
    """Some of the outer tables of a problem, numbered after all of its inner ones.

    Parameters
    ----------
    index, outer, facet_cells
        The index of the layout of the inner tables and these outer ones (`Layout.restricted`), the number of its
        first outer table, and the length of its buffers of facets.
    z
        Residuals of the outer tables, read-only.
    weights
        w of each table; those of the inner tables are not used.
    """

    def __init__(self, index: Index, outer: int, facet_cells: int, z: Floats, weights: Floats) -> None:
        self.index, self.outer, self.tables = index, outer, len(index.order)
        self.inner_cells, self.z, self.weights = int(index.offset[outer]), z, weights
        self._facet_cells = facet_cells
        self._slots = int(index.slot[outer, 0]) if index.slot[outer:].size else 0
        self._states: dict[int, _State] = {}
        self._points: dict[int, Floats] = {}
        self._facets: dict[int, Floats] = {}
        self._buffer: Floats | None = None

    @property
    def buffer(self) -> Floats:
        """Room for the inner tables and those of this part; the latter are also v of the repair."""
        if self._buffer is None:
            self._buffer = large_array(int(self.index.offset[-1]))
        return self._buffer

    def point(self, state: int) -> Floats:
        """Return v of a state, or the tables that are stored in its place."""
        if state not in self._points:
            cells = int(self.index.offset[-1]) - self.inner_cells
            self._points[state] = self.buffer[self.inner_cells :] if state == REPAIR else large_array(cells)
        return self._points[state]

    def put(self, state: int, point: Floats) -> None:
        """Take over an array as v of a state."""
        self._points[state] = point

    def penalties(self, state: int) -> Floats:
        """Return ρ of each table, zero for the inner ones."""
        return self._states[state].factors.penalty

    def factors(self, state: int) -> Factors:
        """Return the factors of a round; those of the inner tables have no meaning."""
        return self._states[state].factors

    def moves(self, state: int) -> Moves:
        """Return the moves of each table, added up over the rounds."""
        return self._states[state].moves

    def lay_out(self, state: int, inner: Floats) -> float:
        """Set v to the tables of the estimates, given the inner ones, and return the least cell."""
        point = self.point(state)
        self._run(algebra.raise_tables, inner, self.z, point, self.inner_cells)
        return float(point.min())

    def begin(self, state: int, penalties: Floats, *, with_loss: bool = True) -> Stepped:
        """Begin rounds from v with these penalties; without the loss, all weights are zero except infinite ones."""
        weights = self.weights if with_loss else np.where(np.isinf(self.weights), np.inf, 0.0)
        moves = Moves(*(np.zeros(self.tables) for _ in Moves._fields))
        factors = _factors(weights, penalties, self.outer)
        point, facets = self.point(state), self._facets_of(state)
        self._states[state] = _State(point, facets, weights, penalties, factors, moves)
        self._run(sum_states, self.inner_cells, point, penalties, facets)
        return Stepped(self._gathered(facets), 0.0, 0.0, 0.0, self._spectrum(penalties))

    def step(
        self,
        state: int,
        inner: Floats,
        relaxation: float,
        together: float | None = None,
        penalties: Floats | None = None,
    ) -> Stepped:
        """Do one round.

        Parameters
        ----------
        state
            ``ROUNDS`` or ``REPAIR``.
        inner
            Marginals of the inner tables.
        relaxation
            α; zero leaves the state as it is.
        together
            ‖u moved‖ / ‖y moved‖ over all parts, if penalties are to follow the moves (`balanced`).
        penalties
            ρ from now on, if it is given.
        """
        own = self._states[state]
        own.rounds += 1
        following = penalties if penalties is not None else own.factors.penalty
        if together is not None:
            following = self.balanced(state, together)
        self._run(
            step_tables,
            self.inner_cells,
            inner,
            self.z,
            own.point,
            own.facets,
            own.factors,
            relaxation,
            following,
            own.moves,
        )
        spectrum, outer = None, slice(self.outer, None)
        if following is not own.factors.penalty:
            own.factors = _factors(own.weights, following, self.outer)
            own.moves.kept[:], own.moves.multiplier[:] = 0.0, 0.0
            spectrum = self._spectrum(following)
        kept, multiplier, negative = (float(one[outer].sum()) for one in own.moves)
        return Stepped(self._gathered(own.facets), kept, multiplier, negative, spectrum)

    def balanced(self, state: int, together: float) -> Floats:
        """Return penalties that follow the moves of their own tables since the penalties last changed."""
        own, outer = self._states[state], slice(self.outer, None)
        following = own.factors.penalty.copy()
        kept, multiplier = own.moves.kept[outer], own.moves.multiplier[outer]
        # Tables at rest have a ratio of 1, not 0/0, before it is clipped.
        ratio = (np.sqrt(multiplier) + AT_REST) / (np.sqrt(kept) + AT_REST)
        ratio = np.clip(ratio, together / _LARGEST_SPREAD, together * _LARGEST_SPREAD)
        following[outer] *= np.clip(np.sqrt(ratio), 1 / _LARGEST_CHANGE, _LARGEST_CHANGE)
        most = np.maximum(own.factors.penalty[outer], (own.rounds + _ROUNDS_AHEAD) * own.weights[outer])
        start, following[outer] = own.start[outer], np.minimum(following[outer], most)
        following[outer] = np.clip(following[outer], start / _LARGEST_DRIFT, start * _LARGEST_DRIFT)
        return following

    def look(self, state: int, inner: Floats) -> Looked:
        """Return where the rounds stand."""
        own, lags = self._states[state], self._facets_of(REPAIR)
        sums = Sums(*(np.zeros(self.tables) for _ in Sums._fields))
        self._run(
            look_tables,
            self.inner_cells,
            inner,
            self.z,
            own.point,
            own.facets,
            own.factors,
            lags,
            sums,
        )
        outer = slice(self.outer, None)
        penalty = own.factors.penalty[outer]
        return Looked(
            self._gathered(lags),
            float(penalty @ sums.complementarity[outer]),
            float(penalty @ sums.paid[outer]),
            # An infinite weight holds the residual, which adds nothing here.
            float((penalty**2 * sums.distance[outer] / own.weights[outer]).sum()),
            float(sums.lowest[outer].min()),
            float(sums.negative[outer].sum()),
        )

    def bound(self, state: int) -> Bounded:
        """Return what the bound g(λ) is made of."""
        own, facets = self._states[state], self._facets_of(REPAIR)
        norms, products = np.zeros(self.tables), np.zeros(self.tables)
        penalties = own.factors.penalty
        self._run(dual_sums, self.inner_cells, self.z, own.point, penalties, facets, norms, products)
        outer = slice(self.outer, None)
        return Bounded(
            self._gathered(facets), float((0.25 * norms / self.weights)[outer].sum()), float(products[outer].sum())
        )

    def write_tables(self, state: int, inner: Floats, into: int) -> float:
        """Write the tables x of a state to the place of a state, and return the least cell."""
        return float(self._tables(state, inner, into, compare=False)[0].min())

    def distance(self, state: int, inner: Floats, other: int) -> float:
        """Return Σ |x − x'| between the tables of a state and those in the place of another one."""
        return float(self._tables(state, inner, other, compare=True)[1].sum())

    def loss(self, place: int) -> float:
        """Return Σ w ‖C x − z‖² of the outer tables in the place of a state, except those held."""
        distances = np.zeros(self.tables)
        facets = self._facets_of(REPAIR)
        self._run(residual_distances, self.inner_cells, self.z, self.point(place), facets, distances)
        free = np.isfinite(self.weights)
        free[: self.outer] = False
        return float(self.weights[free] @ distances[free])

    def violations(self, place: int, total: float) -> Violations:
        """Return what is negative in the tables in the place of a state."""
        spread: list[Floats] = []
        worst, masses = np.zeros(self.tables), np.zeros(self.tables)
        point = self.point(place)

        def task(begin: int, end: int) -> None:
            counted = count_violations(begin, end, self.index, self.inner_cells, point, total, worst, masses)
            spread.append(counted)

        over_tables(task, self.outer, self.tables, self.index.offset)
        largest = float((worst * np.diff(self.index.offset))[self.outer :].max())
        return Violations(np.sum(spread, axis=0), largest, float(masses[self.outer :].max()))

    def deficits(self, place: int, floor: float) -> tuple[Floats, float]:
        """Return the facets of what cells lack beyond a floor, gathered, and the sum of what they lack."""
        masses, facets = np.zeros(self.tables), self._facets_of(REPAIR)
        self._run(sum_deficits, self.inner_cells, floor, self.point(place), facets, masses)
        return self._gathered(facets), float(masses.sum())

    def lift(self, place: int, floor: float, inner: Floats, scale: float) -> None:
        """Add the tables of a lift, given its inner tables, and scale; call `deficits` first, whose facets it uses."""
        facets = self._facets_of(REPAIR)
        self._run(lift_tables, self.inner_cells, floor, inner, facets, scale, self.point(place))

    def least_share(self, place: int, positive: Floats) -> float:
        """Return the weight with which these positive tables must be mixed in so that no cell is negative."""
        shares = np.zeros(self.tables)
        self._run(least_share, self.inner_cells, self.point(place), positive, shares)
        return float(shares.max())

    def mix(self, place: int, share: float, positive: Floats) -> None:
        """Mix positive tables in."""
        point = self.point(place)
        point *= 1.0 - share
        point += share * positive

    def clear(self, place: int) -> None:
        """Make all cells zero."""
        self.point(place)[:] = 0.0

    def read(self, place: int, begin: int, end: int) -> Floats:
        """Return the cells begin … end − 1 of the tables in the place of a state."""
        return self.point(place)[begin:end]

    def _tables(self, state: int, inner: Floats, place: int, *, compare: bool) -> tuple[Floats, Floats]:
        """Return the least cell of each table of a state, and its distance to the tables in a place."""
        own, lowest, distances = self._states[state], np.full(self.tables, np.inf), np.zeros(self.tables)
        self._run(
            write_tables,
            self.inner_cells,
            inner,
            self.z,
            own.point,
            own.facets,
            own.factors,
            self.point(place),
            lowest,
            distances,
            compare,
        )
        return lowest, distances

    def _facets_of(self, state: int) -> Floats:
        """Return the facets of a state; those of the repair are also the working memory of other passes."""
        if state not in self._facets:
            self._facets[state] = large_array(self._facet_cells)
        return self._facets[state]

    def _gathered(self, facets: Floats) -> Floats:
        """Return the facets of outer tables, each added to the inner table of the same attributes."""
        tables = np.empty(self.inner_cells)

        def task(begin: int, end: int) -> None:
            gather_outer(begin, end, self.index, self._slots, facets, tables)

        over_tables(task, 0, self.outer, self.index.offset)
        return tables

    def _spectrum(self, penalties: Floats) -> Floats:
        """Return Σ ρ_γ n_τ/n_γ of each inner table."""
        spectrum = np.zeros(self.tables)
        algebra.accumulate_spectrum(self.outer, self.tables, self.index, penalties, spectrum)
        return spectrum[: self.outer]

    def _run(self, kernel: Callable[..., None], *arguments: object) -> None:
        """Run a kernel over all outer tables, on all threads."""

        def task(begin: int, end: int) -> None:
            kernel(begin, end, self.index, *arguments)

        over_tables(task, self.outer, self.tables, self.index.offset)


def _factors(weights: Floats, penalties: Floats, outer: int) -> Factors:
    """Return the factors of a round with these penalties, for outer tables; weights may be zero or infinite."""
    inverse, target = np.zeros(len(weights)), np.ones(len(weights))
    inverse[outer:], target[outer:] = solved_factors(weights[outer:], penalties[outer:])
    return Factors(target, penalties * inverse, inverse, penalties)


def solved_factors(weights: Floats, spectrum: Floats) -> tuple[Floats, Floats]:
    """Return 1 / (w + h) and w / (w + h), which solve (2) of ``splitting``; zero and one where w is infinite.

    Parameters
    ----------
    weights
        Shape (tables,); w, zero or more.
    spectrum
        Shape (tables,); h, positive where w is zero. For an outer table it is its penalty.
    """
    free = np.isfinite(weights)
    finite = np.where(free, weights, 0.0)
    inverse = np.divide(1.0, finite + spectrum, out=np.zeros_like(finite), where=free)
    return inverse, np.where(free, finite * inverse, 1.0)


class Parts(Protocol):
    """All parts of a problem, wherever they are."""

    def run(self, task: Task[Given, Found], *arguments: Given.args, **options: Given.kwargs) -> list[Found]:
        """Run a pass on every part with the same arguments; return what each returns, in order."""
        ...

    def run_each(
        self, task: Callable[..., Found], arguments: Sequence[tuple[object, ...]], **options: object
    ) -> list[Found]:
        """Run a pass on every part with arguments of its own."""
        ...

    def per_part(self, values: Floats) -> list[Floats]:
        """Split one number per table of the closure by part: each gets those of all inner and of its outer tables."""
        ...

    def cells_per_part(self, outer: Floats) -> list[Floats]:
        """Split the cells of all outer tables by part."""
        ...

    def result(self, inner: Floats) -> Floats:
        """Return the tables of the closure: these inner ones, and those in the place of the repair."""
        ...


class LocalParts:
    """All outer tables as one part, in this process.

    Parameters
    ----------
    problem
        The problem.
    """

    def __init__(self, problem: Problem) -> None:
        layout = problem.layout
        self.part = Part(
            layout.index, layout.outer, layout.facet_cells, problem.z[layout.inner_cells :], problem.weights
        )

    def run(self, task: Task[Given, Found], *arguments: Given.args, **options: Given.kwargs) -> list[Found]:
        """Run a pass."""
        return [task(self.part, *arguments, **options)]

    def run_each(
        self, task: Callable[..., Found], arguments: Sequence[tuple[object, ...]], **options: object
    ) -> list[Found]:
        """Run a pass with the arguments of the only part."""
        return [task(self.part, *arguments[0], **options)]

    def per_part(self, values: Floats) -> list[Floats]:
        """Return the numbers as they are."""
        return [values]

    def cells_per_part(self, outer: Floats) -> list[Floats]:
        """Return the cells as they are."""
        return [outer]

    def result(self, inner: Floats) -> Floats:
        """Return the tables of the closure, in the part's own buffer."""
        buffer = self.part.buffer
        buffer[: inner.size] = inner
        return buffer
