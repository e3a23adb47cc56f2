"""The compiled loops behind made-up rows: counting, looking at one attribute of all tables, and moving rows.

Rows are codes of shape (rows, attributes). A *column view* holds every table that contains one attribute, with this
attribute last: a row's cell in each table is then one of ``size`` neighbours, and what each value of the attribute
would do to all tables is a sum of short contiguous vectors. ``places`` and ``strides`` say where: a row with codes x
has its values of table t at

    start_t + Σ_j x[places[t, j]] · strides[t, j]  …  + size − 1.                                                   (1)

The distance of the rows from the tables is Σ D², where D is by how many people the rows are above a cell of a table. A
row that takes value v instead of u raises one cell of each table that contains the attribute, D_tv, by one, and lowers
one, D_tu. With m such tables

    ½ (change of Σ D²)  =  Σ_t D_tv − Σ_t D_tu + m.                                                                 (2)

All loops release the interpreter lock. None draws anything: results depend on the arguments alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.kernels import Floats, Integers
from margrave.compilation import compiler

Codes = NDArray[np.int32]
Differences = NDArray[np.float32]

# No sum is regrouped: the same release and the same seed give the same rows on every machine.
compiled = compiler(cache=True, nogil=True, error_model="numpy")

# Rows that are counted into one table after another while they are in the cache.
_BLOCK = 2048
# A row moves if the right-hand side of (2) is below zero by more than this; less is rounding.
_LEAST_GAIN = 1e-3


@compiled
def count_tables(
    codes: Codes, places: Integers, strides: Integers, offset: Integers, counts: Floats, first: int, last: int
) -> None:
    """Add the rows to tables first … last − 1 of a buffer of counts; ``places`` and ``strides`` as in (1)."""
    rows, width = codes.shape[0], places.shape[1]
    cell = np.empty(_BLOCK, dtype=np.int64)
    for begin in range(0, rows, _BLOCK):
        end = min(begin + _BLOCK, rows)
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
def entropies(counts: Floats, offset: Integers, entropy: Floats, first: int, last: int) -> None:
    """Write the entropy of each of the tables first … last − 1, as shares of their sum; zero for an empty table."""
    for t in range(first, last):
        total, plain = 0.0, 0.0
        for c in range(offset[t], offset[t + 1]):
            if counts[c] > 0:
                total += counts[c]
                plain += counts[c] * np.log(counts[c])
        entropy[t] = np.log(total) - plain / total if total > 0 else 0.0


@compiled
def draw_column(
    codes: Codes,
    attribute: int,
    context: Integers,
    conditional: Floats,
    fallback: Floats,
    order: Integers,
    shift: Floats,
) -> None:
    """Give one attribute of all rows values in proportion to a conditional table, spread evenly over each context.

    Of the n rows of a context as many get value v as n · share_v, up to one (systematic sampling): rows drawn one by
    one would stray by the square root of it.

    Parameters
    ----------
    codes
        The rows; ``codes[:, attribute]`` is written.
    context
        Shape (rows,); which row of the conditional table each row follows.
    conditional
        Shape (contexts, size), not negative.
    fallback
        Shape (size,), not all zero; followed where a context counts nobody in the table.
    order
        Shape (rows,); a random order of the rows, so that values go to any rows of a context.
    shift
        Shape (contexts,); where in 0 … 1 the spread of each context begins.
    """
    contexts, size = conditional.shape
    start = np.zeros(contexts + 1, dtype=np.int64)
    for i in range(len(context)):
        start[context[i] + 1] += 1
    for c in range(contexts):
        start[c + 1] += start[c]
    within = np.empty(len(context), dtype=np.int64)
    filled = start[:-1].copy()
    for i in order:
        c = context[i]
        within[filled[c]] = i
        filled[c] += 1
    for c in range(contexts):
        count = start[c + 1] - start[c]
        if count == 0:
            continue
        total = 0.0
        for v in range(size):
            total += conditional[c, v]
        shares = conditional[c] if total > 0 else fallback
        if total <= 0:
            total = fallback.sum()
        done, reached = 0, 0.0
        for v in range(size):
            reached += shares[v]
            until = count if v == size - 1 else int(np.floor(reached / total * count + shift[c]))
            while done < min(until, count):
                codes[within[start[c] + done], attribute] = v
                done += 1
        # Rounding may leave the last rows to a value that has no share; they take the last value that has one.
        if shares[size - 1] <= 0:
            last = size - 1
            while last > 0 and shares[last] <= 0:
                last -= 1
            for i in range(start[c], start[c + 1]):
                if codes[within[i], attribute] == size - 1 and last != size - 1:
                    codes[within[i], attribute] = last


@compiled
def gather(
    buffer: Differences, column: Differences, table: Integers, start: Integers, outer: Integers, size: int,
    inner: Integers, first: int, last: int,
) -> None:  # fmt: skip
    """Copy tables first … last − 1 of a column view from the buffer, their attribute moved to the end.

    Parameters
    ----------
    buffer, column
        All tables; those of the view.
    table, start
        First cell of each table in the buffer; and in the view.
    outer, size, inner
        Each table as an array of shape (outer, size, inner).
    """
    for t in range(first, last):
        block = size * inner[t]
        for o in range(outer[t]):
            source = buffer[table[t] + o * block : table[t] + (o + 1) * block].reshape(size, inner[t])
            target = column[start[t] + o * block : start[t] + (o + 1) * block].reshape(inner[t], size)
            for i in range(inner[t]):
                for v in range(size):
                    target[i, v] = source[v, i]


@compiled
def scatter(
    buffer: Differences, column: Differences, table: Integers, start: Integers, outer: Integers, size: int,
    inner: Integers, first: int, last: int,
) -> None:  # fmt: skip
    """Copy a column view back; the parameters are those of `gather`."""
    for t in range(first, last):
        block = size * inner[t]
        for o in range(outer[t]):
            target = buffer[table[t] + o * block : table[t] + (o + 1) * block].reshape(size, inner[t])
            source = column[start[t] + o * block : start[t] + (o + 1) * block].reshape(inner[t], size)
            for v in range(size):
                for i in range(inner[t]):
                    target[v, i] = source[i, v]


@compiled
def propose(
    codes: Codes, attribute: int, size: int, column: Differences, start: Integers, places: Integers,
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
    above = np.empty(size, dtype=np.float32)
    for i in range(first, last):
        row = codes[i]
        above[:] = 0
        for t in range(count):
            cell = start[t]
            for j in range(width):
                cell += row[places[t, j]] * strides[t, j]
            values = column[cell : cell + size]
            for v in range(size):
                above[v] += values[v]
        # The row itself is counted in its present cell of every table.
        best = row[attribute]
        above[best] -= np.float32(count)
        for v in range(size):
            if above[v] < above[best]:
                best = v
        wanted[i] = best


@compiled
def settle(
    codes: Codes, attribute: int, size: int, column: Differences, start: Integers, places: Integers,
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
        change = float(count)
        for t in range(count):
            cell = start[t]
            for j in range(width):
                cell += row[places[t, j]] * strides[t, j]
            cells[t] = cell
            change += column[cell + new] - column[cell + old]
        if change < -_LEAST_GAIN:
            row[attribute] = new
            moved += 1
            gained -= 2.0 * change
            for t in range(count):
                column[cells[t] + old] -= np.float32(1)
                column[cells[t] + new] += np.float32(1)
    return moved, gained


@compiled
def visit(
    codes: Codes, attribute: int, size: int, column: Differences, start: Integers, places: Integers,
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
