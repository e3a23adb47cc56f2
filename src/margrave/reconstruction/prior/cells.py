r"""The loops over tables behind ``levels``: predict, weigh the evidence, estimate every cell.

Tables lie one after the other in one buffer. A table is predicted from its facets; its cells are binned on the grid, π
is fitted to the bins, and each cell gets its posterior mean, equation (4) of ``departures``, by interpolation on the
grid or, far from what was predicted, by itself. Pairs may be predicted through other attributes, equation (4) of
``levels``. What a table needs is allocated once for many tables.
"""

from __future__ import annotations

import math

import numpy as np

from margrave.algebra.kernels import Floats, Index, Integers, center_before, compiled
from margrave.reconstruction.prior.departures import (
    CAPS,
    CLASSES,
    GRID,
    HIGH,
    LOW,
    LOWEST,
    MEANS,
    OCTAVE,
    REACH,
    STEP,
    TABLE_CELLS,
    TABLE_ROUNDS,
    TINY,
    WIDE,
    class_priors,
    climb,
)
from margrave.reconstruction.prior.fitting import LARGEST_FACTOR, TOLERANCE, fit_facets

# Cycles of proportional fitting for tables of three attributes and more: tables are predicted, not fitted.
_CYCLES = 8
# How often a pair predicted through other attributes is fitted to its two tables, and through how many at most.
_PAIR_ROUNDS = 5
MOST_THROUGH = 8
# A cell predicted below 1/1024 of the noise shows less and less of a departure, and counts less and less.
_VISIBLE = 1024.0
_DENSITY = 1 / math.sqrt(2 * math.pi)


@compiled
def sample_variances(q: Floats, axes: Integers, order: int, v: Floats, most: Floats) -> None:
    """Write v of equation (3), for a flat table of shape ``axes``, and the least sum that each cell is part of."""
    v[:] = q
    most[:] = np.inf
    capped = order > 1
    outer, inner = 1, q.size
    for j in range(order):
        length = axes[j]
        inner //= length
        table, result = q.reshape(outer, length, inner), v.reshape(outer, length, inner)
        least = most.reshape(outer, length, inner)
        for o in range(outer):
            for c in range(inner):
                total = 0.0
                for i in range(length):
                    total += table[o, i, c]
                if total > 0.0:
                    for i in range(length):
                        result[o, i, c] *= max(1.0 - table[o, i, c] / total, 0.0)
                        if capped:
                            least[o, i, c] = min(least[o, i, c], total)
        outer *= length


@compiled
def departures_of(q: Floats, z: Floats, axes: Integers, order: int) -> tuple[Floats, Floats, Floats]:
    """Return d = z − C q of a flat table of shape ``axes``, with what `sample_variances` writes."""
    d, v, most = q.copy(), np.empty(q.size), np.empty(q.size)
    center_before(d, axes, order)
    for i in range(q.size):
        d[i] = z[i] - d[i]
    sample_variances(q, axes, order, v, most)
    return d, v, most


@compiled
def weight_of(u: float, share: float) -> float:
    """Return how much a cell counts when π is learned: its share of the degrees of freedom, less far below the noise.

    A multiple of 2⁻²⁰, so that sums do not depend on their order.
    """
    return math.floor(share * min(1.0, u * _VISIBLE) * 2.0**20) * 2.0**-20


@compiled
def class_of(q: float, most: float) -> int:
    """Return how many rungs of the ladder above 2 a cell of at most so many people can be on."""
    kind = 0
    while kind < CLASSES - 1 and most > CAPS[kind] * q:
        kind += 1
    return kind


