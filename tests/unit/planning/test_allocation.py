"""Allocation: edges of the two solvers (their optimality is in tests/laws/test_planning.py)."""

import re

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.errors import ConvergenceError, PlanError
from margrave.planning.allocation import (
    allocate,
    closure_importance,
    max_variance,
    optimal_variances,
    total_variance,
)
from margrave.workload import Workload

LAYOUT = Layout.of((3, 5, 2), [(0, 1), (1, 2)])
WEIGHTS = np.array([float(members in {(0, 1), (1, 2), ()}) for members in LAYOUT.sets])


def test_a_residual_that_costs_nothing_gets_no_variance():
    assert optimal_variances(np.array([1.0, 0.0]), np.array([4.0, 0.0]), 0.5).tolist() == [1.0, 0.0]


def test_variances_are_inversely_proportional_to_the_budget():
    for solve in (total_variance, max_variance):
        one, ten = (solve(LAYOUT, WEIGHTS, rho=rho).variances for rho in (1.0, 10.0))
        np.testing.assert_allclose(one, 10 * ten, rtol=1e-12)


def test_the_closed_form_has_no_gap_and_no_steps():
    solved = total_variance(LAYOUT, WEIGHTS)
    assert (solved.gap, solved.steps) == (0.0, 0)


def test_a_smaller_tolerance_takes_more_steps():
    loose, tight = (max_variance(LAYOUT, WEIGHTS, tolerance=tolerance) for tolerance in (1e-2, 1e-10))
    assert 0 < loose.steps < tight.steps < 100
    assert tight.gap <= 1e-10 < loose.gap <= 1e-2


def test_a_gap_that_is_not_reached_is_an_error_with_a_remedy():
    text = r"the largest variance is within \S+ of the least possible after 1 steps, not within 1e-12; "
    with pytest.raises(ConvergenceError, match=text + re.escape("allow a larger tolerance, or minimise 'total_var")):
        max_variance(LAYOUT, WEIGHTS, tolerance=1e-12, max_steps=1)


def test_objectives_differ_by_the_importance_of_a_table():
    workload = Workload(Domain.fromdict({"a": 3, "b": 5, "c": 2}), [("a", "b"), ("b", "c")], weights=[2, 6])
    weights = np.zeros(len(LAYOUT.sets))
    weights[LAYOUT.places[(0, 1)]], weights[LAYOUT.places[(1, 2)]] = 2, 6
    cells = np.array([np.prod(LAYOUT.shape(t), dtype=float) for t in range(len(LAYOUT.sets))])
    for objective, expected in (
        ("total_variance", total_variance(LAYOUT, weights * cells)),
        ("table_variance", total_variance(LAYOUT, weights)),
        ("max_variance", max_variance(LAYOUT, weights)),
        ("nonnegative", total_variance(LAYOUT, closure_importance(LAYOUT, weights))),
    ):
        found = allocate(workload, LAYOUT, objective).variances
        np.testing.assert_allclose(found, expected.variances, rtol=1e-12)


def test_a_table_inside_the_workload_has_the_largest_weight_of_the_tables_around_it():
    weights = np.zeros(len(LAYOUT.sets))
    weights[LAYOUT.places[(0, 1)]], weights[LAYOUT.places[(1, 2)]] = 2, 6
    found = closure_importance(LAYOUT, weights)
    expected = {(): 6, (0,): 2 * 3**0.5 / 2, (1,): 6 * 5**0.5 / 2, (2,): 6 * 2**0.5 / 2}
    expected |= {(0, 1): 2 * 15**0.5 / 4, (1, 2): 6 * 10**0.5 / 4}
    for members, importance in expected.items():
        assert found[LAYOUT.places[members]] == pytest.approx(importance, rel=1e-12)


def test_counts_are_not_planned_for_an_unknown_number_of_rows():
    workload = Workload(Domain.fromdict({"a": 3}), [("a",)])
    layout = Layout.of(workload.domain.shape, workload.positions)
    with pytest.raises(PlanError, match=r"^objective 'counts' plans for a number of rows, and rows is not given"):
        allocate(workload, layout, objective="counts", rho=1.0)


def test_a_first_point_that_is_good_enough_takes_no_step():
    assert max_variance(LAYOUT, WEIGHTS, tolerance=100.0, max_steps=0).steps == 0
