"""Intervals: their ends for the reader, and levels that are none (coverage: tests/laws/test_intervals.py)."""

import re

import numpy as np
import pytest

from margrave.errors import ReleaseError
from margrave.release.uncertainty import checked_level, normal_interval, quantile


def test_ends_are_rounded_inwards_where_a_whole_number_lies_inside_and_clipped_at_zero():
    # Half a normal distribution lies within 0.6745 standard deviations.
    wide = normal_interval(np.array([10.0, 0.4, -0.3, -7.0]), 2.0, 0.5)
    np.testing.assert_allclose(wide.low_raw, [8.651, -0.949, -1.649, -8.349], atol=1e-3)
    np.testing.assert_allclose(wide.high_raw, [11.349, 1.749, 1.049, -5.651], atol=1e-3)
    np.testing.assert_allclose(wide.low, [9, 0, 0, 0], atol=1e-3)
    np.testing.assert_allclose(wide.high, [11, 1, 1, 0], atol=1e-3)
    narrow = normal_interval(np.array([5.5, -0.5]), 0.1, 0.5)
    np.testing.assert_allclose(narrow.low, [5.4326, 0], atol=1e-3)
    np.testing.assert_allclose(narrow.high, [5.5674, 0], atol=1e-3)
    assert not np.signbit(wide.low).any()
    assert wide.level == 0.5
    assert wide.margin == pytest.approx(2 * 0.6744897501960817)


def test_ends_are_read_only():
    interval = normal_interval(np.zeros(2), 1.0, 0.9)
    for ends in (interval.low, interval.high, interval.low_raw, interval.high_raw):
        with pytest.raises(ValueError, match="read-only"):
            ends[0] = 1


@pytest.mark.parametrize(("level", "expected"), [(0.95, 1.959963985), (0.5, 0.674489750), (0.999, 3.290526731)])
def test_quantiles_are_those_of_the_normal_distribution(level, expected):
    assert quantile(level) == pytest.approx(expected, abs=1e-9)


def test_the_level_next_to_one_has_a_finite_quantile():
    assert 8 < quantile(np.nextafter(1.0, 0.0)) < 9


@pytest.mark.parametrize("level", [0, 1, 95, -0.5, float("nan"), "0.95", None, True])
def test_a_level_that_is_no_probability_is_refused(level):
    text = f"the level is {level!r}; give a probability above 0 and below 1, such as 0.95"
    with pytest.raises(ReleaseError, match=re.escape(text)):
        checked_level(level)