@compiled
def cell_likelihoods(
    q: Floats,
    d: Floats,
    v: Floats,
    most: Floats,
    noise: float,
    share: float,
    rows: Floats,
    counts: Floats,
    kinds: Integers,
) -> None:
    """Write the likelihood of each component for each cell of a table, how much the cell counts, and its class.

    Of single attributes, which are hardly ever as predicted: their cells lie where bins are wide.
    """
    root = math.sqrt(0.5)
    for i in range(q.size):
        counts[i], kinds[i] = 0.0, 0
        rows[i] = 1.0
        if q[i] <= 0.0:
            continue
        deviation = math.sqrt(noise + v[i])
        x, u = d[i] / deviation, q[i] / deviation
        counts[i], kinds[i] = weight_of(u, share), class_of(q[i], most[i])
        for g in range(rows.shape[1]):
            begin, end = (LOW[g] - 1.0) * u - x, (HIGH[g] - 1.0) * u - x
            if end - begin < 1e-3:
                rows[i, g] = math.exp(-0.125 * (begin + end) ** 2) * _DENSITY
            elif begin > 0.0:
                rows[i, g] = 0.5 * (math.erfc(begin * root) - math.erfc(end * root)) / (end - begin)
            else:
                rows[i, g] = 0.5 * (math.erfc(-end * root) - math.erfc(-begin * root)) / (end - begin)


@compiled
def learn_from_cells(
    q: Floats, d: Floats, v: Floats, most: Floats, noise: float, share: float, usual: Floats, prior: Floats
) -> None:
    """Fit π to the cells of one table, in place."""
    rows, counts, kinds = np.empty((q.size, usual.size)), np.empty(q.size), np.empty(q.size, dtype=np.int64)
    cell_likelihoods(q, d, v, most, noise, share, rows, counts, kinds)
    prior[:] = usual
    climb(rows, counts, kinds, MEANS, usual, TABLE_CELLS, TABLE_ROUNDS, prior)


@compiled
def single_cells(
    first: int,
    last: int,
    index: Index,
    degrees: Floats,
    variances: Floats,
    measured: Floats,
    tables: Floats,
    start: int,
    rows: Floats,
    counts: Floats,
    kinds: Integers,
) -> None:
    """Write `cell_likelihoods` of the predicted tables first … last − 1, from the place of cell ``start`` on."""
    for t in range(first, last):
        if not 0.0 < variances[t] < np.inf or degrees[t] == 0.0:
            continue
        order, axes = index.order[t], index.axes[t]
        begin, end = index.offset[t], index.offset[t + 1]
        q = tables[begin:end]
        d, v, most = departures_of(q, measured[begin:end], axes, order)
        share = degrees[t] / q.size
        here, there = begin - start, end - start
        cell_likelihoods(
            q, d, v, most, variances[t] * share, share, rows[here:there], counts[here:there], kinds[here:there]
        )


@compiled
def grid_row(departure: float, deviation: float) -> float:
    """Return where d/S lies along the first axis of the grid."""
    place: float = (math.asinh(departure / deviation) + REACH) / STEP
    return min(max(place, 0.0), GRID[0] - 1.001)


@compiled
def grid_column(predicted: float, deviation: float) -> float:
    """Return where u = q/S lies along the second axis of the grid."""
    place: float = (math.log2(predicted / deviation) - LOWEST) / OCTAVE
    return min(max(place, 0.0), GRID[1] - 1.001)


@compiled
def predict_tables(
    first: int,
    last: int,
    index: Index,
    degrees: Floats,
    inner: Floats,
    variances: Floats,
    measured: Floats,
    given: Integers,
    tables: Floats,
    seen: Floats,
) -> None:
    """Write the predictions q of the tables first … last − 1, and count their departures on the grid.

    ``inner`` holds the tables to predict from. Where ``given`` is not zero, q stands in ``tables`` already. Tables
    whose variance is zero or infinite are predicted and not counted.
    """
    for t in range(first, last):
        order, axes = index.order[t], index.axes[t]
        begin, end = index.offset[t], index.offset[t + 1]
        q = tables[begin:end]
        if given[t] == 0:
            starts = np.empty(order, dtype=np.int64)
            for j in range(order):
                starts[j] = index.offset[index.facet[t, j]]
            q[:] = 1.0
            # One cycle is exact for up to two attributes.
            fit_facets(q, axes[:order], inner, starts, 0.0, _CYCLES if order > 2 else 1)
        if not 0.0 < variances[t] < np.inf or degrees[t] == 0.0:
            continue
        d, v, most = departures_of(q, measured[begin:end], axes, order)
        noise, share = variances[t] * degrees[t] / q.size, degrees[t] / q.size
        for i in range(q.size):
            if q[i] > 0.0:
                deviation = math.sqrt(noise + v[i])
                row, column = grid_row(d[i], deviation), grid_column(q[i], deviation)
                kind = class_of(q[i], most[i])
                seen[kind, int(row + 0.5), int(column + 0.5)] += weight_of(q[i] / deviation, share)


