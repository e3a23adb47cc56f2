"""PRIVATE: draft a domain from a table, for a person to review.

A domain must not be read from the data, because the domain is published with the release. But people start from the
table they have. So a draft says on its first line where it comes from, and nothing is measured with it before a person
has checked that all of it is public knowledge.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from margrave.data.custodian.profile import Profile
from margrave.data.description import Data, described
from margrave.data.opening import kind_of, opened, require_columns
from margrave.data.redaction import quietly
from margrave.domain import Attribute, Domain, Label
from margrave.errors import DataError

WARNING = (
    "PRIVATE DRAFT, not for publication: these values were read from private data. Check every attribute, keep only "
    "what is public knowledge whoever is in the table, add values that could occur, and then set reviewed to true."
)
MISSING, OTHER = "missing", "other"
# A column with more different texts or dates is left out, one with more different numbers is cut.
_MOST_LABELS, _MOST_DATES, _MOST_NUMBERS = 100, 24, 20
# Texts among numbers that say, in small letters, that there is none.
_NOTHING = {
    *(
        "na",
        "n/a",
        "#n/a",
        "#nv",
        "#null!",
        "nan",
        "null",
        "none",
        "nil",
        "missing",
        "unknown",
        "not stated",
        "no answer",
    ),
    *(
        "k.a.",
        "k. a.",
        "keine angabe",
        "unbekannt",
        "n.a.",
        "n. a.",
        "nd",
        "n.d.",
        "nsp",
        "non renseigné",
        "inconnu",
        "s/d",
    ),
    *("-", "--", "–", "—", ".", "..", "...", "…", "?", "\\n"),
}
_MOST_EXAMPLES = 5
_UNREAD = {
    "decimal commas": "they look like numbers with a decimal comma; give decimal=',' (--decimal ,)",
    "thousands": (
        "they look like numbers with marks between thousands; write them without, and if a comma stands before the "
        "fraction, give decimal=',' (--decimal ,)"
    ),
}
# Fewer rows do not tell an identifier from a value.
_FEWEST_ROWS = 50
_BINS = 8
_TAIL = 0.05


@dataclass(frozen=True, repr=False)
class Draft:
    """A drafted domain.

    Parameters
    ----------
    domain
        The domain, marked as a draft.
    left_out
        The columns that it leaves out, and why.
    odd
        Some of the texts that stand among the numbers of a column.
    """

    domain: Domain
    left_out: dict[str, str]
    odd: dict[str, tuple[str, ...]] = field(default_factory=dict)


def draft_domain(data: object, columns: Sequence[str] | None = None) -> Draft:
    """Draft a domain from a table: labels for columns of few values, cuts at round numbers for numbers.

    The draft is PRIVATE until a person has reviewed it, and no mechanism accepts it before.

    Parameters
    ----------
    data
        The private table: a `Data` or what it is made from. Its privacy id is left out of the draft.
    columns
        The columns to look at; all if None.
    """
    table = described(data)
    return quietly(lambda: _draft(table, columns), f"the {kind_of(table.source)}")


def _draft(data: Data, columns: Sequence[str] | None) -> Draft:
    profiles = _profiles(data, columns)
    attributes: list[Attribute] = []
    left_out: dict[str, str] = {}
    odd: dict[str, tuple[str, ...]] = {}
    for name, profile in profiles.items():
        if name == data.privacy_id:
            left_out[name] = "the privacy id"
        elif not name:
            left_out[name] = "it has no name"
        else:
            found = _declared(profile)
            if isinstance(found, str):
                left_out[name] = found
            else:
                attributes.append(Attribute(name, **found, **_policies(profile)))
                if profile.kind == "numbers" and profile.odd:
                    odd[name] = tuple(sorted(profile.odd)[:_MOST_EXAMPLES])
    return Draft(Domain(attributes, draft=_words(left_out, odd)), left_out, odd)


def _words(left_out: Collection[str], odd: Collection[str]) -> str:
    """Return what stands on the first line of the draft; no value."""
    words = [WARNING]
    if left_out:
        words.append(f"Left out: {', '.join(left_out)}.")
    if odd:
        words.append(f'There are texts among the numbers of {", ".join(odd)}: see where "other" puts them.')
    return " ".join(words)


def _policies(profile: Profile) -> dict[str, Any]:
    """Return categories for missing values, and for texts among numbers: the same if they seem to say the same."""
    if profile.kind != "numbers" or not profile.odd:
        return {"missing": MISSING if profile.missing else None}
    if all(text.strip().casefold() in _NOTHING for text in profile.odd):
        return {"missing": MISSING, "other": MISSING}
    return {"missing": MISSING if profile.missing else None, "other": OTHER}


def _profiles(data: Data, columns: Sequence[str] | None) -> dict[str, Profile]:
    """Look at all rows once."""
    with opened(data.source, data.table, data.query, data.text_format) as engine:
        names = engine.names if columns is None else tuple(columns)
        require_columns(engine, names, privacy_id=data.privacy_id, for_custodian=True)
        if not names:
            raise DataError("the table has no columns", remedy="there is nothing to draft")
        profiles = {name: Profile(untyped=engine.untyped, decimal=engine.decimal) for name in names}
        for batch in engine.batches(names):
            for place, profile in enumerate(profiles.values()):
                profile.add(batch.column(place))
    return profiles


def _declared(profile: Profile) -> dict[str, Any] | str:
    """Return labels or cuts for a column, or why it is left out."""
    if not profile.kind:
        return "it has no values"
    if profile.kind == "others":
        return "moments, bytes or values of another kind; make a column of few values of it"
    if profile.kind == "truth values":
        return {"labels": [False, True]}
    if profile.kind == "numbers":
        return _declared_numbers(profile)
    if profile.kind in _UNREAD:
        return _UNREAD[profile.kind]
    if profile.kind == "dates" and (profile.distinct is None or len(profile.distinct) > _MOST_DATES):
        return "dates; make years or months of them"
    if _is_identifier(profile):
        return "an identifier: no value comes twice"
    if profile.distinct is None or len(profile.distinct) > _MOST_LABELS:
        return f"more than {_MOST_LABELS} different {profile.kind}; group them first"
    return {"labels": sorted(str(value) for value in profile.distinct)}


def _declared_numbers(profile: Profile) -> dict[str, Any] | str:
    """Return labels for few numbers, and cuts for many."""
    sample = profile.sample()
    # Measurements rarely come twice either, but they have fractions.
    if _is_identifier(profile) and np.array_equal(sample, np.floor(sample)):
        return "an identifier: no value comes twice"
    if profile.distinct is not None and len(profile.distinct) <= _MOST_NUMBERS:
        labels = {_number(value) for value in profile.distinct}
        if all(math.isfinite(label) for label in labels):
            return {"labels": sorted(labels)}
    cuts = round_cuts(*_middle(profile))
    if not cuts:
        return "values out of range for bins; declare it by hand"
    whole = np.array_equal(sample, np.floor(sample)) and all(cut == int(cut) for cut in cuts)
    return {"cuts": cuts, "whole": True} if whole else {"cuts": cuts}


def _is_identifier(profile: Profile) -> bool:
    return not profile.repeated and profile.rows >= _FEWEST_ROWS


def _number(value: object) -> float:
    """Return a number as it is written in a domain: whole if it is whole."""
    number = Decimal(str(value))
    # What no double can hold is infinite, also where it is whole, and no label.
    whole = math.isfinite(float(number)) and number == number.to_integral_value()
    return int(number) if whole else float(number)


def _middle(profile: Profile) -> tuple[float, float]:
    """Return where nearly all numbers lie; the bins at the ends are open and hold the rest."""
    sample = profile.sample()
    if not sample.size:
        return math.nan, math.nan
    lower, upper = np.quantile(sample, [_TAIL, 1 - _TAIL])
    return (float(lower), float(upper)) if lower < upper else (float(sample.min()), float(sample.max()))


def round_cuts(lower: float, upper: float) -> list[Label]:
    """Return about eight round numbers from lower to upper, evenly spaced; none where there is no such thing."""
    if not (math.isfinite(lower) and math.isfinite(upper) and max(abs(lower), abs(upper)) < 2**53):
        return []
    span = upper - lower or abs(lower) or 1.0
    power = math.floor(math.log10(span / _BINS))
    # The next of 1, 2, 5 and 10 times a power of ten.
    factor = next(factor for factor in (1, 2, 5, 10) if factor * Decimal(10) ** power >= Decimal(span) / _BINS)
    step = factor * Decimal(10) ** power
    first, last = math.ceil(Decimal(repr(lower)) / step), math.floor(Decimal(repr(upper)) / step)
    return [_number(place * step) for place in range(first, max(last, first) + 1)]
