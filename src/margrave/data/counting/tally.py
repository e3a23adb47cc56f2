"""Exact counts of all tables of a closure from encoded rows: compiled loops over rows, threads over tables.

Rows come in chunks, so that memory does not grow with the table. Only the outer tables of a closure are counted; every
inner table is a sum of a table that contains it.

Counts are 64-bit integers, and none wraps around: a cell holds min(count, 2^62), wherever a column says how often each
row counts. No number of rows comes near; the cut keeps what one person changes from ever being more than their rows,
for |min(a, m) − min(b, m)| ≤ |a − b|.

Outer tables are counted several at once, as sums of one *wide* table. Counting costs one step a row and table; summing
costs one step a cell, however many rows there are. Ten columns of ten values have 120 tables of three, and 37 tables of
four, of 10,000 cells each, hold them all. Which tables are put together depends on the declared sizes alone.

A `CodedTable` is a table in memory whose values are codes already: the simplest source of exact counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margrave.algebra.kernels import Integers, compiled, over_tables
from margrave.errors import DataError

if TYPE_CHECKING:
    from margrave.algebra.layout import AttributeSet, Layout
    from margrave.domain.domain import Domain

Codes = NDArray[np.unsignedinteger[Any]]
Cells = NDArray[np.integer[Any]]

# Rows whose cells are numbered at once: the numbers stay in the first-level cache.
_BLOCK = 4096
# The most bytes that the codes of a chunk of rows take.
_CHUNK_BYTES = 2**24
_FEWEST_ROWS, _MOST_ROWS = 2**14, 2**20
# The most cells of a wide table: its 64-bit counts stay in the second-level cache of a core.
MOST_CELLS = 2**16
# Finding wide tables takes time in proportion to tables × attributes × wide tables: above this, more than it saves.
_MOST_INCIDENCES = 2**18
# The most cells of all wide tables together, 128 MB; more if that is at most twice the cells of the tables they hold.
_ROOM = 2**24
# Where counts are cut off, and half of its bits.
MOST_COUNT = 2**62
_HALF = 31
# The most values of an attribute of a table in memory.
_LARGEST_SIZE = 2**16


def code_type(sizes: Sequence[int]) -> type[np.unsignedinteger[Any]]:
    """Return the smallest type that holds the codes of all attributes."""
    largest = max(sizes, default=1)
    return np.uint8 if largest <= 2**8 else np.uint16 if largest <= 2**16 else np.uint32


def chunk_rows(attributes: int, itemsize: int) -> int:
    """Return how many rows to hold at once."""
    return min(max(_CHUNK_BYTES // max(attributes * itemsize, 1), _FEWEST_ROWS), _MOST_ROWS)


@compiled
def number_cells(order: int, axes: Cells, attributes: Integers, columns: Codes, begin: int, cells: Cells) -> None:
    """Write the number of the cell that each row, from ``begin`` on, falls into.

    Parameters
    ----------
    order, axes, attributes
        The table: how many axes, their lengths, and which column belongs to each.
    columns
        Shape (attributes, rows); codes below the size of the attribute.
    begin
        The first row.
    cells
        The result; its length is the number of rows to number.
    """
    cells[:] = 0
    for j in range(order):
        column = columns[attributes[j], begin : begin + cells.size]
        length = axes[j]
        for i in range(cells.size):
            cells[i] = cells[i] * length + column[i]


@compiled
def count_rows(order: int, axes: Cells, attributes: Integers, columns: Codes, scratch: Cells, counts: Integers) -> None:
    """Count the rows in each cell of one table; ``scratch`` holds the cell numbers of a block of rows."""
    for begin in range(0, columns.shape[1], _BLOCK):
        cells = scratch[: min(_BLOCK, columns.shape[1] - begin)]
        number_cells(order, axes, attributes, columns, begin, cells)
        for i in range(cells.size):
            counts[cells[i]] += 1


@compiled
def add_rows(
    order: int,
    axes: Cells,
    attributes: Integers,
    columns: Codes,
    scratch: Cells,
    weights: Integers,
    counts: Integers,
) -> None:
    """Add up the weights of the rows, each at most 2^62 − 1, in each cell of one table, up to `MOST_COUNT`."""
    for begin in range(0, columns.shape[1], _BLOCK):
        cells = scratch[: min(_BLOCK, columns.shape[1] - begin)]
        number_cells(order, axes, attributes, columns, begin, cells)
        block = weights[begin : begin + cells.size]
        for i in range(cells.size):
            counts[cells[i]] = min(counts[cells[i]] + block[i], MOST_COUNT)


class Tally:
    """The counts of a closure, as far as rows have been added.

    Parameters
    ----------
    layout
        The closure.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._wide = cover(layout.sizes, layout.sets[layout.outer :])
        self._shapes = [tuple(layout.sizes[k] for k in table.members) for table in self._wide]
        self._counts = [np.zeros(prod(shape), dtype=np.int64) for shape in self._shapes]

    def add(self, columns: Codes, weights: Integers | None = None) -> None:
        """Count rows.

        Parameters
        ----------
        columns
            Shape (attributes, rows); the codes, in domain order, all below the sizes of the domain. Columns of
            attributes that are in no table are not looked at.
        weights
            Shape (rows,); the count of each row; None if each counts once.
        """

        def task(begin: int, end: int) -> None:
            for table in range(begin, end):
                self._count(table, columns, weights)

        if columns.shape[1]:
            over_tables(task, 0, len(self._wide), np.arange(len(self._wide) + 1) * columns.shape[1])

    def counts(self) -> Integers:
        """Return the exact counts of every table of the closure, in one buffer."""
        return sum_wide(self._layout, self._wide, self._counts)

    def _count(self, table: int, columns: Codes, weights: Integers | None) -> None:
        """Add the rows to one wide table."""
        counts, shape = self._counts[table], self._shapes[table]
        members = np.array(self._wide[table].members, dtype=np.int64)
        # Cell numbers of 32 bits are made twice as fast, and few tables have more cells.
        index: type[np.integer[Any]] = np.uint32 if counts.size < 2**32 else np.int64
        axes: Cells = np.array(shape, dtype=index)
        scratch: Cells = np.empty(_BLOCK, dtype=index)
        if weights is None:
            count_rows(len(shape), axes, members, columns, scratch, counts)
        else:
            add_rows(len(shape), axes, members, columns, scratch, weights, counts)


