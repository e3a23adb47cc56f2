"""PRIVATE: how a table fits a domain, for its custodian only; all of it is read from the table.

Nothing here goes into a release or a log. All figures are exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from margrave.data.detection import NULLS
from margrave.data.encoding import Encoder
from margrave.data.engines.engine import Engine, require_columns, require_ids
from margrave.data.kinds import kind_of
from margrave.data.persons import canonical_ids, plain_ids
from margrave.data.redaction import quietly
from margrave.data.source import Data, described
from margrave.domain.values import MISSING, OUTSIDE, CodeArray
from margrave.errors import DataError, suggestion

if TYPE_CHECKING:
    from margrave.domain.attribute import Attribute
    from margrave.domain.domain import Domain

NOT_FOR_PUBLICATION = "PRIVATE: for the custodian's eyes only, not for publication"
_MOST_EXAMPLES = 5
_LONGEST_EXAMPLE = 40
_DECIMAL_COMMA = re.compile(r"'-?[0-9]+,[0-9]+'")
# The limits on the rows of a person whose cost is shown.
CONTRIBUTIONS = (1, 2, 3, 5, 10)
# How many counts are kept before those of the same person are added up.
_MOST_COUNTS = 2**21


@dataclass(frozen=True, repr=False)
class AttributeFit:
    """How the column of one attribute fits it.

    Parameters
    ----------
    attribute
        The attribute.
    outside, missing
        How many rows have a value that is not declared, and how many have none.
    examples
        Some of the values that are not declared.
    empty
        The categories that no row has.
    problem
        Why the table cannot be counted by this attribute; empty if it can.
    present
        Whether the table has the column.
    hint
        How the file could be read so that more of its values are declared or missing; empty if nothing seems amiss.
    """

    attribute: Attribute
    outside: int = 0
    missing: int = 0
    examples: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    problem: str = ""
    present: bool = True
    hint: str = ""


@dataclass(frozen=True, repr=False)
class Fit:
    """How a table fits a domain.

    Parameters
    ----------
    attributes
        How each column fits its attribute, in the order of the domain.
    dropped
        How many rows the policies drop.
    persons
        How many rows persons have, where a column identifies the person of each row.
    """

    attributes: tuple[AttributeFit, ...]
    dropped: int
    persons: PersonFit | None = None

    @property
    def fits(self) -> bool:
        """Whether the table can be counted by the domain, and its rows limited by the privacy id."""
        return not any(fit.problem for fit in self.attributes) and not (self.persons and self.persons.problem)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold; PRIVATE like the fit itself."""
        plain: dict[str, Any] = {"warning": NOT_FOR_PUBLICATION, "fits": self.fits, "dropped": self.dropped}
        plain["attributes"] = [
            {
                "name": one.attribute.name,
                "present": one.present,
                "outside": one.outside,
                "outside_to": one.attribute.other,
                "outside_dropped": one.attribute.outside == "drop",
                "examples": list(one.examples),
                "missing": one.missing,
                "missing_to": one.attribute.missing,
                "empty": list(one.empty),
                "problem": one.problem,
                "hint": one.hint,
            }
            for one in self.attributes
        ]
        if self.persons is not None:
            persons = self.persons
            lost = {str(most): share for most, share in persons.lost.items()}
            counts = {"rows": persons.rows, "most": persons.most, "nobody": persons.without_id}
            plain["persons"] = {**counts, "lost": lost}
        return plain


def validate(data: object, domain: Domain) -> Fit:
    """Return how a table fits a domain: PRIVATE, for the custodian of the table only.

    Parameters
    ----------
    data
        The private table: a `Data` or what it is made from. Where it has a privacy id, the rows of persons are counted
        too.
    domain
        The declared domain.
    """
    table = described(data)
    return quietly(lambda: _validate(table, domain), f"the {kind_of(table.source)}")


