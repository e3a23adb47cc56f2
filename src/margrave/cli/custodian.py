"""Commands for the custodian of a table; what they show is private.

``margrave domain`` drafts a domain file from a table, for a person to review; ``margrave validate`` says how a table
fits a domain; ``margrave ledger`` shows and repairs the record of what is spent on it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from margrave.cli.options import AsJson, in_words_of_options, takes
from margrave.cli.screen import Screen, console, lines, print_json, print_table, write_json
from margrave.errors import DomainError
from margrave.job import Job, budget_of
from margrave.options import options_of

if TYPE_CHECKING:
    from margrave.custodian import CellError, TableErrors
    from margrave.data.draft import Draft
    from margrave.data.validation import AttributeFit, Fit, PersonFit
    from margrave.privacy.ledger import Balance

_MOST_CATEGORIES = 6
OTHER = "other"
_DOES_NOT_FIT = 2
_DETAILS = ("title", "address", "table", "workload", "release")
_SHOWN_HASH = 12
# How a table is read, as far as every command that reads it must be told.
_OF_CSV = ("trim", "null", "header", "names", "delimiter", "encoding", "decimal", "table", "query")

File = Annotated[Path, typer.Argument(help="The ledger.")]
ShownDelta = Annotated[
    float | None,
    typer.Option("--delta", help="The δ at which ε is stated; by default that of the last charge.", show_default=False),
]


@takes("domain", required=["data"])
def domain(
    asked: Job,
    out: Annotated[Path | None, typer.Option("--out", help="The file to write; standard output if not given.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="The columns to look at, such as age,sex; all if not given.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")] = False,
) -> None:
    """Draft a domain file from a table, for a person to review. What it holds is PRIVATE until then.

    Example:  margrave domain people.parquet --out domain.json
    """
    from margrave.data.draft import draft_domain

    if out is not None and out.exists() and not overwrite:
        raise DomainError(f"{out} already exists", remedy="give another name, or --overwrite to replace it")
    chosen = None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]
    drafted = draft_domain(asked.source(), chosen)
    typed = {name: value for name in _OF_CSV if (value := getattr(asked, name)) is not None}
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
    screen.print(f'{out} is written: check every line of it, then set "reviewed" to true in it')
    asking = shlex.join(["margrave", "validate", str(asked.data), str(out)])
    screen.print(f"then compare it with the table: {asking} {_reading_words({**typed, **drafted.reading})}".rstrip())


def _reading_words(reading: Mapping[str, Any]) -> str:
    """Return the options of the command line for how a table is read."""
    # Names of columns say already that the file has no header.
    told = {name: value for name, value in reading.items() if not (name == "header" and reading.get("names"))}
    return shlex.join(word for one in options_of(Job) for word in one.words(told.get(one.name)))


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
    if drafted.reading:
        screen.print(
            f"these options were guessed from the file and used: {_reading_words(drafted.reading)} "
            "(check them, and give them to validate and release too)"
        )
        if drafted.reading.get("header") is False:
            screen.print(
                "the columns have no names: draft again with --overwrite and --names, as in --names age,sex,region"
            )
    for name, texts in drafted.rare.items():
        few = ", ".join([*map(repr, texts[:_MOST_CATEGORIES]), *(["…"] if len(texts) > _MOST_CATEGORIES else [])])
        other = drafted.domain[name].other
        put = f'leave them out and declare "other": "{OTHER}"' if other is None else f"they are counted as {other!r}"
        screen.print(f"{name}: fewer than 1 in 1,000 rows have {few}: {put}, or put them in groups")
    if drafted.rare:
        screen.print('(groups are written in place of labels, as in "groups": {"west": ["a", "b"], "east": ["c"]})')
    for first, second in drafted.determined:
        if (second, first) not in drafted.determined:
            screen.print(f"{first} determines {second}: a table of both says no more than one of {first}")
        elif first < second:
            screen.print(f"{first} and {second} determine each other: keep one of them, both cost budget")
    for name, texts in drafted.odd.items():
        screen.print(
            f"{name}: numbers, and texts such as {', '.join(map(repr, texts))}, which are counted as "
            f"{drafted.domain[name].other!r}"
        )
    for name, reason in drafted.left_out.items():
        screen.print(f"left out: {name} ({in_words_of_options(reason)})")


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
        for said in filter(None, (one.problem, one.hint)):
            screen.print(in_words_of_options(f"{one.attribute.name}: {said}"))
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


@takes("evaluate")
def evaluate(
    asked: Job,
    folder: Annotated[Path, typer.Argument(metavar="RELEASE", help="The folder of a release.")],
    truth: Annotated[str, typer.Argument(metavar="TRUTH", help="The private table that it was made from.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="A JSON file to write, outside of any release; it is PRIVATE.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="The level of the intervals.")] = 0.95,
    worst: Annotated[int, typer.Option("--worst", help="How many of the worst tables and cells to show.")] = 10,
    json: AsJson = False,
) -> None:
    """Show how far a release is from the truth: PRIVATE, for the custodian's eyes only.

    Example:  margrave evaluate release people.csv
    """
    from dataclasses import replace

    from margrave import custodian
    from margrave.release.store.folder import require_outside
    from margrave.release.store.loading import load

    if out is not None:
        require_outside(out)
    found = custodian.evaluate(load(folder), replace(asked, data=truth).source(), level=level)
    if out is not None:
        found.write(out)
    if json:
        print_json(found.to_dict())
        return
    screen = console()
    screen.print(custodian.WARNING, style="bold red")
    _print_errors("by number of attributes", found.orders, found.level)
    _print_errors("the worst tables", found.tables[: max(worst, 0)], found.level)
    _print_cells(found.cells[: max(worst, 0)])
    screen.print(custodian.CHOICE)


def _print_cells(cells: Sequence[CellError]) -> None:
    """Print the counts that are furthest from the truth."""
    listing = Table(title="PRIVATE: the worst cells", title_justify="left")
    for name in ("table", "cell", "count", "truth", "error"):
        listing.add_column(name, justify="left" if name in ("table", "cell") else "right")
    for one in cells:
        numbers = (f"{one.count:,.1f}", f"{one.truth:,.0f}", f"{one.error:,.1f}")
        listing.add_row(one.table, ", ".join(one.categories), *numbers)
    print_table(listing)


def _print_errors(title: str, rows: Sequence[TableErrors], level: float) -> None:
    """Print the errors of some tables: of the counts, then of the estimates, each with how often intervals cover."""
    listing = Table(title=f"PRIVATE: {title}; covered: the truth is in the {level:.0%} interval", title_justify="left")
    names = ("tables", "cells", "count: mean error", "largest", "covered", "estimate: mean error", "covered")
    for name in names:
        listing.add_column(name, justify="left" if name == "tables" else "right")
    for one in rows:
        estimate = "–" if one.estimate_error is None else f"{one.estimate_error:,.2f}"
        covered = ["–" if share is None else f"{share:.1%}" for share in (one.count_coverage, one.coverage)]
        count = f"{one.count_error:,.2f}"
        listing.add_row(one.attributes, f"{one.cells:,}", count, f"{one.worst:,.1f}", covered[0], estimate, covered[1])
    print_table(listing)


class _ShownByDefault(TyperGroup):
    """The commands of the ledger; words that name none of them are for ``show``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Put ``show`` before words that begin with no command."""
        if args[:1] not in [[word] for word in (*self.commands, "-h", "--help")]:
            args = ["show", *args]
        return super().parse_args(ctx, args)


ledger = typer.Typer(
    name="ledger",
    cls=_ShownByDefault,
    help="Show what was spent on a data set, and what is left: `margrave ledger FILE`. Create a ledger, or repair one.",
)


@ledger.command()
def show(file: File, delta: ShownDelta = None, json: AsJson = False) -> None:
    """Show what was spent on a data set, and what is left. `margrave ledger FILE` does the same.

    Example:  margrave ledger people.ledger
    """
    from margrave.privacy.ledger import Ledger

    record = Ledger(file)
    if json:
        print_json(record.to_dict(delta))
        return
    entries, balance = record.entries(), record.balance(delta)
    screen = console()
    table = Table(title=f"{file}", title_justify="left")
    for name in ("entry", "time", "ρ", "purpose", "details", "hash"):
        table.add_column(name, justify="right" if name in ("entry", "ρ") else "left")
    for one in entries:
        details = lines(f"{name}: {one.details[name]}" for name in _DETAILS if name in one.details)
        table.add_row(str(one.number), one.time, f"{float(one.rho):.6g}", one.purpose, details, one.hash[:_SHOWN_HASH])
    if entries:
        print_table(table)
    else:
        screen.print(f"{file}: nothing is charged yet")
    _print_balance(balance)
    if record.torn is not None:
        screen.print(record.torn)


@ledger.command()
@takes("create")
def create(asked: Job, file: File) -> None:
    """Create a ledger with a cap for the life of the data set, before anything is spent.

    Example:  margrave ledger create people.ledger --cap-epsilon 2 --delta 1e-9
    """
    from margrave.privacy.ledger import Ledger

    begun = Ledger.create(file, budget_of(asked.cap_epsilon, asked.cap_rho, asked.delta, "cap-"))
    console().print(f"New ledger: {file}")
    _print_balance(begun.balance(asked.delta))


@ledger.command()
def repair(
    file: File,
    rho: Annotated[
        float | None,
        typer.Option("--rho", help="What to book if the torn line does not say: the charge that was being made."),
    ] = None,
) -> None:
    """Book the torn last line of a ledger as spent, so that charges are possible again.

    Example:  margrave ledger repair people.ledger
    """
    from margrave.privacy.budget import format_rho
    from margrave.privacy.ledger import Ledger

    record = Ledger(file)
    booked = record.repair(rho)
    console().print(f"Booked {format_rho(booked.rho)} as entry {booked.number}; the ledger is complete again.")
    _print_balance(record.balance())


def _print_balance(balance: Balance) -> None:
    """Print cap, spending and remainder, each as ρ and as ε of that ρ."""
    from margrave.privacy.budget import format_rho, shown_epsilon

    screen = console()
    for word, rho in (("cap", balance.cap), ("spent", balance.spent), ("left", balance.left)):
        epsilon = f"ε = {shown_epsilon(balance.epsilon(rho))} at δ = {balance.delta:g}"
        screen.print(f"{word:>6}: {format_rho(rho)}, by itself {epsilon}")
    screen.print(
        "ρ adds up from charge to charge. These ε do not add up: two charges of ε = 1 are less than ε = 2 together."
    )
