"""PRIVATE: draft a domain from a table, for a person to review.

A domain must not be read from the data, because the domain is published with the release. But people start from the
table they have. So a draft says on its first line where it comes from, and nothing is measured with it before a person
has checked that all of it is public knowledge.

One pass over the rows keeps of each column what its draft needs (`Profile`): its kind, few distinct values, a sample of
its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from margrave.data.engines.engine import require_columns
from margrave.data.kinds import kind_of
from margrave.data.redaction import quietly
from margrave.data.source import Data, described
from margrave.domain.attribute import Attribute
from margrave.domain.domain import Domain
from margrave.errors import DataError

if TYPE_CHECKING:
    from margrave.domain.values import Label

WARNING = (
    "PRIVATE DRAFT, not for publication: these values were read from private data. Check every attribute, keep only "
    "what is public knowledge regardless of who is in the table, add values that could occur, and then set reviewed to "
    "true."
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
        "they look like numbers with marks between thousands; write them without, and if a comma separates the "
        "fraction, give decimal=',' (--decimal ,)"
    ),
}
# A text that a smaller share of the rows has is rare; this many rare texts are put together. Fewer rows do not tell.
_RARE, _SEVERAL, _FEWEST_FOR_RARE = 0.001, 3, 1_000
# Fewer rows do not tell an identifier from a value.
_FEWEST_ROWS = 50
_BINS = 8
_TAIL = 0.05
# Distinct values that are kept; a column with more is one of many values.
MANY = 2**14
_SAMPLE = 2**16
# Rows in which it is seen whether columns determine each other.
_FIRST_ROWS = 2**16
# Where this share of the texts in a file without types is of one form, the few others are slips or signs for missing.
_NEARLY_ALL = 0.95
# The forms of texts; one that has several counts as the first of them.
_FORMS = {
    "numbers": r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?$",
    "booleans": r"(?i)^(true|false)$",
    "dates": (
        r"^([12][0-9]{3}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([12][0-9])?[0-9]{2})"
        r"([T ][0-9]{1,2}:[0-9]{2}.*)?$"
    ),
    "thousands": r"^-?([0-9]{1,3}(\.[0-9]{3})+(,[0-9]+)?|[0-9]{1,3}((,[0-9]{3})+\.[0-9]+|(,[0-9]{3}){2,}))$",
    # 1,234 may be a little more than one, or more than a thousand.
    "either": r"^-?[1-9][0-9]{0,2},[0-9]{3}$",
    "decimal commas": r"^-?[0-9]{1,18},[0-9]{1,18}$",
    # Codes, as those of towns: read as numbers they would lose a digit.
    "codes": r"^0[0-9]+$",
}
_COMMAS = ("thousands", "either", "decimal commas")


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
    reading
        Options of `Data` that the table was read with because it seems to need them, such as ``{"trim": True}``: give
        them to whatever reads the table by this domain.
    rare
        Texts that few rows have, by column; where there are several, the draft counts them as "other".
    determined
        Pairs of columns of which the first determines the second.
    """

    domain: Domain
    left_out: dict[str, str]
    odd: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)
    rare: dict[str, tuple[str, ...]] = field(default_factory=dict)
    determined: tuple[tuple[str, str], ...] = ()