@compiled
def mutual_information(pairs: Integers, sizes: Integers, starts: Integers, tables: Floats) -> Floats:
    """Return the mutual information of two attributes, in nats, for the given pairs; zero for all others.

    ``starts`` has the first cell of the table of two attributes, in either order, in ``tables``.
    """
    found = np.zeros(starts.shape)
    for p in range(len(pairs)):
        a, b = pairs[p]
        joint = tables[starts[a, b] : starts[a, b] + sizes[a] * sizes[b]].reshape(sizes[a], sizes[b])
        rows, columns, total = np.zeros(sizes[a]), np.zeros(sizes[b]), 0.0
        for i in range(sizes[a]):
            for j in range(sizes[b]):
                rows[i] += joint[i, j]
                columns[j] += joint[i, j]
            total += rows[i]
        information = 0.0
        for i in range(sizes[a]):
            for j in range(sizes[b]):
                if joint[i, j] > 0.0:
                    information += joint[i, j] * math.log(joint[i, j] / rows[i] / columns[j] * total)
        if total > 0.0:
            found[a, b] = found[b, a] = information / total
    return found


@compiled
def predict_pairs(
    pairs: Integers,
    places: Integers,
    sizes: Integers,
    singles: Integers,
    starts: Integers,
    tables: Floats,
    dependence: Floats,
    offset: Integers,
    variances: Floats,
    measured: Floats,
    given: Integers,
    predicted: Floats,
) -> None:
    """Write (4) of ``levels`` for pairs of attributes, where both depend on another one, and mark these as given.

    ``places`` says which tables of the closure they are; ``singles`` and ``starts`` where the tables of one and of two
    attributes begin in ``tables``, from which they are predicted.
    """
    largest = 0
    for p in range(len(pairs)):
        largest = max(largest, sizes[pairs[p, 0]] * sizes[pairs[p, 1]])
    through, residual = np.empty((MOST_THROUGH, largest)), np.empty(largest)
    thirds, shares = np.empty(MOST_THROUGH, dtype=np.int64), np.empty(MOST_THROUGH)
    weights, axes, facets = np.empty(MOST_THROUGH), np.empty(2, dtype=np.int64), np.empty(2, dtype=np.int64)
    for p in range(len(pairs)):
        a, b, t = pairs[p, 0], pairs[p, 1], places[p]
        candidates = attributes_between(a, b, dependence, thirds, shares)
        if candidates == 0 or variances[t] == 0.0:
            continue
        axes[0], axes[1], facets[0], facets[1] = sizes[a], sizes[b], singles[b], singles[a]
        q, z = predicted[offset[t] : offset[t + 1]], measured[offset[t] : offset[t + 1]]
        nearest = np.inf
        for k in range(candidates):
            joint = through[k, : q.size]
            independent_given(a, thirds[k], b, sizes, starts, tables, joint.reshape(sizes[a], sizes[b]))
            residual[: q.size] = joint
            center_before(residual[: q.size], axes, 2)
            weights[k] = 0.0
            for i in range(q.size):
                weights[k] += (residual[i] - z[i]) ** 2
            nearest = min(nearest, weights[k])
        spread = max(variances[t], nearest / max((sizes[a] - 1) * (sizes[b] - 1), 1), TINY)
        for k in range(candidates):
            # Without a measurement no prediction is nearer than another.
            distance = weights[k] / (2.0 * spread) if variances[t] < np.inf else 0.0
            weights[k] = 2.0 * math.log(shares[k]) - distance
        weights[:candidates] = np.exp(weights[:candidates] - weights[:candidates].max())
        q[:] = 0.0
        for k in range(candidates):
            q += weights[k] / weights[:candidates].sum() * through[k, : q.size]
        fit_facets(q, axes, tables, facets, TOLERANCE, _PAIR_ROUNDS)
        given[t] = 1


