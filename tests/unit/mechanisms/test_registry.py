"""Mechanisms are chosen by name: one shape, one set of defaults, one line to add another."""

import inspect
import math
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest

import margrave as mg
from margrave.algebra.layout import Layout
from margrave.errors import MeasurementError, PlanError
from margrave.mechanisms import DEFAULT, MECHANISMS, Mechanism, Run, mechanism_class
from margrave.mechanisms.gaussian_marginals import _rounded_up
from margrave.options import OptionKind, options_of

DOMAIN = mg.Domain.fromdict({"age": 3, "sex": 2, "region": 4})
WORKLOAD = mg.Workload.all_kway(DOMAIN, 2)
BUDGET = mg.Budget.zcdp(rho="0.5")
TABLE = mg.CodedTable(DOMAIN, {"age": [0, 1, 2, 2], "sex": [0, 1, 1, 0], "region": [0, 1, 2, 3]})
FUNCTIONS = {
    "planner": mg.residual_planner,
    "adaptive": mg.adaptive_planner,
    "marginals": mg.gaussian_marginals,
    "mwem": mg.scalable_mwem,
}
COMMON = ["source", "workload", "budget", "contributions", "privacy_id", "ledger", "sampler", "keep", "defer_signals"]


def test_the_default_mechanism_is_the_first():
    assert next(iter(MECHANISMS)) == DEFAULT


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_has_one_shape(name):
    """The function's arguments are the common ones and the fields of the class, with the same defaults."""
    chosen, parameters = mechanism_class(name), inspect.signature(FUNCTIONS[name]).parameters
    assert list(parameters)[: len(COMMON)] == COMMON
    assert [one.kind for one in parameters.values()][:3] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 3
    own = {one: parameters[one].default for one in list(parameters)[len(COMMON) :] if one != "progress"}
    # A stated number of rows is there to predict errors with; `adaptive_planner` does not measure otherwise for it.
    beside = {"rows"} if name == "adaptive" else set()
    assert own == {one.name: one.default for one in fields(chosen) if one.name not in beside}
    run = {one.name: one.default for one in fields(Run) if one.name in parameters}
    assert run == {one: parameters[one].default for one in run}


def test_a_plan_needs_no_number_of_rows_and_the_mechanism_measures_it():
    defaults = {inspect.signature(one).parameters["objective"].default for one in (mg.plan, mg.budget_for_margin)}
    assert defaults == {"nonnegative"}
    assert mechanism_class("planner").objective == mg.methods.NonNegative.objective == "counts"


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_says_what_it_is(name):
    chosen = mechanism_class(name)
    assert issubclass(chosen, Mechanism)
    assert (chosen.name, chosen.__doc__ is not None) == (name, True)
    assert chosen.summary
    assert chosen().description().endswith(".")
    noisy = chosen().measure(TABLE, WORKLOAD, BUDGET, contributions=1)
    assert (noisy.provenance.mechanism, noisy.provenance.rho) == (chosen.title, BUDGET.rho)
    assert noisy.provenance.description == chosen().description()


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_numbers_measured_are_no_more_than_announced(name, tmp_path):
    file = tmp_path / "noisy.npz"
    run = Run(keep=lambda noisy: noisy.save(file))
    mechanism_class(name)().measure(TABLE, WORKLOAD, BUDGET, contributions=1, run=run)
    with np.load(file) as saved:
        held = sum(saved[array].size for array in ("values", "averages", "first_values") if array in saved)
    closure = Layout.of(DOMAIN.shape, WORKLOAD.positions).cells
    announced = mechanism_class(name)().cells(WORKLOAD)
    assert 0 < held <= announced == {"planner": closure + 2, "adaptive": 3 * closure}.get(name, 2 * closure)


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_cannot_be_measured_is_refused_before_any_data_is_opened(name):
    with pytest.raises(PlanError, match="contributions is 0; give the most rows that one person has"):
        mechanism_class(name)().prepare(WORKLOAD, BUDGET, contributions=0)


@pytest.mark.parametrize("name", MECHANISMS)
def test_tables_that_cannot_be_measured_exactly_are_refused_before_any_data_is_opened(name):
    """Of residuals: n times the number of rows must fit in 64 bits. Counts themselves always do."""
    workload, chosen = mg.Workload(mg.Domain.fromdict({"a": 2**27}), [("a",)]), mechanism_class(name)()
    if name in ("planner", "adaptive"):
        with pytest.raises(MeasurementError, match="a table of 1 attributes has 134,217,728 cells; at most 67,108,864"):
            chosen.prepare(workload, BUDGET, contributions=1)
    else:
        assert chosen.prepare(workload, BUDGET, contributions=1) == chosen


def test_a_mechanism_with_nothing_more_to_say_has_no_notes():
    assert mechanism_class("marginals")().notes(WORKLOAD, BUDGET, contributions=1) == ()


def test_what_given_variances_cost_is_rounded_up_by_next_to_nothing():
    for rho in (Fraction(1, 3**400), Fraction(2, 7), Fraction(5**300 + 1, 3**10), Fraction(5**300 + 1, 3**600)):
        assert rho <= _rounded_up(rho) <= rho * (1 + Fraction(1, 2**200))
        assert _rounded_up(rho).denominator.bit_length() <= 202 + max(0, math.ceil(-math.log2(rho)))


