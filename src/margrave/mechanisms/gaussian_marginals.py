"""Gaussian marginals: measure given tables, each cell with independent noise of a given variance.

One person with at most c rows moves a table by at most c in length, so a table with variance σ² costs ρ = c²/2σ²
([ReM] Prop. 5); tables compose by adding up. Reconstruction from them is EMP.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

from margrave.algebra.layout import Layout
from margrave.boundary import measure_marginal
from margrave.data.source import is_source, open_source
from margrave.domain import Domain
from margrave.errors import DataError, PlanError
from margrave.measurements import Measurements
from margrave.mechanisms.spending import Keep, checked_sampler, provenance, spending
from margrave.planning.coefficients import checked_contributions
from margrave.privacy.budget import DEFAULT_DELTA, Budget, Number, exact_number
from margrave.privacy.ledger import Ledger
from margrave.privacy.noise import Sampler
from margrave.workload import Workload

# Longer fractions of ρ are rounded up to so many binary digits.
_DIGITS = 201


def marginal_cost(variance: Fraction, contributions: int) -> Fraction:
    """Return ρ = c²/2σ² of measuring one marginal."""
    return Fraction(contributions**2) / (2 * variance)


def gaussian_marginals(
    source: object,
    variances: Mapping[tuple[str, ...], Number],
    *,
    contributions: int,
    domain: Domain | None = None,
    privacy_id: str | None = None,
    delta: Number = DEFAULT_DELTA,
    ledger: Ledger | None = None,
    sampler: str | Sampler = "margrave",
    keep: Keep | None = None,
    defer_signals: bool = False,
) -> Measurements:
    """Measure marginals with given variances, and charge what they cost.

    Parameters
    ----------
    source
        The private table: a `Data` or what it is made from (a path, a frame, a relation, a URL …), or a `CodedTable`.
    variances
        The variance of the noise in each cell, by the names of the table; a float counts as exactly what it is.
    contributions
        The most rows that one person has.
    domain
        The declared domain; a `CodedTable` has its own.
    privacy_id
        The column that tells whose row it is: at most ``contributions`` rows of each person are kept, drawn at random.
        Without it the caller's word is taken that nobody has more.
    delta
        Where ε is stated in the provenance.
    ledger
        The spending record of the table; refuses, before anything is drawn, what would pass its cap.
    sampler
        "margrave", "opendp", or a sampler of your own, which is recorded as foreign and not private.
    keep, defer_signals
        As for `measure`: what saves the measurements, and whether signals wait for it.
    """
    rows = checked_contributions(contributions)
    declared = _domain(source, domain)
    asked = _asked(declared, variances)
    table_source = open_source(source, declared, contributions=rows, privacy_id=privacy_id)
    drawing = checked_sampler(sampler, [variance for _, variance in asked])
    costs = [marginal_cost(variance, rows) for _, variance in asked]
    budget = Budget.zcdp(rho=_rounded_up(sum(costs, Fraction(0))), delta=delta)
    layout = Layout.of(declared.shape, [declared.positions(names) for names, _ in asked])
    purpose = f"Gaussian marginals: {len(asked):,} tables"
    steps = [(f"table {' × '.join(names) or 'total'}", cost) for (names, _), cost in zip(asked, costs, strict=True)]
    workload = Workload(declared, [names for names, _ in asked])
    with spending(
        table_source,
        workload,
        layout,
        budget,
        ledger=ledger,
        purpose=purpose,
        keep=keep,
        defer_signals=defer_signals,
    ) as run:
        noisy = []
        for names, variance in asked:
            place = layout.places[declared.positions(names)]
            exact = run.counts[layout.index.offset[place] : layout.index.offset[place + 1]].reshape(layout.shape(place))
            noisy.append((names, measure_marginal(exact, variance, drawing), float(variance)))
        record = provenance("Gaussian marginals", steps, budget, rows, drawing, counted=table_source, entry=run.entry)
        return run.end(Measurements.from_marginals(declared, noisy).with_provenance(record))


def _domain(source: object, domain: Domain | None) -> Domain:
    """Return the declared domain: the one given, or that of a table which has one."""
    if domain is not None and not isinstance(domain, Domain):
        raise DataError(f"domain is a {type(domain).__name__}; give a Domain, as in Domain.read(path)")
    if domain is None and not is_source(source):
        raise DataError("the table says nothing about its domain; declare it, as in domain=Domain.read(path)")
    own: Domain = domain if domain is not None else source.domain  # type: ignore[attr-defined]
    return own


def _rounded_up(rho: Fraction) -> Fraction:
    """Return ρ, raised by less than 2⁻²⁰⁰ of itself where it is a fraction longer than that.

    The variances of many tables as floats have a common denominator of thousands of digits, which no ledger keeps.
    """
    places = _DIGITS + max(0, rho.denominator.bit_length() - rho.numerator.bit_length())
    return rho if rho.denominator.bit_length() <= _DIGITS else Fraction(math.ceil(rho * 2**places), 2**places)


def _asked(domain: Domain, variances: Mapping[tuple[str, ...], Number]) -> list[tuple[tuple[str, ...], Fraction]]:
    """Return the tables, names in domain order, with their variances as fractions."""
    if not isinstance(variances, Mapping) or not variances:
        raise PlanError("there is no table to measure; name at least one, as in {('age', 'sex'): 100}")
    asked = [(_names(domain, names), exact_number("a variance", value)) for names, value in variances.items()]
    for names, variance in asked:
        if variance <= 0:
            raise PlanError(f"the variance of {' × '.join(names) or 'the total'} is {variance}; give a positive number")
    return asked


def _names(domain: Domain, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a table in domain order."""
    return domain.names(domain.positions(names))
