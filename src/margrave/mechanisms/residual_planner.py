r"""ResidualPlanner: measure every residual of a plan once, each with the noise that the plan gives it ([RP]).

The objective "counts" plans for a number of rows. Where none is stated the total is measured first, with a share of the
budget, and the rest is planned for what came out: two stages, one budget, charged as a whole up front. Given the first
total the plan is fixed, so that every other residual is measured once, with noise that is independent of it. The
plan may measure the total again; its unbiased estimate is the first measurement alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra.layout import Layout
from margrave.boundary import check_range, measure_residuals
from margrave.data.source import open_source
from margrave.discrete_gaussian import exact_variance
from margrave.errors import PlanError, expected
from margrave.measurements.measurements import Measurements
from margrave.mechanisms import Keep, Mechanism, Run, checked_request
from margrave.mechanisms.spending import FirstTotal, Stage, checked_sampler, spending
from margrave.options import OptionKind, option
from margrave.planning import plans
from margrave.planning.allocation import OBJECTIVES, TOLERANCE
from margrave.planning.coefficients import checked_contributions, exact_cost
from margrave.planning.plans import Plan
from margrave.planning.stages import planned_for_total

if TYPE_CHECKING:
    from margrave.privacy.budget import Budget, Number
    from margrave.privacy.ledger import Ledger
    from margrave.privacy.noise import Sampler
    from margrave.workload import Workload

# Costs are rounded up to multiples of this share of the budget before they are added: thousands of exact fractions have
# a common denominator of millions of digits. The noise of a plan leaves room for more than that.
_SHARE = Fraction(1, 2**80)
# Numbers held at once for each cell: counts, noisy values, those of the stage that is drawn, and the copy returned.
_ARRAYS = 4
# Of the budget, for measuring the total first, unless another is asked for (docs/adaptive.md).
TOTAL_SHARE = Fraction(1, 50)


@dataclass(frozen=True, kw_only=True)
class ResidualPlanner(Mechanism):
    """Measure all residuals of a workload, with the noise that a plan gives each.

    Parameters
    ----------
    objective
        What the plan minimises, as for `margrave.plan`.
    rows, total_share
        For the objective "counts": the number of rows to plan for, or the share of the budget for measuring it first.
    tolerance
        For the objective "max_variance", as for `margrave.plan`.
    plan
        A plan that is already made, in place of workload, budget, contributions, objective and tolerance.
    """

    name = "planner"
    title = "residual planner"
    summary = "every table of the workload, with the noise that minimises the error for the budget"

    objective: str = option(
        "counts",
        "What the plan minimises: counts (for method lnn), nonnegative (the same, whatever the number of rows), "
        "total_variance (for the unbiased tables), table_variance or max_variance.",
        choices=OBJECTIVES,
    )
    total_share: Number | None = option(
        None, "The share of the budget for measuring the total first; a fiftieth by default.", kind=OptionKind.EXACT
    )
    tolerance: float = TOLERANCE
    plan: Plan | None = None
    rows: float | None = None

    @property
    def _after_total(self) -> bool:
        """Whether the total is measured first, and the rest planned for what comes out."""
        return self.plan is None and self.objective == "counts" and self.rows is None

    def predict(self, workload: Workload, budget: Budget, *, contributions: int) -> Plan | None:
        """Return the plan, with the standard error of every table; None if the total is measured first."""
        asked, spent = checked_request(workload, budget)
        if self._after_total:
            self._first_total(asked, spent, contributions)
            return None
        if self.total_share is not None:
            raise PlanError(
                "total_share is given, and the total is not measured first",
                remedy="leave it out, or leave out rows, plan and every objective but 'counts'",
            )
        return plans.plan(
            asked,
            spent,
            contributions=contributions,
            objective=self.objective,
            tolerance=self.tolerance,
            rows=self.rows,
        )

    def notes(self, workload: Workload, budget: Budget, *, contributions: int) -> tuple[str, ...]:
        """Return what is known of errors before the number of rows is."""
        if not self._after_total:
            return ()
        total = self._first_total(workload, budget, contributions)
        return (
            f"The number of rows is measured first, with a standard error of {math.sqrt(total.noise):,.4g}, and the "
            "rest of the budget is planned for what comes out.",
            "Errors depend on it: give --rows, about how many rows there are, to see those of a plan for that number.",
        )

    def prepare(self, workload: Workload, budget: Budget, *, contributions: int) -> ResidualPlanner:
        """Return the mechanism with its plan made, if that does not wait for the total."""
        return replace(self, plan=self.predict(workload, budget, contributions=contributions))

    def description(self) -> str:
        """Return the sentence for reports."""
        objective = self.objective if self.plan is None else self.plan.objective
        if self._after_total:
            return (
                "The total was measured first, and then every table and every table inside one, as residuals, with "
                f"discrete Gaussian noise planned for that number of rows (objective {objective})."
            )
        return (
            "Every table and every table inside one was measured once, as residuals, with discrete Gaussian noise "
            f"planned before the data was opened (objective {objective})."
        )

    def cells(self, workload: Workload) -> int:
        """Return the cells of the workload and of all tables inside its tables: each is measured once."""
        if self.plan is not None and self.plan.workload is workload:
            return self.plan.layout.cells
        cells = Layout.of(workload.domain.shape, workload.positions).cells
        return cells + 2 if self._after_total else cells  # the total again: its first value and its plain mean

    def measure(
        self,
        source: object,
        workload: Workload | None = None,
        budget: Budget | None = None,
        *,
        contributions: int | None = None,
        run: Run = Run(),  # noqa: B008 — frozen
    ) -> Measurements:
        """Measure a private table by a plan, and charge what the plan costs; as `residual_planner`."""
        if self._after_total:
            asked, charged = checked_request(workload, budget)
            total = self._first_total(asked, charged, checked_contributions(contributions))
            purpose = f"residual planner: the total, then residuals for {asked!r}"
            stages = [Stage(planned_for_total, "{:,} residuals, planned for the total", before="after the total")]
            return total.measure(self, source, stages, run=run, purpose=purpose, arrays=_ARRAYS)
        made = self._plan(workload, budget, contributions)
        layout = made.layout
        measured = set(made.measured.tolist())
        table_source = open_source(
            source, made.workload.domain, contributions=made.contributions, privacy_id=run.privacy_id
        )
        noise = [made.noise(table) if table in measured else None for table in range(len(layout.sets))]
        _check_cost(made, noise)
        check_range(layout, noise)
        drawing = checked_sampler(run.sampler, [variance for variance in noise if variance is not None])
        purpose = f"residual planner: {len(made.measured):,} residuals for {made.workload!r}"
        # Where it is the inverse of the precision, as it is but for very small noise, the variance need not be kept.
        same = np.array_equal(exact_variance(made.integer_variances), made.integer_variances)
        with spending(
            table_source,
            made.workload,
            layout,
            made.budget,
            run=run,
            purpose=purpose,
            arrays=_ARRAYS,
        ) as spent:
            values = measure_residuals(layout, spent.counts, noise, drawing)
            record = spent.record(self, [(purpose, made.rho)], made.contributions, drawing)
            domain = made.workload.domain
            return spent.end(
                Measurements.from_centered(
                    domain,
                    layout,
                    values=values,
                    precisions=made.precisions,
                    variances=None if same else made.variances,
                    # The residual of no attributes is the total itself.
                    direct=((), float(made.integer_variances[layout.places[()]])),
                    provenance=record,
                )
            )

    def _first_total(self, workload: Workload, budget: Budget, contributions: int) -> FirstTotal:
        """Return how the total is measured, once it is certain that all that follows can be drawn."""
        share = TOTAL_SHARE if self.total_share is None else self.total_share
        return FirstTotal.of(workload, budget, contributions, share)

    def _plan(self, workload: Workload | None, budget: Budget | None, contributions: int | None) -> Plan:
        """Return the plan to measure by: the one given, or a new one."""
        if self.plan is None:
            asked, spent = checked_request(workload, budget)
            made = self.predict(asked, spent, contributions=contributions)  # type: ignore[arg-type]
            assert made is not None, "without a plan the total is measured first"
            return made
        if not isinstance(self.plan, Plan):
            raise PlanError(
                expected("a Plan", self.plan),
                remedy="make one with plan(workload, budget, contributions=…)",
            )
        own = {"workload": self.plan.workload, "budget": self.plan.budget, "contributions": self.plan.contributions}
        for name, given in (("workload", workload), ("budget", budget), ("contributions", contributions)):
            if given is not None and given is not own[name] and given != own[name]:
                raise PlanError(f"the plan has another {name}", remedy=f"leave out {name}, or leave out plan")
        return self.plan


def residual_planner(
    source: object,
    workload: Workload | None = None,
    budget: Budget | None = None,
    *,
    contributions: int | None = None,
    privacy_id: str | None = None,
    ledger: Ledger | None = None,
    sampler: str | Sampler = "margrave",
    keep: Keep | None = None,
    defer_signals: bool = False,
    objective: str = ResidualPlanner.objective,
    rows: float | None = None,
    total_share: Number | None = None,
    tolerance: float = ResidualPlanner.tolerance,
    plan: Plan | None = None,
) -> Measurements:
    """Plan the measurements of a workload, measure a private table by the plan, and charge the budget.

    The guarantee: ``budget.rho``-zCDP for one person more or less with at most ``contributions`` rows
    (docs/guarantee.md). What is returned is noisy; the exact counts are forgotten.

    Parameters
    ----------
    source
        The private table: a `Data` or what it is made from (a path, a frame, a relation, a URL …), or a `CodedTable`.
    workload, budget, contributions, rows, tolerance
        The plan, as for `margrave.plan`.
    objective
        What the plan minimises, as for `margrave.plan`; "counts" by default. Without ``rows`` the total is then
        measured first, and the rest is planned for what comes out.
    total_share
        The share of the budget for measuring the total first, above 0 and at most one half; a fiftieth by default.
    privacy_id
        The column that says whose row it is: at most ``contributions`` rows of each person are counted. Without it the
        bound is not checked.
    ledger
        The spending record of the table. It refuses, before anything is drawn, what would pass its cap.
    sampler
        "margrave" (exact noise from the system's entropy), "opendp", ``gaussian_sampler(source=…)``, or a sampler of
        your own. A seed, for experiments, marks the measurements as not private. A sampler of your own is recorded as
        foreign and not private, whatever it says of itself.
    keep
        A function that saves the measurements. It is called once, before they are returned, as in
        ``lambda noisy: noisy.save("noisy.npz")``.
    defer_signals
        Whether Ctrl-C, SIGTERM and SIGHUP wait, from just before the charge, until ``keep`` has returned, and raise
        `KeyboardInterrupt` then; a second Ctrl-C ends at once. In the main thread only; handlers are put back.
    plan
        A plan that is already made, in place of workload, budget, contributions, objective, rows and tolerance.
    """
    run = Run(privacy_id=privacy_id, ledger=ledger, sampler=sampler, keep=keep, defer_signals=defer_signals)
    chosen = ResidualPlanner(objective=objective, rows=rows, total_share=total_share, tolerance=tolerance, plan=plan)
    return chosen.measure(source, workload, budget, contributions=contributions, run=run)


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
    """Measure a private table by a plan, and charge what the plan costs: `residual_planner` with ``plan=``.

    Parameters
    ----------
    plan
        Which residuals, with which noise.
    source, privacy_id, ledger, sampler, keep, defer_signals
        As for `residual_planner`.
    """
    if plan is None:
        raise PlanError("expected a Plan, got None", remedy="make one with plan(workload, budget, contributions=…)")
    run = Run(privacy_id=privacy_id, ledger=ledger, sampler=sampler, keep=keep, defer_signals=defer_signals)
    return ResidualPlanner(plan=plan).measure(source, run=run)


def _check_cost(plan: Plan, noise: list[Fraction | None]) -> None:
    """Refuse noise that costs more than the budget, exactly: what is charged must not depend on how a plan was made."""
    share = plan.rho * _SHARE
    spent = sum(
        math.ceil(exact_cost(plan.layout.shape(table), variance, plan.contributions) / share)
        for table, variance in enumerate(noise)
        if variance is not None
    )
    if spent * share > plan.rho:
        raise PlanError(
            f"the noise of this plan costs more than its budget, {plan.budget}", remedy="make plans with plan()"
        )
