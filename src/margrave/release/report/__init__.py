"""The report on a release: one HTML page that needs no network, for readers of any kind.

Text, style, script and data are put together from the files of this folder. Names and labels are free text, so they
enter the page escaped, with marks that would turn lines around written out, and the page forbids every script but its
own and every connection (Content-Security-Policy).

A page that is mailed and kept for years should stay small. So it carries the tables of one attribute, then of two, then
of three, the smallest first, until its limit is reached; the rest stays in the folder of the release. Its script reads
them from JSON, by the positions of their attributes ("0,3"), never by names: names and labels are free text, and are
there to be shown.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from margrave.errors import ReleaseError
from margrave.escaping import JOINERS, visible
from margrave.files import replacing
from margrave.release import facts
from margrave.release.facts import order_name, percent, short, whole
from margrave.release.release import Release
from margrave.release.report import charts, statements
from margrave.release.report.findings import Findings, OrderFindings, find
from margrave.release.store.folder import replace_document, require_outside
from margrave.release.table import Table, distinct

if TYPE_CHECKING:
    from markupsafe import Markup

    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import AttributeSet
    from margrave.domain.domain import Domain

NAME = "report.html"
MOST_BYTES = 2_000_000
_TITLE = "Cross-tabulations of a private table"
_MOST_LABELS = 24
# Rows and columns of the table that stands in the page for readers without scripts.
_MOST_LINES, _MOST_COLUMNS = 60, 30
# The page shows two attributes at a time, for one value of a third.
MOST_ATTRIBUTES = 3
# A first table that fits on a screen and has something to compare, if there is one: so many values on either side.
_READABLE = range(3, 10)
# What could end a script element, or start a comment in one, and the line ends that JSON allows and JavaScript did not.
_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def report(release: Release, *, title: str | None = None, most_bytes: int = MOST_BYTES) -> str:
    """Return a page about a release: what was released, how private and how exact it is, with tables to look at.

    The page is one HTML text of 1 to 3 MB that needs nothing else. Needs the extra ``[report]``.

    Parameters
    ----------
    release
        What to report on.
    title
        The heading; by default the description of the domain.
    most_bytes
        The most bytes of tables to put into the page. Tables of one attribute come first, then of two, then of three,
        the smallest first; the page says what it leaves out.
    """
    _check_request(release, title, most_bytes)
    charts.require_packages()
    findings = find(release)
    embedding = embed(release, most_bytes=most_bytes)
    described = release.workload.domain.description
    heading = title or described[:1].upper() + described[1:] or _TITLE
    return _render(_content(release, heading, findings, embedding))


def write_report(
    release: Release, path: str | os.PathLike[str], *, title: str | None = None, most_bytes: int = MOST_BYTES
) -> None:
    """Write the page of `report` to a file, which is replaced as a whole or, on failure, left as it was.

    The file must not be in the folder of a release: `renew_report` writes it there.

    Parameters
    ----------
    release
        What to report on.
    path
        The file to write.
    title, most_bytes
        As for `report`.
    """
    file = Path(path)
    require_outside(file)
    text = report(release, title=title, most_bytes=most_bytes)
    try:
        with replacing(file) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise ReleaseError(f"{file} cannot be written ({error.strerror})", remedy="name another file") from error


def renew_report(folder: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Write the report of a saved release into its folder again, and return its path.

    Parameters
    ----------
    folder
        A folder that `Release.save` has written.
    title
        As for `report`.
    """
    from margrave.release.store.loading import load

    replace_document(folder, NAME, report(load(folder), title=title))
    return Path(folder) / NAME


def _check_request(release: object, title: object, most_bytes: object) -> None:
    """Refuse anything but a release, a title and a number of bytes."""
    if not isinstance(release, Release):
        raise ReleaseError(
            f"expected a Release, got a {type(release).__name__}", remedy="give what reconstruct() returns"
        )
    if title is not None and (not isinstance(title, str) or not _is_whole_text(title)):
        raise ReleaseError(f"the title is {title!r}", remedy="give text that can be written as UTF-8, or leave it out")
    if isinstance(most_bytes, bool) or not isinstance(most_bytes, int) or most_bytes < 0:
        raise ReleaseError(
            f"most_bytes is {most_bytes!r}", remedy="give a whole number of at least 0, such as 2_000_000"
        )


