"""Proportional fitting finds the table of least relative entropy; denoising is the posterior mean of its prior."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import LinearConstraint, minimize

from margrave.algebra.layout import Layout
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.prior import denoising
from margrave.reconstruction.prior.completion import _Cascade
from margrave.reconstruction.prior.denoising import denoise, learned_prior, posterior
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


def posterior_mean(y, q, prior):
    """E[μ | y] for noise of variance one, by numerical integration of the prior's definition."""
    top = weight = 0.0
    for low, high, share in zip(denoising._EDGES[:-1], denoising._EDGES[1:], prior[:-1], strict=True):
        begin, end = max(low * q, y - 12), min(high * q, y + 12)
        if begin < end and share > 0:
            scale = share / (q * (high - low))
            weight += scale * quad(lambda mu: math.exp(-0.5 * (y - mu) ** 2), begin, end, epsabs=0)[0]
            top += scale * quad(lambda mu: mu * math.exp(-0.5 * (y - mu) ** 2), begin, end, epsabs=0)[0]
    return top / (weight + prior[-1] * math.exp(-0.5 * y**2))


def test_the_looked_up_estimate_is_the_posterior_mean():
    generator = np.random.default_rng(1)
    prior = np.zeros(len(denoising._EDGES))
    prior[[*range(11), -1]] = generator.dirichlet(np.ones(12))
    q = 2.0 ** generator.uniform(-6, 6, 200)
    y = q + 3 * generator.normal(size=200)
    found = np.empty(200)
    denoising.look_up(y, q, 1.0, *posterior(prior), found)
    expected = [posterior_mean(*pair, prior) for pair in zip(y, q, strict=True)]
    # Linear interpolation on steps of 0.05 in asinh d and half an octave in u: the mean bends where y is at the edge of
    # an interval, where that costs up to a third of a deviation, and hardly anything elsewhere.
    np.testing.assert_allclose(found, expected, atol=0.4)
    assert np.abs(found - expected).mean() < 0.03


def test_far_below_the_noise_the_estimate_keeps_its_digits():
    """A millionth of the noise: steps of the grid are larger than the estimate itself, and must not show."""
    generator = np.random.default_rng(3)
    prior = np.zeros(len(denoising._EDGES))
    prior[[2, 3, 4, -1]] = 0.2, 0.5, 0.1, 0.2
    q = 2.0 ** generator.uniform(-25, -10, 200)
    y = 2 * generator.normal(size=200)
    found = np.empty(200)
    denoising.look_up(y, q, 1.0, *posterior(prior), found)
    expected = np.array([posterior_mean(*pair, prior) for pair in zip(y, q, strict=True)])
    np.testing.assert_allclose(found / q, expected / q, rtol=5e-3)


def test_the_prior_learned_has_at_least_the_likelihood_of_the_one_that_made_the_cells():
    generator = np.random.default_rng(2)
    made = np.zeros(len(denoising._EDGES))
    made[[2, 4, -1]] = 0.3, 0.18125, 0.51875
    assert made @ denoising._MEANS == 1
    component = generator.choice(made.size, 50_000, p=made)
    low, high = (np.append(edge, 0.0)[component] for edge in (denoising._EDGES[:-1], denoising._EDGES[1:]))
    q = 2.0 ** generator.uniform(0, 6, component.size)
    y = q * generator.uniform(low, high) + generator.normal(size=component.size)
    seen = np.zeros(denoising._SHAPE)
    denoising.bin_cells(y, q, 1.0, seen)
    likelihood = denoising._grid().likelihood
    score = [
        float(np.sum(seen * np.log(np.maximum(likelihood @ prior, 1e-300)))) for prior in (learned_prior(seen), made)
    ]
    # EM has not quite converged after its rounds; a thousandth a cell is allowed.
    assert score[0] > score[1] - 1e-3 * component.size
    found = learned_prior(seen)
    # Zero and next to zero, the first interval, cannot be told apart through the noise.
    np.testing.assert_allclose([found[2], found[4], found[0] + found[-1]], [0.3, 0.2, 0.5], atol=0.05)


