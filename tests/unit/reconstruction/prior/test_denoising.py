"""Cells of a noisy table: what is learned about the whole of it, and what that makes of each."""

import numpy as np
import pytest
from scipy.optimize import minimize

from margrave.reconstruction.prior.denoising import _MEANS, denoise, hold_mean


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


@pytest.mark.parametrize("share", [1e-8, 1e-5, 1e-2])
def test_the_mean_is_held_by_components_with_hardly_anybody_in_them(share):
    for other in (4, 16):
        prior = np.zeros(_MEANS.size)
        prior[[-1, other]] = (share, 1 - share) if other == 4 else (1 - share, share)
        hold_mean(_MEANS, prior)
        assert prior @ _MEANS == pytest.approx(1, rel=1e-3)
        assert prior.sum() == pytest.approx(1)


def test_a_small_count_is_kept_however_little_was_expected():
    expected = np.full(1_000, 2.0**-25)
    observed = np.random.default_rng(4).normal(size=1_000)
    observed[7] = 40.0
    assert denoise(observed, expected, 1.0)[7] == pytest.approx(40, abs=1)


def test_a_mean_that_cannot_be_held_is_left():
    means = np.array([0.0, 1.25, 5.0])
    for seen in ([0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]):
        found = np.array(seen)
        hold_mean(means, found)
        np.testing.assert_array_equal(found, seen)


@pytest.mark.parametrize("cells", [100, 10_000, 300_000])
@pytest.mark.parametrize("people", [3, 30, 300])
def test_mere_noise_leaves_what_was_expected(cells, people):
    """Everybody together is so many standard deviations of one cell: nothing can be said, and nothing is."""
    draw = np.random.default_rng(cells + people)
    expected = draw.gamma(2.0, size=cells)
    deviation = expected.sum() / people
    noise = draw.normal(scale=deviation, size=cells)
    found = denoise(expected + noise - noise.mean(), expected, deviation**2)
    assert found.sum() == pytest.approx(expected.sum(), rel=0.25)
    # A table of a hundred cells is told apart from noise by less than all its people, and two cells are added to it.
    distance = np.abs(found * (expected.sum() / found.sum()) - expected).sum() / expected.sum()
    assert distance < (0.3 if cells == 100 else 0.05)


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
