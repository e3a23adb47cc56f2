# %% [markdown]
# # A researcher: a mechanism and a method of one's own, compared with mbi
#
# Both are plugged in without changing the package: a mechanism is an object that measures within a budget, a method
# is an object that makes tables from measurements. The table is the made-up town of `margrave demo`, which is public,
# so that errors may be shown.

# %%
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import mbi
import numpy as np

import margrave as mg
from margrave.algebra.layout import Layout
from margrave.boundary import measure_marginal
from margrave.cli import town
from margrave.data.source import open_source
from margrave.mechanisms import Mechanism, Run, checked_request
from margrave.mechanisms.gaussian_marginals import marginal_cost
from margrave.mechanisms.spending import checked_sampler, spending
from margrave.methods.method import Made, Method, Request, Words
from margrave.options import option

ATTRIBUTES = ("age", "sex", "district", "education", "work")
domain = town.DOMAIN.project(ATTRIBUTES)
people = mg.CodedTable(domain, {name: town.inhabitants()[name] for name in ATTRIBUTES})
workload = mg.Workload.all_kway(domain, 2)
budget = mg.Budget.approx(epsilon=0.3, delta=1e-9)

# %% [markdown]
# ## A mechanism: margins first
#
# One-way tables with a share of the budget, pairs with the rest, each measured as it is. A noisy table with variance
# σ² costs ρ = c²/2σ², and the costs add up: the variances below spend the budget exactly. `spending` counts, charges
# the ledger and lets noise be drawn only then; `measure_marginal` is the one place where counts meet noise.


# %%
@dataclass(frozen=True, kw_only=True)
class MarginsFirst(Mechanism):
    """One-way tables with a share of the budget, the tables of the workload with the rest."""

    name = "margins-first"
    title = "margins first"
    summary = "one-way tables, then the workload"

    share: Fraction = option(Fraction(1, 4), "The share of the budget for one-way tables.")

    def description(self) -> str:
        """Return what was measured."""
        return f"Tables of one attribute got {float(self.share):.0%} of the budget, those of the workload the rest."

    def measure(
        self, source: object, workload: mg.Workload, budget: mg.Budget, *, contributions: int, run: Run = Run()
    ) -> mg.Measurements:
        """Measure a private table."""
        checked_request(workload, budget)
        singles = [(name,) for name in workload.domain.attributes]
        wanted = mg.Workload(workload.domain, [*singles, *workload])
        counted = open_source(source, workload.domain, contributions=contributions, privacy_id=run.privacy_id)
        parts = [self.share * budget.rho / len(singles), (1 - self.share) * budget.rho / len(workload)]
        variances = [Fraction(contributions**2) / (2 * part) for part in parts]
        drawing = checked_sampler(run.sampler, variances)
        layout = Layout.of(workload.domain.shape, wanted.positions)
        with spending(counted, wanted, layout, budget, purpose=self.title, run=run) as spent:
            noisy, steps = [], []
            for names, variance in self._tables(singles, workload, variances):
                place = layout.places[workload.domain.positions(names)]
                exact = layout.view(spent.counts, place)
                noisy.append((names, measure_marginal(exact, variance, drawing), float(variance)))
                steps.append((" × ".join(names), marginal_cost(variance, contributions)))
            record = spent.record(self, steps, contributions, drawing)
            measured = mg.Measurements.from_marginals(workload.domain, noisy, discrete=True)
            return spent.end(measured.with_provenance(record))

    def _tables(
        self, singles: Sequence[tuple[str, ...]], pairs: mg.Workload, variances: Sequence[Fraction]
    ) -> list[tuple[tuple[str, ...], Fraction]]:
        """Return every table to measure with the variance of its noise."""
        return [(names, variances[0]) for names in singles] + [(names, variances[1]) for names in pairs]


own = MarginsFirst(share=Fraction(1, 3)).measure(people, workload, budget, contributions=1)
assert own.provenance.private
assert sum(step.rho for step in own.provenance.steps) <= budget.rho

# %% [markdown]
# ## A method: each table moved to the nearest one without negative cells
#
# Every table by itself is projected onto the non-negative tables of its estimated total: subtract a constant and cut
# at zero. It gives up agreement between tables, which `agree` says, and error bars of estimates stay.


# %%
@dataclass(frozen=True)
class NearestSimplex(Method):
    """The nearest non-negative table with the estimated total, each table by itself."""

    nonnegative: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Its short name."""
        return "nearest-simplex"

    @property
    def words(self) -> Words:
        """What readers are told."""
        return Words(
            counts="counts of the nearest simplex",
            count="count of the nearest simplex",
            column="the nearest non-negative table with the same total",
            report="The count is that of the nearest non-negative table with the same total.",
            registry="Projection of each table onto the simplex.",
        )

    def make(self, request: Request) -> Made:
        """Project every table of the closure."""
        unbiased = mg.methods.MaximumLikelihood().make(request).marginals
        layout, made = request.estimates.layout, unbiased.copy()
        for place in range(len(layout.sets)):
            layout.view(made, place)[...] = project(layout.view(unbiased, place))
        return Made(made)


def project(table: np.ndarray) -> np.ndarray:
    """Return the nearest non-negative table with the same total (or with total zero, if that is negative)."""
    total = max(float(table.sum()), 0.0)
    ordered = np.sort(table, axis=None)[::-1]
    shifts = (np.cumsum(ordered) - total) / np.arange(1, ordered.size + 1)
    kept = np.flatnonzero(ordered > shifts)
    shift = shifts[kept[-1]] if kept.size else ordered[0]
    return np.maximum(table - shift, 0.0)


# %% [markdown]
# ## Compared
#
# The same measurements, four estimators; `to_mbi` hands them to the package mbi, which fits a graphical model.


# %%
def error(tables: dict[tuple[str, ...], np.ndarray]) -> float:
    """Return the mean over the tables of Σ|found − true|/N; only a made-up or public table lets this be shown."""
    found = [np.abs(table - town.count(names)).sum() / town.INHABITANTS for names, table in tables.items()]
    return float(np.mean(found))


def of_mbi(noisy: mg.Measurements) -> dict[tuple[str, ...], np.ndarray]:
    """Return the tables that a graphical model of mbi has, fitted to the measurements."""
    model = mbi.estimation.MirrorDescent().estimate(noisy.domain.to_mbi(), noisy.to_mbi(), iters=500)
    return {names: np.asarray(model.project(names).datavector(flatten=False)) for names in workload}


measured = {
    "margins first": own,
    "margrave's planner": mg.residual_planner(people, workload, budget, contributions=1),
}
for label, noisy in measured.items():
    for method in ("mle", NearestSimplex(), "lnn"):
        release = mg.reconstruct(noisy, workload, method=method)
        tables = {names: release.table(*names).values for names in workload}
        print(f"{label:20} {release.method.name:16} {error(tables):.4f}")
    print(f"{label:20} {'mbi':16} {error(of_mbi(noisy)):.4f}")
