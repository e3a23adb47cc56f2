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
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from margrave.domain.values import distinct_categories, table_label
from margrave.errors import ReleaseError, StoreError, expected
from margrave.escaping import JOINERS, visible
from margrave.files import replacing
from margrave.release import facts
from margrave.release.count_errors import BOUNDS, Bounds, Reliability
from margrave.release.facts import Imprint, order_name, percent, short, whole
from margrave.release.release import Release
from margrave.release.report import charts, statements
from margrave.release.report.findings import Findings, Headline, OrderFindings, Reliabilities, find, headline
from margrave.release.store.folder import imprint_document, read_imprint, replace_document, require_outside

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import AttributeSet
    from margrave.domain.domain import Domain
    from margrave.release.table import Table

NAME = "report.html"
MOST_BYTES = 2_000_000
_TITLE = "Cross-tabulations of a private table"
_MOST_LABELS = 24
# Rows and columns of the table that stands on the first screen, and needs no script.
_MOST_LINES, _MOST_COLUMNS = 24, 9
# How counts are marked that are to be used with care, and those that are too uncertain to quote.
MARKS = ("", "*", "**")
_FLAGS = {one.value: place for place, one in enumerate(Reliability)}
# Attributes in the map of errors, from how many on it is wide, and how many tables are listed one by one.
_MOST_MAPPED, _MANY_MAPPED, _MOST_LISTED = 60, 14, 250
# The page shows two attributes at a time, for one value of a third.
MOST_ATTRIBUTES = 3
# A first table that fits on a screen and has something to compare, if there is one: so many values on either side.
_READABLE = range(3, 10)
# And so many where two groups are compared.
_COMPARED = range(2, 10)
# What could end a script element, or start a comment in one, and the line ends that JSON allows and JavaScript did not.
_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def report(
    release: Release, *, title: str | None = None, most_bytes: int = MOST_BYTES, **imprint: Unpack[Imprint]
) -> str:
    """Return a page about a release: what was released, how private and how exact it is, with tables to look at.

    The page is one HTML text of 1 to 3.5 MB that needs nothing else. Needs the extra ``[report]``.

    Parameters
    ----------
    release
        What to report on.
    title
        The heading; by default the description of the domain.
    most_bytes
        The most bytes of tables to put into the page. Tables of one attribute come first, then of two, then of three,
        the smallest first; the page says what it leaves out.
    **imprint
        ``publisher``, ``licence``, ``contact`` and ``date``, as texts; what is given stands at the head of the page and
        in the citation.
    """
    _check_request(release, title, most_bytes, imprint)
    charts.require_report()
    findings = find(release)
    embedding = embed(release, most_bytes=most_bytes)
    described = release.workload.domain.description
    heading = title or described[:1].upper() + described[1:] or _TITLE
    return _render(_content(release, heading, findings, embedding, imprint))


def write_report(
    release: Release,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    most_bytes: int = MOST_BYTES,
    **imprint: Unpack[Imprint],
) -> None:
    """Write the page of `report` to a file, which is replaced as a whole or, on failure, left as it was.

    The file must not be in the folder of a release: `renew_report` writes it there.

    Parameters
    ----------
    release
        What to report on.
    path
        The file to write.
    title, most_bytes, **imprint
        As for `report`.
    """
    file = Path(path)
    require_outside(file)
    text = report(release, title=title, most_bytes=most_bytes, **imprint)
    try:
        with replacing(file) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise StoreError(f"{file} cannot be written ({error.strerror})", remedy="name another file") from error


