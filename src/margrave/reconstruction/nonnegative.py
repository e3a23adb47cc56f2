r"""GReM-LNN: the residuals nearest to their estimates whose tables have no negative cell ([ReM] sec. 4.3, app. F).

With estimates z_τ and weights w_τ, over residuals r of a closure and the outer tables γ (every other table is a sum of
one of those, so it needs no constraint of its own),

    minimise  f(r) = Σ_τ w_τ ‖r_τ − z_τ‖²     subject to   μ = S r ≥ 0.                                           (1)

Dual: for multipliers λ ≥ 0 of the outer tables, with κ_τ = 1/(2 w_τ) (zero where the weight is infinite), the
Lagrangian is least at

    r_τ(λ) = z_τ + κ_τ (Sᵀ λ)_τ,          gradient of −g:   μ(r(λ)) = S r(λ).                                      (2)

Sᵀ S is diagonal in the residuals, so the Hessian of the dual, S κ Sᵀ, has the eigenvalues h_τ = κ_τ Σ_{γ⊇τ} n_τ/n_γ and
no others but zero: the step size is known, there is nothing to tune. A step of its own for each table,

    s_γ = 1 / max_{τ⊆γ} h_τ,                                                                                      (3)

is as safe as 1/max h (Σ_γ⊇τ (n_τ/n_γ) s_γ κ_τ ≤ 1 for every τ) and longer where the large eigenvalues belong to other
tables. The solver is accelerated projected gradient with restart (O'Donoghue & Candès, 2015): momentum (k − 1)/(k + 2),
back to the start when a step turns against the motion. It was chosen by measurement against ADMM, MPRGP and projected
Newton with conjugate gradients (docs/solver.md). It stops when the ``certificate`` says so, and the tables returned are
lifted to be exactly non-negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Integral, Real
from typing import TypeGuard

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats
from margrave.algebra.layout import Layout
from margrave.algebra.threads import over_tables
from margrave.errors import ReleaseError
from margrave.reconstruction import rounds
from margrave.reconstruction.certificate import ROUNDING, Certificate, Problem, certify, dual_residuals
from margrave.reconstruction.estimates import Estimates

# The paper's η for its own weights, which are at most k_∅: unmeasured residuals are held nearer to zero than measured
# ones to their estimates.
_ETA = 40.0
# The first look at the certificate, and then after every so many percent more rounds: a look costs about six rounds.
_FIRST_CHECK, _CHECK_GROWTH = 50, 1.1


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
        Rounds taken.
    violation
        The most negative cell before the lift, as a positive number.
    lift
        Weight of the positive table that was mixed in to leave no negative cell.
    """

    marginals: Floats
    multipliers: Floats
    status: Status
    gap: float
    steps: int
    violation: float
    lift: float


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
        The relative duality gap to reach; the lift must weigh at most ten times as much.
    most_negative
        The most negative cell, as a positive number, that may be left to the lift.
    max_steps
        The most rounds.
    progress
        Called at each check with the rounds so far and the gap.
    start
        Multipliers of an earlier solution to start from; the answer does not depend on it.
    """
    check_options(eta=eta, tolerance=tolerance, most_negative=most_negative, max_steps=max_steps)
    layout = estimates.layout
    problem = Problem(layout, estimates.values, solver_weights(estimates, weights=weights, eta=eta, hold=hold))
    check_holds(problem)
    if problem.holds_total and problem.z[0] == 0:
        return _nobody(estimates)
    interior = interior_point(problem) if problem.holds_more else None
    ascent = Ascent(problem, start)
    buffers = (np.empty(layout.cells), np.empty(layout.cells))
    next_check = _FIRST_CHECK if start is None else 1  # a good start may be all that is needed
    while True:
        ascent.run(min(next_check, max_steps) - ascent.steps)
        proof = certify(problem, ascent.multipliers, buffers=(*buffers, ascent.facets), interior=interior)
        if progress is not None:
            progress(ascent.steps, proof.gap)
        if problem.holds_more and interior is None and proof.dual > (1 + ROUNDING) * problem.largest_loss:
            raise ReleaseError(
                "the held residuals contradict each other: no non-negative tables have them all (proven after "
                f"{ascent.steps} steps)",
                remedy="hold fewer residuals",
            )
        good = proof.gap <= tolerance and proof.lift <= 10 * tolerance and proof.violation <= most_negative
        if good or ascent.steps >= max_steps:
            return _solution(layout, ascent, proof, Status.SOLVED if good else Status.MAX_STEPS)
        ascent.sum_facets(buffers[0])
        next_check = max(ascent.steps + 10, int(ascent.steps * _CHECK_GROWTH))


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


def solver_weights(
    estimates: Estimates, *, weights: str | float | Floats, eta: float | None, hold: Sequence[int]
) -> Floats:
    """Return w_τ of each table: the scheme's, ``eta`` where nothing was measured, infinite where nothing can move."""
    layout, counts = estimates.layout, estimates.counts
    order = layout.index.order.astype(np.float64)
    default_eta = _ETA
    if isinstance(weights, np.ndarray):
        found = transform.one_per_table(layout, weights).copy()
    elif weights == "paper":
        found = np.where(counts > 0, counts * 2.0**-order, np.nan)
    elif weights == "noise":
        known = estimates.precisions[counts > 0]
        if np.isnan(known).any() or known.size == 0:
            raise ReleaseError(
                "weights 'noise' need one variance for each measured residual, and one of them has other noise",
                remedy="use weights='paper' or a number",
            )
        found = np.where(counts > 0, estimates.precisions, np.nan)
        default_eta *= float(known.max())
    elif isinstance(weights, str) or not 0 < weights < math.inf:
        raise ReleaseError(
            f"weights is {weights!r}",
            remedy="give 'paper', 'noise', a positive number b for b^(−|τ|), or one weight a table",
        )
    else:
        found = np.where(counts > 0, float(weights) ** -order, np.nan)
    found[np.isnan(found)] = default_eta if eta is None else eta
    found[list(hold)] = np.inf
    if not (found > 0).all():
        raise ReleaseError(f"eta is {eta!r} or a weight is not positive", remedy="give positive numbers")
    # A residual that is identically zero has nothing to weigh, and takes no part in the step size.
    found[layout.degrees == 0] = np.inf
    return found


