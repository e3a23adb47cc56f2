"""The paper's coordinates: D, D⁺, A and A⁺ applied without matrices equal the matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import difference_matrix, expand_matrix, extract_matrix, full_difference, subsets
from strategies import seeds, sizes

from margrave.algebra.transform import difference, integrate

CLOSE = {"rtol": 1e-11, "atol": 1e-11}  # sums of at most 1,024 numbers of size 1


def test_difference_and_its_pseudo_inverse_for_three_values_are_those_of_the_paper():
    np.testing.assert_array_equal(difference_matrix(3), [[1, -1, 0], [0, 1, -1]])
    by_columns = np.array([integrate(column) for column in np.eye(2)]).T
    np.testing.assert_allclose(by_columns, np.array([[2, 1], [-1, 1], [-1, -2]]) / 3, rtol=1e-15)


@given(sizes, seeds)
@settings(deadline=None)
def test_difference_and_integrate_equal_their_matrices(shape, seed):
    generator = np.random.default_rng(seed)
    matrix = full_difference(shape, range(len(shape)))
    table = generator.normal(size=shape)
    np.testing.assert_allclose(difference(table).ravel(), matrix @ table.ravel(), **CLOSE)
    alpha = generator.normal(size=[n - 1 for n in shape])
    np.testing.assert_allclose(integrate(alpha).ravel(), np.linalg.pinv(matrix) @ alpha.ravel(), **CLOSE)


@given(sizes, seeds)
@settings(deadline=None)
def test_the_mahalanobis_norm_is_the_plain_norm_of_the_centred_array(shape, seed):
    matrix = full_difference(shape, range(len(shape)))
    alpha = np.random.default_rng(seed).normal(size=[n - 1 for n in shape])
    norm = alpha.ravel() @ np.linalg.solve(matrix @ matrix.T, alpha.ravel())
    np.testing.assert_allclose((integrate(alpha) ** 2).sum(), norm, rtol=1e-9, atol=1e-12)


@given(sizes, seeds, st.data())
@settings(deadline=None)
def test_marginal_to_residual_and_back_equal_their_matrices(shape, seed, data):
    gamma = tuple(range(len(shape)))
    tau = data.draw(st.sampled_from(subsets(gamma)))
    generator = np.random.default_rng(seed)
    counts = generator.integers(-(2**20), 2**20, size=shape)
    expected = extract_matrix(shape, gamma, tau) @ counts.ravel()
    summed = tuple(axis for axis in gamma if axis not in tau)
    found = difference(counts.sum(axis=summed))
    assert found.dtype == counts.dtype
    np.testing.assert_array_equal(found.ravel(), expected)
    alpha = generator.normal(size=[shape[k] - 1 for k in tau])
    image = expand_matrix(shape, gamma, tau) @ alpha.ravel()
    aligned = integrate(alpha).reshape([size if axis in tau else 1 for axis, size in enumerate(shape)])
    repeats = np.prod([shape[axis] for axis in summed], dtype=float)
    np.testing.assert_allclose((np.broadcast_to(aligned, shape) / repeats).ravel(), image, **CLOSE)


def test_differences_of_big_integers_are_exact():
    table = np.array([[2**60, 1], [3, 2**59]])
    assert difference(table)[0, 0] == 2**60 - 1 - 3 + 2**59


@pytest.mark.parametrize("size", [2, 3, 10, 40])
def test_the_condition_of_the_papers_covariance_grows_with_the_square_of_the_size(size):
    """D Dᵀ has the eigenvalues 2 − 2 cos(πk/n): condition cot²(π/2n). Rounding of a matrix of condition 650: 1e-12."""
    d = difference_matrix(size)
    assert np.linalg.cond(d @ d.T) == pytest.approx(np.tan(np.pi / (2 * size)) ** -2, rel=1e-10)
