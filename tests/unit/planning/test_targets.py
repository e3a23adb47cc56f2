"""Precision where it is wanted: weights, graded orders, and margins of error that must be met."""

import numpy as np
import pytest

import margrave as mg
from margrave.errors import PlanError
from margrave.planning.plans import least_budget, plan_for_targets

DOMAIN = mg.Domain.fromdict({"age": 6, "sex": 2, "region": 9, "work": 5, "income": 2})
KWAY = mg.Workload.all_kway(DOMAIN, 3)
BUDGET = mg.Budget.approx(epsilon=1, delta=1e-9)


def planned(workload, budget=BUDGET, **options):
    return mg.plan(workload, budget, contributions=1, **options)


def test_a_weight_makes_its_table_better_and_the_others_worse():
    before, after = planned(KWAY), planned(KWAY.weighted({("income",): 20, ("age", "sex"): 5}))
    for names in (("income",), ("age", "sex")):
        assert after.standard_error(*names) < 0.9 * before.standard_error(*names)
    assert after.standard_error("region", "work", "age") > before.standard_error("region", "work", "age")


def test_a_weighted_table_is_in_the_workload_and_others_keep_their_weights():
    weighted = KWAY.weighted({("income",): 20, ("sex", "age", "work"): 3})
    assert ("income",) in weighted
    assert len(weighted) == len(KWAY) + 1
    weights = dict(zip(weighted.sets, weighted.weights.tolist(), strict=True))
    assert (weights.pop(("income",)), weights.pop(("age", "sex", "work"))) == (20, 3)
    assert set(weights.values()) == {1.0}


@pytest.mark.parametrize("weights", [{("income",): 0}, {("income",): float("inf")}, [1, 2]])
def test_weights_that_mean_nothing_are_refused(weights):
    with pytest.raises(PlanError, match="weight"):
        KWAY.weighted(weights)


def test_an_attribute_fewer_counts_four_times():
    graded = mg.Workload.up_to(DOMAIN, 3).weighted({("age",): 2}).graded()
    weights = dict(zip(graded.sets, graded.weights.tolist(), strict=True))
    assert [weights[names] for names in ((), ("age",), ("sex",), ("age", "sex"), ("age", "sex", "work"))] == [
        *(64, 32, 16, 4, 1)
    ]


def test_small_tables_that_are_asked_for_are_better_than_those_that_are_not():
    alone, together = planned(KWAY), planned(mg.Workload.up_to(DOMAIN, 3).graded())
    for names in ((), ("age",), ("sex",), ("region",)):
        assert together.standard_error(*names) < alone.standard_error(*names)


@pytest.mark.parametrize("objective", ["nonnegative", "total_variance", "table_variance", "max_variance"])
@pytest.mark.parametrize("targets", [{("age", "sex"): 60}, {(): 12, ("income",): 30}, {("age", "sex", "work"): 100}])
def test_targets_are_met_within_the_budget(objective, targets):
    made = plan_for_targets(KWAY, BUDGET, targets, contributions=1, objective=objective)
    assert made.budget == BUDGET
    for names, margin in targets.items():
        assert made.margin_of_error(*names) <= margin
    assert set(KWAY.sets) <= set(made.workload.sets)


def test_targets_that_hold_anyway_change_nothing():
    made = plan_for_targets(KWAY, BUDGET, {("age", "sex", "work"): 1_000}, contributions=1)
    assert np.array_equal(made.integer_variances, planned(KWAY).integer_variances)


def test_the_least_budget_is_just_enough_and_a_little_less_is_not():
    targets = {("age", "sex"): 20.0, ("income",): 5.0}
    needed = least_budget(KWAY, targets, contributions=2)
    weights = [1 / margin**2 for margin in targets.values()]
    alone = mg.Workload(DOMAIN, list(targets), weights=weights)

    def worst(budget):
        made = mg.plan(alone, budget, contributions=2, objective="max_variance")
        return max(made.margin_of_error(*names) / margin for names, margin in targets.items())

    # The noise is rounded by 2⁻²⁰ and the least budget by 10⁻⁵; a standard error goes with the root of ρ.
    assert 1 - 1e-4 <= worst(needed) <= 1
    assert worst(mg.Budget.zcdp(rho=needed.rho * 99 / 100)) > 1


def test_no_plan_does_better_than_the_least_budget():
    needed = least_budget(KWAY, {("age",): 5.0, ("work", "sex"): 9.0}, contributions=1)
    almost = mg.Budget.zcdp(rho=needed.rho * 9 / 10)
    random = np.random.default_rng(5)
    closure = [("age",), ("work", "sex"), ("work",), ("sex",), ()]
    for _ in range(200):
        workload = mg.Workload(DOMAIN, closure, weights=np.exp(random.normal(0, 4, 5)))
        made = planned(workload, almost, objective="total_variance")
        assert made.margin_of_error("age") > 5 or made.margin_of_error("work", "sex") > 9


def test_what_no_budget_gives_is_refused_with_what_it_takes():
    with pytest.raises(PlanError, match=r"± 2 on age × sex: no plan within .* these tables alone need ρ ≈ 0\.\d+"):
        plan_for_targets(KWAY, BUDGET, {("age", "sex"): 2}, contributions=1)


@pytest.mark.parametrize("margin", [0, -1, float("nan"), float("inf"), "5", True])
def test_margins_that_mean_nothing_are_refused(margin):
    with pytest.raises(PlanError, match=r"a target is .*; give a positive number of rows"):
        plan_for_targets(KWAY, BUDGET, {("age",): margin}, contributions=1)