def _validate(data: Data, domain: Domain) -> Fit:
    with data.opened() as engine:
        require_columns(engine, (), privacy_id=data.privacy_id, for_custodian=True)
        if data.privacy_id is not None:
            require_ids(engine, data.privacy_id)
        seen = {name: _Seen(domain[name], engine) for name in domain.attributes if name in engine.names}
        persons = None if data.privacy_id is None else Persons(data.privacy_id, untyped=engine.untyped)
        columns = list(dict.fromkeys([*seen, *([] if data.privacy_id is None else [data.privacy_id])]))
        dropped = 0
        for batch in engine.batches(columns) if columns else ():
            gone = _look(seen, batch)
            dropped += int(gone.sum())
            if persons is not None:
                persons.add(batch.column(columns.index(str(data.privacy_id))).filter(pa.array(~gone)))
        fits = [seen[name].fit() if name in seen else _absent(domain[name], engine) for name in domain.attributes]
    return Fit(tuple(fits), dropped, None if persons is None else persons.fit())


def _look(seen: dict[str, _Seen], batch: pa.RecordBatch) -> NDArray[np.bool_]:
    """Look at some rows, and return which of them are dropped."""
    dropped = np.zeros(batch.num_rows, dtype=np.bool_)
    for place, column in enumerate(seen.values()):
        codes = column.look(batch.column(place))
        if codes is not None and column.drops:
            dropped |= codes == OUTSIDE
    return dropped


def _absent(attribute: Attribute, engine: Engine) -> AttributeFit:
    said = suggestion(attribute.name, engine.names)
    hint = "" if said or not engine.untyped else "if a CSV file has no header, give names=… (--names age,sex)"
    return AttributeFit(attribute, problem=f"the table has no such column{said}", present=False, hint=hint)


@dataclass
class _Seen:
    """What was seen of a column so far."""

    attribute: Attribute
    engine: Engine
    outside: int = 0
    missing: int = 0
    examples: dict[str, None] = field(default_factory=dict)
    wrong: str = ""

    def __post_init__(self) -> None:
        self.encoder = Encoder(self.attribute, untyped=self.engine.untyped, decimal=self.engine.decimal)
        self.counts = np.zeros(self.attribute.size, dtype=np.int64)
        policy = self.attribute
        self.drops = policy.outside == "drop"

    def look(self, column: pa.Array) -> CodeArray | None:
        """Count the categories of some more rows, and return their codes; None once the column is of the wrong kind."""
        if self.wrong:
            return None
        try:
            codes = self.encoder.classify(column)
        except DataError as error:
            self.wrong = str(error)
            return None
        outside = codes == OUTSIDE
        self.outside += int(outside.sum())
        self.missing += int((codes == MISSING).sum())
        self.counts += np.bincount(codes[codes >= 0], minlength=self.attribute.size)
        if outside.any() and len(self.examples) < _MOST_EXAMPLES:
            self._keep_examples(column.filter(pa.array(outside)))
        return codes

    def _keep_examples(self, values: pa.Array) -> None:
        for value in pc.unique(values)[: 2 * _MOST_EXAMPLES].to_pylist():
            if len(self.examples) < _MOST_EXAMPLES:
                self.examples[_shown(value, self.attribute)] = None

    def fit(self) -> AttributeFit:
        """Return how the column fits, now that all of it was seen."""
        attribute, counts = self.attribute, self.counts
        for rows, code in ((self.outside, attribute.other_code), (self.missing, attribute.missing_code)):
            if code is not None:
                counts[code] += rows
        categories = attribute.categories
        empty = () if self.wrong else tuple(categories[code] for code in np.flatnonzero(counts == 0))
        return AttributeFit(
            attribute,
            self.outside,
            self.missing,
            tuple(self.examples),
            empty,
            self.wrong or self._problem(),
            hint="; ".join(self._hints()),
        )

    def _problem(self) -> str:
        """Return which policy the undeclared or missing values need."""
        problems = []
        if self.outside and self.attribute.other is None and not self.drops:
            problems.append('values that are not declared: declare them, an "other" category, or "outside": "drop"')
        if self.missing and self.attribute.missing is None:
            problems.append('missing values: declare a category for them, as in "missing": "unknown"')
        return "; ".join(problems)

    def _hints(self) -> list[str]:
        """Return what options of a CSV file would make values declared ones; nothing for other tables."""
        if not self.engine.untyped or not self.outside:
            return []
        texts = [example[1:-1] for example in self.examples if example[:1] == example[-1:] == "'"]
        declared = set(self.attribute.values.texts)
        hints = []
        if all(_DECIMAL_COMMA.fullmatch(example) for example in self.examples):
            hints.append("some look like numbers with a decimal comma: give decimal=',' (--decimal ,)")
        if any(text != text.strip() and (text.strip() in declared or not declared) for text in texts):
            hints.append("some have blanks around them: give trim=True (--trim)")
        hints += [
            f"{mark!r} seems to say that there is none: give null={mark!r} (--null {quote(mark)})"
            for mark in NULLS
            if mark in {text.strip() for text in texts}
        ]
        return hints


