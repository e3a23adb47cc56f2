"""The mathematics of shrinkage: maximum entropy, the departure that is estimated, and the risk that is saved."""

import numpy as np
import pytest
from scipy.optimize import minimize

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.reconstruction.prior.fitting import fit_facets
from margrave.reconstruction.prior.shrinkage import CYCLES, shrink_residuals

SHAPE = (2, 2, 3)
LAYOUT = Layout.of(SHAPE, [(0, 1, 2)])


def prediction(counts):
    """The table of most entropy that has the facets of ``counts``."""
    residuals = transform.decompose(LAYOUT, np.concatenate([np.zeros(LAYOUT.inner_cells), counts.ravel()]))
    marginals = transform.reconstruct(LAYOUT, residuals)
    table, index, place = np.ones(counts.size), LAYOUT.index, LAYOUT.places[(0, 1, 2)]
    fit_facets(table, index.axes[place], marginals, index.offset[index.facet[place]], 0.0, CYCLES)
    return table.reshape(SHAPE)


def interactions(table):
    """The three-way part of the logarithms: zero where the facets say all."""
    parts = np.log(table)
    for axis in range(3):
        parts = parts - parts.mean(axis=axis, keepdims=True)
    return parts


@pytest.mark.parametrize("seed", range(3))
def test_a_prediction_has_the_facets_and_no_interaction_of_all_attributes(seed):
    counts = np.random.default_rng(seed).uniform(5, 50, SHAPE)
    found = prediction(counts)
    # Eight cycles of IPF: the facets are met to better than a hundredth, the family without interaction exactly.
    for axis in range(3):
        np.testing.assert_allclose(found.sum(axis=axis), counts.sum(axis=axis), rtol=1e-2)
    np.testing.assert_allclose(interactions(found), 0, atol=1e-12)


def test_a_prediction_has_the_most_entropy_of_all_tables_with_its_facets():
    """A general solver on entropy over the two degrees of freedom that the facets leave."""
    counts = np.random.default_rng(1).uniform(5, 50, SHAPE)
    found = prediction(counts)
    sign = np.array([1.0, -1.0])
    moves = [np.einsum("i,j,k->ijk", sign, sign, np.array(along)) for along in ([1.0, -1, 0], [0.0, 1, -1])]

    def negative_entropy(steps):
        table = np.maximum(counts + steps[0] * moves[0] + steps[1] * moves[1], 1e-9)
        return (table * np.log(table)).sum()

    best = minimize(negative_entropy, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
    np.testing.assert_allclose(found, counts + best.x[0] * moves[0] + best.x[1] * moves[1], rtol=1e-2)


def risks(spread, *, draws=200, size=40):
    """Mean squared error of measured and of shrunk two-way residuals whose departure from independence has a spread."""
    layout = Layout.of((size, size), [(0, 1)])
    place, draw = layout.places[(0, 1)], np.random.default_rng(8)
    one_way = 1000.0 / np.arange(1, size + 1)
    marginals = np.zeros(layout.cells)
    marginals[0] = one_way.sum()
    for attribute in range(2):
        layout.view(marginals, layout.places[(attribute,)])[...] = one_way
    independent = np.outer(one_way, one_way) / one_way.sum()
    measured = saved = 0.0
    for _ in range(draws):
        truth = np.zeros(layout.cells)
        layout.view(truth, place)[...] = independent + spread * draw.normal(size=(size, size))
        truth = transform.center(layout, truth)
        noisy = transform.center(layout, truth + draw.normal(size=layout.cells))
        found = shrink_residuals(layout, noisy, marginals, np.array([0.0, 0.0, 0.0, 1.0]))
        measured += ((layout.view(noisy, place) - layout.view(truth, place)) ** 2).sum()
        saved += ((layout.view(found, place) - layout.view(truth, place)) ** 2).sum()
    degrees = draws * (size - 1) ** 2
    return measured / degrees, saved / degrees


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0, 3.0, 30.0])
def test_the_risk_is_that_of_the_best_linear_factor(spread):
    """With noise of variance one the best factor has risk v/(v + 1), v the squared spread; measuring alone has one.

    200 draws of 1,521 degrees: a mean of squares is known to √(2/304,200) = 0.26 %, and five times that is allowed. The
    factor itself is estimated, for each of some ten groups: at most ten groups × 2 of 1,521 degrees, 1.4 %.
    """
    measured, saved = risks(spread)
    best = spread**2 / (spread**2 + 1)
    assert measured == pytest.approx(1, abs=0.013)
    assert best - 0.013 <= saved <= best + 0.013 + 0.014
