"""The sensitivity of every draw, replayed: neighbours move no input further than what is charged for it.

For a thousand random pairs of neighbours (one person with 1 … c rows more, or fewer) each mechanism runs on both with
the same outputs (`replay`). Then

- at every draw, ‖x − x′‖² / 2g² is at most what is charged for that draw, and at every choice (ε max|s − s′|/Δ)²/8;
- what is charged for all of them adds up to the budget.

All numbers are exact fractions: there is no tolerance and no chance in these tests, but for the pairs themselves. That
the check can fail is shown by planted faults, each caught within the same pairs.

Mechanisms that plan in stages, each from the noisy values before it, go the same way on both tables only if they decide
by nothing else: their records, with what each stage cost, must be equal.
"""

import importlib.util
import inspect
import sys
from fractions import Fraction
from math import prod

import numpy as np
import pytest
from replay import Choice, replay

from margrave import CodedTable, boundary
from margrave.domain import Domain
from margrave.errors import MeasurementError
from margrave.mechanisms import adaptive_planner as adaptive_module
from margrave.mechanisms import gaussian_marginals as marginals_module
from margrave.mechanisms import residual_planner as planner_module
from margrave.mechanisms import scalable_mwem as mwem_module
from margrave.mechanisms import spending as spending_module
from margrave.planning import stages
from margrave.planning.plans import plan
from margrave.privacy.budget import Budget
from margrave.workload import Workload

PAIRS = 1_000
# Stages are planned anew in every run, which takes longer than to draw them.
STAGED_PAIRS = 60


class UnpaidError(AssertionError):
    """A draw that is not paid for."""


def neighbours(generator):
    """A small random domain, a table of a few rows, its neighbour, and c."""
    sizes = generator.integers(1, 5, size=generator.integers(2, 5))
    domain = Domain.fromdict({f"a{k}": int(size) for k, size in enumerate(sizes)})
    contributions, rows = int(generator.integers(1, 4)), int(generator.integers(0, 30))
    codes = np.array([generator.integers(0, size, rows + contributions) for size in sizes])
    extra = int(generator.integers(1, contributions + 1))
    if generator.random() < 0.5:  # all rows of the person in one cell: the largest distance there is
        codes[:, rows:] = codes[:, rows : rows + 1]
    tables = [
        CodedTable(domain, dict(zip(domain.attributes, codes[:, :end], strict=True))) for end in (rows, rows + extra)
    ]
    return domain, tables if generator.random() < 0.5 else tables[::-1], contributions


def some_workload(generator, domain):
    order = int(generator.integers(1, len(domain) + 1))
    if generator.random() < 0.5:
        return Workload.up_to(domain, order)
    sets = [names for names in Workload.up_to(domain, order) if names and generator.random() < 0.5]
    return Workload(domain, sets or [domain.attributes[:1]])


def by_plan(generator, domain, contributions, module):
    budget = Budget.zcdp(rho=Fraction(int(generator.integers(1, 50)), 10))
    objective = ["total_variance", "max_variance", "nonnegative"][int(generator.integers(3))]
    made = plan(some_workload(generator, domain), budget, contributions=contributions, objective=objective)

    return (
        (lambda table, sampler: module.measure(made, table, sampler=sampler)),
        by_variance(contributions),
        budget.rho,
    )


def by_variance(contributions):
    def charges(recording, record):
        """By the place of a table: c² ∏ n(n − 1) / 2g²."""
        for key, draw in recording.draws.items():
            moved = prod(size * (size - 1) for size in draw.given.shape)
            yield key, Fraction(contributions**2 * moved) / (2 * draw.variance)

    return charges


def by_stages(function):
    """A mechanism that measures the total first: every draw is charged by its noise, and the stages by the record."""

    def mechanism(generator, domain, contributions, module):
        workload = some_workload(generator, domain)
        budget = Budget.zcdp(rho=Fraction(int(generator.integers(1, 50)), 10))
        share = [Fraction(1, 50), Fraction(1, 2)][int(generator.integers(2))]

        def run(table, sampler):
            asked = {"contributions": contributions, "total_share": share, "sampler": sampler}
            return getattr(module, function)(table, workload, budget, **asked)

        def charges(recording, record):
            found = list(by_variance(contributions)(recording, record))
            if sum((charge for _, charge in found), Fraction(0)) > sum(step.rho for step in record.steps):
                raise UnpaidError("the record says less than what was drawn costs")
            yield from found

        return run, charges, budget.rho

    return mechanism


