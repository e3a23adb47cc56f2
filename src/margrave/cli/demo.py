"""``margrave demo``: the main job, from a CSV file to a report, on a made-up town."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from margrave.cli.screen import console, print_table, styled
from margrave.errors import JobError, MargraveError

if TYPE_CHECKING:
    from rich.text import Text

    from margrave.algebra.kernels import Floats
    from margrave.job import Job
    from margrave.release.release import Release
    from margrave.workload import Workload

# All that the demonstration writes.
_OWN = ("town.csv", "domain.json", "job.toml", "town.ledger", "release")
# The first line of the job file: a folder that has it was made by the demo, and may be made again.
_MARK = "# The demonstration's job: margrave release --job job.toml does it again (and spends again)."
_JOB = f"""{_MARK}
data = "town.csv"
domain = "domain.json"
kway = 3
epsilon = 1.0
delta = 1e-9
contributions = 1
ledger = "town.ledger"
cap-epsilon = 2.0
out = "release"
title = "A made-up town: 50,000 people by twelve attributes"
"""


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")] = Path("margrave-demo"),
) -> None:
    """Run the main job on a made-up town of 50,000 people: a CSV file in, a folder of tables and a report out.

    Example:  margrave demo
    """
    from margrave.cli import release, town
    from margrave.job import Job
    from margrave.release.store.loading import load

    screen = console()
    _prepare(out)
    town.write_csv(out / "town.csv")
    town.DOMAIN.write(out / "domain.json")
    (out / "job.toml").write_text(_JOB, encoding="utf-8")
    job = Job.of(out / "job.toml", {"report": _can_report()})
    workload = job.workload(town.DOMAIN)
    # The release measures the number of people first; of a made-up town it may be stated.
    expected = replace(job, rows=town.INHABITANTS).predict()
    for lead, text in (
        ("A made-up town", f"of {town.INHABITANTS:,} people: {out / 'town.csv'}"),
        ("Wanted:", f"all {len(workload)} tables of three of its {len(town.DOMAIN)} attributes"),
        ("Budget:", f"ε = {job.epsilon:g} at δ = {job.delta:g}, each person in one row"),
    ):
        screen.print(styled(lead, "bold"), text)
    if expected is not None:
        for line in ("", "What the first measurement promises:", *str(expected.summary()).splitlines(), ""):
            screen.print(line)
    release.run(job)
    _show(load(str(job.out)), _by_one_plan(job, workload))
    if not job.report:
        screen.print("For the report, install the extra: pip install 'margrave[report]'")


def _prepare(folder: Path) -> None:
    """Make the folder, or clear away what an earlier demonstration left there, and that alone."""
    job = folder / "job.toml"
    try:
        present = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
        if present and (not job.is_file() or not job.read_text(encoding="utf-8").startswith(_MARK)):
            raise JobError(f"{folder} exists and was not made by the demo", remedy="name another folder with --out")
        yours = [name for name in present if name not in _OWN]
        if yours:
            raise JobError(
                f"{folder} holds other files ({', '.join(yours[:3])})", remedy="name another folder with --out"
            )
        if present:
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError(
            f"{folder} cannot be written ({error.strerror})", remedy="name another folder with --out"
        ) from error


def _can_report() -> bool:
    """Return whether a report can be made here."""
    from margrave.release.report.charts import require_report

    try:
        require_report()
    except MargraveError:
        return False
    return True


def _by_one_plan(job: Job, workload: Workload) -> list[Floats]:
    """Return the counts by a plan that was made before anything was measured, to compare with.

    The town is made up, so that nothing has to be charged for it.
    """
    from margrave.mechanisms.residual_planner import measure
    from margrave.planning.plans import plan
    from margrave.release.publication import reconstruct

    blind = plan(workload, job.budget(), contributions=job.need("contributions"), objective="nonnegative")
    made = reconstruct(measure(blind, job.need("data")), workload, method=job.reconstructing())
    return [one.values for one in made.tables()]


def _show(release: Release, by_one_plan: list[Floats]) -> None:
    """Show one table both ways, and all tables against the truth."""
    from margrave.cli import town

    screen = console()
    table = release.table("age", "marital")
    rows, columns = table.categories
    for title, counts in (("unbiased", table.estimate), ("non-negative", table.values)):
        if counts is not None:
            print_table(crosstab(f"Age by marital status, {title}", rows, columns, counts))
    screen.print(f"Standard error of a cell, unbiased: {table.std_error:.1f} people")
    screen.print()
    tables = list(release.tables())
    estimates = [one.estimate for one in tables if one.estimate is not None]
    products = [
        ("unbiased estimates", estimates),
        ("counts, by one plan", by_one_plan),
        ("counts, as published", [one.values for one in tables]),
    ]
    print_table(comparison(products, [town.count(names) for names in release.workload]))


def crosstab(title: str, rows: Sequence[str], columns: Sequence[str], counts: Floats) -> Table:
    """Return a two-way table of counts for the terminal, with totals; negative counts in red.

    Parameters
    ----------
    title
        The caption.
    rows, columns
        Names of the rows and columns.
    counts
        Shape (rows, columns).
    """
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in (*columns, "total"):
        table.add_column(name, justify="right")
    for name, row in zip(rows, counts, strict=True):
        table.add_row(name, *(_whole(value) for value in (*row, row.sum())))
    table.add_section()
    table.add_row("total", *(_whole(value) for value in (*counts.sum(axis=0), counts.sum())))
    return table


def comparison(products: Sequence[tuple[str, list[Floats]]], truth: list[Floats]) -> Table:
    """Return how far the tables of each product are from the truth, which is known for a made-up town only.

    Parameters
    ----------
    products
        Name and tables of each.
    truth
        The exact tables.
    """
    table = Table(title="All tables against the truth (known only because the town is made up)", title_justify="left")
    table.add_column("")
    for name in ("mean error per cell", "negative cells", "total"):
        table.add_column(name, justify="right")
    for name, tables in products:
        cells = sum(counts.size for counts in truth)
        error = sum(abs(one - counts).sum() for one, counts in zip(tables, truth, strict=True)) / cells
        negative = sum(int((one < 0).sum()) for one in tables)
        totals = [one.sum() for one in tables]
        spread = _whole(min(totals)) if max(totals) - min(totals) < 0.5 else f"{min(totals):,.0f} … {max(totals):,.0f}"
        table.add_row(name, f"{error:.2f}", f"{negative:,}", spread)
    return table


def _whole(value: float) -> str | Text:
    """Return a count as a whole number, in red if it is negative."""
    rounded = round(value)
    return styled(f"{rounded:,}", "red") if rounded < 0 else f"{rounded:,}"
