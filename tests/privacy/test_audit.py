"""A black-box audit: tell two neighbouring tables apart by what the mechanisms return, and hold that against the claim.

An (ε, δ) mechanism bounds every test between neighbours: with false and true positive rates f and t,

    t ≤ e^ε f + δ      and, for the opposite answer,      1 − f ≤ e^ε (1 − t) + δ.                               (1)

So rates that were *seen* bound ε from below. Half of the runs choose the test (a direction and a threshold), the other
half count its errors; Clopper–Pearson intervals of 1 − α/4 each, four of them in (1), make a lower bound of ε that is
wrong with probability at most α = 10⁻³ for a mechanism that keeps its promise. Seeds are fixed, so there is no flake.

Runs are made by the ten thousand in one call, of parts of the output that are independent mechanisms of their own: the
residuals of as many attributes that all hold the same values, or the blocks of a table with one neighbour in each.

Power. A Gaussian at ρ = 1/2 separates neighbours by one standard deviation. Its exact ε at δ = 0.01 is 2.3, of which
the audit sees 1.5 to 1.8; the claim, by the conversion from zCDP, is 2.75. With a quarter of the variance it is two
standard deviations, of which the audit sees more than 4: far beyond the claim.
"""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from boundary import CountsSource, WrongSampler
from scipy.stats import beta

from margrave import CodedTable
from margrave.algebra.layout import Layout
from margrave.boundary import StagedResiduals
from margrave.domain import Domain
from margrave.mechanisms import scalable_mwem as mwem
from margrave.mechanisms.gaussian_marginals import gaussian_marginals
from margrave.mechanisms.residual_planner import measure
from margrave.planning.plans import plan
from margrave.privacy.budget import Budget, PrivacyFilter
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler
from margrave.privacy.selection import select, selection_cost, selection_epsilon
from margrave.release.publication import reconstruct
from margrave.workload import Workload

DELTA, ALPHA = 0.01, 1e-3
RHO = Fraction(1, 2)
RUNS = 20_000


def upper_rate(hits, runs):
    return 1.0 if hits == runs else float(beta.ppf(1 - ALPHA / 4, hits + 1, runs - hits))


def lower_rate(hits, runs):
    return 0.0 if hits == 0 else float(beta.ppf(ALPHA / 4, hits, runs - hits + 1))


def epsilon_bound(false_positives, true_positives, runs, delta=DELTA):
    """The lower bound of ε by (1)."""
    bounds = [0.0]
    for above, below in [
        (lower_rate(true_positives, runs), upper_rate(false_positives, runs)),
        (lower_rate(runs - false_positives, runs), upper_rate(runs - true_positives, runs)),
    ]:
        if above > delta:
            bounds.append(float(np.log((above - delta) / below)))
    return max(bounds)


def audited_epsilon(without, with_person):
    """The lower bound of ε from runs on two neighbouring tables, shape (runs, entries) each."""
    half = len(without) // 2
    direction = with_person[:half].mean(axis=0) - without[:half].mean(axis=0)
    negative, positive = (without * direction).sum(axis=1), (with_person * direction).sum(axis=1)
    candidates = np.quantile(np.concatenate([negative[:half], positive[:half]]), np.linspace(0.01, 0.99, 99))
    threshold = max(
        candidates, key=lambda at: epsilon_bound((negative[:half] > at).sum(), (positive[:half] > at).sum(), half)
    )
    tested = negative[half:] > threshold, positive[half:] > threshold
    return epsilon_bound(int(tested[0].sum()), int(tested[1].sum()), len(without) - half)


def sampler_of(seed, factor):
    return WrongSampler(gaussian_sampler(source=InsecureSeededSource(seed)), factor)


# Neighbours: the second table has one person more, whose value is 0.
ROWS = [0, 1, 2, 2, 1, 2]
NEIGHBOURS = [ROWS, [*ROWS, 0]]


@cache
def attributes():
    """As many attributes of three values as there are runs, and neighbours in which all hold the same values."""
    domain = Domain.fromdict({f"a{k}": 3 for k in range(RUNS)})
    return domain, [CodedTable(domain, dict.fromkeys(domain.attributes, rows)) for rows in NEIGHBOURS]


@cache
def plan_of_attributes():
    workload = Workload.all_kway(attributes()[0], 1)
    # The cost of one residual is the share of all of them; scaled so that it is ρ, less the rounding of the noise.
    unit = plan(workload, Budget.zcdp(rho=1), contributions=1)
    return plan(workload, Budget.zcdp(rho=RHO / unit.cost(1)), contributions=1)


def residual_runs(factor):
    """Measure the residuals of all attributes, each a run."""
    made, outputs = plan_of_attributes(), []
    for seed, source in enumerate(attributes()[1]):
        noisy = measure(made, source, sampler=sampler_of(seed, factor))
        # The first table is the total; all the others are the runs.
        outputs.append(noisy.values[1:].reshape(RUNS, 3))
    assert float(made.cost(1)) == pytest.approx(float(RHO), rel=1e-5)
    return made.cost(1), outputs


def marginal_runs(factor):
    """Measure a table of as many blocks as there are runs; each has one person more in the neighbouring table."""
    domain = Domain.fromdict({"block": RUNS, "value": 2})
    workload = Workload.all_kway(domain, 2)
    outputs = []
    for seed, counts in enumerate([[4, 3], [5, 3]]):
        source = CountsSource(np.tile(counts, (RUNS, 1)), domain)
        noisy = gaussian_marginals(
            source, variances={("block", "value"): 1 / (2 * RHO)}, contributions=1, sampler=sampler_of(seed, factor)
        )
        # The noisy integers themselves: their rounding errors in floating point know the sum over all blocks, which is
        # a matter of thousands of people, not of one.
        outputs.append(np.rint(reconstruct(noisy, workload, method="mle").table("block", "value").values))
        assert noisy.provenance.rho == RHO
    return RHO, outputs


