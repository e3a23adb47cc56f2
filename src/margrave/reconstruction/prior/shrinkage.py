r"""Shrinkage of noisy residuals towards what the smaller tables predict, by as much as their own noise asks for.

Let m be the table with the facets of table τ and the most entropy: uniform for one attribute, independent for two, no
interaction of all k for k attributes. It is found by iterative proportional fitting from the table of ones
(``fitting``), a few cycles of it. If the smaller tables say all there is to say, the residual of τ is C_τ m. The
measurement z with covariance σ² C_τ says how far from it the truth is: for d = z − C_τ m,

    E d_i² = v_i + σ² p,       p = m_τ/n_τ (degrees of freedom a cell),       v_i the departure to be expected.   (1)

Departures grow with the count that is predicted: where hardly anybody is expected there is hardly anybody missing. So
cells are grouped by powers of two of m_i/σ, and v is the non-decreasing sequence over the groups that fits (1) best
(pool adjacent violators), not below zero. With it, the best linear estimate given d is (empirical Bayes; James & Stein
by groups)

    r̂ = C_τ ( C_τ m + c d ),     c_i = v_i / (v_i + σ² p).                                                      (2)

Nothing is tuned: where the data depart from the prediction by more than noise, c is next to one and the measurement
stays as it is; where they do not, c = 0 and the prediction takes its place, also where nothing was measured (σ² = ∞).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra.kernels import Floats, Index, center_before, compiled, over_tables
from margrave.reconstruction.prior.fitting import fit_facets

if TYPE_CHECKING:
    from margrave.algebra.layout import Layout

# Cycles of fitting for tables of three attributes and more: tables are predicted here, not fitted to the last digit.
CYCLES = 8
# Groups of cells: predictions from 2⁻¹² of the noise's standard deviation, and less, to 2¹² of it, and more.
GROUPS = 25


def shrink_residuals(layout: Layout, residuals: Floats, inner: Floats, variances: Floats) -> Floats:
    """Return the residuals of a closure, each shrunk towards what its facets predict, equation (2); the total stays.

    Parameters
    ----------
    layout
        The closure.
    residuals
        Shape (layout.cells,); centred, as measured.
    inner
        Shape (layout.inner_cells,) or more; the inner tables to predict from, of which none is negative.
    variances
        Shape (tables,); σ² of each residual: infinite for one that is to be predicted only, zero for one to be kept.
    """
    shrunk = residuals.copy()

    def task(begin: int, end: int) -> None:
        shrink_tables(begin, end, layout.index, layout.degrees, inner, variances, shrunk)

    over_tables(task, 0, len(layout.sets), layout.index.offset)
    return shrunk


@compiled
def shrink_tables(
    first: int, last: int, index: Index, degrees: Floats, inner: Floats, variances: Floats, residuals: Floats
) -> None:
    """Replace the residuals of the tables first … last − 1 by those of equation (2)."""
    for t in range(first, last):
        order, axes = index.order[t], index.axes[t]
        if order == 0 or variances[t] == 0.0 or degrees[t] == 0.0:
            continue
        residual = residuals[index.offset[t] : index.offset[t + 1]]
        predicted = np.ones(residual.size)
        starts = np.empty(order, dtype=np.int64)
        for j in range(order):
            starts[j] = index.offset[index.facet[t, j]]
        # One cycle is exact for up to two attributes.
        fit_facets(predicted, axes[:order], inner, starts, 0.0, CYCLES if order > 2 else 1)
        expected = predicted.copy()
        center_before(expected, axes, order)
        if variances[t] == np.inf:
            residual[:] = expected
            continue
        shrink_departure(residual, expected, predicted, variances[t], degrees[t] / residual.size)
        center_before(residual, axes, order)


@compiled
def shrink_departure(residual: Floats, expected: Floats, predicted: Floats, variance: float, share: float) -> None:
    """Replace a residual by C_τ m + c d of equation (2), in place, where ``expected`` is C_τ m and ``predicted`` m."""
    deviation = math.sqrt(variance)
    noise = variance * share
    cells, departures = np.zeros(GROUPS), np.zeros(GROUPS)
    for i in range(residual.size):
        group = group_of(predicted[i], deviation)
        cells[group] += 1.0
        departures[group] += (residual[i] - expected[i]) ** 2
    for group in range(GROUPS):
        if cells[group] > 0.0:
            departures[group] = departures[group] / cells[group] - noise
    pool_decreasing(departures, cells)
    for i in range(residual.size):
        excess = max(departures[group_of(predicted[i], deviation)], 0.0)
        residual[i] = expected[i] + excess / (excess + noise) * (residual[i] - expected[i])


@compiled
def group_of(predicted: float, deviation: float) -> int:
    """Return the group of a cell: the power of two of its predicted count in standard deviations of the noise."""
    quotient = predicted / deviation
    if not quotient > 0.0:
        return 0
    if quotient == np.inf:
        return GROUPS - 1
    _, power = math.frexp(quotient)
    place: int = min(max(power - 1 + GROUPS // 2, 0), GROUPS - 1)
    return place


@compiled
def pool_decreasing(values: Floats, weights: Floats) -> None:
    """Replace values by the nearest non-decreasing sequence in weighted squares, in place; weights may be zero."""
    means, masses = np.empty(len(values)), np.empty(len(values))
    ends = np.empty(len(values), dtype=np.int64)
    blocks = 0
    for i in range(len(values)):
        if weights[i] == 0.0:
            continue
        mean, mass = values[i], weights[i]
        while blocks > 0 and means[blocks - 1] >= mean:
            blocks -= 1
            mean = (means[blocks] * masses[blocks] + mean * mass) / (masses[blocks] + mass)
            mass += masses[blocks]
        means[blocks], masses[blocks], ends[blocks] = mean, mass, i + 1
        blocks += 1
    begin = 0
    for block in range(blocks):
        values[begin : ends[block]] = means[block]
        begin = ends[block]
