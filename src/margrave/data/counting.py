"""Exact counts of all tables of a closure from encoded rows: compiled loops over rows, threads over tables.

Only the outer tables are counted; every inner table is a sum of a table that contains it. Counts are 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.kernels import Index, Integers, compiled
from margrave.algebra.layout import Layout
from margrave.algebra.threads import over_tables

Codes = NDArray[np.uint16]
# Rows that are encoded at once: their cell numbers stay in the cache.
_BLOCK = 4096


@compiled
def count_tables(
    first: int, last: int, index: Index, attributes: Integers, columns: NDArray[np.uint16], counts: Integers
) -> None:
    """Count the rows in each cell of the tables first … last − 1.

    Parameters
    ----------
    first, last, index
        The tables.
    attributes
        Shape (tables, largest order); which column belongs to each axis.
    columns
        Shape (attributes, rows); codes below the size of the attribute.
    counts
        A buffer of the closure, zero where these tables are.
    """
    rows = columns.shape[1]
    cells = np.empty(_BLOCK, dtype=np.int64)
    for t in range(first, last):
        table = counts[index.offset[t] : index.offset[t + 1]]
        for begin in range(0, rows, _BLOCK):
            size = min(_BLOCK, rows - begin)
            cells[:size] = 0
            for j in range(index.order[t]):
                column = columns[attributes[t, j], begin : begin + size]
                length = index.axes[t, j]
                for i in range(size):
                    cells[i] = cells[i] * length + column[i]
            for i in range(size):
                table[cells[i]] += 1


def count_closure(layout: Layout, columns: Sequence[Codes] | NDArray[np.uint16]) -> Integers:
    """Return the exact counts of every table of a closure, in one buffer.

    Parameters
    ----------
    layout
        The closure.
    columns
        The codes of the rows, one array per attribute in domain order, all below the sizes of the domain.
    """
    counts = np.zeros(layout.cells, dtype=np.int64)
    codes = np.ascontiguousarray(columns, dtype=np.uint16)
    attributes = np.zeros(layout.index.axes.shape, dtype=np.int64)
    for table in range(layout.outer, len(layout.sets)):
        members = layout.sets[table]
        attributes[table, : len(members)] = members

    def task(begin: int, end: int) -> None:
        count_tables(begin, end, layout.index, attributes, codes, counts)

    over_tables(task, layout.outer, len(layout.sets), layout.index.offset)
    sum_inner(layout, counts)
    return counts


def sum_inner(layout: Layout, counts: Integers) -> None:
    """Fill in the inner tables, largest first, each from one table with one axis more."""
    index = layout.index
    inside = np.arange(index.axes.shape[1]) < index.order[:, None]
    parents, axes = np.nonzero(inside)
    # Of all the tables in which a table is a facet, the one with the fewest cells is the cheapest to sum.
    by_size = np.argsort(-np.diff(index.offset)[parents], kind="stable")
    parent, axis = np.zeros(len(layout.sets), dtype=np.int64), np.zeros(len(layout.sets), dtype=np.int64)
    facets = index.facet[parents[by_size], axes[by_size]]
    parent[facets], axis[facets] = parents[by_size], axes[by_size]
    for table in range(layout.outer - 1, -1, -1):
        start, end = index.offset[parent[table]], index.offset[parent[table] + 1]
        whole = counts[start:end].reshape(layout.shape(int(parent[table])))
        counts[index.offset[table] : index.offset[table + 1]] = whole.sum(axis=axis[table]).ravel()
