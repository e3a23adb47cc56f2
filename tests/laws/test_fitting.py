"""Proportional fitting finds the table of least relative entropy with given facets."""

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from margrave.reconstruction.prior.fitting import fit_proportionally, most_even

SHAPES = [(3, 4), (2, 3, 4), (3, 2, 2, 2)]


def facets_of(table):
    return [table.sum(axis=axis) for axis in range(table.ndim)]


def general_minimum(start, facets):
    """The table with these facets of least relative entropy to ``start``, by a general solver: slow and obvious."""
    rows, wanted = [], []
    for axis, facet in enumerate(facets):
        for place in np.ndindex(facet.shape):
            row = np.zeros(start.shape)
            row[(*place[:axis], slice(None), *place[axis:])] = 1.0
            rows.append(row.ravel())
            wanted.append(facet[place])
    # Facets of one table repeat each other's sums; the solver wants independent constraints.
    left, values, right = np.linalg.svd(np.array(rows), full_matrices=False)
    rank = int((values > 1e-10 * values[0]).sum())
    constraint = LinearConstraint(right[:rank], *2 * (left[:, :rank].T @ np.array(wanted) / values[:rank],))
    reference = start.ravel()
    found = minimize(
        lambda x: float(np.sum(x * np.log(x / reference) - x)),
        np.full(start.size, np.sum(facets[0]) / start.size),
        jac=lambda x: np.log(x / reference),
        hess=lambda x: np.diag(1 / x),
        method="trust-constr",
        constraints=[constraint],
        bounds=[(1e-9, None)] * start.size,
        options={"gtol": 1e-10, "xtol": 1e-14, "barrier_tol": 1e-12, "maxiter": 3_000},
    )
    return found.x.reshape(start.shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_most_even_table_has_the_largest_entropy_of_all_with_its_facets(shape):
    table = np.random.default_rng(len(shape)).uniform(1, 9, shape)
    found = most_even(facets_of(table), tolerance=1e-12, most_rounds=10_000)
    for wanted, present in zip(facets_of(table), facets_of(found), strict=True):
        np.testing.assert_allclose(present, wanted, rtol=1e-10)
    # The general solver's barrier leaves about 1e-6 of a cell.
    np.testing.assert_allclose(found, general_minimum(np.ones(shape), facets_of(table)), rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fitting_finds_the_table_nearest_in_relative_entropy(shape):
    generator = np.random.default_rng(10 + len(shape))
    start, other = generator.uniform(1, 9, shape), generator.uniform(1, 9, shape)
    expected = general_minimum(start, facets_of(other))
    found = fit_proportionally(start.copy(), facets_of(other), tolerance=1e-12, most_rounds=10_000)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fitting_leaves_a_table_that_fits_and_cells_that_are_zero(shape):
    table = np.random.default_rng(20 + len(shape)).uniform(1, 9, shape)
    table[(0,) * len(shape)] = 0.0
    # One rounding for each factor applied.
    np.testing.assert_allclose(fit_proportionally(table.copy(), facets_of(table)), table, rtol=1e-14)


def test_facets_that_contradict_each_other_or_are_empty_give_finite_tables():
    ab, ac, bc = np.diag([1.0, 1.0]), np.diag([1.0, 1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])
    for facets in ([bc, ac, ab], [0 * bc, 0 * ac, 0 * ab]):
        found = most_even(facets)
        assert np.isfinite(found).all()
        assert (found >= 0).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("factor", [2.0**-40, 2.0**20])
def test_people_counted_in_another_unit_are_fitted_the_same(shape, factor):
    """Powers of two are exact, and when to stop is a share of the total."""
    draw = np.random.default_rng(30 + len(shape))
    start, other = draw.uniform(1, 9, shape), facets_of(draw.uniform(1, 9, shape))
    scaled = [factor * facet for facet in other]
    np.testing.assert_array_equal(fit_proportionally(factor * start, scaled), factor * fit_proportionally(start, other))
    # Here the first factor is scaled by the largest cell, which rounds.
    np.testing.assert_allclose(most_even(scaled), factor * most_even(other), rtol=1e-12)


def test_the_round_that_misses_by_no_more_than_allowed_is_the_last():
    facets = facets_of(np.random.default_rng(4).uniform(1, 9, (3, 4, 5)) ** 3)
    first, last = (most_even(facets, tolerance=0.0, most_rounds=rounds) for rounds in (1, 50))
    assert not np.allclose(first, last, rtol=1e-3)
    np.testing.assert_array_equal(most_even(facets, tolerance=1.0), first)
    np.testing.assert_array_equal(most_even(facets, tolerance=0.0), last)
