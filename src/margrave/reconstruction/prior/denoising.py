r"""Cell by cell: what a noisy table says about the truth, given what was expected (empirical Bayes).

Every cell has an expected count q and an observation y = μ + noise, Gaussian with variance σ². How far counts stray
from what was expected is learned from the table itself: μ = λ q with λ ≥ 0 drawn from one distribution for all cells,

    λ = 0 with probability π_0, else uniform on one of the intervals [e_g, e_{g+1}) with probability π_g,          (1)

with a geometric ladder of edges. As many people are observed as were expected, Σ y = Σ q, so

    Σ_g π_g λ_g = 1,    λ_g the middle of an interval,                                                             (2)

and under (2) π is the maximum of the likelihood of all y (a nonparametric maximum-likelihood estimate on a histogram;
a hundred rounds of the EM algorithm; (2) takes λ to be independent of q). Without (2), intervals that lie far below the
noise cannot be told apart and keep the share they began with: in a table of a million cells, many times the people
that there are.

The estimate of a cell is its posterior mean. Where the noise drowns all cells, π stays where it began, narrow around 1,
and the estimate is q; where counts stand out of the noise, π is wide and it is y; sparse tables get a large π_0 and
their small y are taken for noise. It is never negative, and there is nothing to tune.

With v = y/σ and u = q/σ the posterior mean, in units of σ, depends on (v, u) and π alone. So the likelihoods of (1) are
computed once, on a grid of (asinh v, log₂ u); a table is binned on the grid, π is fitted to the bins, and every cell is
looked up by interpolation. The cost a cell does not depend on the number of intervals.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from margrave.algebra.kernels import Floats, compiled

# Edges of (1): steps of a factor 4 from 1/32 on, so that [1/2, 2) is in the middle of what is expected; up to a table
# of 2²⁷ cells with everybody in one.
_EDGES = np.concatenate([[0.0], 2.0 ** np.arange(-5.0, 28.0, 2.0)])
# The mean of λ in each component, the last of which is λ = 0.
_MEANS = np.append((_EDGES[:-1] + _EDGES[1:]) / 2, 0.0)
# The grid: asinh v in ±15, log₂ u from −26 to 16.
_REACH, _STEP = 15.0, 0.05
_LOWEST, _HIGHEST, _OCTAVE = -26.0, 16.0, 0.5
_SHAPE = (round(2 * _REACH / _STEP) + 1, round((_HIGHEST - _LOWEST) / _OCTAVE) + 1)
# Where EM begins, and where it stays as far as the noise cannot tell: mostly as expected; else anything, with less
# weight the larger it is.
_START = np.append(np.minimum(1.0, _MEANS[:-1] ** -2.0), 1.0)
_START *= 0.1 / _START.sum()
_START[np.searchsorted(_EDGES, 1.0) - 1] += 0.9
# π is learned as if two cells more had been seen, spread over a wide range around what was expected: a table of a few
# cells says little about π.
_PRIOR_CELLS = 2.0
_PRIOR = np.array([0.1, 0.15, 0.2, 0.2, 0.1, 0.04, 0.01, *[0.0] * (_EDGES.size - 8), 0.2])
_ROUNDS = 100
# An estimate is at least this share of what was expected: proportional fitting would keep a zero forever.
LEAST_SHARE = 1e-9
_TINY = 1e-200
_MIN_SHARE = 1e-10


class _Grid(NamedTuple):
    """Likelihood, and likelihood times mean, of each component of (1), shape (v, u, components); the grid's v and u."""

    likelihood: Floats
    moment: Floats
    v: Floats
    u: Floats


def denoise(observed: Floats, expected: Floats, variance: float) -> Floats:
    """Return the posterior mean of every cell under the prior (1), with π learned from the table.

    Parameters
    ----------
    observed
        y, any shape.
    expected
        q ≥ 0, of the same shape.
    variance
        σ² > 0, the variance of the noise on a cell.
    """
    y, q = np.ascontiguousarray(observed).ravel(), np.ascontiguousarray(expected).ravel()
    deviation = math.sqrt(variance)
    seen = np.zeros(_SHAPE)
    bin_cells(y, q, deviation, seen)
    multiple, shift = posterior(learned_prior(seen))
    estimate = np.empty(y.size)
    look_up(y, q, deviation, multiple, shift, estimate)
    return estimate.reshape(observed.shape)


def learned_prior(seen: Floats) -> Floats:
    """Return π of (1) from how many cells fell into each bin of the grid, shape (components,); the last is π_0."""
    likelihood = _grid().likelihood
    used = np.flatnonzero((seen > 0) & (likelihood.sum(axis=-1) > _TINY))
    rows = np.ascontiguousarray(likelihood.reshape(-1, likelihood.shape[-1])[used])
    counts = np.ascontiguousarray(seen.ravel()[used])
    prior = _START.copy()
    if counts.size:
        climb(rows, counts / counts.sum(), _MEANS, _ROUNDS, prior)
    cells = float(counts.sum())
    learned: Floats = (cells * prior + _PRIOR_CELLS * _PRIOR) / (cells + _PRIOR_CELLS)
    return learned


