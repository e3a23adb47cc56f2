"""ReM's theorem: residuals estimated one by one minimise the sum of all losses over all data vectors ([ReM] Thm. 1).

The judge is a general solver on the whole problem, Clarabel or scipy, over p in R^n. Tolerances: Clarabel stops at a
gap of 1e-11, which leaves the objective (about 10) right to 1e-8 and, by its quadratic growth, tables to 1e-5.
"""

import clarabel
import numpy as np
import pytest
from matrices import full_difference, marginal_matrix, residual_matrix
from scipy import sparse
from scipy.optimize import minimize

from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.measurements import Gaussian, Laplace, Measurements
from margrave.reconstruction.estimates import combine, determined, estimate_residuals, maximum_likelihood

SIZES = (3, 2, 2)
DOMAIN = Domain.fromdict({"a0": 3, "a1": 2, "a2": 2})


class LogCosh:
    """A smooth loss of one's own: Σ log cosh((α − z)/width), nearly Laplace far out and Gaussian near by."""

    def __init__(self, width):
        self.width = width

    def loss(self, residual, observed):
        x = (residual - observed) / self.width
        return float(np.sum(np.logaddexp(x, -x)))

    def gradient(self, residual, observed):
        return np.tanh((residual - observed) / self.width) / self.width


def random_covariance(generator, size):
    root = generator.normal(size=(size, size))
    return root @ root.T + 0.3 * np.eye(size)


def degrees(tau):
    return int(np.prod([SIZES[k] - 1 for k in tau]))