@compiled
def attributes_between(a: int, b: int, dependence: Floats, thirds: Integers, shares: Floats) -> int:
    """Write the attributes that tell most about both a and b, and how much; return how many there are."""
    found = 0
    for c in range(len(dependence)):
        shared = min(dependence[a, c], dependence[b, c])
        if c in (a, b) or shared <= 0.0 or (found == len(thirds) and shared <= shares[found - 1]):
            continue
        place = min(found, len(thirds) - 1)
        while place > 0 and shares[place - 1] < shared:
            thirds[place], shares[place] = thirds[place - 1], shares[place - 1]
            place -= 1
        thirds[place], shares[place] = c, shared
        found = min(found + 1, len(thirds))
    return found


@compiled
def independent_given(a: int, c: int, b: int, sizes: Integers, starts: Integers, tables: Floats, joint: Floats) -> None:
    """Write the table of two attributes a and b that are independent given a third one c."""
    rows, columns = np.empty((sizes[a], sizes[c])), np.empty((sizes[c], sizes[b]))
    for i in range(sizes[a]):
        for k in range(sizes[c]):
            rows[i, k] = tables[starts[a, c] + (i * sizes[c] + k if a < c else k * sizes[a] + i)]
    for k in range(sizes[c]):
        for j in range(sizes[b]):
            columns[k, j] = tables[starts[c, b] + (k * sizes[b] + j if c < b else j * sizes[c] + k)]
    joint[:] = 0.0
    for k in range(sizes[c]):
        # Both tables say how many have each value of c, up to rounds of the solver; neither is preferred.
        middle = math.sqrt(rows[:, k].sum() * columns[k].sum())
        if middle > 0.0:
            for j in range(sizes[b]):
                columns[k, j] = min(columns[k, j] / middle, LARGEST_FACTOR)
        else:
            columns[k] = 0.0
    for i in range(sizes[a]):
        for k in range(sizes[c]):
            share = rows[i, k]
            for j in range(sizes[b]):
                joint[i, j] += share * columns[k, j]


@compiled
def weigh_tables(
    first: int,
    last: int,
    index: Index,
    degrees: Floats,
    variances: Floats,
    measured: Floats,
    tables: Floats,
    grid_evidence: Floats,
    evidence: Floats,
) -> None:
    """Write how much likelier the tables first … last − 1 are under π than as predicted; zero where not measured."""
    for t in range(first, last):
        evidence[t] = 0.0
        if not 0.0 < variances[t] < np.inf or degrees[t] == 0.0:
            continue
        order, axes = index.order[t], index.axes[t]
        begin, end = index.offset[t], index.offset[t + 1]
        q = tables[begin:end]
        d, v, most = departures_of(q, measured[begin:end], axes, order)
        share = degrees[t] / q.size
        noise = variances[t] * share
        total = 0.0
        for i in range(q.size):
            if q[i] > 0.0:
                deviation = math.sqrt(noise + v[i])
                row, column = grid_row(d[i], deviation), grid_column(q[i], deviation)
                kind = class_of(q[i], most[i])
                weight = weight_of(q[i] / deviation, share)
                total += weight * grid_evidence[kind, int(row + 0.5), int(column + 0.5)]
        evidence[t] = total


