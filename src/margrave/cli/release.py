"""``margrave release``: from a private table to a finished publication in one command.

``margrave plan`` says what its budget buys before any data is opened. ``margrave reconstruct`` does its second half: a
release from noisy tables made elsewhere, or from measurements that were kept.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from margrave.cli.options import AsJson, takes
from margrave.cli.screen import Screen, console, fits, print_json, print_table, progress, styled
from margrave.domain.values import table_label
from margrave.errors import PlanError
from margrave.job import Job, by_table, delta_notes
from margrave.options import named_tables, numbers_by_table

if TYPE_CHECKING:
    from margrave.measurements.provenance import Provenance
    from margrave.mechanisms import Mechanism
    from margrave.planning.expectation import Expectation, Summary
    from margrave.privacy.budget import Budget
    from margrave.privacy.ledger import Ledger
    from margrave.release.publication import Publication
    from margrave.release.release import Release
    from margrave.workload import Workload

_UNBIASED = (
    "Errors are standard errors of the unbiased estimates; the non-negative tables are closer to the truth overall."
)
_Margins = dict[tuple[str, ...], float]


@takes("plan", job=True)
def plan(
    asked: Job,
    margin: Annotated[
        list[str] | None, typer.Option("--margin", help="Also show the 95 % margin of this table, such as age,sex.")
    ] = None,
    budget_for: Annotated[
        list[str] | None,
        typer.Option(
            "--budget-for", help="Show the budget that gives this 95 % margin to a table, such as age,sex=50."
        ),
    ] = None,
    compare_with: Annotated[
        list[str] | None,
        typer.Option(
            "--compare-with", help="Show another plan too: a job file, or an option such as objective=counts."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what a budget buys: the error of every table. The data is never opened.

    Example:  margrave plan --domain domain.json --kway 3 --epsilon 1 --delta 1e-9 --contributions 1 --rows 50000
    """
    if budget_for:
        _plan_budget(asked, budget_for, json=json)
        return
    workload, budget, rows = asked.workload(asked.read_domain()), asked.budget(), asked.need("contributions")
    workload = asked.targeted(workload)
    mechanism = asked.measuring()
    method = asked.reconstructing()
    expected = mechanism.predict(workload, budget, contributions=rows)
    notes = list(mechanism.notes(workload, budget, contributions=rows))
    objective = getattr(expected or mechanism, "objective", method.objective)
    if asked.method is not None and objective != method.objective:
        notes.append(
            f"The plan is made for objective {objective}; for method {method.name} --objective {method.objective} is "
            "usually better."
        )
    if (margin or compare_with) and expected is None:
        option = "--margin" if margin else "--compare-with"
        stated = "give --rows, or " if hasattr(mechanism, "rows") else ""
        raise PlanError(f"the errors of {mechanism.title} cannot be predicted", remedy=f"{stated}leave out {option}")
    margins = {} if expected is None else {one: expected.margin_of_error(*one) for one in _shown_tables(asked, margin)}
    other = _other_plan(asked, compare_with) if compare_with else None
    if json:
        document = _plan_document(workload, budget, rows, mechanism, expected, margins)
        if expected is not None and other is not None:
            document["compared"] = _compared_document(expected, other, list(margins))
        print_json(document)
        return
    screen = console()
    screen.print(f"wanted: {workload.description}")
    screen.print(f"budget: ε = {budget.epsilon():.6g} at δ = {float(budget.delta):.3g}")
    if expected is not None:
        _show_summary(expected.summary(), screen)
    for names, value in margins.items():
        noun = "people" if rows == 1 else "rows"
        screen.print(f"{table_label(names, total='total')}: ± {value:,.1f} {noun} (95 %)")
    if expected is not None and other is not None:
        _show_compared(expected, other, list(margins), " ".join(compare_with or ()))
    for note in (*notes, *(() if expected is None else (_UNBIASED,))):
        screen.print(note)
    for note in delta_notes(budget):
        screen.print(note)
    if workload.domain.unreviewed:
        screen.print("The domain is a draft: nothing is measured with it before it is reviewed.")


def _show_summary(summary: Summary, screen: Screen) -> None:
    """Show a plan by number of attributes; where that is too wide for the terminal, as blocks of lines."""
    (heading, *body) = summary.texts
    listing = Table(title=summary.heading, title_justify="left", box=None)
    for name in heading:
        listing.add_column(name, justify="right")
    for row in body:
        listing.add_row(*row)
    if fits(listing, screen):
        for line in str(summary).splitlines():
            screen.print(line)
    else:
        print_table(listing, screen)