def by_marginals(generator, domain, contributions, module):
    names = list(some_workload(generator, domain))
    variances = {one: Fraction(int(generator.integers(1, 1000)), 7) for one in names}
    rho = sum(Fraction(contributions**2) / (2 * variance) for variance in variances.values())

    def run(table, sampler):
        return module.gaussian_marginals(table, variances=variances, contributions=contributions, sampler=sampler)

    return run, in_order, rho


def by_rounds(generator, domain, contributions, module):
    workload, budget = some_workload(generator, domain), Budget.zcdp(rho=Fraction(int(generator.integers(1, 50)), 10))
    rounds, share = int(generator.integers(1, 4)), [0, Fraction(1, 4)][int(generator.integers(2))]

    def run(table, sampler):
        module.select = sampler.select
        return module.scalable_mwem(
            table, workload, budget, contributions=contributions, rounds=rounds, one_way_share=share, sampler=sampler
        )

    return run, in_order, budget.rho


def in_order(recording, record):
    """What the record says that each step cost: steps, draws and choices are in one order."""
    choices, draws = iter(range(len(recording.choices))), iter(sorted(recording.draws))
    for step in record.steps:
        yield ("choice", next(choices)) if step.purpose.startswith("choice") else next(draws), step.rho
    assert next(choices, None) is None, "a choice is in no record"
    if next(draws, None) is not None:
        raise UnpaidError("a draw is in no record")


def event(recording, key):
    return recording.choices[key[1]] if key[0] == "choice" else recording.draws[key]


def check_pair(mechanism, module, seed):
    """Raise `UnpaidError` if a draw of one random pair of neighbours is not paid for."""
    generator = np.random.default_rng([20_261_116, seed])
    domain, (one, other), contributions = neighbours(generator)
    run, charges, budget = mechanism(generator, domain, contributions, module)
    first, second, record = replay(run, one, other, seed)
    total = Fraction(0)
    for key, charge in charges(first, record):
        loss = event(first, key).loss(event(second, key))
        if loss > charge:
            raise UnpaidError(f"{key}: a loss of {float(loss):.4g} is charged as {float(charge):.4g}")
        total += charge
    if total > budget:
        raise UnpaidError(f"charges of {float(total):.6g} in a budget of {float(budget):.6g}")
    # Noise is rounded up by at most 2⁻²⁰ of its variance; no more of the budget than that is left lying.
    if first.draws:
        assert total >= budget * (1 - Fraction(1, 2**18))
    assert record.rho == budget
    return first


MECHANISMS = {
    "plan": (by_plan, planner_module),
    "marginals": (by_marginals, marginals_module),
    "rounds": (by_rounds, mwem_module),
}


STAGED = {
    "after the total": (by_stages("residual_planner"), planner_module),
    "adaptive": (by_stages("adaptive_planner"), adaptive_module),
}


@pytest.fixture(autouse=True)
def _own_select():
    original = mwem_module.select
    yield
    mwem_module.select = original


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_draw_of_a_thousand_pairs_of_neighbours_moves_further_than_what_is_charged(name):
    mechanism, module = MECHANISMS[name]
    draws = [check_pair(mechanism, module, seed) for seed in range(PAIRS)]
    # The pairs do something: most have several draws, and choices where there are any.
    assert sum(len(recording.draws) for recording in draws) > 2 * PAIRS
    assert sum(len(recording.choices) for recording in draws) > (PAIRS if name == "rounds" else -1)


@pytest.mark.parametrize("name", STAGED)
def test_no_draw_of_a_stage_moves_further_than_what_is_charged(name):
    mechanism, module = STAGED[name]
    draws = [check_pair(mechanism, module, seed) for seed in range(STAGED_PAIRS)]
    # Most have several stages: samplers are spawned for each.
    spawns = [{key[1] for key in recording.draws} for recording in draws]
    assert sum(len(one) for one in spawns) > 2 * STAGED_PAIRS - 10


