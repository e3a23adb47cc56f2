r"""What a state of the rounds proves: tables without negative cells, and how near they are to the best ones.

The problem is to minimise f(r) = Σ_τ w_τ ‖r_τ − z_τ‖² over residuals whose tables S r are not negative (``problem``).
With κ_τ = 1/(2 w_τ), zero where a residual is held, multipliers λ ≥ 0 on the outer tables and m = Sᵀ λ,

    g(λ) = −Σ_τ ½ κ_τ ‖m_τ‖² − Σ_τ m_τ · z_τ  ≤  best f                                                            (1)

is a lower bound: the least value of the Lagrangian f(r) − λ · S r, which is reached at r = z + κ m. The upper bound is
f at the *repaired* residuals r' (``repair``), whose tables are not negative:

    f(r') − g(λ)  ≥  f(r') − best f  ≥  0.                                                                         (2)

f at tables with negative cells proves nothing: it may be below the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats, over_tables
from margrave.reconstruction.nonnegative.kernels import dual_sums

if TYPE_CHECKING:
    from margrave.reconstruction.nonnegative.problem import Problem
    from margrave.reconstruction.nonnegative.repair import Repairer
    from margrave.reconstruction.nonnegative.splitting import Splitting

# A loss that is below that of all-zero tables by less than this share of it is not worth telling from it.
_NEGLIGIBLE = 1e-12


@dataclass(frozen=True, eq=False)
class Certificate:
    """How good a feasible point is, proven by multipliers.

    Attributes
    ----------
    loss
        f(r'); infinite where no feasible point was found.
    dual
        g(λ), which no feasible loss is below.
    gap
        (f(r') − g(λ)) / f(r'); absolute where f(r') is next to nothing. Infinite where no feasible point was found.
    lift
        The share of the total that the repair moved; zero where all-zero tables are the best that is known.
    violation
        The most negative cell before the repair, as a positive number.
    residuals
        The feasible residuals r', in a buffer that was lent; meaningless where the gap is infinite.
    """

    loss: float
    dual: float
    gap: float
    lift: float
    violation: float
    residuals: Floats


def certify(rounds: Splitting, repairer: Repairer, buffers: tuple[Floats, Floats]) -> Certificate:
    """Return what the state of the rounds proves.

    Parameters
    ----------
    rounds
        The rounds; their state is not changed, their facets are used and refreshed.
    repairer
        Repairs tables of the same problem.
    buffers
        Two buffers of the closure to work in; the residuals of the certificate stand in one of them.
    """
    problem, (first, second) = rounds.problem, buffers
    layout = problem.layout
    dual = dual_value(problem, rounds.multipliers(first[layout.inner_cells :]), first, rounds.facets)
    residuals = rounds.residuals(first, rounds.facets)
    rounds.refresh()
    marginals = transform.reconstruct(layout, residuals, out=second)
    violation = max(0.0, -float(marginals[layout.inner_cells :].min()))
    repaired = repairer.repair(residuals, marginals)
    residuals, lift = repaired.residuals, repaired.moved
    loss = problem.loss(residuals) if np.isfinite(lift) else np.inf
    scale = problem.loss_of_zero
    if not problem.holds_total and not problem.holds_more and loss >= (1 - _NEGLIGIBLE) * scale:
        # Nothing is left to repair. Near an optimum of no people at all, shares only say how two roundings compare.
        residuals[:] = 0.0
        loss, lift = scale, 0.0
    return Certificate(loss, dual, relative_gap(problem, loss - dual, loss), lift, violation, residuals)


def relative_gap(problem: Problem, difference: float, loss: float) -> float:
    """Return a difference of losses relative to the loss, or as it is where the loss is next to nothing."""
    gap = abs(difference)  # below zero by rounding alone, which is then what is not known
    return gap / loss if loss > problem.rounding_loss else gap


def dual_value(problem: Problem, multipliers: Floats, buffer: Floats, facets: Floats) -> float:
    """Return g(λ) of (1).

    Parameters
    ----------
    problem
        The problem.
    multipliers
        λ ≥ 0 of the outer tables; may stand in the outer part of the buffer.
    buffer
        A buffer of the closure, which receives Sᵀ λ.
    facets
        A buffer of facets to work in.
    """
    layout = problem.layout
    buffer[: layout.inner_cells] = 0.0
    buffer[layout.inner_cells :] = multipliers
    transform.adjoint(layout, buffer, weights=transform.outer_weights(layout), out=buffer, facets=facets)
    norms, products = np.zeros(len(layout.sets)), np.zeros(len(layout.sets))

    def task(begin: int, end: int) -> None:
        dual_sums(begin, end, layout.index, problem.z, buffer, norms, products)

    over_tables(task, 0, len(layout.sets), layout.index.offset)
    return float(-0.5 * problem.curvatures @ norms - products.sum())