def posterior(prior: Floats) -> tuple[Floats, Floats]:
    """Return E[μ | y]/q and (E[μ | y] − y)/σ on the grid of (v, u), each of the shape of the grid.

    An observation that (1) cannot explain is taken as it is.
    """
    grid = _grid()
    weight, moment = grid.likelihood @ prior, grid.moment @ prior
    as_it_is = np.repeat(np.maximum(grid.v, 0.0)[:, None], grid.u.size, axis=1)
    mean: Floats = np.divide(moment, weight, out=as_it_is, where=weight > _TINY)
    return mean / grid.u, mean - grid.v[:, None]


@compiled
def bin_cells(y: Floats, q: Floats, deviation: float, seen: Floats) -> None:
    """Count each cell at the grid point next to it."""
    rows, columns = seen.shape
    for i in range(y.size):
        if q[i] > 0.0:
            row = min(max((math.asinh(y[i] / deviation) + _REACH) / _STEP, 0.0), rows - 1.0)
            column = min(max((math.log2(q[i] / deviation) - _LOWEST) / _OCTAVE, 0.0), columns - 1.0)
            seen[int(row + 0.5), int(column + 0.5)] += 1.0


@compiled
def climb(rows: Floats, shares: Floats, means: Floats, rounds: int, prior: Floats) -> None:
    """Do rounds of the EM algorithm on π, in place, under (2).

    Rows are likelihoods of a bin, shares how often it was seen, means those of λ in each component.
    """
    components = prior.size
    for _ in range(rounds):
        total = np.zeros(components)
        for i in range(shares.size):
            weight = 0.0
            for g in range(components):
                weight += rows[i, g] * prior[g]
            if weight > 0.0:
                share = shares[i] / weight
                for g in range(components):
                    total[g] += rows[i, g] * share
        mass = 0.0
        for g in range(components):
            prior[g] *= total[g]
            mass += prior[g]
        for g in range(components):
            prior[g] /= mass
        hold_mean(means, prior)


@compiled
def hold_mean(means: Floats, prior: Floats) -> None:
    """Move π to the most likely one with (2), in place; if components on both sides of a mean of one are left.

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
    for _ in range(40):
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
def look_up(y: Floats, q: Floats, deviation: float, multiple: Floats, shift: Floats, estimate: Floats) -> None:
    """Write the estimate of each cell, by linear interpolation on the grid.

    Below the noise it is a multiple of q, above it y with a shift. Either would lose the other's digits: steps of the
    grid are a thousandth of σ where q may be a millionth, and of y where it may be a million σ.
    """
    rows, columns = shift.shape
    for i in range(y.size):
        if q[i] <= 0.0:
            estimate[i] = 0.0
            continue
        row = (math.asinh(y[i] / deviation) + _REACH) / _STEP
        value = y[i]
        if 0.0 <= row < rows - 1:
            column = min(max((math.log2(q[i] / deviation) - _LOWEST) / _OCTAVE, 0.0), columns - 1.001)
            r, c = int(row), int(column)
            value = y[i] + deviation * between(shift, r, c, row - r, column - c)
            if value < deviation:
                value = q[i] * between(multiple, r, c, row - r, column - c)
        estimate[i] = max(value, LEAST_SHARE * q[i])


@compiled
def between(grid: Floats, r: int, c: int, down: float, right: float) -> float:
    """Return the value of a grid inside one of its meshes, linear along both sides."""
    low: float = grid[r, c] + down * (grid[r + 1, c] - grid[r, c])
    high: float = grid[r, c + 1] + down * (grid[r + 1, c + 1] - grid[r, c + 1])
    return low + right * (high - low)


@cache
def _grid() -> _Grid:
    """Return the likelihoods of (1) on the grid, in units of σ."""
    from scipy.special import ndtr

    v = np.sinh(np.linspace(-_REACH, _REACH, _SHAPE[0]))
    u = 2.0 ** np.linspace(_LOWEST, _HIGHEST, _SHAPE[1])
    y, q = np.broadcast_to(v[:, None], _SHAPE), np.broadcast_to(u, _SHAPE)
    likelihoods, moments = [], []
    for low, high in pairwise(_EDGES.tolist()):
        begin, end, width = q * low - y, q * high - y, q * (high - low)
        # The difference of two values near one is taken on the other side, where they are near zero.
        mass = np.where(begin > 0, ndtr(-begin) - ndtr(-end), ndtr(end) - ndtr(begin))
        # Far from the interval the moment is a difference of nearly equal numbers; the mean lies in the interval.
        moment = np.clip(y * mass + _density(begin) - _density(end), q * low * mass, q * high * mass)
        middle = q * (low + high) / 2
        narrow = width < 1e-3  # where the density hardly changes, and differences would cancel
        likelihoods.append(np.where(narrow, _density(middle - y), mass / width))
        moments.append(np.where(narrow, middle * _density(middle - y), moment / width))
    likelihoods.append(_density(y))
    moments.append(np.zeros(_SHAPE))
    return _Grid(np.stack(likelihoods, axis=-1), np.stack(moments, axis=-1), v, u)


def _density(x: Floats) -> Floats:
    """Return the standard normal density; arguments beyond 39, where it is zero, are cut off before the square."""
    density: Floats = np.exp(-0.5 * np.minimum(np.abs(x), 39.0) ** 2) / math.sqrt(2 * math.pi)
    return density
