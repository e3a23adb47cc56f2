"""ResidualPlanner: measure every residual of a plan once, each with the noise that the plan gives it ([RP])."""

from __future__ import annotations

import numpy as np

from margrave.data.table import Source
from margrave.errors import PlanError
from margrave.measurement import check_range, measure_residuals
from margrave.measurements import Measurements
from margrave.mechanisms.spending import checked_sampler, count_and_charge, provenance
from margrave.planning.plan import Plan
from margrave.privacy.ledger import Ledger
from margrave.privacy.noise import Sampler


def measure(
    plan: Plan, source: Source, *, ledger: Ledger | None = None, sampler: str | Sampler = "margrave"
) -> Measurements:
    """Measure a private table by a plan, and charge what the plan costs.

    The guarantee: ``plan.rho``-zCDP for one person more or less with at most ``plan.contributions`` rows
    (docs/guarantee.md). What is returned is noisy; what was counted is forgotten.

    Parameters
    ----------
    plan
        Which residuals, with which noise.
    source
        The private table.
    ledger
        The spending record of the table; refuses, before anything is drawn, what would pass its cap.
    sampler
        "margrave" (exact noise from the system's entropy), "opendp", or a sampler of your own making, such as one with
        a seed for experiments, which marks the measurements as not private.
    """
    if not isinstance(plan, Plan):
        raise PlanError(f"a {type(plan).__name__} is no plan; make one with plan(workload, budget, contributions=…)")
    layout = plan.layout
    measured = set(plan.measured.tolist())
    noise = [plan.noise(table) if table in measured else None for table in range(len(layout.sets))]
    check_range(layout, noise)
    drawing = checked_sampler(sampler, [variance for variance in noise if variance is not None])
    purpose = f"residual planner: {len(plan.measured):,} residuals for {plan.workload!r}"
    counts = count_and_charge(source, plan.workload.domain, layout, plan.budget, ledger=ledger, purpose=purpose)
    values = measure_residuals(layout, counts, noise, drawing)
    variances = plan.variances
    precisions = np.divide(1.0, variances, out=np.zeros_like(variances), where=variances > 0)
    return Measurements.from_centered(
        plan.workload.domain,
        layout,
        values=values,
        precisions=precisions,
        provenance=provenance("residual planner", [(purpose, plan.rho)], plan.budget, plan.contributions, drawing),
    )
