"""ResidualPlanner: measure every residual of a plan once, each with the noise that the plan gives it ([RP])."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

from margrave.boundary import check_range, measure_residuals
from margrave.data.source import open_source
from margrave.errors import PlanError
from margrave.measurements import Measurements
from margrave.mechanisms.spending import Keep, checked_sampler, provenance, spending
from margrave.planning.coefficients import exact_cost
from margrave.planning.plans import Plan
from margrave.privacy.ledger import Ledger
from margrave.privacy.noise import Sampler

# Costs are rounded up to multiples of this share of the budget before they are added: thousands of exact fractions have
# a common denominator of millions of digits. The noise of a plan leaves room for more than that.
_SHARE = Fraction(1, 2**80)


def measure(
    plan: Plan,
    source: object,
    *,
    privacy_id: str | None = None,
    ledger: Ledger | None = None,
    sampler: str | Sampler = "margrave",
    keep: Keep | None = None,
    defer_signals: bool = False,
) -> Measurements:
    """Measure a private table by a plan, and charge what the plan costs.

    The guarantee: ``plan.rho``-zCDP for one person more or less with at most ``plan.contributions`` rows
    (docs/guarantee.md). What is returned is noisy; what was counted is forgotten.

    Parameters
    ----------
    plan
        Which residuals, with which noise.
    source
        The private table: a `Data` or what it is made from (a path, a frame, a relation, a URL …), or a `CodedTable`.
    privacy_id
        The column that tells whose row it is: at most ``plan.contributions`` rows of each person are kept, drawn at
        random. Without it the caller's word is taken that nobody has more.
    ledger
        The spending record of the table; refuses, before anything is drawn, what would pass its cap.
    sampler
        "margrave" (exact noise from the system's entropy), "opendp", ``gaussian_sampler(source=…)``, or a sampler of
        your own. A seed, for experiments, marks the measurements as not private. A sampler of your own is recorded as
        foreign and not private, whatever it says of itself.
    keep
        Called once with the measurements, before they are returned: a function that saves them, as
        ``lambda noisy: noisy.save("noisy.npz")``.
    defer_signals
        Whether Ctrl-C and SIGTERM wait, from just before the charge, until ``keep`` has returned, and raise
        `KeyboardInterrupt` then; a second Ctrl-C ends at once. In the main thread only; handlers are put back.
    """
    if not isinstance(plan, Plan):
        raise PlanError(f"a {type(plan).__name__} is no plan; make one with plan(workload, budget, contributions=…)")
    layout = plan.layout
    measured = set(plan.measured.tolist())
    table_source = open_source(source, plan.workload.domain, contributions=plan.contributions, privacy_id=privacy_id)
    noise = [plan.noise(table) if table in measured else None for table in range(len(layout.sets))]
    _check_cost(plan, noise)
    check_range(layout, noise)
    drawing = checked_sampler(sampler, [variance for variance in noise if variance is not None])
    purpose = f"residual planner: {len(plan.measured):,} residuals for {plan.workload!r}"
    variances = plan.variances
    precisions = np.divide(1.0, variances, out=np.zeros_like(variances), where=variances > 0)
    with spending(
        table_source,
        plan.workload,
        layout,
        plan.budget,
        ledger=ledger,
        purpose=purpose,
        keep=keep,
        defer_signals=defer_signals,
    ) as run:
        values = measure_residuals(layout, run.counts, noise, drawing)
        record = provenance(
            "residual planner",
            [(purpose, plan.rho)],
            plan.budget,
            plan.contributions,
            drawing,
            counted=table_source,
            entry=run.entry,
        )
        return run.end(
            Measurements.from_centered(
                plan.workload.domain, layout, values=values, precisions=precisions, provenance=record
            )
        )


def _check_cost(plan: Plan, noise: list[Fraction | None]) -> None:
    """Refuse noise that costs more than the budget, exactly: what is charged must not rest on how a plan was made."""
    share = plan.rho * _SHARE
    spent = sum(
        ceil(exact_cost(plan.layout.shape(table), variance, plan.contributions) / share)
        for table, variance in enumerate(noise)
        if variance is not None
    )
    if spent * share > plan.rho:
        raise PlanError(f"the noise of this plan costs more than its budget, {plan.budget}; make plans with plan()")
