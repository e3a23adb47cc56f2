"""The paper's dual ascent, step by step in the paper's own matrices; what it refuses, and how it says that it diverges.

Tolerance: a few rounds on numbers of size about 10; the paper's (D Dᵀ)⁻¹ loses two or three digits of sixteen.
"""

import re

import numpy as np
import pytest
from dual_ascent import dual_ascent, largest_safe_step
from matrices import expand_matrix, full_difference

from margrave.algebra.layout import Layout
from margrave.algebra.transform import difference, integrate
from margrave.errors import ConvergenceError, ReleaseError
from margrave.reconstruction.estimates import Estimates

SIZES = (3, 2, 4)
LAYOUT = Layout.of(SIZES, [(0, 1), (1, 2)])
COUNTS = np.array([1, 2, 0, 1, 3, 0])


def draw(seed=0):
    generator = np.random.default_rng(seed)
    values = np.zeros(LAYOUT.cells)
    for table in np.flatnonzero(COUNTS).tolist():
        view = LAYOUT.view(values, table)
        view[...] = integrate(5 * generator.normal(size=[n - 1 for n in view.shape]))
    values[0] = 12.0
    return Estimates(LAYOUT, values, COUNTS, COUNTS.astype(np.float64))


def paper(estimates, tables, eta, rounds, step, initial):
    """Alg. GReM-LNN Dual Ascent by explicit matrices, with (Σ K⁻¹)⁻¹ and the factor 2 of the gradient."""
    workload = [LAYOUT.sets[table] for table in tables]
    multipliers = {gamma: np.full(np.prod([SIZES[k] for k in gamma], dtype=int), initial) for gamma in workload}
    for _ in range(rounds):
        alpha = {}
        for table, tau in enumerate(LAYOUT.sets):
            pull = sum(expand_matrix(SIZES, g, tau).T @ multipliers[g] for g in workload if set(tau) <= set(g))
            z, d = difference(LAYOUT.view(estimates.values, table)).ravel(), full_difference(SIZES, tau)
            if COUNTS[table]:
                precision = COUNTS[table] * np.linalg.inv(2.0 ** len(tau) * d @ d.T)
                alpha[tau] = z - np.linalg.solve(2 * precision, pull * np.ones_like(z))
            else:
                own = expand_matrix(SIZES, tau, tau)
                alpha[tau] = -np.linalg.solve(2 * eta * own.T @ own, pull * np.ones_like(z))
        marginals = {
            gamma: sum(expand_matrix(SIZES, gamma, tau) @ alpha[tau] for tau in alpha if set(tau) <= set(gamma))
            for gamma in LAYOUT.sets
        }
        multipliers = {gamma: np.minimum(multipliers[gamma] + step * marginals[gamma], 0) for gamma in workload}
    return np.concatenate([marginals[gamma] for gamma in LAYOUT.sets])


@pytest.mark.parametrize("rounds", [1, 2, 7])
@pytest.mark.parametrize("tables", [None, [0, 2, 4, 5], [1, 5]], ids=["outer", "nested", "one inner, one outer"])
def test_every_round_is_the_papers(rounds, tables):
    estimates = draw()
    given = {"eta": 3.0, "rounds": rounds, "step": 0.05, "initial": -0.4}
    found = dual_ascent(estimates, tables=tables, **given)
    expected = paper(estimates, range(LAYOUT.outer, len(LAYOUT.sets)) if tables is None else tables, **given)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_without_multipliers_the_first_round_is_maximum_likelihood():
    estimates = draw()
    found = dual_ascent(estimates, rounds=1, initial=0.0)
    table = LAYOUT.view(found, LAYOUT.places[(0, 1)])
    assert table.sum() == pytest.approx(12.0)
    assert table.min() < 0


def test_the_largest_safe_step_by_hand():
    """2h = (1/6 + 1/8)/1 for (), then ½/(2/2), (1/3 + 1/4)/η, ½/(1/2), then 1/(3/4) for (0, 1) and 1/η for (1, 2)."""
    assert LAYOUT.sets == ((), (0,), (1,), (2,), (0, 1), (1, 2))
    assert largest_safe_step(draw(), eta=40.0) == pytest.approx(2 / (2 / 3), rel=1e-14)
    assert largest_safe_step(draw(), eta=0.1) == pytest.approx(2 / 5, rel=1e-14)
    # With the table (0,) constrained too, h_0 grows by ½, and is the largest for a large η.
    assert largest_safe_step(draw(), tables=[1, 4, 5]) == pytest.approx(2 / 0.75, rel=1e-14)


@pytest.mark.parametrize("factor", [0.1, 0.99])
def test_a_safe_step_never_diverges(factor):
    found = dual_ascent(draw(1), rounds=500, step=factor * largest_safe_step(draw(1)))
    assert np.isfinite(found).all()


def test_a_step_that_is_too_long_says_which_one_is_not():
    estimates = draw()
    with pytest.raises(ConvergenceError) as caught:
        dual_ascent(estimates, eta=0.1, step=3.0)
    text = r"the dual ascent diverges at the step 3 \(round \d+\); the largest safe step is 0.4"
    assert re.fullmatch(text, str(caught.value))
    assert np.isfinite(dual_ascent(estimates, eta=0.1, step=0.4)).all()


def test_residuals_that_are_identically_zero_stay_so():
    layout = Layout.of((3, 1), [(0, 1)])
    values = np.array([6.0, 4.0, 0.0, -4.0, 0.0, 0.0, 0.0, 0.0])
    counts = np.array([1, 1, 0, 0])
    found = dual_ascent(Estimates(layout, values, counts, counts.astype(float)), step=0.2)
    np.testing.assert_allclose(layout.view(found, 3)[:, 0], layout.view(found, 1), atol=1e-12)
    assert layout.view(found, 2)[0] == pytest.approx(found[0])
    assert found.min() >= -1e-6


@pytest.mark.parametrize(
    ("rounds", "step", "initial"),
    [(0, 0.1, -1), (5, 0, -1), (5, np.nan, -1), (5, np.inf, -1), (5, 0.1, 1), (5, 1, -np.inf)],
)
def test_rounds_step_and_start_must_make_sense(rounds, step, initial):
    text = (
        f"rounds is {rounds!r}, step {step!r} and initial {initial!r}; give at least one round, a positive step and a"
    )
    with pytest.raises(ReleaseError, match=re.escape(text)):
        dual_ascent(draw(), rounds=rounds, step=step, initial=initial)


@pytest.mark.parametrize("tables", [[], [-1], [6]])
def test_tables_must_be_tables_of_the_layout(tables):
    text = f"tables is {tables!r}; give at least one table of the layout, a number from 0 to 5"
    with pytest.raises(ReleaseError, match=re.escape(text)):
        dual_ascent(draw(), tables=tables)


def test_eta_must_be_positive():
    with pytest.raises(ReleaseError, match=re.escape("eta is 0.0 or a weight is not positive")):
        dual_ascent(draw(), eta=0.0)
