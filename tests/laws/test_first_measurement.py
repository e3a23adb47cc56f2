"""What is unbiased where residuals are measured again: the first measurement, and neither the last nor the mean.

A made-up rule measures a residual again if its first value is negative. A thousand attributes of two values, all even,
are as many repetitions; z below is the mean over them in standard errors. False alarms: |z| < 4.5 fails once in 150,000
for each of a few seeded checks. Power: the mean of all measurements is biased by σ/√(8π) ≈ 0.2 σ, which is z ≈ 9 at
2,000 repetitions, and the last one by twice that.
"""

from fractions import Fraction

import numpy as np
import pytest

import margrave as mg
from margrave.algebra.layout import Layout
from margrave.boundary import StagedResiduals
from margrave.domain import Domain
from margrave.errors import MeasurementError
from margrave.measurements.measurements import First, Measurements
from margrave.privacy.budget import PrivacyFilter
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler
from margrave.reconstruction.estimates import estimate_residuals, unbiased_residuals
from margrave.release.publication import reconstruct
from margrave.workload import Workload

ATTRIBUTES = 1_000
DOMAIN = Domain.fromdict({f"a{k}": 2 for k in range(ATTRIBUTES)})
WORKLOAD = Workload.all_kway(DOMAIN, 1)
LAYOUT = Layout.of(DOMAIN.shape, WORKLOAD.positions)
NOISE = 400.0  # g² on integers of 2 × the residual: a standard deviation of 10


def run_of(seed):
    """First, last and all measurements of every residual's first cell, by a rule that looks at the first."""
    counts = np.full(LAYOUT.cells, 50, dtype=np.int64)
    counts[0] = 100
    stages = StagedResiduals(
        DOMAIN,
        LAYOUT,
        counts,
        spending=PrivacyFilter(Fraction(10**6)),
        contributions=1,
        sampler=gaussian_sampler(source=InsecureSeededSource(seed)),
    )
    everything = np.full(len(LAYOUT.sets), NOISE)
    stages.measure(everything, "all")
    once = stages.measurements()
    negative = once.values[LAYOUT.index.offset[:-1]] < 0
    negative[0] = False
    stages.measure(np.where(negative, NOISE, 0.0), "those with a negative first cell")
    return once, stages.measurements(), negative


RUNS = [run_of(seed) for seed in (1, 2)]


def first_cells(buffer):
    return buffer[LAYOUT.index.offset[:-1]][1:]


def z_score(values):
    # The true residual is zero everywhere.
    return values.mean() / (values.std() / np.sqrt(len(values)))


def test_the_first_measurement_is_unbiased_with_the_variance_that_is_stated():
    found = np.concatenate(
        [first_cells(unbiased_residuals(noisy, estimate_residuals(noisy, LAYOUT)).values) for _, noisy, _ in RUNS]
    )
    assert abs(z_score(found)) < 4.5
    stated = unbiased_residuals(RUNS[0][1], estimate_residuals(RUNS[0][1], LAYOUT)).variances[1:]
    assert stated == pytest.approx(NOISE / 4, rel=1e-9)
    # A cell of the centred residual of two values has half of the variance σ²; z as for a sample variance.
    ratio = found.var() / (stated[0] / 2)
    assert abs(ratio - 1) < 4.5 * np.sqrt(2 / len(found))


def test_the_mean_of_all_measurements_is_biased_and_so_is_the_last():
    combined, last = [], []
    for once, noisy, negative in RUNS:
        all_of_it = first_cells(estimate_residuals(noisy, LAYOUT).values)
        combined.append(all_of_it)
        again = negative[1:]
        # Of two with the same noise the mean is the middle: the last is twice the mean less the first.
        last.append(np.where(again, 2 * all_of_it - first_cells(once.values), all_of_it))
    assert z_score(np.concatenate(combined)) > 6
    assert z_score(np.concatenate(last)) > 12


