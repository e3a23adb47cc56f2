"""Mechanisms in stages: charged whole before the first draw, kept stage by stage, decided by noise alone."""

from fractions import Fraction

import numpy as np
import pytest

import margrave as mg
from margrave import boundary
from margrave.errors import BudgetRefusedError, MeasurementError, PlanError
from margrave.mechanisms.adaptive_planner import AdaptivePlanner
from margrave.mechanisms.residual_planner import ResidualPlanner
from margrave.planning import stages
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler

DOMAIN = mg.Domain.fromdict({"a": 3, "b": 2, "c": 4, "one": 1})
WORKLOAD = mg.Workload.all_kway(DOMAIN, 3)
BUDGET = mg.Budget.zcdp(rho=Fraction(1, 3))
PEOPLE = np.random.default_rng(5)
TABLE = mg.CodedTable(DOMAIN, {one.name: PEOPLE.integers(0, one.size, 400) for one in DOMAIN})
BOTH = pytest.mark.parametrize("function", [mg.residual_planner, mg.adaptive_planner])


def seeded(seed):
    return gaussian_sampler(source=InsecureSeededSource(seed))


def run(function, **options):
    return function(TABLE, WORKLOAD, BUDGET, contributions=1, sampler=seeded(4), **options)


@BOTH
def test_all_of_the_budget_is_spent_and_the_record_says_on_what(function):
    noisy = run(function)
    record = noisy.provenance
    assert record.steps[0].purpose == "total"
    assert record.steps[0].rho == pytest.approx(float(BUDGET.rho) / 50, rel=1e-5)
    spent = sum(step.rho for step in record.steps)
    assert BUDGET.rho * (1 - Fraction(1, 2**18)) <= spent <= record.rho == BUDGET.rho
    # Every residual is measured first with noise that depends on the total alone: estimates have exact error bars.
    assert not record.adaptive
    assert len(record.steps) == (4 if function is mg.adaptive_planner else 2)
    assert "planned for" in record.description


@BOTH
def test_every_residual_that_can_be_measured_is(function):
    noisy = run(function)
    measured = noisy.counts > 0
    assert (measured == (noisy.layout.degrees > 0)).all()
    release = mg.reconstruct(noisy, WORKLOAD)
    assert (release.marginals >= 0).all()
    table = release.table("a", "b", "c")
    assert np.isfinite(table.estimate).all()
    assert table.std_error > 0


@BOTH
def test_the_charge_comes_first_and_is_whole(function, tmp_path, monkeypatch):
    ledger = mg.Ledger(tmp_path / "people.ledger", cap=BUDGET)
    spent = []
    measure = boundary.StagedResiduals.measure

    def watched(self, noise, purpose):
        spent.append(ledger.spent)
        measure(self, noise, purpose)

    monkeypatch.setattr(boundary.StagedResiduals, "measure", watched)
    noisy = run(function, ledger=ledger)
    assert spent == [BUDGET.rho] * len(noisy.provenance.steps)
    assert noisy.provenance.ledger_entry == 1
    with pytest.raises(BudgetRefusedError, match="nothing was read or charged"):
        run(function, ledger=ledger)


@BOTH
def test_stages_that_were_finished_are_kept_as_measurements(function, tmp_path):
    """A run that breaks off in its last stage has kept all stages before it, and is charged in full."""
    kept = []

    class BrokenError(Exception):
        pass

    def keep(noisy):
        kept.append(noisy)
        if len(kept) == 2 and function is mg.adaptive_planner:
            raise BrokenError

    ledger = mg.Ledger(tmp_path / "people.ledger", cap=BUDGET)
    if function is mg.adaptive_planner:
        with pytest.raises(BrokenError):
            run(function, keep=keep, ledger=ledger)
    else:
        run(function, keep=keep, ledger=ledger)
    assert ledger.spent == BUDGET.rho
    first = kept[0]
    assert first.sets == ((),)
    expected = "after the total" if function is mg.residual_planner else "after 1 of 4 stages"
    assert (first.provenance.cut_short, first.provenance.rho) == (expected, BUDGET.rho)
    assert sum(step.rho for step in first.provenance.steps) < BUDGET.rho
    first.save(tmp_path / "kept.npz")
    loaded = mg.Measurements.load(tmp_path / "kept.npz")
    assert (mg.reconstruct(loaded, WORKLOAD).marginals >= 0).all()
    if function is mg.residual_planner:
        assert kept[1].provenance.cut_short is None
    else:
        assert kept[1].provenance.cut_short == "after 2 of 4 stages"
        assert (kept[1].counts[kept[1].layout.degrees > 0] >= 1).all()


