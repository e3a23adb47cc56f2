"""The baselines: no negative cell, and the estimated total in every table."""

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.methods.maximum_likelihood import truncate, truncate_and_rescale

LAYOUT = Layout.of((3, 2), [(0, 1)])


def tables(*rows):
    """The closure's tables of a 3 × 2 table."""
    table = np.array(rows, dtype=float)
    parts = {(): table.sum(), (0,): table.sum(axis=1), (1,): table.sum(axis=0), (0, 1): table}
    return np.concatenate([np.ravel(parts[attributes]) for attributes in LAYOUT.sets])


def test_truncation_sets_negative_cells_to_zero_and_nothing_else():
    marginals = tables([1, -2], [3, 4], [-5, 6])
    expected = np.where(marginals < 0, 0, marginals)
    assert truncate(marginals) is marginals
    assert np.array_equal(marginals, expected)


def test_rescaling_gives_every_table_the_estimated_total():
    marginals = truncate_and_rescale(LAYOUT, tables([1, -2], [3, 4], [-5, 6]))
    assert (marginals >= 0).all()
    for _, table in LAYOUT.views(marginals):
        assert table.sum() == pytest.approx(7.0, rel=1e-15)
    table = LAYOUT.view(marginals, LAYOUT.places[(0, 1)])
    np.testing.assert_allclose(table, np.array([[1, 0], [3, 4], [0, 6]]) * 7 / 14, rtol=1e-15)


@pytest.mark.parametrize("rows", [([1, -2], [3, -9], [-5, 6]), ([1, -1], [2, -2], [0, 0])], ids=["below", "zero"])
def test_a_total_that_is_not_above_zero_makes_all_cells_zero(rows):
    assert not truncate_and_rescale(LAYOUT, tables(*rows)).any()


def test_a_table_without_a_positive_cell_stays_zero():
    marginals = tables([1, 1], [1, 1], [1, 1])
    LAYOUT.view(marginals, LAYOUT.places[(0,)])[...] = 0.0
    truncate_and_rescale(LAYOUT, marginals)
    assert not LAYOUT.view(marginals, LAYOUT.places[(0,)]).any()
    assert LAYOUT.view(marginals, LAYOUT.places[(1,)]).sum() == pytest.approx(6.0)
