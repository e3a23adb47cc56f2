r"""The compiled loops of the non-negative solver: a round, a look at where it stands, and the sums of its certificate.

The state of a round is one number v a cell of every outer table γ: y = max(v, 0) is the table kept non-negative and
u = min(v, 0) its scaled multiplier (``splitting`` has the derivation). With ρ_γ the penalty, w_γ the weight and
f_γ = w_γ / (w_γ + ρ_γ), a_γ = ρ_γ / (w_γ + ρ_γ), a round is

    x = f_γ z_γ + a_γ C_γ |v| + Σ_j broadcast(C_{<j} μ_{γ∖j}) / n_j           the table that agrees with all others  (1)
    v⁺ = v + α (x − y)                                                         step, over-relaxed by α               (2)
    s_j = sum of |v⁺| along axis j                                             all that the inner tables need        (3)

C_γ |v| is |v| less its facets, and those are left over from (3) of the round before. So with the small tables
P_j = C_{<j} μ_{γ∖j} / n_j − a_γ C_{<j} s_j / n_j a cell is x = f z + a |v| + Σ_j P_j, and (1), (2) and (3) are one pass
that reads z and v and writes v: 24 bytes a cell. Where f = 0, as in a repair, z is not read: 16 bytes.

A changed penalty leaves ρ u as it is: u is multiplied by ρ_old / ρ_new in the same pass, as it is written.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from margrave.algebra.kernels import (
    Floats,
    Index,
    Integers,
    add_facets,
    center_before,
    compiled,
    facet_cells,
    sum_facets,
    trailing_facets,
    widest_facets,
)

# Relative violations are counted in powers of two from 2⁻⁶⁴ to 2⁶⁴.
BINS = 128


class Factors(NamedTuple):
    """What a round multiplies with, one number a table; shape (tables,) each.

    Attributes
    ----------
    target
        f: of the residuals z, w / (w + ρ); one where the weight is infinite.
    own
        a: of the state |v|, ρ / (w + ρ).
    inverse
        1 / (w + ρ), with Σ_{γ⊇τ} ρ_γ n_τ/n_γ in place of ρ for inner tables; zero where the weight is infinite.
    penalty
        ρ of the outer tables, zero for the inner ones.
    """

    target: Floats
    own: Floats
    inverse: Floats
    penalty: Floats


class Moves(NamedTuple):
    """What a round adds up for each table; shape (tables,) each.

    Attributes
    ----------
    kept, multiplier
        ‖y⁺ − y‖² and ‖u⁺ − u‖², added to what stands there.
    negative
        Σ max(−x, 0), written.
    """

    kept: Floats
    multiplier: Floats
    negative: Floats


class Sums(NamedTuple):
    """What a look writes for each table; shape (tables,) each.

    Attributes
    ----------
    complementarity
        u · x.
    paid
        Σ u min(x, 0), so much of it where x is negative.
    distance
        ‖y − x‖².
    negative, lowest
        Σ max(−x, 0), and the least cell of x.
    """

    complementarity: Floats
    paid: Floats
    distance: Floats
    negative: Floats
    lowest: Floats


@compiled
def step_block(
    z: Floats,
    spread: int,
    v: Floats,
    target: float,
    own: float,
    relaxation: float,
    shrink: float,
    parts: tuple[Floats, Floats, Floats],
    sums: tuple[Floats, Floats, Floats],
) -> tuple[float, float, float]:
    """Do (1), (2) and (3) for a table of three axes; return its parts of the `Moves`.

    ``parts`` and ``sums`` are the facets (b, c), (a, c), (a, b) of P and of s. With ``spread`` = 0 one row of z stands
    for all of them.
    """
    bc, ac, ab = parts
    sum_bc, sum_ac, sum_ab = sums
    na, nb, nc = v.shape
    kept, multiplier, negative = 0.0, 0.0, 0.0
    for a in range(na):
        for b in range(nb):
            part, total = ab[a, b], 0.0
            for c in range(nc):
                old = v[a, b, c]
                y = max(old, 0.0)
                x = target * z[a * spread, b * spread, c] + own * abs(old) + (part + bc[b, c] + ac[a, c])
                new = old + relaxation * (x - y)
                above = max(new, 0.0)
                below = new - above
                kept += (above - y) ** 2
                multiplier += (below - (old - y)) ** 2
                negative += max(-x, 0.0)
                size = above - shrink * below
                v[a, b, c] = above + shrink * below
                total += size
                sum_bc[b, c] += size
                sum_ac[a, c] += size
            sum_ab[a, b] = total
    return kept, multiplier, negative


@compiled
def step_matrix(
    z: Floats,
    v: Floats,
    target: float,
    own: float,
    relaxation: float,
    shrink: float,
    parts: tuple[Floats, Floats],
    sums: tuple[Floats, Floats],
) -> tuple[float, float, float]:
    """Do (1), (2) and (3) for a table of two axes; ``parts`` and ``sums`` are its facets (c,), (b,) of P and of s."""
    columns, rows = parts
    sum_columns, sum_rows = sums
    nb, nc = v.shape
    kept, multiplier, negative = 0.0, 0.0, 0.0
    for b in range(nb):
        part, total = rows[b], 0.0
        for c in range(nc):
            old = v[b, c]
            y = max(old, 0.0)
            x = target * z[b, c] + own * abs(old) + (part + columns[c])
            new = old + relaxation * (x - y)
            above = max(new, 0.0)
            below = new - above
            kept += (above - y) ** 2
            multiplier += (below - (old - y)) ** 2
            negative += max(-x, 0.0)
            size = above - shrink * below
            v[b, c] = above + shrink * below
            total += size
            sum_columns[c] += size
        sum_rows[b] = total
    return kept, multiplier, negative


@compiled
def step_cells(v: Floats, tables: Floats, relaxation: float, shrink: float) -> tuple[float, float, float]:
    """Do (2) for a table x given in ``tables``, which receives |v⁺|; return its parts of the `Moves`."""
    kept, multiplier, negative = 0.0, 0.0, 0.0
    for i in range(v.size):
        old, x = v[i], tables[i]
        y = max(old, 0.0)
        new = old + relaxation * (x - y)
        above = max(new, 0.0)
        below = new - above
        kept += (above - y) ** 2
        multiplier += (below - (old - y)) ** 2
        negative += max(-x, 0.0)
        v[i] = above + shrink * below
        tables[i] = above - shrink * below
    return kept, multiplier, negative


@compiled
def look_cells(v: Floats, tables: Floats) -> tuple[float, float, float, float, float]:
    """Return the parts of the `Sums` of a table x given in ``tables``, which receives y − x."""
    complementarity, paid, distance, negative, lowest = 0.0, 0.0, 0.0, 0.0, np.inf
    for i in range(v.size):
        x = tables[i]
        y = max(v[i], 0.0)
        complementarity += (v[i] - y) * x
        paid += (v[i] - y) * min(x, 0.0)
        distance += (y - x) ** 2
        negative += max(-x, 0.0)
        lowest = min(lowest, x)
        tables[i] = y - x
    return complementarity, paid, distance, negative, lowest


@compiled
def center_columns(x: Floats, rows: int, columns: int, line: Floats) -> None:
    """Subtract the mean of each column of a flat matrix, in place; ``line`` has room for a row."""
    mean = line[:columns]
    mean[:] = 0.0
    for a in range(rows):
        row = x[a * columns : (a + 1) * columns]
        for c in range(columns):
            mean[c] += row[c]
    for c in range(columns):
        mean[c] /= rows
    for a in range(rows):
        row = x[a * columns : (a + 1) * columns]
        for c in range(columns):
            row[c] -= mean[c]


@compiled
def center_rows(x: Floats, rows: int, columns: int) -> None:
    """Subtract the mean of each row of a flat matrix, in place."""
    for a in range(rows):
        row = x[a * columns : (a + 1) * columns]
        mean = row.sum() / columns
        for c in range(columns):
            row[c] -= mean


@compiled
def center_facets(axes: Integers, order: int, facets: Floats, place: Integers, line: Floats) -> None:
    """Turn each facet j of a table into C_{<j} of it, in place.

    The work of `center_before`, with shortcuts for up to three axes that allocate nothing: small tables are mostly
    facets.
    """
    if order == 2:
        center_rows(facets[place[1] : place[1] + axes[0]], 1, axes[0])
    elif order == 3:
        na, nb, nc = axes[0], axes[1], axes[2]
        center_columns(facets[place[1] : place[1] + na * nc], na, nc, line)
        last = facets[place[2] : place[2] + na * nb]
        center_columns(last, na, nb, line)
        center_rows(last, na, nb)
    else:
        for j in range(order):
            center_before(facets[place[j] : place[j] + facet_cells(axes, order, j)], axes, j)


@compiled
def prepare_parts(
    t: int, index: Index, inner: Floats, inverse: float, facets: Floats, parts: Floats, place: Integers, line: Floats
) -> None:
    """Write P of table t to ``parts``, and where to ``place``; ``facets`` hold ρ C_{<j} s_j / n_j."""
    order, axes, slot = index.order[t], index.axes[t], index.slot[t]
    begin = 0
    for j in range(order):
        cells = facet_cells(axes, order, j)
        start = index.offset[index.facet[t, j]]
        source, facet, part = inner[start : start + cells], facets[slot[j] : slot[j] + cells], parts[begin:]
        share = 1.0 / axes[j]
        # C_{<j} leaves the facets as they are: they are centred already.
        for i in range(cells):
            part[i] = share * source[i] - inverse * facet[i]
        place[j] = begin
        begin += cells
    center_facets(axes, order, parts, place, line)


@compiled
def agreeing_table(
    z: Floats,
    v: Floats,
    target: float,
    own: float,
    axes: Integers,
    order: int,
    parts: Floats,
    place: Integers,
    out: Floats,
) -> None:
    """Write x of equation (1) to ``out`` for a table of any order, given P."""
    for i in range(v.size):
        out[i] = target * z[i] + own * abs(v[i])
    add_facets(1.0, out, 1.0, axes, order, parts, place, out)


@compiled
def finish_facets(axes: Integers, order: int, facets: Floats, slot: Integers, scale: float, line: Floats) -> None:
    """Turn the sums s_j of a table into scale · C_{<j} s_j / n_j, in place."""
    for j in range(order):
        facet = facets[slot[j] : slot[j] + facet_cells(axes, order, j)]
        share = scale / axes[j]
        for i in range(facet.size):
            facet[i] *= share
    center_facets(axes, order, facets, slot, line)


@compiled
def step_tables(
    first: int,
    last: int,
    index: Index,
    shift: int,
    inner: Floats,
    z: Floats,
    v: Floats,
    facets: Floats,
    factors: Factors,
    relaxation: float,
    penalties: Floats,
    moves: Moves,
) -> None:
    """Do one round for the outer tables first … last − 1.

    Parameters
    ----------
    first, last, index, shift
        The tables, and the cell of the closure at which ``z`` and ``v`` begin.
    inner
        Marginals of the inner tables at v.
    z, v
        Residuals to be near to, and the state, of the outer tables; the state is replaced.
    facets
        ρ C_{<j} s_j / n_j of every outer table, replaced by those of v⁺.
    factors, relaxation
        f, a, 1 / (w + ρ) and ρ of each table, and α.
    penalties
        ρ of each table from now on; v⁺ and its facets are written for it.
    moves
        Receives the sums of each table.
    """
    place = np.empty(index.axes.shape[1], dtype=np.int64)
    parts, line = np.empty(widest_facets(first, last, index)), np.empty(longest_axis(first, last, index))
    spare, nothing = np.empty(largest_table(first, last, index, 3)), np.zeros(longest_axis(first, last, index))
    for t in range(first, last):
        order, axes, slot = index.order[t], index.axes[t], index.slot[t]
        prepare_parts(t, index, inner, factors.inverse[t], facets, parts, place, line)
        target, own, shrink = factors.target[t], factors.own[t], factors.penalty[t] / penalties[t]
        start, end = index.offset[t] - shift, index.offset[t + 1] - shift
        state = v[start:end]
        if order == 3:
            na, nb, nc = axes[0], axes[1], axes[2]
            for j in range(2):
                facets[slot[j] : slot[j] + facet_cells(axes, order, j)] = 0.0
            # Zero times z is not worth reading z for.
            near = z[start:end].reshape(na, nb, nc) if target != 0.0 else nothing[:nc].reshape(1, 1, nc)
            kept, multiplier, negative = step_block(
                near,
                1 if target != 0.0 else 0,
                state.reshape(na, nb, nc),
                target,
                own,
                relaxation,
                shrink,
                trailing_facets(parts, place, 0, 0, na, nb, nc),
                trailing_facets(facets, slot, 0, 0, na, nb, nc),
            )
        elif order == 2:
            nb, nc = axes[0], axes[1]
            sums = (facets[slot[0] : slot[0] + nc], facets[slot[1] : slot[1] + nb])
            sums[0][:] = 0.0
            given = (parts[place[0] : place[0] + nc], parts[place[1] : place[1] + nb])
            close, matrix = z[start:end].reshape(nb, nc), state.reshape(nb, nc)
            kept, multiplier, negative = step_matrix(close, matrix, target, own, relaxation, shrink, given, sums)
        else:
            table = spare[: end - start]
            agreeing_table(z[start:end], state, target, own, axes, order, parts, place, table)
            kept, multiplier, negative = step_cells(state, table, relaxation, shrink)
            sum_facets(table, axes, order, facets, slot)
        finish_facets(axes, order, facets, slot, penalties[t], line)
        moves.kept[t] += kept
        moves.multiplier[t] += multiplier
        moves.negative[t] = negative


@compiled
def look_tables(
    first: int,
    last: int,
    index: Index,
    shift: int,
    inner: Floats,
    z: Floats,
    v: Floats,
    facets: Floats,
    factors: Factors,
    lags: Floats,
    sums: Sums,
) -> None:
    """Write the `Sums` of the outer tables first … last − 1, and the facets ρ C_{<j} s_j / n_j of y − x to ``lags``.

    Other parameters as for `step_tables`. ``sums.distance`` receives ‖C_γ (y − x)‖² instead of ‖y − x‖²: the facets of
    a table are orthogonal to each other and to what they leave of it.
    """
    place = np.empty(index.axes.shape[1], dtype=np.int64)
    parts, line = np.empty(widest_facets(first, last, index)), np.empty(longest_axis(first, last, index))
    spare = np.empty(largest_table(first, last, index, -1))
    for t in range(first, last):
        order, axes, slot = index.order[t], index.axes[t], index.slot[t]
        prepare_parts(t, index, inner, factors.inverse[t], facets, parts, place, line)
        start, end = index.offset[t] - shift, index.offset[t + 1] - shift
        table = spare[: end - start]
        agreeing_table(z[start:end], v[start:end], factors.target[t], factors.own[t], axes, order, parts, place, table)
        complementarity, paid, distance, negative, lowest = look_cells(v[start:end], table)
        sum_facets(table, axes, order, lags, slot)
        finish_facets(axes, order, lags, slot, 1.0, line)
        for j in range(order):
            facet = lags[slot[j] : slot[j] + facet_cells(axes, order, j)]
            for i in range(facet.size):
                distance -= axes[j] * facet[i] * facet[i]
                facet[i] *= factors.penalty[t]
        sums.complementarity[t], sums.paid[t], sums.distance[t] = complementarity, paid, max(distance, 0.0)
        sums.negative[t], sums.lowest[t] = negative, lowest


@compiled
def sum_states(first: int, last: int, index: Index, shift: int, v: Floats, penalties: Floats, facets: Floats) -> None:
    """Write the facets ρ C_{<j} s_j / n_j of |v| for the outer tables first … last − 1; v begins at cell ``shift``."""
    spare, line = np.empty(largest_table(first, last, index, -1)), np.empty(longest_axis(first, last, index))
    for t in range(first, last):
        order, axes, slot = index.order[t], index.axes[t], index.slot[t]
        state = v[index.offset[t] - shift : index.offset[t + 1] - shift]
        table = spare[: state.size]
        for i in range(state.size):
            table[i] = abs(state[i])
        sum_facets(table, axes, order, facets, slot)
        finish_facets(axes, order, facets, slot, penalties[t], line)


@compiled
def gather_outer(first: int, last: int, index: Index, slots: int, facets: Floats, tables: Floats) -> None:
    """Write the sum of all facets of outer tables that are table t, for the inner tables t = first … last − 1.

    The facets of outer tables have their slots from ``slots`` on.
    """
    for t in range(first, last):
        table = tables[index.offset[t] : index.offset[t + 1]]
        table[:] = 0.0
        for k in range(index.above_start[t], index.above_start[t + 1]):
            slot = index.above_slot[k]
            if slot >= slots:
                facet = facets[slot : slot + table.size]
                for i in range(table.size):
                    table[i] += facet[i]


@compiled
def write_tables(
    first: int,
    last: int,
    index: Index,
    shift: int,
    inner: Floats,
    z: Floats,
    v: Floats,
    facets: Floats,
    factors: Factors,
    out: Floats,
    lowest: Floats,
    distances: Floats,
    compare: bool,
) -> None:
    """Write x of the outer tables first … last − 1 to ``out``, which may be v, and the least cell of each.

    With ``compare``, ``out`` stays as it is and ‖x − out‖₁ is written instead. Other parameters as for `step_tables`.
    """
    place = np.empty(index.axes.shape[1], dtype=np.int64)
    parts, line = np.empty(widest_facets(first, last, index)), np.empty(longest_axis(first, last, index))
    spare = np.empty(largest_table(first, last, index, -1))
    for t in range(first, last):
        order, axes = index.order[t], index.axes[t]
        prepare_parts(t, index, inner, factors.inverse[t], facets, parts, place, line)
        start, end = index.offset[t] - shift, index.offset[t + 1] - shift
        table, target = spare[: end - start], out[start:end]
        agreeing_table(z[start:end], v[start:end], factors.target[t], factors.own[t], axes, order, parts, place, table)
        least, distance = np.inf, 0.0
        if compare:
            for i in range(table.size):
                distance += abs(table[i] - target[i])
        else:
            for i in range(table.size):
                least = min(least, table[i])
                target[i] = table[i]
        lowest[t], distances[t] = least, distance


@compiled
def dual_sums(
    first: int,
    last: int,
    index: Index,
    shift: int,
    z: Floats,
    v: Floats,
    penalties: Floats,
    facets: Floats,
    norms: Floats,
    products: Floats,
) -> None:
    """Write ‖m‖² and m · z with m = C_γ λ, λ = −2 ρ min(v, 0), and the facets C_{<j} s_j / n_j of λ; outer tables."""
    spare, line = np.empty(largest_table(first, last, index, -1)), np.empty(longest_axis(first, last, index))
    for t in range(first, last):
        order, axes, slot = index.order[t], index.axes[t], index.slot[t]
        start, end = index.offset[t] - shift, index.offset[t + 1] - shift
        state, target, table = v[start:end], z[start:end], spare[: end - start]
        for i in range(table.size):
            table[i] = 2.0 * penalties[t] * max(-state[i], 0.0)
        sum_facets(table, axes, order, facets, slot)
        finish_facets(axes, order, facets, slot, 1.0, line)
        add_facets(1.0, table, -1.0, axes, order, facets, slot, table)
        norm, product = 0.0, 0.0
        for i in range(table.size):
            norm += table[i] * table[i]
            product += table[i] * target[i]
        norms[t], products[t] = norm, product


@compiled
def residual_distances(
    first: int, last: int, index: Index, shift: int, z: Floats, tables: Floats, facets: Floats, distances: Floats
) -> None:
    """Write ‖C_γ x − z‖² of the outer tables first … last − 1; a buffer of facets is worked in."""
    spare, line = np.empty(largest_table(first, last, index, -1)), np.empty(longest_axis(first, last, index))
    for t in range(first, last):
        order, axes, slot = index.order[t], index.axes[t], index.slot[t]
        start, end = index.offset[t] - shift, index.offset[t + 1] - shift
        target, table = z[start:end], spare[: end - start]
        sum_facets(tables[start:end], axes, order, facets, slot)
        finish_facets(axes, order, facets, slot, 1.0, line)
        add_facets(1.0, tables[start:end], -1.0, axes, order, facets, slot, table)
        total = 0.0
        for i in range(table.size):
            total += (table[i] - target[i]) ** 2
        distances[t] = total


@compiled
def add_targets(first: int, last: int, index: Index, factors: Floats, z: Floats, residuals: Floats) -> None:
    """Add f z to the residuals of each table first … last − 1, in place."""
    for t in range(first, last):
        start, end = index.offset[t], index.offset[t + 1]
        target, residual = z[start:end], residuals[start:end]
        for i in range(target.size):
            residual[i] += factors[t] * target[i]


@compiled
def squared_distances(first: int, last: int, index: Index, z: Floats, residuals: Floats, distances: Floats) -> None:
    """Write ‖r − z‖² of each table first … last − 1."""
    for t in range(first, last):
        start, end = index.offset[t], index.offset[t + 1]
        target, residual = z[start:end], residuals[start:end]
        total = 0.0
        for i in range(target.size):
            total += (residual[i] - target[i]) ** 2
        distances[t] = total


@compiled
def count_violations(
    first: int, last: int, index: Index, shift: int, tables: Floats, total: float, worst: Floats, masses: Floats
) -> Floats:
    """Return how violations are spread, and write the largest and the sum of each table first … last − 1.

    A violation −μ > 0 of table γ is counted with weight 1/n_γ at the power of two of −μ n_γ / total, its size against
    a uniform table's cell. Shape (BINS,).
    """
    histogram = np.zeros(BINS)
    for t in range(first, last):
        table = tables[index.offset[t] - shift : index.offset[t + 1] - shift]
        largest, mass = 0.0, 0.0
        for i in range(table.size):
            if table[i] < 0.0:
                largest = max(largest, -table[i])
                mass -= table[i]
                _, power = math.frexp(-table[i] * table.size / total)
                histogram[min(max(power + BINS // 2, 0), BINS - 1)] += 1.0 / table.size
        worst[t], masses[t] = largest, mass
    return histogram


@compiled
def write_deficits(table: Floats, floor: float, out: Floats) -> float:
    """Write what a table lacks, d = max(−μ − floor/n, 0), and return its sum."""
    allowed, mass = floor / table.size, 0.0
    for i in range(table.size):
        out[i] = max(-table[i] - allowed, 0.0)
        mass += out[i]
    return mass


@compiled
def sum_deficits(
    first: int, last: int, index: Index, shift: int, floor: float, tables: Floats, facets: Floats, masses: Floats
) -> None:
    """Write the facets n_γ C_{<j} s_j / n_j of d, and its sum, for the outer tables first … last − 1."""
    spare, line = np.empty(largest_table(first, last, index, -1)), np.empty(longest_axis(first, last, index))
    for t in range(first, last):
        order, axes, slot = index.order[t], index.axes[t], index.slot[t]
        table = tables[index.offset[t] - shift : index.offset[t + 1] - shift]
        lacking = spare[: table.size]
        masses[t] = write_deficits(table, floor, lacking)
        sum_facets(lacking, axes, order, facets, slot)
        finish_facets(axes, order, facets, slot, float(table.size), line)


@compiled
def lift_tables(
    first: int,
    last: int,
    index: Index,
    shift: int,
    floor: float,
    inner: Floats,
    facets: Floats,
    scale: float,
    tables: Floats,
) -> None:
    """Add the tables of the lift to the outer tables first … last − 1, and scale the sums.

    Parameters
    ----------
    first, last, index, shift, floor, facets
        As for `sum_deficits`, which has written the facets.
    inner
        Marginals of the inner tables of the lift.
    scale
        What the sums are multiplied with.
    tables
        The outer tables, replaced.
    """
    place = np.empty(index.axes.shape[1], dtype=np.int64)
    parts, line = np.empty(widest_facets(first, last, index)), np.empty(longest_axis(first, last, index))
    spare = np.empty(largest_table(first, last, index, -1))
    for t in range(first, last):
        order, axes = index.order[t], index.axes[t]
        table = tables[index.offset[t] - shift : index.offset[t + 1] - shift]
        lacking = spare[: table.size]
        write_deficits(table, floor, lacking)
        prepare_parts(t, index, inner, 1.0 / table.size, facets, parts, place, line)
        add_facets(1.0, lacking, 1.0, axes, order, parts, place, lacking)
        for i in range(table.size):
            table[i] = scale * (table[i] + lacking[i])


@compiled
def least_share(first: int, last: int, index: Index, shift: int, tables: Floats, point: Floats, shares: Floats) -> None:
    """Write the least weight θ with which (1 − θ) μ + θ u is not negative, for each table first … last − 1.

    Infinite where μ is negative and u is not positive.
    """
    for t in range(first, last):
        table = tables[index.offset[t] - shift : index.offset[t + 1] - shift]
        positive = point[index.offset[t] - shift : index.offset[t + 1] - shift]
        share = 0.0
        for i in range(table.size):
            if table[i] < 0.0:
                share = max(share, -table[i] / (positive[i] - table[i])) if positive[i] > 0.0 else np.inf
                if share == np.inf:
                    break
        shares[t] = share


@compiled
def largest_table(first: int, last: int, index: Index, left_out: int) -> int:
    """Return the most cells of the tables first … last − 1, those of the order ``left_out`` not counted."""
    largest = 0
    for t in range(first, last):
        if index.order[t] != left_out:
            largest = max(largest, index.offset[t + 1] - index.offset[t])
    return largest


@compiled
def longest_axis(first: int, last: int, index: Index) -> int:
    """Return the length of the longest axis of the tables first … last − 1."""
    longest = 1
    for t in range(first, last):
        for j in range(index.order[t]):
            longest = max(longest, index.axes[t, j])
    return longest
