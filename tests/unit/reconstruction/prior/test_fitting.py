"""Proportional fitting: the compiled loop against a plain twin, and tables that are awkward to scale."""

import numpy as np
import pytest

from margrave.reconstruction.prior.fitting import MOST_ROUNDS, TOLERANCE, fit_proportionally


def twin(table, facets, tolerance=TOLERANCE, most_rounds=MOST_ROUNDS):
    """Axis by axis in the order of Σ facet², until the facets are met: slow and obvious."""
    table = table.copy()
    for _ in range(most_rounds):
        missed = []
        for axis in sorted(range(table.ndim), key=lambda axis: (facets[axis] ** 2).sum()):
            present = table.sum(axis=axis)
            missed.append(np.abs(present - facets[axis]).sum())
            factor = np.divide(facets[axis], present, out=np.zeros_like(present), where=present > 0)
            table *= np.expand_dims(factor, axis)
        if max(missed) <= tolerance * facets[0].sum():
            break
    return table


@pytest.mark.parametrize("shape", [(5,), (3, 17), (2, 9, 4), (3, 2, 2, 11)], ids=str)
@pytest.mark.parametrize("rounds", [1, 2, MOST_ROUNDS])
def test_the_loop_is_that_of_the_plain_twin(shape, rounds):
    draw = np.random.default_rng(len(shape))
    start, other = draw.uniform(0, 9, shape), draw.uniform(0, 9, shape)
    start[draw.random(shape) < 0.1] = 0.0
    facets = [np.asarray(other.sum(axis=axis)) for axis in range(other.ndim)]
    expected = twin(start, facets, most_rounds=rounds)
    found = fit_proportionally(start.copy(), facets, most_rounds=rounds)
    # At most 50 rounds of products and short sums, each rounded at 1e-16.
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not found[start == 0].any()


@pytest.mark.parametrize("tolerance", [0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002])
@pytest.mark.parametrize("shape", [(4, 5), (2, 9, 4), (3, 2, 2, 4)], ids=str)
def test_fitting_ends_with_the_round_in_which_the_twin_ends(shape, tolerance):
    """Each facet counts once: by another total, fitting would end sooner or later at some of these."""
    draw = np.random.default_rng(5)
    start, other = draw.gamma(0.5, 9, shape), draw.gamma(0.5, 9, shape)
    facets = [np.asarray(other.sum(axis=axis)) for axis in range(other.ndim)]
    found = fit_proportionally(start.copy(), facets, tolerance=tolerance)
    np.testing.assert_allclose(found, twin(start, facets, tolerance), rtol=1e-12)


def test_a_table_in_another_order_of_memory_is_scaled_in_place_too():
    table = np.arange(1.0, 13.0).reshape(3, 4)
    facets = [np.full(4, 6.0), np.full(3, 8.0)]
    expected = fit_proportionally(table.copy(), facets)
    turned = np.asfortranarray(table)
    assert fit_proportionally(turned, facets) is turned
    np.testing.assert_allclose(turned, expected, rtol=1e-14)


def test_sums_that_are_almost_zero_leave_finite_tables():
    found = fit_proportionally(np.full((2, 2), 1e-310), [np.array([3.0, 1.0]), np.array([2.0, 2.0])])
    assert np.isfinite(found).all()


def test_facets_of_nobody_leave_nobody():
    assert not fit_proportionally(np.ones((2, 3)), [np.zeros(3), np.zeros(2)]).any()
