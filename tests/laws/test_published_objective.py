"""weights="paper" minimises the objective that was published, the sum over all measurements, each with the same weight.

    minimise  Σ_τ Σ_i 2^(−|τ|) (R_τ p − z_{τ,i})ᵀ (D_τ D_τᵀ)⁻¹ (R_τ p − z_{τ,i})  +  η Σ_{ν not measured} ‖D_ν⁺ R_ν p‖²

over p ≥ 0. Where the workload is the whole domain, p is its table, and this is a non-negative least-squares problem
with a row for every measurement: slow and obvious.
"""

import re

import numpy as np
import pytest
from matrices import full_difference, residual_matrix, subsets
from scipy.optimize import nnls

import margrave as mg
from margrave.errors import ReleaseError
from margrave.methods import NonNegative

SIZES = {"a": 2, "b": 3, "c": 2}
SHAPE = tuple(SIZES.values())
DOMAIN = mg.Domain.fromdict(SIZES)
EVERYTHING = mg.Workload(DOMAIN, [tuple(SIZES)])
TIGHT = {"tolerance": 1e-10, "max_steps": 100_000}


def named(tau):
    return tuple(DOMAIN.names(tau))


def brute_force(measured, eta):
    """The table of all attributes with the least published objective; ``measured`` are pairs (τ, z)."""
    rows, right = [], []
    for tau in subsets(range(3)):
        root = np.linalg.pinv(full_difference(SHAPE, tau))  # ‖D⁺ α‖² = αᵀ (D Dᵀ)⁻¹ α
        own = [z for members, z in measured if members == tau]
        for z in own:
            rows.append(2 ** (-len(tau) / 2) * root @ residual_matrix(SHAPE, tau))
            right.append(2 ** (-len(tau) / 2) * root @ np.ravel(z))
        if not own:
            rows.append(eta**0.5 * root @ residual_matrix(SHAPE, tau))
            right.append(np.zeros(root.shape[0]))
    found, _ = nnls(np.vstack(rows), np.concatenate(right), maxiter=10_000)
    return found.reshape(SHAPE)


def solved(noisy, **options):
    return (
        mg.reconstruct(noisy, EVERYTHING, method=NonNegative(weights="paper", **TIGHT, **options)).table(*SIZES).values
    )


def test_two_measurements_of_the_total_count_alike():
    domain = mg.Domain.fromdict({"a": 2})
    both = [((), 2.0, mg.Gaussian(1.0)), ((), 8.0, mg.Gaussian(100.0))]
    noisy = mg.Measurements.from_residuals(domain, both)
    workload = mg.Workload(domain, [()])
    found = {
        weights: float(mg.reconstruct(noisy, workload, method=NonNegative(weights=weights)).table().values)
        for weights in ("paper", "noise", 2.0)
    }
    # By inverse variance (2 + 8/100)/(1 + 1/100).
    assert found == {"paper": pytest.approx(5.0), "noise": pytest.approx(2.08 / 1.01), 2.0: pytest.approx(2.08 / 1.01)}
    assert float(mg.reconstruct(noisy, workload, method="mle").table().values) == pytest.approx(2.08 / 1.01)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("eta", [40.0, 0.3])
def test_residuals_of_any_noise_against_brute_force(eta, seed):
    draw = np.random.default_rng(seed)
    measured, entries = [], []
    for tau in subsets(range(3)):
        for _ in range(draw.integers(1 if tau == () else 0, 4)):
            z = draw.normal(20 if tau == () else 0, 10, [SHAPE[k] - 1 for k in tau])
            size = z.size
            root = draw.normal(size=(size, size))
            noises = [
                mg.Gaussian(10 ** draw.uniform(-2, 2)),
                mg.Laplace(3.0),
                mg.Gaussian(covariance=root @ root.T + np.eye(size)),
            ]
            measured.append((tau, z))
            entries.append((named(tau), z, noises[draw.choice(3, p=[0.6, 0.2, 0.2])]))
    expected = brute_force(measured, eta)
    assert (expected == 0).any()
    found = solved(mg.Measurements.from_residuals(DOMAIN, entries), eta=eta)
    # A gap of 1e-10 of a loss of about 1e3, with weights of at least 1/8: cells within √(1e-7 · 8 · 8).
    np.testing.assert_allclose(found, expected, atol=3e-3)


@pytest.mark.parametrize("seed", range(5))
def test_marginals_that_overlap_and_repeat_against_brute_force(seed, tmp_path):
    draw = np.random.default_rng(seed)
    families = [(), (0,), (0, 1), (0, 1), (1, 2), (0, 1, 2), (2,), (2,)]
    tables = [
        (members, draw.normal(3, 4, [SHAPE[k] for k in members]), 10 ** draw.uniform(-2, 2)) for members in families
    ]
    measured = []
    for members, table, _ in tables:
        for tau in subsets(members):
            summed = table.sum(axis=tuple(axis for axis, k in enumerate(members) if k not in tau))
            measured.append((tau, full_difference(SHAPE, tau) @ summed.ravel()))
    noisy = mg.Measurements.from_marginals(
        DOMAIN, [(named(members), table, variance) for members, table, variance in tables]
    )
    expected = brute_force(measured, 40.0)
    np.testing.assert_allclose(solved(noisy), expected, atol=3e-3)
    # A file keeps what the objective needs.
    noisy.save(tmp_path / "noisy.npz")
    np.testing.assert_allclose(solved(mg.Measurements.load(tmp_path / "noisy.npz")), expected, atol=3e-3)


def test_error_bars_stand_on_the_best_estimate_all_the_same():
    both = [((), 2.0, mg.Gaussian(1.0)), ((), 8.0, mg.Gaussian(100.0))]
    noisy, workload = mg.Measurements.from_residuals(DOMAIN, both), mg.Workload(DOMAIN, [()])
    release = mg.reconstruct(noisy, workload, method=NonNegative(weights="paper"))
    row = release.table().to_arrow().to_pylist()[0]
    assert row["count"] == pytest.approx(5.0)
    assert row["estimate"] == pytest.approx(2.08 / 1.01)


def test_a_file_without_the_means_is_read_and_says_what_it_lacks(tmp_path):
    both = [((), 2.0, mg.Gaussian(1.0)), ((), 8.0, mg.Gaussian(100.0)), (("a",), [1.0], mg.Gaussian(1.0))]
    mg.Measurements.from_residuals(DOMAIN, both).save(tmp_path / "noisy.npz")
    with np.load(tmp_path / "noisy.npz") as file:
        arrays = {name: file[name] for name in file.files if name != "averages"}
    np.savez(tmp_path / "old.npz", **arrays)
    old = mg.Measurements.load(tmp_path / "old.npz")
    assert old.averages is None
    text = "weights 'paper' need the plain mean of repeated measurements of a residual, and these measurements do not"
    with pytest.raises(ReleaseError, match=re.escape(text)):
        mg.reconstruct(old, EVERYTHING, method=NonNegative(weights="paper"))
    release = mg.reconstruct(old, EVERYTHING, method=NonNegative(weights=2.0))
    assert release.table().values == pytest.approx(2.08 / 1.01, rel=0.2)
