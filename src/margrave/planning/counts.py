r"""The objective "counts": the least expected error of the reconstructed counts, for a stated number of rows.

With D_τ of ``curves``, what is left of residual τ in people, a table A of the closure errs by about

    L_A = √(Σ_{τ⊆A} D_τ²)                                                                                        (1)

in the sum over its cells: proportional fitting passes the error of a small table on to the large ones unchanged. Tables
of one attribute err by much less than those of three, so errors are compared within a number of attributes k, and
relative changes count across them:

    minimise  Σ_k ω_k log E_k      over added precisions x ≥ 0 with  ½ Σ p_τ x_τ ≤ ρ,                            (2)
    E_k = the mean of L_A over the tables of k attributes, each with weight u_A = max w_γ over γ ⊇ A,
    ω_k = Σ_γ w_γ a_(|γ|−k)       over the tables γ of the workload of k attributes or more, a = 1, 1/5, 1/16, …

So tables inside those of the workload count too, less for each attribute less, beside what the workload asks for.

*Steps.* The logarithm and the root are concave: with E and L of the plan at hand, each lies below its tangent. So (2)
is at most a constant plus

    Σ_τ v_τ D_τ²,      v_τ = Σ_{A⊇τ} ω_k u_A / (2 E_k L_A Σ u),    equal at the plan at hand.                    (3)

(3) is a sum of convex functions of one variable each. Its least value is where all slopes are alike,

    −v_τ dD_τ²/dy / p_τ = λ p_τ / 2,       y = (π_τ + x_τ)/p_τ,     or x_τ = 0 where it is less,                  (4)

and λ is found by bisection. A step never raises (2). It ends in a point that no small change improves.

*A floor.* A share of the budget is divided as "nonnegative" divides it, so that every residual is measured: each table
has an unbiased estimate with its exact standard error, and tables with more structure than the model expects are not
missed. Law: tests/laws/test_counts_objective.py compares with a general solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra.kernels import Floats, Index, compiled, subset_tables
from margrave.planning.coefficients import add_subsets, cost_coefficients

if TYPE_CHECKING:
    from margrave.algebra.layout import Layout
    from margrave.planning.curves import Curves

# What a table counts by how many attributes it has less than one of the workload, a quarter for each further one; and
# the share of the floor. Chosen on generated tables (docs/adaptive.md).
LOWER_ORDERS = (1.0, 0.2, 0.0625)
FLOOR = 1 / 64
_MOST_STEPS = 60
_CONVERGED = 1e-5
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Importance:
    """How much each table and each number of attributes counts in (2).

    Attributes
    ----------
    tables
        Shape (tables,); u_A divided by the sum over the tables of as many attributes.
    orders
        Shape (most attributes + 1,); ω_k, zero for the total and where there is nothing to measure.
    """

    tables: Floats
    orders: Floats


def importance(layout: Layout, weights: Floats) -> Importance:
    """Return how much everything counts.

    Parameters
    ----------
    layout
        The closure of the workload.
    weights
        Shape (tables,); w_γ of each table, zero for sets outside the workload.
    """
    order, largest = layout.index.order, weights.copy()
    # Tables before their facets: orders fall, inner or outer.
    for table in np.argsort(-order, kind="stable").tolist():
        facets = layout.index.facet[table, : order[table]]
        largest[facets] = np.maximum(largest[facets], largest[table])
    asked = np.bincount(order, weights)
    below = np.array([*LOWER_ORDERS, *(LOWER_ORDERS[-1] * 0.25 ** np.arange(1, len(asked) + 1))])
    orders = np.array([asked[k:] @ below[: len(asked) - k] for k in range(len(asked))])
    largest[layout.degrees == 0] = 0.0
    sums = np.bincount(order, largest)
    orders[sums == 0] = 0.0
    if len(orders) > 1:  # the total counts as part of every table; alone it is all there is
        orders[0] = 0.0
    return Importance(largest / np.where(sums > 0, sums, 1.0)[order], orders / max(orders.max(), _LEAST))


def expected_errors(layout: Layout, curves: Curves, precisions: Floats) -> Floats:
    """Return L_A of equation (1) for each table of the closure; shape (tables,).

    Parameters
    ----------
    layout
        The closure.
    curves
        What is left of each residual.
    precisions
        Shape (tables,); π_τ, how precisely each residual is measured.
    """
    squares = np.empty(len(layout.sets))
    add_subsets(layout.index, curves.squared_errors(_by_cell(layout, precisions)), squares)
    return np.sqrt(squares)


def objective(layout: Layout, curves: Curves, precisions: Floats, counting: Importance) -> float:
    """Return the value of (2) for residuals measured with these precisions."""
    errors = expected_errors(layout, curves, precisions)
    means = np.bincount(layout.index.order, counting.tables * errors)
    return float(sum(share * np.log(max(mean, _LEAST)) for share, mean in zip(counting.orders, means, strict=True)))


def best_precisions(
    layout: Layout, curves: Curves, counting: Importance, *, rho: float, start: Floats, known: Floats | None = None
) -> tuple[Floats, int]:
    """Return the precisions to add that minimise (2), and how many steps it took.

    Parameters
    ----------
    layout
        The closure.
    curves
        What is left of each residual, by its precision.
    counting
        How much everything counts.
    rho
        The budget, for one row a person.
    start
        Shape (tables,); added precisions to begin with, within the budget.
    known
        Shape (tables,); π_τ, the precisions that are there already; none by default.
    """
    there = np.zeros(len(layout.sets)) if known is None else known
    added, value = start, objective(layout, curves, there + start, counting)
    for step in range(1, _MOST_STEPS + 1):
        weights = _majorant(layout, curves, there + added, counting)
        tried = _filled(layout, curves, weights, there, rho)
        new = objective(layout, curves, there + tried, counting)
        if new < value:
            added = tried
        if new > value - _CONVERGED:
            return added, step
        value = new
    return added, _MOST_STEPS


def _majorant(layout: Layout, curves: Curves, precisions: Floats, counting: Importance) -> Floats:
    """Return v_τ of equation (3)."""
    order = layout.index.order
    errors = np.maximum(expected_errors(layout, curves, precisions), _LEAST)
    means = np.bincount(order, counting.tables * errors)
    each = counting.orders[order] * counting.tables / (2 * np.maximum(means, _LEAST)[order] * errors)
    weights = np.zeros(len(each))
    add_to_subsets(layout.index, each, weights)
    return weights


def _filled(layout: Layout, curves: Curves, weights: Floats, known: Floats, rho: float) -> Floats:
    """Return the added precisions of equation (4), which cost ``rho``."""
    cost = cost_coefficients(layout)
    useful = (cost > 0) & (weights > 0)
    safe = np.where(useful, cost, 1.0)
    slopes = np.log2(safe**2 / (2 * np.where(useful, weights, 1.0)))
    there = _by_cell(layout, known)

    def added(level: float) -> Floats:
        # Levels are log₂ λ: λ may be of any size.
        return np.where(useful, np.maximum(curves.precisions_at(slopes + level) - there, 0.0) * safe, 0.0)

    low, high = -400.0, 400.0
    for _ in range(60):
        middle = (low + high) / 2
        if float(cost @ added(middle)) / 2 > rho:
            low = middle
        else:
            high = middle
    # Between the two the cost passes ρ; along the straight line between them it is met exactly.
    more, less = added(low), added(high)
    spent_more, spent_less = float(cost @ more) / 2, float(cost @ less) / 2
    if spent_more <= rho:
        return more * (rho / spent_more) if spent_more > 0 else more
    share = (rho - spent_less) / max(spent_more - spent_less, _LEAST * rho)
    return less + min(max(share, 0.0), 1.0) * (more - less)


def _by_cell(layout: Layout, precisions: Floats) -> Floats:
    """Return y = π_τ/p_τ; zero where there is nothing to measure."""
    cost = cost_coefficients(layout)
    return np.divide(precisions, cost, out=np.zeros_like(cost), where=cost > 0)


@compiled
def add_to_subsets(index: Index, terms: Floats, sums: Floats) -> None:
    """Add the term of every table to all tables inside it, itself included, in place."""
    subsets = np.empty(1 << index.axes.shape[1], dtype=np.int64)
    for table in range(len(terms)):
        subset_tables(table, index, subsets)
        for mask in range(1 << index.order[table]):
            sums[subsets[mask]] += terms[table]
