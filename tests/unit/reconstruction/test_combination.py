"""Combining the measurements of one residual: medians and their ties, and what a minimiser cannot do."""

import re

import numpy as np
import pytest

from margrave.errors import ConvergenceError, MeasurementError
from margrave.measurements import Gaussian, Laplace
from margrave.reconstruction.estimates import combine, weighted_median


class Downhill:
    """Not bounded below: the likelihood grows without end."""

    def loss(self, residual, observed):
        return -float((residual - observed).sum())

    def gradient(self, residual, observed):
        return -np.ones_like(residual)


class WrongSlope:
    """Says that it grows where it falls."""

    def loss(self, residual, observed):
        return float(((residual - observed) ** 2).sum())

    def gradient(self, residual, observed):
        return -2 * (residual - observed) - 1


class Undefined:
    def loss(self, residual, observed):
        return float("nan")

    def gradient(self, residual, observed):
        return np.full_like(residual, np.nan)


class WrongShape(WrongSlope):
    def gradient(self, residual, observed):
        return np.zeros(7)


@pytest.mark.parametrize(
    ("values", "weights", "expected"),
    [
        ([3.0], [1.0], 3.0),
        ([1.0, 5.0, 2.0], [1.0, 1.0, 1.0], 2.0),
        ([1.0, 5.0], [1.0, 1.0], 3.0),
        ([1.0, 5.0], [1.0, 1.5], 5.0),
        ([1.0, 2.0, 5.0, 9.0], [1.0, 1.0, 1.0, 1.0], 3.5),
        ([9.0, 1.0, 4.0], [0.1, 0.2, 0.3], 4.0),
        ([4.0, 1.0, 9.0], [0.1, 0.2, 0.3], 6.5),
        ([2.0, 2.0, 2.0], [1.0, 1.0, 1.0], 2.0),
    ],
)
def test_the_weighted_median_takes_the_middle_of_what_is_optimal(values, weights, expected):
    found = weighted_median([np.array([v, -v]) for v in values], weights)
    assert found == pytest.approx([expected, -expected], rel=1e-15)


def test_laplace_measurements_weigh_by_the_inverse_of_their_scale():
    terms = [(np.array([0.0]), Laplace(1.0)), (np.array([10.0]), Laplace(3.0)), (np.array([20.0]), Laplace(3.0))]
    assert combine(terms, "x") == [0.0]


def test_one_gaussian_measurement_is_its_own_answer():
    observed = np.array([1.0, 2.0])
    assert combine([(observed, Gaussian(covariance=np.diag([1.0, 9.0])))], "x") is observed


def test_general_covariances_add_their_precisions():
    covariances = [np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, -0.5], [-0.5, 1.0]])]
    observed = [np.array([1.0, 2.0]), np.array([-1.0, 4.0])]
    inverses = [np.linalg.inv(matrix) for matrix in covariances]
    expected = np.linalg.solve(sum(inverses), sum(p @ z for p, z in zip(inverses, observed, strict=True)))
    terms = [(z, Gaussian(covariance=matrix)) for z, matrix in zip(observed, covariances, strict=True)]
    np.testing.assert_allclose(combine(terms, "x"), expected, rtol=1e-13)


@pytest.mark.parametrize("noise", [Downhill(), WrongSlope(), Undefined()], ids=lambda noise: type(noise).__name__)
@pytest.mark.parametrize("others", [[], [(np.zeros(2), Laplace(5.0))]], ids=["alone", "with Laplace"])
def test_a_loss_that_cannot_be_minimised_is_refused(noise, others):
    with pytest.raises(
        ConvergenceError, match=r"the estimate of the residual of age did not converge in \d+ steps; check"
    ):
        combine([(np.array([3.0, 4.0]), noise), *others], "the residual of age")


def test_a_gradient_of_the_wrong_shape_is_refused():
    text = "the noise of the residual of age gives a gradient of shape (7,); it must have that of the residual, (2,)"
    with pytest.raises(MeasurementError, match=re.escape(text)):
        combine([(np.zeros(2), WrongShape())], "the residual of age")


def test_a_complex_gradient_is_refused():
    class Complex(WrongShape):
        def gradient(self, residual, observed):
            return (residual - observed) * 1j

    with pytest.raises(MeasurementError, match="the noise of the residual of age gives a complex gradient; it must be"):
        combine([(np.zeros(2), Complex())], "the residual of age")


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_unit_of_the_counts_does_not_matter(unit):
    """A Laplace term strong enough to keep α at its kink, and one too weak to; exact answers by hand."""
    at_kink = combine([(unit * np.array([1.0]), Gaussian(unit**2)), (np.zeros(1), Laplace(unit / 3))], "x")
    assert at_kink == pytest.approx([0.0], abs=1e-6 * unit)
    # D Dᵀ of two values is 2: minimise (α − 1)²/4 + |α|/4, so α = 1/2.
    between = combine([(unit * np.array([1.0]), Gaussian(unit**2)), (np.zeros(1), Laplace(4 * unit))], "x")
    assert between == pytest.approx([unit / 2], rel=1e-6)
