"""What is known about a release, said once: whom it protects, what its noise is, what an interval covers.

The report, README.md, privacy.json, the names of columns, the registry entry and the command line take their words from
here, so that they cannot contradict each other.

Nothing is said that the release does not know: without a record of its noise there is no statement about privacy, only
a warning. Where rows were left out before anything was counted, noise is not all that lies between a release and the
table, and an interval covers the count of the rows that were kept: `covered` says which. Numbers are rounded so that
what is promised never looks better than it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, TypedDict

from margrave.privacy.budget import shown_fraction

if TYPE_CHECKING:
    from margrave.domain.domain import Domain
    from margrave.measurements.provenance import Provenance

NO_INTERVALS = (
    "There are no intervals: which tables were measured depended on earlier noise, and an interval that ignores this "
    "would be wrong."
)
# How the limit on a person's rows is known; other words of a record are shown as they are.
_LIMITS = {"declared": "declared by the publisher, not checked", "enforced": "enforced before counting"}
_ORDERS = ("total", "1 attribute")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Column:
    """A column of numbers in the files of tables.

    Attributes
    ----------
    name
        What it holds, in a few words.
    details
        What else a reader must know; may be empty.
    """

    name: str
    details: str = ""


COLUMNS = {
    "count": Column("count by the method of the release"),
    "estimate": Column(
        "unbiased estimate", "; may be negative; empty where the measurements do not determine the table"
    ),
    "std_error": Column("standard error of the estimate", "; empty where it is not known"),
    "ci_low": Column("lower end of the 95 % interval of the estimate", ", rounded inwards and not below 0"),
    "ci_high": Column("upper end of the 95 % interval of the estimate", ", rounded inwards and not below 0"),
}
# Of the columns that are there where errors of the counts were learned.
COUNT_COLUMNS = {
    "count_error": Column("expected error of the count", ": the root of its mean square"),
    "count_low": Column("lower end of the 95 % interval of the count", ", a whole number and not below 0"),
    "count_high": Column("upper end of the 95 % interval of the count", ", a whole number"),
    "reliability": Column(
        "reliability of the count", ": reliable, use with care, or too uncertain to quote, by its expected error"
    ),
}


@dataclass(frozen=True)
class Caution:
    """Why a release must not be treated as private.

    Attributes
    ----------
    word
        In two words.
    reason
        In one sentence.
    sentences
        In full, with what to do.
    """

    word: str
    reason: str
    sentences: tuple[str, ...]


class Imprint(TypedDict, total=False):
    """Who publishes a release: texts for the head of its report, each of which may be left out or None."""

    publisher: str | None
    licence: str | None
    contact: str | None
    date: str | None


NOT_PRIVATE = Caution(
    word="Not private",
    reason="The noise came from a seed, or from a sampler that margrave does not know. Nothing is promised.",
    sentences=(
        "The noise in these tables came from a seed, or from a sampler that margrave does not know. Whoever knows or "
        "guesses the seed can remove the noise and read the exact counts, so nothing is promised.",
        "Such tables are for experiments with public or made-up data. If real people are in the data, do not publish "
        "these tables or anything made with them.",
    ),
)
UNKNOWN = Caution(
    word="Origin unknown",
    reason="Nothing is known about how the noise was drawn, so nothing is promised about privacy.",
    sentences=(
        "The noisy numbers behind these tables came from elsewhere, without a record of how their noise was drawn. "
        "Margrave does not know whether they protect anybody, and states no guarantee.",
        "Do not publish these tables as a private release unless you know, from whoever supplied the numbers, which "
        "guarantee they carry.",
    ),
)


def caution(record: Provenance | None) -> Caution | None:
    """Return why a release with this record must not be treated as private; None if it may be."""
    if record is None:
        return UNKNOWN
    return None if record.private else NOT_PRIVATE


def statement(record: Provenance | None) -> str:
    """Return how private a release is, in sentences."""
    if record is None or not record.private:
        found = UNKNOWN if record is None else NOT_PRIVATE
        return " ".join((f"{found.word.upper()}.", *found.sentences))
    said = [
        f"Made by the mechanism {record.mechanism!r}. The noise is {noise(record)}.",
        f"The release is differentially private for one person more or less, {person(record)}: {stated(record)}, from "
        f"ρ = {stated_rho(record)} of zero-concentrated differential privacy (all rounded up).",
        "Everything after the noise is post-processing and costs no privacy.",
        cut_short(record),
        query_statement(record),
    ]
    return " ".join(sentence for sentence in said if sentence)


def stated(record: Provenance, digits: int = 6) -> str:
    """Return the guarantee as ``ε = 1 at δ = 10⁻⁹``, both rounded up.

    Parameters
    ----------
    record
        How the measurements were made.
    digits
        How many digits of ε to show.
    """
    return f"ε = {rounded_up(record.epsilon, digits)} at δ = {power_of_ten(record.delta)}"


def stated_rho(record: Provenance) -> str:
    """Return ρ of zero-concentrated differential privacy to six digits, rounded up."""
    return rounded_up(float_above(record.rho), 6)


def person(record: Provenance) -> str:
    """Return which persons are protected, as words that follow "one person"."""
    rows, table = format_rows(record), counted_table(record)
    if is_enforced(record):
        return f"with at most {rows} counted in {table} ({limit_known(record)})"
    return f"with at most {rows} in {table} ({limit_known(record)})"


def unit(record: Provenance) -> str:
    """Return what one unit of privacy is, in short."""
    return f"one person with at most {format_rows(record)}{of_result(record)}"


def row_limit(record: Provenance) -> str:
    """Return how many rows a person has, or how many were counted, as the middle of a sentence."""
    rows, table, known = format_rows(record), counted_table(record), limit_known(record)
    if is_enforced(record):
        return f"margrave counted at most {rows} of each person in {table} ({known}) and left out the others"
    return f"each person has at most {rows} in {table} ({known})"


def limit_known(record: Provenance) -> str:
    """Return how the limit on a person's rows is known."""
    return _LIMITS.get(record.contributions_bounded, record.contributions_bounded)


