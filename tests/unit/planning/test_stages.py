"""What is learned for the next stage: how much a table may still tell, by how far it strays from what is expected."""

from itertools import combinations

import numpy as np
import pytest

import margrave as mg
from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.measurements.measurements import Measurements
from margrave.planning.stages import PRIORS, _posteriors, learned_curves

SIZES = (4, 5)


def measured(table, precision=1.0):
    """Measurements of all residuals of a table, without noise but said to have some."""
    domain = mg.Domain.fromdict({f"a{k}": size for k, size in enumerate(table.shape)})
    layout = Layout.of(table.shape, [tuple(range(table.ndim))])
    sums = [table.sum(axis=tuple(k for k in range(table.ndim) if k not in members)).ravel() for members in layout.sets]
    residuals = transform.center(layout, np.concatenate(sums).astype(float))
    tables = len(layout.sets)
    noisy = Measurements.from_centered(
        domain,
        layout,
        values=residuals,
        precisions=np.full(tables, precision),
        counts=np.ones(tables, dtype=np.int64),
    )
    return layout, noisy


def left_to_learn(table):
    """The error of the pair that is expected where nothing more is measured of it."""
    layout, noisy = measured(table)
    return learned_curves(layout, noisy).squared_errors(np.zeros(len(layout.sets)))[layout.places[(0, 1)]]


def test_a_pair_that_is_as_expected_has_less_to_tell_than_one_that_strays():
    first, second = np.array([0.6, 0.2, 0.15, 0.05]), np.array([0.5, 0.3, 0.1, 0.06, 0.04])
    independent = 10_000 * np.outer(first, second)
    moved = independent.copy()
    moved[0, 0] += 400
    moved[1, 1] += 400
    moved[0, 1] -= 400
    moved[1, 0] -= 400
    draw = np.random.default_rng(3)
    assert 0 < left_to_learn(draw.poisson(independent)) < left_to_learn(draw.poisson(moved)) / 4


def test_tables_of_any_order_have_something_to_tell():
    layout, noisy = measured(np.random.default_rng(1).integers(1, 50, size=(2, 3, 2, 3)))
    errors = learned_curves(layout, noisy).squared_errors(np.zeros(len(layout.sets)))
    assert (errors > 0).all()


@pytest.mark.parametrize("order", [2, 3])
def test_what_a_table_is_taken_for_has_probabilities_that_add_up_to_one(order):
    draw = np.random.default_rng(2)
    likelihoods = {table: draw.normal(size=len(PRIORS[order])) - 5 for table in range(3)}
    tables = dict(enumerate(combinations(range(4), order)))
    found = _posteriors(likelihoods, tables, [3, 9, 2, 40], PRIORS[order])
    assert found.keys() == tables.keys()
    for probabilities in found.values():
        assert probabilities.sum() == pytest.approx(1)
        assert (probabilities > 0).all()
