"""Shrinkage towards what smaller tables predict: every loop against a plain twin in numpy."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from margrave.algebra import kernels as threads
from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.reconstruction.prior.shrinkage import (
    CYCLES,
    GROUPS,
    group_of,
    pool_decreasing,
    shrink_residuals,
)
from tests.strategies import families, seeds


def fitted(facets, shape):
    """Iterative proportional fitting from ones, axis by axis in the order of Σ facet², in numpy."""
    table = np.ones(shape)
    for _ in range(CYCLES if len(shape) > 2 else 1):
        for axis in np.argsort([(facet**2).sum() for facet in facets]):
            sums = table.sum(axis=axis)
            table *= np.expand_dims(np.divide(facets[axis], sums, out=np.zeros_like(sums), where=sums > 0), axis)
    return table


def centred(table):
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def shrunk(residual, predicted, variance):
    """Equation (2) by a general isotonic regression over the groups that have cells."""
    expected = centred(predicted)
    departure = residual - expected
    noise = variance * np.prod([(n - 1) / n for n in residual.shape])
    groups = np.array([group_of(count, np.sqrt(variance)) for count in predicted.ravel()])
    names, places, cells = np.unique(groups, return_inverse=True, return_counts=True)
    excess = np.array([np.mean(departure.ravel()[groups == name] ** 2) for name in names]) - noise
    excess = np.maximum(isotonic_regression(excess, weights=cells).x, 0)
    factor = (excess / (excess + noise))[places].reshape(residual.shape)
    return centred(expected + factor * departure)


def random_tables(sizes, family, seed, *, scale=10.0):
    """A closure with tables that agree and are not negative, and noisy residuals of it."""
    layout = Layout.of(sizes, family)
    draw = np.random.default_rng(seed)
    counts = draw.gamma(0.5, scale, layout.cells)
    residuals = transform.decompose(layout, counts, weights=np.ones(len(layout.sets)))
    least = transform.reconstruct(layout, residuals).min()
    residuals[0] += max(-least, 0.0) * max(np.prod(layout.shape(t), dtype=float) for t in range(len(layout.sets)))
    marginals = np.maximum(transform.reconstruct(layout, residuals), 0.0)
    return layout, marginals, transform.center(layout, marginals + draw.normal(0, 3, layout.cells))


@given(families(), seeds)
@settings(max_examples=60, deadline=None)
def test_every_residual_is_shrunk_as_the_plain_twin_says(problem, seed):
    layout, marginals, residuals = random_tables(*problem, seed)
    variances = np.random.default_rng(seed).uniform(1, 100, len(layout.sets))
    found = shrink_residuals(layout, residuals, marginals[: max(layout.inner_cells, 1)], variances)
    assert found[0] == residuals[0]
    for table, members in enumerate(layout.sets):
        if members and layout.degrees[table] > 0:
            names = [members[:j] + members[j + 1 :] for j in range(len(members))]
            facets = [layout.view(marginals, layout.places[name]) for name in names]
            predicted = fitted(facets, layout.shape(table))
            expected = shrunk(layout.view(residuals, table), predicted, variances[table])
            # A few dozen additions of numbers below 1e4, each rounded at 1e-16 of itself.
            np.testing.assert_allclose(layout.view(found, table), expected, atol=1e-9)


def test_a_variance_of_zero_keeps_a_residual_and_an_infinite_one_replaces_it_by_its_prediction():
    layout, marginals, residuals = random_tables((3, 4), [(0, 1)], 5)
    place = layout.places[(0, 1)]
    variances = np.zeros(len(layout.sets))
    np.testing.assert_array_equal(shrink_residuals(layout, residuals, marginals, variances), residuals)
    variances[place] = np.inf
    found = layout.view(shrink_residuals(layout, residuals, marginals, variances), place)
    rows, columns = layout.view(marginals, layout.places[(0,)]), layout.view(marginals, layout.places[(1,)])
    np.testing.assert_allclose(found, centred(np.outer(rows, columns) / marginals[0]), rtol=1e-12, atol=1e-12)


def test_smaller_tables_without_people_predict_nobody():
    layout = Layout.of((2, 3, 2), [(0, 1, 2)])
    found = shrink_residuals(layout, np.ones(layout.cells), np.zeros(layout.cells), np.full(len(layout.sets), np.inf))
    assert found[0] == 1
    np.testing.assert_array_equal(found[1:], 0)


def test_threads_do_not_change_a_digit(monkeypatch):
    monkeypatch.setattr(threads, "_CELLS_WORTH_A_THREAD", 1)
    sizes, family = (5, 4, 3, 6), list(combinations(range(4), 3))
    layout, marginals, residuals = random_tables(sizes, family, 3)
    variances = np.full(len(layout.sets), 9.0)
    monkeypatch.setenv("MARGRAVE_THREADS", "1")
    alone = shrink_residuals(layout, residuals, marginals, variances)
    monkeypatch.setenv("MARGRAVE_THREADS", "3")
    np.testing.assert_array_equal(shrink_residuals(layout, residuals, marginals, variances), alone)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 5)), min_size=1, max_size=GROUPS))
@settings(max_examples=60, deadline=None)
def test_pooling_is_isotonic_regression_over_the_groups_that_have_cells(pairs):
    values, weights = np.array(pairs, dtype=float).T.copy()
    live = weights > 0
    found = values.copy()
    pool_decreasing(found, weights)
    if live.any():
        expected = isotonic_regression(values[live], weights=weights[live]).x
        np.testing.assert_allclose(found[live], expected, atol=1e-8)  # means of numbers below 1e6


@pytest.mark.parametrize(
    ("predicted", "group"),
    [(0.0, 0), (1e-300, 0), (1.0, 12), (1.999, 12), (2.0, 13), (0.5, 11), (4096.0, 24), (1e300, 24), (np.inf, 24)],
)
def test_groups_are_powers_of_two(predicted, group):
    assert group_of(3.0 * predicted, 3.0) == group
