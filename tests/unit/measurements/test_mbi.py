"""Domains and measurements go to the package mbi and come back; its estimators fit them as we do."""

import sys

import numpy as np
import pytest

import margrave as mg
from margrave.errors import DomainError, MeasurementError

mbi = pytest.importorskip("mbi", reason="mbi needs margrave[pgm]")

DOMAIN = mg.Domain(
    [
        mg.Attribute("age", cuts=(17, 64), whole=True),
        mg.Attribute("sex", labels=("F", "M")),
        mg.Attribute("region", size=4),
    ]
)
WORKLOAD = mg.Workload(DOMAIN, [("age", "sex"), ("sex", "region")])


CODES = {one.name: np.random.default_rng(one.size).integers(0, one.size, 3_000) for one in DOMAIN}


@pytest.fixture(scope="module")
def noisy():
    plan = mg.plan(WORKLOAD, mg.Budget.zcdp(rho=0.5), contributions=1)
    return mg.measure(plan, mg.CodedTable(DOMAIN, CODES))


def test_a_domain_goes_there_and_comes_back():
    there = DOMAIN.to_mbi()
    assert isinstance(there, mbi.Domain)
    assert there.config == {"age": 3, "sex": 2, "region": 4}
    assert there.labels_config["age"] == ("≤ 17", "18–64", "≥ 65")
    back = mg.Domain.from_mbi(there)
    assert back.shape == DOMAIN.shape
    assert back["age"].categories == DOMAIN["age"].categories
    assert mg.Domain.from_mbi(mbi.Domain(["a", "b"], [2, 3])) == mg.Domain.fromdict({"a": 2, "b": 3})


def test_measurements_come_back_as_they_went(noisy):
    back = mg.Measurements.from_mbi(DOMAIN, noisy.to_mbi())
    assert back.sets == noisy.sets
    for names in noisy.sets:
        # One division and one square root on the way.
        assert back.precision(*names) == pytest.approx(noisy.precision(*names), rel=1e-14)
    there = mg.reconstruct(noisy, WORKLOAD, method="mle")
    again = mg.reconstruct(back, WORKLOAD, method="mle")
    # Differences and sums of at most four counts below 3,000, in doubles.
    np.testing.assert_allclose(again.marginals, there.marginals, rtol=0, atol=1e-9)


def test_tables_measured_for_mbi_are_measured_for_margrave():
    draw = np.random.default_rng(2)
    tables = [(("sex", "age"), draw.normal(400, 30, (2, 3)), 4.0), (("region",), draw.normal(700, 30, 4), 9.0)]
    measured = [mbi.LinearMeasurement(values.reshape(-1), names, variance**0.5) for names, values, variance in tables]
    found = mg.Measurements.from_mbi(DOMAIN, measured)
    expected = mg.Measurements.from_marginals(DOMAIN, tables)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_allclose(found.precisions, expected.precisions, rtol=1e-15)


def test_what_mbi_minimises_is_the_likelihood_up_to_a_constant(noisy):
    loss = mbi.marginal_loss.from_linear_measurements(noisy.to_mbi(), DOMAIN.to_mbi())
    draw = np.random.default_rng(3)

    def both(table):
        factor = mbi.CliqueVector(
            DOMAIN.to_mbi(),
            loss.cliques,
            {clique: mbi.Factor(DOMAIN.to_mbi(), table).project(clique) for clique in loss.cliques},
        )
        exact = 0.0
        for place in np.flatnonzero(noisy.precisions).tolist():
            members = noisy.layout.sets[place]
            others = tuple(axis for axis in range(3) if axis not in members)
            residual = table.sum(axis=others)
            for axis in range(residual.ndim):
                residual = residual - residual.mean(axis=axis, keepdims=True)
            gap = residual - noisy.layout.view(noisy.values, place)
            exact += float(noisy.precisions[place]) * float((gap**2).sum()) / 2
        return float(loss(factor)), exact

    first, second = (both(draw.gamma(2.0, 60.0, DOMAIN.shape)) for _ in range(2))
    # mbi computes in single precision: seven digits of numbers near 10^4.
    assert first[0] == pytest.approx(first[1], rel=1e-4)
    assert second[0] == pytest.approx(second[1], rel=1e-4)


def test_the_estimator_is_swapped_in_one_line(noisy):
    ours = mg.reconstruct(noisy, WORKLOAD)
    model = mbi.estimation.MirrorDescent().estimate(DOMAIN.to_mbi(), noisy.to_mbi(), iters=300)
    truth = np.zeros(DOMAIN.shape)
    np.add.at(truth, tuple(CODES[name] for name in DOMAIN.attributes), 1)
    for names, axes in ((("age", "sex"), 2), (("sex", "region"), 0)):
        found = np.asarray(model.project(names).datavector(flatten=False))
        # 24 cells with noise of at most 7 people each: both are within 40 of the truth and of each other, by far.
        assert np.abs(found - truth.sum(axis=axes)).max() < 40
        assert np.abs(found - ours.table(*names).values).max() < 40


def test_what_mbi_cannot_say_is_refused():
    laplace = mg.Measurements.from_residuals(DOMAIN, [((), 3_000.0, mg.Laplace(2.0))])
    with pytest.raises(MeasurementError, match=r"^the noise of the total is not Gaussian with one variance;"):
        laplace.to_mbi()
    query = mbi.marginal_loss.SlicedQuery(1)
    with pytest.raises(MeasurementError, match=r"^the measurement of sex has a query of its own;"):
        mg.Measurements.from_mbi(DOMAIN, [mbi.LinearMeasurement(np.zeros(2), ("sex",), 1.0, query=query)])
    with pytest.raises(MeasurementError, match=r"^expected a LinearMeasurement of mbi, got a tuple;"):
        mg.Measurements.from_mbi(DOMAIN, [(("sex",), [1, 2], 1.0)])
    with pytest.raises(MeasurementError, match="sex"):
        mg.Measurements.from_mbi(DOMAIN, [mbi.LinearMeasurement(np.zeros(5), ("sex",), 1.0)])
    with pytest.raises(MeasurementError, match="stddev"):
        mg.Measurements.from_mbi(DOMAIN, [mbi.LinearMeasurement(np.zeros(2), ("sex",), 0.0)])
    with pytest.raises(DomainError, match="no attribute 'agee'"):
        mg.Measurements.from_mbi(DOMAIN, [mbi.LinearMeasurement(np.zeros(3), ("agee",), 1.0)])


def test_without_mbi_the_extra_is_named(monkeypatch, noisy):
    monkeypatch.setitem(sys.modules, "mbi", None)
    message = r"^the package mbi is not installed; install it: pip install 'margrave\[pgm\]'$"
    with pytest.raises(DomainError, match=message):
        DOMAIN.to_mbi()
    with pytest.raises(MeasurementError, match=message):
        noisy.to_mbi()