def staged_runs(factor):
    """Measure residuals in two stages, each at half of ρ; the second depends on what came out of the first.

    Those whose first cell came out above its neighbour are measured again. What was seen of a run is its first
    measurement, the mean of all, and how often it was measured.
    """
    domain, neighbours = attributes()
    layout = Layout.of(domain.shape, [(k,) for k in range(RUNS)])
    noise = np.full(len(layout.sets), 6 / float(RHO))  # c² ∏ n(n − 1) / 2g² = ρ/2
    outputs = []
    for seed, source in enumerate(neighbours):
        passing = PrivacyFilter(RHO * (RUNS + 1))
        stages = StagedResiduals(
            domain, layout, source.count(layout), spending=passing, contributions=1, sampler=sampler_of(seed, factor)
        )
        noise[0] = 0.0
        stages.measure(noise, "all")
        first = stages.measurements().values[1:].reshape(RUNS, 3)
        again = np.where(np.concatenate([[False], first[:, 0] > first[:, 1]]), noise, 0.0)
        stages.measure(again, "some again")
        noisy = stages.measurements()
        outputs.append(np.column_stack([first, noisy.values[1:].reshape(RUNS, 3), noisy.counts[1:]]))
        assert sum(rho for _, rho in passing.steps) <= RHO * RUNS
    return RHO, outputs


@pytest.mark.parametrize("runs", [residual_runs, marginal_runs, staged_runs])
def test_neighbours_are_no_easier_to_tell_apart_than_claimed(runs):
    rho, outputs = runs(Fraction(1))
    claimed = Budget.zcdp(rho=rho).epsilon(DELTA)
    assert 2.7 < claimed < 2.8
    # The audit sees much of what there is, and never more than is claimed.
    assert (1.3 if runs is not staged_runs else 0.8) < audited_epsilon(*outputs) < claimed


@pytest.mark.parametrize("runs", [residual_runs, marginal_runs, staged_runs])
def test_the_same_audit_catches_noise_of_a_quarter_of_the_variance(runs):
    rho, outputs = runs(Fraction(1, 4))
    assert audited_epsilon(*outputs) > Budget.zcdp(rho=rho).epsilon(DELTA)


# One round of Scalable MWEM: which of the tables is chosen. The claim is pure ε-DP. Nothing but a total of 40 is known,
# so that every cell is estimated to be 20, and a score goes up or down with the person.
CHOICES = 4_000


def choice_rates(sensitivity, epsilon):
    """How often the watched table is chosen, of two neighbouring tables."""
    attributes = 20
    layout = Layout.of((2,) * attributes, [(k,) for k in range(attributes)])
    estimate = mwem._RunningEstimate(layout)
    # The watched table holds fewer in cell 0 than estimated, the others more: one person more lowers its score from 26
    # to 25, and raises the others from 24 to 25.
    estimate._values[0] = 40.0
    hits = []
    for seed, person in enumerate([0, 1]):
        counts = np.zeros(layout.cells, dtype=np.int64)
        for table in range(1, len(layout.sets)):
            layout.view(counts, table)[...] = [7 + person, 33] if table == 1 else [32 + person, 8]
        scores, source = estimate.scores(counts)[1:].tolist(), InsecureSeededSource(seed)
        chosen = [select(scores, epsilon=epsilon, sensitivity=sensitivity, source=source) for _ in range(CHOICES)]
        hits.append(chosen.count(0))
    return hits


def test_the_choice_of_a_table_tells_no_more_than_claimed():
    """ε = 2: the watched table has odds of e^2 to e^0 against 19 others: 0.28 and 0.05, of which 1.4 is seen."""
    epsilon = selection_epsilon(RHO)
    assert epsilon == 2
    without, with_person = choice_rates(mwem._UNITS, epsilon)
    assert 1.1 < epsilon_bound(with_person, without, CHOICES, delta=0.0) < epsilon


def test_the_same_audit_catches_a_sensitivity_that_is_too_small():
    """A third of the sensitivity: odds of e^6 to e^0 against 19 others: 0.96 and 0.05, of which 2.8 is seen."""
    without, with_person = choice_rates(Fraction(mwem._UNITS, 3), 2)
    assert epsilon_bound(with_person, without, CHOICES, delta=0.0) > 2


@pytest.mark.parametrize("contributions", [1, 3])
def test_the_rounds_select_with_the_epsilon_and_the_sensitivity_that_were_audited(monkeypatch, contributions):
    asked = []

    def witness(scores, **options):
        asked.append(options)
        return select(scores, **options)

    monkeypatch.setattr(mwem, "select", witness)
    domain = Domain.fromdict({"a": 2, "b": 3})
    source = CountsSource(np.arange(6).reshape(2, 3), domain)
    budget = Budget.zcdp(rho=2)
    mwem.scalable_mwem(source, Workload.all_kway(domain, 1), budget, contributions=contributions, rounds=3)
    each = 2 * Fraction(9, 10) / 6
    assert [(one["epsilon"], one["sensitivity"]) for one in asked] == [
        (selection_epsilon(each), contributions * mwem._UNITS)
    ] * 3
    assert selection_cost(asked[0]["epsilon"]) <= each
    assert {one.get("error", 0) for one in asked} == {0}
    assert all(one["source"].private for one in asked)