def check_holds(problem: Problem) -> None:
    """Raise `ReleaseError` if the held residuals fix a table that is negative.

    A table is fixed when all residuals inside it are held. Fixed tables that are not negative may still contradict each
    other; that shows in the solver, whose dual then grows beyond `Problem.largest_loss`.
    """
    if not problem.holds_total:
        return
    layout, total = problem.layout, float(problem.z[0])
    if total < 0:
        raise ReleaseError(
            f"the total is held at {total:.6g}, which no table without negative cells has",
            remedy="do not hold it, or measure it more precisely",
        )
    held = np.repeat(np.isinf(problem.weights) & (layout.degrees > 0), np.diff(layout.index.offset))
    if total == 0 and problem.z[held].any():
        raise ReleaseError(
            "the total is held at 0, with which all tables are zero, and another held residual is not zero",
            remedy="hold fewer residuals",
        )
    residuals = np.zeros(layout.cells)
    fixed = np.flatnonzero(problem.fixed).tolist()
    for table in fixed:
        layout.view(residuals, table)[...] = layout.view(problem.z, table)
    marginals = transform.reconstruct(layout, residuals, out=residuals)
    for table in fixed:
        least = float(layout.view(marginals, table).min())
        if least < -ROUNDING * total:
            raise ReleaseError(
                f"the held residuals fix a table over {len(layout.sets[table])} attributes (number {table}) with the "
                f"negative cell {least:.6g}",
                remedy="hold fewer residuals",
            )


class Ascent:
    """Accelerated projected gradient on the dual: the state of a run, and its rounds.

    Parameters
    ----------
    problem
        What to solve.
    start
        Multipliers to start from; zero by default.
    """

    def __init__(self, problem: Problem, start: Floats | None = None) -> None:
        layout = problem.layout
        self.problem = problem
        self.steps = 0
        outer = layout.cells - layout.inner_cells
        self.multipliers = np.zeros(outer) if start is None else _starting_point(start, outer)
        self._ahead = self.multipliers.copy()
        self._base = problem.z[layout.inner_cells :]
        self._curvatures = problem.curvatures
        self._step_sizes = _step_sizes(layout, self._curvatures)
        self._turns = np.zeros(len(layout.sets))
        self._nothing = np.zeros(len(layout.sets))
        # Others may work in it between rounds, to save its size, and must then call `sum_facets`.
        self.facets = np.zeros(layout.facet_cells)
        self._inner = np.zeros(layout.inner_cells)
        self._since_restart = 0
        if start is not None:
            self.sum_facets(np.empty(layout.cells))
        self._refresh_inner()

    def run(self, rounds_to_do: int) -> None:
        """Do some rounds."""
        for _ in range(rounds_to_do):
            self._round()

    def residuals(self, buffer: Floats) -> Floats:
        """Return r(λ) of equation (2), written to a buffer of the closure."""
        dual_residuals(self.problem, self.multipliers, buffer, np.empty_like(self.facets))
        return buffer

    def _round(self) -> None:
        """Do one round: step and momentum on the outer tables, then the inner tables at the new point."""
        layout = self.problem.layout
        self._since_restart += 1
        momentum = (self._since_restart - 1) / (self._since_restart + 2)

        def task(begin: int, end: int) -> None:
            rounds.step_tables(
                begin,
                end,
                layout.index,
                layout.inner_cells,
                self._inner,
                self._base,
                self._ahead,
                self.multipliers,
                self.facets,
                self._curvatures,
                self._step_sizes,
                momentum,
                self._turns,
            )

        over_tables(task, layout.outer, len(layout.sets), layout.index.offset)
        self._refresh_inner()
        self.steps += 1
        if self._turns[layout.outer :].sum() > 0:
            self._since_restart = 0

    def _refresh_inner(self) -> None:
        """Bring the marginals of the inner tables to the current point: adjoint downwards, then upwards again."""
        layout, inner = self.problem.layout, self._inner
        inner[:] = 0.0
        transform.lower_inner(layout, self.facets, inner, weights=self._nothing, factors=self._curvatures)
        inner += self.problem.z[: layout.inner_cells]
        transform.raise_inner(layout, inner, inner)

    def sum_facets(self, buffer: Floats) -> None:
        """Fill the facets of the outer tables from the point of the rounds; a buffer of the closure is worked in."""
        layout = self.problem.layout
        buffer[layout.inner_cells :] = self._ahead
        transform.fill_facets(layout, buffer, self.facets)


