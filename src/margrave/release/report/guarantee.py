"""What a report says about privacy: what was promised to whom, or why nothing can be promised.

Written for readers who know neither statistics nor this project. Nothing is said that the release does not know: a
release without a record of its noise gets no statement about privacy, only a warning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from margrave.measurements import Provenance
from margrave.release.formatting import equal_or_near, odds_factor, one_in, power_of_ten, rounded_up, surest
from margrave.release.rows import is_enforced, of_result, rows_spoken, table_spoken

# What somebody may believe before they see the tables.
_PRIORS = (0.01, 0.1, 0.5)
# Beyond it somebody may become all but certain, and the page says so.
_WEAK = 7.0


@dataclass(frozen=True)
class Alarm:
    """Why a release must not be taken for a private one.

    Attributes
    ----------
    word
        In two words.
    strip
        In one sentence, for the strip that stays in sight.
    sentences
        In full.
    """

    word: str
    strip: str
    sentences: tuple[str, ...]


NOT_PRIVATE = Alarm(
    word="Not private",
    strip="The noise came from a seed or from a sampler that margrave does not know. Nothing is promised.",
    sentences=(
        "The noise in these tables was not drawn from a source of randomness that is fit for private data: it came "
        "from a seed, or from a sampler that margrave does not know. Whoever knows or guesses the seed can take the "
        "noise away and read the exact counts.",
        "Tables like these are for experiments with public or made-up data. If real people are in the data, do not "
        "publish this page or anything made with it.",
    ),
)
UNKNOWN = Alarm(
    word="Origin unknown",
    strip="Nothing is known about how the noise was drawn, so nothing is promised about privacy.",
    sentences=(
        "These tables were made from noisy numbers that came from elsewhere, without a record of how their noise was "
        "drawn. Whether they protect anybody cannot be told from them.",
        "Do not publish this page as a private release unless you know, from whoever supplied the numbers, which "
        "guarantee they carry.",
    ),
)


def alarm(record: Provenance | None) -> Alarm | None:
    """Return why a release with this record must not be taken for a private one; None if nothing speaks against it."""
    if record is None:
        return UNKNOWN
    return None if record.private else NOT_PRIVATE


def privacy(record: Provenance) -> dict[str, Any]:
    """Return what the page says about the guarantee."""
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
        "contributions": _contributions(record),
        "noise": _noise(record),
    }


def _contributions(record: Provenance) -> str:
    """Return how many rows of a person are protected, and who saw to it that there are no more."""
    rows = rows_spoken(record)
    if is_enforced(record):
        counted = f"{rows}{of_result(record)}"
        return f"everything. Of nobody were more than {counted} counted; this was enforced, and others were left out."
    table = table_spoken(record) if record.queried else "the data"
    said = f"everything, as long as nobody has more than {rows} in {table}. "
    if record.contributions_bounded == "declared":
        return said + "The custodian of the data declared this; it was taken on trust and not checked."
    return said + f"How this is known: {record.contributions_bounded}."


def _noise(record: Provenance) -> str:
    """Return who drew the noise, and from what."""
    if not record.private:
        return f"drawn by {record.sampler}, which is not fit for private data."
    return f"drawn by {record.sampler}, from randomness that nobody can repeat."
