"""Costs and their bound: single numbers (the laws are in tests/laws/test_planning.py)."""

import math
from fractions import Fraction

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.errors import MeasurementError
from margrave.planning.coefficients import (
    cell_counts,
    cell_variances,
    cost_bound,
    cost_coefficients,
    exact_cost,
    squared_sensitivity,
    unit_costs,
    variance_coefficients,
)

LAYOUT = Layout.of((4, 1, 3), [(0, 2), (1,)])


def by_set(values):
    return dict(zip(LAYOUT.sets, values.tolist(), strict=True))


def test_the_total_has_sensitivity_one_and_an_attribute_of_one_value_none():
    assert squared_sensitivity(()) == 1
    assert squared_sensitivity((4, 1)) == 0
    assert exact_cost((), Fraction(2), 3) == Fraction(9, 4)
    assert exact_cost((4, 1), Fraction(2), 3) == 0


def test_exact_numbers_do_not_overflow():
    sizes = (10**6,) * 9
    assert exact_cost(sizes, Fraction(1, 3), 10**20) == Fraction(3 * 10**40 * (10**6 * (10**6 - 1)) ** 9, 2)


def test_cost_coefficients_are_shares_of_freedom():
    assert by_set(cost_coefficients(LAYOUT)) == pytest.approx({(): 1, (0,): 3 / 4, (1,): 0, (2,): 2 / 3, (0, 2): 1 / 2})
    assert by_set(cell_counts(LAYOUT)) == {(): 1, (0,): 4, (1,): 1, (2,): 3, (0, 2): 12}


def test_a_closure_of_the_total_alone():
    layout = Layout.of((3,), [()])
    assert cost_coefficients(layout).tolist() == [1.0]
    assert cell_variances(layout, np.array([7.0])).tolist() == [7.0]
    assert variance_coefficients(layout, np.array([7.0])).tolist() == [7.0]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_missing_noise_costs_infinitely_much(bad):
    noise = np.ones(len(LAYOUT.sets))
    noise[LAYOUT.places[(0,)]] = bad
    assert by_set(unit_costs(LAYOUT, noise))[(0,)] == math.inf
    assert cost_bound(LAYOUT, noise) == math.inf


def test_noise_where_nothing_is_measured_is_ignored():
    noise = np.ones(len(LAYOUT.sets))
    full = cost_bound(LAYOUT, noise)
    noise[LAYOUT.places[(1,)]] = 0.0
    assert cost_bound(LAYOUT, noise) == full
    # ½ (1 + 12 + 6 + 72) = 45.5, and a little more
    assert 45.5 < full < 45.5 * (1 + 2**-39)


def test_variances_of_another_closure_are_refused():
    with pytest.raises(MeasurementError, match=r"one number per table has shape \(5,\), this array has \(2,\)"):
        cell_variances(LAYOUT, np.ones(2))
