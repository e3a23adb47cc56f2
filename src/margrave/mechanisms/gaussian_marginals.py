r"""Gaussian marginals: measure the tables of a workload, each cell with independent noise.

One person with at most c rows moves a table by at most c in length, so a table t with noise of variance σ²_t costs
c²/2σ²_t ([ReM] Prop. 5), and tables compose by adding up. Given a workload with weights w_t and a budget ρ,

    minimise Σ_t w_t σ²_t    subject to    Σ_t c²/2σ²_t ≤ ρ                                                          (1)

has the solution σ²_t = c² Σ_u √w_u / (2ρ √w_t): with equal weights every table has the same noise. The roots are
rounded and the rest is exact, so that the costs add up to ρ exactly. Reconstruction from such tables is EMP.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, combinations
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra.layout import Layout
from margrave.boundary import measure_marginal
from margrave.data.source import is_source, open_source
from margrave.discrete_gaussian import exact_variance
from margrave.domain.domain import Domain
from margrave.errors import DataError, DomainError, PlanError, expected
from margrave.measurements.measurements import Measurements
from margrave.mechanisms import Keep, Mechanism, Run, checked_request
from margrave.mechanisms.spending import checked_sampler, spending
from margrave.planning.coefficients import cell_counts, cell_variances, checked_contributions
from margrave.planning.expectation import Expectation
from margrave.privacy.budget import DEFAULT_DELTA, Budget, Number, exact_number
from margrave.workload import Workload

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats, Integers
    from margrave.privacy.ledger import Ledger
    from margrave.privacy.noise import Sampler

_Asked = list[tuple[tuple[str, ...], Fraction]]
# Numbers held at once for each cell: counts, noisy tables, and their residuals while they are combined.
_ARRAYS = 5.5
# Longer fractions of ρ are rounded up to this many binary digits.
_DIGITS = 201


def marginal_cost(variance: Fraction, contributions: int) -> Fraction:
    """Return ρ = c²/2σ² of measuring one marginal."""
    return Fraction(contributions**2) / (2 * variance)


@dataclass(frozen=True, eq=False)
class MarginalErrors(Expectation):
    """The errors to expect from noisy marginals, reconstructed by maximum likelihood.

    A table t of n_t cells with noise of variance σ²_t measures each residual τ inside it with precision n_τ/(n_t σ²_t)
    ([ReM] Prop. 3); precisions add up. The noise is discrete: where it is small, its exact variance V_t is less than
    the parameter σ²_t. The combination has the variance Σ_t (n_τ/n_t) V_t/σ⁴_t divided by the square of its precision.

    Attributes
    ----------
    workload, budget, contributions, layout
        As in `Expectation`.
    variances
        σ²_t of each table of the workload, in its order.
    """

    workload: Workload
    budget: Budget
    contributions: int
    layout: Layout
    variances: tuple[Fraction, ...]

    @cached_property
    def cell_variances(self) -> Floats:
        """The variance of a cell of each table of the closure under maximum likelihood; shape (tables,)."""
        layout, cells = self.layout, cell_counts(self.layout)
        precisions, squares = np.zeros(len(layout.sets)), np.zeros(len(layout.sets))
        for members, variance in zip(self.workload.positions, self.variances, strict=True):
            noise = float(variance)
            precision = 1 / (cells[layout.places[members]] * noise)
            subsets = chain.from_iterable(combinations(members, order) for order in range(len(members) + 1))
            inside = [layout.places[subset] for subset in subsets]
            precisions[inside] += cells[inside] * precision
            squares[inside] += cells[inside] * precision * float(exact_variance(noise)) / noise
        return cell_variances(layout, squares / precisions**2)

    def _spent(self) -> Floats:
        order = [len(members) for members in self.workload.positions]
        return np.bincount(order, [1 / float(variance) for variance in self.variances]).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class GaussianMarginals(Mechanism):
    """Measure the tables of a workload, each cell with independent noise.

    Parameters
    ----------
    variances
        The variance of the noise in each cell, by the names of a table, in place of workload and budget.
    domain
        With ``variances``: the declared domain; a `CodedTable` has its own.
    delta
        With ``variances``: where ε is stated.
    """

    name = "marginals"
    title = "Gaussian marginals"
    summary = "every table of the workload by itself, each cell with the same noise"

    variances: Mapping[tuple[str, ...], Number] | None = None
    domain: Domain | None = None
    delta: Number = DEFAULT_DELTA

    def predict(self, workload: Workload, budget: Budget, *, contributions: int) -> MarginalErrors:
        """Return the standard error of every table."""
        asked, spent = checked_request(workload, budget)
        most = checked_contributions(contributions)
        variances = tuple(variance for _, variance in divide_budget(asked, spent, most))
        return MarginalErrors(asked, spent, most, Layout.of(asked.domain.shape, asked.positions), variances)

    def description(self) -> str:
        """Return the sentence for reports."""
        chosen = "a share of the budget by its weight" if self.variances is None else "a variance that was given for it"
        return (
            "Every table was measured by itself, with independent discrete Gaussian noise in each cell; each table got "
            f"{chosen}."
        )

    def measure(
        self,
        source: object,
        workload: Workload | None = None,
        budget: Budget | None = None,
        *,
        contributions: int | None,
        run: Run = Run(),  # noqa: B008 — frozen
    ) -> Measurements:
        """Measure marginals, and charge what they cost; as `gaussian_marginals`."""
        rows = checked_contributions(contributions)
        declared, asked = self._asked(source, workload, budget, rows)
        table_source = open_source(source, declared, contributions=rows, privacy_id=run.privacy_id)
        drawing = checked_sampler(run.sampler, [variance for _, variance in asked])
        costs = [marginal_cost(variance, rows) for _, variance in asked]
        if budget is None:
            budget = Budget.zcdp(rho=_rounded_up(sum(costs, Fraction(0))), delta=self.delta)
        layout = Layout.of(declared.shape, [declared.positions(names) for names, _ in asked])
        purpose = f"Gaussian marginals: {len(asked):,} tables"
        steps = [(f"table {' × '.join(names) or 'total'}", cost) for (names, _), cost in zip(asked, costs, strict=True)]
        with spending(
            table_source,
            Workload(declared, [names for names, _ in asked]),
            layout,
            budget,
            run=run,
            purpose=purpose,
            arrays=_ARRAYS,
        ) as spent:
            noisy = []
            for names, variance in asked:
                place = layout.places[declared.positions(names)]
                noisy.append((names, _drawn(spent.counts, layout, place, variance, drawing), float(variance)))
            record = spent.record(self, steps, rows, drawing)
            return spent.end(Measurements.from_marginals(declared, noisy, discrete=True).with_provenance(record))

    def _asked(
        self, source: object, workload: Workload | None, budget: Budget | None, contributions: int
    ) -> tuple[Domain, _Asked]:
        """Return the domain and the tables, names in domain order, with their variances."""
        if self.variances is None:
            if self.domain is not None:
                raise PlanError("a workload has its own domain", remedy="leave out domain")
            asked, spent = checked_request(workload, budget)
            return asked.domain, divide_budget(asked, spent, contributions)
        if workload is not None or budget is not None:
            raise PlanError(
                "variances are given: they say what to measure and what it costs",
                remedy="leave out the workload and the budget, or leave out variances",
            )
        declared = _domain(source, self.domain)
        return declared, _given(declared, self.variances)


def _drawn(counts: Integers, layout: Layout, place: int, variance: Fraction, sampler: Sampler) -> Integers:
    """Return one table of the exact counts of a closure with noise."""
    start, end = layout.index.offset[place], layout.index.offset[place + 1]
    return measure_marginal(counts[start:end].reshape(layout.shape(place)), variance, sampler)


def divide_budget(workload: Workload, budget: Budget, contributions: int) -> _Asked:
    """Return the tables of a workload with the variances that solve (1); what they cost is the budget, exactly.

    Parameters
    ----------
    workload
        The tables, with their weights.
    budget
        What to spend.
    contributions
        The most rows that one person has.
    """
    largest = float(workload.weights.max())
    roots = [Fraction(math.sqrt(weight / largest)) for weight in workload.weights.tolist()]
    scale = contributions**2 * sum(roots, Fraction(0)) / (2 * budget.rho)
    return [(names, scale / root) for names, root in zip(workload, roots, strict=True)]


def gaussian_marginals(
    source: object,
    workload: Workload | None = None,
    budget: Budget | None = None,
    *,
    contributions: int,
    privacy_id: str | None = None,
    ledger: Ledger | None = None,
    sampler: str | Sampler = "margrave",
    keep: Keep | None = None,
    defer_signals: bool = False,
    variances: Mapping[tuple[str, ...], Number] | None = None,
    domain: Domain | None = None,
    delta: Number = DEFAULT_DELTA,
) -> Measurements:
    """Measure tables with independent noise in each cell, and charge what they cost.

    The guarantee: ``budget.rho``-zCDP for one person more or less with at most ``contributions`` rows.

    Parameters
    ----------
    source
        The private table: a `Data` or what it is made from (a path, a frame, a relation, a URL …), or a `CodedTable`.
    workload
        The tables. A table with four times the weight of another gets half its variance.
    budget
        What to spend; all of it is spent.
    contributions
        The most rows that one person has.
    privacy_id, ledger, sampler, keep, defer_signals
        As for `residual_planner`.
    variances
        The variance of the noise in each cell, by the names of a table, in place of workload and budget; a float
        counts as exactly what it is. What they cost is charged.
    domain
        With ``variances``: the declared domain; a `CodedTable` has its own.
    delta
        With ``variances``: where ε is stated in the provenance.
    """
    run = Run(privacy_id=privacy_id, ledger=ledger, sampler=sampler, keep=keep, defer_signals=defer_signals)
    chosen = GaussianMarginals(variances=variances, domain=domain, delta=delta)
    return chosen.measure(source, workload, budget, contributions=contributions, run=run)


def _domain(source: object, domain: Domain | None) -> Domain:
    """Return the declared domain: the one given, or that of a table which has one."""
    if domain is not None and not isinstance(domain, Domain):
        raise DomainError(expected("a Domain", domain), remedy="read one, as in Domain.read(path)")
    if domain is None and not is_source(source):
        raise DataError("the table has no declared domain", remedy="give one, as in domain=Domain.read(path)")
    own: Domain = domain if domain is not None else source.domain  # type: ignore[attr-defined]
    return own


def _rounded_up(rho: Fraction) -> Fraction:
    """Return ρ, raised by less than 2⁻²⁰⁰ of itself where it is a fraction longer than that.

    The variances of many tables as floats have a common denominator of thousands of digits, which no ledger keeps.
    """
    places = _DIGITS + max(0, rho.denominator.bit_length() - rho.numerator.bit_length())
    return rho if rho.denominator.bit_length() <= _DIGITS else Fraction(math.ceil(rho * 2**places), 2**places)


def _given(domain: Domain, variances: Mapping[tuple[str, ...], Number]) -> _Asked:
    """Return the tables, names in domain order, with their variances as fractions."""
    if not isinstance(variances, Mapping) or not variances:
        raise PlanError("there is no table to measure", remedy="name at least one, as in {('age', 'sex'): 100}")
    asked = [(_names(domain, names), exact_number("a variance", value)) for names, value in variances.items()]
    for names, variance in asked:
        if variance <= 0:
            raise PlanError(
                f"the variance of {' × '.join(names) or 'the total'} is {variance}", remedy="give a positive number"
            )
    return asked


def _names(domain: Domain, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a table in domain order; refuse one that names an attribute twice."""
    positions = domain.positions(names)
    given = tuple(names)
    if len(positions) != len(given):
        raise PlanError(f"the table {' × '.join(given)} names an attribute twice", remedy="name each once")
    return domain.names(positions)