def test_options_of_one_name_are_of_one_kind():
    """They share one option of the command line and one key of job files."""
    seen = {}
    for name in MECHANISMS:
        for one in options_of(mechanism_class(name)):
            assert seen.setdefault(one.name, one.kind) == one.kind
            assert one.meaning.endswith(".")
    assert seen == {
        "objective": OptionKind.TEXT,
        "total_share": OptionKind.EXACT,
        "rounds": OptionKind.WHOLE,
        "initial_share": OptionKind.EXACT,
        "one_way_share": OptionKind.EXACT,
        "repeat": OptionKind.FLAG,
    }


def test_an_unknown_mechanism_is_named_with_those_there_are():
    with pytest.raises(PlanError, match=r"^no mechanism 'planer'; did you mean 'planner'\? \(there are adaptive, plan"):
        mechanism_class("planer")
    with pytest.raises(PlanError, match=r"^no mechanism 7 \(there are"):
        mechanism_class(7)


def test_a_mechanism_is_added_by_one_line(monkeypatch):
    monkeypatch.setitem(MECHANISMS, "toy", "toy_mechanism.Toy")
    noisy = mechanism_class("toy")(pieces=3).measure(TABLE, WORKLOAD, BUDGET, contributions=1)
    assert (noisy.provenance.mechanism, len(noisy.provenance.steps)) == ("toy mechanism", 3)


def seeded(seed):
    from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler

    return gaussian_sampler(source=InsecureSeededSource(seed))


def test_measure_is_the_short_form_of_the_planner():
    made = mg.plan(WORKLOAD, BUDGET, contributions=2)
    noisy = [
        mg.measure(made, TABLE, sampler=seeded(3)),
        mg.residual_planner(TABLE, plan=made, sampler=seeded(3)),
        mg.residual_planner(TABLE, WORKLOAD, BUDGET, contributions=2, sampler=seeded(3), objective="nonnegative"),
    ]
    first, *others = (mg.reconstruct(one, WORKLOAD, method="mle").marginals for one in noisy)
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_a_plan_and_what_it_was_made_of_may_not_differ():
    made = mg.plan(WORKLOAD, BUDGET, contributions=2)
    others = {"workload": mg.Workload.all_kway(DOMAIN, 1), "budget": mg.Budget.zcdp(rho=1), "contributions": 1}
    for name, other in others.items():
        with pytest.raises(PlanError, match=f"^the plan has another {name}; leave out {name}, or leave out plan"):
            mg.residual_planner(TABLE, plan=made, **{name: other})
    same = mg.residual_planner(TABLE, WORKLOAD, BUDGET, plan=made)
    assert same.provenance.rho == BUDGET.rho
    assert mg.residual_planner(TABLE, plan=made, contributions=2).provenance.contributions == 2
    with pytest.raises(PlanError, match="expected a Workload, got None"):
        mg.residual_planner(TABLE, contributions=1)
    with pytest.raises(PlanError, match="contributions is None"):
        mg.residual_planner(TABLE, WORKLOAD, BUDGET)
    with pytest.raises(PlanError, match="expected a Plan, got None"):
        mg.measure(None, TABLE)


def test_variances_or_a_workload_with_a_budget_and_not_both():
    variances = {("age",): 4}
    for asked in ({"workload": WORKLOAD}, {"budget": BUDGET}):
        with pytest.raises(PlanError, match=r"^variances are given: they say what to measure"):
            mg.gaussian_marginals(TABLE, variances=variances, contributions=1, **asked)
    with pytest.raises(PlanError, match="a workload has its own domain; leave out domain"):
        mg.gaussian_marginals(TABLE, WORKLOAD, BUDGET, contributions=1, domain=DOMAIN)
    with pytest.raises(PlanError, match="expected a Budget, got None"):
        mg.gaussian_marginals(TABLE, WORKLOAD, contributions=1)


def test_the_adaptive_planner_predicts_the_errors_of_its_first_measurement():
    """With a total that is nearly exact, what is measured first is what was predicted for that number of rows."""
    people = np.random.default_rng(2)
    table = mg.CodedTable(DOMAIN, {one.name: people.integers(0, one.size, 2_000) for one in DOMAIN})
    budget = mg.Budget.zcdp(rho=20)
    expected = mechanism_class("adaptive")(rows=2_000).predict(WORKLOAD, budget, contributions=1)
    noisy = mg.adaptive_planner(table, WORKLOAD, budget, contributions=1)
    first = noisy.precisions if noisy.first is None else noisy.first.precisions
    np.testing.assert_allclose(first, expected.precisions, rtol=0.01)
    assert mechanism_class("adaptive")().predict(WORKLOAD, budget, contributions=1) is None


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "marginals"])
def test_a_private_table_in_the_place_of_another_argument_is_not_shown(name):
    """Arguments in the wrong order: the message must not hold what the table holds."""
    table = [("Ann Smith", 4711)]
    for workload, budget in ((table, BUDGET), (WORKLOAD, table)):
        with pytest.raises(PlanError, match=r"expected a (Workload|Budget), got a list") as caught:
            mechanism_class(name)().measure("people.csv", workload, budget, contributions=1)
        assert "Smith" not in str(caught.value)
    with pytest.raises(PlanError) as caught:
        mg.plan(table, BUDGET, contributions=1)
    assert "Smith" not in str(caught.value)