def _starting_point(start: Floats, cells: int) -> Floats:
    """Return multipliers that were given as a new array of numbers that are not negative."""
    if np.iscomplexobj(start):
        raise ReleaseError("the multipliers to start from are complex", remedy="give those of a solution")
    array = np.array(start, dtype=np.float64)
    if array.shape != (cells,) or not np.isfinite(array).all():
        raise ReleaseError(
            f"the multipliers to start from have shape {array.shape} or are not finite",
            remedy=f"give those of a solution of the same workload, of shape ({cells},)",
        )
    return np.maximum(array, 0.0, out=array)


def _step_sizes(layout: Layout, curvatures: Floats) -> Floats:
    """Return s_γ of equation (3) for the outer tables; zero where nothing inside a table can move."""
    eigenvalues = curvatures * transform.tables_spectrum(layout, transform.outer_weights(layout))
    largest = np.zeros(len(layout.sets))
    rounds.largest_inside(layout.outer, len(layout.sets), layout.index, eigenvalues, largest)
    return np.divide(1.0, largest, out=np.zeros_like(largest), where=largest > 0)


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

    They are the nearest to ``point``, with the weights that make all eigenvalues of the dual equal: no other problem
    with these holds is solved in fewer rounds. A table that the holds fix bounds the share.
    """
    layout, most = problem.layout, 1.0
    independent_marginals = transform.reconstruct(layout, independent)
    for table in np.flatnonzero(problem.fixed).tolist():
        cells = slice(*layout.index.offset[table : table + 2])
        most = min(most, float((marginals[cells] / independent_marginals[cells]).min()))
    spectrum = transform.tables_spectrum(layout, transform.outer_weights(layout))
    weights = np.where(np.isinf(problem.weights), np.inf, spectrum)
    buffer = np.empty(layout.cells)
    for margin in (0.5 * most, 0.1 * most, 0.02 * most, 0.004 * most) if most > 0 else ():
        ascent = Ascent(Problem(layout, point - margin * independent, weights))
        for _ in range(10):
            ascent.run(100)
            residuals = ascent.residuals(buffer)
            residuals += margin * independent
            if transform.reconstruct(layout, residuals)[layout.inner_cells :].min() > 0:
                return residuals
    return None


def _nobody(estimates: Estimates) -> Solution:
    """Return the only tables with a total of zero: all cells are zero, and no other tables have a smaller loss."""
    if estimates.counts[0] == 0:
        raise ReleaseError("the total is held and was never measured", remedy="do not hold it, or measure it")
    layout = estimates.layout
    multipliers = np.zeros(layout.cells - layout.inner_cells)
    return Solution(np.zeros(layout.cells), multipliers, Status.SOLVED, gap=0.0, steps=0, violation=0.0, lift=0.0)


def _solution(layout: Layout, ascent: Ascent, proof: Certificate, status: Status) -> Solution:
    """Return the tables of a certificate, rounding taken away, with what is known about them."""
    if not math.isfinite(proof.gap):
        raise ReleaseError(
            f"no non-negative tables were found within {ascent.steps} steps that keep all held residuals",
            remedy="hold fewer residuals, or raise max_steps (a held table with cells next to zero leaves no room)",
        )
    marginals = transform.reconstruct(layout, proof.residuals, out=proof.residuals)
    np.maximum(marginals, 0.0, out=marginals)
    return Solution(marginals, ascent.multipliers, status, proof.gap, ascent.steps, proof.violation, proof.lift)