def _shown(value: object, attribute: Attribute) -> str:
    """Return a value that is not declared as it is shown, with what is invisible in it."""
    shown = repr(value) if isinstance(value, str) else str(value)
    short = shown if len(shown) <= _LONGEST_EXAMPLE else shown[:_LONGEST_EXAMPLE] + "…"
    declared = (normalize("NFC", text) for text in attribute.values.texts)
    if isinstance(value, str) and normalize("NFC", value) in declared:
        return f"{short} (a declared one in another Unicode form)"
    return short


@dataclass(frozen=True, repr=False)
class PersonFit:
    """How many rows the persons of a table have.

    Parameters
    ----------
    rows
        How many rows there are, without those that the domain drops.
    most
        The most rows of one person.
    without_id
        How many rows have no id.
    lost
        For some limits on the rows of a person, the share of rows that it would leave out.
    """

    rows: int
    most: int
    without_id: int
    lost: dict[int, float]

    @property
    def problem(self) -> str:
        """Why rows cannot be limited by this id; empty if they can."""
        return "rows without an id: give every row one, or leave such rows out by a query" if self.without_id else ""


class Persons:
    """Counts the rows of each person.

    Parameters
    ----------
    privacy_id
        The column that identifies the person of each row.
    untyped
        Whether ids are texts of a file, so that an empty one is missing.
    """

    def __init__(self, privacy_id: str, *, untyped: bool) -> None:
        self._privacy_id, self._untyped = privacy_id, untyped
        self._parts: list[pa.Table] = []
        self._without_id = 0

    def add(self, ids: pa.Array) -> None:
        """Count some more rows."""
        known = canonical_ids(plain_ids(ids, self._privacy_id), untyped=self._untyped).drop_null()
        self._without_id += len(ids) - len(known)
        if len(known):
            counted = pa.table({"id": known, "rows": pa.repeat(np.int64(1), len(known))})
            self._parts.append(_summed([counted]))
        if sum(part.num_rows for part in self._parts) > _MOST_COUNTS and len(self._parts) > 1:
            self._parts = [_summed(self._parts)]

    def fit(self) -> PersonFit:
        """Return how many rows persons have, now that all were counted."""
        counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        if self._parts:
            counts = _summed(self._parts).column("rows").to_numpy()
        rows = int(counts.sum())
        lost = {most: float((counts - most).clip(min=0).sum() / rows) if rows else 0.0 for most in CONTRIBUTIONS}
        return PersonFit(rows + self._without_id, int(counts.max(initial=0)), self._without_id, lost)


def _summed(parts: list[pa.Table]) -> pa.Table:
    """Return the rows of each person in several tables together."""
    together = pa.concat_tables(parts, promote_options="permissive")
    return together.group_by("id").aggregate([("rows", "sum")]).rename_columns({"id": "id", "rows_sum": "rows"})
