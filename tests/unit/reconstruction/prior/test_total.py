"""The total from a noisy one: shrunk by its noise, or the mean of what is positive; above zero in any case."""

import math

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.prior import automatic, likely_total, shrunk_total


def table_of(layout, marginals, *members):
    return layout.view(marginals, layout.places[members])


def total_only(value, precision, count=1):
    layout = Layout.of((2,), [(0,)])
    return Estimates(layout, np.array([value, 0.0, 0.0]), np.array([count, 0]), np.array([precision, 0.0]))


@pytest.mark.parametrize(("value", "precision"), [(100.0, 1.0), (5.0, 0.04), (0.0, 1.0), (-3.0, 1.0), (-9.8, 1.0)])
def test_the_total_is_the_mean_of_what_is_positive(value, precision):
    deviation = precision**-0.5
    # The oracle: the mean over a fine grid of positive numbers, within 40 deviations of the most likely one.
    grid = np.linspace(0.0, max(value, 0.0) + 40 * deviation, 2_000_001)
    exponent = -0.5 * ((grid - value) / deviation) ** 2
    density = np.exp(exponent - exponent.max())
    # The grid's step is 40/2e6 deviations or a bit more; the narrowest density, at −9.8, is a tenth of one wide.
    assert likely_total(total_only(value, precision)) == pytest.approx((grid * density).sum() / density.sum(), rel=2e-3)


def test_a_total_of_noise_without_a_variance_is_taken_as_it_is_if_it_is_positive():
    assert likely_total(total_only(7.0, np.nan)) == 7.0
    assert likely_total(total_only(-7.0, np.nan)) == 1.0


def test_a_total_far_below_zero_still_gives_some_people():
    for value in (-10.0, -11.0, -1e9, -1e300):
        assert likely_total(total_only(value, 1.0)) == pytest.approx(0.1, rel=0.01)


def test_a_total_that_was_never_measured_is_the_least_that_explains_each_residual():
    layout = Layout.of((2, 3), [(0, 1)])
    values = np.zeros(layout.cells)
    table_of(layout, values, 0)[...] = [4.0, -4.0]
    table_of(layout, values, 1)[...] = [2.0, -3.0, 1.0]
    estimates = Estimates(layout, values, np.array([0, 1, 1, 0]), np.array([0.0, 1.0, 1.0, 0.0]))
    assert likely_total(estimates) == 9.0  # 3 × 3, above 4 × 2
    assert likely_total(total_only(0.0, 0.0, count=0)) == 1.0


@pytest.mark.parametrize(
    ("total", "precision", "held"),
    [(5.0, 0.0, None), (5.0, np.nan, 5.0), (-5.0, np.nan, None), (0.0, np.nan, None), (-5.0, 0.01, 1.0)],
)
def test_a_total_without_a_variance_is_taken_as_it_is_or_left_to_the_pilot(total, precision, held):
    assert shrunk_total(total_only(total, precision, count=int(precision != 0))) == held


def test_the_total_moves_by_less_than_its_standard_deviation():
    for deviation in (0.5, 3.0, 1e4):
        for quotient in np.linspace(1.001, 50, 200):
            total = quotient * deviation
            found = shrunk_total(total_only(total, deviation**-2))
            assert found == pytest.approx(max(total - deviation**2 / total, deviation / 10), rel=1e-12)
            assert total - deviation < found <= total
            assert found >= 0.1 * deviation * (1 - 1e-12)


def test_the_held_total_rises_with_the_measured_one_and_is_always_positive():
    found = [shrunk_total(total_only(total, 0.25)) for total in np.linspace(-100, 100, 401)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(0.2)
    assert math.isclose(found[-1], 100 - 4 / 100)


@pytest.mark.parametrize(("hold", "total"), [(None, 99.99), ((0,), 100.0), ((), 100.0), ((1,), 100.0)])
def test_the_total_is_shrunk_unless_the_caller_says_what_is_held(hold, total):
    layout = Layout.of((2,), [(0,)])
    estimates = Estimates(layout, np.array([100.0, 3.0, -3.0]), np.array([1, 1]), np.array([1.0, 1.0]))
    choice = automatic(estimates, hold=hold)
    assert choice.estimates.values[0] == pytest.approx(total, rel=1e-12)
    assert choice.hold == ((0,) if hold is None else hold)
