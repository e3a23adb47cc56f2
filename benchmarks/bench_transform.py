"""Decompose and reconstruct whole workloads, against the time to copy their tables.

Asked: at most 4 copies for adult's 364 three-way tables (20.9 million cells), each way; and a cost that grows with the
number of cells and nothing else, over three decades.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from timing import best_seconds, copy_seconds, report

from margrave.algebra import transform
from margrave.algebra.layout import Layout

# The published sizes of the two tables, in domain order.
ADULT = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
ADULT_COARSE = (16, 32, 9, 32, 16, 7, 15, 6, 5, 2, 32, 32, 32, 42, 2)


def measure(name: str, sizes: tuple[int, ...], order: int) -> None:
    """Time both directions on all tables of one order."""
    layout = Layout.of(sizes, list(combinations(range(len(sizes)), order)))
    tables = np.random.default_rng(0).normal(size=layout.cells)
    residuals = transform.decompose(layout, tables)
    limit = copy_seconds(8 * layout.cells)
    reconstruct = best_seconds(lambda: transform.reconstruct(layout, residuals, out=tables))
    decompose = best_seconds(lambda: transform.decompose(layout, tables, out=residuals))
    report(
        f"reconstruct {name}",
        reconstruct,
        limit,
        cells=layout.cells,
        ns_per_cell=round(1e9 * reconstruct / layout.cells, 2),
    )
    report(
        f"decompose {name}",
        decompose,
        limit,
        cells=layout.cells,
        ns_per_cell=round(1e9 * decompose / layout.cells, 2),
    )


if __name__ == "__main__":
    measure("adult 3-way", ADULT, 3)
    measure("adult-coarse 3-way", ADULT_COARSE, 3)
    for attributes in (5, 10, 21, 45):  # 10⁴ … 1.4·10⁷ cells: three decades of growth
        measure(f"{attributes} attributes of 10, 3-way", (10,) * attributes, 3)
    for order, attributes in ((1, 2000), (2, 140), (4, 14), (5, 10)):
        measure(f"{attributes} attributes of 10, {order}-way", (10,) * attributes, order)
