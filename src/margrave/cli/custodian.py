"""Commands for the custodian of a table; what they show is private.

``margrave domain`` drafts a domain file from a table, for a person to review; ``margrave validate`` says how a table
fits a domain.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from margrave.cli.job import Job
from margrave.cli.options import AsJson, takes
from margrave.cli.screen import Screen, console, print_json, print_table, write_json
from margrave.errors import DomainError

if TYPE_CHECKING:
    from margrave.data.draft import Draft
    from margrave.data.validation import AttributeFit, Fit, PersonFit

_MOST_CATEGORIES = 6
_DOES_NOT_FIT = 2


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
    _show_draft(drafted, screen)
    if not len(drafted.domain):
        raise DomainError("no column has few values or numbers", remedy="declare the domain by hand")
    if out is None:
        write_json(drafted.domain.to_json())
        return
    drafted.domain.write(out)
    screen.print(
        f'{out} is written: check it, compare it with the table (margrave validate), set "reviewed" to true in it'
    )


def _show_draft(drafted: Draft, screen: Screen) -> None:
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
    from margrave.domain.domain import Domain

    declared = Domain.read(domain)
    found = validation.validate(asked.source(), declared)
    if json:
        print_json(found.to_dict())
    else:
        _show_fit(found, validation.NOT_FOR_PUBLICATION, draft=declared.unreviewed)
    if not found.fits:
        raise typer.Exit(_DOES_NOT_FIT)


def _show_fit(found: Fit, warning: str, *, draft: bool) -> None:
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
