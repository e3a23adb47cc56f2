"""``margrave validate``: how a table fits a domain, for its custodian."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from margrave.cli.job import Job
from margrave.cli.options import AsJson, takes
from margrave.cli.screen import Screen, console, print_json, print_table

if TYPE_CHECKING:
    from margrave.data.validation import AttributeFit, Fit, PersonFit

_MOST_CATEGORIES = 6
_DOES_NOT_FIT = 2


@takes("validate", required=["data"])
def validate(
    asked: Job,
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="The domain file.")],
    json: AsJson = False,
) -> None:
    """Show how a table fits a domain: PRIVATE, for the custodian's eyes only. Exit code 0 if it fits, 2 if not.

    Example:  margrave validate people.parquet domain.json
    """
    from margrave.data import validation
    from margrave.domain import Domain

    declared = Domain.read(domain)
    found = validation.validate(asked.source(), declared)
    if json:
        print_json(found.to_dict())
    else:
        _show(found, validation.NOT_FOR_PUBLICATION, draft=declared.unreviewed)
    if not found.fits:
        raise typer.Exit(_DOES_NOT_FIT)


def _show(found: Fit, warning: str, *, draft: bool) -> None:
    """Show the fit of each attribute on the screen."""
    screen = console()
    screen.print(warning, style="bold red")
    listing = Table()
    for name in ("attribute", "not declared", "missing", "categories without a row", "verdict"):
        listing.add_column(name, justify="right" if name in ("not declared", "missing") else "left")
    for one in found.attributes:
        listing.add_row(*_cells(one))
    print_table(listing)
    for one in found.attributes:
        if one.examples:
            screen.print(f"not declared in {one.attribute.name}, for example: {', '.join(one.examples)}")
        if one.problem:
            screen.print(f"{one.attribute.name}: {one.problem}")
    if found.dropped:
        screen.print(f"{found.dropped:,} rows are dropped from every table")
    if found.persons is not None:
        _show_persons(found.persons, screen, dropped=found.dropped > 0)
    verdict = "the table fits the domain" if found.fits else "the table does not fit the domain"
    note = "; the domain is a draft that is not reviewed yet" if draft else ""
    screen.print(f"{verdict}{note}")


def _show_persons(persons: PersonFit, screen: Screen, *, dropped: bool) -> None:
    """Show how many rows persons have, and what a limit on them would cost."""
    screen.print(f"{persons.rows:,} rows{' are left' if dropped else ''}; at most {persons.most:,} of one person")
    listing = Table(title="rows that are left out by --contributions", title_justify="left")
    for most in persons.lost:
        listing.add_column(f"{most}", justify="right")
    listing.add_row(*(f"{share:.2%}" for share in persons.lost.values()))
    print_table(listing)
    if persons.problem:
        screen.print(f"the privacy id: {persons.without_id:,} {persons.problem}")


def _goes(rows: int, category: str | None, *, dropped: bool = False) -> str:
    """Return how many rows have such a value, and where these are counted."""
    if not rows or (category is None and not dropped):
        return f"{rows:,}"
    return f"{rows:,}, dropped with their rows" if dropped else f"{rows:,} → {category!r}"


def _cells(one: AttributeFit) -> tuple[str, ...]:
    """Return the line of an attribute."""
    more = [f"and {len(one.empty) - _MOST_CATEGORIES:,} more"] if len(one.empty) > _MOST_CATEGORIES else []
    empty = ", ".join([*one.empty[:_MOST_CATEGORIES], *more])
    verdict = "does not fit" if one.problem else "fits"
    attribute = one.attribute
    if not one.present:
        return attribute.name, "–", "–", "–", verdict
    outside = _goes(one.outside, attribute.other, dropped=attribute.outside == "drop")
    return attribute.name, outside, _goes(one.missing, attribute.missing), empty, verdict
