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

from margrave.algebra.kernels import Floats, Integers, compiled

# The half-widths h of (2), and the ladder: up to a table of 2²⁷ cells with everybody in one.
_NARROW = (0.02, 0.06, 0.15, 0.3, 0.6)
_EDGES = np.concatenate(
    [[0.0], 2.0 ** np.arange(-13.0, 0.0, 2.0), [1.0, 1.5, 2.0, 4.0], 2.0 ** np.arange(3.0, 28.0, 2.0)]
)
LOW = np.array([1.0, *(1 - h for h in _NARROW), *_EDGES[:-1], 0.0])
HIGH = np.array([1.0, *(1 + h for h in _NARROW), *_EDGES[1:], 0.0])
MEANS = (LOW + HIGH) / 2
_POINT, _NARROWS, _LADDER, _ZERO = 0, slice(1, 1 + len(_NARROW)), slice(1 + len(_NARROW), -1), -1
# The variance of λ within a component, and around 1.
_SPREADS = (HIGH - LOW) ** 2 / 12 + (MEANS - 1) ** 2
# The grid: asinh d/S in ±15, log₂ u from −26 to 16.
REACH, STEP = 15.0, 0.1
LOWEST, _HIGHEST, OCTAVE = -26.0, 16.0, 0.5
# A cell has at most the people of every sum that it is part of: λ ≤ q_{+j}/q. Cells are told apart by how many rungs of
# the ladder above 2 that leaves them: none, …, all.
CAPS = np.array([2.0, 4.0, 8.0, 32.0, 128.0, 512.0, np.inf])
CLASSES = len(CAPS)
GRID = (round(2 * REACH / STEP) + 1, round((_HIGHEST - LOWEST) / OCTAVE) + 1)
SHAPE = (CLASSES, *GRID)
# What is usual before anything was seen, by order: the shares of "as predicted", of near to it, and of anything else.
# Single attributes are hardly ever even, pairs often nearly independent, and of three attributes pairs say most.
_USUAL = {1: (0.05, 0.25, 0.7), 2: (0.5, 0.2, 0.3), 3: (0.9, 0.05, 0.05)}
# Pseudo-observations, in cells, and rounds of EM: for all tables of an order, and for one table.
_ORDER_CELLS, _ORDER_ROUNDS = 10.0, 60
TABLE_CELLS, TABLE_ROUNDS = 20.0, 20
# How often a whole table is as predicted, before anything was seen, and for how many tables that counts. A single
# attribute is never even.
_QUIET = {1: 0.0, 2: 0.5, 3: 0.8}
_QUIET_TABLES = 4.0
TINY = 1e-200
# From so many deviations on bins are wide beside the noise, and averages over bins are not trusted below this.
WIDE, _ROUNDING = 5.0, 1e-8
_MIN_SHARE = 1e-10
# A mean of one is found when it is one up to rounding; after so many steps at the latest.
_EXACT, _MOST_STEPS = 4e-16, 80


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
    kinds, bins = np.nonzero((seen.reshape(CLASSES, -1) > 0) & (likelihood.sum(axis=1) > TINY))
    if bins.size:
        rows = np.ascontiguousarray(likelihood[bins])
        counts = seen.reshape(CLASSES, -1)[kinds, bins]
        climb(rows, counts, kinds, MEANS, usual, _ORDER_CELLS, _ORDER_ROUNDS, prior)
    return prior


def evidence_grid(prior: Floats) -> Floats:
    """Return by class and place on the grid how much likelier a departure is under π than with λ = 1; a logarithm."""
    priors = np.empty((CLASSES, prior.size))
    class_priors(MEANS, prior, priors)
    likelihood = grid().binned
    evidence = np.empty(SHAPE)
    point = _log_point()
    for own, told in zip(evidence, priors, strict=True):
        np.log(np.maximum(likelihood @ told, TINY), out=own)
        own -= point
    return evidence


def may_be_quiet(order: int) -> bool:
    """Tell whether a table of an order can be as predicted in all its cells."""
    return _QUIET[min(order, max(_QUIET))] > 0.0


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
    priors = np.empty((CLASSES, prior.size))
    class_priors(MEANS, prior, priors)
    spreads: Floats = np.minimum(priors @ _SPREADS, 1.0)
    return spreads


@cache
def _log_point() -> Floats:
    """Return the logarithm of the likelihood of λ = 1 on the grid."""
    logarithm: Floats = np.log(np.maximum(grid().binned[..., _POINT], TINY))
    return logarithm


@cache
def grid() -> Grid:
    """Return likelihoods and moments of (2) on the grid, in units of S."""
    from scipy.special import ndtr

    observed = np.broadcast_to(np.sinh(np.linspace(-REACH, REACH, GRID[0]))[:, None], GRID)
    u = np.broadcast_to(2.0 ** np.linspace(LOWEST, _HIGHEST, GRID[1]), GRID)
    ends = np.sinh(np.linspace(-REACH - STEP / 2, REACH + STEP / 2, GRID[0] + 1))[:, None]
    likelihood, first, second, binned = [], [], [], []
    for low, high in zip(LOW - 1, HIGH - 1, strict=True):
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
        exact = (np.abs(observed) < WIDE) | (average < _ROUNDING)
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
    # Newton's steps from θ = 0, near which the root is; a step that leaves the interval halves it instead.
    theta = 0.0
    for _ in range(_MOST_STEPS):
        excess, slope, size = 0.0, 0.0, 0.0
        for g in range(prior.size):
            if prior[g] > 0.0:
                ratio = (means[g] - 1.0) / (1.0 + theta * (means[g] - 1.0))
                excess += prior[g] * ratio
                slope += prior[g] * ratio * ratio
                size += prior[g] * abs(ratio)
        if abs(excess) <= _EXACT * size:
            break
        if excess > 0.0:
            low = theta
        else:
            high = theta
        theta += excess / slope
        if not low < theta < high:
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
    """Write π of each class of cells."""
    for kind in range(CLASSES):
        class_prior(means, prior, kind, priors[kind])


@compiled
def class_prior(means: Floats, prior: Floats, kind: int, own: Floats) -> None:
    """Write π of a class of cells: without the multiples that it cannot have, with mean one."""
    for g in range(prior.size):
        own[g] = prior[g] if LOW[g] < CAPS[kind] else 0.0
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
    priors, present = np.empty((CLASSES, components)), np.zeros(CLASSES, dtype=np.bool_)
    for kind in kinds:
        present[kind] = True
    for _ in range(rounds):
        total = np.zeros(components)
        seen = np.zeros(CLASSES)
        for kind in range(CLASSES):
            if present[kind]:
                class_prior(means, prior, kind, priors[kind])
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
                    if LOW[g] >= CAPS[kinds[i]]:
                        kept += prior[g]
                share *= 1.0 - kept
                for g in range(components):
                    total[g] += rows[i, g] * own[g] * share
        for kind in range(CLASSES):
            for g in range(components):
                if LOW[g] >= CAPS[kind]:
                    total[g] += prior[g] * seen[kind]
        mass = 0.0
        for g in range(components):
            prior[g] = total[g] + usual_cells * usual[g]
            mass += prior[g]
        for g in range(components):
            prior[g] /= mass
        hold_mean(means, prior)