def test_reconstruction_uses_all_measurements_and_estimates_the_first():
    _, noisy, negative = RUNS[0]
    once = RUNS[0][0]
    release = reconstruct(noisy, WORKLOAD, method="mle")
    again = DOMAIN.attributes[int(np.flatnonzero(negative)[0]) - 1]
    assert release.table(again).values == pytest.approx(reconstruct(once, WORKLOAD, method="mle").table(again).values)
    assert noisy.count(again) == 2
    assert noisy.precision(again) == pytest.approx(2 * once.precision(again))
    nonnegative = reconstruct(noisy, WORKLOAD)
    assert nonnegative.table(again).estimate == pytest.approx(release.table(again).values)
    assert nonnegative.table(again).values != pytest.approx(reconstruct(once, WORKLOAD).table(again).values)


def test_first_measurements_are_kept_in_files(tmp_path):
    _, noisy, _ = RUNS[0]
    noisy.save(tmp_path / "noisy.npz")
    loaded = Measurements.load(tmp_path / "noisy.npz")
    for name in ("values", "precisions", "variances"):
        assert getattr(loaded.first, name).tobytes() == getattr(noisy.first, name).tobytes()
    release = reconstruct(noisy, WORKLOAD, method="mle")
    assert release.marginals.tobytes() == reconstruct(loaded, WORKLOAD, method="mle").marginals.tobytes()


def test_first_measurements_outside_of_a_workload_do_not_matter():
    _, noisy, negative = RUNS[0]
    kept = [DOMAIN.attributes[int(place) - 1] for place in np.flatnonzero(negative)[:3]]
    few = reconstruct(noisy, Workload(DOMAIN, [(name,) for name in kept]), method="mle")
    whole = reconstruct(noisy, WORKLOAD, method="mle")
    for name in kept:
        assert few.table(name).values.tolist() == whole.table(name).values.tolist()


def refused(text, **changed):
    noisy = RUNS[0][1]
    parts = {name: getattr(noisy.first, name) for name in ("values", "precisions", "variances")} | changed
    with pytest.raises(MeasurementError, match=text):
        Measurements.from_centered(
            DOMAIN, LAYOUT, values=noisy.values, precisions=noisy.precisions, counts=noisy.counts, first=First(**parts)
        )


def test_first_measurements_that_cannot_be_are_refused():
    first = RUNS[0][1].first
    refused("averages have shape", values=first.values[:-1])
    refused("more precise than all measurements", precisions=first.precisions * 3)
    refused("one first measurement of each residual", precisions=np.zeros_like(first.precisions))
    refused("a variance is negative, NaN, or larger", variances=first.variances * 2)
    noisy = RUNS[0][1]
    with pytest.raises(MeasurementError, match="expected a First, got a tuple; give all of its parts"):
        Measurements.from_centered(
            DOMAIN, LAYOUT, values=noisy.values, precisions=noisy.precisions, counts=noisy.counts, first=(1, 2, 3)
        )


def test_estimates_of_the_adaptive_planner_are_unbiased_with_the_errors_that_they_state():
    """Two hundred runs on a table with structure, which the last stages measure again.

    Standardised errors have mean 0 and variance 1. A mean over 200 runs varies by 0.07, a mean square by at most 0.1
    (cells of a table move together); five of these are passed by chance once in a million. Standard errors of all
    measurements together would make the mean square about 0.4, those of a whole budget 2.5.
    """
    domain = mg.Domain.fromdict({"a": 3, "b": 2, "c": 4})
    workload, people = mg.Workload.all_kway(domain, 2), np.random.default_rng(0)
    first, third = people.integers(0, 3, 400), people.integers(0, 4, 400)
    table = mg.CodedTable(domain, {"a": first, "b": (first > 0).astype(np.int64), "c": third})
    truth = np.zeros((3, 2))
    np.add.at(truth, (first, (first > 0).astype(np.int64)), 1)
    found = []
    for seed in range(200):
        sampler = gaussian_sampler(source=InsecureSeededSource(seed))
        budget = mg.Budget.zcdp(rho=0.05)
        noisy = mg.adaptive_planner(table, workload, budget, contributions=1, sampler=sampler)
        answer = mg.reconstruct(noisy, workload, method="mle").table("a", "b")
        found.append(((answer.estimate - truth) / answer.std_error).ravel())
    assert np.abs(np.mean(found, axis=0)).max() < 0.35
    assert abs(np.square(found).mean() - 1) < 0.5