@compiled
def estimate_tables(
    first: int,
    last: int,
    index: Index,
    degrees: Floats,
    variances: Floats,
    measured: Floats,
    usual: Floats,
    spreads: Floats,
    likelihood: Floats,
    moment: Floats,
    square: Floats,
    binned: Floats,
    quiet: Floats,
    tables: Floats,
    errors: Floats,
) -> None:
    """Replace the predictions q in ``tables`` by the residuals of equation (4), with π learned for each table.

    ``usual`` is π of the order, ``spreads`` its variance by class. ``errors`` receives the mean expected squared error
    of a cell.
    """
    rows, columns = likelihood.shape[:2]
    seen = np.zeros((CLASSES, rows, columns))
    looked_up = np.zeros((CLASSES, rows, columns), dtype=np.bool_)
    moments = np.empty((CLASSES, 2, rows, columns))
    priors = np.empty((CLASSES, usual.size))
    for t in range(first, last):
        order, axes = index.order[t], index.axes[t]
        begin, end = index.offset[t], index.offset[t + 1]
        q, z = tables[begin:end], measured[begin:end]
        if variances[t] == 0.0 or degrees[t] == 0.0:
            q[:] = z if degrees[t] > 0.0 else np.zeros(q.size)  # without degrees of freedom all else is rounding
            errors[t] = 0.0
            continue
        d, v, most = departures_of(q, z, axes, order)
        if variances[t] == np.inf:
            total = 0.0
            for i in range(q.size):
                if q[i] > 0.0:
                    total += (1.0 - quiet[t]) * q[i] * q[i] * spreads[class_of(q[i], most[i])] + v[i]
            errors[t] = total / q.size
            center_before(q, axes, order)
            continue
        share = degrees[t] / q.size
        noise = variances[t] * share
        down, right = np.zeros(q.size), np.zeros(q.size)
        kinds = np.zeros(q.size, dtype=np.int64)
        places = np.empty(min(q.size, seen.size), dtype=np.int64)
        bins = bin_table(q, d, v, most, noise, share, seen, places, kinds, down, right)
        prior = usual.copy()
        learn(seen, places[:bins], binned, usual, prior)
        if order == 1:
            learn_from_cells(q, d, v, most, noise, share, usual, prior)
        class_priors(MEANS, prior, priors)
        total = 0.0
        for i in range(q.size):
            if q[i] > 0.0:
                r, c, kind = int(down[i]), int(right[i]), kinds[i]
                for row in range(r, r + 2):
                    for column in range(c, c + 2):
                        if not looked_up[kind, row, column]:
                            looked_up[kind, row, column] = True
                            moments[kind, 0, row, column], moments[kind, 1, row, column] = posterior(
                                priors[kind], row, likelihood[row, column], moment[row, column], square[row, column]
                            )
                q[i], error = estimate_cell(
                    q[i], d[i], v[i], noise, spreads[kind], quiet[t], down[i], right[i], moments[kind], priors[kind]
                )
                total += error
        errors[t] = total / q.size
        for i in range(q.size):
            r, c = int(down[i]), int(right[i])
            looked_up[kinds[i], r : r + 2, c : c + 2] = False
        center_before(q, axes, order)


@compiled
def bin_table(
    q: Floats,
    d: Floats,
    v: Floats,
    most: Floats,
    noise: float,
    share: float,
    seen: Floats,
    places: Integers,
    kinds: Integers,
    down: Floats,
    right: Floats,
) -> int:
    """Write where the cells of a table lie on the grid, and count them there; return how many bins were used.

    ``places`` receives the numbers of these bins.
    """
    bins = 0
    for i in range(q.size):
        if q[i] > 0.0:
            deviation = math.sqrt(noise + v[i])
            down[i], right[i] = grid_row(d[i], deviation), grid_column(q[i], deviation)
            r, c = int(down[i] + 0.5), int(right[i] + 0.5)
            weight = weight_of(q[i] / deviation, share)
            kind = class_of(q[i], most[i])
            kinds[i] = kind
            if weight > 0.0 and seen[kind, r, c] == 0.0:
                places[bins] = (kind * seen.shape[1] + r) * seen.shape[2] + c
                bins += 1
            seen[kind, r, c] += weight
    return bins


