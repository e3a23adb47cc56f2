"""Error bars against the exact covariance of the estimates, by explicit matrices.

Tolerance: sums of at most 32 terms of size about 1, so 1e-12 is a hundred times what rounding can make.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from matrices import expand_matrix, full_difference, marginal_matrix, subsets
from strategies import families, seeds

from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.measurements import Gaussian, Measurements
from margrave.reconstruction.estimates import estimate_residuals
from margrave.release.uncertainty import cell_variance, covariance


def domain_of(sizes):
    return Domain.fromdict({f"a{k}": size for k, size in enumerate(sizes)})


def cells(sizes, gamma):
    """All cells of a table, in the order of its flattened array."""
    return [dict(zip(gamma, cell, strict=True)) for cell in np.ndindex(*[sizes[k] for k in gamma])]


@given(families(max_sets=3), seeds)
@settings(deadline=None, max_examples=30)
def test_variance_and_covariance_of_cells_are_exact(shape_and_family, seed):
    """Cov(μ̂_A, μ̂_B) = Σ_{τ⊆A∩B} A_{A,τ} (σ²_τ D_τ D_τᵀ) A_{B,τ}ᵀ."""
    sizes, family = shape_and_family
    generator = np.random.default_rng(seed)
    layout = Layout.of(sizes, family)
    variance = {tau: generator.uniform(0.1, 3) for tau in layout.sets}
    triples = [
        ([f"a{k}" for k in tau], np.zeros([sizes[k] - 1 for k in tau]), Gaussian(variance[tau])) for tau in layout.sets
    ]
    estimates = estimate_residuals(Measurements.from_residuals(domain_of(sizes), triples), layout)

    def exact(one, other):
        shared = [tau for tau in subsets(one) if set(tau) <= set(other)]
        parts = [(tau, full_difference(sizes, tau)) for tau in shared]
        return sum(
            expand_matrix(sizes, one, tau) @ (variance[tau] * d @ d.T) @ expand_matrix(sizes, other, tau).T
            for tau, d in parts
        )

    for place, gamma in enumerate(layout.sets):
        np.testing.assert_allclose(cell_variance(estimates, place), np.diag(exact(gamma, gamma)), rtol=1e-12)
    for _ in range(3):
        one, other = (layout.sets[i] for i in generator.integers(0, len(layout.sets), size=2))
        expected = exact(one, other)
        first, second = cells(sizes, one), cells(sizes, other)
        for i, j in zip(generator.integers(0, len(first), 8), generator.integers(0, len(second), 8), strict=True):
            found = covariance(estimates, first[i], second[j])
            np.testing.assert_allclose(found, expected[i, j], rtol=1e-12, atol=1e-12)


def test_error_bars_of_emp_are_those_of_the_pseudo_inverse():
    """Cov(p̂) = V⁺ V⁺ᵀ, since v has unit variance."""
    sizes, measured, variances = (2, 3, 2), [(0, 1), (1, 2), (0, 1), (0,)], [1.0, 2.0, 0.5, 3.0]
    triples = [
        ([f"a{k}" for k in gamma], np.zeros([sizes[k] for k in gamma]), v)
        for gamma, v in zip(measured, variances, strict=True)
    ]
    rows = [marginal_matrix(sizes, gamma) / np.sqrt(v) for gamma, v in zip(measured, variances, strict=True)]
    # Nested marginals are linearly dependent: the cutoff is explained in test_emp.py.
    inverse = np.linalg.pinv(np.vstack(rows), rcond=1e-10)
    layout = Layout.of(sizes, [(0, 1), (1, 2)])
    estimates = estimate_residuals(Measurements.from_marginals(domain_of(sizes), triples), layout)
    for place, gamma in enumerate(layout.sets):
        spread = np.diag(marginal_matrix(sizes, gamma) @ inverse @ inverse.T @ marginal_matrix(sizes, gamma).T)
        np.testing.assert_allclose(cell_variance(estimates, place), spread, rtol=1e-10)


def test_a_table_that_is_not_determined_has_no_error_bar():
    layout = Layout.of((2, 3), [(0, 1)])
    measurements = Measurements.from_marginals(domain_of((2, 3)), [(("a0",), np.zeros(2), 1.0)])
    estimates = estimate_residuals(measurements, layout)
    assert cell_variance(estimates, layout.places[(0,)]) == pytest.approx(1.0)
    assert np.isnan(cell_variance(estimates, layout.places[(0, 1)]))
    assert np.isnan(covariance(estimates, {0: 0}, {0: 1, 1: 2}))
