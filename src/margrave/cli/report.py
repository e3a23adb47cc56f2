"""``margrave report``: the page about a saved release, written again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from margrave.cli.job import Job
from margrave.cli.options import takes
from margrave.cli.screen import console


@takes("report")
def report(
    asked: Job,
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The HTML file to write; by default report.html in the folder is renewed."),
    ] = None,
) -> None:
    """Write the report of a saved release: one HTML page that needs no network.

    Example:  margrave report release --title "Census of 2026"
    """
    from margrave.release.report.page import NAME, renew_report, write_report
    from margrave.release.store.loading import load

    if out is None or out.resolve() == (folder / NAME).resolve():
        out = renew_report(folder, title=asked.title)
    else:
        write_report(load(folder), out, title=asked.title)
    console().print(f"report: {out}")
