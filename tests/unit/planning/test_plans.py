"""Plans: what they hold and what they refuse (the mathematics is in tests/laws/test_planning.py)."""

import math
import re
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest

from margrave.domain import Domain
from margrave.errors import DomainError, MeasurementError, PlanError
from margrave.planning import Plan, budget_for_margin, plan
from margrave.planning.plans import LARGEST_NOISE, SMALLEST_NOISE
from margrave.privacy import noise
from margrave.privacy.budget import Budget
from margrave.workload import Workload

DOMAIN = Domain.fromdict({"age": 5, "sex": 2, "one": 1, "region": 3})
WORKLOAD = Workload(DOMAIN, [("age", "sex"), ("sex", "one"), ("region",)])
BUDGET = Budget.zcdp(rho="0.1")
PLAN = plan(WORKLOAD, BUDGET, contributions=2)


def refused(text, **changed):
    asked = {"workload": WORKLOAD, "budget": BUDGET, "contributions": 1} | changed
    with pytest.raises(PlanError, match=re.escape(text)):
        plan(asked.pop("workload"), asked.pop("budget"), **asked)


def test_a_plan_says_what_it_was_made_of():
    assert (PLAN.workload, PLAN.budget, PLAN.contributions) == (WORKLOAD, BUDGET, 2)
    assert (PLAN.objective, PLAN.gap) == ("nonnegative", 0.0)
    assert PLAN.rho == Fraction(1, 10)
    assert len(PLAN.variances) == len(PLAN.layout.sets) == len(PLAN.cell_variances)


def test_a_plan_shows_itself_in_a_line():
    shown = f"Plan({WORKLOAD!r}, {BUDGET!r}, contributions=2, objective='nonnegative')"
    assert repr(PLAN) == shown


def test_a_plan_and_its_arrays_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        PLAN.contributions = 1
    for array in (PLAN.integer_variances, PLAN.variances, PLAN.cell_variances, PLAN.measured):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_plan_keeps_no_hand_on_the_array_it_was_made_of():
    given = PLAN.integer_variances.copy()
    made = replace(PLAN, integer_variances=given)
    given[:] = 0
    assert made.integer_variances.tolist() == PLAN.integer_variances.tolist()


def test_noise_that_costs_more_than_the_budget_makes_no_plan():
    text = f"the noise of this plan costs more than its budget, {BUDGET}; make plans with plan()"
    missing = PLAN.integer_variances.copy()
    missing[PLAN.layout.places[(0,)]] = 0.0
    for changed in (
        {"integer_variances": PLAN.integer_variances * (1 - 1e-4)},
        {"integer_variances": missing},
        {"integer_variances": PLAN.integer_variances * math.nan},
        {"contributions": 3},
    ):
        with pytest.raises(PlanError, match=re.escape(text)):
            replace(PLAN, **changed)
    with pytest.raises(PlanError, match="costs more than its budget"):
        replace(PLAN, budget=Budget.zcdp(rho="0.0999"))


def test_noise_for_another_closure_makes_no_plan():
    with pytest.raises(MeasurementError, match="one number per table has shape"):
        replace(PLAN, integer_variances=np.ones(2))


def test_a_residual_that_is_identically_zero_has_no_noise_to_ask_for():
    place = PLAN.layout.places[(1, 2)]
    assert PLAN.cost(place) == 0
    assert place not in PLAN.measured
    text = "residual sex × one has an attribute of one value and is identically zero; it is not measured: use plan.me"
    with pytest.raises(PlanError, match=re.escape(text)):
        PLAN.noise(place)


@pytest.mark.parametrize("number", [-1, 7])
def test_residuals_are_known_by_their_number(number):
    for ask in (PLAN.noise, PLAN.cost):
        with pytest.raises(PlanError, match=f"no residual {number} in the plan; they are numbered from 0 to 6"):
            ask(number)


def test_errors_are_predicted_for_every_table_inside_the_workload():
    assert PLAN.standard_error("sex", "age") == PLAN.standard_error("age", "sex") == PLAN.predictions()[1]
    assert PLAN.margin_of_error("age") == pytest.approx(1.959964 * PLAN.standard_error("age"), rel=1e-6)
    assert PLAN.margin_of_error(level=0.5) == pytest.approx(0.6744898 * PLAN.standard_error(), rel=1e-6)
    assert PLAN.predictions().shape == (3,)


