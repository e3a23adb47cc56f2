"""The noise values: what they accept, and that losses and gradients are the formulas they state."""

import re

import numpy as np
import pytest
from matrices import full_difference

from margrave.errors import MeasurementError
from margrave.measurements import Gaussian, Laplace
from margrave.measurements.entries import transposed

GENERATOR = np.random.default_rng(1)
MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])


def refused(text):
    return pytest.raises(MeasurementError, match=re.escape(text))


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, "2", True, None, 1e-200, 1e200, [1.0]])
def test_a_variance_or_scale_that_is_no_positive_number_is_refused(value):
    with refused(f"a scale is {value!r}; give a positive finite number, from 1e-150 to 1e+150"):
        Laplace(value)
    if value is not None:
        with refused(f"a variance is {value!r}; give a positive finite number"):
            Gaussian(value)


def test_exactly_one_of_variance_and_covariance():
    with refused("Gaussian noise got neither of variance and covariance; give exactly one"):
        Gaussian()
    with refused("Gaussian noise got both of variance and covariance; give exactly one"):
        Gaussian(1.0, covariance=MATRIX)


@pytest.mark.parametrize(
    ("covariance", "text"),
    [
        ([[1.0, "x"]], "a covariance must be a square array of numbers ("),
        (np.ones((2, 3)), "a covariance has shape (2, 3); give a square one, (m, m)"),
        (np.ones(2), "a covariance has shape (2,); give a square one"),
        ([[1.0, np.nan], [np.nan, 1.0]], "a covariance holds NaN or infinity; every entry must be a finite number"),
        ([[1.0, 0.5], [0.0, 1.0]], "a covariance is not symmetric; give one that equals its transpose"),
        ([[1.0, 2.0], [2.0, 1.0]], "a covariance is not positive definite; give one whose eigenvalues are all above"),
    ],
)
def test_a_matrix_that_is_no_covariance_is_refused(covariance, text):
    with refused(text):
        Gaussian(covariance=covariance)


def test_noises_are_values():
    assert Gaussian(2) == Gaussian(variance=2.0)
    assert Gaussian(2.0) != Gaussian(3.0)
    assert Gaussian(2.0) != Laplace(2.0)
    assert Gaussian(covariance=MATRIX) == Gaussian(covariance=MATRIX.copy())
    assert hash(Gaussian(covariance=MATRIX)) == hash(Gaussian(covariance=MATRIX.copy()))
    assert Laplace(2) == Laplace(2.0)
    with pytest.raises(ValueError, match="read-only"):
        Gaussian(covariance=MATRIX).covariance[0, 0] = 3


def test_a_covariance_is_a_copy():
    given = MATRIX.copy()
    noise = Gaussian(covariance=given)
    given[0, 0] = 100
    assert noise.covariance[0, 0] == 2.0


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 2), (2, 3, 2)])
def test_one_variance_means_the_covariance_of_the_paper(shape):
    """Against explicit matrices; sums of a few dozen numbers of size about 1: 1e-12 is far above rounding."""
    residual, observed = GENERATOR.normal(size=(2, *shape))
    d = full_difference([n + 1 for n in shape], range(len(shape)))
    inverse = np.linalg.inv(2.5 * d @ d.T)
    distance = (residual - observed).ravel()
    general = Gaussian(covariance=2.5 * d @ d.T)
    for noise in (Gaussian(2.5), general):
        assert noise.loss(residual, observed) == pytest.approx(distance @ inverse @ distance / 2, rel=1e-12)
        gradient = noise.gradient(residual, observed)
        assert gradient.shape == shape
        np.testing.assert_allclose(gradient.ravel(), inverse @ distance, rtol=1e-11, atol=1e-12)


def test_laplace_loss_and_subgradient():
    noise = Laplace(2.0)
    residual, observed = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 0.0])
    assert noise.loss(residual, observed) == 2.0
    assert noise.gradient(residual, observed).tolist() == [-0.5, 0.0, 0.5]


class Tilted:
    """A loss that knows its axes: entry (i, j, …) has weight 1 + i + 10 j + …"""

    def weights(self, shape):
        return 1 + sum(10**axis * places for axis, places in enumerate(np.indices(shape)))

    def loss(self, residual, observed):
        return float((self.weights(residual.shape) * (residual - observed) ** 2).sum())

    def gradient(self, residual, observed):
        return 2 * self.weights(residual.shape) * (residual - observed)


@pytest.mark.parametrize(("shape", "axes"), [((2, 3), (1, 0)), ((2, 3, 4), (1, 2, 0)), ((2, 3, 4), (2, 0, 1))])
def test_a_transposed_noise_says_the_same_about_transposed_arrays(shape, axes):
    """The last two orders are not their own inverse: a permutation taken the wrong way round does not fit the shape."""
    residual, observed = GENERATOR.normal(size=(2, *shape))
    cells = residual.size
    root = GENERATOR.normal(size=(cells, cells))
    for noise in (Gaussian(2.0), Laplace(1.5), Gaussian(covariance=root @ root.T + np.eye(cells)), Tilted()):
        turned = transposed(noise, shape, axes)
        loss = turned.loss(residual.transpose(axes), observed.transpose(axes))
        assert loss == pytest.approx(noise.loss(residual, observed), rel=1e-12)
        gradient = turned.gradient(residual.transpose(axes), observed.transpose(axes))
        back = gradient.transpose(np.argsort(axes))
        np.testing.assert_allclose(back, noise.gradient(residual, observed), rtol=1e-10)