def renew_report(folder: str | os.PathLike[str], *, title: str | None = None, **imprint: Unpack[Imprint]) -> Path:
    """Write the report of a saved release into its folder again, and return its path.

    Parameters
    ----------
    folder
        A folder that `Release.save` has written.
    title, **imprint
        As for `report`. What is not given is as the folder records it, and what is given is recorded there.
    """
    from margrave.release.store.loading import load

    release = load(folder)
    _check_request(release, title, MOST_BYTES, imprint)
    title, imprint = recorded_imprint(folder, title, imprint)
    page = report(release, title=title, **imprint)
    for name, text in {**imprint_document(title, imprint), NAME: page}.items():
        replace_document(folder, name, text)
    return Path(folder) / NAME


def recorded_imprint(folder: str | os.PathLike[str], title: str | None, imprint: Imprint) -> tuple[str | None, Imprint]:
    """Return the title and the imprint of a saved release: what is given, and for the rest what its folder records.

    Parameters
    ----------
    folder
        A folder that `Release.save` has written.
    title, imprint
        As for `report`.
    """
    called, kept = read_imprint(folder)
    kept = {
        "publisher": imprint.get("publisher") or kept.get("publisher"),
        "licence": imprint.get("licence") or kept.get("licence"),
        "contact": imprint.get("contact") or kept.get("contact"),
        "date": imprint.get("date") or kept.get("date"),
    }
    return called if title is None else title, kept


def _check_request(release: object, title: object, most_bytes: object, imprint: Mapping[str, object]) -> None:
    """Refuse anything but a release, a title, a number of bytes and the texts of an imprint."""
    if not isinstance(release, Release):
        raise ReleaseError(expected("a Release", release), remedy="give what reconstruct() returns")
    for name, text in {"title": title, **imprint}.items():
        if name not in ("title", *Imprint.__annotations__):
            raise ReleaseError(
                f"the page has no place for {name!r}", remedy=f"give {', '.join(Imprint.__annotations__)} or title"
            )
        if text is not None and (not isinstance(text, str) or not _is_whole_text(text)):
            raise ReleaseError(
                f"the {name} is {text!r}", remedy="give text that can be written as UTF-8, or leave it out"
            )
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


def _content(
    release: Release, title: str, findings: Findings, embedding: Embedding, imprint: Imprint
) -> dict[str, Any]:
    """Return everything that the template fills in."""
    record = release.provenance
    noun = facts.noun(record)
    return {
        "title": title,
        "version": _version(),
        "imprint": [(name.capitalize(), text) for name in Imprint.__annotations__ if (text := imprint.get(name))],
        "warning": facts.caution(record),
        "lede": statements.lede(release),
        "finding": None if embedding.headline is None else statements.finding(embedding.headline, noun),
        "facts": statements.numbers(release, findings),
        "privacy_words": statements.privacy_words(record),
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
        "reliability": statements.reliability(release, findings),
        "marks": statements.marks(release),
        "bounds": [f"{100 * bound:g} %" for bound in (_bounds(release).reliable, _bounds(release).care)],
        "map": _error_map(release, findings, embedding),
        "listed": _listed_tables(release, findings),
        "remainder": statements.remainder(release, findings),
        "below_zero": statements.below_zero(release, findings),
        "orders": [_order_row(one) for one in findings.orders],
        "charts": _charts(findings, noun),
        "citation": statements.citation(title, release, imprint.get("publisher"), imprint.get("date")),
        "reuse": statements.reuse(release, imprint.get("licence")),
        "record": statements.record_rows(release),
        "document": {**embedding.document, **_script_parts(release)},
    }


