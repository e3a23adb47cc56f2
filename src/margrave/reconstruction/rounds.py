r"""The compiled loops of the non-negative solver: one round, and what its certificate needs.

A round of accelerated projected gradient on the dual takes, for every outer table γ with multipliers λ, extrapolated
multipliers y, curvature κ_γ = 1/(2 w_γ) and step s_γ (the derivation is in ``nonnegative``),

    μ = z_γ + κ_γ C_γ y + Σ_j broadcast(C_{<j} μ_{γ∖j}) / n_j                 the table at y                      (1)
    λ⁺ = max(y − s_γ μ, 0),    y⁺ = λ⁺ + β (λ⁺ − λ)                           step and momentum                   (2)
    s_j = sum of y⁺ along axis j                                              all that the inner tables need      (3)

C_γ y is y less its facets, and those are left over from (3) of the round before. So with the small tables
P_j = C_{<j} μ_{γ∖j} / n_j − κ_γ C_{<j} s_j / n_j a cell is μ = z + κ y + Σ_j P_j, and (1), (2) and (3) are one pass:
three arrays read, two written, 40 bytes a cell.
"""

from __future__ import annotations

import math

import numpy as np

from margrave.algebra.kernels import (
    Floats,
    Index,
    Integers,
    center_before,
    compiled,
    facet_cells,
    leading_place,
    spread_facets,
    subset_tables,
    trailing_facets,
    widest_facets,
)

# Relative violations are counted in powers of two from 2⁻⁶⁴ to 2⁶⁴.
BINS = 128
_Facets = tuple[Floats, Floats, Floats]


@compiled
def step_block(
    base: Floats,
    y: Floats,
    multipliers: Floats,
    curvature: float,
    step: float,
    momentum: float,
    parts: _Facets,
    sums: _Facets,
    spread: int,
) -> float:
    """Do (1), (2) and (3) for a block of three axes; return its part of the restart test, Σ (y − λ⁺)(λ⁺ − λ).

    ``parts`` and ``sums`` are the facets (b, c), (a, c), (a, b) of P and of s. With ``spread`` = 0 there is one row
    (a, c) for all a: a table with fewer than three axes has no such facet.
    """
    bc, ac, ab = parts
    sum_bc, sum_ac, sum_ab = sums
    na, nb, nc = y.shape
    turn = 0.0
    for a in range(na):
        line = a * spread
        for b in range(nb):
            part, total = ab[a, b], 0.0
            for c in range(nc):
                old = y[a, b, c]
                value = base[a, b, c] + curvature * old + (part + bc[b, c] + ac[line, c])
                new = max(old - step * value, 0.0)
                change = new - multipliers[a, b, c]
                turn += (old - new) * change
                ahead = new + momentum * change
                multipliers[a, b, c] = new
                y[a, b, c] = ahead
                total += ahead
                sum_bc[b, c] += ahead
                sum_ac[line, c] += ahead
            sum_ab[a, b] = total
    return turn


@compiled
def step_table(
    base: Floats,
    y: Floats,
    multipliers: Floats,
    curvature: float,
    step: float,
    momentum: float,
    axes: Integers,
    order: int,
    parts: Floats,
    place: Integers,
    sums: Floats,
    slot: Integers,
    spare: Floats,
) -> float:
    """Do (1), (2) and (3) for one table of three or more axes; return its part of the restart test.

    Facets of P stand in ``parts`` at ``place``, those of s in ``sums`` at ``slot``, which must be zero; ``spare`` has
    room for a block of the last three axes.
    """
    lead = order - 3
    na, nb, nc = axes[lead], axes[lead + 1], axes[lead + 2]
    block = na * nb * nc
    leading = y.size // block
    turn = 0.0
    for index in range(leading):
        piece = y[index * block : (index + 1) * block]
        constant = base[index * block : (index + 1) * block]
        for j in range(lead):
            start = place[j] + leading_place(index, leading, axes, j) * block
            source, target = parts[start : start + block], spare[:block]
            for i in range(block):
                target[i] = constant[i] + source[i]
            constant = target
        turn += step_block(
            constant.reshape(na, nb, nc),
            piece.reshape(na, nb, nc),
            multipliers[index * block : (index + 1) * block].reshape(na, nb, nc),
            curvature,
            step,
            momentum,
            trailing_facets(parts, place, lead, index, na, nb, nc),
            trailing_facets(sums, slot, lead, index, na, nb, nc),
            1,
        )
        for j in range(lead):
            start = slot[j] + leading_place(index, leading, axes, j) * block
            target = sums[start : start + block]
            for i in range(block):
                target[i] += piece[i]
    return turn


