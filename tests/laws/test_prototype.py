"""On one noise draw of a real table, a plain accelerated gradient and the solver reach the same tables.

The twin shares nothing with the solver but the measurements: S is a sparse matrix made of index arithmetic, its
transpose the adjoint, the step is one over the largest eigenvalue. It needs no lift: for *any* λ ≥ 0 and any
non-negative tables μ' with residuals r',

    f(r') − g(λ) = λ·μ' + Σ w_τ ‖r'_τ − r_τ(λ)‖²,                                                                  (1)

so that the solver's loss less the twin's dual bounds the weighted distance of the two, and each proves the other.
"""

from math import prod

import numpy as np
import pytest
from datasets import need_dataset
from planner import measured_residuals
from scipy import sparse

from margrave.algebra import transform
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.nonnegative import Status, reconstruct_nonnegative

ROUNDS = 1000


class Twin:
    """Accelerated gradient with restart on the dual, in plain numpy."""

    def __init__(self, layout, z, weights):
        self.layout, self.z = layout, z
        lengths = np.diff(layout.index.offset)
        self.weights = np.repeat(weights, lengths)
        rows, columns, shares, top = [], [], [], 0
        for gamma in layout.sets[layout.outer :]:
            shape = tuple(layout.sizes[k] for k in gamma)
            cells = np.indices(shape).reshape(len(gamma), -1)
            for table in layout.subsets(layout.places[gamma]):
                tau = layout.sets[table]
                inside = [cells[gamma.index(k)] for k in tau]
                place = np.ravel_multi_index(inside, layout.shape(table)) if tau else 0 * cells[0]
                rows.append(top + np.arange(prod(shape)))
                columns.append(layout.index.offset[table] + place)
                shares.append(np.full(prod(shape), lengths[table] / prod(shape)))
            top += prod(shape)
        entries = (np.concatenate(shares), (np.concatenate(rows), np.concatenate(columns)))
        self.synthesis = sparse.csr_matrix(entries, shape=(top, layout.cells))
        self.adjoint = self.synthesis.T.tocsr()
        # S has orthogonal columns on centred arrays; the norm of one of τ's is the sum of n_τ/n_γ.
        eigenvalues = np.add.reduceat(self.adjoint @ np.ones(top), layout.index.offset[:-1]) / lengths
        self.largest = float((eigenvalues / (2 * weights)).max())
        self.spectrum = eigenvalues

    def residuals(self, multipliers):
        moves = self.adjoint @ multipliers
        for _, table in self.layout.views(moves):
            for axis in range(table.ndim):
                table -= table.mean(axis=axis, keepdims=True)
        return self.z + moves / (2 * self.weights)

    def solve(self, rounds):
        multipliers = ahead = np.zeros(self.synthesis.shape[0])
        since = 0
        for _ in range(rounds):
            new = np.maximum(ahead - self.synthesis @ self.residuals(ahead) / self.largest, 0)
            since = 1 if (ahead - new) @ (new - multipliers) > 0 else since + 1
            ahead = new + (since - 1) / (since + 2) * (new - multipliers)
            multipliers = new
        return multipliers

    def loss(self, residuals):
        return float(self.weights @ (residuals - self.z) ** 2)


@pytest.mark.engines
@pytest.mark.parametrize("base", [2.0, 4.0, 8.0])
def test_the_solver_and_a_plain_gradient_give_the_same_tables_of_titanic(base):
    table, _ = need_dataset("titanic")
    layout, truth, z, variances = measured_residuals(table.parent, "titanic", 1.0)
    measured = (layout.degrees > 0).astype(np.int64)
    precisions = np.divide(1.0, variances, out=np.zeros_like(variances), where=variances > 0)
    solution = reconstruct_nonnegative(Estimates(layout, z, measured, precisions), weights=base, tolerance=1e-5)
    assert solution.status is Status.SOLVED
    assert (solution.marginals >= 0).all()

    twin = Twin(layout, z, base ** -layout.index.order.astype(float))
    multipliers = twin.solve(ROUNDS)
    residuals = twin.residuals(multipliers)
    ours = transform.center(layout, solution.marginals)
    outer = solution.marginals[layout.inner_cells :]
    np.testing.assert_allclose(twin.synthesis @ ours, outer, rtol=0, atol=1e-9 * solution.marginals[0])

    # The twin's dual, from its Lagrangian, is a bound that owes nothing to the solver's own certificate.
    tables = twin.synthesis @ residuals
    dual = twin.loss(residuals) - float(multipliers @ tables)
    loss = twin.loss(ours)
    between = loss - dual
    distance = float(twin.weights @ (ours - residuals) ** 2)
    # Twice the gap that was asked for, the other half for what the twin lacks itself.
    assert 0 <= between <= 2e-5 * loss
    assert distance <= between * (1 + 1e-6)

    # ‖S d‖² = Σ h_τ ‖d_τ‖² ≤ max (h/w) · distance; that is what (1) says about cells.
    per_residual = twin.spectrum / base ** -layout.index.order.astype(float)
    difference = outer - tables
    assert float(difference @ difference) <= per_residual.max() * distance * (1 + 1e-6)

    # In the figure that counts, the mean L1 error over the 84 tables, near 1: the rounds left change the third digit.
    assert np.abs(difference).sum() / truth[0] / 84 < 1e-2
    error = np.abs(outer - truth[layout.inner_cells :]).sum() / truth[0] / 84
    assert 0.5 < error < 2.5