def test_a_table_outside_the_workload_is_refused():
    text = "the table age × region is in no table of the workload (Workload(3 tables of 1 to 2 attributes, 15 cells)); "
    with pytest.raises(PlanError, match=re.escape(text + "plan for a workload that has it")):
        PLAN.standard_error("region", "age")
    with pytest.raises(DomainError, match="no attribute 'agee' in the domain; did you mean 'age'"):
        PLAN.standard_error("agee")


def test_the_least_level_has_a_margin_as_narrow_as_that():
    """P(|Z| ≤ z) is about 2z φ(0) for a small z."""
    margin = PLAN.margin_of_error(level=1e-9)
    assert margin == pytest.approx(1e-9 * math.sqrt(math.pi / 2) * PLAN.standard_error(), rel=1e-3)


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, math.nan, True, "0.95", None])
def test_a_level_is_between_zero_and_one(level):
    text = f"level is {level!r}; give a number between 0 and 1, such as 0.95"
    with pytest.raises(PlanError, match=re.escape(text)):
        PLAN.margin_of_error("age", level=level)
    with pytest.raises(PlanError, match=re.escape(text)):
        budget_for_margin(WORKLOAD, attributes=["age"], margin=1, contributions=1, level=level)


def test_contributions_must_be_given():
    with pytest.raises(TypeError, match="contributions"):
        plan(WORKLOAD, BUDGET)
    with pytest.raises(TypeError, match="contributions"):
        budget_for_margin(WORKLOAD, attributes=["age"], margin=1)


@pytest.mark.parametrize("contributions", [0, -1, 1.0, 1.5, True, "1", None])
def test_contributions_are_a_whole_number_of_rows(contributions):
    text = f"contributions is {contributions!r}; give the most rows that one person has, a whole number of at least 1"
    refused(text, contributions=contributions)


def test_requests_that_mean_nothing_are_refused():
    refused("expected a Workload, got a list; make one, as in Workload.all_kway(domain, 3)", workload=[("age",)])
    refused("expected a Budget, got a float; make one, as in Budget.zcdp(rho=0.1)", budget=0.1)
    refused("no objective 'max_varience'; did you mean 'max_variance'? (there are total", objective="max_varience")
    refused(
        "no objective None (there are total_variance, table_variance, max_variance, nonnegative, counts)",
        objective=None,
    )
    for tolerance in (0, 1, -1e-4, math.nan, True, "1e-4"):
        text = f"tolerance is {tolerance!r}; give a number between 0 and 1, such as 0.0001"
        refused(text, tolerance=tolerance)


def test_a_plan_for_counts_needs_a_number_of_rows_and_keeps_it():
    text = (
        "objective 'counts' plans for a number of rows, and rows is not given; give rows=…, a public number, or measure"
    )
    refused(text, objective="counts")
    for rows in (0, 0.5, -3, math.nan, math.inf, 1e13, True, "many"):
        refused(f"rows is {rows!r}; give a number from 1 to 1e+12", objective="counts", rows=rows)
    refused("rows is given, and the objective 'nonnegative' does not use it; leave out rows", rows=10)
    made = plan(WORKLOAD, BUDGET, contributions=2, objective="counts", rows=1_000)
    assert (made.objective, made.rows, PLAN.rows) == ("counts", 1_000.0, None)
    assert repr(made).endswith("contributions=2, objective='counts', rows=1,000)")
    assert "(errors are those of the unbiased tables)" in str(made.summary())


def test_no_least_budget_for_a_margin_of_counts():
    with pytest.raises(PlanError, match="objective 'counts' has no least budget for a margin: it divides every budget"):
        budget_for_margin(WORKLOAD, attributes=["age"], margin=5, contributions=1, objective="counts")


def test_weights_that_differ_too_much_are_refused():
    workload = Workload(DOMAIN, [("age",), ("sex",)], weights=[1e-20, 1e11])
    refused(
        "the largest weight is 1e+31 times the smallest; keep them within a factor of 1e+30, or leave out the tables "
        "that hardly matter",
        workload=workload,
    )


