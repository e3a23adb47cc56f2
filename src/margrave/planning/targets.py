r"""Targets: margins of error that some tables must have, within a budget.

A plan divides the budget by the weights of tables. So targets are met by weights: those of the tables that miss their
target are raised until none does. Whether that is possible at all is known first: the least budget that meets all
targets is that of the plan for these tables alone that minimises max_T Var_T/m_T² ("max_variance"), because variances
are inversely proportional to ρ.

    ρ_least = ρ · z² · max_T Var_T(ρ)/m_T²,        m_T the margin asked for, z its normal quantile.                  (1)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from margrave.errors import PlanError
from margrave.planning.expectation import is_number
from margrave.planning.plans import OBJECTIVE, plan
from margrave.privacy.budget import Budget, format_budget
from margrave.workload import Workload

if TYPE_CHECKING:
    from margrave.planning.plans import Plan

Targets = Mapping[tuple[str, ...], float]
_LEVEL = 0.95
_MOST_STEPS = 60
# The noise of a plan is rounded up by less than this.
_ROUNDING = 1 + 1e-5


def plan_for_targets(
    workload: Workload,
    budget: Budget,
    targets: Targets,
    *,
    contributions: int,
    objective: str = OBJECTIVE,
) -> Plan:
    """Return a plan in which the tables named have at most the margins of error asked for, at 95 %.

    What the targets leave of the budget is divided by the objective and the weights of the workload. A table that is
    not in the workload is added to it. `PlanError`, with the budget that it would take, if there is no such plan.

    Parameters
    ----------
    workload, budget, contributions, objective
        As for `margrave.plan`.
    targets
        Margins by table, as in ``{("age", "sex"): 50}``: half the width of the interval of a cell, in rows.
    """
    margins = {tuple(names): _margin(margin) for names, margin in targets.items()}
    if not margins:
        return plan(workload, budget, contributions=contributions, objective=objective)
    needed = least_budget(workload, margins, contributions=contributions, delta=budget.delta)
    if needed.rho > budget.rho:
        raise _missed(margins, needed, budget)
    wanted = workload | Workload(workload.domain, list(margins))
    weights = dict(zip(wanted.sets, wanted.weights.tolist(), strict=True))
    for _ in range(_MOST_STEPS):
        made = plan(wanted.weighted(weights), budget, contributions=contributions, objective=objective)
        ratios = {names: made.margin_of_error(*names, level=_LEVEL) / margin for names, margin in margins.items()}
        if max(ratios.values()) <= 1:
            return made
        for names, ratio in ratios.items():
            # Var ∝ w^(−1/2) where a table has most of the weight: this power of the ratio mends it in one step.
            key = workload.domain.names(workload.domain.positions(names))
            weights[key] *= max(ratio, 1.0) ** 4 * (1.02 if ratio > 1 else 1.0)
    raise _missed(margins, needed, budget)


def least_budget(workload: Workload, targets: Targets, *, contributions: int, delta: float | None = None) -> Budget:
    """Return the least budget of any plan that meets all targets, as in equation (1).

    Parameters
    ----------
    workload, contributions
        As for `margrave.plan`; only the domain of the workload matters.
    targets
        As for `plan_for_targets`.
    delta
        At which δ the budget is stated; by default the usual one.
    """
    margins = {tuple(names): _margin(margin) for names, margin in targets.items()}
    alone = Workload(workload.domain, list(margins), weights=[1 / margin**2 for margin in margins.values()])
    made = plan(alone, Budget.zcdp(rho=1), contributions=contributions, objective="max_variance")
    worst = max(made.margin_of_error(*names, level=_LEVEL) / margin for names, margin in margins.items())
    rho = Fraction(worst**2 * _ROUNDING)
    return Budget.zcdp(rho=rho) if delta is None else Budget.zcdp(rho=rho, delta=delta)


def _margin(margin: object) -> float:
    """Return a margin of error if it is one."""
    if not is_number(margin) or not 0 < float(margin) < math.inf:  # type: ignore[arg-type]
        raise PlanError(f"a target is {margin!r}", remedy="give a positive number of rows")
    return float(margin)  # type: ignore[arg-type]


def _missed(margins: Mapping[tuple[str, ...], float], needed: Budget, budget: Budget) -> PlanError:
    """Return the error for targets that a budget cannot meet, or hardly."""
    named = ", ".join(f"± {margin:g} on {' × '.join(names) or 'the total'}" for names, margin in margins.items())
    return PlanError(
        f"{named}: no plan within {format_budget(budget)} has that; these tables alone take {format_budget(needed)}",
        remedy="raise the budget, or ask for wider margins",
    )
