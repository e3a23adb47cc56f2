"""What stages learn from noisy values: the number of people, expected counts, and tables of one another."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import truncnorm

import margrave as mg
from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.measurements.measurements import Measurements
from margrave.planning.stages import _histogram, learned_curves, likely_rows


def noisy_total(value, variance):
    domain = mg.Domain.fromdict({"a": 2})
    return Measurements.from_residuals(domain, [((), float(value), mg.Gaussian(variance))])


@pytest.mark.parametrize("deviations", [-20.0, -3.0, -0.5, 0.0, 0.7, 2.0, 12.0])
def test_the_number_of_people_is_the_mean_of_a_normal_total_that_is_positive(deviations):
    deviation = 1_000.0
    expected = truncnorm(-deviations, np.inf, loc=deviations * deviation, scale=deviation).mean()
    # The library loses digits far from the mean: at 20 deviations there are eleven left.
    assert likely_rows(noisy_total(deviations * deviation, deviation**2)) == pytest.approx(expected, rel=1e-9)


def test_there_is_at_least_one_person():
    assert likely_rows(noisy_total(-5, 0.01)) == 1.0


def test_counts_of_different_octaves_are_kept_apart_and_all_are_there():
    """From just above what is left out to the last half octave but one; larger ones share the last."""
    powers = 2.0 ** np.arange(-19, 30)
    counts, cells = _histogram(np.concatenate([powers, powers, [2.0**40, 3 * 2.0**40, 2.0**-21, 0.0]]))
    np.testing.assert_array_equal(counts, [*powers, 2.0**41])
    np.testing.assert_array_equal(cells, 2.0)


def test_tables_that_stray_say_that_others_of_their_order_may():
    """One pair is measured with so much noise that its own value says nothing: it is taken for what the others are."""
    sizes = (4, 4, 4, 4)
    layout, draw = Layout.of(sizes, list(combinations(range(4), 2))), np.random.default_rng(4)
    domain = mg.Domain.fromdict({f"a{k}": size for k, size in enumerate(sizes)})
    unclear = layout.places[(0, 1)]
    pairs = [table for table, members in enumerate(layout.sets) if len(members) == 2 and table != unclear]
    left = []
    for strays in (0.0, 300.0):
        values = np.zeros(layout.cells)
        values[layout.index.offset[layout.places[()]]] = 16_000.0
        for table in pairs:
            layout.view(values, table)[...] = strays * draw.standard_normal(layout.shape(table))
        precisions = np.where(np.arange(len(layout.sets)) == unclear, 1e-12, 1.0)
        often = np.ones(len(layout.sets), dtype=np.int64)
        centred = transform.center(layout, values)
        noisy = Measurements.from_centered(domain, layout, values=centred, precisions=precisions, counts=often)
        left.append(learned_curves(layout, noisy).squared_errors(np.zeros(len(layout.sets)))[unclear])
    assert 0 < left[0] < left[1] / 2