def query_known(record: Provenance) -> str:
    """Return the query whose result was counted, or that one was given; nothing where there was none."""
    if not record.queried:
        return ""
    return "given; its text is not published" if record.query is None else record.query


def cut_short(record: Provenance) -> str:
    """Return the sentence for a run that ended early; nothing for one that did not."""
    if record.cut_short is None:
        return ""
    return f"The run was cut short {record.cut_short}; its whole budget is charged all the same."


def noise(record: Provenance) -> str:
    """Return who drew the noise, and from what, as the end of a sentence."""
    if not record.private:
        return f"drawn by {record.sampler}, which is not suitable for private data"
    return (
        f"discrete Gaussian, drawn by {record.sampler}: exactly, on whole numbers, from randomness that cannot be "
        "reproduced"
    )


def is_adaptive(record: Provenance | None) -> bool:
    """Tell whether what was measured depended on earlier noise, so that there are no standard errors."""
    return record is not None and record.adaptive


def coverage(domain: Domain, record: Provenance | None) -> str:
    """Return what an interval covers and how often, as words that follow "the 95 % interval".

    Parameters
    ----------
    domain
        The codebook, which may drop rows.
    record
        How the measurements were made; None for numbers from elsewhere.
    """
    return f"covers {covered(domain, record)} in 95 of 100 such releases"


def estimates(record: Provenance | None) -> str:
    """Return what the maximum-likelihood tables are called: unbiased unless choices depended on the noise."""
    return "estimates" if is_adaptive(record) else "unbiased estimates"


def noun(record: Provenance | None) -> str:
    """Return what the tables count: people where each has one row, and records otherwise."""
    return "people" if record is not None and record.contributions == 1 else "records"


def format_rows(provenance: Provenance) -> str:
    """Return the most rows of one person in words."""
    return "one row" if provenance.contributions == 1 else f"{provenance.contributions:,} rows"


def is_enforced(provenance: Provenance | None) -> bool:
    """Tell whether rows of a person beyond the bound were left out, by an id."""
    return provenance is not None and provenance.contributions_bounded == "enforced"


def counted_table(provenance: Provenance) -> str:
    """Return what the counted rows are rows of: the table, or the result of the query that was given."""
    return "the query's result" if provenance.queried else "the table"


def of_result(provenance: Provenance) -> str:
    """Return what follows after "rows" where these are rows of a query's result; nothing where there was no query."""
    return f" of {counted_table(provenance)}" if provenance.queried else ""


def query_statement(provenance: Provenance) -> str:
    """Return that a query was given, and what the guarantee is about then; nothing where there was none."""
    if not provenance.queried:
        return ""
    text = "is not published" if provenance.query is None else "is part of this record"
    return (
        f"The table is the result of a query, whose text {text}. Rows of a person are rows of that result: the "
        "guarantee is about results that differ by them."
    )


def kept_rows(domain: Domain, provenance: Provenance | None) -> str:
    """Return which rows were counted, in sentences; nothing where all of them were.

    Parameters
    ----------
    domain
        The codebook, which may drop rows.
    provenance
        How the measurements were made; None for numbers from elsewhere.
    """
    said = []
    if provenance is not None and is_enforced(provenance):
        said.append(f"at most {format_rows(provenance)}{of_result(provenance)} of each person")
    if any(attribute.outside == "drop" for attribute in domain):
        said.append("no row with a value that the domain drops")
    if not said:
        return ""
    return f"Counts and intervals are of the rows that were kept: {', and '.join(said)}. The table may hold more."


