"""``margrave demo``: the main job on a built-in table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.release.release import Release

_EPSILON, _DELTA = 1.0, 1e-9


def demo() -> None:
    """Run the main job on a made-up town of 50,000 people.

    Example:  margrave demo
    """
    from margrave.cli import town
    from margrave.data.table import CodedTable
    from margrave.mechanisms.residual_planner import measure
    from margrave.planning.plan import plan
    from margrave.privacy.budget import Budget
    from margrave.release.reconstruct import reconstruct
    from margrave.workload import Workload

    console = Console(soft_wrap=True, highlight=False)
    domain, budget = town.DOMAIN, Budget.approx(epsilon=_EPSILON, delta=_DELTA)
    workload = Workload.all_kway(domain, 3)
    console.print(f"[bold]A made-up town[/] of {town.INHABITANTS:,} people: {domain}")
    console.print(f"[bold]Wanted:[/] all {len(workload)} tables of three attributes, {workload.cells:,} cells")
    console.print(f"[bold]Budget:[/] ε = {_EPSILON:g} at δ = {_DELTA:g}, each person in one row\n")

    planned = plan(workload, budget, contributions=1)
    console.print(str(planned.summary()) + "\n")
    measurements = measure(planned, CodedTable(domain, town.inhabitants()))
    unbiased = reconstruct(measurements, workload, method="mle")
    released = reconstruct(measurements, workload, method="lnn", hold=[()])

    rows, columns = domain["age"].categories, domain["marital"].categories
    for title, release in (("unbiased", unbiased), ("non-negative", released)):
        counts = release.table("age", "marital").values
        console.print(crosstab(f"Age by marital status, {title}", rows, columns, counts))
    console.print(f"Standard error of a cell, unbiased: {planned.standard_error('age', 'marital'):.1f} people\n")
    console.print(comparison(_named(unbiased, released), [town.count(names) for names in workload]))
    if released.solution is not None:
        steps, gap = released.solution.steps, released.solution.gap
        console.print(f"\nSolved in {steps} rounds; proven to be within {gap:.0e} of the best fit there is.")


def _named(unbiased: Release, released: Release) -> list[tuple[str, list[Floats]]]:
    """Return the tables of both releases with the names they go by."""
    return [
        ("unbiased (mle)", [table.values for table in unbiased.tables()]),
        ("non-negative (lnn)", [table.values for table in released.tables()]),
    ]


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


def comparison(releases: Sequence[tuple[str, list[Floats]]], truth: list[Floats]) -> Table:
    """Return how far the tables of each release are from the truth, which is known for a made-up town only.

    Parameters
    ----------
    releases
        Name and tables of each release.
    truth
        The exact tables.
    """
    table = Table(title="All tables against the truth (known only because the town is made up)", title_justify="left")
    table.add_column("")
    for name in ("mean error a cell", "negative cells", "total"):
        table.add_column(name, justify="right")
    for name, tables in releases:
        cells = sum(counts.size for counts in truth)
        error = sum(abs(one - counts).sum() for one, counts in zip(tables, truth, strict=True)) / cells
        negative = sum(int((one < 0).sum()) for one in tables)
        totals = [one.sum() for one in tables]
        spread = _whole(min(totals)) if max(totals) - min(totals) < 0.5 else f"{min(totals):,.0f} … {max(totals):,.0f}"
        table.add_row(name, f"{error:.2f}", f"{negative:,}", spread)
    return table


def _whole(value: float) -> str:
    """Return a count as a whole number, in red if it is negative."""
    rounded = round(value)
    return f"[red]{rounded:,}[/]" if rounded < 0 else f"{rounded:,}"
