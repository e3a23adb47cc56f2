"""``margrave domain``: a draft of a domain file from a table, for a person to review."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from margrave.cli.job import Job
from margrave.cli.options import takes
from margrave.cli.screen import Screen, print_table, write_json
from margrave.errors import DomainError

if TYPE_CHECKING:
    from margrave.data.draft import Draft

_MOST_CATEGORIES = 6


@takes("domain", required=["data"])
def domain(
    asked: Job,
    out: Annotated[Path | None, typer.Option("--out", help="The file to write; standard output if not given.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="The columns to look at, as age,sex; all if not given.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")] = False,
) -> None:
    """Draft a domain file from a table, for a person to review. What it holds is PRIVATE until then.

    Example:  margrave domain people.parquet --out domain.json
    """
    from margrave.data.draft import draft_domain

    if out is not None and out.exists() and not overwrite:
        raise DomainError(f"{out} exists already", remedy="give another name, or --overwrite to replace it")
    chosen = None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]
    drafted = draft_domain(asked.source(), chosen)
    # The draft itself may go into a pipe; messages about it must not.
    screen = Screen(stderr=out is None)
    screen.print(drafted.domain.draft, style="bold red")
    _show(drafted, screen)
    if not len(drafted.domain):
        raise DomainError("no column has few values or numbers", remedy="declare the domain by hand")
    if out is None:
        write_json(drafted.domain.to_json())
        return
    drafted.domain.write(out)
    screen.print(
        f'{out} is written: check it, compare it with the table (margrave validate), set "reviewed" to true in it'
    )


def _show(drafted: Draft, screen: Screen) -> None:
    """Show which columns are in the draft, and which are not and why."""
    listing = Table(title="PRIVATE: drafted from the data", title_justify="left")
    for name in ("attribute", "size", "categories"):
        listing.add_column(name, justify="right" if name == "size" else "left")
    for attribute in drafted.domain:
        shown = [_edged(category) for category in attribute.categories[:_MOST_CATEGORIES]]
        more = ["…"] if attribute.size > _MOST_CATEGORIES else []
        listing.add_row(attribute.name, f"{attribute.size:,}", ", ".join([*shown, *more]))
    print_table(listing, screen)
    for name, texts in drafted.odd.items():
        screen.print(
            f"{name}: numbers, and texts such as {', '.join(map(repr, texts))}, which are counted as "
            f"{drafted.domain[name].other!r}"
        )
    for name, reason in drafted.left_out.items():
        screen.print(f"left out: {name} ({reason})")


def _edged(category: str) -> str:
    """Return a category so that blanks at its edges are seen."""
    return category if category and category == category.strip() else repr(category)