def count_closure(layout: Layout, columns: Codes) -> Integers:
    """Return the exact counts of every table of a closure, in one buffer.

    Parameters
    ----------
    layout
        The closure.
    columns
        Shape (attributes, rows); the codes in domain order, all below the sizes of the domain.
    """
    tally = Tally(layout)
    rows = chunk_rows(columns.shape[0], columns.itemsize)
    for begin in range(0, columns.shape[1], rows):
        tally.add(np.ascontiguousarray(columns[:, begin : begin + rows]))
    return tally.counts()


def sum_wide(layout: Layout, tables: Sequence[Wide], counts: Iterable[Integers]) -> Integers:
    """Return the exact counts of all tables of a closure, in one buffer, from those of tables that hold its outer ones.

    Parameters
    ----------
    layout
        The closure.
    tables
        The tables that were counted: a cover of the outer ones.
    counts
        Their counts, in the same order; each of any shape.
    """
    found = np.zeros(layout.cells, dtype=np.int64)
    for table, wide in zip(tables, counts, strict=True):
        whole = wide.reshape([layout.sizes[k] for k in table.members])
        for held in table.holds:
            place = layout.outer + held
            others = tuple(axis for axis, k in enumerate(table.members) if k not in layout.sets[place])
            found[layout.index.offset[place] : layout.index.offset[place + 1]] = capped_sum(whole, others).ravel()
    sum_inner(layout, found)
    return found


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
        counts[index.offset[table] : index.offset[table + 1]] = capped_sum(whole, (int(axis[table]),)).ravel()


def capped_sum(counts: Integers, axes: tuple[int, ...]) -> Integers:
    """Return min(Σ, `MOST_COUNT`) of counts, none of them above `MOST_COUNT`, along some axes.

    Of counts that were cut off the sum is cut off as well, so that the sum of min(count, m) is min(Σ count, m).
    """
    if not axes:
        return counts
    added = prod(counts.shape[axis] for axis in axes)
    if int(counts.max(initial=0)) <= MOST_COUNT // max(added, 1):
        exact: Integers = counts.sum(axis=axes)
        return exact
    # Digits of 31 bits: sums of up to 2^31 of them stay in 64 bits.
    high, low = (counts >> _HALF).sum(axis=axes), (counts & (2**_HALF - 1)).sum(axis=axes)
    high += low >> _HALF
    whole: Integers = np.where(high >> _HALF, MOST_COUNT, (high << _HALF) + (low & (2**_HALF - 1)))
    return whole


@dataclass(frozen=True)
class Wide:
    """A table to be counted, and the tables that are sums of it.

    Attributes
    ----------
    members
        Its attributes, ascending.
    holds
        The places, in the sequence that was covered, of the tables it holds.
    """

    members: AttributeSet
    holds: tuple[int, ...]


