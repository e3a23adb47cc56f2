r"""Cell by cell: what a noisy residual says about a table, given what the smaller tables predict (empirical Bayes).

Smaller tables predict a table q (``levels``). Its residual was measured as z, so that with the residual C q of the
prediction every cell has an observed departure

    d = z − C q,     noise of variance s² = σ² m/n a cell     (m degrees of freedom, n cells).                      (1)

How far counts stray from what was predicted is learned from the tables themselves. A cell has the mean η = λ q, λ ≥ 0
from one distribution for all cells of a table,

    λ = 1 with probability π_1;  λ uniform on [1 − h, 1 + h] for a few h < 1;  λ uniform on an interval of a ladder
    [e_g, e_{g+1}), each four times the one before, with smaller steps from 1/2 to 8;  or λ = 0,                     (2)

and the count μ itself is one draw around η: who is there is a sample. Given the sums that q has, a cell of a sample
varies by

    v = q ∏_j (1 − q/q_{+j}),         q_{+j} the sum of q along axis j,                                              (3)

which is exact for one attribute and, up to a factor N/(N − 1), for two. Hence d is η − q plus noise of variance
S² = s² + v, and of d − (η − q) the share v/S² is the count's own:

    E[μ | d] = q + e + (v/S²) (d − e),      e = E[η − q | d].                                                        (4)

Where noise drowns a table (σ² → ∞), (4) is q, whatever z: a measurement without content changes nothing. Where it
stands out, π is wide and (4) is the measurement. The estimate moves from one to the other without a switch.

**What a cell can hold.** A cell has at most the people of every sum that it is part of, λ ≤ q_{+j}/q. So large
multiples are left out of π where a cell cannot have them, by classes of cells; what is left has mean one again.

**Tables as predicted.** Structure is in few tables: most pairs are independent altogether. Each table is as predicted
in all its cells with a probability f, the same for all tables of an order and learned from them (`quiet_frequency`);
then e = 0. Else its cells have π. Without this the noise of many weakly measured tables adds up.

**Learning π.** People are where they were predicted on the whole, Σ_g π_g λ_g = 1, and under that π is the maximum of
the likelihood of all d (a table of m degrees of freedom counts as m cells), with pseudo-observations of what is usual
for tables of this order (EM algorithm). First one π for all tables of an order, from `starting_prior`; then one for
each table, with the π of its order as what is usual: a table departs from the others as far as its own cells say so.

With u = q/S everything depends on (d/S, u) and π alone. Likelihoods and moments of (2) are computed once, on a grid of
(asinh d/S, log₂ u). A table is binned on the grid, π is fitted to the bins, and a cell is looked up by interpolation:
the cost a cell does not depend on the number of components. Far from q, |d| > 5 S, a step of the grid is wider than the
noise: there the likelihood is that of a whole bin, and the posterior is computed for the cell itself.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from margrave.algebra.kernels import Floats, Index, Integers, center_before, compiled
from margrave.reconstruction.prior.fitting import fit_facets

# The half-widths h of (2), and the ladder: up to a table of 2²⁷ cells with everybody in one.
_NARROW = (0.02, 0.06, 0.15, 0.3, 0.6)
_EDGES = np.concatenate(
    [[0.0], 2.0 ** np.arange(-13.0, 0.0, 2.0), [1.0, 1.5, 2.0, 4.0], 2.0 ** np.arange(3.0, 28.0, 2.0)]
)
_LOW = np.array([1.0, *(1 - h for h in _NARROW), *_EDGES[:-1], 0.0])
_HIGH = np.array([1.0, *(1 + h for h in _NARROW), *_EDGES[1:], 0.0])
MEANS = (_LOW + _HIGH) / 2
_POINT, _NARROWS, _LADDER, _ZERO = 0, slice(1, 1 + len(_NARROW)), slice(1 + len(_NARROW), -1), -1
# The variance of λ within a component, and around 1.
_SPREADS = (_HIGH - _LOW) ** 2 / 12 + (MEANS - 1) ** 2
# The grid: asinh d/S in ±15, log₂ u from −26 to 16.
_REACH, _STEP = 15.0, 0.1
_LOWEST, _HIGHEST, _OCTAVE = -26.0, 16.0, 0.5
# A cell has at most the people of every sum that it is part of: λ ≤ q_{+j}/q. Cells are told apart by how many rungs of
# the ladder above 2 that leaves them: none, …, all.
_CAPS = np.array([2.0, 4.0, 8.0, 32.0, 128.0, 512.0, np.inf])
_CLASSES = len(_CAPS)
_GRID = (round(2 * _REACH / _STEP) + 1, round((_HIGHEST - _LOWEST) / _OCTAVE) + 1)
SHAPE = (_CLASSES, *_GRID)
# What is usual before anything was seen, by order: the shares of "as predicted", of near to it, and of anything else.
# Single attributes are hardly ever even, pairs often nearly independent, and of three attributes pairs say most.
_USUAL = {1: (0.05, 0.25, 0.7), 2: (0.5, 0.2, 0.3), 3: (0.9, 0.05, 0.05)}
# Pseudo-observations, in cells, and rounds of EM: for all tables of an order, and for one table.
_ORDER_CELLS, _ORDER_ROUNDS = 10.0, 60
_TABLE_CELLS, _TABLE_ROUNDS = 20.0, 20
# How often a whole table is as predicted, before anything was seen, and for how many tables that counts. A single
# attribute is never even.
_QUIET = {1: 0.0, 2: 0.5, 3: 0.8}
_QUIET_TABLES = 4.0
# Cycles of proportional fitting for tables of three attributes and more: tables are predicted, not fitted.
CYCLES = 8
# A cell predicted below 1/1024 of the noise shows less and less of a departure, and counts less and less.
_VISIBLE = 1024.0
_TINY = 1e-200
# From so many deviations on bins are wide beside the noise, and averages over bins are not trusted below this.
_WIDE, _ROUNDING = 5.0, 1e-8
_MIN_SHARE = 1e-10
_DENSITY = 1 / math.sqrt(2 * math.pi)


class Grid(NamedTuple):
    """Likelihood, and likelihood times first and second moment of (η − q)/S, by place on the grid and component.

    ``binned`` is the likelihood averaged over the bin around each place: far from zero a bin is wider than the noise.
    """

    likelihood: Floats
    first: Floats
    second: Floats
    binned: Floats


def starting_prior(order: int) -> Floats:
    """Return π of (2) before anything was seen, for tables of some number of attributes; shape (components,)."""
    point, narrow, wide = _USUAL[min(order, max(_USUAL))]
    prior = np.zeros(MEANS.size)
    prior[_POINT], prior[_NARROWS] = point, narrow / len(_NARROW)
    # The larger the multiple, the rarer: a mean of λ exists.
    prior[_LADDER] = np.minimum(1.0, MEANS[_LADDER] ** -2.0)
    prior[_ZERO] = 1.0
    wide_part = prior[_LADDER].sum() + prior[_ZERO]
    prior[_LADDER] *= wide / wide_part
    prior[_ZERO] *= wide / wide_part
    hold_mean(MEANS, prior)
    return prior


def learned_prior_of_cells(order: int, rows: Floats, counts: Floats, kinds: Integers) -> Floats:
    """Return π of all tables of an order from the likelihoods of single cells, as `cell_likelihoods` writes them."""
    usual = starting_prior(order)
    prior = usual.copy()
    climb(rows, counts, kinds, MEANS, usual, _ORDER_CELLS, _ORDER_ROUNDS, prior)
    return prior


def learned_prior(order: int, seen: Floats) -> Floats:
    """Return π of all tables of an order, from how many of their cells fell into each bin of the grid."""
    usual = starting_prior(order)
    prior = usual.copy()
    likelihood = grid().binned.reshape(seen[0].size, -1)
    kinds, bins = np.nonzero((seen.reshape(_CLASSES, -1) > 0) & (likelihood.sum(axis=1) > _TINY))
    if bins.size:
        rows = np.ascontiguousarray(likelihood[bins])
        counts = seen.reshape(_CLASSES, -1)[kinds, bins]
        climb(rows, counts, kinds, MEANS, usual, _ORDER_CELLS, _ORDER_ROUNDS, prior)
    return prior


def evidence_grid(prior: Floats) -> Floats:
    """Return by class and place on the grid how much likelier a departure is under π than with λ = 1; a logarithm."""
    priors = np.empty((_CLASSES, prior.size))
    class_priors(MEANS, prior, priors)
    likelihood = grid().binned
    evidence = np.empty(SHAPE)
    point = np.log(np.maximum(likelihood[..., _POINT], _TINY))
    for own, told in zip(evidence, priors, strict=True):
        np.log(np.maximum(likelihood @ told, _TINY), out=own)
        own -= point
    return evidence


def quiet_frequency(order: int, evidence: Floats) -> float:
    """Return how often a table of an order is as predicted in all its cells, learned from all that were measured.

    With o the odds of a table under π against λ = 1 everywhere, the frequency f is the most likely one,

        largest  Σ_tables log(f + (1 − f) o) + k (f₀ log f + (1 − f₀) log(1 − f)),                                  (5)

    f₀ what is usual, seen k times. (5) is concave in f; its slope falls, and is zero where bisection finds it.

    Parameters
    ----------
    order
        The number of attributes.
    evidence
        Shape (tables,); log o of each table.
    """
    usual = _QUIET[min(order, max(_QUIET))]
    if usual == 0.0:
        return 0.0
    odds = np.exp(np.clip(evidence, -700.0, 700.0))
    low, high = 0.0, 1.0
    for _ in range(60):
        frequency = 0.5 * (low + high)
        slope = float(((1 - odds) / (frequency + (1 - frequency) * odds)).sum())
        slope += _QUIET_TABLES * (usual / frequency - (1 - usual) / (1 - frequency))
        low, high = (frequency, high) if slope > 0 else (low, frequency)
    return 0.5 * (low + high)


def quiet_shares(frequency: float, evidence: Floats) -> Floats:
    """Return the probability of each table that it is as predicted in all its cells."""
    odds = np.exp(np.clip(evidence, -700.0, 700.0))
    shares: Floats = frequency / (frequency + (1 - frequency) * odds)
    return shares


def unmeasured_spreads(prior: Floats) -> Floats:
    """Return the variance of λ around 1 for cells of which nothing was seen, by class; at most 1."""
    priors = np.empty((_CLASSES, prior.size))
    class_priors(MEANS, prior, priors)
    spreads: Floats = np.minimum(priors @ _SPREADS, 1.0)
    return spreads


@cache
def grid() -> Grid:
    """Return likelihoods and moments of (2) on the grid, in units of S."""
    from scipy.special import ndtr

    observed = np.broadcast_to(np.sinh(np.linspace(-_REACH, _REACH, _GRID[0]))[:, None], _GRID)
    u = np.broadcast_to(2.0 ** np.linspace(_LOWEST, _HIGHEST, _GRID[1]), _GRID)
    ends = np.sinh(np.linspace(-_REACH - _STEP / 2, _REACH + _STEP / 2, _GRID[0] + 1))[:, None]
    likelihood, first, second, binned = [], [], [], []
    for low, high in zip(_LOW - 1, _HIGH - 1, strict=True):
        begin, end, middle = low * u - observed, high * u - observed, (low + high) / 2 * u
        width = (high - low) * u
        narrow = width < 1e-3  # where the density hardly changes, and differences would cancel
        divisor = np.where(narrow, 1.0, width)
        # The difference of two values near one is taken on the other side, where they are near zero.
        mass = np.where(begin > 0, ndtr(-begin) - ndtr(-end), ndtr(end) - ndtr(begin))
        # Far from the interval a moment is a difference of nearly equal numbers; the mean lies in the interval.
        moment = np.clip(observed * mass + _density(begin) - _density(end), low * u * mass, high * u * mass)
        square = (observed**2 + 1) * mass
        square += (observed + low * u) * _density(begin) - (observed + high * u) * _density(end)
        point = _density(middle - observed)
        likelihood.append(np.where(narrow, point, mass / divisor))
        first.append(np.where(narrow, middle * point, moment / divisor))
        second.append(np.where(narrow, middle**2 * point, np.maximum(square, 0.0) / divisor))
        below = np.where(
            narrow[:1],
            ndtr(np.broadcast_to(ends, (len(ends), u.shape[1])) - middle[:1]),
            (_integral(ends - low * u[:1]) - _integral(ends - high * u[:1])) / divisor[:1],
        )
        average = np.diff(below, axis=0) / np.diff(ends, axis=0)
        # Where bins are narrow the average is the value in the middle; where it is tiny it is lost in rounding.
        exact = (np.abs(observed) < _WIDE) | (average < _ROUNDING)
        binned.append(np.where(exact, likelihood[-1], average))
    return Grid(*(np.ascontiguousarray(np.stack(part, axis=-1)) for part in (likelihood, first, second, binned)))


def _integral(x: Floats) -> Floats:
    """Return the integral of the standard normal distribution function up to x."""
    from scipy.special import ndtr

    integral: Floats = x * ndtr(x) + _density(x)
    return integral


def _density(x: Floats) -> Floats:
    """Return the standard normal density; arguments beyond 39, where it is zero, are cut off before the square."""
    density: Floats = np.exp(-0.5 * np.minimum(np.abs(x), 39.0) ** 2) / math.sqrt(2 * math.pi)
    return density


@compiled
def hold_mean(means: Floats, prior: Floats) -> None:
    """Move π to the most likely one with mean one, in place; if components on both sides of a mean of one are left.

    Of all π with that mean, Σ_g π_g log π'_g is largest at π'_g = π_g/(1 + θ (λ_g − 1)), and their mean falls with θ.
    """
    smallest, largest = 1.0, 1.0
    for g in range(prior.size):
        # So small a share counts as zero; a root that near to the end of its interval would not be found.
        prior[g] = prior[g] if prior[g] > _MIN_SHARE else 0.0
        if prior[g] > 0.0:
            smallest, largest = min(smallest, means[g]), max(largest, means[g])
    if smallest == 1.0 or largest == 1.0:
        return
    low, high = -1.0 / (largest - 1.0), 1.0 / (1.0 - smallest)
    # So many halvings end inside the interval, where nothing is divided by zero.
    for _ in range(80):
        theta = 0.5 * (low + high)
        excess = 0.0
        for g in range(prior.size):
            if prior[g] > 0.0:
                excess += prior[g] * (means[g] - 1.0) / (1.0 + theta * (means[g] - 1.0))
        if excess > 0.0:
            low = theta
        else:
            high = theta
    theta = 0.5 * (low + high)
    mass = 0.0
    for g in range(prior.size):
        if prior[g] > 0.0:
            prior[g] /= 1.0 + theta * (means[g] - 1.0)
            mass += prior[g]
    for g in range(prior.size):
        prior[g] /= mass


@compiled
def class_priors(means: Floats, prior: Floats, priors: Floats) -> None:
    """Write π of each class of cells: without the multiples that it cannot have, with mean one."""
    for kind in range(_CLASSES):
        own = priors[kind]
        for g in range(prior.size):
            own[g] = prior[g] if _LOW[g] < _CAPS[kind] else 0.0
        hold_mean(means, own)
        own /= own.sum()


@compiled
def climb(
    rows: Floats,
    counts: Floats,
    kinds: Integers,
    means: Floats,
    usual: Floats,
    usual_cells: float,
    rounds: int,
    prior: Floats,
) -> None:
    """Do rounds of the EM algorithm on π, in place, with mean one.

    Rows are likelihoods of a bin, counts how many cells fell into it, kinds their class; ``usual`` is seen
    ``usual_cells`` times more. A cell says nothing about multiples that it cannot have: these keep their share.
    """
    components = prior.size
    priors = np.empty((_CLASSES, components))
    for _ in range(rounds):
        total = np.zeros(components)
        seen = np.zeros(_CLASSES)
        class_priors(means, prior, priors)
        for i in range(counts.size):
            own = priors[kinds[i]]
            weight = 0.0
            for g in range(components):
                weight += rows[i, g] * own[g]
            if weight > 0.0:
                share = counts[i] / weight
                seen[kinds[i]] += counts[i]
                kept = 0.0
                for g in range(components):
                    if _LOW[g] >= _CAPS[kinds[i]]:
                        kept += prior[g]
                share *= 1.0 - kept
                for g in range(components):
                    total[g] += rows[i, g] * own[g] * share
        for kind in range(_CLASSES):
            for g in range(components):
                if _LOW[g] >= _CAPS[kind]:
                    total[g] += prior[g] * seen[kind]
        mass = 0.0
        for g in range(components):
            prior[g] = total[g] + usual_cells * usual[g]
            mass += prior[g]
        for g in range(components):
            prior[g] /= mass
        hold_mean(means, prior)


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
def weight_of(u: float, share: float) -> float:
    """Return how much a cell counts when π is learned: its share of the degrees of freedom, less far below the noise.

    A multiple of 2⁻²⁰, so that sums do not depend on their order.
    """
    return math.floor(share * min(1.0, u * _VISIBLE) * 2.0**20) * 2.0**-20


@compiled
def class_of(q: float, most: float) -> int:
    """Return how many rungs of the ladder above 2 a cell of at most so many people can be on."""
    kind = 0
    while kind < _CLASSES - 1 and most > _CAPS[kind] * q:
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
            begin, end = (_LOW[g] - 1.0) * u - x, (_HIGH[g] - 1.0) * u - x
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
    climb(rows, counts, kinds, MEANS, usual, _TABLE_CELLS, _TABLE_ROUNDS, prior)


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
        d, v, most = q.copy(), np.empty(q.size), np.empty(q.size)
        center_before(d, axes, order)
        sample_variances(q, axes, order, v, most)
        share = degrees[t] / q.size
        for i in range(q.size):
            d[i] = measured[begin + i] - d[i]
        here, there = begin - start, end - start
        cell_likelihoods(
            q, d, v, most, variances[t] * share, share, rows[here:there], counts[here:there], kinds[here:there]
        )


@compiled
def grid_row(departure: float, deviation: float) -> float:
    """Return where d/S lies along the first axis of the grid."""
    place: float = (math.asinh(departure / deviation) + _REACH) / _STEP
    return min(max(place, 0.0), _GRID[0] - 1.001)


@compiled
def grid_column(predicted: float, deviation: float) -> float:
    """Return where u = q/S lies along the second axis of the grid."""
    place: float = (math.log2(predicted / deviation) - _LOWEST) / _OCTAVE
    return min(max(place, 0.0), _GRID[1] - 1.001)


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
            fit_facets(q, axes[:order], inner, starts, 0.0, CYCLES if order > 2 else 1)
        if not 0.0 < variances[t] < np.inf or degrees[t] == 0.0:
            continue
        residual, v, most = q.copy(), np.empty(q.size), np.empty(q.size)
        center_before(residual, axes, order)
        sample_variances(q, axes, order, v, most)
        noise = variances[t] * degrees[t] / q.size
        z, share = measured[begin:end], degrees[t] / q.size
        for i in range(q.size):
            if q[i] > 0.0:
                deviation = math.sqrt(noise + v[i])
                row, column = grid_row(z[i] - residual[i], deviation), grid_column(q[i], deviation)
                kind = class_of(q[i], most[i])
                seen[kind, int(row + 0.5), int(column + 0.5)] += weight_of(q[i] / deviation, share)


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
        q, z = tables[begin:end], measured[begin:end]
        residual, v, most = q.copy(), np.empty(q.size), np.empty(q.size)
        center_before(residual, axes, order)
        sample_variances(q, axes, order, v, most)
        share = degrees[t] / q.size
        noise = variances[t] * share
        total = 0.0
        for i in range(q.size):
            if q[i] > 0.0:
                deviation = math.sqrt(noise + v[i])
                row, column = grid_row(z[i] - residual[i], deviation), grid_column(q[i], deviation)
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
    seen = np.zeros((_CLASSES, rows, columns))
    looked_up = np.zeros((_CLASSES, rows, columns), dtype=np.bool_)
    moments = np.empty((_CLASSES, 2, rows, columns))
    priors = np.empty((_CLASSES, usual.size))
    for t in range(first, last):
        order, axes = index.order[t], index.axes[t]
        begin, end = index.offset[t], index.offset[t + 1]
        q, z = tables[begin:end], measured[begin:end]
        if variances[t] == 0.0 or degrees[t] == 0.0:
            # A residual without degrees of freedom is zero, whatever rounding left of it.
            q[:] = z if degrees[t] > 0.0 else np.zeros(q.size)
            errors[t] = 0.0
            continue
        v, most = np.empty(q.size), np.empty(q.size)
        sample_variances(q, axes, order, v, most)
        if variances[t] == np.inf:
            total = 0.0
            for i in range(q.size):
                if q[i] > 0.0:
                    total += (1.0 - quiet[t]) * q[i] * q[i] * spreads[class_of(q[i], most[i])] + v[i]
            errors[t] = total / q.size
            center_before(q, axes, order)
            continue
        d = q.copy()
        center_before(d, axes, order)
        for i in range(q.size):
            d[i] = z[i] - d[i]
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
    if visible and abs(d) > _WIDE * deviation:
        mean, variance = posterior_of(prior, d / deviation, q / deviation)
        e, left = deviation * mean, min(squared * variance, q * q)
    else:
        down, right = down - r, right - c
        # Further below the noise than the grid reaches, all is in proportion to q.
        e = min(deviation, q * 2.0**-_LOWEST) * between(moments[0], r, c, down, right)
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
        low, high = (_LOW[g] - 1.0) * u, (_HIGH[g] - 1.0) * u
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
    if weight <= _TINY:
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
    climb(rows, counts, kinds, MEANS, usual, _TABLE_CELLS, _TABLE_ROUNDS, prior)


@compiled
def posterior(prior: Floats, row: int, likelihood: Floats, moment: Floats, square: Floats) -> tuple[float, float]:
    """Return mean and variance of (η − q)/S at a place of the grid; what (2) cannot explain is taken as it is."""
    weight, first, second = 0.0, 0.0, 0.0
    for g in range(prior.size):
        weight += prior[g] * likelihood[g]
        first += prior[g] * moment[g]
        second += prior[g] * square[g]
    if weight <= _TINY:
        return math.sinh(row * _STEP - _REACH), 1.0
    mean = first / weight
    return mean, max(second / weight - mean * mean, 0.0)


@compiled
def between(values: Floats, r: int, c: int, down: float, right: float) -> float:
    """Return the value of a grid inside one of its meshes, linear along both sides."""
    low: float = values[r, c] + down * (values[r + 1, c] - values[r, c])
    high: float = values[r, c + 1] + down * (values[r + 1, c + 1] - values[r, c + 1])
    return low + right * (high - low)