@pytest.mark.parametrize("name", STAGED)
def test_a_stage_that_is_planned_by_the_true_counts_is_caught(name, monkeypatch):
    """The number of rows as it is, not as it was measured: the costs of stages then differ between neighbours."""
    counted = []
    measure = boundary.StagedResiduals.measure

    def peeking(self, noise, purpose):
        counted[:] = [float(self._counts[0])]
        measure(self, noise, purpose)

    monkeypatch.setattr(boundary.StagedResiduals, "measure", peeking)
    monkeypatch.setattr(stages, "likely_rows", lambda noisy: max(counted[0], 1.0))
    mechanism, module = STAGED[name]
    noticed = 0
    for seed in range(10):
        try:
            check_pair(mechanism, module, seed)
        except (AssertionError, KeyError):  # a stage that one of the neighbours does not have is noticed, too
            noticed += 1
    assert noticed > 5


@pytest.mark.parametrize("name", STAGED)
def test_stages_that_forget_c_or_that_are_drawn_twice_are_caught(name, monkeypatch):
    mechanism, module = STAGED[name]
    with monkeypatch.context() as patched:
        cost = boundary.exact_cost
        patched.setattr(boundary, "exact_cost", lambda shape, noise, contributions: cost(shape, noise, 1))
        patched.setattr(spending_module, "checked_contributions", lambda given: 1)
        assert caught(mechanism, module)
    with monkeypatch.context() as patched:
        once = boundary.measure_residuals

        def twice(layout, counts, noise, sampler):
            return (once(layout, counts, noise, sampler) + once(layout, counts, noise, sampler)) / 2

        patched.setattr(boundary, "measure_residuals", twice)
        assert caught(mechanism, module)


def planted(module, tmp_path, before, after):
    """The module with a fault in its text."""
    text = inspect.getsource(module)
    assert text.count(before) == 1, f"{module.__name__} no longer reads {before!r}: plant the fault where it is now"
    file = tmp_path / f"planted_{module.__name__.rpartition('.')[2]}.py"
    file.write_text(text.replace(before, after), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


def caught(mechanism, module, pairs=60):
    """Whether one of the first pairs shows the fault."""
    for seed in range(pairs):
        try:
            check_pair(mechanism, module, seed)
        except (UnpaidError, MeasurementError):  # the record itself refuses steps that cost more than the budget
            return True
    return False


def test_a_lost_c_is_caught(tmp_path):
    before, after = "rows, share = checked_contributions(contributions),", "rows, share = 1,"
    assert caught(by_rounds, planted(mwem_module, tmp_path, before, after))
    before, after = "rows = checked_contributions(contributions)", "rows = 1"
    assert caught(by_marginals, planted(marginals_module, tmp_path, before, after))


def test_a_halved_scale_is_caught(monkeypatch):
    drawn = boundary._drawn
    monkeypatch.setattr(boundary, "_drawn", lambda sampler, variance, count: drawn(sampler, variance / 4, count))
    for mechanism, module in MECHANISMS.values():
        assert caught(mechanism, module)


def test_a_table_that_is_measured_twice_is_caught(monkeypatch, tmp_path):
    def twice(layout, counts, noise, sampler):
        first = boundary.measure_residuals(layout, counts, noise, sampler)
        return (first + boundary.measure_residuals(layout, counts, noise, sampler)) / 2

    with monkeypatch.context() as patched:
        patched.setattr(planner_module, "measure_residuals", twice)
        assert caught(by_plan, planner_module)
    line = "        noisy = measure_marginal(exact, variance, sampler).astype(np.float64)\n"
    assert caught(by_rounds, planted(mwem_module, tmp_path, line, line + line))


def test_a_wrong_one_way_share_is_caught(tmp_path):
    before, after = "single_variance = rows**2 * len(single) /", "single_variance = rows**2 /"
    assert caught(by_rounds, planted(mwem_module, tmp_path, before, after))


def test_a_selection_with_half_its_sensitivity_is_caught(tmp_path):
    before, after = "sensitivity=rows * _UNITS", "sensitivity=rows * _UNITS // 2"
    assert caught(by_rounds, planted(mwem_module, tmp_path, before, after))


def test_a_choice_costs_in_proportion_to_how_far_scores_move():
    one, other = Choice([5, 1], Fraction(2), Fraction(4), 0), Choice([3, 2], Fraction(2), Fraction(4), 0)
    assert one.loss(other) == Fraction(1, 8)
