"""Gaussian marginals of a workload: the best division of the budget, its exact cost, and the errors to expect."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

from margrave import CodedTable
from margrave.domain import Domain
from margrave.mechanisms.gaussian_marginals import GaussianMarginals, divide_budget, gaussian_marginals, marginal_cost
from margrave.privacy.budget import Budget
from margrave.release.publication import reconstruct
from margrave.workload import Workload

DOMAIN = Domain.fromdict({"age": 3, "sex": 2, "region": 4, "one": 1})
SETS = [("age", "sex"), ("sex", "region"), ("age",), ("region", "one"), ()]


def weighted(weights):
    return Workload(DOMAIN, SETS, weights=weights)


@pytest.mark.parametrize("weights", [None, [1, 4, 0.25, 9, 2], [1e-9, 1, 1e9, 3, 7]])
@pytest.mark.parametrize("contributions", [1, 3])
def test_costs_add_up_to_the_budget_exactly(weights, contributions):
    budget = Budget.approx(epsilon=1.3, delta=1e-9)
    found = divide_budget(weighted(weights), budget, contributions)
    assert sum(marginal_cost(variance, contributions) for _, variance in found) == budget.rho


def test_equal_weights_give_equal_noise_and_four_times_the_weight_half_the_variance():
    budget = Budget.zcdp(rho="0.5")
    assert {variance for _, variance in divide_budget(weighted(None), budget, 2)} == {Fraction(4 * len(SETS))}
    workload = weighted([4, 1, 1, 1, 1])
    found = dict(divide_budget(workload, budget, 1))
    assert found["age",] == 2 * found["age", "sex"]


def test_no_other_division_has_less_weighted_variance():
    """Against a general solver on (1), from a start far away; SLSQP stops within 1e-9 of the objective."""
    weights, rho, rows = [1.0, 4.0, 0.25, 9.0, 2.0], 0.7, 2
    workload = weighted(weights)
    variances = [float(variance) for _, variance in divide_budget(workload, Budget.zcdp(rho=rho), rows)]
    own = float(np.dot(workload.weights, variances))
    limit = {"type": "ineq", "fun": lambda logs: rho - np.sum(rows**2 / (2 * np.exp(logs)))}
    solved = minimize(
        lambda logs: np.dot(workload.weights, np.exp(logs)),
        np.full(len(weights), 4.0),
        constraints=[limit],
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert solved.success
    # The objective is flat at its minimum: variances agree to the square root of its accuracy.
    np.testing.assert_allclose(own, solved.fun, rtol=1e-7)
    np.testing.assert_allclose(variances, np.exp(solved.x), rtol=1e-3)


@pytest.mark.parametrize("rho", ["0.5", "40"])
@pytest.mark.parametrize("weights", [None, [1, 4, 0.25, 9, 2]])
def test_predicted_errors_are_those_of_the_release(weights, rho):
    """At ρ = 40 the parameters are near 0.2, where discrete noise varies much less than its parameter says."""
    workload, budget = weighted(weights), Budget.zcdp(rho=rho)
    expected = GaussianMarginals().predict(workload, budget, contributions=2)
    table = CodedTable(DOMAIN, {"age": [0, 1], "sex": [0, 1], "region": [0, 3], "one": [0, 0]})
    noisy = gaussian_marginals(table, workload, budget, contributions=2)
    release = reconstruct(noisy, workload, method="mle")
    for names, predicted in zip(workload, expected.predictions(), strict=True):
        np.testing.assert_allclose(predicted, release.table(*names).std_error, rtol=1e-9)
        assert expected.standard_error(*names) == pytest.approx(predicted)
    spent = dict.fromkeys((row.order for row in expected.summary().rows), 0.0)
    for names, step in zip(workload, noisy.provenance.steps, strict=True):
        spent[len(names)] += float(step.rho / noisy.provenance.rho)
    assert [row.share for row in expected.summary().rows] == pytest.approx(list(spent.values()), rel=1e-9)
    assert "objective" not in str(expected.summary())