def covered(domain: Domain, provenance: Provenance | None) -> str:
    """Return what an interval covers, in words: "the true count", or that of the rows that were kept."""
    return "the true count of the rows that were kept" if kept_rows(domain, provenance) else "the true count"


def order_name(order: int) -> str:
    """Return what tables of this number of attributes are called."""
    return _ORDERS[order] if order < len(_ORDERS) else f"{order} attributes"


def counted(count: int, noun: str) -> str:
    """Return ``1 table`` or ``1,234 tables``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(parts: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def whole(value: float) -> str:
    """Return a number as a whole one with separators; a true minus sign, and no negative zero."""
    rounded = round(value)
    return f"−{-rounded:,}" if rounded < 0 else f"{rounded:,}"


def short(value: float) -> str:
    """Return a positive number to three digits or all its whole ones: 0.0123, 12.3, 1,234."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{abs(value):,.{digits}f}"
    plain = text.rstrip("0").rstrip(".") if "." in text else text
    return f"−{plain}" if value < 0 else plain


def percent(share: float) -> str:
    """Return a share in per cent, with a tenth; the smallest as a bound."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %"


def rounded_up(value: float, digits: int = 4) -> str:
    """Return a number rounded up to a number of digits: what is promised must not look better than it is."""
    # The shortest decimal that reads back as the float: 0.1 is 0.1, though the float is a trifle more.
    number = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{number.normalize():,f}" if 1e-4 <= value < 1e15 else f"{float(number):.{digits}g}"


def float_above(value: Fraction) -> float:
    """Return the smallest float that is no less than a fraction: no promise is rounded in its own favour."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def power_of_ten(value: float) -> str:
    """Return a small number to six digits, rounded up, as people write it: 10⁻⁹, 2.5 × 10⁻⁷, 0.001."""
    rounded = float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(repr(float(value))))
    if rounded >= 1e-4 or rounded <= 0:
        return f"{rounded:g}"
    digits, exponent = f"{rounded:.6e}".split("e")
    leading = digits.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(_RAISED)
    return power if leading == "1" else f"{leading} × {power}"


def power_of_ten_above(value: float) -> str:
    """Return a positive number to one digit, rounded up, as people write it: 9 × 10⁻⁵."""
    return power_of_ten(float(Context(prec=1, rounding=ROUND_CEILING).create_decimal(repr(float(value)))))


def equal_or_near(symbol: str, value: Fraction) -> str:
    """Return ``ρ = 0.015``, or ``ρ ≈ 0.0149731`` where that is not all of the number."""
    text = shown_fraction(value)
    return f"{symbol} ≈ {text[1:]}" if text.startswith("≈") else f"{symbol} = {text}"


def with_fraction(symbol: str, value: Fraction) -> str:
    """Return ``ρ = 0.125``, or ``ρ ≈ 0.333333 (exactly 1/3)`` where the decimals are not all of the number."""
    text = equal_or_near(symbol, value)
    return text if Fraction(text.split()[-1]) == value else f"{text} (exactly {value})"


def one_in(probability: float) -> str:
    """Return a small probability as "1 in 1,000,000", never smaller than it is."""
    if not 0 < probability < 1:
        return str(probability)
    # The shortest decimal that reads back as the float: 1e-9 is one in 1,000,000,000, not in 999,999,999.
    inverse = Context(prec=40).divide(Decimal(1), Decimal(repr(probability)))
    if inverse >= Decimal(10) ** 15:
        return f"1 in 10^{inverse.adjusted()}"
    return f"1 in {int(inverse.to_integral_value(rounding=ROUND_FLOOR)):,}"


def odds_factor(epsilon: float) -> str:
    """Return e^ε, rounded up to three digits; beyond a million as the next power of ten."""
    if epsilon > math.log(1e6):
        return "10" + str(math.ceil(epsilon / math.log(10))).translate(_RAISED)
    return rounded_up(math.exp(epsilon), 3)


def surest(prior: float, epsilon: float) -> str:
    """Return how certain somebody can become that a person is in the table, in per cent, rounded up.

    With odds multiplied by at most e^ε, a probability p becomes at most  e^ε p / (1 − p + e^ε p).
    """
    # In this form nothing overflows, whatever ε is.
    posterior = prior / (prior + (1 - prior) * math.exp(-epsilon))
    tenths = math.ceil(1000 * posterior - 1e-9) / 10
    return "nearly 100 %" if tenths >= 100 else f"{tenths:g} %"
