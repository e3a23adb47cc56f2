r"""What to measure next, from noisy values alone: the decisions of mechanisms that measure in stages.

Everything here is a function of `Measurements` and of public numbers, so that it costs no budget; that it cannot reach
the data is a test (tests/test_architecture.py). What a stage costs is checked where it is drawn (``boundary``).

*After the total* (`planned_for_total`): the plan for "counts" with the number of people that a noisy total speaks for.

*Order by order* (`planned_after`). With the tables of up to k attributes measured, more is known of the others than
that attributes are uneven. The expected counts q of a table τ are the most even ones with the facets that were measured
(``reconstruction.prior.fitting``), or, where these were not measured yet, the product of the tables of one attribute.
How far cells stray, κ of ``counts``, is learned from the residuals that were measured. Of z_τ with noise σ²,

    E ‖z_τ − C_τ q‖² = m_τ σ² + p_τ Σ (q + κ q²),                                                                (1)

and for each value of κ on a grid its likelihood is that of a scaled χ² with this mean and the variance

    2 m_τ (mean/m_τ)² + 3 κ² (1 + κ)² p_τ² Σ q⁴,                                                                 (2)

noise and many small cells, and a few large ones whose shares are off by any factor up to about κ. A prior over κ, the
same for all tables of an order, is updated by all of them (it counts for a few tables itself), and then κ of each table
by its own likelihood. What is left to spend is planned again with the curves that follow.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra.kernels import Floats, center_before
from margrave.algebra.layout import Layout
from margrave.planning.allocation import add_precisions, closure_weights, floor_precisions
from margrave.planning.coefficients import cost_coefficients
from margrave.planning.counts import SPREAD_BINS, Curves, add_spreads, curves_of, importance, prior_curves
from margrave.planning.plans import MOST_PLANNED_ROWS, stage_noise
from margrave.reconstruction.estimates import estimate_residuals
from margrave.reconstruction.nonnegative import reconstruct_nonnegative
from margrave.reconstruction.prior import automatic
from margrave.reconstruction.prior.fitting import most_even

if TYPE_CHECKING:
    from margrave.measurements.measurements import Measurements
    from margrave.workload import Workload

KAPPAS = np.array([0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
# Probabilities of these before anything is seen, for tables of two attributes and of more, chosen on generated tables.
PRIORS = {
    2: np.array([0.1, 0.1, 0.15, 0.2, 0.2, 0.1, 0.1, 0.04, 0.01]),
    3: np.array([0.3, 0.25, 0.15, 0.12, 0.1, 0.05, 0.02, 0.007, 0.003]),
}
# For how many tables a prior counts, and how often it is updated.
_PRIOR_TABLES, _UPDATES = 4, 10
# Of what the plan gives the order that is next, this share is measured before the next look; of the largest, which the
# last look chooses from, less.
SHARE_BEFORE_LOOK, SHARE_BEFORE_LAST_LOOK = 0.9, 0.6
_FITTING_ROUNDS = 10
_SOLVER_ROUNDS = 200
_EXPECTED_BINS, _LEAST_EXPECTED = 100, 2.0**-20


def planned_for_total(
    workload: Workload, layout: Layout, measurements: Measurements, left: Fraction, contributions: int
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
        What is left of the budget; it is spent.
    contributions
        The most rows that one person has.
    """
    weights, rho = closure_weights(workload, layout), float(left / contributions**2)
    curves = prior_curves([layout.shape(table) for table in range(len(layout.sets))], likely_rows(measurements))
    floor, known = floor_precisions(layout, weights, rho=rho), measurements.precisions
    counted = importance(layout, weights)
    return stage_noise(layout, add_precisions(layout, counted, curves, rho=rho, known=known, floor=floor)[0])


def planned_after(
    workload: Workload,
    layout: Layout,
    measurements: Measurements,
    left: Fraction,
    *,
    order: int,
    contributions: int,
    floor: Floats,
    last: bool,
) -> Floats:
    """Return g² of the noise on each integer residual of the next stage; zero where none is drawn.

    Parameters
    ----------
    workload
        The tables wanted.
    layout
        Its closure, that of the measurements.
    measurements
        All that was measured so far: at least the total, and every residual of fewer attributes than ``order``.
    left
        What is left of the budget.
    order
        Up to how many attributes residuals are measured in this stage.
    contributions
        The most rows that one person has.
    floor
        Shape (tables,); the least precision of a residual that was never measured.
    last
        Whether this is the last stage, which spends what is left.
    """
    rho, known = float(left / contributions**2), measurements.precisions
    curves = learned_curves(layout, measurements)
    counted = importance(layout, closure_weights(workload, layout))
    added, _ = add_precisions(layout, counted, curves, rho=rho, known=known, floor=floor)
    if last:
        return stage_noise(layout, added)
    fresh = (known == 0) & (layout.degrees > 0)
    share = SHARE_BEFORE_LAST_LOOK if order == int(layout.index.order.max()) else SHARE_BEFORE_LOOK
    now = np.where(layout.index.order <= order, share * added, 0.0)
    now = np.where(fresh & (layout.index.order <= order), np.maximum(now, floor), now)
    return stage_noise(layout, now)


