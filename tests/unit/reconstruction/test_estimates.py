"""Estimates of the residuals of a workload: which measurement goes where, and what is said about its precision."""

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.algebra.transform import difference, integrate
from margrave.domain import Domain
from margrave.errors import ConvergenceError
from margrave.measurements import Gaussian, Laplace, Measurements
from margrave.reconstruction.estimates import estimate_residuals

DOMAIN = Domain.fromdict({"age": 4, "sex": 2, "one": 1, "region": 3})
GENERATOR = np.random.default_rng(6)


def marginals():
    tables = [(("age", "sex"), GENERATOR.normal(size=(4, 2)), 2.0), (("region",), GENERATOR.normal(size=3), 0.5)]
    return Measurements.from_marginals(DOMAIN, tables)


def test_equal_closures_share_the_buffer():
    measurements = marginals()
    estimates = estimate_residuals(measurements, Layout.of(DOMAIN.shape, [(0, 1), (3,)]))
    assert np.shares_memory(estimates.values, measurements.values)
    assert np.array_equal(estimates.precisions, measurements.precisions)


def test_other_closures_get_what_was_measured_and_zeros():
    measurements = marginals()
    layout = Layout.of(DOMAIN.shape, [(0, 3), (2,)])
    estimates = estimate_residuals(measurements, layout)
    for place, attributes in enumerate(layout.sets):
        names = DOMAIN.names(attributes)
        assert estimates.counts[place] == measurements.count(*names)
        assert estimates.precisions[place] == measurements.precision(*names)
        found = layout.view(estimates.values, place)
        if attributes in measurements.layout.places:
            origin = measurements.layout.places[attributes]
            assert np.array_equal(found, measurements.layout.view(measurements.values, origin))
        else:
            assert not found.any()
    assert estimates.counts[layout.places[()]] == 2
    assert estimates.counts[layout.places[(0, 3)]] == estimates.counts[layout.places[(2,)]] == 0


def test_nothing_measured_inside_the_workload_leaves_zeros():
    measurements = Measurements.from_residuals(DOMAIN, [(("age",), np.ones(3), Gaussian(1.0))])
    estimates = estimate_residuals(measurements, Layout.of(DOMAIN.shape, [(1,)]))
    assert not estimates.values.any()
    assert not estimates.counts.any()


def test_estimates_are_read_only():
    estimates = estimate_residuals(marginals(), Layout.of(DOMAIN.shape, [(0,)]))
    for array in (estimates.values, estimates.counts, estimates.precisions):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1


def test_other_noise_is_combined_with_what_has_one_variance_and_has_no_single_variance():
    z, other = GENERATOR.normal(size=(2, 3, 2))
    root = GENERATOR.normal(size=(6, 6))
    matrix = root @ root.T + np.eye(6)
    entries = [(("age", "region"), z, Gaussian(2.0)), (("age", "region"), other, Gaussian(covariance=matrix))]
    measurements = Measurements.from_residuals(DOMAIN, [*entries, (("sex",), [3.0], Gaussian(1.0))])
    layout = measurements.layout
    estimates = estimate_residuals(measurements, layout)
    place = layout.places[(0, 3)]
    d = np.kron(np.eye(3, 4) - np.eye(3, 4, 1), np.eye(2, 3) - np.eye(2, 3, 1))
    one, two = np.linalg.inv(2 * d @ d.T), np.linalg.inv(matrix)
    expected = np.linalg.solve(one + two, one @ z.ravel() + two @ other.ravel())
    found = layout.view(estimates.values, place)
    # Condition numbers of about 100, numbers of size about 1: 1e-11 is a thousand times the rounding.
    np.testing.assert_allclose(difference(found).ravel(), expected, atol=1e-11)
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-12)
    assert np.isnan(estimates.precisions[place])
    assert estimates.counts[place] == 2
    assert estimates.precisions[layout.places[(1,)]] == 1.0
    assert measurements.precision("age", "region") == 0.5
    assert np.isfinite(measurements.values).all()


def test_laplace_alone_is_the_median_and_leaves_the_other_residuals():
    entries = [(("age",), GENERATOR.normal(size=3), Laplace(1.0)) for _ in range(3)]
    measurements = Measurements.from_residuals(DOMAIN, [*entries, ((), 8.0, Laplace(2.0))])
    layout = Layout.of(DOMAIN.shape, [(0, 1)])
    estimates = estimate_residuals(measurements, layout)
    median = np.median([values for _, values, _ in entries], axis=0)
    np.testing.assert_allclose(layout.view(estimates.values, layout.places[(0,)]), integrate(median), atol=1e-14)
    assert layout.view(estimates.values, layout.places[()]) == 8.0
    assert not layout.view(estimates.values, layout.places[(0, 1)]).any()


def test_other_noise_outside_the_workload_is_not_even_looked_at():
    class Broken:
        def loss(self, residual, observed):
            raise AssertionError

        gradient = loss

    measurements = Measurements.from_residuals(DOMAIN, [(("age",), np.zeros(3), Broken())])
    assert not estimate_residuals(measurements, Layout.of(DOMAIN.shape, [(1,)])).values.any()


def test_a_loss_that_does_not_converge_names_its_residual():
    class Downhill:
        def loss(self, residual, observed):
            return -float(residual.sum())

        def gradient(self, residual, observed):
            return -np.ones_like(residual)

    for names, shape, spoken in [(("region", "age"), (2, 3), "age × region"), ((), (), "the total")]:
        measurements = Measurements.from_residuals(DOMAIN, [(names, np.zeros(shape), Downhill())])
        with pytest.raises(ConvergenceError, match=f"the estimate of the residual of {spoken} did not converge"):
            estimate_residuals(measurements, measurements.layout)


def test_a_loss_of_ones_own_sees_its_axes_in_the_order_it_was_named():
    class Weighted:
        """Entry i of the first axis, region, pulls with weight 1 + i; a table of region × age."""

        def gradient(self, residual, observed):
            assert residual.shape == observed.shape == (2, 3)
            return (1 + np.arange(2))[:, None] * (residual - observed)

        def loss(self, residual, observed):
            return float(((residual - observed) * self.gradient(residual, observed)).sum() / 2)

    first, second = GENERATOR.normal(size=(2, 2, 3))
    entries = [(("region", "age"), first, Weighted()), (("age", "region"), second.T, Gaussian(covariance=np.eye(6)))]
    measurements = Measurements.from_residuals(DOMAIN, entries)
    estimates = estimate_residuals(measurements, measurements.layout)
    found = difference(measurements.layout.view(estimates.values, measurements.layout.places[(0, 3)])).T
    weights = (1 + np.arange(2))[:, None]
    np.testing.assert_allclose(found, (weights * first + second) / (weights + 1), rtol=1e-6)