def _shown_tables(asked: Job, margin: list[str] | None) -> list[tuple[str, ...]]:
    """Return the tables whose margins are shown: those asked for, and those with a weight or a target."""
    domain = asked.read_domain()
    steered = {**by_table(domain, asked.weight or {}), **by_table(domain, asked.target or {})}
    return list(dict.fromkeys([*named_tables(margin or ()), *steered]))


def _plan_budget(asked: Job, given: list[str], *, json: bool) -> None:
    """Show the least budget whose plan has the margins of error asked for."""
    from margrave.privacy.budget import format_budget

    needed = asked.budget_for(numbers_by_table("--budget-for", given))
    if json:
        print_json({"rho": float(needed.rho), "epsilon": needed.epsilon(), "delta": float(needed.delta)})
        return
    screen = console()
    screen.print(f"wanted: {asked.workload(asked.read_domain()).description}")
    screen.print(f"budget: {format_budget(needed)}")
    words = f"--epsilon {needed.epsilon():.6g} --delta {float(needed.delta):g}"
    screen.print(f"--rho {float(needed.rho):.9g} asks for it, and so does {words}, within rounding.")


def _other_plan(asked: Job, compare_with: list[str]) -> Expectation:
    """Return the expectation of another plan: that of a job file, or of this job with options changed."""
    other = asked
    for text in compare_with:
        other = Job.read(Path(text)) if text.endswith(".toml") else other.changed(text)
    expected = other.predict()
    if expected is None:
        raise PlanError("the errors of the other plan cannot be predicted", remedy="leave out --compare-with")
    return expected


def _compared_document(one: Expectation, other: Expectation, tables: list[tuple[str, ...]]) -> list[dict[str, Any]]:
    """Return the errors of two plans side by side: by number of attributes, and of some tables."""
    rows = [
        {"tables": f"{order} attribute{'' if order == 1 else 's'}", "error": first, "other_error": second}
        for order, (first, second) in enumerate(zip(one.median_errors(), other.median_errors(), strict=False))
    ]
    return rows + [
        {
            "tables": table_label(names, total="total"),
            "error": one.standard_error(*names),
            "other_error": other.standard_error(*names),
        }
        for names in tables
    ]


def _show_compared(one: Expectation, other: Expectation, tables: list[tuple[str, ...]], words: str) -> None:
    """Show the errors of two plans side by side."""
    listing = Table(title="standard errors of a cell (medians), side by side", title_justify="left")
    for name in ("tables", "this plan", words, "change"):
        listing.add_column(name, justify="left" if name == "tables" else "right")
    for row in _compared_document(one, other, tables):
        first, second = row["error"], row["other_error"]
        change = f"{second / first - 1:+.1%}" if first else "–"
        listing.add_row(row["tables"], f"{first:,.2f}", f"{second:,.2f}", change)
    print_table(listing)


def _plan_document(
    workload: Workload,
    budget: Budget,
    contributions: int,
    mechanism: Mechanism,
    expected: Expectation | None,
    margins: _Margins,
) -> dict[str, Any]:
    """Return the expectation as a JSON document."""
    return {
        "tables": len(workload),
        "cells": workload.cells,
        "rho": float(budget.rho),
        "epsilon": budget.epsilon(),
        "delta": float(budget.delta),
        "contributions": contributions,
        "mechanism": mechanism.name,
        "objective": getattr(mechanism, "objective", None),
        "errors_are": None if expected is None else "standard errors of the unbiased estimates",
        "orders": [] if expected is None else [asdict(row) for row in expected.summary().rows],
        "margins": [{"attributes": list(names), "margin": value} for names, value in margins.items()],
    }


@takes("release", job=True)
def release(asked: Job, json: AsJson = False) -> None:
    """Measure, reconstruct and publish: a private table in, a folder of tables with a report out.

    Example:  margrave release people.csv --domain domain.json --kway 3 --epsilon 1 --delta 1e-9
    --contributions 1 --ledger people.ledger --cap-epsilon 2 --out release
    """
    run(asked, json=json)