def _error_map(release: Release, findings: Findings, embedding: Embedding) -> dict[str, object] | None:
    """Return the errors of all tables as a square; None where nothing is known, or where it would be too large.

    On and below the diagonal stand the tables of one and two attributes, above it all larger ones that have both.
    """
    members = sorted({k for one in findings.relative if len(one) in (1, 2) for k in one})
    if not 1 < len(members) <= _MOST_MAPPED:
        return None
    carried, names, larger = set(embedding.sets), release.workload.domain.attributes, findings.larger
    bounds = _bounds(release)
    rows = []
    for row in members:
        cells = []
        for column in members:
            one = tuple(sorted({row, column}))
            value = findings.relative.get(one) if column <= row else larger.get(one)
            band = 0 if value is None else int(value > bounds.reliable) + int(value > bounds.care)
            text = "" if value is None else statements.relative(value)
            linked = column <= row and one in carried
            cells.append({"text": text, "band": band, "mark": MARKS[band], "key": _key(one) if linked else ""})
        rows.append((names[row], cells))
    return {
        "names": [names[k] for k in members],
        "rows": rows,
        "many": len(members) > _MANY_MAPPED,
        "larger": bool(larger),
        "of": "published counts" if findings.tables else facts.estimates(release.provenance),
    }


def _bounds(release: Release) -> Bounds:
    """Return where counts stop being reliable."""
    return BOUNDS if release.errors is None else release.errors.bounds


def _listed_tables(release: Release, findings: Findings) -> dict[str, object] | None:
    """Return how many cells of each table are reliable, small tables first, as far as a page can list them."""
    if not findings.tables:
        return None
    domain = release.workload.domain
    wanted = sorted(findings.tables, key=lambda members: (len(members), members))
    rows = [
        (table_label(domain.names(members), total="total"), _reliable_row(findings.tables[members]))
        for members in wanted[:_MOST_LISTED]
    ]
    return {"rows": rows, "more": max(0, len(wanted) - _MOST_LISTED)}


def _reliable_row(one: Reliabilities | None) -> dict[str, str]:
    """Return the shares of the cells of some tables that are reliable, and their typical error."""
    if one is None:
        return dict.fromkeys(("cells", "reliable", "care", "uncertain", "typical"), "–")
    return {
        "cells": f"{one.cells:,}",
        "reliable": percent(one.reliable / one.cells),
        "care": percent(one.care / one.cells),
        "uncertain": percent(1 - (one.reliable + one.care) / one.cells),
        "typical": statements.relative(one.typical),
    }


