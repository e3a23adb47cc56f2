"""``margrave query``: counts with conditions, from a saved release."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from margrave.cli.options import AsJson
from margrave.cli.screen import console, print_json, print_table

if TYPE_CHECKING:
    from margrave.release.share import Share
    from margrave.release.table import Table as ReleaseTable

_MOST_ROWS = 200
_ROUNDING = 1e-9


def query(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    condition: Annotated[str, typer.Argument(help="Who is counted, as \"age > 64 and sex = 'F'\"; all if empty.")] = "",
    by: Annotated[str, typer.Option("--by", help="Group by these attributes, as region,sex.")] = "",
    share_of: Annotated[
        str | None, typer.Option("--share-of", help="The share among those who meet this condition instead.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="The level of the intervals.")] = 0.95,
    json: AsJson = False,
) -> None:
    """Answer a question from a release, with its exact standard error.

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
    print_table(_shown(rows))
    if len(rows) > _MOST_ROWS:
        screen.print(f"… and {len(rows) - _MOST_ROWS:,} more; use --json for all")
    if answer.note:
        screen.print(answer.note)


def _shown(rows: list[dict[str, Any]]) -> Table:
    """Return the answer as a table for the terminal."""
    table = Table()
    digits = {name: _digits([row[name] for row in rows]) for name in (rows[0] if rows else {})}
    for name, value in (rows[0] if rows else {}).items():
        table.add_column(name, justify="left" if isinstance(value, str) else "right")
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(_text(value, digits[name]) for name, value in row.items()))
    return table


def _digits(column: list[object]) -> int:
    """Return how many decimals a column needs: none for whole numbers, three for shares, one for other numbers."""
    numbers = [value for value in column if isinstance(value, float) and math.isfinite(value)]
    if all(value == round(value) for value in numbers):
        return 0
    return 3 if max(map(abs, numbers)) <= 1 else 1


def _text(value: object, digits: int) -> str:
    """Return one value as people read it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:,.{digits}f}" if isinstance(value, float) else str(value)


def _plain(value: object) -> object:
    """Return one value as JSON has it; what differs from zero by rounding alone is zero."""
    if isinstance(value, float):
        return None if not math.isfinite(value) else 0.0 if abs(value) < _ROUNDING else value
    return value
