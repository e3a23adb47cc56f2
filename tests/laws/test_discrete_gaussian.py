"""Variance and reach of discrete Gaussian noise against sums in 50 digits, and through the public verbs."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from discrete_sums import outside, slow_variance
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import erf, erfc

import margrave as mg
from margrave.discrete_gaussian import exact_variance, reach
from margrave.mechanisms.gaussian_marginals import gaussian_marginals
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler

parameters = st.floats(-3, 3).map(lambda exponent: 10**exponent)
levels = st.one_of(st.floats(0.001, 0.999), st.floats(3, 12).map(lambda digits: 1 - 10**-digits))


@given(parameters)
@example(1 / (2 * math.pi))
@example(np.nextafter(1 / (2 * math.pi), 0))
@example(1 / 1400)
@example(2.3)
@example(2.5)
@settings(deadline=None)
def test_the_variance_is_that_of_the_sum_to_fourteen_digits(parameter):
    assert float(exact_variance(parameter)) == pytest.approx(slow_variance(parameter), rel=1e-14)


def test_large_noise_has_its_parameter_for_variance_and_no_noise_none():
    large = np.array([2.4, 10.0, 12345.678, 1e30])
    assert np.array_equal(exact_variance(large), large)
    assert exact_variance([0.0, 1e-30, 1e-300]).tolist() == [0.0, 0.0, 0.0]
    assert exact_variance(np.full((2, 3), 0.5)).shape == (2, 3)


@given(parameters, levels)
@example(0.25, 0.95)
@example(1e-3, 0.999999)
@example(4096.0, 0.95)
@example(900.0, 0.3)
@settings(deadline=None)
def test_the_reach_is_the_smallest_that_covers_the_level(parameter, level):
    """By sums in 50 digits; a reach one less covers less than the level, but for a tie within 1e-11 of 1 − level."""
    allowed, found = 1 - Decimal(level), reach(parameter, level)
    assert outside(parameter, found) <= allowed
    assert found == 0 or outside(parameter, found - 1) > allowed * Decimal("0.99999999999")


@given(st.floats(0.3, 4096), st.floats(0.3, 3))
@settings(deadline=None)
def test_a_reach_that_covers_a_hair_less_than_the_level_is_not_enough(parameter, deviations):
    """The next number above what a reach covers, as levels are numbers of 53 bits, needs a reach of one more."""
    count = int(deviations * math.sqrt(parameter))
    covered = 1 - outside(parameter, count)
    level = float(covered)
    while Decimal(level) <= covered:
        level = math.nextafter(level, 1)
    assert reach(parameter, level) == count + 1


@given(st.floats(0.3, 4096), st.integers(0, 300))
@settings(deadline=None)
def test_whole_numbers_reach_no_further_than_rounded_normal_ones(parameter, count):
    """Equation (3) of the module, which takes the place of the sum where g² is large; 1e-13 for erf and division."""
    scaled = (count + 0.5) / math.sqrt(2 * parameter)
    covered = 1 - float(outside(parameter, count))
    theta = 1 + 2 * math.exp(-2 * math.pi**2 * parameter) + 2 * math.exp(-8 * math.pi**2 * parameter)
    if count + 0.5 >= math.sqrt(parameter):
        assert float(outside(parameter, count)) <= erfc(scaled) * (1 + 1e-13)
    else:
        assert covered >= erf(scaled) / theta * (1 - 1e-13)


@given(st.floats(4097, 1e5), levels)
@settings(deadline=None)
def test_the_reach_of_large_noise_covers_the_level_and_is_at_most_one_too_far(parameter, level):
    allowed, found = 1 - level, reach(parameter, level)
    points = np.arange(math.ceil(40 * math.sqrt(parameter)), found, -1.0)
    z = math.sqrt(2 * math.pi * parameter)
    tail = 2 * math.fsum(np.exp(-(points**2) / (2 * parameter))) / z
    assert tail <= allowed * (1 + 1e-12)
    for nearer in range(max(found - 1, 0), found):
        tail += 2 * math.exp(-(nearer**2) / (2 * parameter)) / z
    assert found <= 1 or tail + 2 * math.exp(-((found - 2) ** 2) / (2 * parameter)) / z > allowed


def test_reach_has_the_numbers_of_the_normal_distribution_at_any_size():
    assert reach(1e30, 0.95) == pytest.approx(1.959963984540054e15, rel=1e-11)
    assert reach(1e-30, 1 - 2**-53) == 0


DOMAIN = mg.Domain.fromdict({"a": 3, "b": 2})


def counted(rows=60):
    from margrave import CodedTable

    return CodedTable(DOMAIN, {"a": np.arange(rows) % 3, "b": np.arange(rows) % 2})


def seeded(seed=1):
    return gaussian_sampler(source=InsecureSeededSource(seed))


# Budgets from hardly any noise to plenty: g² of the total runs from 0.1 to 40.
RHOS = [Fraction(1, 2), Fraction(2), Fraction(16), Fraction(64)]


@pytest.mark.parametrize("rho", RHOS)
def test_plans_and_releases_state_the_same_exact_standard_errors(rho, tmp_path):
    """Var of a cell = Σ p_τ n_τ² V_τ/(n_τ² n_γ²), with V_τ the variance of the discrete noise by sums in 50 digits."""
    workload = mg.Workload(DOMAIN, [("a", "b")])
    made = mg.plan(workload, mg.Budget.zcdp(rho=rho), contributions=1)
    noisy = mg.measure(made, counted(), sampler=seeded())
    noisy.save(tmp_path / "noisy.npz")
    for measured in (noisy, mg.Measurements.load(tmp_path / "noisy.npz")):
        release = mg.reconstruct(measured, workload, method="mle")
        for names in ((), ("a",), ("b",), ("a", "b")):
            sizes = [DOMAIN[name].size for name in names]
            variance = 0.0
            for mask in range(2 ** len(names)):
                inside = [name for k, name in enumerate(names) if mask >> k & 1]
                place = made.layout.places[DOMAIN.positions(inside)]
                degrees = math.prod((DOMAIN[name].size - 1) / DOMAIN[name].size for name in inside)
                variance += degrees * slow_variance(made.integer_variances[place]) / math.prod(sizes) ** 2
            assert made.standard_error(*names) == pytest.approx(math.sqrt(variance), rel=1e-12)
            assert release.table(*names).std_error == pytest.approx(math.sqrt(variance), rel=1e-12)


def test_standard_errors_from_overlapping_discrete_tables_are_exact():
    """The estimate of the total from two tables with weights 1/(n g²): its variance by hand, saved and loaded."""
    noise = {("a",): 0.09, ("b",): 0.25}
    noisy = gaussian_marginals(counted(), variances=noise, contributions=1, sampler=seeded())
    weights = [1 / (3 * 0.09), 1 / (2 * 0.25)]
    spread = [3 * slow_variance(0.09), 2 * slow_variance(0.25)]
    expected = sum(w**2 * v for w, v in zip(weights, spread, strict=True)) / sum(weights) ** 2
    total = mg.reconstruct(noisy, mg.Workload(DOMAIN, [("a",), ("b",)]), method="mle").table()
    assert total.variance == pytest.approx(expected, rel=1e-12)
    assert total.direct is None
    # A narrower workload keeps the numbers.
    assert mg.reconstruct(noisy, mg.Workload(DOMAIN, [("a",)]), method="mle").table().variance == total.variance


def test_predicted_variance_of_small_noise_is_that_of_repeated_draws():
    """20,000 draws of noise with g² = 1/4. The mean square has standard deviation √((E ξ⁴ − V²)/n) = 0.0030.

    False alarms: 1e-6, at 4.9 deviations. A variance of g² instead of 0.2150 is 11.7 deviations away: it is caught with
    probability above 1 − 1e-10.
    """
    noise = seeded(5).draw(Fraction(1, 4), 20_000).astype(float)
    variance, deviation = float(exact_variance(0.25)), 0.0030
    assert abs(np.mean(noise**2) - variance) < 4.9 * deviation
    assert abs(np.mean(noise**2) - 0.25) > 4.9 * deviation