def _script_parts(release: Release) -> dict[str, object]:
    """Return what the script needs in addition to the tables."""
    words, estimates = release.method.words, facts.estimates(release.provenance)
    agree = "" if release.method.agree else " Each table was made separately, so these need not be the sums."
    return {
        "charts": {"heatMap": charts.heat_map(), "errorBars": charts.error_bars()},
        "twoProducts": not release.method.unbiased,
        "noun": facts.noun(release.provenance),
        "words": {
            "count": words.counts,
            "estimate": estimates,
            "marks": MARKS,
            "flags": [one.value for one in Reliability],
            "key": {
                "from": f"bar: 95 % interval of the {estimates.removesuffix('s')}, not cut at zero",
                "estimate": f"dot: {estimates.removesuffix('s')}",
                "countLow": f"thin bar: 95 % interval of the {words.count}",
                "count": f"diamond: {words.count}",
            },
            "totals": f"The row and column “all” are tables of their own, each with its own interval.{agree}",
            "percent": "The interval of a percentage contains the true one whenever the intervals of both its counts "
            "do, and is wider than it need be; margrave query with --share-of gives a narrower one.",
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
    told = embedding.headline
    found = {} if told is None else {told.group: told.group_label, told.name: told.label}
    rows, columns = len(table.categories[0]), 1 if len(names) == 1 else len(table.categories[1])
    return {
        "row_name": names[0],
        "column_name": names[1] if len(names) > 1 else "",
        "column_labels": (*table.categories[1][:_MOST_COLUMNS], "all") if len(names) > 1 else ("all",),
        "rows": _lines(release, table),
        "found": tuple(table.categories[axis].index(found[name]) for axis, name in enumerate(names)) if found else (),
        "cut": f"The first {min(rows, _MOST_LINES):,} of {rows:,} rows and {min(columns, _MOST_COLUMNS):,} of "
        f"{columns:,} columns are shown here."
        if rows > _MOST_LINES or columns > _MOST_COLUMNS
        else "",
        "product": release.method.words.counts,
        "estimates": facts.estimates(release.provenance),
        "intervals": table.count_low is not None or table.ci_low is not None,
        "note": table.note if table.count_low is None else "",
        "reading": statements.reading(release, table),
    }


def _lines(release: Release, table: Table) -> list[tuple[str, list[dict[str, str]]]]:
    """Return the rows of a table of one or two attributes as texts, with its sums in the last row and column."""
    total = release.table()
    grid = table if len(table.attributes) > 1 else None
    rows = release.table(table.attributes[0])
    columns = None if grid is None else release.table(table.attributes[1])
    lines = []
    for row, label in enumerate(table.categories[0][:_MOST_LINES]):
        width = 0 if grid is None else min(_MOST_COLUMNS, len(table.categories[1]))
        cells = [_shown_cell(table, (row, column)) for column in range(width)]
        lines.append((label, [*cells, _shown_cell(rows, (row,))]))
    sums = [] if columns is None else [_shown_cell(columns, (k,)) for k in range(len(table.categories[1]))]
    return [*lines, ("all", [*sums[:_MOST_COLUMNS], _shown_cell(total, ())])]


def _shown_cell(table: Table, place: tuple[int, ...]) -> dict[str, str]:
    """Return a cell as texts: its count, its interval and the mark of its reliability."""
    low, high = (table.ci_low, table.ci_high) if table.count_low is None else (table.count_low, table.count_high)
    words = table.reliability()
    flag = 0 if words is None else _FLAGS[str(words[place])]
    return {
        "count": whole(float(table.values[place])),
        "between": "" if low is None or high is None else f"{short(float(low[place]))} to {short(float(high[place]))}",
        "mark": MARKS[flag],
        "class": ("", "care", "uncertain")[flag],
    }


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
        **{name: text for name, text in _reliable_row(one.reliability).items() if name != "cells"},
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
    from markupsafe import Markup

    libraries, script = charts.libraries(), _file("page.js")
    return _template().render(
        **content,
        style=Markup(_file("page.css")),
        data=Markup(as_script(content["document"])),
        libraries=Markup(libraries),
        script=Markup(script),
        hashes=Markup(" ".join(_hash(text) for text in (libraries, script))),
    )


@cache
def _template() -> Template:
    """Return the template of all pages."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        # What is marked as HTML was made here.
        return visible(value, keep=JOINERS) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True, finalize=shown)
    return environment.from_string(_file("page.html"))


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
        The table to show first, rows then columns: that of the headline with the longer list in the rows, or else one
        of two attributes and readable size, if there is one.
    headline
        The finding to begin with; None if there is none.
    """

    document: Mapping[str, object]
    sets: tuple[AttributeSet, ...]
    left_out: tuple[int, ...]
    first: AttributeSet
    headline: Headline | None = None


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
    domain = release.workload.domain
    pairs = [one for one in sets if len(one) == 2 and all(domain.shape[k] in _COMPARED for k in one)]
    found = headline(release, pairs)
    told = () if found is None else tuple(map(domain.attributes.index, (found.group, found.name)))
    # The longer list runs down the page.
    first = tuple(sorted(told, key=lambda k: -domain.shape[k])) or _first(box.tables, domain)
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
        headline=found,
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
        new = {
            k: distinct_categories(list(map(_shown, attributes[k].categories)))
            for k in members
            if k not in self._labels
        }
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
    words = table.reliability()
    if words is not None and table.count_low is not None and table.count_high is not None:
        entry["countLow"], entry["countHigh"] = _rounded(table.count_low, 0), _rounded(table.count_high, 0)
        # One digit a cell.
        entry["flag"] = "".join(str(_FLAGS[word]) for word in words.ravel())
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
        known = "low" in tables[members] or "countLow" in tables[members]
        return abs(len(members) - 2), not known, not readable, members

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