def draft_domain(data: object, columns: Sequence[str] | None = None) -> Draft:
    """Draft a domain from a table: labels for columns of few values, cuts at round numbers for numbers.

    The draft is PRIVATE until a person has reviewed it, and no mechanism accepts it before. A CSV file whose fields
    have blanks around them, that has no header, or that says "?" where a value is missing, is read accordingly
    (`Draft.reading`) unless the `Data` says how it is written.

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
    from margrave.data.detection import detect, determined, is_csv, marks_of_missing, with_proposals

    reading = detect(data)
    data = with_proposals(data, reading)
    profiles, rows = _profiles(data, columns)
    # Texts among numbers are not asked for: the draft has a category for them.
    texts = [one.distinct for one in profiles.values() if one.kind == "texts" and one.distinct is not None]
    marks = marks_of_missing(texts) if is_csv(data) and not data.null else ()
    if marks:
        reading["null"] = marks
        data = with_proposals(data, {"null": marks})
        profiles, rows = _profiles(data, columns)
    attributes: list[Attribute] = []
    left_out: dict[str, str] = {}
    odd: dict[str, tuple[str, ...]] = {}
    rare: dict[str, tuple[str, ...]] = {}
    labelled: list[str] = []
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
                few = _rare(profile)
                labelled += [name] if "labels" in found else []
                if few:
                    rare[name] = few
                attributes.append(Attribute(name, **_without_rare(found, few), **_policies(profile, few)))
                if profile.kind == "numbers" and profile.odd:
                    odd[name] = tuple(sorted(profile.odd)[:_MOST_EXAMPLES])
    domain = Domain(attributes, draft=_words(left_out, odd))
    return Draft(domain, left_out, odd, reading, rare, determined(rows, labelled))


def _words(left_out: Collection[str], odd: Collection[str]) -> str:
    """Return what stands on the first line of the draft; no value."""
    words = [WARNING]
    if left_out:
        words.append(f"Left out: {', '.join(left_out)}.")
    if odd:
        words.append(f'There are texts among the numbers of {", ".join(odd)}: see where "other" puts them.')
    return " ".join(words)


def _rare(profile: Profile) -> tuple[str, ...]:
    """Return the texts that few rows have: what so few people have is seldom public knowledge."""
    if profile.kind != "texts" or profile.distinct is None or profile.rows < _FEWEST_FOR_RARE:
        return ()
    return tuple(sorted(text for text, rows in profile.counted() if rows < profile.rows * _RARE))


def _without_rare(found: dict[str, Any], rare: Collection[str]) -> dict[str, Any]:
    """Return what is declared without rare labels, where there are enough of them to be put together."""
    if len(rare) < _SEVERAL:
        return found
    return {"labels": [label for label in found["labels"] if label not in rare]}


def _policies(profile: Profile, rare: Collection[str]) -> dict[str, Any]:
    """Return categories for missing values, for rare texts, and for texts among numbers.

    Texts among numbers are counted with missing values if they all seem to say that there is none.
    """
    if len(rare) >= _SEVERAL:
        return {"missing": MISSING if profile.missing else None, "other": _free(OTHER, profile)}
    if profile.kind != "numbers" or not profile.odd:
        return {"missing": MISSING if profile.missing else None}
    if all(text.strip().casefold() in _NOTHING for text in profile.odd):
        return {"missing": MISSING, "other": MISSING}
    return {"missing": MISSING if profile.missing else None, "other": OTHER}


def _free(category: str, profile: Profile) -> str:
    """Return the name of a category, in other words if it is a label already."""
    return category if category not in (profile.distinct or ()) else f"{category} (rare)"


def _profiles(data: Data, columns: Sequence[str] | None) -> tuple[dict[str, Profile], pa.Table]:
    """Look at all rows once; return what was seen of each column, and the first rows as they are."""
    first: list[pa.RecordBatch] = []
    with data.opened() as engine:
        names = engine.names if columns is None else tuple(columns)
        require_columns(engine, names, privacy_id=data.privacy_id, for_custodian=True)
        if not names:
            raise DataError("the table has no columns", remedy="there is nothing to draft")
        profiles = {name: Profile(untyped=engine.untyped, decimal=engine.decimal) for name in names}
        for batch in engine.batches(names):
            kept = sum(part.num_rows for part in first)
            if kept < _FIRST_ROWS or not first:
                first.append(batch.slice(0, _FIRST_ROWS - kept))
            for place, profile in enumerate(profiles.values()):
                profile.add(batch.column(place))
    return profiles, pa.Table.from_batches(first) if first else pa.table({})


def _declared(profile: Profile) -> dict[str, Any] | str:
    """Return labels or cuts for a column, or why it is left out."""
    if not profile.kind:
        return "it has no values"
    if profile.kind == "others":
        return "timestamps, bytes or other values; derive a column with few values from it"
    if profile.kind == "booleans":
        return {"labels": [False, True]}
    if profile.kind == "numbers":
        return _declared_numbers(profile)
    if profile.kind in _UNREAD:
        return _UNREAD[profile.kind]
    if profile.kind == "dates" and (profile.distinct is None or len(profile.distinct) > _MOST_DATES):
        return "dates; derive years or months from them"
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


class Profile:
    """What was seen of one column.

    Parameters
    ----------
    untyped
        Whether the column holds texts that numbers and booleans are read from.
    decimal
        The mark before the fraction of such numbers.

    Attributes
    ----------
    odd
        Of a column of texts, some of those that are not numbers.
    missing
        Whether any value is missing.
    repeated
        Whether any value came twice, as far as values were kept.
    rows
        How many values were seen.
    """

    def __init__(self, *, untyped: bool, decimal: str = ".") -> None:
        self._untyped, self._decimal, self._kind = untyped, decimal, ""
        self._of_form = dict.fromkeys(_FORMS, 0)
        self._sample: list[NDArray[np.float64]] = []
        self._step = 1
        self._distinct: set[Any] | None = set()
        self._counts: dict[Any, int] = {}
        self.odd: set[str] = set()
        self.missing = self.repeated = False
        self.rows = 0

    @property
    def kind(self) -> str:
        """What the values are: "texts", "numbers", "booleans", "dates", "others"; empty before any was seen.

        Of texts in a file without types also "decimal commas" and "thousands": numbers, but not as they are read.
        """
        if not self._untyped or not self.rows:
            return self._kind
        if self._of_form["booleans"] == self.rows:
            return "booleans"
        if self._of_form["codes"]:
            return "texts"
        for kind in ("numbers", "dates"):
            if self._are_nearly_all(kind):
                return kind
        if self._are_nearly_all("numbers", *_COMMAS) and any(self._of_form[form] for form in _COMMAS):
            plainly = self._of_form["decimal commas"] and not self._of_form["thousands"]
            return "decimal commas" if plainly else "thousands"
        return "texts"

    @property
    def distinct(self) -> set[Any] | None:
        """The different values, those of another kind left out; None if there are many."""
        if self._distinct is None or not self._untyped or self.kind != "numbers":
            return self._distinct
        return {self._pointed(value) for value in self._distinct - self.odd}

    def add(self, column: pa.Array) -> None:
        """Look at some more rows."""
        values = plain_values(column).drop_null()
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        if self._untyped:
            values = values.filter(pc.not_equal(values, ""))
        self.missing |= len(values) < len(column)
        if len(values):
            self.rows += len(values)
            numbers = self._read(values) if self._untyped else self._typed(values)
            self._keep(values)
            self._keep_sample(numbers)

    def counted(self) -> Iterable[tuple[Any, int]]:
        """Return the different values with the rows that have each, if there are few enough for labels."""
        return self._counts.items() if len(self._counts) <= _MOST_LABELS else ()

    def sample(self) -> NDArray[np.float64]:
        """Return some of the numbers, spread over all rows."""
        return np.concatenate(self._sample) if self._sample else np.empty(0)

    def _are_nearly_all(self, *forms: str) -> bool:
        return sum(self._of_form[form] for form in forms) >= _NEARLY_ALL * self.rows

    def _pointed(self, text: str) -> str:
        return text.replace(self._decimal, ".")

    def _read(self, texts: pa.Array) -> pa.Array:
        """Count the texts of each form, and return those that are numbers; each distinct text is looked at once."""
        encoded = texts.dictionary_encode()
        distinct, places = encoded.dictionary, encoded.indices.to_numpy()
        readable = distinct
        if self._decimal != ".":
            # A text with a point is not a number here, so none must become one.
            readable = pc.replace_substring(pc.replace_substring(distinct, ".", "’"), self._decimal, ".")
        forms = _forms_of(distinct, readable)
        counts = np.bincount(forms[places] + 1, minlength=len(_FORMS) + 1)
        for form, count in zip(_FORMS, counts[1:].tolist(), strict=True):
            self._of_form[form] += count
        if len(self.odd) <= MANY:
            self.odd.update(distinct.filter(pa.array(forms != 0))[: MANY + 1].to_pylist())
        return readable.take(pa.array(places[forms[places] == 0]))

    def _typed(self, values: pa.Array) -> pa.Array | None:
        """Note the kind of a column that has one, and return its values if they are numbers."""
        kind = values.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            self._kind = "texts"
        elif pa.types.is_boolean(kind):
            self._kind = "booleans"
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            self._kind = "numbers"
            return values
        else:
            self._kind = "dates" if pa.types.is_date(kind) else "others"
        return None

    def _keep(self, values: pa.Array) -> None:
        """Keep the distinct values while they are few."""
        if self._distinct is None or self._kind == "others":
            return
        counted = pc.value_counts(values)
        fresh = counted.field("values")
        if len(self._counts) <= _MOST_LABELS:
            for value, rows in zip(fresh.to_pylist(), counted.field("counts").to_pylist(), strict=True):
                self._counts[value] = self._counts.get(value, 0) + rows
        before = len(self._distinct)
        self._distinct.update(fresh.to_pylist() if len(fresh) <= MANY else fresh[: MANY + 1].to_pylist())
        self.repeated |= len(fresh) < len(values) or len(self._distinct) < before + min(len(fresh), MANY + 1)
        if len(self._distinct) > MANY:
            self._distinct = None

    def _keep_sample(self, numbers: pa.Array | None) -> None:
        """Keep every n-th number; when there are too many, drop every second one."""
        if numbers is None:
            return
        chosen = numbers.take(pa.array(np.arange(0, len(numbers), self._step)))
        values = pc.cast(chosen, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        self._sample.append(values[np.isfinite(values)])
        while sum(part.size for part in self._sample) > _SAMPLE:
            self._sample = [self.sample()[::2]]
            self._step *= 2


def _forms_of(texts: pa.Array, readable: pa.Array) -> NDArray[np.intp]:
    """Return which form each text has, by its place among the forms; −1 for none.

    Parameters
    ----------
    texts
        The texts.
    readable
        The same with a point before the fraction of what is a number.
    """
    forms = np.full(len(texts), -1, dtype=np.intp)
    for place, (form, pattern) in enumerate(_FORMS.items()):
        matches = pc.match_substring_regex(readable if form == "numbers" else texts, pattern)
        forms[(forms < 0) & matches.to_numpy(zero_copy_only=False)] = place
    return forms


def plain_values(column: pa.Array) -> pa.Array:
    """Return a column without dictionaries, views and names of types."""
    if isinstance(column.type, pa.BaseExtensionType):
        return plain_values(column.storage)
    if pa.types.is_dictionary(column.type):
        return plain_values(column.dictionary_decode())
    if pa.types.is_run_end_encoded(column.type):
        return plain_values(pc.run_end_decode(column))
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column
