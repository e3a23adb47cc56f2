"""The report: one HTML page about a release that needs no network, for readers of any kind.

Text, style, script and data are put together from the files beside this module. Names and labels are free text, so they
enter the page escaped, with marks that would turn lines around written out, and the page forbids every script but its
own and every connection (Content-Security-Policy).
"""

from __future__ import annotations

import os
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margrave.atomic_file import replacing
from margrave.errors import ReleaseError
from margrave.escaping import JOINERS, visible
from margrave.release import facts
from margrave.release.facts import order_name, percent, short, whole
from margrave.release.release import Release
from margrave.release.report import charts, statements
from margrave.release.report.embedding import Embedding, as_script, embed
from margrave.release.report.findings import Findings, OrderFindings, find
from margrave.release.store.folder import replace_document, require_outside
from margrave.release.store.loading import load
from margrave.release.table import Table

if TYPE_CHECKING:
    from markupsafe import Markup

NAME = "report.html"
MOST_BYTES = 2_000_000
_TITLE = "Cross-tabulations of a private table"
_MOST_LABELS = 24
# Rows and columns of the table that stands in the page for readers without scripts.
_MOST_LINES, _MOST_COLUMNS = 60, 30


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
    """Return what the script needs beside the tables."""
    words, estimates = release.method.words, facts.estimates(release.provenance)
    agree = "" if release.method.agree else " Each table was made by itself, and they need not be the sums."
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
    """Return the text of a file beside this module."""
    return files("margrave.release.report").joinpath(name).read_text(encoding="utf-8")


def _version() -> str:
    from margrave import __version__

    return str(__version__)
