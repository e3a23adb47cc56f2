"""``margrave report``: the page about a saved release, made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from margrave.cli.options import Title
from margrave.cli.screen import console


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    out: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("report.html"),
    title: Title = None,
) -> None:
    """Write the report of a saved release: one HTML page that needs no network.

    Example:  margrave report release --out report.html --title "Census of 2026"
    """
    from margrave.release.report.page import write_report
    from margrave.release.store.loading import load

    write_report(load(folder), out, title=title)
    console().print(f"report: {out}")
