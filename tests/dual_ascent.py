r"""GReM-LNN by the paper's own dual ascent, its slips mended: the reference for tests and experiments, not the default.

The algorithm "GReM-LNN Dual Ascent" of [ReM] app. F minimises the losses under μ = S r ≥ 0 with multipliers λ ≤ 0, a
constant step s and T rounds:

    α_τ = argmin of the Lagrangian,      μ = S α,      λ ← min(λ + s μ, 0).                                        (1)

In centred arrays, with K = 2^|τ| D Dᵀ and so (α − z)ᵀ K⁻¹ (α − z) = 2^(−|τ|) ‖r − z‖², the k_τ losses of a measured
residual add up to k_τ 2^(−|τ|) ‖r − z̄‖² and a constant, and the penalty on one that was not measured is
η ‖A_{νν} α_ν‖² = η ‖r_ν‖². With w_τ = k_τ 2^(−|τ|) or η, setting the gradient 2 w_τ (r_τ − z̄_τ) + (Sᵀ λ)_τ to zero,

    r_τ = z̄_τ − (Sᵀ λ)_τ / (2 w_τ).                                                                               (2)

The paper prints (Σ K)⁻¹ where (Σ K⁻¹)⁻¹ is meant, and leaves the 2 out of (2) where τ was measured; that would weigh
measured residuals half as much as the objective says. z̄ is the plain mean of the measurements, `mean_residuals`.

(1) is projected gradient ascent. The Hessian has the eigenvalues h_τ = Σ_{γ⊇τ} (n_τ/n_γ) / (2 w_τ), so that a step of
at most 2 / max h never moves two points apart: changes of λ do not grow. A longer one, the paper's too, may diverge.
There is no certificate, and negative cells may be left; ``nonnegative`` mends both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats
from margrave.errors import ConvergenceError, ReleaseError
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.nonnegative import solver_weights

# Changes of the multipliers never grow with a safe step; this much growth is no accident.
_DIVERGED = 10.0


def dual_ascent(
    estimates: Estimates,
    *,
    tables: Sequence[int] | None = None,
    eta: float = 40.0,
    rounds: int = 4000,
    step: float = 0.1,
    initial: float = -1.0,
) -> Floats:
    """Return the marginals of the closure after the last round, shape (layout.cells,); some may be negative.

    Parameters
    ----------
    estimates
        The residuals to be near to.
    tables
        Tables of the layout that must not be negative; by default the outer ones, which imply all others.
    eta
        η, the weight of residuals that were never measured.
    rounds
        T, how many rounds to do.
    step
        s, the step; see `largest_safe_step`.
    initial
        Where all multipliers start, zero or below.
    """
    layout = estimates.layout
    if not (rounds >= 1 and 0 < step < math.inf and -math.inf < initial <= 0):
        raise ReleaseError(
            f"rounds is {rounds!r}, step {step!r} and initial {initial!r}; give at least one round, a positive step "
            "and a start of at most zero"
        )
    constrained = _constrained(estimates, tables)
    weights = solver_weights(estimates, weights="paper", eta=eta, hold=())
    # A table without constraint keeps the multipliers zero, and its weight of zero leaves them out of the adjoint.
    steps = np.repeat(step * constrained, np.diff(layout.index.offset))
    multipliers = np.where(steps > 0, initial, 0.0)
    first_change = math.inf
    for number in range(rounds):
        marginals = transform.adjoint(layout, multipliers, weights=constrained, factors=-0.5 / weights)
        marginals += estimates.values
        transform.reconstruct(layout, marginals, out=marginals)
        moved = np.minimum(multipliers + steps * marginals, 0.0)
        change = float(np.linalg.norm(moved - multipliers))
        if number == 0:
            first_change = change
        if not change <= _DIVERGED * first_change:
            safe = largest_safe_step(estimates, tables=tables, eta=eta)
            raise ConvergenceError(
                f"the dual ascent diverges at the step {step:.4g} (round {number + 1}); "
                f"the largest safe step is {safe:.4g}"
            )
        multipliers = moved
    return marginals


def largest_safe_step(estimates: Estimates, *, tables: Sequence[int] | None = None, eta: float = 40.0) -> float:
    """Return 2 / max h, the largest step with which `dual_ascent` cannot diverge."""
    weights = solver_weights(estimates, weights="paper", eta=eta, hold=())
    spectrum = transform.tables_spectrum(estimates.layout, _constrained(estimates, tables))
    return float(2.0 / (0.5 / weights * spectrum).max())


def _constrained(estimates: Estimates, tables: Sequence[int] | None) -> Floats:
    """Return one for each table that must not be negative and zero for the others, shape (tables,)."""
    layout = estimates.layout
    if tables is None:
        return transform.outer_weights(layout)
    if not tables or not all(0 <= table < len(layout.sets) for table in tables):
        raise ReleaseError(
            f"tables is {list(tables)!r}; give at least one table of the layout, "
            f"a number from 0 to {len(layout.sets) - 1}"
        )
    constrained = np.zeros(len(layout.sets))
    constrained[list(tables)] = 1.0
    return constrained
