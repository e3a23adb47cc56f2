"""Cells given what was predicted: the posterior mean of the prior as it is defined, and what a sample varies by."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import hypergeom

from margrave.reconstruction.prior import cells, departures
from margrave.reconstruction.prior.cells import posterior, sample_variances
from margrave.reconstruction.prior.departures import (
    MEANS,
    SHAPE,
    grid,
    hold_mean,
    learned_prior,
    starting_prior,
)


def place(row, column):
    """The observed departure and the prediction that a place of the grid stands for, in units of S."""
    return math.sinh(row * departures.STEP - departures.REACH), 2.0 ** (departures.LOWEST + column * departures.OCTAVE)


def moments(prior, departure, predicted):
    """Mean and variance of η − q for noise of variance one, by numerical integration of the prior's definition."""
    sums = np.zeros(3)
    for low, high, share in zip(departures.LOW, departures.HIGH, prior, strict=True):
        begin, end = (low - 1) * predicted, (high - 1) * predicted

        def density(e):
            return math.exp(-0.5 * (departure - e) ** 2)

        if high == low:
            sums += share * density(begin) * np.array([1.0, begin, begin**2])
            continue
        middle = min(max(departure, begin), end)
        for power in range(3):
            for left, right in ((max(begin, middle - 12), middle), (middle, min(end, middle + 12))):
                if right > left:
                    part = quad(lambda e, p=power: e**p * density(e), left, right, epsabs=0, epsrel=1e-11)[0]
                    sums[power] += share * part / (end - begin)
    mean = sums[1] / sums[0]
    return mean, sums[2] / sums[0] - mean**2


@pytest.mark.parametrize("row", [120, 130, 148, 150, 155, 165, 200])
@pytest.mark.parametrize("column", [30, 48, 52, 56, 64])
def test_mean_and_variance_on_the_grid_are_those_of_the_prior(row, column):
    prior = np.random.default_rng(1).dirichlet(np.ones(MEANS.size))
    places = grid()
    departure, predicted = place(row, column)
    mean, variance = posterior(
        prior, row, places.likelihood[row, column], places.first[row, column], places.second[row, column]
    )
    expected = moments(prior, departure, predicted)
    # An interval narrower than a thousandth of the noise is taken as its middle, which moves a moment by 1e-7.
    assert mean == pytest.approx(expected[0], rel=1e-5, abs=1e-6)
    assert variance == pytest.approx(expected[1], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("rows", "columns", "drawn"), [(1000, 300, 40), (50, 25, 25), (20, 3, 7)])
def test_a_cell_of_two_attributes_varies_as_a_sample_without_replacement_does(rows, columns, drawn):
    """Given both margins a cell of independent attributes is hypergeometric; (3) has N where that has N − 1."""
    shares = np.array([columns / rows, 1 - columns / rows]), np.array([drawn / rows, 1 - drawn / rows])
    q = rows * np.multiply.outer(*shares)
    v = np.empty(4)
    sample_variances(q.ravel(), np.array([2, 2]), 2, v, np.empty(4))
    exact = hypergeom(rows, columns, drawn).var() * (rows - 1) / rows
    np.testing.assert_allclose(v, exact, rtol=1e-12)


def test_a_cell_of_one_attribute_varies_as_a_multinomial_does():
    q = np.array([10.0, 30.0, 60.0])
    v = np.empty(3)
    sample_variances(q, np.array([3]), 1, v, np.empty(3))
    np.testing.assert_allclose(v, 100 * (q / 100) * (1 - q / 100), rtol=1e-14)


def test_a_sample_of_three_even_attributes_varies_by_its_degrees_of_freedom():
    """Of equal cells a sample has the share ∏ (n − 1)/n of its variance that no facet knows."""
    q = np.full(24, 5.0)
    v = np.empty(24)
    sample_variances(q, np.array([2, 3, 4]), 3, v, np.empty(24))
    np.testing.assert_allclose(v, 5 * (1 / 2) * (2 / 3) * (3 / 4), rtol=1e-14)


