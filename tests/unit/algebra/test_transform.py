"""What the transforms refuse, and that they write where they are told."""

import numpy as np
import pytest

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.errors import MeasurementError


@pytest.fixture
def layout():
    return Layout.of((2, 3, 2), [(0, 1), (1, 2)])


def test_results_can_be_written_in_place(layout):
    tables = np.random.default_rng(0).normal(size=layout.cells)
    fresh = transform.decompose(layout, tables)
    assert transform.decompose(layout, tables, out=tables) is tables
    np.testing.assert_array_equal(tables, fresh)
    marginals = transform.reconstruct(layout, fresh)
    assert transform.reconstruct(layout, fresh, out=fresh) is fresh
    np.testing.assert_array_equal(fresh, marginals)


def test_a_weight_for_each_table_is_asked_for(layout):
    with pytest.raises(
        MeasurementError, match=rf"one number per table has shape \({len(layout.sets)},\), this array has \(2,\)"
    ):
        transform.decompose(layout, np.zeros(layout.cells), weights=np.ones(2))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_marginal_that_is_not_finite_is_refused(bad):
    with pytest.raises(MeasurementError, match="NaN or infinity"):
        transform.decompose_marginal(np.array([[1.0, bad], [0.0, 2.0]]))


def test_residuals_that_do_not_fit_are_named():
    with pytest.raises(MeasurementError, match=r"a table of 2 axes has no residual over the axes \(0, 2\)"):
        transform.reconstruct_marginal({(0, 2): np.zeros((2, 2))}, (2, 3))
    with pytest.raises(MeasurementError, match=r"residual over the axes \(1,\) has shape \(3,\), not \(2,\)"):
        transform.reconstruct_marginal({(1,): np.zeros(2)}, (2, 3))


def test_missing_residuals_count_as_zero():
    np.testing.assert_array_equal(transform.reconstruct_marginal({(): np.array(6.0)}, (2, 3)), np.ones((2, 3)))