@compiled
def step_flat_table(
    base: Floats,
    y: Floats,
    multipliers: Floats,
    curvature: float,
    step: float,
    momentum: float,
    axes: Integers,
    order: int,
    parts: Floats,
    place: Integers,
    sums: Floats,
    slot: Integers,
) -> float:
    """Do (1), (2) and (3) for one table of at most two axes, seen as a block (a, 1, c); return its restart test."""
    na = axes[0] if order == 2 else 1
    nc = y.size // na
    # Facets that the table does not have are rows of zeros to read and rows to throw away to write.
    bc, ab = np.zeros((1, nc)), np.zeros((na, 1))
    sum_bc, sum_ab = np.zeros((1, nc)), np.zeros((na, 1))
    if order == 2:
        bc = parts[place[0] : place[0] + nc].reshape(1, nc)
        sum_bc = sums[slot[0] : slot[0] + nc].reshape(1, nc)
    if order > 0:
        ab = parts[place[order - 1] : place[order - 1] + na].reshape(na, 1)
        sum_ab = sums[slot[order - 1] : slot[order - 1] + na].reshape(na, 1)
    return step_block(
        base.reshape(na, 1, nc),
        y.reshape(na, 1, nc),
        multipliers.reshape(na, 1, nc),
        curvature,
        step,
        momentum,
        (bc, np.zeros((1, nc)), ab),
        (sum_bc, np.zeros((1, nc)), sum_ab),
        0,
    )


@compiled
def step_tables(
    first: int,
    last: int,
    index: Index,
    shift: int,
    inner: Floats,
    base: Floats,
    y: Floats,
    multipliers: Floats,
    facets: Floats,
    curvatures: Floats,
    steps: Floats,
    momentum: float,
    turns: Floats,
) -> None:
    """Do one round for the outer tables first … last − 1.

    Parameters
    ----------
    first, last, index, shift
        The tables, and the cell of the closure at which ``base``, ``y`` and ``multipliers`` begin.
    inner
        Marginals of the inner tables at y.
    base, y, multipliers
        z, y and λ of the outer tables; the last two are replaced.
    facets
        C_{<j} s_j / n_j of every outer table, replaced by those of y⁺.
    curvatures, steps, momentum
        κ_γ and s_γ of each table, and β.
    turns
        Receives each table's part of the restart test.
    """
    place = np.empty(index.axes.shape[1], dtype=np.int64)
    parts = np.empty(widest_facets(first, last, index))
    spare = np.empty(_largest_block(first, last, index))
    for t in range(first, last):
        order, axes, slot = index.order[t], index.axes[t], index.slot[t]
        spread_facets(t, index, inner, parts, place)
        for j in range(order):
            cells = facet_cells(axes, order, j)
            facet, part = facets[slot[j] : slot[j] + cells], parts[place[j] : place[j] + cells]
            for i in range(cells):
                part[i] -= curvatures[t] * facet[i]
                facet[i] = 0.0
        start, end = index.offset[t] - shift, index.offset[t + 1] - shift
        z, ahead, own = base[start:end], y[start:end], multipliers[start:end]
        if order > 2:
            turns[t] = step_table(
                z, ahead, own, curvatures[t], steps[t], momentum, axes, order, parts, place, facets, slot, spare
            )
        else:
            turns[t] = step_flat_table(
                z, ahead, own, curvatures[t], steps[t], momentum, axes, order, parts, place, facets, slot
            )
        finish_facets(axes, order, facets, slot)


