r"""GReM-LNN solved: rounds until the repaired tables are proven to be near the best, and the tables.

**What a state of the rounds proves.** The problem is to minimise f(r) = Σ_τ w_τ ‖r_τ − z_τ‖² over residuals whose
tables S r are not negative (``problem``). With κ_τ = 1/(2 w_τ), zero where a residual is held, multipliers λ ≥ 0 on the
outer tables and m = Sᵀ λ,

    g(λ) = −Σ_τ ½ κ_τ ‖m_τ‖² − Σ_τ m_τ · z_τ  ≤  best f                                                            (1)

is a lower bound: the least value of the Lagrangian f(r) − λ · S r, which is reached at r = z + κ m. The upper bound is
f at the *repaired* residuals r' (``repair``), whose tables are not negative:

    f(r') − g(λ)  ≥  f(r') − best f  ≥  0.                                                                         (2)

f at tables with negative cells proves nothing: it may be below the best.

**When to prove it.** The rounds (``splitting``) come cheap, a repair and its proof cost as much as some dozens of them.
So the solver looks at its state often, which costs about a round, and repairs when the look says that it will do:

    expected f(r') − g(λ) = excess + c · owed,      expected share moved = c' · (what is negative) / T,            (3)

with ``excess``, ``owed`` and ``negative`` of a `Look`, and c and c' learned from the repairs made so far. What is
reported is never expected but proven.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Integral, Real
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from margrave.algebra import transform
from margrave.errors import ReleaseError, expected
from margrave.escaping import html_table
from margrave.reconstruction.nonnegative.outer import REPAIR, ROUNDS, LocalParts, Part, Parts
from margrave.reconstruction.nonnegative.problem import ROUNDING, Problem, check_holds, solver_weights
from margrave.reconstruction.nonnegative.repair import Repairer
from margrave.reconstruction.nonnegative.splitting import Look, Splitting, first_penalties, lay_out

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout
    from margrave.reconstruction.estimates import Estimates
    from margrave.reconstruction.nonnegative.workers import WorkerPool

# Rounds between looks: a least number, and a factor of the rounds done; fewer where the last two looks say that the end
# is nearer, but never fewer than the last number here.
_LOOK_EVERY, _LOOK_GROWTH = 10, 1.1
_FEWEST_TO_LOOK = 3
# From an earlier solution the first look comes at once, the next ones after twice as many rounds each time.
_FIRST_WARM_LOOK = 1
# A certificate is due after this many rounds, twice as many, and so on, whatever the looks expect; earlier where more
# than the total is held, as only a certificate can prove that holds contradict each other.
_FIRST_CERTIFICATE, _FIRST_WITH_HOLDS = 400, 50
# c and c' of equation (3) before any repair was made; typical of what they turn out to be.
_COST, _SHARE = 5.0, 2.0
# The lift may be this many times the tolerance of the gap.
_LIFT_PER_TOLERANCE = 10.0
# A loss that is below that of all-zero tables by less than this share of it is not worth telling from it.
_NEGLIGIBLE = 1e-12


class Status(Enum):
    """How the solver ended, as a sentence with a remedy."""

    SOLVED = "solved to the tolerance asked for"
    MAX_STEPS = (
        "stopped at max_steps before the tolerance was reached; raise max_steps or loosen tolerance "
        "(and if residuals are held, check that their estimates do not contradict each other)"
    )


@dataclass(frozen=True, eq=False)
class State:
    """Where the rounds of a solve ended, for another solve of the same tables to start from.

    Attributes
    ----------
    point
        Shape (cells of the outer tables,); v of the rounds (``splitting``).
    penalties
        Shape (tables,); ρ of each outer table, zero for the inner ones.
    """

    point: Floats
    penalties: Floats

    def multipliers(self, layout: Layout) -> Floats:
        """Return λ = −2 ρ min(v, 0) of the outer tables."""
        penalties = np.repeat(self.penalties, np.diff(layout.index.offset))[layout.inner_cells :]
        return -2.0 * penalties * np.minimum(self.point, 0.0)

    def with_penalties(self, penalties: Floats, layout: Layout) -> State:
        """Return the state with other penalties and the same tables and multipliers; the array of this one is used.

        Penalties grow as a solution comes near, and hold on to it. Another solve starts half way, on a scale of
        powers, between its own first ones and those: as near, and free to go on.
        """
        offset, shift = layout.index.offset.tolist(), layout.inner_cells
        for table in range(layout.outer, len(layout.sets)):
            own = self.point[offset[table] - shift : offset[table + 1] - shift]
            own[own < 0] *= self.penalties[table] / penalties[table]
        return State(self.point, penalties)


@dataclass(frozen=True, eq=False)
class Solution:
    """Non-negative tables and how near they are to the best ones.

    Attributes
    ----------
    marginals
        Shape (layout.cells,); the tables of the closure, none negative, all in agreement.
    state
        Where the rounds ended; None if it was not kept.
    status
        Whether the tolerance was reached.
    gap
        Relative duality gap: the loss of these tables is at most so much above the least possible.
    steps
        Rounds taken, those of the repairs not counted.
    violation
        The most negative cell before the last repair, as a positive number.
    lift
        The share of the total that the last repair moved to leave no negative cell, mean over the outer tables.
    """

    marginals: Floats
    state: State | None
    status: Status
    gap: float
    steps: int
    violation: float
    lift: float

    def nearness(self, gap: str) -> str:
        """Return how near the tables are to the best fit, in words, given the gap as its reader gets it."""
        if self.steps == 0:
            return "the best fit itself: no cell was negative, no round was needed"
        return f"within {gap} (relative) of the best fit, after {self.steps:,} rounds"

    def _repr_html_(self) -> str:
        rows = [
            ("status", self.status.value),
            ("proven gap to the best fit", f"{self.gap:.2g}"),
            ("rounds", f"{self.steps:,}"),
            ("moved by the repair", f"{self.lift:.2g} of the total"),
        ]
        return html_table(f"Solution: {self.marginals.size:,} cells", (), rows)


@dataclass(frozen=True, eq=False)
class Certificate:
    """How good a feasible point is, proven by multipliers; its outer tables are in the place of the repair.

    Attributes
    ----------
    inner
        The inner tables.
    loss
        f(r'); infinite where no feasible point was found.
    dual
        g(λ), which no feasible loss is below.
    gap
        (f(r') − g(λ)) / f(r'); absolute where f(r') is negligible. Infinite where no feasible point was found.
    lift
        The share of the total that the repair moved; zero where all-zero tables are the best that is known.
    violation
        The most negative cell before the repair, as a positive number.
    """

    inner: Floats
    loss: float
    dual: float
    gap: float
    lift: float
    violation: float


def certify(rounds: Splitting, repairer: Repairer) -> Certificate:
    """Return what the state of the rounds proves; it is not changed."""
    problem, dual = rounds.problem, rounds.bound()
    repaired = repairer.repair(rounds)
    inner, lift = repaired.inner, repaired.moved
    loss = rounds.loss(REPAIR, inner) if math.isfinite(lift) else math.inf
    scale = problem.loss_of_zero
    if not problem.holds_total and not problem.holds_more and loss >= (1 - _NEGLIGIBLE) * scale:
        # Nothing is left to repair. Near an optimum of no people at all, shares only say how two roundings compare.
        rounds.parts.run(Part.clear, REPAIR)
        inner[:] = 0.0
        loss, lift = scale, 0.0
    return Certificate(inner, loss, dual, relative_gap(problem, loss - dual, loss), lift, repaired.violation)


def relative_gap(problem: Problem, difference: float, loss: float) -> float:
    """Return a difference of losses relative to the loss, or as it is where the loss is negligible."""
    gap = abs(difference)  # below zero by rounding alone, which is then what is not known
    return gap / loss if loss > problem.rounding_loss else gap


def reconstruct_nonnegative(
    estimates: Estimates,
    *,
    weights: str | float | Floats = "paper",
    eta: float | None = None,
    hold: Sequence[int] = (),
    tolerance: float = 1e-4,
    most_negative: float = math.inf,
    max_steps: int = 20_000,
    progress: Callable[[int, float], None] | None = None,
    start: State | None = None,
    workers: WorkerPool | None = None,
) -> Solution:
    """Return the tables of a closure nearest to the estimates with no negative cell.

    Parameters
    ----------
    estimates
        The residuals to be near to.
    weights
        w_τ: "paper" for k_τ 2^(−|τ|) with k_τ the number of measurements, a number b for b^(−|τ|), "noise" for the
        precision, or one weight a table (infinite to hold a residual, NaN to use ``eta``). "paper" is the default
        because it is the published method; low orders weigh more since an error there enters many tables.
    eta
        Weight of residuals that were never measured, which are drawn to zero. By default 40, the paper's, times the
        largest precision for weights "noise". A total that was never measured is drawn to zero like any other residual
        and held up by non-negativity alone: it comes out as the least total that pays.
    hold
        Tables of the layout whose residuals stay exactly at their estimates, zero if they were never measured. A total
        that was measured may be held at exactly zero: then all tables are zero.
    tolerance
        The relative duality gap to reach; the repair may move a share of the total ten times as large.
    most_negative
        The most negative cell, as a positive number, that may be left to the repair.
    max_steps
        The most rounds.
    progress
        Called at each look with the rounds so far and the gap: expected, and at the end proven.
    start
        Where an earlier solution of the same tables ended, from which fewer rounds are needed; the answer does not
        depend on it.
    workers
        The workers that hold the outer tables; by default this process does.
    """
    check_options(eta=eta, tolerance=tolerance, most_negative=most_negative, max_steps=max_steps)
    problem = Problem(
        estimates.layout, estimates.values, solver_weights(estimates, weights=weights, eta=eta, hold=hold)
    )
    check_holds(problem)
    if problem.holds_total and problem.z[0] == 0:
        return _nobody(estimates)
    begin = None if start is None else _checked_state(start, problem.layout)
    parts = LocalParts(problem) if workers is None else workers.divide(problem)
    # A start of its own leaves the place of the rounds free for it.
    if lay_out(problem, parts, ROUNDS if begin is None else REPAIR) >= 0:
        return _as_estimated(problem, parts)
    run = _Run(problem, parts, begin, tolerance, most_negative)
    while True:
        proof, expected = run.advance(max_steps)
        if progress is not None:
            progress(run.rounds.steps, expected if proof is None else proof.gap)
        if proof is None:
            continue
        good = run.is_good(proof)
        if good or run.rounds.steps >= max_steps:
            return _solution(run, proof, Status.SOLVED if good else Status.MAX_STEPS)


def check_options(*, eta: object, tolerance: object, most_negative: object, max_steps: object) -> None:
    """Raise `ReleaseError` unless the solver's numbers are what they must be, used or not."""
    if eta is not None and not (_is_number(eta) and eta > 0):
        raise ReleaseError(f"eta is {eta!r}", remedy="give a positive number, or None for the default")
    if not (_is_number(tolerance) and tolerance > 0):
        raise ReleaseError(f"tolerance is {tolerance!r}", remedy="give a positive number, such as 1e-4")
    if not (_is_number(most_negative) and most_negative >= 0):
        raise ReleaseError(
            f"most_negative is {most_negative!r}", remedy="give a number from 0 on: how far below zero a cell may be"
        )
    if isinstance(max_steps, bool) or not isinstance(max_steps, Integral) or max_steps < 1:
        raise ReleaseError(f"max_steps is {max_steps!r}", remedy="give a whole number of at least 1")


def _is_number(value: object) -> TypeGuard[float]:
    """Tell whether the value is a real number, which True is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


class _Run:
    """One solve: the rounds, when to look at them, and when to ask for a certificate."""

    def __init__(
        self, problem: Problem, parts: Parts, start: State | None, tolerance: float, most_negative: float
    ) -> None:
        self.problem, self.parts = problem, parts
        self._tolerance, self._most_negative = tolerance, most_negative
        self._repairer = Repairer(problem)
        penalties = first_penalties(problem)
        if start is not None:
            start = start.with_penalties(np.sqrt(penalties * start.penalties), problem.layout)
            penalties = start.penalties
            parts.run_each(Part.put, [(ROUNDS, one) for one in parts.cells_per_part(start.point)])
        self.rounds = Splitting(problem, penalties=penalties, parts=parts)
        self._warm = start is not None
        self._next_look = _FIRST_WARM_LOOK if self._warm else _LOOK_EVERY
        self._next_certificate = _FIRST_WITH_HOLDS if problem.holds_more else _FIRST_CERTIFICATE
        self._cost, self._share = _COST, _SHARE
        self._loss: float | None = None
        self._last_look = (0, math.inf)

    def advance(self, max_steps: int) -> tuple[Certificate | None, float]:
        """Do rounds up to the next look; return a certificate if one was due, and the gap that was expected."""
        rounds = self.rounds
        rounds.run(min(self._next_look, max_steps) - rounds.steps)
        wait = min(rounds.steps, _LOOK_EVERY) if self._warm else _LOOK_EVERY
        self._next_look = max(rounds.steps + wait, int(rounds.steps * _LOOK_GROWTH))
        look = rounds.look()
        gap, share = self._expected(look)
        self._foresee(max(gap, share / _LIFT_PER_TOLERANCE) / self._tolerance)
        promising = (
            gap <= self._tolerance
            and share <= _LIFT_PER_TOLERANCE * self._tolerance
            and look.violation <= self._most_negative
        )
        if not (promising or rounds.steps >= min(self._next_certificate, max_steps)):
            return None, gap
        while self._next_certificate <= rounds.steps:
            self._next_certificate *= 2
        proof = certify(rounds, self._repairer)
        self._check_contradiction(proof)
        self._learn(look, proof)
        return proof, gap

    def _foresee(self, excess: float) -> None:
        """Look earlier if the end is expected earlier, given how many times the tolerance is exceeded.

        Convergence is about linear, so the logarithm of the excess falls by the same amount in each round.
        """
        steps, (before, excess_before) = self.rounds.steps, self._last_look
        self._last_look = (steps, excess)
        if 1 < excess < excess_before < math.inf:
            needed = math.ceil((steps - before) * math.log(excess) / math.log(excess_before / excess))
            self._next_look = min(self._next_look, steps + max(needed, _FEWEST_TO_LOOK))

    def is_good(self, proof: Certificate) -> bool:
        """Tell whether a certificate is what was asked for."""
        return (
            proof.gap <= self._tolerance
            and proof.lift <= _LIFT_PER_TOLERANCE * self._tolerance
            and proof.violation <= self._most_negative
        )

    def _expected(self, look: Look) -> tuple[float, float]:
        """Return the gap and the share moved that a repair is expected to have, equation (3)."""
        if self._loss is None:
            self.rounds.write_tables(REPAIR)
            self._loss = self.rounds.loss(REPAIR, self.rounds.inner)
        difference = look.excess + self._cost * look.owed
        share = self._share * look.negative / look.total if look.total > 0 else 0.0
        return relative_gap(self.problem, difference, self._loss), share

    def _learn(self, look: Look, proof: Certificate) -> None:
        """Take from a certificate what a repair costs."""
        if not math.isfinite(proof.loss):
            return
        self._loss = proof.loss
        if look.owed > 0:
            self._cost = max((proof.loss - proof.dual - look.excess) / look.owed, 1.0)
        if look.negative > 0 and look.total > 0:
            self._share = proof.lift * look.total / look.negative

    def _check_contradiction(self, proof: Certificate) -> None:
        """Raise `ReleaseError` if the bound is above the loss of any tables that keep the holds."""
        if (
            self.problem.holds_more
            and not math.isfinite(proof.loss)
            and proof.dual > (1 + ROUNDING) * self.problem.largest_loss
        ):
            raise ReleaseError(
                "the held residuals contradict each other: no non-negative tables have them all (proven after "
                f"{self.rounds.steps} steps)",
                remedy="hold fewer residuals",
            )


def _checked_state(start: object, layout: Layout) -> State:
    """Return a copy of a state to start from, if it is one of these tables."""
    if not isinstance(start, State):
        raise ReleaseError(
            expected("the state of a solution to start from", start),
            remedy="give solution.state of an earlier solution",
        )
    cells, outer = layout.cells - layout.inner_cells, slice(layout.outer, None)
    point, penalties = np.array(start.point, dtype=np.float64), np.array(start.penalties, dtype=np.float64)
    if (
        point.shape != (cells,)
        or penalties.shape != (len(layout.sets),)
        or not (np.isfinite(point).all() and np.isfinite(penalties).all() and (penalties[outer] > 0).all())
    ):
        raise ReleaseError(
            f"the state to start from has {point.size:,} cells and {penalties.size:,} penalties, or numbers that it "
            "cannot have",
            remedy=f"give that of a solution of the same workload, of {cells:,} cells and {len(layout.sets):,} tables",
        )
    penalties[: layout.outer] = 0.0
    return State(point, penalties)


def _nobody(estimates: Estimates) -> Solution:
    """Return the only tables with a total of zero: all cells are zero, and no other tables have a smaller loss."""
    if estimates.counts[0] == 0:
        raise ReleaseError("the total is held and was never measured", remedy="do not hold it, or measure it")
    layout = estimates.layout
    marginals = np.zeros(layout.cells)
    state = State(marginals[layout.inner_cells :], transform.outer_weights(layout))
    return Solution(marginals, state, Status.SOLVED, gap=0.0, steps=0, violation=0.0, lift=0.0)


def _as_estimated(problem: Problem, parts: Parts) -> Solution:
    """Return the tables of the estimates, none of which is negative: no others are closer."""
    lay_out(problem, parts, REPAIR)
    inner = np.array(problem.z[: problem.layout.inner_cells])
    transform.raise_inner(problem.layout.within, inner, inner)
    # Sums of cells that are not negative are negative by rounding alone.
    marginals = parts.result(np.maximum(inner, 0.0, out=inner))
    state = State(marginals[problem.layout.inner_cells :], first_penalties(problem))
    return Solution(marginals, state, Status.SOLVED, gap=0.0, steps=0, violation=0.0, lift=0.0)


def _solution(run: _Run, proof: Certificate, status: Status) -> Solution:
    """Return the tables of a certificate, rounding taken away, with what is known about them."""
    rounds = run.rounds
    if not math.isfinite(proof.gap):
        raise ReleaseError(
            f"no non-negative tables were found within {rounds.steps} steps that keep all held residuals",
            remedy="hold fewer residuals, or raise max_steps (a held table with cells close to zero leaves no room)",
        )
    marginals = run.parts.result(proof.inner)
    np.maximum(marginals, 0.0, out=marginals)
    # What other processes have is not kept: another array as long as all tables would have to be fetched.
    state = State(rounds.point, rounds.penalties) if isinstance(run.parts, LocalParts) else None
    return Solution(marginals, state, status, proof.gap, rounds.steps, proof.violation, proof.lift)