@compiled
def estimate_cell(
    q: float,
    d: float,
    v: float,
    noise: float,
    spread: float,
    quiet: float,
    down: float,
    right: float,
    moments: Floats,
    prior: Floats,
) -> tuple[float, float]:
    """Return the estimate (4) of a cell and its expected squared error, by interpolation of mean and variance of η.

    Far from q, where a step of the grid is wider than the noise, mean and variance are computed for the cell itself.
    """
    r, c = int(down), int(right)
    squared = noise + v
    deviation = math.sqrt(squared)
    visible = q * q * _VISIBLE**2 > squared
    if visible and abs(d) > WIDE * deviation:
        mean, variance = posterior_of(prior, d / deviation, q / deviation)
        e, left = deviation * mean, min(squared * variance, q * q)
    else:
        down, right = down - r, right - c
        # Further below the noise than the grid reaches, all is in proportion to q.
        e = min(deviation, q * 2.0**-LOWEST) * between(moments[0], r, c, down, right)
        left = min(squared * between(moments[1], r, c, down, right), q * q) if visible else q * q * spread
    share = v / squared
    left = (1.0 - quiet) * (left + quiet * e * e)
    e *= 1.0 - quiet
    return max(q + e + share * (d - e), 0.0), (1.0 - share) ** 2 * left + share * noise


@compiled
def posterior_of(prior: Floats, observed: float, u: float) -> tuple[float, float]:
    """Return mean and variance of (η − q)/S for a departure and an expected count in units of S."""
    weight, first, second = 0.0, 0.0, 0.0
    for g in range(prior.size):
        if prior[g] == 0.0:
            continue
        low, high = (LOW[g] - 1.0) * u, (HIGH[g] - 1.0) * u
        begin, end, width = low - observed, high - observed, high - low
        if width < 1e-3:
            middle = 0.5 * (low + high)
            mass = prior[g] * math.exp(-0.5 * (middle - observed) ** 2) * _DENSITY
            weight += mass
            first += mass * middle
            second += mass * middle * middle
            continue
        root = math.sqrt(0.5)
        if begin > 0.0:
            mass = 0.5 * (math.erfc(begin * root) - math.erfc(end * root))
        else:
            mass = 0.5 * (math.erfc(-end * root) - math.erfc(-begin * root))
        at_begin, at_end = math.exp(-0.5 * begin * begin) * _DENSITY, math.exp(-0.5 * end * end) * _DENSITY
        moment = min(max(observed * mass + at_begin - at_end, low * mass), high * mass)
        square = (observed * observed + 1.0) * mass + (observed + low) * at_begin - (observed + high) * at_end
        scale = prior[g] / width
        weight += scale * mass
        first += scale * moment
        second += scale * max(square, 0.0)
    if weight <= TINY:
        return observed, 1.0
    mean = first / weight
    return mean, max(second / weight - mean * mean, 0.0)


@compiled
def learn(seen: Floats, places: Integers, likelihood: Floats, usual: Floats, prior: Floats) -> None:
    """Fit π to the bins of one table, in place, and empty the bins."""
    height, columns, components = likelihood.shape
    rows, counts = np.empty((places.size, components)), np.empty(places.size)
    kinds = np.empty(places.size, dtype=np.int64)
    for i in range(places.size):
        kind, place = places[i] // (height * columns), places[i] % (height * columns)
        r, c = place // columns, place % columns
        kinds[i], counts[i] = kind, seen[kind, r, c]
        seen[kind, r, c] = 0.0
        rows[i] = likelihood[r, c]
    climb(rows, counts, kinds, MEANS, usual, TABLE_CELLS, TABLE_ROUNDS, prior)


@compiled
def posterior(prior: Floats, row: int, likelihood: Floats, moment: Floats, square: Floats) -> tuple[float, float]:
    """Return mean and variance of (η − q)/S at a place of the grid; what (2) cannot explain is taken as it is."""
    weight, first, second = 0.0, 0.0, 0.0
    for g in range(prior.size):
        weight += prior[g] * likelihood[g]
        first += prior[g] * moment[g]
        second += prior[g] * square[g]
    if weight <= TINY:
        return math.sinh(row * STEP - REACH), 1.0
    mean = first / weight
    return mean, max(second / weight - mean * mean, 0.0)


@compiled
def between(values: Floats, r: int, c: int, down: float, right: float) -> float:
    """Return the value of a grid inside one of its meshes, linear along both sides."""
    low: float = values[r, c] + down * (values[r + 1, c] - values[r, c])
    high: float = values[r, c + 1] + down * (values[r + 1, c + 1] - values[r, c + 1])
    return low + right * (high - low)
