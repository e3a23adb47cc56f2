r"""Moving rows until their tables are those of a release, attribute by attribute.

A *sweep* visits every attribute. All tables that contain it are laid out with it last; then every row takes the value
that brings these tables nearest, given all its other attributes and all other rows. Counts are kept and updated, never
recounted, so a sweep takes time in proportion to rows × tables. The distance falls with every move: stopping at any
time leaves the best rows so far.

Rows are visited in blocks. What the rows of a block want is computed on all threads from the same counts; then they
move one after another, each only if the move still helps. The size of a block follows from the size of the work alone,
so the number of threads never changes a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from margrave.algebra.kernels import Floats, Integers
from margrave.algebra.layout import Layout
from margrave.algebra.threads import over_tables
from margrave.synthesis import kernels
from margrave.synthesis.kernels import Codes, Differences

# Attributes visited so far, and all that will be if no sweep is saved.
Progress = Callable[[int, int], None]

MOST_SWEEPS = 10
# Sweeps end when one gains less than this share of what all together gained.
_LEAST_SHARE = 2e-3
# A block is worth a second thread when it looks up this many numbers.
_BLOCK_LOOKUPS = 2**21
_SMALLEST_BLOCK_SHARE = 64


@dataclass(frozen=True)
class Fit:
    """How the moving of rows ended.

    Attributes
    ----------
    sweeps
        How many sweeps were made, the last one perhaps in part.
    interrupted
        Whether it was interrupted before it was done.
    """

    sweeps: int
    interrupted: bool


@dataclass(frozen=True, eq=False)
class _Column:
    """Where the tables that contain one attribute are, in the buffer and in its column view."""

    attribute: int
    size: int
    table: Integers
    start: Integers
    outer: Integers
    inner: Integers
    places: Integers
    strides: Integers

    @property
    def cells(self) -> int:
        """Number of cells of the view."""
        return int(self.start[-1])

    def copy(self, buffer: Differences, view: Differences, *, back: bool = False) -> None:
        """Copy the tables into the view, or back."""
        kernel = kernels.scatter if back else kernels.gather
        over_tables(
            lambda a, b: kernel(buffer, view, self.table, self.start, self.outer, self.size, self.inner, a, b),
            0,
            len(self.table),
            self.start,
        )


def count_rows(layout: Layout, codes: Codes, *, first: int = 0) -> Floats:
    """Return the counts of rows in the tables of a closure from number ``first`` on, in one buffer."""
    offset = layout.index.offset
    counts = np.zeros(int(offset[-1] - offset[first]))
    places, strides = _cells_of(layout)
    tables = len(layout.sets)
    # Work goes with the rows, not with the cells, so every table counts the same.
    over_tables(
        lambda a, b: kernels.count_tables(codes, places, strides, offset - offset[first], counts, a, b),
        first,
        tables,
        np.arange(tables + 1) * max(len(codes), 1),
    )
    return counts


def fit_rows(
    layout: Layout, codes: Codes, target: Floats, *, sweeps: int = MOST_SWEEPS, progress: Progress | None = None
) -> Fit:
    """Move rows, in place, until their tables are near those wanted or no row gains by moving alone.

    Ctrl-C ends it early; the rows are then the best so far.

    Parameters
    ----------
    layout
        The closure; its outer tables are the ones fitted, and all others lie inside them.
    codes
        The rows, shape (rows, attributes).
    target
        Shape (layout.cells,); the tables wanted, scaled to the number of rows.
    sweeps
        The most sweeps.
    progress
        Called with the number of attributes visited and of all visits.
    """
    columns = [column for k in range(len(layout.sizes)) if (column := _column(layout, k)) is not None]
    visits, done, number = sweeps * len(columns), 0, 0
    if not columns or not len(codes):
        return Fit(0, False)
    try:
        buffer = count_rows(layout, codes, first=layout.outer)
        buffer -= target[layout.inner_cells :]
        difference: Differences = buffer.astype(np.float32)
        del buffer
        view = np.empty(max(column.cells for column in columns), dtype=np.float32)
        wanted = np.empty(len(codes), dtype=np.int32)
        gained = 0.0
        for number in range(1, sweeps + 1):
            moved, gain = 0, 0.0
            for column in columns:
                more, better = _visit(column, codes, difference, view[: column.cells], wanted)
                moved, gain, done = moved + more, gain + better, done + 1
                if progress is not None:
                    progress(done, visits)
            gained += gain
            if not moved or gain < _LEAST_SHARE * gained:
                break
    except KeyboardInterrupt:
        return Fit(number, True)
    return Fit(number, False)


def _visit(
    column: _Column, codes: Codes, difference: Differences, view: Differences, wanted: Codes
) -> tuple[int, float]:
    """Let every row take the best value of one attribute; return how many moved and by how much the distance fell."""
    column.copy(difference, view)
    fixed = (codes, column.attribute, column.size, view, column.start[:-1], column.places, column.strides)
    lookups = len(column.table) * column.size
    block = _BLOCK_LOOKUPS // lookups
    rows = len(codes)
    moved, gained = 0, 0.0
    if block * _SMALLEST_BLOCK_SHARE > rows:
        # Little work: one row at a time, in pieces short enough for Ctrl-C.
        piece = max(1, 2**26 // lookups)
        for begin in range(0, rows, piece):
            more, gain = kernels.visit(*fixed, wanted, begin, min(begin + piece, rows))
            moved, gained = moved + more, gained + gain
    else:
        work = np.arange(block + 1) * lookups
        for begin in range(0, rows, block):
            end = min(begin + block, rows)
            over_tables(partial(_propose, fixed, wanted, begin), 0, end - begin, work)
            more, gain = kernels.settle(*fixed, wanted, begin, end)
            moved, gained = moved + more, gained + gain
    column.copy(difference, view, back=True)
    return moved, gained


def _propose(fixed: tuple[object, ...], wanted: Codes, begin: int, first: int, last: int) -> None:
    """Write what rows ``begin + first … begin + last − 1`` want."""
    kernels.propose(*fixed, wanted, begin + first, begin + last)  # type: ignore[arg-type]


def _column(layout: Layout, attribute: int) -> _Column | None:
    """Return where the outer tables with an attribute are; None if there are none, or it has one value only."""
    size = layout.sizes[attribute]
    members = [(t, layout.sets[t]) for t in range(layout.outer, len(layout.sets)) if attribute in layout.sets[t]]
    if size == 1 or not members:
        return None
    width = max(1, max(len(positions) for _, positions in members) - 1)
    places = np.zeros((len(members), width), dtype=np.int64)
    strides = np.zeros_like(places)
    outer, inner = np.ones(len(members), dtype=np.int64), np.ones(len(members), dtype=np.int64)
    for row, (_, positions) in enumerate(members):
        others = [member for member in positions if member != attribute]
        lengths = [layout.sizes[member] for member in others]
        axis = positions.index(attribute)
        outer[row], inner[row] = math.prod(lengths[:axis]), math.prod(lengths[axis:])
        places[row, : len(others)] = others
        strides[row, : len(others)] = [size * math.prod(lengths[j + 1 :]) for j in range(len(others))]
    offset = layout.index.offset
    table = np.array([int(offset[t] - offset[layout.outer]) for t, _ in members])
    start = np.concatenate([[0], np.cumsum(outer * inner * size)])
    return _Column(attribute, size, table, start, outer, inner, places, strides)


def _cells_of(layout: Layout) -> tuple[Integers, Integers]:
    """Return, for every table of a closure, its attributes and how far apart their values are, padded with zeros."""
    axes, order = layout.index.axes, layout.index.order
    places = np.zeros((len(layout.sets), max(1, axes.shape[1])), dtype=np.int64)
    strides = np.zeros_like(places)
    for table, members in enumerate(layout.sets):
        places[table, : len(members)] = members
    for count in range(1, axes.shape[1] + 1):
        chosen = order == count
        behind = np.cumprod(axes[chosen, :count][:, ::-1], axis=1)[:, ::-1]
        strides[chosen, :count] = np.concatenate([behind[:, 1:], np.ones((len(behind), 1), dtype=np.int64)], axis=1)
    return places, strides


