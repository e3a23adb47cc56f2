"""``margrave report``: the page about a saved release, made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from margrave.cli.options import Title
from margrave.cli.screen import console

_NAME = "report.html"


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The HTML file to write; by default report.html in the folder is renewed."),
    ] = None,
    title: Title = None,
) -> None:
    """Write the report of a saved release: one HTML page that needs no network.

    Example:  margrave report release --title "Census of 2026"
    """
    from margrave.release.report.page import report as page
    from margrave.release.report.page import write_report
    from margrave.release.store.documents import replace_document
    from margrave.release.store.loading import load

    release, own = load(folder), folder / _NAME
    if out is None or out.resolve() == own.resolve():
        replace_document(folder, _NAME, page(release, title=title))
    else:
        write_report(release, out, title=title)
    console().print(f"report: {own if out is None else out}")
