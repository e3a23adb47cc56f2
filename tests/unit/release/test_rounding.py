"""Whole numbers that keep the total: the largest remainders, the same every time."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from margrave.errors import ReleaseError
from margrave.release.table import round_to_total

counts = st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=40).map(np.array)


@given(counts)
def test_the_rounded_total_is_kept_and_no_cell_moves_by_one(table):
    rounded = round_to_total(table)
    assert rounded.sum() == round(sum(map(Fraction, table.tolist())))
    assert (rounded == np.floor(rounded)).all()
    assert (np.abs(rounded - table) < 1).all()
    whole = table == np.floor(table)
    assert (rounded[whole] == table[whole]).all()


@given(counts)
def test_no_cell_that_is_rounded_down_has_a_larger_remainder_than_one_that_is_rounded_up(table):
    remainder = table - np.floor(table)
    up = round_to_total(table) > np.floor(table)
    if up.any() and not up.all():
        assert remainder[up].min() >= remainder[~up].max()


def test_among_equal_remainders_the_first_cells_are_rounded_up():
    assert round_to_total(np.array([[0.5, 0.5], [0.5, 0.5]])).tolist() == [[1, 1], [0, 0]]
    assert round_to_total(np.array([1.25, 1.25, 1.25, 1.25])).tolist() == [2, 1, 1, 1]
    assert round_to_total(np.full(3, 1 / 3)).tolist() == [1, 0, 0]


def test_a_half_total_is_rounded_to_even():
    assert round_to_total(np.array([0.5, 2.0])).sum() == 2
    assert round_to_total(np.array([1.5, 2.0])).sum() == 4


def test_the_total_alone_is_rounded():
    assert round_to_total(np.array(7.6)) == 8
    assert round_to_total(np.array(7.6)).shape == ()


def test_negative_counts_are_refused():
    text = "the table has negative counts, and whole numbers are for tables without; reconstruct it with method='lnn'"
    with pytest.raises(ReleaseError, match=re.escape(text)):
        round_to_total(np.array([1.0, -0.1]))