@pytest.mark.parametrize(("noise", "least", "most"), [(1e-3, 0.9, 1.0), (1e4, 0.0, 0.1)], ids=["precise", "noise"])
def test_precise_observations_are_kept_and_mere_noise_gives_what_was_expected(noise, least, most):
    generator = np.random.default_rng(3)
    expected = np.full((40, 50), 100.0)
    truth = expected * generator.gamma(2.0, 0.5, expected.shape)
    observed = truth + noise * generator.normal(size=expected.shape)
    found = denoise(observed, expected, noise**2)
    assert (found >= 0).all()
    kept = np.linalg.norm(found / found.mean() * 100 - expected) / np.linalg.norm(observed - expected)
    assert least <= kept <= most


def test_cells_that_were_expected_empty_stay_empty():
    found = denoise(np.array([5.0, -5.0, 7.0]), np.array([0.0, 0.0, 6.0]), 1.0)
    assert np.array_equal(found[:2], [0.0, 0.0])
    assert found[2] > 0


def test_observations_beyond_the_grid_are_taken_as_they_are():
    expected = np.ones(3)
    found = denoise(np.array([1e9, -1e9, 1.0]), expected, 1e-2)
    assert found[0] == 1e9
    assert found[1] == pytest.approx(0.0, abs=1e-8)


def test_large_tables_are_learned_from_a_part_of_their_cells():
    generator = np.random.default_rng(4)
    expected = np.full(500_001, 3.0)
    observed = expected * generator.gamma(0.5, 2.0, expected.size) + generator.normal(size=expected.size)
    whole, part = denoise(observed, expected, 1.0), denoise(observed[:200_000], expected[:200_000], 1.0)
    # Both priors are estimates from about 200,000 cells: they agree to a few hundredths of a deviation.
    np.testing.assert_allclose(whole[:200_000], part, atol=0.1)


def test_smaller_tables_become_the_mean_of_least_variance_of_what_the_larger_ones_say():
    """A cell of a facet is a sum of n cells of variance 1/π: the weights of its estimates are those of least squares.

    Pairs (a, b), (a, c) and (a, d) of noise 1/π_ab and so on are measured, nothing else; of the sums over b, c and d,
    with covariance diag(n_b/π_ab, n_c/π_ac, n_d/π_ad), generalised least squares makes the best mean.
    """
    sizes, pairs = (3, 2, 5, 7), [(0, 1), (0, 2), (0, 3)]
    layout, draw = Layout.of(sizes, pairs), np.random.default_rng(6)
    places = [layout.places[pair] for pair in pairs]
    counts, precisions = np.zeros(len(layout.sets), dtype=np.int64), np.zeros(len(layout.sets))
    counts[places], precisions[places] = 1, [4.0, 0.5, 9.0]
    cascade = _Cascade(Estimates(layout, np.zeros(layout.cells), counts, precisions), 100.0)
    for place in places:
        cascade._view(place)[...] = draw.uniform(1, 9, layout.shape(place))
    sums = np.array([cascade._view(place).sum(axis=1) for place in places])
    inverse = np.linalg.inv(np.diag(np.array(sizes[1:]) / precisions[places]))
    ones = np.ones((3, 1))
    best = np.linalg.solve(ones.T @ inverse @ ones, ones.T @ inverse @ sums)[0]
    informed, weights = cascade._averaged(places, precisions)
    facet = layout.places[(0,)]
    assert informed == [layout.places[(k,)] for k in range(4)]
    np.testing.assert_allclose(cascade._view(facet), best, rtol=1e-12)
    # The precision of the mean, with which it goes into the next smaller table.
    assert weights[facet] == pytest.approx(inverse.sum(), rel=1e-12)
