"""Which tables a report carries with it, and the JSON that its script reads them from.

A page that is mailed and kept for years should stay small. So it carries the tables of one attribute, then of two, then
of three, the smallest first, until its limit is reached; the rest stays in the folder of the release. Tables are known
by the positions of their attributes ("0,3"), never by names: names and labels are free text, and are there to be shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from margrave.algebra.kernels import Floats
from margrave.algebra.lattice import AttributeSet
from margrave.domain import Domain
from margrave.escaping import JOINERS, visible
from margrave.release.release import Release
from margrave.release.table import Table, distinct

# The page shows two attributes at a time, for one value of a third.
MOST_ATTRIBUTES = 3
# A first table that fits on a screen and has something to compare, if there is one: so many values on either side.
_READABLE = range(3, 10)
# What could end a script element, or start a comment in one, and the line ends that JSON allows and JavaScript did not.
_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class Embedding:
    """The tables of a report.

    Attributes
    ----------
    document
        What the script of the page reads, as values of JSON.
    sets
        The attribute sets of the tables that are there, in canonical order.
    left_out
        How many tables of one, two and three attributes the release has and the page has not.
    first
        The table to show first: of two attributes and readable size, if there is one.
    """

    document: Mapping[str, object]
    sets: tuple[AttributeSet, ...]
    left_out: tuple[int, ...]
    first: AttributeSet


def embed(release: Release, *, most_bytes: int) -> Embedding:
    """Return the tables that a report carries.

    Parameters
    ----------
    release
        Where they are taken from.
    most_bytes
        The most bytes that their JSON may take, labels included.
    """
    box = _Box(release.workload.domain, most_bytes)
    left_out: list[AttributeSet] = []
    for _, level in groupby(_ranked(release), key=len):
        full = False
        for members in level:
            # The smallest come first: once one does not fit, the others of its level need not be made.
            full = full or not box.take(members, release)
            if full:
                left_out.append(members)
    sets = tuple(sorted(box.tables, key=lambda members: (len(members), members)))
    first = _first(box.tables, release.workload.domain)
    return Embedding(
        document={
            "attributes": [box.attribute(position) for position in range(len(release.workload.domain))],
            "tables": {_key(members): box.tables[members] for members in sets},
            "leftOut": [_key(members) for members in left_out if len(members) == 2],
            "first": _key(first),
        },
        sets=sets,
        left_out=tuple(sum(len(members) == order for members in left_out) for order in range(1, MOST_ATTRIBUTES + 1)),
        first=first,
    )


class _Box:
    """The tables taken so far, and the room that is left."""

    def __init__(self, domain: Domain, room: int) -> None:
        self.tables: dict[AttributeSet, dict[str, object]] = {}
        self._domain, self._room = domain, room
        self._labels: dict[int, tuple[str, ...]] = {}

    def take(self, members: AttributeSet, release: Release) -> bool:
        """Take a table, with the labels it needs, if there is room; the total always."""
        # A cell takes a digit and a comma at least: a table of millions need not be written out to see that it is too
        # large.
        if members and 2 * self._domain.cells(self._domain.names(members)) > self._room:
            return False
        attributes = list(self._domain)
        new = {k: distinct(list(map(_shown, attributes[k].categories))) for k in members if k not in self._labels}
        entry = _entry(release.table(*self._domain.names(members)))
        size = _size(entry) + sum(_size(labels) for labels in new.values())
        if members and size > self._room:
            return False
        self._room -= size
        self._labels.update(new)
        self.tables[members] = entry
        return True

    def attribute(self, position: int) -> dict[str, object]:
        """Return what the script knows about an attribute; its labels only if a table needs them."""
        attribute = list(self._domain)[position]
        name, about = _shown(attribute.name), _shown(attribute.description)
        return {"name": name, "about": about, "labels": self._labels.get(position, ())}


def _shown(text: str) -> str:
    """Return a free text as the page shows it."""
    return visible(text, keep=JOINERS)


def _ranked(release: Release) -> Iterator[AttributeSet]:
    """Iterate over the sets that the page can show, by number of attributes, then by size."""
    layout = release.estimates.layout
    cells = np.diff(layout.index.offset).tolist()
    ranked = sorted((len(members), size, members) for members, size in zip(layout.sets, cells, strict=True))
    yield from (members for order, _, members in ranked if order <= MOST_ATTRIBUTES)


def _entry(table: Table) -> dict[str, object]:
    """Return the numbers of a table, cell by cell with the last attribute fastest; no interval where it has none."""
    entry: dict[str, object] = {"count": _rounded(table.values, 0)}
    if table.estimate is not None:
        entry["estimate"] = _rounded(table.estimate, 0)
    interval = table.interval(table.level)
    if interval is None:
        return {**entry, "note": table.note}
    entry["margin"] = float(f"{interval.margin:.4g}")
    return {**entry, "low": _rounded(interval.low, 1), "high": _rounded(interval.high, 1)}


def _rounded(values: Floats, digits: int) -> list[float]:
    """Return the numbers as they are shown, rounded once and for all; whole ones without a point."""
    rounded = (np.round(values, digits) + 0.0).ravel().tolist()
    return [int(value) if value == int(value) else value for value in rounded]


def _first(tables: Mapping[AttributeSet, Mapping[str, object]], domain: Domain) -> AttributeSet:
    """Return the table to show first: of two attributes, with an interval, of readable size, as far as can be had."""

    def worse(members: AttributeSet) -> tuple[object, ...]:
        readable = all(domain.shape[k] in _READABLE for k in members)
        return abs(len(members) - 2), "low" not in tables[members], not readable, members

    return min((members for members in tables if members), key=worse, default=())


def _key(members: AttributeSet) -> str:
    """Return what the script calls a table."""
    return ",".join(map(str, members))


def _size(value: object) -> int:
    """Return the bytes that a value takes in the page."""
    return len(as_script(value).encode())


def as_script(document: object) -> str:
    """Return a document as JSON text that can stand inside of a script element, whatever texts it holds."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(_UNSAFE)
