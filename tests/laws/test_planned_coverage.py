"""Error bars where the total is measured first: the stated variance is right, and intervals cover as they say.

The plan depends on the first total, and so does the noise of everything else; each residual but the total is measured
once. With few people and a small budget the total is measured again, which the estimates must not use.

Over 150 runs of 24 cells each: z² = (estimate − truth)²/variance has mean 1. Cells of a run share residuals, so that
the standard error of the mean, 0.045, is taken over runs. False alarms: 4.5 standard errors, once in 150,000. Power: a
variance that is off by 30 % is seen at 6.
"""

import numpy as np
import pytest

import margrave as mg
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler

DOMAIN = mg.Domain.fromdict({"a": 3, "b": 2, "c": 4})
WORKLOAD = mg.Workload.all_kway(DOMAIN, 3)
PEOPLE = np.random.default_rng(8)
CODES = [PEOPLE.integers(0, one.size, 150) for one in DOMAIN]
TABLE = mg.CodedTable(DOMAIN, dict(zip(DOMAIN.attributes, CODES, strict=True)))
BUDGET = mg.Budget.zcdp(rho=0.002)
RUNS = 150


@pytest.fixture(scope="module")
def runs():
    """Squared errors in units of the variance, hits of intervals, and how often the total was measured; by run."""
    truth, found = np.zeros(DOMAIN.shape), []
    np.add.at(truth, tuple(CODES), 1)
    for seed in range(RUNS):
        sampler = gaussian_sampler(source=InsecureSeededSource(seed))
        noisy = mg.residual_planner(TABLE, WORKLOAD, BUDGET, contributions=1, sampler=sampler)
        release = mg.reconstruct(noisy, WORKLOAD, method="mle")
        table, total = release.table("a", "b", "c"), release.table()
        squares = ((table.values - truth) / table.std_error) ** 2
        hits = (table.ci_low <= truth) & (truth <= table.ci_high)
        own = ((total.values - truth.sum()) / total.std_error) ** 2
        found.append((squares.mean(), hits.mean(), float(own), noisy.count()))
    return np.array(found)


def z_score(values, expected):
    return (values.mean() - expected) / (values.std() / np.sqrt(len(values)))


def test_the_total_is_measured_again_and_estimated_by_the_first(runs):
    assert (runs[:, 3] == 2).mean() > 0.5
    assert abs(z_score(runs[:, 2], 1.0)) < 4.5


def test_the_variance_of_a_cell_is_what_is_stated(runs):
    assert runs[:, 0].std() / np.sqrt(RUNS) < 0.05
    assert abs(z_score(runs[:, 0], 1.0)) < 4.5


def test_intervals_cover_as_often_as_they_say(runs):
    assert runs[:, 1].mean() > 0.95 - 4.5 * runs[:, 1].std() / np.sqrt(RUNS)
    assert runs[:, 1].mean() < 0.97
