r"""Moving rows until their tables are those of a release, attribute by attribute.

A *sweep* visits every attribute. All tables that contain it are copied into a *column view* with this attribute last:
for each combination of a table's other attributes, ``size`` costs and after them ``size`` weights, both padded with
zeros to whole vectors. Tables whose other attributes differ in the last of them alone lie side by side, in blocks, one
for each combination of the leading ones. A row with codes x has its costs in the table with leading attributes L and
last one m at

    base_L + Σ_{j ∈ L} x_j · strides[L, j] + cells[m],      cells[m] = before[m] + x_m · (length of a cell),         (1)

where cells[m] is the same for every L. So a lookup takes one addition and one of vectors (`add_vectors`).

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

from margrave.algebra.kernels import Emitted, compiler, over_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from margrave.algebra.kernels import Floats, Integers
    from margrave.algebra.layout import Layout

    # Attributes visited so far, and all that will be visited if no sweep is saved.
    Progress = Callable[[int, int], None]

# Types and builders of the compiler, which has no names for them.
_Numba = Any

Codes = NDArray[np.int32]
Costs = NDArray[np.float32]

# No sum is regrouped: the same release and the same seed give the same rows on every machine.
compiled = compiler(cache=True, nogil=True, error_model="numpy")

MOST_SWEEPS = 10
# Sweeps end when one takes away less than this share of the distance that is left.
_LEAST_SHARE = 1e-3
# Rows are visited in so many blocks: with fewer, more rows want what another of their block has got. A block that looks
# up fewer numbers is not worth a second thread, and its rows are visited one by one.
_BLOCKS = 256
_BLOCK_LOOKUPS = 2**18
# Rows whose costs are added up table by table, while the tables are in the cache; and what one thread takes at least.
_CHUNK, _SHARE = 256, 64
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
    """Where the tables that contain one attribute are, in the buffer and in its column view.

    ``table``, ``start``, ``outer``, ``inner``, ``last`` and ``apart`` are about one table each: its first cell in the
    buffer and its first place in the view, its shape (outer, size, inner), how many values the last of its other
    attributes has, and how far blocks are apart. ``blocks`` are (1): the arguments of the kernels.
    """

    attribute: int
    size: int
    length: int
    tables: tuple[Integers, ...]
    blocks: tuple[Any, ...]

    def copy(self, costs: Costs, weights: Costs, view: Costs, *, back: bool = False) -> None:
        """Copy costs and weights into the view, or the costs back."""
        kernel: Callable[..., None] = scatter if back else gather
        *places, work = self.tables
        over_tables(lambda a, b: kernel(costs, weights, view, self.size, *places, a, b), 0, len(places[0]), work)


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
    fixed = (codes, column.attribute, column.size, view, *column.blocks)
    rows, lookups = len(codes), len(column.tables[0]) * column.size
    block = rows // _BLOCKS
    moved, gained = 0, 0.0
    if block * lookups < _BLOCK_LOOKUPS:
        # Little work: one row at a time, in pieces short enough for Ctrl-C.
        piece = max(1, _PIECE_LOOKUPS // lookups)
        for begin in range(0, rows, piece):
            more, gain = visit(*fixed, wanted, begin, min(begin + piece, rows))  # type: ignore[call-arg]
            moved, gained = moved + more, gained + gain
    else:
        work = np.arange(math.ceil(block / _SHARE) + 1) * lookups * _SHARE
        for begin in range(0, rows, block):
            end = min(begin + block, rows)
            over_tables(partial(_propose, fixed, wanted, begin, end), 0, math.ceil((end - begin) / _SHARE), work)
            more, gain = settle(*fixed, wanted, begin, end)  # type: ignore[call-arg]
            moved, gained = moved + more, gained + gain
    column.copy(costs, weights, view, back=True)
    return moved, gained


def _propose(fixed: tuple[Any, ...], wanted: Codes, begin: int, end: int, first: int, last: int) -> None:
    """Write what the rows of shares first … last − 1 of a block want, which has rows begin … end − 1."""
    propose(*fixed, wanted, begin + first * _SHARE, min(begin + last * _SHARE, end))  # type: ignore[call-arg]


def _column(layout: Layout, attribute: int) -> _Column | None:
    """Return where the tables with an attribute are; None if there are none, or it has one value only."""
    size = layout.sizes[attribute]
    members = [t for t in range(1, len(layout.sets)) if attribute in layout.sets[t]]
    if size == 1 or not members:
        return None
    # The other attributes in their order, and after them one of a single value, for the table that has no others.
    others = [k for k in range(len(layout.sizes)) if k != attribute]
    lengths = [*(layout.sizes[k] for k in others), 1]
    before = np.concatenate([[0], np.cumsum(lengths)]) * 2 * padded_size(size)
    number = {k: m for m, k in enumerate(others)}
    rest = {t: tuple(number[k] for k in layout.sets[t] if k != attribute) or (len(others),) for t in members}
    width = max(1, *(len(one) - 1 for one in rest.values()))
    runs, tables, reached = [], [], 0
    for run in _runs(rest):
        leading, first, last = rest[run[0]][:-1], rest[run[0]][-1], rest[run[-1]][-1]
        apart = int(before[last + 1] - before[first])
        counts = [lengths[m] for m in leading]
        strides = [apart * math.prod(counts[j + 1 :]) for j in range(len(leading))]
        blank = [0] * (width - len(leading))
        places = [others[m] for m in leading]
        runs.append((reached - int(before[first]), first, last + 1, *places, *blank, *strides, *blank))
        for t in run:
            positions, m = layout.sets[t], rest[t][-1]
            axis = positions.index(attribute)
            outer = math.prod(layout.sizes[k] for k in positions[:axis])
            inner = math.prod(layout.sizes[k] for k in positions[axis + 1 :])
            offset = int(layout.index.offset[t] - layout.index.offset[1])
            tables.append((offset, reached + int(before[m] - before[first]), outer, inner, lengths[m], apart))
        reached += apart * math.prod(counts)
    found = np.array(runs)
    columns = tuple(np.ascontiguousarray(one) for one in np.array(tables).T)
    work = np.concatenate([[0], np.cumsum(columns[2] * columns[3] * size)])
    blocks = (found[:, 0], found[:, 1:3], found[:, 3 : 3 + width], found[:, 3 + width :])
    return _Column(
        attribute,
        size,
        reached,
        (*columns, work),
        (np.array(others, dtype=np.int64), before[:-1], *(np.ascontiguousarray(one) for one in blocks)),
    )


def _runs(rest: dict[int, tuple[int, ...]]) -> list[list[int]]:
    """Return tables, given their other attributes, in runs that differ in the last alone, by one each time."""
    runs: list[list[int]] = []
    before: tuple[int, ...] = ()
    for t in sorted(rest, key=rest.__getitem__):
        if before and rest[t] == (*before[:-1], before[-1] + 1):
            runs[-1].append(t)
        else:
            runs.append([t])
        before = rest[t]
    return runs


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
def padded_size(size: int) -> int:
    """Return how many numbers are kept for the values of an attribute: whole vectors of four or eight."""
    return 4 if size <= 4 else (size + 7) // 8 * 8


@compiled
def gather(
    costs: Costs, weights: Costs, column: Costs, size: int, table: Integers, start: Integers, outer: Integers,
    inner: Integers, last: Integers, apart: Integers, begin: int, end: int,
) -> None:  # fmt: skip
    """Copy tables begin … end − 1 into a column view, their attribute moved to the end: costs, then weights.

    Parameters
    ----------
    costs, weights, column
        Those of all tables; the view.
    size
        How many values the attribute has.
    table, start, outer, inner, last, apart
        As in `_Column`.
    """
    padded = padded_size(size)
    for t in range(begin, end):
        block = size * inner[t]
        for o in range(outer[t]):
            source = slice(table[t] + o * block, table[t] + (o + 1) * block)
            cost, weight = costs[source].reshape(size, inner[t]), weights[source].reshape(size, inner[t])
            for i in range(inner[t]):
                c = o * inner[t] + i
                to = start[t] + c // last[t] * apart[t] + c % last[t] * 2 * padded
                target = column[to : to + 2 * padded]
                target[:] = 0
                for v in range(size):
                    target[v] = cost[v, i]
                    target[padded + v] = weight[v, i]


@compiled
def scatter(
    costs: Costs, weights: Costs, column: Costs, size: int, table: Integers, start: Integers, outer: Integers,
    inner: Integers, last: Integers, apart: Integers, begin: int, end: int,
) -> None:  # fmt: skip
    """Copy the costs of a column view back; weights never change. The parameters are those of `gather`."""
    padded = padded_size(size)
    for t in range(begin, end):
        block = size * inner[t]
        for o in range(outer[t]):
            cost = costs[table[t] + o * block : table[t] + (o + 1) * block].reshape(size, inner[t])
            for i in range(inner[t]):
                c = o * inner[t] + i
                at = start[t] + c // last[t] * apart[t] + c % last[t] * 2 * padded
                source = column[at : at + size]
                for v in range(size):
                    cost[v, i] = source[v]


def _add_vectors(
    _: object, column: _Numba, start: _Numba, cells: _Numba, first: _Numba, last: _Numba, cost: _Numba, to: _Numba,
    width: _Numba,
) -> _Numba:  # fmt: skip
    """``add_vectors(column, start, cells, first, last, cost, to, width)`` in vectors, which the compiler does not find.

    Adds Σ column[start + cells[m] + v], m = first … last − 1, to cost[to + v] for v = 0 … width − 1. The width is a
    number in the source: so many sums stay in one register, and each is added up in the order of m.
    """
    from llvmlite import ir
    from numba.core import cgutils
    from numba.core.types import void

    def write(context: _Numba, builder: _Numba, signature: _Numba, given: _Numba) -> _Numba:
        def data(k: int) -> _Numba:
            return context.make_array(signature.args[k])(context, builder, given[k]).data

        _, start, _, first, last, _, to, _ = given
        vector = ir.VectorType(ir.FloatType(), width.literal_value)
        target = builder.bitcast(builder.gep(data(5), [to]), vector.as_pointer())
        total = cgutils.alloca_once(builder, vector)  # type: ignore[no-untyped-call]
        builder.store(builder.load(target, align=4), total)
        with cgutils.for_range_slice(builder, first, last, first.type(1)) as (m, _):
            at = builder.add(start, builder.load(builder.gep(data(2), [m])))
            added = builder.bitcast(builder.gep(data(0), [at]), vector.as_pointer())
            builder.store(builder.fadd(builder.load(total), builder.load(added, align=4)), total)
        builder.store(builder.load(total), target, align=4)
        return context.get_dummy_value()

    return void(column, start, cells, first, last, cost, to, width), write


add_vectors = Emitted(_add_vectors)


@compiled
def propose(
    codes: Codes, attribute: int, size: int, column: Costs, places: Integers, before: Integers, base: Integers,
    runs: Integers, leading: Integers, strides: Integers, wanted: Codes, first: int, last: int,
) -> None:  # fmt: skip
    """Write, for rows first … last − 1, which value of an attribute would bring the tables nearest; nothing moves.

    Parameters
    ----------
    codes
        The rows.
    attribute, size
        The attribute and how many values it has.
    column, places, before, base, runs, leading, strides
        The column view of the attribute, as in (1).
    wanted
        Shape (rows,); where the values are written.
    """
    padded, rows, others = padded_size(size), min(_CHUNK, last - first), len(before)
    cells = np.empty(rows * others, dtype=np.uint64)
    cost, own = np.empty(rows * padded, dtype=np.float32), np.empty(rows, dtype=np.float32)
    for begin in range(first, last, _CHUNK):
        rows = min(_CHUNK, last - begin)
        for i in range(rows):
            for m in range(others - 1):
                cells[i * others + m] = before[m] + 2 * padded * codes[begin + i, places[m]]
            cells[i * others + others - 1] = before[others - 1]
        cost[:] = 0
        own[:] = 0
        for g in range(len(base)):
            low, high = runs[g, 0], runs[g, 1]
            for i in range(rows):
                at = base[g]
                for j in range(leading.shape[1]):
                    at += codes[begin + i, leading[g, j]] * strides[g, j]
                start = np.uint64(at)
                a, b = i * others + low, i * others + high
                if padded == 4:
                    add_vectors(column, start, cells, a, b, cost, i * padded, 4)
                else:
                    for lane in range(0, padded, 8):
                        add_vectors(column, start + np.uint64(lane), cells, a, b, cost, i * padded + lane, 8)
                start += np.uint64(padded + codes[begin + i, attribute])
                add_vectors(column, start, cells, a, b, own, i, 1)
        for i in range(rows):
            best = codes[begin + i, attribute]
            # The row itself is counted in its present cell of every table: what it would gain by leaving is less.
            cost[i * padded + best] -= np.float32(2) * own[i]
            for v in range(size):
                if cost[i * padded + v] < cost[i * padded + best]:
                    best = v
            wanted[begin + i] = best


@compiled
def settle(
    codes: Codes, attribute: int, size: int, column: Costs, places: Integers, before: Integers, base: Integers,
    runs: Integers, leading: Integers, strides: Integers, wanted: Codes, first: int, last: int,
) -> tuple[int, float]:  # fmt: skip
    """Let rows first … last − 1 take the values they want, each if it still helps; return how many moved and the gain.

    The parameters are those of `propose`; the gain is by how much the distance (2) fell.
    """
    padded = padded_size(size)
    tables = 0
    for g in range(len(base)):
        tables += runs[g, 1] - runs[g, 0]
    cells, found = np.empty(len(before), dtype=np.uint64), np.empty(tables, dtype=np.uint64)
    moved, gained = 0, 0.0
    for i in range(first, last):
        row = codes[i]
        old, new = row[attribute], wanted[i]
        if old == new:
            continue
        for m in range(len(places)):
            cells[m] = before[m] + 2 * padded * row[places[m]]
        cells[-1] = before[-1]
        change, t = 0.0, 0
        to, away, weight = np.uint64(new), np.uint64(old), np.uint64(padded + old)
        other = np.uint64(padded + new)
        for g in range(len(base)):
            at = base[g]
            for j in range(leading.shape[1]):
                at += row[leading[g, j]] * strides[g, j]
            start = np.uint64(at)
            for m in range(runs[g, 0], runs[g, 1]):
                cell = start + cells[m]
                found[t] = cell
                t += 1
                change += column[cell + to] - column[cell + away] + np.float32(2) * column[cell + weight]
        if change < -_LEAST_GAIN:
            row[attribute] = new
            moved += 1
            gained -= change
            for cell in found:
                column[cell + away] -= np.float32(2) * column[cell + weight]
                column[cell + to] += np.float32(2) * column[cell + other]
    return moved, gained


@compiled
def visit(
    codes: Codes, attribute: int, size: int, column: Costs, places: Integers, before: Integers, base: Integers,
    runs: Integers, leading: Integers, strides: Integers, wanted: Codes, first: int, last: int,
) -> tuple[int, float]:  # fmt: skip
    """`propose` and `settle` for rows first … last − 1, one row after another."""
    moved, gained = 0, 0.0
    for i in range(first, last):
        propose(codes, attribute, size, column, places, before, base, runs, leading, strides, wanted, i, i + 1)
        more, gain = settle(
            codes, attribute, size, column, places, before, base, runs, leading, strides, wanted, i, i + 1
        )
        moved += more
        gained += gain
    return moved, gained
