r"""What to measure next, from noisy values alone: the decisions of mechanisms that measure in stages.

Everything here is a function of `Measurements` and of public numbers, so it costs no budget. A test shows that it
cannot reach the data (tests/test_architecture.py). The cost of a stage is checked where its noise is drawn
(``boundary``).

*After the total* (`planned_for_total`): the plan for "counts" with the number of people estimated from a noisy total.

*After a look at everything* (`planned_after`). The expected counts q of a table τ are the most even ones with the
facets that noisy values give (``reconstruction.prior.fitting``). How far cells stray, κ of ``counts``, is learned from
the residuals. With p and u of a cell as in equation (3) there, and z_τ with noise σ²,

    E ‖z_τ − C_τ q‖² = p_τ Σ (σ² + u + κ u²),                                                                    (1)

and for each value of κ on a grid its likelihood is that of a scaled χ² with this mean and the variance

    2 p_τ Σ (σ² + u + κ u²)²,                                                                                    (2)

which is exact for even cells and normal departures.

For a pair that is settled to a share θ, equation (4) there, q + θ q (m − q) takes the place of u + κ u².

Before anything is seen every κ and θ has a probability, the same for all tables of an order. It is updated by all of
them (with the weight of a few tables for what it was), then for each attribute by the tables that have it, and last
for each table, from the mean of its attributes, by its own likelihood: a code that settles one other attribute is
likely to settle more, and so is an attribute of many values (`settling`). The rest of the budget is planned again with
the curves that follow. Nothing is learned about the total and single attributes: what is left of their errors is noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra.kernels import Floats, center_before
from margrave.algebra.layout import Layout
from margrave.planning.allocation import add_precisions, closure_weights, floor_precisions, without_small_gains
from margrave.planning.coefficients import cost_coefficients
from margrave.planning.counts import (
    SPREAD_BINS,
    Curves,
    Importance,
    add_settled,
    add_spreads,
    curves_of,
    most_in_cells,
    prior_curves,
    prior_spreads,
    settling,
    varying_counts,
)
from margrave.planning.plans import MOST_PLANNED_ROWS, stage_noise
from margrave.reconstruction.estimates import estimate_residuals
from margrave.reconstruction.nonnegative import reconstruct_nonnegative
from margrave.reconstruction.prior import automatic
from margrave.reconstruction.prior.fitting import most_even

if TYPE_CHECKING:
    from margrave.measurements.measurements import Measurements
    from margrave.workload import Workload

KAPPAS = np.array([0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
THETAS = np.array([0.03, 0.1, 0.3, 1.0])
# Probabilities before anything is seen, chosen on generated tables: of every κ and θ for tables of two attributes, of
# every κ for those of more.
PRIORS = {
    2: np.array([0.287, 0.082, 0.082, 0.0984, 0.1066, 0.082, 0.0574, 0.0205, 0.0041, 0.05, 0.05, 0.05, 0.03]),
    3: np.array([0.6, 0.1, 0.08, 0.08, 0.07, 0.04, 0.02, 0.007, 0.003]),
}
# The weight of a prior, in tables, and how many times it is updated.
_PRIOR_TABLES, _UPDATES = 4, 10
# A θ that is less likely than this adds nothing that a plan would notice.
_UNLIKELY = 1e-3
# The share of the remaining budget that each stage after the total spends. The first measures every residual, as
# planned from the total; the other two measure what is planned from all stages before.
STAGES = (0.4, 0.5, 1.0)
_FITTING_ROUNDS = 10
_SOLVER_ROUNDS = 200
_EXPECTED_BINS, _LEAST_EXPECTED = 100, 2.0**-20
# A squared distance of zero would have no logarithm.
_LEAST_DISTANCE = 1e-300


def planned_for_total(
    workload: Workload,
    layout: Layout,
    measurements: Measurements,
    left: Fraction,
    contributions: int,
    *,
    share: float = 1.0,
) -> Floats:
    """Return g² of the noise on each integer residual, once the total is measured; zero where none is drawn.

    Parameters
    ----------
    workload
        The tables wanted.
    layout
        Its closure, that of the measurements.
    measurements
        The noisy total.
    left
        What is left of the budget.
    contributions
        The most rows that one person has.
    share
        The share of what is left that is spent now. Every residual gets its full part of the floor in any case.
    """
    known, rho = measurements.precisions, float(left / contributions**2)
    added = first_precisions(workload, layout, known, likely_rows(measurements), rho=rho, share=share)
    return stage_noise(layout, added)


def first_precisions(
    workload: Workload, layout: Layout, known: Floats, rows: float, *, rho: float, share: float = 1.0
) -> Floats:
    """Return the precisions to add once the total is known; shape (tables,).

    Parameters
    ----------
    workload
        The tables wanted.
    layout
        Its closure.
    known
        Shape (tables,); the precision of the total, zero for the others.
    rows
        The number of people to plan for.
    rho
        What is left of the budget, for one row a person.
    share
        The share of what is left that is spent now. Every residual gets its full part of the floor in any case.
    """
    weights = closure_weights(workload, layout)
    curves = prior_curves([layout.shape(table) for table in range(len(layout.sets))], rows)
    floor = floor_precisions(layout, weights, rho=rho)
    added, _ = add_precisions(layout, Importance.of(layout, weights), curves, rho=rho, known=known, floor=floor)
    if share < 1:
        added = without_small_gains(np.where(known > 0, share * added, np.maximum(share * added, floor)), known)
    return added


def planned_after(
    workload: Workload,
    layout: Layout,
    measurements: Measurements,
    left: Fraction,
    contributions: int,
    *,
    share: float,
) -> Floats:
    """Return g² of the noise on each integer residual of the next stage; zero where none is drawn.

    Parameters
    ----------
    workload
        The tables wanted.
    layout
        Its closure, that of the measurements.
    measurements
        All that was measured so far: every residual at least once.
    left
        What is left of the budget.
    contributions
        The most rows that one person has.
    share
        The share of what is left that is spent now; 1 in the last stage.
    """
    rho, known = float(left / contributions**2), measurements.precisions
    importance = Importance.of(layout, closure_weights(workload, layout))
    curves, none = learned_curves(layout, measurements), np.zeros(len(layout.sets))
    added, _ = add_precisions(layout, importance, curves, rho=rho, known=known, floor=none)
    return stage_noise(layout, added if share == 1 else without_small_gains(share * added, known))


def likely_rows(measurements: Measurements) -> float:
    """Return the number of people estimated from a noisy total: its mean given that it is positive; at least one.

    For a total z with standard deviation σ and t = z/σ that is σ (t + φ(t)/Φ(t)), positive whatever the noise.
    """
    from scipy.special import log_ndtr

    place = measurements.layout.places[()]
    deviation = 1 / math.sqrt(float(measurements.precisions[place]))
    center = max(float(measurements.values[place]) / deviation, -30.0)
    hazard = math.exp(-0.5 * center**2 - 0.5 * math.log(2 * math.pi) - float(log_ndtr(center)))
    return min(max(deviation * (center + hazard), 1.0), MOST_PLANNED_ROWS)


def learned_curves(layout: Layout, measurements: Measurements) -> Curves:
    """Return the curves of a closure, with what measurements of its smaller tables say about the larger ones.

    Parameters
    ----------
    layout
        The closure, that of the measurements.
    measurements
        At least the total.
    """
    tables, order = len(layout.sets), layout.index.order
    known = (measurements.precisions > 0) | (layout.degrees == 0)
    complete = [k for k in range(1, int(order.max()) + 1) if known[order == k].all() and known[order < k].all()]
    rows, shares = likely_rows(measurements), cost_coefficients(layout)
    if not complete:
        return prior_curves([layout.shape(table) for table in range(tables)], rows)
    smaller = _SmallerTables(layout, measurements, complete[-1])
    spreads = np.zeros((tables, SPREAD_BINS))
    histograms: dict[int, tuple[Floats, Floats]] = {}
    pairs: dict[int, Floats] = {}
    likelihoods: dict[int, Floats] = {}
    for table in np.flatnonzero(layout.degrees > 0).tolist():
        if order[table] < 2:
            continue
        expected = smaller.expected(layout.sets[table])
        varying = varying_counts(expected)
        histograms[table] = _histogram(varying)
        if order[table] == 2:
            pairs[table] = expected
        if measurements.precisions[table] > 0:
            likelihoods[table] = _log_likelihood(layout, measurements, table, expected, varying)
    for k in range(2, int(order.max()) + 1):
        own = {table: layout.sets[table] for table in np.flatnonzero((order == k) & (layout.degrees > 0)).tolist()}
        for table, probabilities in _posteriors(likelihoods, own, layout.sizes, PRIORS[min(k, 3)]).items():
            strays = list(zip(KAPPAS.tolist(), probabilities.tolist(), strict=False))
            add_spreads(spreads[table], *histograms[table], k, share=float(shares[table]), strays=strays)
            if k == 2:
                most = most_in_cells(pairs[table])
                for theta, likely in zip(THETAS.tolist(), probabilities[len(KAPPAS) :].tolist(), strict=True):
                    if likely > _UNLIKELY:
                        add_settled(spreads[table], pairs[table], most, likely, theta, share=float(shares[table]))
    # Nothing is learned about the total and single attributes: what is left of their errors is noise.
    small = np.flatnonzero(order < 2).tolist()
    spreads[small] = prior_spreads([layout.shape(table) for table in small], rows)
    return curves_of(np.arange(tables), spreads)


class _SmallerTables:
    """Non-negative tables of up to k attributes, reconstructed from noisy residuals, and what they predict.

    Parameters
    ----------
    layout
        The closure of the workload.
    measurements
        What was measured: every residual of up to k attributes.
    most
        k.
    """

    def __init__(self, layout: Layout, measurements: Measurements, most: int) -> None:
        order = layout.index.order
        # The largest tables predict no other table, so they are not reconstructed: their facets are enough.
        self._most = min(most, max(int(order.max()) - 1, 1))
        sets = [one for one, size in zip(layout.sets, order.tolist(), strict=True) if size == self._most]
        below = [one for one, size in zip(layout.sets, order.tolist(), strict=True) if size < self._most]
        self._layout = Layout.of(layout.sizes, [*sets, *below])
        choice = automatic(estimate_residuals(measurements, self._layout))
        solved = reconstruct_nonnegative(
            choice.estimates,
            weights=choice.weights,
            eta=None,
            hold=choice.hold,
            tolerance=choice.tolerance,
            max_steps=_SOLVER_ROUNDS,
        )
        self._tables = np.maximum(solved.marginals, 0.0)

    def _table(self, members: tuple[int, ...]) -> Floats:
        return self._layout.view(self._tables, self._layout.places[members])

    def expected(self, members: tuple[int, ...]) -> Floats:
        """Return the expected counts of a table of at least one attribute."""
        if len(members) == 1:
            return self._table(members)
        facets = list(combinations(members, len(members) - 1))[::-1]
        if all(facet in self._layout.places for facet in facets):
            return most_even([self._table(facet) for facet in facets], most_rounds=_FITTING_ROUNDS)
        total = max(float(self._tables[self._layout.places[()]]), _LEAST_EXPECTED)
        product: Floats = np.array(total)
        for member in members:
            product = np.multiply.outer(product, self._table((member,)) / total)
        return product


def _histogram(expected: Floats) -> tuple[Floats, Floats]:
    """Return expected counts by half octaves, and how many cells have each; nearly empty cells are left out."""
    flat = expected.ravel()
    flat = flat[flat > _LEAST_EXPECTED]
    bins = np.minimum(np.rint(2 * np.log2(flat / _LEAST_EXPECTED)).astype(np.int64), _EXPECTED_BINS - 1)
    cells = np.bincount(bins, minlength=_EXPECTED_BINS).astype(np.float64)
    sums = np.bincount(bins, weights=flat, minlength=_EXPECTED_BINS)
    some = cells > 0
    return sums[some] / cells[some], cells[some]


def _log_likelihood(
    layout: Layout, measurements: Measurements, table: int, expected: Floats, varying: Floats
) -> Floats:
    """Return the log-likelihood of each κ, and of each θ for a pair, from how far a residual is from the expected."""
    from scipy.special import gammaln

    centred = expected.copy()
    center_before(centred.reshape(-1), np.array(expected.shape, dtype=np.int64), expected.ndim)
    distance = float(np.square(layout.view(measurements.values, table) - centred).sum())
    variance = 1 / float(measurements.precisions[table])
    share = float(cost_coefficients(layout)[table])
    # The mean of equation (1), and half the variance of equation (2), from sums of powers over the cells.
    counts, squares, cubes = (float((varying**power).sum()) for power in (1, 2, 3))
    fourth, kappas = float((varying**4).sum()), KAPPAS
    cells = float(expected.size)
    mean = share * (cells * variance + counts + kappas * squares)
    spread = share * (
        cells * variance**2
        + 2 * variance * (counts + kappas * squares)
        + squares
        + 2 * kappas * cubes
        + kappas**2 * fourth
    )
    if expected.ndim == 2:
        settled = expected * np.maximum(most_in_cells(expected) - expected, 0.0)
        each = [variance + expected + theta * settled for theta in THETAS.tolist()]
        mean = np.append(mean, [share * float(one.sum()) for one in each])
        spread = np.append(spread, [share * float(np.square(one).sum()) for one in each])
    half = mean**2 / (2 * spread)
    scaled = max(distance, _LEAST_DISTANCE) / mean * half
    likelihood: Floats = half * np.log(scaled) - scaled - gammaln(half)
    return likelihood


def _posteriors(
    likelihoods: Mapping[int, Floats], tables: Mapping[int, tuple[int, ...]], sizes: Sequence[int], prior: Floats
) -> dict[int, Floats]:
    """Return the probabilities of κ and θ for each table of an order.

    Parameters
    ----------
    likelihoods
        Logarithms by table, for those that were measured.
    tables
        The attributes of each table.
    sizes
        The size of each attribute.
    prior
        Probabilities before anything is seen.
    """
    relative = {
        table: np.exp(likelihoods[table] - likelihoods[table].max()) for table in tables if table in likelihoods
    }
    pooled = _pooled(list(relative.values()), prior / prior.sum())
    having: dict[int, list[Floats]] = {member: [] for members in tables.values() for member in members}
    for table, evidence in relative.items():
        for member in tables[table]:
            having[member].append(evidence)
    of_attribute = {member: _pooled(evidence, pooled) for member, evidence in having.items()}
    found = {}
    for table, members in tables.items():
        own = np.mean([of_attribute[member] for member in members], axis=0) * relative.get(table, 1.0)
        own[len(KAPPAS) :] *= settling([sizes[member] for member in members])
        found[table] = own / own.sum()
    return found


def _pooled(evidence: Sequence[Floats], prior: Floats) -> Floats:
    """Return the probabilities that tables have in common, from the likelihoods of each and a prior over them."""
    pooled = prior
    if evidence:
        relative = np.array(evidence)
        for _ in range(_UPDATES):
            each = relative * pooled
            each /= each.sum(axis=1, keepdims=True)
            pooled = (each.sum(axis=0) + _PRIOR_TABLES * prior) / (len(each) + _PRIOR_TABLES)
    return pooled
