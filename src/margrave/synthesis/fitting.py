r"""Moving rows until their tables are those of a release, attribute by attribute.

A *sweep* visits every attribute. All tables that contain it are copied into a *column view* with this attribute last:
for each combination of a table's other attributes, ``size`` costs and after them ``size`` weights. A row with codes x
has its costs in table t at

    start_t + Σ_j x[places[t, j]] · strides[t, j]  …  + size − 1.                                                   (1)

The distance of the rows from the tables is Σ w D² over all cells of all tables, where D is by how many people the rows
are above a cell, and w its weight. One row more in a cell costs c = w (2D + 1), one row less −(c − 2w). So a row that
takes value v instead of u changes the distance by

    Σ_t c_tv − Σ_t c_tu + 2 Σ_t w_tu,                                                                               (2)

and c_tv rises by 2 w_tv, c_tu falls by 2 w_tu. Every row takes the value with the least sum, if that helps, given all
its other attributes and all other rows. Costs are kept and updated, and a sweep takes time in proportion to
rows × tables. The distance falls with every move: stopping at any time leaves the best rows so far.

Weights follow from what the rows are for, tables whose absolute errors are small. If the true count of a cell strays
around the wanted one with standard deviation s, then rows that are D above it have a mean absolute error of about

    E|D − e|  ≈  E|e| + D² · density of e at 0,        so that  w ∝ 1/s,                                            (3)

and s grows with the count. A cell of λ people in an outer table weighs (λ + ½)^−¾. Inner tables would be met on average
if the outer ones were, but the errors of many light cells add up in them: a cell of an inner table weighs (λ + ½)^−½
times a share of the number of outer tables that contain the table. (Absolute differences themselves do worse than
squares: where one row cannot help all tables at once, squares let it help those that are farthest off.)

Rows are visited in blocks. What the rows of a block want is computed on all threads from the same counts; then they
move one after another, each only if the move still helps. The size of a block follows from the size of the work alone,
so the number of threads never changes a row. The loops draw nothing and release the interpreter lock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.kernels import compiler, over_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from margrave.algebra.kernels import Floats, Integers
    from margrave.algebra.layout import Layout

    # Attributes visited so far, and all that will be visited if no sweep is saved.
    Progress = Callable[[int, int], None]

Codes = NDArray[np.int32]
Costs = NDArray[np.float32]

# No sum is regrouped: the same release and the same seed give the same rows on every machine.
compiled = compiler(cache=True, nogil=True, error_model="numpy")

MOST_SWEEPS = 10
# Sweeps end when one takes away less than this share of the distance that is left.
_LEAST_SHARE = 2e-2
# A block of rows looks up so many numbers, enough for two threads to be worth their while; where there are fewer than
# so many blocks, rows are visited one by one.
_BLOCK_LOOKUPS = 2**21
_FEWEST_BLOCKS = 64
# Rows visited one by one between two chances for Ctrl-C, in numbers looked up.
_PIECE_LOOKUPS = 2**26
# Rows that are counted into one table after another while they are in the cache.
_COUNTED_ROWS = 2048
# A cell of fewer people than this is empty. Rows should not be in it: it counts as if it had so many people more than
# it has. Chosen on generated tables among 0, 1, 3, 8 and 30: rows are then nearer to the truth, too.
_EMPTY, _EMPTY_PENALTY = 1e-3, 8.0
# A cell of λ people weighs (λ + half)^−power. An inner table has the weight of this share of the outer tables that
# contain it. Chosen on generated tables for tables of three attributes near the truth, as long as those of one and two
# are on average about as near to it as by squares of equal weight.
_HALF = 0.5
_OUTER_POWER, _INNER_POWER = 0.75, 0.5
_SINGLE_SHARE, _INNER_SHARE = 0.3, 0.1
# A row moves if (2) is below zero by more than this; less is rounding.
_LEAST_GAIN = 1e-3


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
    def length(self) -> int:
        """Length of the view."""
        return int(self.start[-1])

    def copy(self, costs: Costs, weights: Costs, view: Costs, *, back: bool = False) -> None:
        """Copy costs and weights into the view, or the costs back."""
        kernel = scatter if back else gather
        places = (self.table, self.start, self.outer, self.size, self.inner)
        over_tables(lambda a, b: kernel(costs, weights, view, *places, a, b), 0, len(self.table), self.start)


def count_rows(layout: Layout, codes: Codes, *, first: int = 0) -> Floats:
    """Return the counts of rows in the tables of a closure from number ``first`` on, in one buffer."""
    offset = layout.index.offset
    counts = np.zeros(int(offset[-1] - offset[first]))
    places, strides = _cells_of(layout)
    tables = len(layout.sets)
    # Work goes with the rows, not with the cells, so every table counts the same.
    over_tables(
        lambda a, b: count_tables(codes, places, strides, offset - offset[first], counts, a, b),
        first,
        tables,
        np.arange(tables + 1) * max(len(codes), 1),
    )
    return counts


def fit_rows(
    layout: Layout, codes: Codes, marginals: Floats, *, sweeps: int = MOST_SWEEPS, progress: Progress | None = None
) -> Fit:
    """Move rows, in place, until their tables are near those wanted or no row gains by moving alone.

    Ctrl-C ends it early; the rows are then the best so far.

    Parameters
    ----------
    layout
        The closure, all tables of which are fitted.
    codes
        The rows, shape (rows, attributes).
    marginals
        Shape (layout.cells,); the tables wanted, not negative; they are scaled to the number of rows.
    sweeps
        The most sweeps.
    progress
        Called with the number of attributes visited and of all visits.
    """
    columns = [column for k in range(len(layout.sizes)) if (column := _column(layout, k)) is not None]
    visits, done, sweep = sweeps * len(columns), 0, 0
    if not columns or not len(codes):
        return Fit(0, False)
    try:
        costs, weights = _costs(layout, codes, marginals)
        view = np.empty(max(column.length for column in columns), dtype=np.float32)
        wanted = np.empty(len(codes), dtype=np.int32)
        empty = np.count_nonzero(marginals[layout.inner_cells :] < _EMPTY)
        shifted = empty * _EMPTY_PENALTY**2 * _HALF**-_OUTER_POWER
        while sweep < sweeps:
            sweep += 1
            moved, gain = 0, 0.0
            for column in columns:
                more, better = _visit(column, codes, costs, weights, view[: column.length], wanted)
                moved, gain, done = moved + more, gain + better, done + 1
                if progress is not None:
                    progress(done, visits)
            if not moved or gain < _LEAST_SHARE * (_distance(costs, weights) - shifted):
                break
    except KeyboardInterrupt:
        return Fit(sweep, True)
    return Fit(sweep, False)


def _costs(layout: Layout, codes: Codes, marginals: Floats) -> tuple[Costs, Costs]:
    """Return the costs and the weights of all cells but the total's; rows are above empty cells by more than they are.

    What is empty in an outer table alone is told apart: that is where a row's place is decided.
    """
    total, inner = float(marginals[0]), layout.inner_cells
    wanted = marginals[1:] * (len(codes) / total if total > 0 else 0.0)
    above = count_rows(layout, codes, first=1)
    above -= wanted
    above[inner - 1 :][marginals[inner:] < _EMPTY] += _EMPTY_PENALTY
    weights = np.maximum(wanted, 0.0, out=wanted)
    weights += _HALF
    weights[: inner - 1] **= -_INNER_POWER
    weights[inner - 1 :] **= -_OUTER_POWER
    weights[: inner - 1] *= np.repeat(_shares(layout), np.diff(layout.index.offset[1 : layout.outer + 1]))
    above *= 2.0
    above += 1.0
    above *= weights
    return above.astype(np.float32), weights.astype(np.float32)


def _shares(layout: Layout) -> Floats:
    """Return of how many outer tables each inner table but the total has the weight."""
    around = np.zeros(layout.outer)
    for members in layout.sets[layout.outer :]:
        for order in range(1, len(members)):
            for part in combinations(members, order):
                around[layout.places[part]] += 1
    share = np.where(layout.index.order[: layout.outer] == 1, _SINGLE_SHARE, _INNER_SHARE)
    return (around * share)[1:]


def _distance(costs: Costs, weights: Costs) -> float:
    """Return Σ w D² of all cells: c = w (2D + 1), so that w D² = (c − w)² / 4w."""
    above = costs - weights
    return float(np.dot(above, above / weights)) / 4.0


def _visit(
    column: _Column, codes: Codes, costs: Costs, weights: Costs, view: Costs, wanted: Codes
) -> tuple[int, float]:
    """Let every row take the best value of one attribute; return how many moved and by how much the distance fell."""
    column.copy(costs, weights, view)
    fixed = (codes, column.attribute, column.size, view, column.start[:-1], column.places, column.strides)
    lookups = len(column.table) * column.size
    block = _BLOCK_LOOKUPS // lookups
    rows = len(codes)
    moved, gained = 0, 0.0
    if block * _FEWEST_BLOCKS > rows:
        # Little work: one row at a time, in pieces short enough for Ctrl-C.
        piece = max(1, _PIECE_LOOKUPS // lookups)
        for begin in range(0, rows, piece):
            more, gain = visit(*fixed, wanted, begin, min(begin + piece, rows))
            moved, gained = moved + more, gained + gain
    else:
        work = np.arange(block + 1) * lookups
        for begin in range(0, rows, block):
            end = min(begin + block, rows)
            over_tables(partial(_propose, fixed, wanted, begin), 0, end - begin, work)
            more, gain = settle(*fixed, wanted, begin, end)
            moved, gained = moved + more, gained + gain
    column.copy(costs, weights, view, back=True)
    return moved, gained


def _propose(fixed: tuple[Any, ...], wanted: Codes, begin: int, first: int, last: int) -> None:
    """Write what rows ``begin + first … begin + last − 1`` want."""
    propose(*fixed, wanted, begin + first, begin + last)  # type: ignore[call-arg]


def _column(layout: Layout, attribute: int) -> _Column | None:
    """Return where the tables with an attribute are; None if there are none, or it has one value only."""
    size = layout.sizes[attribute]
    members = [(t, layout.sets[t]) for t in range(1, len(layout.sets)) if attribute in layout.sets[t]]
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
        strides[row, : len(others)] = [2 * size * math.prod(lengths[j + 1 :]) for j in range(len(others))]
    offset = layout.index.offset
    table = np.array([int(offset[t] - offset[1]) for t, _ in members])
    start = np.concatenate([[0], np.cumsum(2 * outer * inner * size)])
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


@compiled
def count_tables(
    codes: Codes, places: Integers, strides: Integers, offset: Integers, counts: Floats, first: int, last: int
) -> None:
    """Add the rows to tables first … last − 1 of a buffer of counts; ``places`` and ``strides`` as in (1)."""
    rows, width = codes.shape[0], places.shape[1]
    cell = np.empty(_COUNTED_ROWS, dtype=np.int64)
    for begin in range(0, rows, _COUNTED_ROWS):
        end = min(begin + _COUNTED_ROWS, rows)
        for t in range(first, last):
            for i in range(end - begin):
                cell[i] = offset[t]
            for j in range(width):
                stride = strides[t, j]
                if stride > 0:
                    place = places[t, j]
                    for i in range(end - begin):
                        cell[i] += codes[begin + i, place] * stride
            for i in range(end - begin):
                counts[cell[i]] += 1.0


@compiled
def gather(
    costs: Costs, weights: Costs, column: Costs, table: Integers, start: Integers, outer: Integers, size: int,
    inner: Integers, first: int, last: int,
) -> None:  # fmt: skip
    """Copy tables first … last − 1 into a column view, their attribute moved to the end: costs, then weights.

    Parameters
    ----------
    costs, weights, column
        Those of all tables; the view.
    table, start
        First cell of each table in the buffers; first place in the view.
    outer, size, inner
        Each table as an array of shape (outer, size, inner).
    """
    for t in range(first, last):
        block = size * inner[t]
        for o in range(outer[t]):
            source = slice(table[t] + o * block, table[t] + (o + 1) * block)
            cost, weight = costs[source].reshape(size, inner[t]), weights[source].reshape(size, inner[t])
            target = column[start[t] + 2 * o * block : start[t] + 2 * (o + 1) * block].reshape(inner[t], 2, size)
            for i in range(inner[t]):
                for v in range(size):
                    target[i, 0, v] = cost[v, i]
                    target[i, 1, v] = weight[v, i]


@compiled
def scatter(
    costs: Costs, weights: Costs, column: Costs, table: Integers, start: Integers, outer: Integers, size: int,
    inner: Integers, first: int, last: int,
) -> None:  # fmt: skip
    """Copy the costs of a column view back; weights never change. The parameters are those of `gather`."""
    for t in range(first, last):
        block = size * inner[t]
        for o in range(outer[t]):
            cost = costs[table[t] + o * block : table[t] + (o + 1) * block].reshape(size, inner[t])
            source = column[start[t] + 2 * o * block : start[t] + 2 * (o + 1) * block].reshape(inner[t], 2, size)
            for v in range(size):
                for i in range(inner[t]):
                    cost[v, i] = source[i, 0, v]


@compiled
def propose(
    codes: Codes, attribute: int, size: int, column: Costs, start: Integers, places: Integers,
    strides: Integers, wanted: Codes, first: int, last: int,
) -> None:  # fmt: skip
    """Write, for rows first … last − 1, which value of an attribute would bring the tables nearest; nothing moves.

    Parameters
    ----------
    codes
        The rows.
    attribute, size
        The attribute and how many values it has.
    column, start, places, strides
        The column view of the attribute, as in (1).
    wanted
        Shape (rows,); where the values are written.
    """
    count, width = places.shape
    cost = np.empty(size, dtype=np.float32)
    for i in range(first, last):
        row = codes[i]
        best = row[attribute]
        cost[:] = 0
        # The row itself is counted in its present cell of every table: what it would gain by leaving is less.
        own = np.float32(0)
        for t in range(count):
            cell = start[t]
            for j in range(width):
                cell += row[places[t, j]] * strides[t, j]
            values = column[cell : cell + size]
            for v in range(size):
                cost[v] += values[v]
            own += column[cell + size + best]
        cost[best] -= np.float32(2) * own
        for v in range(size):
            if cost[v] < cost[best]:
                best = v
        wanted[i] = best


@compiled
def settle(
    codes: Codes, attribute: int, size: int, column: Costs, start: Integers, places: Integers,
    strides: Integers, wanted: Codes, first: int, last: int,
) -> tuple[int, float]:  # fmt: skip
    """Let rows first … last − 1 take the values they want, each if it still helps; return how many moved and the gain.

    The parameters are those of `propose`; the gain is by how much the distance (2) fell.
    """
    count, width = places.shape
    cells = np.empty(count, dtype=np.int64)
    moved, gained = 0, 0.0
    for i in range(first, last):
        row = codes[i]
        old, new = row[attribute], wanted[i]
        if old == new:
            continue
        change = 0.0
        for t in range(count):
            cell = start[t]
            for j in range(width):
                cell += row[places[t, j]] * strides[t, j]
            cells[t] = cell
            change += column[cell + new] - column[cell + old] + np.float32(2) * column[cell + size + old]
        if change < -_LEAST_GAIN:
            row[attribute] = new
            moved += 1
            gained -= change
            for t in range(count):
                cell = cells[t]
                column[cell + old] -= np.float32(2) * column[cell + size + old]
                column[cell + new] += np.float32(2) * column[cell + size + new]
    return moved, gained


@compiled
def visit(
    codes: Codes, attribute: int, size: int, column: Costs, start: Integers, places: Integers,
    strides: Integers, wanted: Codes, first: int, last: int,
) -> tuple[int, float]:  # fmt: skip
    """`propose` and `settle` for rows first … last − 1, one row after another."""
    moved, gained = 0, 0.0
    for i in range(first, last):
        propose(codes, attribute, size, column, start, places, strides, wanted, i, i + 1)
        more, gain = settle(codes, attribute, size, column, start, places, strides, wanted, i, i + 1)
        moved += more
        gained += gain
    return moved, gained
