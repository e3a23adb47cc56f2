"""How far tables stray, learned from noisy residuals: the likelihood against that of a scaled χ², by simulation."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import gamma

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.measurements import Measurements
from margrave.planning import stages
from margrave.planning.counts import (
    SETTLED,
    SETTLED_ODDS,
    SPREAD_BINS,
    ZIPF_EXPONENTS,
    _zipf_table,
    add_settled,
    add_spreads,
    most_in_cells,
    prior_spreads,
    settling,
    varying_counts,
)

SHAPE = (5, 4)
LAYOUT = Layout.of(SHAPE, [(0, 1)])
TABLE = LAYOUT.places[0, 1]
EVEN = np.full(SHAPE, 50.0)


def noisy(kappa, sigma, draw):
    """A table whose cells stray by normal departures of variance q + κ q², and its measurement."""
    counts = EVEN + draw.standard_normal(SHAPE) * np.sqrt(EVEN + kappa * EVEN**2)
    buffer = np.zeros(LAYOUT.cells)
    LAYOUT.view(buffer, TABLE)[...] = counts + sigma * draw.standard_normal(SHAPE)
    values = transform.center(LAYOUT, buffer)
    precisions = np.where(np.arange(len(LAYOUT.sets)) == TABLE, sigma**-2.0, 1.0)
    domain = Domain.fromdict({"a": SHAPE[0], "b": SHAPE[1]})
    often = np.ones(len(LAYOUT.sets), dtype=np.int64)
    return Measurements.from_centered(domain, LAYOUT, values=values, precisions=precisions, counts=often)


@pytest.mark.parametrize("sigma", [2.0, 30.0])
@pytest.mark.parametrize("place", [0, 4, 6])
def test_the_likelihood_of_a_stray_is_that_of_the_distance_it_makes(place, sigma):
    """For even cells and normal departures ‖z − C q‖² is a scaled χ² of m degrees of freedom, exactly."""
    draw, degrees = np.random.default_rng(place), 12
    measured = noisy(stages.KAPPAS[place], sigma, draw)
    found = stages._log_likelihood(LAYOUT, measured, TABLE, EVEN, varying_counts(EVEN))
    distance = float(np.square(LAYOUT.view(measured.values, TABLE)).sum())
    # The largest number of people in a cell of 50 of a table of 5 × 4 is the smaller of 200 and 250.
    variance = sigma**2 + 50 + np.append(stages.KAPPAS * 50**2, stages.THETAS * 50 * (200 - 50))
    exact = gamma(degrees / 2, scale=2 * variance).logpdf(distance) + np.log(distance)
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-9)


def test_strays_are_found_where_they_are():
    """Of sixty measured tables the mean κ is found to within a factor of two, for small and for large noise.

    A scaled χ² of 12 degrees of freedom varies by 41 %; over sixty tables the mean varies by 5 %, so that a factor of
    two is out of reach of chance, while steps of the grid are factors of about three and the prior counts four tables.
    """
    draw = np.random.default_rng(8)
    for kappa, sigma in ((0.1, 2.0), (1.0, 30.0)):
        told = {}
        for one in range(60):
            told[one] = stages._log_likelihood(LAYOUT, noisy(kappa, sigma, draw), TABLE, EVEN, varying_counts(EVEN))
        # A variance of θ q (m − q) is that of κ = θ (m − q)/q.
        kappas = np.append(stages.KAPPAS, stages.THETAS * (200 - 50) / 50)
        pairs = dict.fromkeys(told, (0, 1))
        posteriors = stages._posteriors(told, pairs, SHAPE, stages.PRIORS[2])
        found = np.mean([part @ kappas for part in posteriors.values()])
        assert kappa / 2 < found < 2 * kappa


def test_what_is_settled_by_one_attribute_is_expected_of_its_other_pairs():
    """A pair that was hardly measured is taken for settled more if other pairs of its attributes are."""
    settled = np.array([-60.0] * len(stages.KAPPAS) + [-50.0, -20.0, -5.0, 0.0])
    tables = dict(enumerate(combinations(range(8), 2)))
    flat = {table: np.zeros(len(settled)) for table in tables}
    told = flat | {table: settled for table, members in tables.items() if members in ((0, 1), (0, 2))}
    found = stages._posteriors(told, tables, [8] * 8, stages.PRIORS[2])
    places = {members: table for table, members in tables.items()}
    certain, related, other = (found[places[pair]][-1] for pair in ((0, 1), (1, 2), (6, 7)))
    assert certain > 0.95
    assert related > other
    assert found[places[1, 2]][0] < found[places[6, 7]][0]


@pytest.mark.parametrize(("values", "factor"), [(2, 1), (8, 1), (16, 4), (32, 16), (1_000, 21)])
def test_pairs_of_attributes_with_many_values_are_settled_more_likely(values, factor):
    assert settling([3, values]) == factor
    flat = {0: np.zeros(len(stages.PRIORS[2]))}
    found = stages._posteriors(flat, {0: (0, 1)}, [3, values], stages.PRIORS[2])[0]
    prior = stages.PRIORS[2][len(stages.KAPPAS) :].sum()
    odds = found[len(stages.KAPPAS) :].sum() / found[: len(stages.KAPPAS)].sum()
    assert odds == pytest.approx(factor * prior / (1 - prior))


@pytest.mark.parametrize("theta", stages.THETAS)
def test_cells_of_a_settled_pair_stray_as_a_simulation_says(theta):
    """Where all people of a row are in one cell, chosen by chance, cells stray by what the histogram has.

    With q/m = 1/5, 20 of 20 × 5 cells have everybody of their row and 80 nobody; for θ < 1 so much of that variance is
    left. The histogram keeps the number of cells and the sum of distances exactly, squares to a few percent.
    """
    expected, share = np.full((20, 5), 40.0), 0.76
    spreads, draw = np.zeros(SPREAD_BINS), np.random.default_rng(4)
    add_settled(spreads, expected, most_in_cells(expected), 1.0, theta, share=share)
    distance = 2.0 ** (np.arange(SPREAD_BINS) / 2 - 8)
    counts = np.zeros((20, 5))
    counts[np.arange(20), draw.integers(0, 5, 20)] = 200
    squares = share * (theta * np.square(counts - expected) + np.where(counts > 0, 200, 40))
    assert spreads.sum() == pytest.approx(100)
    assert spreads @ distance == pytest.approx(np.sqrt(squares).sum(), rel=1e-9)
    assert spreads @ distance**2 == pytest.approx(squares.sum(), rel=0.04)


def test_what_is_expected_of_a_large_pair_before_anything_is_measured_is_what_all_its_cells_say():
    """Binned shares of Zipf's law against tables written out, for every pair of exponents; 25 tables, half octaves."""
    shape, rows = (12, 90), 20_000
    share = (1 - 1 / 12) * (1 - 1 / 90)
    slow = np.zeros(SPREAD_BINS)
    for exponents in product(ZIPF_EXPONENTS, repeat=2):
        first, second = (np.arange(1, size + 1.0) ** -power for size, power in zip(shape, exponents, strict=True))
        expected = rows * np.outer(first / first.sum(), second / second.sum())
        for theta in SETTLED:
            add_settled(slow, expected, most_in_cells(expected), 1 / 50, theta, share=share)
    with_odds = prior_spreads([shape], rows)[0]
    odds = SETTLED_ODDS * (settling(shape) - 1)
    alone = np.zeros(SPREAD_BINS)
    add_spreads(alone, *_zipf_table(shape, rows), 2, share=share)
    distance = 2.0 ** (np.arange(SPREAD_BINS) / 2 - 8)
    found = with_odds - alone / (1 + odds)
    assert found @ distance == pytest.approx(odds / (1 + odds) * slow @ distance, rel=0.03)
    for bound in (1.5, 30, 300):
        far = distance > bound
        assert (found * distance)[far].sum() == pytest.approx(odds / (1 + odds) * (slow * distance)[far].sum(), rel=0.1)
