"""The rule behind weights="auto": what it chooses, that it never fails, and what it brings on generated tables."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import margrave as mg
from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.methods.maximum_likelihood import truncate_and_rescale
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.nonnegative import reconstruct_nonnegative
from margrave.reconstruction.prior import TOLERANCE, automatic
from margrave.reconstruction.prior.levels import Levels
from tests.planner import count_tables, planned_variances, zcdp_of
from tests.strategies import families, seeds


def estimates_of(layout, residuals, variances):
    live = (layout.degrees > 0) & np.isfinite(variances)
    precisions = np.divide(1.0, variances, out=np.zeros(len(variances)), where=live)
    return Estimates(layout, residuals, live.astype(np.int64), precisions)


def solve(estimates, **options):
    choice = automatic(estimates)
    return reconstruct_nonnegative(choice.estimates, weights=choice.weights, hold=choice.hold, **options)


def noisy_tables(layout, truth, epsilon, seed):
    variances = planned_variances(layout, zcdp_of(epsilon))
    noise = np.random.default_rng(seed).normal(size=layout.cells)
    noise *= np.repeat(np.sqrt(variances), np.diff(layout.index.offset))
    return estimates_of(layout, transform.center(layout, truth + noise), variances)


def error(layout, marginals, truth):
    starts = layout.index.offset[layout.outer : -1] - layout.inner_cells
    distances = np.abs(marginals - truth)[layout.inner_cells :]
    return np.add.reduceat(distances, starts).mean() / truth[0]


# ---------------------------------------------------------------------------------------------------------------------
# What is chosen


def test_the_total_is_held_and_residuals_weigh_the_less_the_more_they_are_expected_to_err():
    layout = Layout.of((3, 2, 4), [(0, 1, 2)])
    draw = np.random.default_rng(0)
    residuals = transform.center(layout, draw.normal(20, 5, layout.cells))
    residuals[0] = 480.0
    variances = np.array([25.0, 1.0, 1.0, 1.0, 4.0, 1e9, 1.0, 4.0])
    estimates = estimates_of(layout, residuals, variances)
    choice = automatic(estimates)
    assert choice.hold == (0,)
    assert choice.estimates.values[0] == pytest.approx(480 - 25 / 480)
    levels = Levels(layout, residuals, np.where(layout.index.order, variances, 0.0), choice.estimates.values[0])
    levels.run()
    expected = 2.0 ** -layout.index.order[1:] / np.sqrt(levels.errors[1:] / np.median(levels.errors[1:]))
    # Beside tables of three attributes, those of one count thirty times more.
    expected[layout.index.order[1:] == 1] *= 30
    np.testing.assert_allclose(choice.weights[1:], expected, rtol=1e-12)
    again = automatic(estimates)
    np.testing.assert_array_equal(again.estimates.values, choice.estimates.values)


def test_an_unmeasured_total_is_the_least_that_explains_the_residuals():
    layout = Layout.of((3, 2), [(0, 1)])
    residuals = np.zeros(layout.cells)
    layout.view(residuals, layout.places[(0,)])[...] = [20, -10, -10]
    variances = np.where(layout.index.order == 0, np.inf, 1e-6)
    choice = automatic(estimates_of(layout, residuals, variances))
    assert choice.hold == (0,)
    assert choice.estimates.values[0] == pytest.approx(30)
    nobody = automatic(estimates_of(layout, np.zeros(layout.cells), variances))
    assert nobody.estimates.values[0] == 1.0


def test_what_is_held_on_request_stays_as_it_was_measured():
    layout = Layout.of((3, 4), [(0, 1)])
    draw = np.random.default_rng(3)
    residuals = transform.center(layout, draw.normal(10, 3, layout.cells))
    place = layout.places[(1,)]
    choice = automatic(estimates_of(layout, residuals, np.full(len(layout.sets), 1e4)), hold=[0, place])
    assert choice.hold == (0, place)
    np.testing.assert_array_equal(layout.view(choice.estimates.values, place), layout.view(residuals, place))
    assert choice.estimates.values[0] == residuals[0]
    assert automatic(estimates_of(layout, residuals, np.ones(len(layout.sets))), hold=[]).hold == ()


def test_what_was_never_measured_is_predicted_with_the_weight_asked_for():
    layout = Layout.of((2, 3), [(0, 1)])
    residuals = np.zeros(layout.cells)
    residuals[0] = 60.0
    layout.view(residuals, layout.places[(0,)])[...] = [10, -10]
    layout.view(residuals, layout.places[(1,)])[...] = [10, 0, -10]
    variances = np.where(layout.index.order == 2, np.inf, 1e-12)
    choice = automatic(estimates_of(layout, residuals, variances), eta=0.3)
    assert choice.weights[3] == 0.3
    independent = np.outer([10, -10], [10, 0, -10]) / 60
    np.testing.assert_allclose(layout.view(choice.estimates.values, 3), independent, atol=1e-6)


# ---------------------------------------------------------------------------------------------------------------------
# It never fails


@given(
    families(),
    seeds,
    st.floats(-9, 9),
    st.floats(-9, 9),
    st.sampled_from(["measured", "unmeasured", "other noise", "nothing"]),
    st.sampled_from([-1.0, 0.0, 1e-9, 1.0, 100.0]),
)
@settings(max_examples=150, deadline=None)
def test_any_measurements_give_tables(problem, seed, signal, spread, kind, total):
    """Signals and noise over eighteen powers of ten each, any total, residuals without measurement or variance."""
    layout = Layout.of(*problem)
    draw = np.random.default_rng(seed)
    variances = 10**spread * draw.lognormal(0, 2, len(layout.sets))
    noise = draw.normal(size=layout.cells) * np.repeat(np.sqrt(variances), np.diff(layout.index.offset))
    residuals = transform.center(layout, 10**signal * draw.gamma(0.1, 1, layout.cells) + noise)
    residuals[0] = total * 10**signal
    counts = (layout.degrees > 0).astype(np.int64)
    precisions = np.where(counts > 0, 1 / variances, 0.0)
    some = draw.random(len(layout.sets)) < 0.5
    if kind == "other noise":
        precisions[some & (counts > 0)] = np.nan
    elif kind != "measured":
        gone = some if kind == "unmeasured" else np.ones(len(layout.sets), dtype=bool)
        counts[gone], precisions[gone] = 0, 0.0
        residuals[np.repeat(gone, np.diff(layout.index.offset))] = 0.0
    solution = solve(Estimates(layout, residuals, counts, precisions), max_steps=300)
    marginals = solution.marginals
    assert np.isfinite(marginals).all()
    assert (marginals >= 0).all()
    consistent = transform.reconstruct(layout, transform.decompose(layout, marginals))
    # Tables of few people from large residuals: rounding is relative to what was added up.
    np.testing.assert_allclose(marginals, consistent, atol=1e-12 * max(marginals.max(), np.abs(residuals).max()))


def test_laplace_noise_gives_tables_of_the_measured_total():
    domain = mg.Domain.fromdict({"a": 3, "b": 4})
    draw = np.random.default_rng(2)
    sets = [((), 40.0), (("a",), draw.normal(0, 4, 2)), (("b",), draw.normal(0, 4, 3))]
    noisy = mg.Measurements.from_residuals(domain, [(names, z, mg.Laplace(2.0)) for names, z in sets])
    release = mg.reconstruct(noisy, mg.Workload(domain, [("a", "b")]))
    assert release.table().values == pytest.approx(40)
    assert (release.table("a", "b").values >= 0).all()


def test_a_negative_total_gives_tables_through_the_public_verb():
    domain = mg.Domain.fromdict({"a": 3, "b": 4})
    noisy = mg.Measurements.from_marginals(domain, [(("a", "b"), -np.arange(12.0).reshape(3, 4), 4.0)])
    release = mg.reconstruct(noisy, mg.Workload(domain, [("a", "b")]))
    # Twelve cells of variance 4: the total has standard deviation √48, a tenth of which is held.
    assert release.table().values == pytest.approx(0.1 * 48**0.5)


# ---------------------------------------------------------------------------------------------------------------------
# What it brings


def town(rows, seed):
    """Rows with skew, dependence, and pairs that never occur: codes of six attributes."""
    draw = np.random.default_rng(seed)
    age = np.minimum(draw.geometric(0.1, rows) - 1, 19)
    work = np.clip(age // 3 + draw.integers(0, 2, rows), 0, 6)
    fare = np.minimum((draw.lognormal(0, 1, rows) * (1 + work)).astype(int), 14)
    region = np.minimum(draw.zipf(1.8, rows) - 1, 11)
    return [age, work, fare, region, (fare > 5).astype(int), draw.integers(0, 3, rows)]


@pytest.mark.parametrize(("epsilon", "low", "high"), [(0.31, 0.53, 0.68), (1.0, 0.5, 0.64), (10.0, 0.84, 0.93)])
def test_the_error_is_below_that_of_the_published_weights_and_of_truncation(epsilon, low, high):
    """20,000 made-up rows, four draws of the noise; two sets of four draws gave ratios that differ by up to 0.016."""
    layout = Layout.of((20, 7, 15, 12, 2, 3), list(combinations(range(6), 3)))
    truth = count_tables(layout, town(20_000, 4))
    ours, paper, rescaled = [], [], []
    for seed in range(4):
        estimates = noisy_tables(layout, truth, epsilon, seed)
        ours.append(error(layout, solve(estimates, max_steps=400).marginals, truth))
        paper.append(error(layout, reconstruct_nonnegative(estimates, max_steps=400).marginals, truth))
        linear = transform.reconstruct(layout, np.array(estimates.values))
        rescaled.append(error(layout, truncate_and_rescale(layout, linear), truth))
    assert low <= np.mean(ours) / np.mean(paper) <= high
    assert np.mean(ours) < 0.7 * np.mean(rescaled)


@pytest.mark.parametrize("epsilon", [0.31, 10.0])
def test_a_stricter_solve_than_by_default_changes_the_error_by_next_to_nothing(epsilon):
    layout = Layout.of((20, 7, 15, 12, 2, 3), list(combinations(range(6), 3)))
    truth = count_tables(layout, town(20_000, 4))
    estimates = noisy_tables(layout, truth, epsilon, 0)
    by_default = solve(estimates, tolerance=TOLERANCE)
    strict = solve(estimates, tolerance=1e-6)
    assert by_default.steps < strict.steps
    assert error(layout, by_default.marginals, truth) == pytest.approx(error(layout, strict.marginals, truth), rel=2e-3)