@pytest.mark.parametrize("seed", range(4))
def test_the_mean_is_held_where_that_is_most_likely(seed):
    """Against a general solver: the largest Σ π log π' over the π' that sum to one and have a mean of one."""
    draw = np.random.default_rng(seed)
    means = np.array([0.0, 0.1, 0.5, 1.2, 5.0, 20.0])
    seen = draw.dirichlet(np.full(6, 0.7)) if seed else np.full(6, 1 / 6)
    found = seen.copy()
    hold_mean(means, found)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert found @ means == pytest.approx(1, abs=1e-9)
    solved = minimize(
        lambda log: -seen @ log,
        np.full(6, -2.0),
        jac=lambda _: -seen,
        constraints=[
            {"type": "eq", "fun": lambda log: np.exp(log).sum() - 1, "jac": np.exp},
            {"type": "eq", "fun": lambda log: np.exp(log) @ means - 1, "jac": lambda log: np.exp(log) * means},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    # Its optimum is flat: the likelihood is the thing to compare, and no other is higher.
    assert seen @ np.log(found) == pytest.approx(-solved.fun, abs=1e-6)


@pytest.mark.parametrize("first", [1e-6, 0.01, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("means", [(0.0, 2.0), (0.1, 5.0), (0.5, 1.02), (0.98, 1e6)])
def test_of_two_components_the_mean_alone_says_how_often_each_is(first, means):
    small, large = means
    found = np.array([first, 1 - first])
    hold_mean(np.array(means), found)
    # A share is the difference of two means, of which rounding leaves so much.
    np.testing.assert_allclose(found, np.array([large - 1, 1 - small]) / (large - small), rtol=1e-9)


@pytest.mark.parametrize("absent", [0.0, 3.0, 1e5])
def test_a_component_that_is_absent_changes_nothing(absent):
    """With these shares θ is −1/2, where a component of mean 3 would divide by zero."""
    alone, with_absent = np.array([0.75, 0.25]), np.array([0.75, 0.0, 0.25])
    hold_mean(np.array([0.0, 2.0]), alone)
    hold_mean(np.array([0.0, absent, 2.0]), with_absent)
    np.testing.assert_array_equal(with_absent[[0, 2]], alone)
    assert with_absent[1] == 0.0


def test_a_mean_that_cannot_be_held_is_left():
    means = np.array([0.0, 1.25, 5.0])
    for seen in ([0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]):
        found = np.array(seen)
        hold_mean(means, found)
        np.testing.assert_array_equal(found, seen)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_before_anything_was_seen_tables_are_as_predicted_on_average(order):
    prior = starting_prior(order)
    assert prior.sum() == pytest.approx(1)
    assert prior @ MEANS == pytest.approx(1, rel=1e-6)
    assert (prior >= 0).all()


@pytest.mark.parametrize(("order", "shares"), [(1, 1), (2, 2), (3, 3), (4, 3), (9, 3)])
def test_what_is_usual_is_the_rarer_the_larger_the_multiple(order, shares):
    """By its definition, component by component, and then with a mean of one."""
    point, narrow, wide = departures._USUAL[shares]
    expected = np.array([point, *[narrow / 5] * 5, *(min(1.0, mean**-2) for mean in MEANS[6:-1]), 1.0])
    expected[6:] *= wide / expected[6:].sum()
    assert expected.sum() == pytest.approx(1)
    hold_mean(MEANS, expected)
    np.testing.assert_allclose(starting_prior(order), expected, rtol=1e-9)


def test_the_prior_learned_has_at_least_the_likelihood_of_the_one_that_made_the_cells():
    draw = np.random.default_rng(2)
    made = np.zeros(MEANS.size)
    wide = int(np.searchsorted(departures._EDGES, 4.0)) + 1 + len(departures._NARROW)
    made[[0, 3, wide, -1]] = 0.4, 0.2, 1 / 15, 1 / 3
    assert made @ MEANS == pytest.approx(1)
    component = draw.choice(made.size, 40_000, p=made)
    q = 2.0 ** draw.uniform(0, 6, component.size)
    e = q * (draw.uniform(departures.LOW[component], departures.HIGH[component]) - 1)
    d = e + draw.normal(size=component.size)
    seen = np.zeros(SHAPE)
    rows = (np.arcsinh(d) + departures.REACH) / departures.STEP
    columns = (np.log2(q) - departures.LOWEST) / departures.OCTAVE
    # Of the last class: a cell that may have any multiple.
    np.add.at(seen[-1], (np.rint(rows).astype(int), np.rint(columns).astype(int)), 1)
    found = learned_prior(3, seen)
    score = [float(np.sum(seen[-1] * np.log(np.maximum(grid().binned @ prior, 1e-300)))) for prior in (found, made)]
    # EM has not quite converged after its rounds; a thousandth a cell is allowed.
    assert score[0] > score[1] - 1e-3 * component.size
    assert found[[0, *range(1, 4)]].sum() == pytest.approx(0.6, abs=0.05)
    # Zero and next to zero cannot be told apart through the noise.
    assert found[MEANS < 0.1].sum() == pytest.approx(1 / 3, abs=0.05)


def test_departures_that_nothing_explains_say_nothing():
    """34 deviations below a prediction of nearly nobody: fewer than none."""
    row, column = round((math.asinh(-34) + departures.REACH) / departures.STEP), 0
    assert 0 < grid().binned[row, column].sum() < departures.TINY
    seen = np.zeros(SHAPE)
    before = learned_prior(2, seen)
    seen[:, row, column] = 1_000
    np.testing.assert_array_equal(learned_prior(2, seen), before)


@pytest.mark.parametrize("usual_cells", [0.0, 3.0])
@pytest.mark.parametrize("rounds", [1, 4])
def test_learning_is_the_em_algorithm_where_cells_say_nothing_of_what_they_cannot_have(usual_cells, rounds):
    """Against plain loops: what a cell can have is shared by likelihood, and what it cannot have keeps its share."""
    draw = np.random.default_rng(rounds)
    usual = starting_prior(1)
    kinds = np.array([0, 0, 1, 2, 3, 4, 5, 6, 6])
    rows, counts = draw.random((kinds.size, usual.size)), draw.uniform(1, 30, kinds.size)
    found = usual.copy()
    departures.climb(rows, counts, kinds, MEANS, usual, usual_cells, rounds, found)
    expected = usual.copy()
    for _ in range(rounds):
        priors = np.empty((len(departures.CAPS), usual.size))
        departures.class_priors(MEANS, expected, priors)
        total = usual_cells * usual
        for row, count, kind in zip(rows, counts, kinds, strict=True):
            possible = departures.CAPS[kind] > departures.LOW
            shares = np.where(possible, row * priors[kind], 0.0)
            total += count * expected[possible].sum() * shares / shares.sum()
            total += count * np.where(possible, 0.0, expected)
        expected = total / total.sum()
        hold_mean(MEANS, expected)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-15)


def test_cells_of_which_nothing_was_seen_vary_as_the_prior_does():
    """The mean of (λ − 1)² over each interval by numerical integration, and no more than one."""
    for order, wide in [(1, False), (3, False), (1, True)]:
        prior = starting_prior(order)
        if wide:
            prior[-5] += 0.1
        priors = np.empty((len(departures.CAPS), prior.size))
        departures.class_priors(MEANS, prior, priors)
        squares = [
            (low - 1) ** 2 if low == high else quad(lambda x: (x - 1) ** 2, low, high)[0] / (high - low)
            for low, high in zip(departures.LOW, departures.HIGH, strict=True)
        ]
        expected = np.minimum(priors @ np.array(squares), 1.0)
        np.testing.assert_allclose(departures.unmeasured_spreads(prior), expected, rtol=1e-9)
        assert expected[0] < 1.0


def test_the_evidence_of_a_place_compares_the_prior_of_its_class_with_what_was_predicted():
    prior, draw = starting_prior(2), np.random.default_rng(5)
    priors = np.empty((len(departures.CAPS), prior.size))
    departures.class_priors(MEANS, prior, priors)
    found = departures.evidence_grid(prior)
    assert found.shape == SHAPE
    for kind, row, column in zip(*(draw.integers(0, size, 200) for size in SHAPE), strict=True):
        odds = [
            max(share @ grid().binned[row, column], departures.TINY) for share in (priors[kind], np.eye(MEANS.size)[0])
        ]
        assert found[kind, row, column] == pytest.approx(math.log(odds[0] / odds[1]), abs=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 7])
def test_tables_may_be_as_predicted_where_that_has_a_frequency(order):
    assert departures.may_be_quiet(order) == (departures.quiet_frequency(order, np.zeros(3)) > 0)


@pytest.mark.parametrize("departure", [-700.0, -168.3, -40.0, -5.2, 5.7, 33.0, 900.0])
@pytest.mark.parametrize("predicted", [3.0, 170.0, 5_000.0])
def test_far_from_what_was_predicted_a_cell_has_a_posterior_of_its_own(departure, predicted):
    if departure < -predicted - 6:
        # Nothing of the prior is near: the cell is taken as it was observed, and its count is cut off at zero.
        assert cells.posterior_of(starting_prior(2), departure, predicted)[0] < -predicted + 1
        return
    prior = starting_prior(2)
    mean, variance = cells.posterior_of(prior, departure, predicted)
    expected = moments(prior, departure, predicted)
    # Moments far from zero are differences of large numbers: digits are lost to the square of the departure.
    assert mean == pytest.approx(expected[0], rel=1e-6, abs=1e-6)
    assert variance == pytest.approx(expected[1], rel=1e-3, abs=1e-9 * departure**2 + 1e-6)


@pytest.mark.parametrize("row", [60, 92, 94, 95, 120, 190, 240])
def test_the_likelihood_of_a_bin_is_the_mean_over_the_bin(row):
    """Far out a bin is wider than the noise, and the value in its middle says nothing about the bin."""
    column = 66
    ends = [math.sinh((row + half) * departures.STEP - departures.REACH) for half in (-0.5, 0.5)]
    _, predicted = place(row, column)
    for component in (0, 4, 12, 18, MEANS.size - 1):
        low, high = ((edge[component] - 1) * predicted for edge in (departures.LOW, departures.HIGH))

        def density(x, low=low, high=high):
            if high == low:
                return math.exp(-0.5 * (x - low) ** 2) / math.sqrt(2 * math.pi)
            return (math.erf((x - low) / math.sqrt(2)) - math.erf((x - high) / math.sqrt(2))) / (2 * (high - low))

        points = [x for x in (low, high) if ends[0] < x < ends[1]]
        mean = quad(density, *ends, points=points or None, limit=500, epsabs=1e-13)[0] / (ends[1] - ends[0])
        if mean > 1e-6:
            # Where bins are narrow the middle is taken: within a twentieth of the noise the density bends by 1e-3.
            assert grid().binned[row, column, component] == pytest.approx(mean, rel=2e-3)


def test_no_class_of_cells_has_multiples_that_it_cannot_have_and_all_have_mean_one():
    prior = starting_prior(2)
    priors = np.empty((len(departures.CAPS), prior.size))
    departures.class_priors(MEANS, prior, priors)
    np.testing.assert_allclose(priors.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(priors @ MEANS, 1, rtol=1e-6)
    for own, cap in zip(priors, departures.CAPS, strict=True):
        assert (own[cap <= departures.LOW] == 0).all()
    np.testing.assert_allclose(priors[-1], prior, rtol=1e-9)


@pytest.mark.parametrize(("q", "most", "kind"), [(5.0, 9.0, 0), (5.0, 10.1, 1), (1.0, 30.0, 3), (1.0, 1e9, 6)])
def test_the_class_of_a_cell_follows_from_the_least_sum_it_is_part_of(q, most, kind):
    assert cells.class_of(q, most) == kind


def test_how_often_tables_are_as_predicted_is_the_most_likely_frequency():
    """Against a search over a fine grid of the function itself."""
    evidence = np.random.default_rng(3).normal(-1, 3, 40)
    found = departures.quiet_frequency(2, evidence)
    usual, tables = departures._QUIET[2], departures._QUIET_TABLES
    grid_of = np.linspace(1e-4, 1 - 1e-4, 200_001)
    value = np.log(grid_of[:, None] + (1 - grid_of[:, None]) * np.exp(evidence)).sum(axis=1)
    value += tables * (usual * np.log(grid_of) + (1 - usual) * np.log(1 - grid_of))
    assert found == pytest.approx(grid_of[value.argmax()], abs=1e-5)
    assert departures.quiet_frequency(1, evidence) == 0.0
    assert departures.quiet_frequency(3, np.zeros(7)) == pytest.approx(departures._QUIET[3])
