"""Cells of a noisy table: what is learned about the whole of it, and what that makes of each."""

import numpy as np
import pytest
from scipy.optimize import minimize

from margrave.reconstruction.denoising import denoise, hold_mean


@pytest.mark.parametrize("seed", range(6))
def test_the_mean_is_held_where_that_is_most_likely(seed):
    """Against a general solver: the largest Σ π log π' over the π' that sum to one and have a mean of one."""
    draw = np.random.default_rng(seed)
    means = np.array([0.0, 0.1, 0.5, 1.2, 5.0, 20.0])
    seen = draw.dirichlet(np.full(6, 0.7)) if seed else np.full(6, 1 / 6)
    found = seen.copy()
    hold_mean(means, found)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    assert found @ means == pytest.approx(1, abs=1e-9)
    solved = minimize(
        lambda log: -seen @ log,
        np.full(6, -2.0),
        jac=lambda _: -seen,
        constraints=[
            {"type": "eq", "fun": lambda log: np.exp(log).sum() - 1, "jac": np.exp},
            {"type": "eq", "fun": lambda log: np.exp(log) @ means - 1, "jac": lambda log: np.exp(log) * means},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    # Its optimum is flat: the likelihood is the thing to compare, and no other is higher.
    assert seen @ np.log(found) == pytest.approx(-solved.fun, abs=1e-6)


def test_a_mean_that_cannot_be_held_is_left():
    means = np.array([0.0, 1.25, 5.0])
    for seen in ([0.0, 0.5, 0.5], [1.0, 0.0, 0.0]):
        found = np.array(seen)
        hold_mean(means, found)
        np.testing.assert_array_equal(found, seen)


def test_mere_noise_leaves_what_was_expected():
    """Noise a thousand times the counts: little can be said of any cell, and all together keep about their sum."""
    draw = np.random.default_rng(1)
    expected = draw.gamma(2.0, size=100_000)
    found = denoise(expected + draw.normal(scale=2_000, size=100_000), expected, 4e6)
    assert found.sum() == pytest.approx(expected.sum(), rel=0.25)
    assert np.median(found / expected) == pytest.approx(1, abs=0.25)
    assert np.quantile(found / expected, 0.99) < 4


def test_a_cell_far_above_the_noise_of_a_large_table_is_kept_and_not_outgrown_by_the_others():
    """Four of five people in one cell of 400,000; the noise is a hundredth of it, and thousands of times the rest."""
    draw = np.random.default_rng(2)
    truth = np.full(400_000, 0.025)
    truth[1234] = 40_000.0
    noise = draw.normal(scale=400, size=truth.size)
    expected = np.full(truth.size, truth.mean())
    found = denoise(truth + noise - noise.mean(), expected, 160_000.0)
    assert found[1234] == pytest.approx(40_000, abs=4 * 400)
    assert found.sum() < 2 * truth.sum()


def test_a_table_without_noise_is_taken_as_it_is():
    draw = np.random.default_rng(3)
    truth = draw.gamma(0.5, size=(30, 20, 10)) * 100
    found = denoise(truth, np.full(truth.shape, truth.mean()), 1e-6)
    np.testing.assert_allclose(found, truth, rtol=1e-3, atol=1e-2)


def test_a_table_that_is_empty_but_for_one_slice_loses_the_noise_of_the_others():
    """Cells that are empty or large by turns: nearer to the truth than what was expected, and than the observation."""
    draw = np.random.default_rng(0)
    truth = np.full((300, 300, 3), 20.0)
    truth[..., 1:] = np.where(draw.random((300, 300, 2)) < 0.05, 400.0, 0.0)
    observed = truth + draw.normal(scale=15, size=truth.shape)
    error = np.abs(denoise(observed, np.full(truth.shape, truth.mean()), 225.0) - truth).mean()
    assert error < 0.6 * np.abs(observed - truth).mean()