def test_progress_is_told_after_every_stage():
    told = []
    run(mg.adaptive_planner, progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_decisions_see_measurements_and_public_numbers_alone(monkeypatch):
    seen = []
    planned = stages.learned_curves
    monkeypatch.setattr(stages, "learned_curves", lambda *given: seen.append(given) or planned(*given))
    run(mg.adaptive_planner)
    assert len(seen) == 2
    for layout, noisy in seen:
        assert type(noisy) is mg.Measurements
        # What they are given has nothing of the true counts: residuals of whole numbers are multiples of 1/n.
        assert noisy.layout is layout


@BOTH
@pytest.mark.parametrize("rho", [1e-12, 1e-3, 1e4])
@pytest.mark.parametrize("rows", [0, 1, 5_000])
def test_no_table_and_no_budget_is_too_small(function, rho, rows):
    table = mg.CodedTable(DOMAIN, {one.name: np.arange(rows) % one.size for one in DOMAIN})
    budget = mg.Budget.zcdp(rho=rho)
    noisy = function(table, WORKLOAD, budget, contributions=3, sampler=seeded(rows))
    assert sum(step.rho for step in noisy.provenance.steps) >= budget.rho * (1 - Fraction(1, 2**17))
    if rho == 1e4:
        np.testing.assert_allclose(mg.reconstruct(noisy, WORKLOAD, method="mle").table("a").values.sum(), rows, atol=1)


@BOTH
def test_the_workload_of_the_total_alone(function):
    noisy = function(TABLE, mg.Workload(DOMAIN, [()]), BUDGET, contributions=1, sampler=seeded(1))
    assert noisy.count() == (4 if function is mg.adaptive_planner else 2)
    # The first measurement alone is the estimate, with what a fiftieth of the budget pays for.
    release = mg.reconstruct(noisy, mg.Workload(DOMAIN, [()]), method="mle")
    if function is mg.residual_planner:
        assert float(release.table().std_error) == pytest.approx(np.sqrt(50 * 3 / 2), rel=1e-4)


@BOTH
@pytest.mark.parametrize("share", [0, 1, -1, Fraction(2, 3), "0.51"])
def test_a_share_of_the_total_that_leaves_too_little_is_refused(function, share):
    with pytest.raises(PlanError, match=r"total_share is .*; give a number above 0, at most one half"):
        run(function, total_share=share)


def test_a_share_for_the_total_is_for_plans_that_wait_for_it():
    text = "total_share is given, and the total is not measured first; leave it out, or leave out rows, plan and every"
    for options in ({"rows": 100}, {"objective": "nonnegative"}):
        with pytest.raises(PlanError, match=text):
            run(mg.residual_planner, total_share="0.1", **options)


def test_noise_that_could_not_be_drawn_later_is_refused_before_the_charge(tmp_path):
    ledger = mg.Ledger(tmp_path / "people.ledger", cap=mg.Budget.zcdp(rho=1))
    for function in (mg.residual_planner, mg.adaptive_planner):
        with pytest.raises(PlanError, match="would get noise of variance"):
            function(TABLE, WORKLOAD, mg.Budget.zcdp(rho="1e-40"), contributions=1, ledger=ledger)
    # Here the first stages could be drawn, and measuring a residual again may ask for up to eight times the noise.
    with pytest.raises(MeasurementError, match="is not representable: the variance must be from"):
        mg.adaptive_planner(TABLE, WORKLOAD, mg.Budget.zcdp(rho=Fraction(1, 2**80)), contributions=1, ledger=ledger)
    assert not (tmp_path / "people.ledger").exists()


def test_weights_that_cannot_be_told_apart_are_refused_by_every_mechanism():
    workload = mg.Workload(DOMAIN, [("a", "b"), ("c",)], weights=[1e-20, 1e20])
    for function in (mg.residual_planner, mg.adaptive_planner):
        with pytest.raises(PlanError, match=r"the largest weight is 1e\+40 times the smallest"):
            function(TABLE, workload, BUDGET, contributions=1)


def test_what_is_announced_before_the_data_is_opened():
    told = {ResidualPlanner(): "Errors depend on it: give --rows", AdaptivePlanner(): "Give --rows"}
    for mechanism, beginning in told.items():
        assert mechanism.predict(WORKLOAD, BUDGET, contributions=1) is None
        first, second = mechanism.notes(WORKLOAD, BUDGET, contributions=1)
        assert "standard error of 8.66" in first
        assert second.startswith(beginning)
        assert mechanism.prepare(WORKLOAD, BUDGET, contributions=1) == mechanism
    assert ResidualPlanner(rows=400).notes(WORKLOAD, BUDGET, contributions=1) == ()
    assert ResidualPlanner(rows=400).predict(WORKLOAD, BUDGET, contributions=1).rows == 400
