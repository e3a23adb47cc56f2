r"""The adaptive planner: measure everything once, look at what came out, and plan the rest of the budget by it.

With a share of the budget ρ the total is measured. With four tenths of the rest every residual is measured, as the plan
for that number of people has it. What is left is planned twice more for the least expected error of the counts, half of
it and then all, with what all noisy values so far say (``planning.stages``): tables that turn out to be as predicted
are left alone, and those that stray are measured again.

*Privacy.* A stage is chosen from noisy values and public numbers alone. Its cost depends on them, so that the whole is
ρ-zCDP by a privacy filter (`PrivacyFilter`): before every stage the exact sum of all costs is checked.

*Estimates.* Every residual is measured first with noise that depends on the total alone. That first measurement is its
unbiased estimate, with exact error bars, as wide as four tenths of the budget make them. The reconstruction uses all
measurements, and the errors of its counts are learned from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra.layout import Layout
from margrave.mechanisms import Mechanism, Run, checked_request
from margrave.mechanisms.spending import FirstTotal, Stage
from margrave.options import option
from margrave.planning.allocation import GAIN
from margrave.planning.coefficients import exact_cost
from margrave.planning.plans import Plan, checked_rows, stage_noise
from margrave.planning.stages import STAGES, first_precisions, planned_after, planned_for_total

if TYPE_CHECKING:
    from collections.abc import Callable

    from margrave.measurements.measurements import Measurements
    from margrave.mechanisms import Keep
    from margrave.privacy.budget import Budget, Number
    from margrave.privacy.ledger import Ledger
    from margrave.privacy.noise import Sampler
    from margrave.workload import Workload

# Numbers held at once for each cell: as the planner, with first values, sums and means of what is measured again.
_ARRAYS = 8


@dataclass(frozen=True, kw_only=True)
class AdaptivePlanner(Mechanism):
    """Measure every residual, then again what the noisy values ask for.

    Parameters
    ----------
    total_share
        The share of the budget for the total, as for `adaptive_planner`.
    rows
        About how many rows there are, a public number, to predict errors with; measuring does not depend on it.
    """

    name = "adaptive"
    title = "adaptive planner"
    staged = True
    summary = "every table once, then again those whose noisy values ask for it; lowest error, wider error bars"

    total_share: Number = option(Fraction(1, 50), "The share of the budget for measuring the total first.")
    rows: float | None = None

    def prepare(self, workload: Workload, budget: Budget, *, contributions: int) -> AdaptivePlanner:
        """Return the mechanism, once it is certain that all stages can be drawn."""
        self._first_total(*checked_request(workload, budget), contributions)
        return self

    def predict(self, workload: Workload, budget: Budget, *, contributions: int) -> Plan | None:
        """Return what the first measurement of everything promises for the stated number of rows; None without one."""
        asked, charged = checked_request(workload, budget)
        total = self._first_total(asked, charged, contributions)
        if self.rows is None:
            return None
        # As if the total came out as stated: the stages of `measure` up to the first that looks at more than that.
        left = charged.rho - exact_cost((), total.noise, contributions)
        known = np.zeros(len(total.layout.sets))
        known[total.layout.places[()]] = 1 / float(total.noise)
        rho = float(left / contributions**2)
        added = first_precisions(asked, total.layout, known, float(self.rows), rho=rho, share=STAGES[0])
        noise = stage_noise(total.layout, np.where(known > 0, known, added))
        return Plan(asked, charged, contributions, "counts", total.layout, noise, math.nan, float(self.rows))

    def notes(self, workload: Workload, budget: Budget, *, contributions: int) -> tuple[str, ...]:
        """Return what is known before any data is opened."""
        total = self._first_total(workload, budget, contributions)
        first = (
            f"The total is measured with a standard error of {math.sqrt(total.noise):,.4g}, then every table, then "
            "again those whose noisy values stray from what is expected."
        )
        if self.rows is None:
            return first, "Give --rows, about how many rows there are, to see the errors of the first measurement."
        return (
            first,
            "The errors shown are those of the first measurement, which has four tenths of the budget. Published "
            "counts use all measurements; their errors depend on what comes out and are estimated then. "
            "--mechanism planner spends the whole budget on one measurement.",
        )

    def description(self) -> str:
        """Return the sentence for reports."""
        return (
            "Every table and every table inside one was measured, as residuals, with discrete Gaussian noise planned "
            "for the number of people, and again where the noisy values strayed from what was expected."
        )

    def cells(self, workload: Workload) -> int:
        """Return the most numbers that measurements hold: each residual, its first value and its plain mean."""
        return 3 * Layout.of(workload.domain.shape, workload.positions).cells

    def measure(
        self,
        source: object,
        workload: Workload | None,
        budget: Budget | None,
        *,
        contributions: int | None,
        run: Run = Run(),  # noqa: B008 — frozen
    ) -> Measurements:
        """Measure a private table in stages, and charge the whole budget; as `adaptive_planner`."""
        asked, charged = checked_request(workload, budget)
        purpose = f"adaptive planner: residuals for {asked!r}"
        total, count = self._first_total(asked, charged, contributions), len(STAGES) + 1
        stages = [
            Stage(
                partial(planned_after if done > 1 else planned_for_total, share=share),
                "{:,} residuals, measured again" if done > 1 else "{:,} residuals",
                before=f"after {done} of {count} stages",
            )
            for done, share in enumerate(STAGES, start=1)
        ]
        return total.measure(self, source, stages, run=run, purpose=purpose, arrays=_ARRAYS)

    def _first_total(self, workload: Workload, budget: Budget, contributions: int | None) -> FirstTotal:
        """Return how the total is measured, once every option is checked and all stages can be drawn."""
        if self.rows is not None:
            checked_rows(self.rows, "counts")
        # What is measured again becomes more precise by a share that is worth it, so its noise has a bound as well.
        return FirstTotal.of(workload, budget, contributions, self.total_share, factor=2 / Fraction(GAIN))


def adaptive_planner(
    source: object,
    workload: Workload,
    budget: Budget,
    *,
    contributions: int,
    privacy_id: str | None = None,
    ledger: Ledger | None = None,
    sampler: str | Sampler = "margrave",
    keep: Keep | None = None,
    defer_signals: bool = False,
    total_share: Number = AdaptivePlanner.total_share,
    progress: Callable[[int, int], None] | None = None,
) -> Measurements:
    """Measure a workload in stages, each planned from the noisy values before it; charge the budget.

    The guarantee: ``budget.rho``-zCDP for one person more or less with at most ``contributions`` rows
    (docs/guarantee.md). The whole budget is charged before the first stage.

    Parameters
    ----------
    source
        The private table: a `Data` or what it is made from (a path, a frame, a relation, a URL …), or a `CodedTable`.
    workload
        The tables wanted.
    budget
        What to spend.
    contributions
        The most rows that one person has.
    privacy_id, ledger, sampler
        As for `residual_planner`.
    keep
        A function that saves measurements. It is called after every stage with all that was measured so far, whose
        provenance says where the run was cut short: measurements like any others, charged in full. A run that was
        interrupted does not continue measuring later.
    defer_signals
        Whether Ctrl-C, SIGTERM and SIGHUP wait, from just before the charge, until the end of a stage, and raise
        `KeyboardInterrupt` when ``keep`` has returned; a second Ctrl-C ends at once. In the main thread only; handlers
        are put back.
    total_share
        The share of the budget for measuring the total first, above 0 and at most one half.
    progress
        Called after each stage with the stages done and the stages in all.
    """
    run = Run(
        privacy_id=privacy_id,
        ledger=ledger,
        sampler=sampler,
        keep=keep,
        defer_signals=defer_signals,
        progress=progress,
    )
    chosen = AdaptivePlanner(total_share=total_share)
    return chosen.measure(source, workload, budget, contributions=contributions, run=run)