def likely_rows(measurements: Measurements) -> float:
    """Return the number of people that a noisy total speaks for: its mean given that there are some; at least one.

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
    rows = likely_rows(measurements)
    if not complete:
        return prior_curves([layout.shape(table) for table in range(tables)], rows)
    smaller = _SmallerTables(layout, measurements, complete[-1])
    spreads = np.zeros((tables, SPREAD_BINS))
    histograms: dict[int, tuple[Floats, Floats]] = {}
    likelihoods: dict[int, Floats] = {}
    for table in np.flatnonzero(layout.degrees > 0).tolist():
        if order[table] == 0:
            add_spreads(spreads[table], np.array([rows]), np.ones(1), 1)
            continue
        expected = smaller.expected(layout.sets[table])
        histograms[table] = _histogram(expected)
        if order[table] == 1:
            add_spreads(spreads[table], *histograms[table], 1, even=rows / expected.size)
        elif measurements.precisions[table] > 0:
            likelihoods[table] = _log_likelihood(layout, measurements, table, expected)
    for k in range(2, int(order.max()) + 1):
        own = np.flatnonzero((order == k) & (layout.degrees > 0)).tolist()
        for table, probabilities in zip(own, _posteriors(likelihoods, own, PRIORS[min(k, 3)]), strict=True):
            strays = list(zip(KAPPAS.tolist(), probabilities.tolist(), strict=True))
            add_spreads(spreads[table], *histograms[table], k, strays=strays)
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
        # Tables of three attributes predict nothing that is planned for; their own facets are enough.
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
    """Return expected counts by half octaves, and how many cells have each; cells of next to nothing are left out."""
    flat = expected.ravel()
    flat = flat[flat > _LEAST_EXPECTED]
    bins = np.minimum(np.rint(2 * np.log2(flat / _LEAST_EXPECTED)).astype(np.int64), _EXPECTED_BINS - 1)
    cells = np.bincount(bins, minlength=_EXPECTED_BINS).astype(np.float64)
    sums = np.bincount(bins, weights=flat, minlength=_EXPECTED_BINS)
    some = cells > 0
    return sums[some] / cells[some], cells[some]


def _log_likelihood(layout: Layout, measurements: Measurements, table: int, expected: Floats) -> Floats:
    """Return the logarithm of the likelihood of each κ, from how far a measured residual is from what is expected."""
    from scipy.special import gammaln

    centred = expected.copy()
    center_before(centred.reshape(-1), np.array(expected.shape, dtype=np.int64), expected.ndim)
    distance = float(np.square(layout.view(measurements.values, table) - centred).sum())
    degrees, variance = float(layout.degrees[table]), 1 / float(measurements.precisions[table])
    share = float(cost_coefficients(layout)[table])
    people, squares = float(expected.sum()), float(np.square(expected).sum())
    fourth = float((expected**4).sum())
    mean = degrees * variance + share * (people + KAPPAS * squares)
    spread = 2 * mean**2 / degrees + 3 * (KAPPAS * (1 + KAPPAS) * share) ** 2 * fourth
    half = np.maximum(mean**2 / spread, 0.25)
    scaled = max(distance, 1e-300) / mean * half
    likelihood: Floats = half * np.log(scaled) - scaled - gammaln(half)
    return likelihood


def _posteriors(likelihoods: dict[int, Floats], tables: list[int], prior: Floats) -> list[Floats]:
    """Return the probabilities of κ for each table of an order, its prior learned from all that were measured."""
    relative = {
        table: np.exp(likelihoods[table] - likelihoods[table].max()) for table in tables if table in likelihoods
    }
    pooled = prior / prior.sum()
    if relative:
        evidence = np.array(list(relative.values()))
        for _ in range(_UPDATES):
            each = evidence * pooled
            each /= each.sum(axis=1, keepdims=True)
            pooled = (each.sum(axis=0) + _PRIOR_TABLES * prior / prior.sum()) / (len(each) + _PRIOR_TABLES)
    found = []
    for table in tables:
        own = pooled * relative.get(table, 1.0)
        found.append(own / own.sum())
    return found
