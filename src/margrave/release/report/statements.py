"""What a report says, in sentences: what the tables are, how private and how exact, how to use them, and their record.

Written for readers who know neither statistics nor this project; the record at the end is for specialists, with words
and decimals first and exact numbers after them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from margrave.release import facts
from margrave.release.facts import (
    counted,
    covered,
    equal_or_near,
    is_enforced,
    kept_rows,
    listed,
    odds_factor,
    of_result,
    one_in,
    order_name,
    percent,
    power_of_ten,
    power_of_ten_above,
    rounded_up,
    short,
    surest,
    whole,
    with_fraction,
)

if TYPE_CHECKING:
    from margrave.measurements.provenance import Provenance
    from margrave.release.release import Release
    from margrave.release.report.findings import Findings, Headline
    from margrave.release.table import Table

_ONLY_ERROR = "To the unbiased estimates, noise is the only error that the release adds"
# Shares of the budget below it come from rounding the noise up, and need no words.
_REMAINDER = 0.0005
# What somebody may believe before they see the tables, and the one of these that the first screen speaks of.
_PRIORS = (0.01, 0.1, 0.5)
_FIRST_PRIOR = 0.1
_NO_OWN_INTERVAL = "The intervals on this page are those of the unbiased estimate, not its own."
# Beyond it somebody may become all but certain, and the page says so.
_WEAK = 7.0

Rows = list[tuple[str, str]]


def lede(release: Release) -> str:
    """Return the first sentence of the page."""
    tables = counted(len(release.workload), "table")
    agree = ", all in agreement with each other" if release.method.agree and len(release.workload) > 1 else ""
    if release.provenance is None:
        return f"{tables} of counts{agree}, made from noisy numbers of unknown origin."
    if not release.provenance.private:
        return f"{tables} of counts{agree}, with the noise of an experiment. This page says how large it is."
    protects = "Random noise in every number protects each person in the data; this page says how well."
    return f"{tables} of counts{agree}. {protects}"


def finding(found: Headline, noun: str) -> dict[str, str]:
    """Return the sentence that the page begins with, in parts: names and labels are shown as such."""
    return {
        "group": found.group,
        "group_label": found.group_label,
        "name": found.name,
        "label": found.label,
        "share": _whole_percent(found.share),
        "overall": _whole_percent(found.overall),
        "support": f"{whole(found.count)} {noun} by the published counts, 95 % interval {whole(found.low)} to "
        f"{whole(found.high)}",
    }


def _whole_percent(share: float) -> str:
    """Return a share in whole per cent; the smallest and the largest as bounds."""
    rounded = round(100 * share)
    if rounded == 0 and share > 0:
        return "less than 1 %"
    return "more than 99 %" if rounded == 100 and share < 1 else f"{rounded} %"


def relative(value: float) -> str:
    """Return an error in proportion to a count, in per cent."""
    if value > 10:
        return "> 1,000 %"
    if value < 0.01:
        return "< 1 %" if value > 0 else "0 %"
    return f"{100 * value:.0f} %"


def privacy_words(record: Provenance | None) -> list[str]:
    """Return how private the release is, for the first screen: no formula; nothing where nothing is promised."""
    if record is None or not record.private:
        return []
    sure = surest(_FIRST_PRIOR, record.epsilon).replace(" %", "\u00a0%")
    weak = " That promises little in the worst case." if record.epsilon > _WEAK else ""
    return [
        "Random noise was added before anything was published. It hides each person: the tables would look almost the "
        "same without any one of them.",
        f"Somebody who holds it {100 * _FIRST_PRIOR:g} % likely that a given person is in the data can become "
        f"{sure} sure of it by these tables, not more, whatever else they know (except with a probability of "
        f"{one_in(record.delta)}).{weak}",
    ]


def marks(release: Release) -> str:
    """Return what the marks on counts mean; nothing where errors of counts were not learned."""
    if release.errors is None:
        return ""
    bounds = release.errors.bounds
    reliable, care = (f"{100 * bound:g} %" for bound in (bounds.reliable, bounds.care))
    return (
        f"No mark: reliable, with an expected error of at most {reliable} of the count. * use with care: up to {care}. "
        f"** too uncertain to quote: more than that. An error of at most {bounds.floor:g} is always reliable, and of "
        f"at most {3 * bounds.floor:g} never too uncertain."
    )


def reading(release: Release, table: Table) -> str:
    """Return how to read the numbers of a table."""
    product = release.method.words.count
    rounded = "" if _is_whole(release) else ", rounded to a whole number: rows and columns may miss their sum by a few"
    number = f"The number in a cell is the {product}{rounded}"
    if table.count_low is not None:
        return (
            f"{number}. Below it is its own 95 % interval, made to hold {_covered(release)} in 95 of 100 cells, and in "
            "more where most cells of a table are empty."
        )
    if table.ci_low is None:
        return f"{number}."
    coverage = facts.coverage(release.workload.domain, release.provenance)
    return f"{number}. Below it is the 95 % interval of the unbiased estimate, which {coverage}."


def _covered(release: Release) -> str:
    return covered(release.workload.domain, release.provenance)


def _is_whole(release: Release) -> bool:
    """Tell whether the published counts are whole numbers that add up."""
    return bool(getattr(release.method, "whole_numbers", False))


def reliability(release: Release, findings: Findings) -> list[str]:
    """Return how far the published counts can be relied on; nothing where their errors were not learned."""
    known = [one for one in findings.orders if one.reliability is not None and one.order]
    if not known:
        return []
    shares = [(one.order, one.reliability.reliable / one.reliability.cells) for one in known if one.reliability]
    parts = [f"{percent(share)} in tables of {order_name(order)}" for order, share in shares]
    return [
        "Every published count has an expected error and a 95 % interval of its own. They were learned from the "
        "measurements, by a method that was checked on tables whose true counts are known; it is not a proof for each "
        "cell. A dependence between attributes that stays below the noise is not seen: counts that it would change can "
        f"be further off. Of the cells {listed(parts)} are reliable: large counts mostly are, and small ones are not.",
        marks(release),
    ]


def what(release: Release) -> str:
    """Return which tables there are."""
    domain = release.workload.domain
    return (
        f"The release holds {tables_text(release)}, {counted(release.workload.cells, 'cell')} in all, "
        f"over {counted(len(domain), 'attribute')}. Every table inside one of these can be asked for as well."
    )


def tables_text(release: Release) -> str:
    """Return how many tables of how many attributes there are: ``4 tables: the total, 2 of 1 attribute and …``."""
    orders = Counter(len(names) for names in release.workload.sets)
    tables = counted(len(release.workload), "table")
    if len(orders) == 1 and 0 not in orders:
        return f"{tables} of {order_name(*orders)}"
    parts = [f"{count:,} of {order_name(order)}" if order else "the total" for order, count in sorted(orders.items())]
    return f"{tables}: {listed(parts)}"


def products(release: Release, findings: Findings) -> list[str]:
    """Return which two numbers stand in a cell, and what each is good for."""
    unbiased = _unbiased(release, findings)
    said = [unbiased]
    if not release.method.unbiased:
        own = "Its interval and its reliability are its own." if release.errors is not None else _NO_OWN_INTERVAL
        said = ["There are two numbers for each cell. " + unbiased, f"{release.method.words.report} {own}"]
    kept = kept_rows(release.workload.domain, release.provenance)
    return [*said, *([kept] if kept else []), *_missing(release, findings)]


def _unbiased(release: Release, findings: Findings) -> str:
    """Return what the unbiased estimate is."""
    negative = " It can fall below zero, because the noise can."
    if facts.is_adaptive(release.provenance):
        return "The estimate of a cell is what the measurements say if nothing else is asked of it." + negative
    symmetric = "The unbiased estimate of a cell is as often too high as too low"
    if all(one.margins is None for one in findings.orders):
        return symmetric + "." + negative
    coverage = facts.coverage(release.workload.domain, release.provenance)
    return f"{symmetric}, and its error is known exactly: its 95 % interval {coverage}.{negative}"


def _missing(release: Release, findings: Findings) -> list[str]:
    """Return what is said where error bars are missing."""
    said = []
    if facts.is_adaptive(release.provenance):
        said.append(facts.NO_INTERVALS)
    if findings.undetermined:
        tables = counted(len(release.workload), "table")
        said.append(
            f"Not determined by what was measured: {findings.undetermined:,} of {tables}. "
            "Part of each was filled in without knowledge; it has no unbiased estimate and no interval."
        )
    return said


def numbers(release: Release, findings: Findings) -> list[dict[str, str]]:
    """Return the few numbers at the top of the page."""
    record, word = release.provenance, facts.noun(release.provenance)
    told = [("Tables", f"{len(release.workload):,}", f"with {release.workload.cells:,} cells")]
    if findings.total_interval is not None:
        ends = f"{whole(findings.total_interval[0])} to {whole(findings.total_interval[1])}"
        told.append((f"{word.capitalize()} counted", whole(findings.total), ends))
    else:
        total = findings.total if findings.unbiased_total is None else findings.unbiased_total
        margin = "" if findings.total_margin is None else f"± {whole(findings.total_margin)}"
        told.append((f"{word.capitalize()} counted, estimated", whole(total), margin))
    if record is not None and not record.private:
        told.append(("Privacy", "none", "the noise was not private"))
    elif record is not None:
        stated = f"at δ = {power_of_ten(record.delta)}"
        told.append(("Privacy loss, at most", f"ε = {rounded_up(record.epsilon)}", stated))
    widest = next((one for one in reversed(findings.orders) if one.margins is not None and one.order), None)
    relied = next((one for one in findings.orders if one.reliability is not None and one.order == 2), None)
    if relied is not None and relied.reliability is not None:
        share = percent(relied.reliability.reliable / relied.reliability.cells)
        told.append((f"Reliable counts, tables of {order_name(relied.order)}", share, "of the cells"))
    elif widest is not None and widest.margins is not None:
        name = f"95 % margin of an {facts.estimates(record).removesuffix('s')}, {order_name(widest.order)}"
        told.append((name, f"± {short(widest.margins.median)}", word))
    return [{"name": name, "value": value, "unit": unit} for name, value, unit in told]


def exactness(release: Release, findings: Findings) -> str:
    """Return how large the errors are."""
    known = [one for one in findings.orders if one.margins is not None]
    if not known:
        return "The errors of these tables are not known, so no margins are given."
    last = known[-1]
    margin = "" if last.margins is None else short(last.margins.median)
    domain, record = release.workload.domain, release.provenance
    kept = kept_rows(domain, record)
    only = (
        "To the unbiased estimates for the rows that were kept, noise is the only error added" if kept else _ONLY_ERROR
    )
    return (
        f"{only}, and its size is known exactly. It does not depend on how large a count is: in "
        f"{_typical(last.order)}, 95 of 100 unbiased cells are within {margin} {facts.noun(release.provenance)} of "
        f"{covered(domain, record)}, whether that is 10 or 10,000. So large counts are precise relative to "
        f"their size, and small ones are not. {kept}".rstrip()
    )


def _typical(order: int) -> str:
    return "the total" if order == 0 else f"a typical table of {order_name(order)}"


def remainder(release: Release, findings: Findings) -> str:
    """Return what else the budget paid for: measuring again, and what is in no table; nothing if that is little."""
    said = []
    if findings.again >= _REMAINDER:
        said.append(
            f"{percent(findings.again)} of it measured again where the first values strayed from what was expected. "
            "The published counts use all measurements, the unbiased estimates only the first."
        )
    if findings.remainder is not None and findings.remainder >= _REMAINDER:
        chosen = facts.is_adaptive(release.provenance)
        why = "choosing which tables to measure" if chosen else "measurements that this release does not use"
        said.append(f"Another {percent(findings.remainder)} went into {why}.")
    return " ".join(said)


def below_zero(release: Release, findings: Findings) -> list[str]:
    """Return what non-negativity did to the tables."""
    known = [one for one in findings.orders if one.negative is not None]
    if not known:
        return ["The measurements determine none of these tables, so there are no unbiased estimates to compare with."]
    last = known[-1]
    if not any(one.negative or one.distance for one in known):
        return ["The noise can push small counts below zero. Here it did not, and nothing had to be changed."]
    said = [
        "The noise pushes counts down as often as up, and small ones below zero. Of the unbiased cells of "
        f"{'the total' if last.order == 0 else 'tables of ' + order_name(last.order)}, "
        f"{percent(last.negative or 0)} are below zero. No true count is; but simply setting them to zero would make "
        "sums too high."
    ]
    if release.method.unbiased:
        return [*said, "This release keeps them: its counts are the unbiased estimates themselves."]
    cause = "In the published counts no cell is below zero. That" if release.method.nonnegative else "The method"
    distance = f"{short(last.distance or 0)} {facts.noun(release.provenance)}"
    moved = f"{cause} moves a cell of these tables by {distance} on average"
    said.append(moved + (f"; the noise itself moves it by {short(last.noise)}." if last.noise is not None else "."))
    if findings.unbiased_total is not None:
        said.append(
            f"The total is {whole(findings.total)} in the published counts and {whole(findings.unbiased_total)} by the "
            "unbiased estimate."
        )
    return said


def carried(left_out: Sequence[int]) -> str:
    """Return which tables the page does not carry, and where they are."""
    missing = [f"{counted(count, 'table')} of {order_name(order)}" for order, count in enumerate(left_out, 1) if count]
    if not missing:
        return "This page carries every table of up to three attributes; the folder of the release holds all as files."
    return (
        f"To keep this page small, {' and '.join(missing)} were left out of it. The folder of the release holds them, "
        "with all others, as files."
    )


def citation(title: str, release: Release, publisher: str | None = None, date: str | None = None) -> str:
    """Return how to cite the release."""
    record = release.provenance
    version = "" if record is None else f", version {record.version}"
    by = " ".join(part for part in (publisher, f"({date})" if date else "") if part)
    named = (by.rstrip(".") + ". " if by else "") + title.rstrip(".") + ". "
    if record is None:
        return f"{named}Cross-tabulations from noisy numbers of unknown origin, reconstructed with margrave{version}."
    if not record.private:
        return f"{named}Experiment without private noise, made with margrave{version}. Not for publication."
    promise = f"ε = {rounded_up(record.epsilon)}, δ = {power_of_ten(record.delta)}, {equal_or_near('ρ', record.rho)}"
    return f"{named}Cross-tabulations under differential privacy ({promise}), made with margrave{version}."


def reuse(release: Release, licence: str | None = None) -> list[str]:
    """Return advice to those who use the numbers."""
    marked = "" if release.errors is None else " Do not quote counts marked **."
    said = [
        "When you quote a number, say that it comes from a release with noise, and give its interval if it has one."
        + marked,
        "For sums, averages and models use the unbiased estimates. The margins of single cells do not add up to the "
        "margin of their sum: take the table of just the attributes you need, which holds the sum with a margin of its "
        "own.",
    ]
    if release.method.nonnegative:
        counts = release.method.words.counts
        said.append(f"For maps, lists and displays, where a count below zero would be absurd, use the {counts}.")
    if release.method.nonnegative and release.method.agree and not _is_whole(release):
        said.append(
            "Whole numbers that agree in every sum can be made from this release at no privacy cost: margrave "
            "reconstruct with --whole-numbers, or release.integers() in Python."
        )
    own = "The licence is for the custodian of the data to state." if licence is None else f"Licence: {licence}."
    return [
        *said,
        "Nothing you do with these tables can weaken the guarantee, nor does using them again cost any privacy.",
        "The folder of the release holds every table, the noisy measurements, the codebook and a record of the "
        f"guarantee, in open formats. {own}",
    ]


def privacy(record: Provenance) -> dict[str, Any]:
    """Return what the page says about the guarantee."""
    joint = "; " if is_enforced(record) else ", as long as "
    return {
        "caveat": "" if record.private else "What follows would hold if the noise had been private. It was not.",
        "epsilon": rounded_up(record.epsilon),
        "factor": odds_factor(record.epsilon),
        "weak": record.epsilon > _WEAK,
        "delta": power_of_ten(record.delta),
        "one_in": one_in(record.delta),
        "rho": equal_or_near("ρ", record.rho),
        "beliefs": [(f"{100 * prior:g} %", surest(prior, record.epsilon)) for prior in _PRIORS],
        "neighbours": f"the difference between two tables, one made from the other by this: {record.neighbours}",
        "contributions": f"all of their rows{joint}{facts.row_limit(record)}.",
        "noise": f"{facts.noise(record)}.",
    }


def record_rows(release: Release) -> Rows:
    """Return the record as names and texts."""
    cells = counted(release.workload.cells, "cell")
    rows = [
        ("Tables", f"{tables_text(release)}; {cells} in all"),
        ("Counts", f"{release.method.words.counts} ({release.method.name})"),
        ("Options of the method", release.method.options_text()),
    ]
    if release.provenance is not None:
        rows += _measured(release.provenance)
    if release.solution is not None:
        rows.append(("Solver", release.solution.status.value))
        rows.append(("Certificate", release.solution.nearness(power_of_ten_above(release.solution.gap))))
    return rows


def _measured(record: Provenance) -> Rows:
    """Return how the noise was drawn, and what was promised."""
    return [
        ("Mechanism", record.mechanism),
        *([] if record.description is None else [("What was measured", record.description)]),
        ("Guarantee", f"zero-concentrated differential privacy, {with_fraction('ρ', record.rho)}"),
        ("Stated as", facts.stated(record)),
        ("Neighbours", record.neighbours),
        ("Rows of a person", f"at most {record.contributions:,}{of_result(record)}, {facts.limit_known(record)}"),
        *([("Query", facts.query_known(record))] if record.queried else []),
        ("Sampler", record.sampler),
        ("Private noise", "yes" if record.private else "NO"),
        ("Measured by", f"margrave {record.version}"),
        *_charged(record),
    ]


def _charged(record: Provenance) -> Rows:
    """Return where the charge is recorded, and whether all that it paid for was measured."""
    rows = []
    if record.ledger_entry is not None:
        rows.append(("Ledger", f"entry {record.ledger_entry:,}, hash {record.ledger_hash}"))
    if record.cut_short is not None:
        rows.append(("Cut short", f"{record.cut_short}; the whole budget is charged"))
    return rows
