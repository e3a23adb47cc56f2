"""What is known about a release, said once: whom it protects, what its noise is, what an interval covers.

The report, README.md, privacy.json, the names of columns, the registry entry and the command line take their words from
here, so that they cannot contradict each other. Which rows were counted is said in ``rows``.

Nothing is said that the release does not know: without a record of its noise there is no statement about privacy, only
a warning.
"""

from __future__ import annotations

from dataclasses import dataclass

from margrave.domain import Domain
from margrave.measurements import Provenance
from margrave.release.formatting import float_above, power_of_ten, rounded_up
from margrave.release.rows import covered, is_enforced, of_result, query_spoken, rows_spoken, table_spoken

NO_INTERVALS = (
    "There are no intervals: which tables were measured depended on earlier noise, and an interval that ignores this "
    "would be wrong."
)
# How the limit on a person's rows is known; other words of a record are shown as they are.
_LIMITS = {"declared": "declared by the publisher, not checked", "enforced": "enforced before counting"}


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


@dataclass(frozen=True)
class Caution:
    """Why a release must not be taken for a private one.

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
    """Return why a release with this record must not be taken for a private one; None if nothing speaks against it."""
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
        query_spoken(record),
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
    rows, table = rows_spoken(record), table_spoken(record)
    if is_enforced(record):
        return f"with at most {rows} counted in {table} ({limit_known(record)})"
    return f"with at most {rows} in {table} ({limit_known(record)})"


def unit(record: Provenance) -> str:
    """Return what one unit of privacy is, in short."""
    return f"one person with at most {rows_spoken(record)}{of_result(record)}"


def row_limit(record: Provenance) -> str:
    """Return how many rows a person has, or how many were counted, as the middle of a sentence."""
    rows, table, known = rows_spoken(record), table_spoken(record), limit_known(record)
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
        return f"drawn by {record.sampler}, which is not fit for private data"
    return (
        f"discrete Gaussian, drawn by {record.sampler}: exactly, on whole numbers, from randomness that nobody can "
        "repeat"
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
