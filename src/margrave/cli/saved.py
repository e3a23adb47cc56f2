"""Commands that read a saved release.

``margrave query`` counts with conditions, ``margrave report`` writes the page about the release again, ``margrave
export`` writes it in the forms that others ask for, and ``margrave synthesize`` makes up rows with its tables.
"""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from margrave.cli.options import AsJson, takes
from margrave.cli.screen import Screen, console, fits, print_json, print_table, progress
from margrave.job import Job
from margrave.options import named_tables

if TYPE_CHECKING:
    from margrave.release.share import Share
    from margrave.release.table import Table as ReleaseTable

_MOST_ROWS = 200
_ROUNDING = 1e-9
# The columns of an answer that belong to the unbiased estimate; all others belong to the published number.
_OF_ESTIMATES = ("estimate", "std_error", "ci_low", "ci_high")


def query(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    condition: Annotated[
        str, typer.Argument(help="Who is counted, such as \"age > 64 and sex = 'F'\"; all if empty.")
    ] = "",
    by: Annotated[str, typer.Option("--by", help="Group by these attributes, such as region,sex.")] = "",
    share_of: Annotated[
        str | None, typer.Option("--share-of", help="The share among those who meet this condition instead.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="The level of the intervals.")] = 0.95,
    json: AsJson = False,
) -> None:
    """Answer a question from a release: the count with its expected error, the estimate with its standard error.

    Example:  margrave query release "age > 64 and sex = 'female'" --by district
    """
    from margrave.release.store.loading import load

    release = load(folder)
    names = [name.strip() for name in by.split(",") if name.strip()]
    if share_of is None:
        answer: ReleaseTable | Share = release.query(condition, by=names, level=level)
    else:
        answer = release.share(condition, of=share_of, by=names, level=level)
    rows = answer.to_arrow().to_pylist()
    if json:
        plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
        print_json({"condition": condition, "of": share_of, "level": level, "note": answer.note, "rows": plain})
        return
    screen = console()
    for table in _tables(rows, names, screen, share=share_of is not None):
        print_table(table, screen)
    if len(rows) > _MOST_ROWS:
        screen.print(f"… and {len(rows) - _MOST_ROWS:,} more; use --json for all")
    if answer.note:
        screen.print(answer.note)


def _tables(rows: list[dict[str, Any]], by: list[str], screen: Screen, *, share: bool) -> list[Table]:
    """Return the answer as a table for the terminal, or as two where one is too wide.

    Each number stands beside its own error: first what is published, then the unbiased estimates.
    """
    # A number whose name an attribute has already is called estimate_, and the attributes stand first.
    names = list(rows[0]) if rows else []
    groups, numbers = names[: len(by)], names[len(by) :]
    estimates = [name for name in numbers if name.rstrip("_") in _OF_ESTIMATES]
    published = [name for name in numbers if name not in estimates]
    whole = _shown(rows, [*groups, *published, *estimates], share=share)
    if fits(whole, screen):
        return [whole]
    parts = (("published", published), ("unbiased estimates", estimates))
    return [_shown(rows, [*groups, *part], share=share, title=title) for title, part in parts]


def _shown(rows: list[dict[str, Any]], columns: list[str], *, share: bool, title: str | None = None) -> Table:
    """Return some columns of the rows as a table for the terminal."""
    table = Table(title=title, title_justify="left")
    digits = {name: 3 if share else _digits([row[name] for row in rows]) for name in columns}
    for name in columns:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(_text(row[name], digits[name]) for name in columns))
    return table


def _digits(column: list[object]) -> int:
    """Return how many decimals a column of counts needs: none for whole numbers, one for others."""
    numbers = [value for value in column if isinstance(value, float) and math.isfinite(value)]
    return 0 if all(value == round(value) for value in numbers) else 1


def _text(value: object, digits: int) -> str:
    """Return one value as people read it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:,.{digits}f}" if isinstance(value, float) else str(value)


def _plain(value: object) -> object:
    """Return one value as JSON has it; what differs from zero only by rounding is zero."""
    if isinstance(value, float):
        return None if not math.isfinite(value) else 0.0 if abs(value) < _ROUNDING else value
    return value


@takes("report")
def report(
    asked: Job,
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The HTML file to write; by default report.html in the folder is rewritten."),
    ] = None,
) -> None:
    """Write the report of a saved release: one HTML page that needs no network.

    Example:  margrave report release --title "Census of 2026"
    """
    from margrave.release.report import NAME, recorded_imprint, renew_report, write_report
    from margrave.release.store.loading import load

    if out is None or out.resolve() == (folder / NAME).resolve():
        out = renew_report(folder, title=asked.title, **asked.imprint)
    else:
        title, imprint = recorded_imprint(folder, asked.title, asked.imprint)
        write_report(load(folder), out, title=title, **imprint)
    console().print(f"report: {out}")


class Form(StrEnum):
    """What to write."""

    CSV = "csv"
    SDMX = "sdmx"
    REGISTRY = "registry"


def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    out: Annotated[Path, typer.Option("--out", help="The new folder (csv) or file (sdmx, registry) to write.")],
    form: Annotated[
        Form,
        typer.Option("--form", help="csv: one file per table; sdmx: SDMX-CSV 2.0; registry: a draft entry (YAML)."),
    ] = Form.CSV,
    agency: Annotated[str | None, typer.Option("--agency", help="For sdmx: the agency's identifier.")] = None,
    dataflow: Annotated[str | None, typer.Option("--dataflow", help="For sdmx: the dataflow's identifier.")] = None,
    period: Annotated[str | None, typer.Option("--period", help="For sdmx: the time period, such as 2026.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="For registry: what the publication is called.")] = None,
    curator: Annotated[str | None, typer.Option("--curator", help="For registry: who publishes it.")] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--tables", help="For csv and sdmx: only this table, such as age,sex; may be repeated."),
    ] = None,
) -> None:
    """Write a saved release as CSV, as SDMX-CSV, or as a draft entry for the registry of deployments.

    Example:  margrave export release --form sdmx --agency STAT --dataflow TOWN --out release.csv
    """
    from margrave.release.export import export as write_export
    from margrave.release.export import require_form
    from margrave.release.store.loading import load

    require_form(out, form.value, agency, dataflow)
    with progress() as begin:
        write_export(
            load(folder),
            out,
            form=form.value,
            agency=agency,
            dataflow=dataflow,
            period=period,
            name=name,
            curator=curator,
            tables=named_tables(tables) if tables else None,
            progress=begin("writing"),
        )
    console().print(f"{form.value}: {out}")


def synthesize(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write: .parquet, .csv, .arrow or .feather.")],
    rows: Annotated[int | None, typer.Option("--rows", help="How many rows; the release's total by default.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="A whole number that gives the same rows again.")] = None,
    codes: Annotated[bool, typer.Option("--codes", help="Write codes 0, 1, … instead of values.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
) -> None:
    """Generate rows whose tables are close to those of a release. Costs no budget. Ctrl-C keeps the best so far.

    Example:  margrave synthesize release --out rows.parquet
    """
    from margrave.release.store.loading import load
    from margrave.synthesis.rows import checked_target

    checked_target(out, overwrite=overwrite)
    release = load(folder)
    with progress() as begin:
        made = release.synthesize(rows, seed=seed, progress=begin("making rows"))
    made.save(out, codes=codes, overwrite=overwrite)
    screen = console()
    screen.print(f"rows: {out} ({len(made):,} synthetic rows, seed {made.seed})")
    if "left_out" in made.origin:
        screen.print(f"left out: {made.origin['left_out']}")
    for sentence in made.distance_sentences():
        screen.print(sentence)
    if made.interrupted:
        screen.print("Interrupted: these are the best rows so far.")