@compiled
def finish_facets(axes: Integers, order: int, facets: Floats, slot: Integers) -> None:
    """Turn the sums s_j of a table into C_{<j} s_j / n_j, in place."""
    for j in range(order):
        facet = facets[slot[j] : slot[j] + facet_cells(axes, order, j)]
        for i in range(facet.size):
            facet[i] /= axes[j]
        center_before(facet, axes, j)


@compiled
def _largest_block(first: int, last: int, index: Index) -> int:
    """Return the size of the largest block of three axes among tables of more than three."""
    largest = 0
    for t in range(first, last):
        if index.order[t] > 3:
            axes, order = index.axes[t], index.order[t]
            largest = max(largest, axes[order - 3] * axes[order - 2] * axes[order - 1])
    return largest


@compiled
def largest_inside(first: int, last: int, index: Index, values: Floats, largest: Floats) -> None:
    """Write, for each table first … last − 1, the largest of the values of all tables inside it."""
    subsets = np.empty(1 << index.axes.shape[1], dtype=np.int64)
    for t in range(first, last):
        subset_tables(t, index, subsets)
        best = 0.0
        for mask in range(1 << index.order[t]):
            best = max(best, values[subsets[mask]])
        largest[t] = best


@compiled
def move_residuals(
    first: int, last: int, index: Index, z: Floats, curvatures: Floats, moves: Floats, norms: Floats, products: Floats
) -> None:
    """Replace m = Sᵀ λ by the residuals z + κ m, and write ‖m‖² and m·z of each table first … last − 1."""
    for t in range(first, last):
        start, end = index.offset[t], index.offset[t + 1]
        move, target = moves[start:end], z[start:end]
        norm, product = 0.0, 0.0
        for i in range(move.size):
            norm += move[i] * move[i]
            product += move[i] * target[i]
            move[i] = target[i] + curvatures[t] * move[i]
        norms[t], products[t] = norm, product


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
def count_violations(first: int, last: int, index: Index, marginals: Floats, total: float, worst: Floats) -> Floats:
    """Return how violations are spread, and write the largest of each table first … last − 1.

    A violation −μ > 0 of table γ is counted with weight 1/n_γ at the power of two of −μ n_γ / total, its size against
    a uniform table's cell. Shape (BINS,).
    """
    histogram = np.zeros(BINS)
    for t in range(first, last):
        table = marginals[index.offset[t] : index.offset[t + 1]]
        largest = 0.0
        for i in range(table.size):
            if table[i] < 0.0:
                largest = max(largest, -table[i])
                _, power = math.frexp(-table[i] * table.size / total)
                histogram[min(max(power + BINS // 2, 0), BINS - 1)] += 1.0 / table.size
        worst[t] = largest
    return histogram


@compiled
def keep_deficits(first: int, last: int, index: Index, floor: float, marginals: Floats, masses: Floats) -> None:
    """Replace the tables first … last − 1 by what they lack, max(−μ − floor/n_γ, 0), and write the sum of each."""
    for t in range(first, last):
        table = marginals[index.offset[t] : index.offset[t + 1]]
        allowed, mass = floor / table.size, 0.0
        for i in range(table.size):
            table[i] = max(-table[i] - allowed, 0.0)
            mass += table[i]
        masses[t] = mass


@compiled
def least_share(first: int, last: int, index: Index, marginals: Floats, point: Floats, shares: Floats) -> None:
    """Write the least weight θ with which (1 − θ) μ + θ u is not negative, for each table first … last − 1.

    Infinite where μ is negative and u is not positive.
    """
    for t in range(first, last):
        table = marginals[index.offset[t] : index.offset[t + 1]]
        positive = point[index.offset[t] : index.offset[t + 1]]
        share = 0.0
        for i in range(table.size):
            if table[i] < 0.0:
                share = max(share, -table[i] / (positive[i] - table[i])) if positive[i] > 0.0 else np.inf
                if share == np.inf:
                    break
        shares[t] = share
