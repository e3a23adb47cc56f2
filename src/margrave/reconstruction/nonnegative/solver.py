r"""GReM-LNN solved: rounds until the repaired tables are proven to be near the best, and the tables.

The rounds (``splitting``) come cheap, a repair and its proof (``certificate``) cost as much as some dozens of them. So
the solver looks at its state often, which costs about a round, and repairs when the look says that it will do:

    expected f(r') − g(λ) = excess + c · owed,      expected share moved = c' · (what is negative) / T,            (1)

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
from margrave.errors import ReleaseError
from margrave.escaping import html_table
from margrave.reconstruction.nonnegative.certificate import Certificate, certify, relative_gap
from margrave.reconstruction.nonnegative.problem import ROUNDING, Problem, check_holds, solver_weights
from margrave.reconstruction.nonnegative.repair import Repairer
from margrave.reconstruction.nonnegative.splitting import Look, Splitting, tables_of, warm_start

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout
    from margrave.reconstruction.estimates import Estimates

# Rounds between looks: so many at least, and so many percent of the rounds done.
_LOOK_EVERY, _LOOK_GROWTH = 10, 1.1
# A certificate is due after so many rounds, and twice as many, and so on, whatever the looks expect; earlier where more
# than the total is held, as only a certificate can prove that holds contradict each other.
_FIRST_CERTIFICATE, _FIRST_WITH_HOLDS = 400, 50
# c and c' of equation (1) before any repair was made; typical of what they turn out to be.
_COST, _SHARE = 5.0, 2.0
# The lift may be this many times the tolerance of the gap.
_LIFT_PER_TOLERANCE = 10.0


class Status(Enum):
    """How the solver ended, as a sentence with a remedy."""

    SOLVED = "solved to the tolerance asked for"
    MAX_STEPS = (
        "stopped at max_steps before the tolerance was reached; raise max_steps or loosen tolerance "
        "(and if residuals are held, check that their estimates do not contradict each other)"
    )


@dataclass(frozen=True, eq=False)
class Solution:
    """Non-negative tables and how near they are to the best ones.

    Attributes
    ----------
    marginals
        Shape (layout.cells,); the tables of the closure, none negative, all in agreement.
    multipliers
        Shape (cells of the outer tables,); λ, from which another solve can start.
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
    multipliers: Floats
    status: Status
    gap: float
    steps: int
    violation: float
    lift: float

    def _repr_html_(self) -> str:
        rows = [
            ("status", self.status.value),
            ("proven gap to the best fit", f"{self.gap:.2g}"),
            ("rounds", f"{self.steps:,}"),
            ("moved by the repair", f"{self.lift:.2g} of the total"),
        ]
        return html_table(f"Solution: {self.marginals.size:,} cells", (), rows)


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
    start: Floats | None = None,
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
        Multipliers of an earlier solution to start from; the answer does not depend on it.
    """
    check_options(eta=eta, tolerance=tolerance, most_negative=most_negative, max_steps=max_steps)
    problem = Problem(
        estimates.layout, estimates.values, solver_weights(estimates, weights=weights, eta=eta, hold=hold)
    )
    check_holds(problem)
    if problem.holds_total and problem.z[0] == 0:
        return _nobody(estimates)
    multipliers = None if start is None else _starting_point(start, problem.layout)
    tables = tables_of(problem)
    if tables.min() >= 0:
        return _as_estimated(problem, tables)
    run = _Run(problem, tables, multipliers, tolerance, most_negative)
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
        self, problem: Problem, tables: Floats, start: Floats | None, tolerance: float, most_negative: float
    ) -> None:
        layout = problem.layout
        self.problem = problem
        self._tolerance, self._most_negative = tolerance, most_negative
        self._repairer = Repairer(problem)
        self._buffers = (np.empty(layout.cells), np.empty(layout.cells))
        self._lags = self._buffers[0] if layout.facet_cells <= layout.cells else np.empty(layout.facet_cells)
        self.rounds = Splitting(problem, tables) if start is None else self._warm(start, tables)
        self._next_look = _LOOK_EVERY if start is None else 1  # a good start may be all that is needed
        first = _FIRST_WITH_HOLDS if problem.holds_more else _FIRST_CERTIFICATE
        self._next_certificate = first if start is None else 1
        self._cost, self._share = _COST, _SHARE
        self._loss: float | None = None

    def advance(self, max_steps: int) -> tuple[Certificate | None, float]:
        """Do rounds up to the next look; return a certificate if one was due, and the gap that was expected."""
        rounds = self.rounds
        rounds.run(min(self._next_look, max_steps) - rounds.steps)
        self._next_look = max(rounds.steps + _LOOK_EVERY, int(rounds.steps * _LOOK_GROWTH))
        look = rounds.look(self._lags)
        gap, share = self._expected(look)
        promising = (
            gap <= self._tolerance
            and share <= _LIFT_PER_TOLERANCE * self._tolerance
            and look.violation <= self._most_negative
        )
        if not (promising or rounds.steps >= min(self._next_certificate, max_steps)):
            return None, gap
        while self._next_certificate <= rounds.steps:
            self._next_certificate *= 2
        proof = certify(rounds, self._repairer, self._buffers)
        self._check_contradiction(proof)
        self._learn(look, proof)
        return proof, gap

    def is_good(self, proof: Certificate) -> bool:
        """Tell whether a certificate is what was asked for."""
        return (
            proof.gap <= self._tolerance
            and proof.lift <= _LIFT_PER_TOLERANCE * self._tolerance
            and proof.violation <= self._most_negative
        )

    def _warm(self, multipliers: Floats, buffer: Floats) -> Splitting:
        """Return rounds that begin at the multipliers given, and at the tables that belong to them."""
        problem, layout = self.problem, self.problem.layout
        residuals, tables = self._buffers
        residuals[: layout.inner_cells], residuals[layout.inner_cells :] = 0.0, multipliers
        outer = transform.outer_weights(layout)
        transform.adjoint(layout, residuals, weights=outer, factors=problem.curvatures, out=residuals)
        residuals += problem.z
        transform.reconstruct(layout, residuals, out=tables)
        buffer[:] = tables[layout.inner_cells :]
        return warm_start(problem, multipliers, buffer)

    def _expected(self, look: Look) -> tuple[float, float]:
        """Return the gap and the share moved that a repair is expected to have, equation (1)."""
        if self._loss is None:
            residuals = self.rounds.residuals(self._buffers[0], np.empty(self.problem.layout.facet_cells))
            self._loss = self.problem.loss(residuals)
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


def _starting_point(start: Floats, layout: Layout) -> Floats:
    """Return multipliers that were given as a new array of numbers that are not negative."""
    cells = layout.cells - layout.inner_cells
    if np.iscomplexobj(start):
        raise ReleaseError("the multipliers to start from are complex", remedy="give those of a solution")
    array = np.array(start, dtype=np.float64)
    if array.shape != (cells,) or not np.isfinite(array).all():
        raise ReleaseError(
            f"the multipliers to start from have shape {array.shape} or are not finite",
            remedy=f"give those of a solution of the same workload, of shape ({cells},)",
        )
    return np.maximum(array, 0.0, out=array)


def _nobody(estimates: Estimates) -> Solution:
    """Return the only tables with a total of zero: all cells are zero, and no other tables have a smaller loss."""
    if estimates.counts[0] == 0:
        raise ReleaseError("the total is held and was never measured", remedy="do not hold it, or measure it")
    layout = estimates.layout
    multipliers = np.zeros(layout.cells - layout.inner_cells)
    return Solution(np.zeros(layout.cells), multipliers, Status.SOLVED, gap=0.0, steps=0, violation=0.0, lift=0.0)


def _as_estimated(problem: Problem, tables: Floats) -> Solution:
    """Return the tables of the estimates, none of which is negative: no others are nearer."""
    layout = problem.layout
    marginals = np.empty(layout.cells)
    transform.raise_inner(layout, problem.z, marginals)
    marginals[layout.inner_cells :] = tables
    # Sums of cells that are not negative are negative by rounding alone.
    np.maximum(marginals, 0.0, out=marginals)
    tables[:] = 0.0
    return Solution(marginals, tables, Status.SOLVED, gap=0.0, steps=0, violation=0.0, lift=0.0)


def _solution(run: _Run, proof: Certificate, status: Status) -> Solution:
    """Return the tables of a certificate, rounding taken away, with what is known about them."""
    if not math.isfinite(proof.gap):
        raise ReleaseError(
            f"no non-negative tables were found within {run.rounds.steps} steps that keep all held residuals",
            remedy="hold fewer residuals, or raise max_steps (a held table with cells next to zero leaves no room)",
        )
    marginals = transform.reconstruct(run.problem.layout, proof.residuals, out=proof.residuals)
    np.maximum(marginals, 0.0, out=marginals)
    rounds = run.rounds
    multipliers = rounds.multipliers(rounds.point)
    return Solution(marginals, multipliers, status, proof.gap, rounds.steps, proof.violation, proof.lift)
