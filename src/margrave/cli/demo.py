"""``margrave demo``: the main job on a built-in table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


def demo() -> None:
    """Run the main job on a made-up town of 50,000 people.

    Example:  margrave demo
    """
    import numpy as np

    from margrave.algebra import transform
    from margrave.algebra.layout import Layout
    from margrave.cli.town import DOMAIN, INHABITANTS, inhabitants
    from margrave.workload import Workload

    console = Console()
    workload = Workload.all_kway(DOMAIN, 3)
    console.print(f"[bold]A made-up town[/] of {INHABITANTS:,} people: {DOMAIN}")
    console.print(f"Workload: {workload}")

    people = inhabitants()
    layout = Layout.of(DOMAIN.shape, workload.positions)
    tables = np.zeros(layout.cells)
    for table in range(layout.outer, len(layout.sets)):
        names = DOMAIN.names(layout.sets[table])
        np.add.at(layout.view(tables, table), tuple(people[name] for name in names), 1)
    residuals = transform.decompose(layout, tables)
    marginals = transform.reconstruct(layout, residuals)
    difference = np.abs(marginals - tables)[layout.inner_cells :].max()
    console.print(
        f"Decomposed into {len(layout.sets)} residuals and put together again; "
        f"largest difference {difference:.1e} people."
    )
    shown = layout.view(marginals, layout.places[DOMAIN.positions(("age", "work"))])
    console.print(crosstab("Age by work", DOMAIN["age"].categories, DOMAIN["work"].categories, shown))


def crosstab(title: str, rows: tuple[str, ...], columns: tuple[str, ...], counts: object) -> Table:
    """Return a two-way table of counts for the terminal, with totals.

    Parameters
    ----------
    title
        The caption.
    rows, columns
        Names of the rows and columns.
    counts
        Array of shape (rows, columns).
    """
    import numpy as np

    values = np.asarray(counts, dtype=np.float64)
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in (*columns, "total"):
        table.add_column(name, justify="right")
    for name, row in zip(rows, values, strict=True):
        table.add_row(name, *(f"{value:,.0f}" for value in (*row, row.sum())))
    table.add_section()
    table.add_row("total", *(f"{value:,.0f}" for value in (*values.sum(axis=0), values.sum())))
    return table
