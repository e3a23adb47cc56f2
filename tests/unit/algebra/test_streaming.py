"""Streaming gives what the whole transform gives, from arrays, memory maps and iterators, in any batch size."""

import numpy as np
import pytest

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.algebra.transform import stream_marginals
from margrave.errors import MeasurementError

SIZES = (3, 4, 2, 5, 1, 3)
FAMILY = [(0, 1, 2), (0, 3), (1, 2, 3, 5), (4,), (2, 4, 5)]


@pytest.fixture
def layout():
    return Layout.of(SIZES, FAMILY)


@pytest.fixture
def residuals(layout):
    return transform.center(layout, np.random.default_rng(0).normal(size=layout.cells))


def split(layout, residuals):
    return residuals[: layout.inner_cells], residuals[layout.inner_cells :]


@pytest.mark.parametrize("batch_cells", [1, 30, 10**6])
def test_an_array_of_outer_residuals_streams_to_the_same_marginals(layout, residuals, batch_cells):
    whole = dict(layout.views(transform.reconstruct(layout, residuals)))
    inner, outer = split(layout, residuals)
    seen = {a: m.copy() for a, m in stream_marginals(layout, inner, outer, batch_cells=batch_cells)}
    assert list(seen) == list(layout.sets)
    for attributes, marginal in seen.items():
        np.testing.assert_array_equal(marginal, whole[attributes])


def test_an_iterator_of_tables_streams_to_the_same_marginals(layout, residuals):
    whole = dict(layout.views(transform.reconstruct(layout, residuals)))
    inner, _ = split(layout, residuals)
    tables = (layout.view(residuals, t) for t in range(layout.outer, len(layout.sets)))
    for attributes, marginal in stream_marginals(layout, inner, tables, batch_cells=40):
        np.testing.assert_array_equal(marginal, whole[attributes])


def test_a_memory_map_is_read_and_left_unchanged(layout, residuals, tmp_path):
    inner, outer = split(layout, residuals)
    outer.tofile(tmp_path / "outer")
    mapped = np.memmap(tmp_path / "outer", dtype=np.float64, mode="r")
    whole = dict(layout.views(transform.reconstruct(layout, residuals)))
    for attributes, marginal in stream_marginals(layout, inner, mapped, batch_cells=40):
        np.testing.assert_array_equal(marginal, whole[attributes])
    np.testing.assert_array_equal(mapped, outer)


def test_wrong_input_is_named(layout, residuals):
    inner, outer = split(layout, residuals)
    with pytest.raises(
        MeasurementError, match=rf"inner residuals have shape \({layout.inner_cells},\), these have \(1,\)"
    ):
        list(stream_marginals(layout, np.zeros(1), outer))
    with pytest.raises(MeasurementError, match=rf"outer residuals have shape \({outer.size},\), these have \(2,\)"):
        list(stream_marginals(layout, inner, np.zeros(2)))
    tables = [layout.view(residuals, t) for t in range(layout.outer, len(layout.sets))]
    with pytest.raises(MeasurementError, match="ended 1 tables too early"):
        list(stream_marginals(layout, inner, tables[:-1]))
    with pytest.raises(MeasurementError, match=f"more outer residuals than the {len(tables)} outer tables"):
        list(stream_marginals(layout, inner, [*tables, tables[0]]))
    with pytest.raises(MeasurementError, match=r"residual number 0 of the outer tables has shape \(9,\)"):
        list(stream_marginals(layout, inner, [np.zeros(9)]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_residual_that_is_not_a_number_is_refused(layout, residuals, bad):
    inner, outer = split(layout, residuals)
    spoilt = outer.copy()
    spoilt[3] = bad
    with pytest.raises(MeasurementError, match="NaN or infinity"):
        list(stream_marginals(layout, inner, spoilt))
    with pytest.raises(MeasurementError, match="NaN or infinity"):
        list(stream_marginals(layout, np.full(layout.inner_cells, bad), outer))