def cover(sizes: Sequence[int], sets: Sequence[AttributeSet], *, most_cells: int = MOST_CELLS) -> tuple[Wide, ...]:
    """Return tables of at most ``most_cells`` cells that hold every given table once; a larger one holds itself.

    Parameters
    ----------
    sizes
        Number of values of each attribute.
    sets
        The tables, as sets of attribute positions.
    most_cells
        How many cells a wide table may have.
    """
    alone = tuple(Wide(members, (place,)) for place, members in enumerate(sets))
    if len(sets) * len(sizes) > _MOST_INCIDENCES:
        return alone
    inside = np.zeros((len(sets), len(sizes)), dtype=bool)
    for place, members in enumerate(sets):
        inside[place, list(members)] = True
    waiting, wide = np.arange(len(sets)), []
    while waiting.size:
        chosen = _grown(np.array(sizes, dtype=np.int64), inside[waiting], most_cells)
        held = ~(inside[waiting] & ~chosen).any(axis=1)
        wide.append(Wide(tuple(np.flatnonzero(chosen).tolist()), tuple(waiting[held].tolist())))
        waiting = waiting[~held]
    room = max(_ROOM, 2 * _cells(sizes, alone))
    return tuple(wide) if _cells(sizes, wide) <= room else alone


def _grown(sizes: NDArray[np.int64], inside: NDArray[np.bool_], most_cells: int) -> NDArray[np.bool_]:
    """Return the first table, grown one attribute at a time by the attribute that completes the most tables."""
    chosen: NDArray[np.bool_] = inside[0].copy()
    cells = prod(sizes[chosen].tolist())
    while True:
        lacking = inside & ~chosen
        completed = lacking[lacking.sum(axis=1) == 1].sum(axis=0)
        fits = (completed > 0) & (cells * sizes <= most_cells)
        if not fits.any():
            return chosen
        # Among those that complete as many tables, the one with the fewest values leaves room for more.
        best = min(np.flatnonzero(fits).tolist(), key=lambda k: (-int(completed[k]), int(sizes[k])))
        chosen[best] = True
        cells *= int(sizes[best])


def _cells(sizes: Sequence[int], tables: Sequence[Wide]) -> int:
    """Return the number of cells of all tables together."""
    return sum(prod(sizes[k] for k in table.members) for table in tables)


class CodedTable:
    """Rows held in memory as codes 0 … size − 1 of a declared domain.

    Parameters
    ----------
    domain
        The declared domain.
    columns
        The codes of every attribute of the domain, by name, all of one length.
    """

    def __init__(self, domain: Domain, columns: Mapping[str, ArrayLike]) -> None:
        codes = [_codes_of(domain, name, columns) for name in domain.attributes]
        if len({len(column) for column in codes}) > 1:
            raise DataError("the columns have different lengths", remedy="give one code a row in each")
        self.domain = domain
        stacked = _stacked(codes, domain)
        if stacked is None:
            raise DataError("the table does not fit in memory", remedy="use a machine with more memory")
        self._codes = stacked

    def count(self, layout: Layout) -> Integers:
        """Return the exact counts of every table of a closure over the domain, in one buffer."""
        return count_closure(layout, self._codes)

    def __repr__(self) -> str:
        # The number of rows is private too.
        return f"CodedTable({len(self.domain)} attributes)"


def _codes_of(domain: Domain, name: str, columns: Mapping[str, ArrayLike]) -> NDArray[np.uint16]:
    """Return the codes of one attribute, checked against its size; no value is shown."""
    if name not in columns:
        raise DataError(f"there is no column {name!r}", remedy="give the codes of every attribute of the domain")
    codes, size = _array(columns[name]), domain[name].size
    if size > _LARGEST_SIZE:
        raise DataError(
            f"attribute {name!r} has {size:,} values", remedy=f"at most {_LARGEST_SIZE:,} can be counted in memory"
        )
    if codes is not None and codes.size == 0:
        return np.empty(0, dtype=np.uint16)  # an empty list has no type, and an empty table fits every domain
    if codes is None or codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise DataError(f"column {name!r} is not a list of whole numbers", remedy="give one code a row")
    if codes.size and (int(codes.min()) < 0 or int(codes.max()) >= size):
        raise DataError(f"column {name!r} has codes outside 0 … {size - 1}", remedy="encode it by the declared domain")
    return codes.astype(np.uint16)


def _array(column: ArrayLike) -> NDArray[np.generic] | None:
    """Return the column as an array, or None.

    The text of an error may contain the number of rows or a value, so it is not shown.
    """
    try:
        return np.asarray(column)
    except Exception:
        return None


def _stacked(codes: list[NDArray[np.uint16]], domain: Domain) -> Codes | None:
    """Return the columns as one array, or None if there is no room: numpy's error would tell the number of rows."""
    try:
        return np.array(codes, dtype=code_type(domain.shape)).reshape(len(codes), -1 if codes else 0)
    except MemoryError:
        return None