def _is_whole_text(text: str) -> bool:
    """Tell whether a file in UTF-8 can hold the text: an unpaired surrogate cannot be written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _content(release: Release, title: str, findings: Findings, embedding: Embedding) -> dict[str, Any]:
    """Return everything that the template fills in."""
    record = release.provenance
    noun = facts.noun(record)
    return {
        "title": title,
        "version": _version(),
        "warning": facts.caution(record),
        "lede": statements.lede(release),
        "facts": statements.numbers(release, findings),
        "what": statements.what(release),
        "products": statements.products(release, findings),
        "attributes": _attributes(release),
        "privacy": None if record is None else statements.privacy(record),
        "first": _first_table(release, embedding),
        "noun": noun,
        "total": whole(findings.total),
        "only_total": len(release.estimates.layout.sets) == 1,
        "carried": statements.carried(embedding.left_out),
        "exactness": statements.exactness(release, findings),
        "remainder": statements.remainder(release, findings),
        "below_zero": statements.below_zero(release, findings),
        "orders": [_order_row(one) for one in findings.orders],
        "charts": _charts(findings, noun),
        "citation": statements.citation(title, release),
        "reuse": statements.reuse(release),
        "record": statements.record_rows(release),
        "document": {**embedding.document, **_script_parts(release)},
    }


def _script_parts(release: Release) -> dict[str, object]:
    """Return what the script needs in addition to the tables."""
    words, estimates = release.method.words, facts.estimates(release.provenance)
    agree = "" if release.method.agree else " Each table was made separately, so these need not be the sums."
    return {
        "charts": {"heatMap": charts.heat_map(), "errorBars": charts.error_bars()},
        "twoProducts": not release.method.unbiased,
        "words": {
            "count": words.counts,
            "estimate": estimates,
            "key": {
                "from": "bar: 95 % interval, not cut at zero",
                "estimate": f"dot: {estimates.removesuffix('s')}",
                "count": f"diamond: {words.count}",
            },
            "totals": f"The row and column “all” are tables of their own, each with its own interval.{agree}",
        },
    }


def _attributes(release: Release) -> list[dict[str, object]]:
    """Return the attributes for the list of them."""
    return [
        {
            "name": attribute.name,
            "about": attribute.description,
            "size": f"{attribute.size:,}",
            "labels": attribute.categories[:_MOST_LABELS],
            "more": max(0, attribute.size - _MOST_LABELS),
        }
        for attribute in release.workload.domain
    ]


def _first_table(release: Release, embedding: Embedding) -> dict[str, object] | None:
    """Return the table that needs no script; None if the release holds the total alone."""
    if not embedding.first:
        return None
    names = release.workload.domain.names(embedding.first)
    table = release.table(*names)
    interval = table.ci_low is not None
    return {
        "row_name": names[0],
        "column_name": names[1] if len(names) > 1 else "",
        "column_labels": table.categories[1][:_MOST_COLUMNS] if len(names) > 1 else ("all",),
        "rows": _lines(table),
        "product": release.method.words.counts,
        "estimates": facts.estimates(release.provenance),
        "intervals": interval,
        "note": table.note,
        "reading": _reading(release, interval),
    }


def _reading(release: Release, interval: bool) -> str:
    """Return how to read the numbers of the table."""
    product = release.method.words.count
    if not interval:
        return f"The number in a cell is the {product}, rounded to a whole number."
    coverage = facts.coverage(release.workload.domain, release.provenance)
    return (
        f"The number in a cell is the {product}, rounded to a whole number; below it is the 95 % interval of the "
        f"unbiased estimate, which {coverage}."
    )


def _lines(table: Table) -> list[tuple[str, list[dict[str, str]]]]:
    """Return the rows of a table of one or two attributes as texts."""
    shape = (len(table.categories[0]), -1)
    grids = [None if part is None else part.reshape(shape) for part in (table.values, table.ci_low, table.ci_high)]
    values, low, high = grids
    lines = []
    for row, label in enumerate(table.categories[0][:_MOST_LINES]):
        cells = []
        for column in range(min(_MOST_COLUMNS, values.shape[1] if values is not None else 0)):
            between = "" if low is None or high is None else f"{short(low[row, column])} to {short(high[row, column])}"
            cells.append({"count": "" if values is None else whole(values[row, column]), "between": between})
        lines.append((label, cells))
    return lines


def _order_row(one: OrderFindings) -> dict[str, str]:
    """Return one line of the tables by order."""
    margins = one.margins
    return {
        "name": order_name(one.order),
        "tables": f"{one.tables:,}",
        "cells": f"{one.cells:,}",
        "share": "–" if one.share is None else percent(one.share),
        "median": "–" if margins is None else f"± {short(margins.median)}",
        "range": "–" if margins is None else f"{short(margins.smallest)} to {short(margins.largest)}",
        "negative": "–" if one.negative is None else percent(one.negative),
        "negative_sum": "–" if one.negative_sum is None else short(one.negative_sum),
        "distance": "–" if one.distance is None else short(one.distance),
        "noise": "–" if one.noise is None else short(one.noise),
    }


def _charts(findings: Findings, noun: str) -> dict[str, Markup | None]:
    """Return the charts that are drawn already; None for those that nothing is known for."""
    from markupsafe import Markup

    orders = findings.orders
    drawn = {
        "budget": charts.budget_chart(orders) if findings.remainder is not None else None,
        "margin": charts.margin_chart(orders, noun) if any(one.margins for one in orders) else None,
        "negative": charts.negative_chart(orders) if any(one.negative for one in orders) else None,
        "distance": charts.distance_chart(orders, noun) if any(one.distance for one in orders) else None,
    }
    # Vega escapes what it draws; and here it draws numbers only.
    return {name: None if svg is None else Markup(svg) for name, svg in drawn.items()}


def _render(content: dict[str, Any]) -> str:
    """Return the page: the template, filled in, with every text visible and escaped."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        # What is marked as HTML was made here.
        return visible(value, keep=JOINERS) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True, finalize=shown)
    libraries, script = charts.libraries(), _file("page.js")
    return environment.from_string(_file("page.html")).render(
        **content,
        style=Markup(_file("page.css")),
        data=Markup(as_script(content["document"])),
        libraries=Markup(libraries),
        script=Markup(script),
        hashes=Markup(" ".join(_hash(text) for text in (libraries, script))),
    )


def _hash(script: str) -> str:
    """Return what allows exactly this script to run."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    """Return the text of a file next to this module."""
    return files("margrave.release.report").joinpath(name).read_text(encoding="utf-8")


def _version() -> str:
    from margrave import __version__

    return str(__version__)


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