@takes("reconstruct", job=True)
def reconstruct(
    asked: Job,
    files: Annotated[
        list[Path],
        typer.Argument(help="A .npz file of measurements, the folder of a release, or noisy tables (CSV, Parquet)."),
    ],
    variance: Annotated[
        float | None, typer.Option("--variance", help="The variance of the noise, for files without such a column.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Make consistent, non-negative tables from noisy ones. Costs no budget.

    Example:  margrave reconstruct age-sex.csv region.csv --variance 25 --domain domain.json --tables age,sex
    --tables region --out release
    """
    publication = asked.publication()
    noisy = asked.read_measurements(files, variance=variance)
    with progress() as begin:
        released = asked.publish(noisy, progress=begin)
    if json:
        print_json(result(publication, released))
    else:
        say(publication, released, console())


def run(job: Job, *, json: bool = False) -> None:
    """Do a job and show what came of it.

    Parameters
    ----------
    job
        What to do.
    json
        Whether to print the result as JSON.
    """
    prepared, aside = job.prepare(), Screen(stderr=True)
    note = prepared.ledger_note()
    if note is not None and not json:
        console().print(note)
    for note in delta_notes(prepared.budget):
        aside.print(note)
    with progress() as begin:
        released = prepared.run(progress=begin, notify=aside.print)
    publication, ledger = prepared.publication, prepared.ledger
    if json:
        entry = None if ledger is None else _entry(ledger, released, prepared.begins_ledger)
        print_json({**result(publication, released), "ledger": entry})
        return
    say(publication, released, console(), measured=True)
    if ledger is None:
        console().print("No ledger was named: spending on this table is not tracked. Next time give --ledger.")
    else:
        console().print(f"ledger: {ledger.balance(prepared.budget.delta)}")


def _entry(ledger: Ledger, released: Release, begun: bool) -> dict[str, Any]:
    """Return the charge of a release for a program."""
    record = released.provenance
    number, digest = (None, None) if record is None else (record.ledger_entry, record.ledger_hash)
    return {"file": str(ledger.path), "begun": begun, "entry": number, "hash": digest}


def say(publication: Publication, released: Release, screen: Screen, *, measured: bool = False) -> None:
    """Print where to look, and what was promised.

    Parameters
    ----------
    publication
        What was published.
    released
        The release.
    screen
        Where to print.
    measured
        Whether the table was measured by this command, so that its options decided what is promised.
    """
    from margrave.release.publication import REPORT

    shown = os.path.relpath(publication.folder)
    noun = "table" if len(released.workload) == 1 else "tables"
    screen.print(styled(f"{len(released.workload):,} {noun}", "bold"), f"in {shown}")
    if publication.report:
        screen.print(f"report: {Path(shown) / REPORT}")
    _say_privacy(released.provenance, screen, measured=measured)
    if released.solution is not None:
        screen.print(released.solution.nearness(f"{released.solution.gap:.0e}"))


def result(publication: Publication, released: Release) -> dict[str, Any]:
    """Return what `say` prints, for a program.

    Parameters
    ----------
    publication
        What was published.
    released
        The release.
    """
    from margrave.release.publication import REPORT

    record, solution = released.provenance, released.solution
    return {
        "folder": os.path.relpath(publication.folder),
        "report": os.path.relpath(Path(publication.folder) / REPORT) if publication.report else None,
        "tables": len(released.workload),
        "mechanism": None if record is None else record.mechanism,
        "method": released.method.name,
        "rho": None if record is None else float(record.rho),
        "epsilon": None if record is None else record.epsilon,
        "delta": None if record is None else record.delta,
        "gap": None if solution is None else solution.gap,
        "rounds": None if solution is None else solution.steps,
    }


def _say_privacy(record: Provenance | None, screen: Screen, *, measured: bool) -> None:
    """Say what is promised to whom; that nothing is, where the noise is unknown or was not private."""
    from margrave.release import facts

    caution = facts.caution(record)
    if record is None or caution is not None:
        found = caution or facts.UNKNOWN
        screen.print(styled(f"{found.word}:", "bold"), found.reason)
        return
    screen.print(f"privacy: {facts.stated(record)} (ρ = {facts.stated_rho(record)})")
    declared = measured and record.contributions_bounded == "declared"
    screen.print(f"rows: {facts.row_limit(record)}{'; use --privacy-id to enforce it' if declared else ''}")
    if record.cut_short is not None:
        screen.print(facts.cut_short(record))
