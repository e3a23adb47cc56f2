"""``margrave validate``: how a table fits a domain, for its custodian."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from margrave.cli.options import AsJson, QueryOption, TableOption
from margrave.cli.screen import console, print_json

if TYPE_CHECKING:
    from margrave.data.fitting import AttributeFit, Fit

_MOST_CATEGORIES = 6
_DOES_NOT_FIT = 2


def validate(
    data: Annotated[str, typer.Argument(metavar="DATA", help="The private table: a file, or a URL of a database.")],
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="The domain file.")],
    table: TableOption = None,
    query: QueryOption = None,
    json: AsJson = False,
) -> None:
    """Show how a table fits a domain: PRIVATE, for the custodian's eyes only. Exit code 0 if it fits, 2 if not.

    Example:  margrave validate people.parquet domain.json
    """
    from margrave.data.description import Data
    from margrave.data.fitting import NOT_FOR_PUBLICATION, fit
    from margrave.domain import Domain

    declared = Domain.read(domain)
    found = fit(Data(data, table=table, query=query), declared)
    if json:
        print_json(_plain(found, NOT_FOR_PUBLICATION))
    else:
        _show(found, NOT_FOR_PUBLICATION, draft=declared.unreviewed)
    if not found.fits:
        raise typer.Exit(_DOES_NOT_FIT)


def _show(found: Fit, warning: str, *, draft: bool) -> None:
    """Show the fit of each attribute on the screen."""
    screen = console()
    screen.print(f"[bold red]{warning}[/]")
    listing = Table()
    for name in ("attribute", "not declared", "missing", "categories without a row", "verdict"):
        listing.add_column(name, justify="right" if name in ("not declared", "missing") else "left")
    for one in found.attributes:
        listing.add_row(*(escape(cell) for cell in _cells(one)))
    screen.print(listing)
    for one in found.attributes:
        if one.examples:
            screen.print(f"not declared in {one.attribute.name}, for example: {', '.join(one.examples)}", markup=False)
        if one.problem:
            screen.print(f"{one.attribute.name}: {one.problem}", markup=False)
    if found.dropped:
        screen.print(f"{found.dropped:,} rows are dropped from every table")
    verdict = "the table fits the domain" if found.fits else "the table does not fit the domain"
    note = "; the domain is a draft that is not reviewed yet" if draft else ""
    screen.print(f"{verdict}{note}")


def _cells(one: AttributeFit) -> tuple[str, ...]:
    """Return the line of an attribute."""
    more = [f"and {len(one.empty) - _MOST_CATEGORIES:,} more"] if len(one.empty) > _MOST_CATEGORIES else []
    empty = ", ".join([*one.empty[:_MOST_CATEGORIES], *more])
    verdict = "does not fit" if one.problem else "fits"
    return one.attribute.name, f"{one.outside:,}", f"{one.missing:,}", empty, verdict


def _plain(found: Fit, warning: str) -> dict[str, Any]:
    """Return the fit as JSON can hold it."""
    attributes = [
        {
            "name": one.attribute.name,
            "outside": one.outside,
            "examples": list(one.examples),
            "missing": one.missing,
            "empty": list(one.empty),
            "problem": one.problem,
        }
        for one in found.attributes
    ]
    return {"warning": warning, "fits": found.fits, "dropped": found.dropped, "attributes": attributes}