def random_measurements(generator, kinds):
    """One to three measurements, with noise of these kinds, of the residuals of a random half of all sets."""
    sets = [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    chosen = [tau for tau in sets if generator.random() < 0.6] or [()]
    entries = []
    for tau in chosen:
        for _ in range(generator.integers(1, 4)):
            kind, m = generator.choice(kinds), degrees(tau)
            noise = {
                "isotropic": lambda: Gaussian(generator.uniform(0.2, 3)),
                "general": lambda m=m: Gaussian(covariance=random_covariance(generator, m)),
                "laplace": lambda: Laplace(generator.uniform(0.2, 3)),
                "own": lambda: LogCosh(generator.uniform(0.3, 2)),
            }[kind]()
            entries.append((tau, 2 * generator.normal(size=[SIZES[k] - 1 for k in tau]), noise))
    return entries


def objective(entries, answer):
    """Σ_τ L_τ of residual answers given by set."""
    return sum(noise.loss(answer(tau).reshape(z.shape), z) for tau, z, noise in entries)


def solve_globally(entries):
    """The minimum over p by Clarabel: ½ Σ (R p − z)ᵀ Σ⁻¹ (R p − z) + Σ t/scale with −t ≤ R p − z ≤ t."""
    n = int(np.prod(SIZES))
    laplace = [(tau, z, noise) for tau, z, noise in entries if isinstance(noise, Laplace)]
    slack = sum(z.size for _, z, _ in laplace)
    quadratic, linear = np.zeros((n + slack, n + slack)), np.zeros(n + slack)
    left, right, begin = [], [], n
    for tau, z, noise in entries:
        r = residual_matrix(SIZES, tau)
        if isinstance(noise, Laplace):
            t = np.zeros((z.size, n + slack))
            t[:, begin : begin + z.size] = np.eye(z.size)
            rows = np.hstack([r, np.zeros((z.size, slack))])
            left += [rows - t, -rows - t]
            right += [z.ravel(), -z.ravel()]
            linear[begin : begin + z.size] = 1 / noise.scale
            begin += z.size
        else:
            d = full_difference(SIZES, tau)
            precision = np.linalg.inv(noise.covariance if noise.variance is None else noise.variance * d @ d.T)
            quadratic[:n, :n] += r.T @ precision @ r
            linear[:n] -= r.T @ precision @ z.ravel()
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    matrix = np.vstack(left) if left else np.zeros((1, n + slack))
    limit = np.concatenate(right) if right else np.ones(1)
    solver = clarabel.DefaultSolver(
        sparse.triu(sparse.csc_matrix(quadratic)).tocsc(),
        linear,
        sparse.csc_matrix(matrix),
        limit,
        [clarabel.NonnegativeConeT(len(limit))],
        settings,
    )
    return np.array(solver.solve().x)[:n]


def reconstruct(entries):
    """Estimates and all tables of the whole domain."""
    triples = [([f"a{k}" for k in tau], z, noise) for tau, z, noise in entries]
    layout = Layout.of(SIZES, [(0, 1, 2)])
    estimates = estimate_residuals(Measurements.from_residuals(DOMAIN, triples), layout)
    return layout, estimates, maximum_likelihood(estimates)


def answers_of(layout, marginals):
    """R_τ p̂ from the reconstructed marginal of each set."""
    return lambda tau: full_difference(SIZES, tau) @ layout.view(marginals, layout.places[tau]).ravel()


MIXTURES = {
    "isotropic": ["isotropic"],
    "general": ["isotropic", "general"],
    "laplace": ["laplace"],
    "laplace and isotropic": ["laplace", "isotropic"],
    "laplace, general and isotropic": ["laplace", "general", "isotropic"],
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kinds", MIXTURES.values(), ids=MIXTURES)
def test_the_reconstruction_minimises_the_sum_of_all_losses(kinds, seed):
    entries = random_measurements(np.random.default_rng(seed), kinds)
    layout, estimates, marginals = reconstruct(entries)
    vector = solve_globally(entries)
    ours = objective(entries, answers_of(layout, marginals))
    theirs = objective(entries, lambda tau: residual_matrix(SIZES, tau) @ vector)
    assert ours == pytest.approx(theirs, rel=1e-7, abs=1e-7)
    assert ours <= theirs + 1e-8
    curved = {tau for tau, _, noise in entries if isinstance(noise, Gaussian)}
    for place in np.flatnonzero(determined(estimates)).tolist():
        # One Gaussian term makes the minimiser unique; medians alone may leave an interval.
        if all(layout.sets[part] in curved for part in layout.subsets(place)):
            expected = marginal_matrix(SIZES, layout.sets[place]) @ vector
            np.testing.assert_allclose(layout.view(marginals, place).ravel(), expected, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kinds", [["own"], ["own", "isotropic", "general"]], ids=["own", "own and Gaussian"])
def test_losses_of_ones_own_are_minimised_too(kinds, seed):
    entries = random_measurements(np.random.default_rng(seed), kinds)
    layout, _, marginals = reconstruct(entries)

    def whole(vector):
        slopes = [
            residual_matrix(SIZES, tau).T
            @ noise.gradient((residual_matrix(SIZES, tau) @ vector).reshape(z.shape), z).ravel()
            for tau, z, noise in entries
        ]
        return objective(entries, lambda tau: residual_matrix(SIZES, tau) @ vector), sum(slopes)

    best = minimize(whole, np.zeros(int(np.prod(SIZES))), jac=True, method="BFGS", options={"gtol": 1e-9})
    # BFGS stops at its own rounding, 1e-8 of an objective of about 10.
    assert objective(entries, answers_of(layout, marginals)) <= best.fun + 1e-7
    assert objective(entries, answers_of(layout, marginals)) == pytest.approx(best.fun, rel=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_laplace_with_a_smooth_loss_of_ones_own_is_stationary(seed):
    """Moving any coordinate by a millionth of its size, either way, gains nothing."""
    generator = np.random.default_rng(seed)
    shape = (3, 4)
    terms = [(100 * generator.normal(size=shape), LogCosh(20.0)), (100 * generator.normal(size=shape), Laplace(30.0))]
    terms += [(100 * generator.normal(size=shape), Laplace(generator.uniform(10, 60))) for _ in range(seed % 4)]
    terms += [(100 * generator.normal(size=shape), Gaussian(900.0))] if seed % 2 else []
    found = combine(terms, "the residual of a × b")

    def total(alpha):
        return sum(noise.loss(alpha, observed) for observed, noise in terms)

    for place in np.ndindex(*shape):
        for step in (-1e-4, 1e-4):
            moved = found.copy()
            moved[place] += step
            assert total(moved) >= total(found) - 1e-11


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_axis_with_laplace_and_gaussian_noise_reaches_a_millionth(seed):
    """D Dᵀ of forty values has condition 600 an axis; the answer is compared with that of Clarabel."""
    generator = np.random.default_rng(seed)
    m = 39
    d = np.eye(m, m + 1) - np.eye(m, m + 1, 1)
    z, first, second = (10 * generator.normal(size=m) for _ in range(3))
    found = combine([(z, Gaussian(4.0)), (first, Laplace(2.0)), (second, Laplace(5.0))], "the residual of a")
    precision = np.linalg.inv(4.0 * d @ d.T)
    quadratic = sparse.block_diag([precision, np.zeros((2 * m, 2 * m))]).tocsc()
    eye, zero = np.eye(m), np.zeros((m, m))
    matrix = np.block([[eye, -eye, zero], [-eye, -eye, zero], [eye, zero, -eye], [-eye, zero, -eye]])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    solver = clarabel.DefaultSolver(
        sparse.triu(quadratic).tocsc(),
        np.concatenate([-precision @ z, np.full(m, 0.5), np.full(m, 0.2)]),
        sparse.csc_matrix(matrix),
        np.concatenate([first, -first, second, -second]),
        [clarabel.NonnegativeConeT(4 * m)],
        settings,
    )
    expected = np.array(solver.solve().x)[:m]
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