def test_noise_that_cannot_be_drawn_is_refused():
    refused(
        "on its integers, which must be at most 1.0e+30: raise the budget, or ask for smaller tables",
        budget=Budget.zcdp(rho="1e-40"),
    )
    refused("would get noise of variance ", contributions=10**400)
    refused(
        "residual total would get noise of variance 2.8e-41 on its integers, which must be at least 1.0e-30: lower the",
        budget=Budget.zcdp(rho=10**41),
        objective="total_variance",
    )


def test_what_a_plan_allows_the_samplers_can_draw():
    assert noise.SMALLEST_VARIANCE <= SMALLEST_NOISE < LARGEST_NOISE <= noise.LARGEST_VARIANCE


def test_noise_of_any_size_that_can_be_drawn_is_planned():
    for rho in ("1e-25", "1e25"):
        made = plan(WORKLOAD, Budget.zcdp(rho=rho), contributions=1)
        spent = sum(made.cost(t) for t in made.measured.tolist())
        assert made.rho * (1 - Fraction(1, 2**18)) <= spent <= made.rho


@pytest.mark.parametrize("margin", [0, -1, math.inf, math.nan, True, "3", None])
def test_a_margin_is_a_positive_number(margin):
    with pytest.raises(PlanError, match=re.escape(f"margin is {margin!r}; give a positive number of rows")):
        budget_for_margin(WORKLOAD, attributes=["age"], margin=margin, contributions=1)


def test_a_margin_that_no_budget_can_buy_is_refused():
    text = r"a margin of 1e-70 on age needs rho = \d\.\de\+14\d, and no budget is that large; ask for a margin that ma"
    with pytest.raises(PlanError, match=text):
        budget_for_margin(WORKLOAD, attributes=["age"], margin=1e-70, contributions=1)
    with pytest.raises(PlanError, match=r"on total needs rho = \d\.\de-\d+, and no budget is that small"):
        budget_for_margin(WORKLOAD, attributes=[], margin=10**90, contributions=1)


def test_a_margin_is_for_a_table_of_the_workload():
    with pytest.raises(PlanError, match="the table age × region is in no table of the workload"):
        budget_for_margin(WORKLOAD, attributes=["age", "region"], margin=1, contributions=1)
    with pytest.raises(PlanError, match="contributions is 0"):
        budget_for_margin(WORKLOAD, attributes=["age"], margin=1, contributions=0)


def test_the_budget_for_a_margin_is_a_short_fraction():
    budget = budget_for_margin(WORKLOAD, attributes=["age"], margin=np.float32(7), contributions=np.int64(2))
    assert budget.rho.numerator.bit_length() <= 31
    assert isinstance(plan(WORKLOAD, budget, contributions=2), Plan)


def test_a_plan_that_promises_more_than_it_keeps_cannot_be_made_by_hand():
    import dataclasses

    domain = Domain.fromdict({"a": 3, "b": 2})
    made = plan(Workload.all_kway(domain, 2), Budget.zcdp(rho=1), contributions=1)
    for contributions in (0, -1, 0.001, True):
        with pytest.raises(PlanError, match="contributions is"):
            dataclasses.replace(made, contributions=contributions)
    with pytest.raises(PlanError, match="costs more than its budget"):
        dataclasses.replace(made, integer_variances=made.integer_variances * 0.5)
    larger = Workload.all_kway(Domain.fromdict({"a": 3, "b": 50}), 2)
    with pytest.raises(PlanError, match="the layout of this plan is not that of its workload"):
        dataclasses.replace(made, workload=larger)


def test_a_table_that_names_an_attribute_twice_is_refused():
    text = re.escape("the table age × age names an attribute twice; name each once")
    with pytest.raises(PlanError, match=text):
        PLAN.standard_error("age", "age")
    with pytest.raises(PlanError, match=text):
        PLAN.margin_of_error("age", "age")
    with pytest.raises(PlanError, match=text):
        budget_for_margin(WORKLOAD, attributes=("age", "age"), margin=10, contributions=1)
    given = (name for name in ("sex", "age"))
    assert budget_for_margin(WORKLOAD, attributes=given, margin=10, contributions=1).rho > 0
    with pytest.raises(DomainError, match=re.escape("attributes are a list of names, got 'age'; write ('age',)")):
        budget_for_margin(WORKLOAD, attributes="age", margin=10, contributions=1)
