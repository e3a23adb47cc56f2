r"""How a budget is divided among the residuals of a workload: five objectives.

Three have a closed form. "max_variance" is solved up to a computed gap, and "counts" by steps that never raise the
expected error.

With the coefficients p_τ (privacy) and v_τ (variance) of ``coefficients`` the variances σ²_τ are chosen to minimise

    "total_variance"    Σ_A w_A n_A Var_A       all cells of all tables together, that is, the mean squared error
    "table_variance"    Σ_A w_A Var_A           all tables equally, whatever their size
    "max_variance"      max_A w_A Var_A         the worst table; a weight of 4 asks for half the standard error
    "nonnegative"       Σ_A Imp_A Var_A         over all tables A of the closure; Imp_A as in `closure_importance`
    "counts"            expected errors of the reconstructed counts for a stated number of rows (``counts``)

subject to ½ Σ p_τ/σ²_τ ≤ ρ, where w_A is the weight of table A in the workload. Contributions c multiply all variances
by c² and change nothing here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.errors import ConvergenceError, PlanError
from margrave.planning.coefficients import (
    cell_counts,
    cell_variances,
    cost_coefficients,
    largest_weights,
    variance_coefficients,
)
from margrave.planning.counts import FLOOR, Importance, best_precisions, prior_curves

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout
    from margrave.planning.counts import Curves
    from margrave.workload import Workload

OBJECTIVES = ("total_variance", "table_variance", "max_variance", "nonnegative", "counts")
TOLERANCE = 1e-4
NO_ROWS = "objective 'counts' plans for a number of rows, and rows is not given"
ROWS_REMEDY = "give rows=…, a public number, or measure the total first with residual_planner(…, total_share=…)"
_MOST_STEPS = 2_000
# The least relative gain in precision for which a residual is measured again.
GAIN = 0.25


@dataclass(frozen=True, eq=False)
class Allocation:
    """The variances that solve one of the objectives.

    Attributes
    ----------
    variances
        Shape (tables,); σ²_τ of each residual of the closure, zero where there is nothing to measure.
    gap
        How far the objective can be from its least possible value, relative to that; zero for a closed form. NaN
        for "counts", where it is only known that no small change improves it.
    steps
        How many steps it took; zero for a closed form.
    """

    variances: Floats
    gap: float
    steps: int


def allocate(
    workload: Workload,
    layout: Layout,
    objective: str,
    *,
    rho: float = 1.0,
    tolerance: float = TOLERANCE,
    rows: float | None = None,
) -> Allocation:
    """Return the best variances for a workload, given the layout of its closure.

    Parameters
    ----------
    workload
        The tables, with their weights.
    layout
        The closure of the workload.
    objective
        One of ``OBJECTIVES``.
    rho
        The budget ρ, for one row a person; variances are inversely proportional to it, except for "counts".
    tolerance
        For "max_variance": the largest gap to stop at.
    rows
        For "counts", which needs it: the number of rows to plan for, positive.
    """
    weights = closure_weights(workload, layout)
    if objective == "max_variance":
        return max_variance(layout, weights, rho=rho, tolerance=tolerance)
    if objective == "counts":
        if rows is None:
            raise PlanError(NO_ROWS, remedy=ROWS_REMEDY)
        return count_errors(layout, weights, rho=rho, rows=rows)
    if objective == "nonnegative":
        importance = closure_importance(layout, weights)
    else:
        importance = weights * cell_counts(layout) if objective == "total_variance" else weights
    return total_variance(layout, importance, rho=rho)


def closure_weights(workload: Workload, layout: Layout) -> Floats:
    """Return the weight of each table of a closure, the largest one 1, zero for sets outside the workload."""
    places = np.fromiter(map(layout.places.__getitem__, workload.positions), np.int64, len(workload))
    weights = np.zeros(len(layout.sets))
    # Only proportions matter; with 1 as the largest weight nothing can overflow.
    weights[places] = workload.weights / workload.weights.max()
    return weights


def closure_importance(layout: Layout, weights: Floats) -> Floats:
    r"""Return the importance of each table of a closure for reconstruction without negative counts; shape (tables,).

        Imp_A = √n_A · 2^(−|A|) · max_{γ⊇A} w_γ        over the tables γ of the workload that contain A.           (1)

    Most cells of a large table are expected to be empty, and the reconstruction removes their noise with the help of
    the smaller tables. So the noise of a large table costs less than its cells, n_A Var_A, would say, and that of the
    small tables inside it, which predict the large ones, costs more. The exponent and the base were chosen on generated
    tables (docs/weights.md); they depend on public numbers only.

    Parameters
    ----------
    layout
        The closure of the workload.
    weights
        Shape (tables,); w_γ of each table, zero for sets outside the workload.
    """
    largest, index = largest_weights(layout, weights), layout.index
    halves: Floats = 2.0 ** -index.order.astype(np.float64)
    return largest * np.sqrt(cell_counts(layout)) * halves


def total_variance(layout: Layout, importance: Floats, *, rho: float = 1.0) -> Allocation:
    r"""Return the variances that minimise Σ_A Imp_A Var_A at zCDP cost ρ.

    Parameters
    ----------
    layout
        The closure of the workload.
    importance
        Shape (tables,); Imp_A of each table, zero for those that do not count.
    rho
        The budget ρ.
    """
    cost, weight = cost_coefficients(layout), variance_coefficients(layout, importance)
    return Allocation(optimal_variances(cost, weight, rho), gap=0.0, steps=0)


def count_errors(layout: Layout, weights: Floats, *, rho: float, rows: float) -> Allocation:
    """Return the variances that minimise the expected errors of reconstructed counts (``counts``), with its floor.

    Parameters
    ----------
    layout
        The closure of the workload.
    weights
        Shape (tables,); w_γ of each table, zero for sets outside the workload.
    rho
        The budget ρ, for one row a person.
    rows
        The number of rows to plan for, positive.
    """
    curves = prior_curves([layout.shape(table) for table in range(len(layout.sets))], rows)
    floor, none = floor_precisions(layout, weights, rho=rho), np.zeros(len(layout.sets))
    importance = Importance.of(layout, weights)
    precisions, steps = add_precisions(layout, importance, curves, rho=rho, known=none, floor=floor)
    measured = precisions > 0
    variances = np.divide(1.0, precisions, out=np.zeros_like(precisions), where=measured)
    return Allocation(variances, gap=math.nan, steps=steps)


def add_precisions(
    layout: Layout,
    importance: Importance,
    curves: Curves,
    *,
    rho: float,
    known: Floats,
    floor: Floats,
) -> tuple[Floats, int]:
    """Return the precisions to add that minimise the expected errors of counts, and how many steps it took.

    Every residual that was never measured gets its part of the floor. One that was measured is measured again only if
    its precision grows by at least ``GAIN``; what that saves goes to the others.

    Parameters
    ----------
    layout
        The closure of the workload.
    importance
        Of tables and of orders in the objective.
    curves
        What is left of each residual, by its precision.
    rho
        What may be spent, for one row a person; more than the floor costs.
    known
        Shape (tables,); the precision of what was measured already.
    floor
        Shape (tables,); the least precision of each residual.
    """
    cost, least = cost_coefficients(layout), np.where(known > 0, 0.0, floor)
    reserved = float(cost @ least) / 2
    left = rho - reserved
    # Start by dividing what is left like the floor or, if every residual was measured, like the known precisions.
    start = (least * (left / reserved)) if reserved > 0 else known * (2 * left / float(cost @ known))
    added, steps = best_precisions(layout, curves, importance, rho=left, start=start, known=known)
    wanted = added + least
    worth = without_small_gains(wanted, known)
    wanted = worth if worth.any() else wanted
    spent = float(cost @ wanted) / 2
    return wanted * (rho / spent) if spent > 0 else wanted, steps


def without_small_gains(added: Floats, known: Floats) -> Floats:
    """Return added precisions, zero where a precision that is known would grow by less than ``GAIN``."""
    return np.where((known > 0) & (added < GAIN * known), 0.0, added)


def floor_precisions(layout: Layout, weights: Floats, *, rho: float) -> Floats:
    """Return the precisions of the floor: the share ``FLOOR`` of a budget, divided as "nonnegative" divides it."""
    variances = total_variance(layout, closure_importance(layout, weights), rho=rho).variances
    return FLOOR * np.divide(1.0, variances, out=np.zeros_like(variances), where=variances > 0)


def optimal_variances(cost: Floats, weight: Floats, rho: float) -> Floats:
    r"""Return the noise variance of each residual that minimises the weighted sum of variances.

    Solves, with p = ``cost`` and v = ``weight``, both of shape (tables,), where v_τ > 0 if p_τ > 0,

        minimise  Σ v_τ σ²_τ    subject to  ½ Σ p_τ / σ²_τ ≤ ρ.                                                   (1)

    By Cauchy–Schwarz (Σ √(p v))² ≤ Σ v σ² · Σ p/σ², with equality at the optimum

        σ²_τ = (Σ √(p v) / 2ρ) · √(p_τ / v_τ),    where (1) has the value (Σ √(p v))² / 2ρ.                       (2)

    A residual with p_τ = 0 is not measured, and gets zero. As in [RP], whose c is 2ρ.
    Law: tests/laws/test_planning.py checks (2) against a general solver on (1).
    """
    scale = np.sqrt(cost * weight).sum() / (2 * rho)
    quotients = np.divide(cost, weight, out=np.zeros_like(cost), where=cost > 0)
    variances: Floats = scale * np.sqrt(quotients)
    return variances


def max_variance(
    layout: Layout,
    weights: Floats,
    *,
    rho: float = 1.0,
    tolerance: float = TOLERANCE,
    max_steps: int = _MOST_STEPS,
) -> Allocation:
    r"""Return the variances that minimise the largest weighted variance max_A w_A Var_A at zCDP cost ρ.

    For any shares λ_A ≥ 0 with Σ λ_A = 1 the largest of the w_A Var_A is at least their mean Σ λ_A w_A Var_A, whose
    least value is known by (2) of `optimal_variances`, with importance Imp_A = λ_A w_A:

        (Σ_τ √(p_τ v_τ(λ)))² / 2ρ  ≤  least possible  ≤  max_A w_A Var_A(σ²(λ)).                                  (3)

    Both sides are known for every λ, and the best λ makes them equal (strong duality of a convex problem). The gap is
    their quotient less one: a certificate, whatever the steps do. A step is

        λ_A ← λ_A (w_A Var_A)² / normalisation.                                                                   (4)

    *It never lowers the left side.* Write v_τ = Σ_A λ_A b_{Aτ} with b ≥ 0, G(λ) = Σ_τ √(p_τ v_τ), and
    g_A = Σ_τ √(p_τ/v_τ) b_{Aτ}, which is w_A Var_A up to one factor for all tables; Σ λ_A g_A = G. The root is
    concave, so that for any λ' (Jensen, with the shares λ_A b_{Aτ}/v_τ, which add up to one)

        G(λ') ≥ Σ_τ √(p_τ v_τ) Σ_A (λ_A b_{Aτ}/v_τ) √(λ'_A/λ_A) = Σ_A √(λ'_A λ_A) g_A,  equal at λ' = λ.          (5)

    By Cauchy–Schwarz the right side is largest, √N with N = Σ λ_A g_A², at λ' ∝ λ_A g_A²: the step (4).

    *It converges.* Let λ* be best, G* = G(λ*); where λ*_A > 0, g*_A = G*. With shares √(p_τ/v*_τ) b_{Aτ}/g*_A over τ,
    Jensen for the logarithm gives log g_A ≥ log G* + ½ Σ_τ (share) log(v*_τ/v_τ). The mean over λ* has the shares
    π*_τ = √(p_τ v*_τ)/G*, and with π_τ = √(p_τ v_τ)/G, ½ log(v*/v) = log(π*/π) + log(G*/G). So, as KL(π*‖π) ≥ 0,
    Σ λ*_A log g_A ≥ 2 log G* − log G, and a step from λ to λ⁺ changes the distance D = Σ λ*_A log(λ*_A/λ_A) by

        D − D⁺ = 2 Σ λ*_A log g_A − log N  ≥  2 log(G*/G) + 2 log(G*/G⁺)  ≥  0,      since √N ≤ G⁺.                (6)

    Adding up k steps, log(G*/G_k) ≤ D_0/4k, where D_0 ≤ log(1/least share) at the start: the left side of (3), which is
    G²/2ρ, is within a factor exp(D_0/2k) of the least possible. G is strictly concave in v, so v → v*, and then the
    right side of (3) comes down to the same value. (6) is a bound; the gap that is reported is computed.
    Law: tests/laws/test_planning.py follows the steps.

    Parameters
    ----------
    layout
        The closure of the workload.
    weights
        Shape (tables,); w_A of each table, zero for sets outside the workload.
    rho
        The budget ρ.
    tolerance
        The largest gap to stop at.
    max_steps
        The most steps; `ConvergenceError` if the gap is not reached within them.
    """
    cost = cost_coefficients(layout)
    share = weights / weights.sum()
    gap = np.inf
    for step in range(max_steps + 1):
        weight = variance_coefficients(layout, share * weights)
        variances = optimal_variances(cost, weight, rho)
        spread = weights * cell_variances(layout, variances)
        largest, mean = float(spread.max()), float((weight * variances).sum())
        gap = min(gap, largest / mean - 1)
        if largest <= mean * (1 + tolerance):
            return Allocation(variances, max(gap, 0.0), step)
        share = share * (spread / mean) ** 2
        share /= share.sum()
    raise ConvergenceError(
        f"the largest variance is within {gap:.2g} of the least possible after {max_steps:,} steps, not within "
        f"{tolerance:.2g}",
        remedy="allow a larger tolerance, or minimise 'total_variance'",
    )
