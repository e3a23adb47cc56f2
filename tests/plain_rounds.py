"""A round of the non-negative solver by plain numpy, and states to try it on."""

import numpy as np
import pytest

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.reconstruction.nonnegative import Problem, Splitting

SHAPES = {
    "order 0": ((3,), [()]),
    "order 1": ((5, 2), [(0,), (1,)]),
    "order 2": ((3, 4, 2), [(0, 1), (1, 2)]),
    "order 3": ((3, 4, 2, 5), [(0, 1, 2), (1, 2, 3)]),
    "order 4": ((3, 2, 4, 2), [(0, 1, 2, 3)]),
    "order 5": ((2, 3, 1, 4, 2), [(0, 1, 2, 3, 4)]),
    "order 6": ((2, 3, 2, 2, 3, 2), [(0, 1, 2, 3, 4, 5)]),
    "mixed orders": ((3, 2, 4, 2, 3), [(0, 1, 2, 3), (1, 2, 4), (0, 4), (3, 4)]),
    "sizes of one": ((1, 3, 1, 2), [(0, 1, 2, 3), ()]),
}
shapes = pytest.mark.parametrize(("sizes", "family"), SHAPES.values(), ids=SHAPES)


def random_state(sizes, family):
    """Rounds with random residuals, weights (one infinite), penalties and state of the outer tables."""
    generator = np.random.default_rng(len(sizes))
    layout = Layout.of(sizes, family)
    z = transform.center(layout, generator.normal(size=layout.cells))
    weights = generator.uniform(0.3, 3, size=len(layout.sets))
    weights[len(weights) // 2] = np.inf
    penalties = transform.outer_weights(layout) * generator.uniform(0.1, 4, size=len(weights))
    point = generator.normal(size=layout.cells - layout.inner_cells)
    return Splitting(Problem(layout, z, weights), point, penalties)


def per_cell(layout, values):
    """One number a table, repeated for the cells of the outer tables."""
    return np.repeat(values, np.diff(layout.index.offset))[layout.inner_cells :]


def per_table(layout, cells):
    """Sums of the cells of each outer table."""
    return np.add.reduceat(cells, layout.index.offset[layout.outer : -1] - layout.inner_cells)


def plain_residuals(problem, penalties, v):
    """r_τ = (w z + S_ρᵀ |v|) / (w + h), table by table."""
    layout = problem.layout
    tables = np.concatenate([np.zeros(layout.inner_cells), np.abs(v)])
    pulled = transform.adjoint(layout, tables, weights=penalties)
    spectrum = transform.tables_spectrum(layout, penalties)
    residuals = problem.z.copy()
    for t in np.flatnonzero(np.isfinite(problem.weights)).tolist():
        w = problem.weights[t]
        mine = w * layout.view(problem.z, t) + layout.view(pulled, t)
        layout.view(residuals, t)[...] = mine / (w + spectrum[t])
    return residuals


def plain_round(problem, penalties, v, relaxation=1.7, following=None):
    """x and v⁺ of the outer tables, cell by cell."""
    layout = problem.layout
    x = transform.reconstruct(layout, plain_residuals(problem, penalties, v))[layout.inner_cells :]
    new = v + relaxation * (x - np.maximum(v, 0))
    if following is not None:
        new = np.where(new < 0, new * per_cell(layout, penalties / np.where(following > 0, following, 1)), new)
    return x, new


def plain_loss(problem, residuals):
    """f(r) = Σ w_τ ‖r_τ − z_τ‖² over the residuals that are not held."""
    layout, free = problem.layout, np.flatnonzero(np.isfinite(problem.weights)).tolist()
    pieces = [slice(*layout.index.offset[t : t + 2]) for t in free]
    squares = (((residuals[piece] - problem.z[piece]) ** 2).sum() for piece in pieces)
    return float(sum(problem.weights[t] * one for t, one in zip(free, squares, strict=True)))


def plain_bound(problem, multipliers):
    """g(λ) = −Σ ½ κ ‖m‖² − Σ m·z with m = Sᵀ λ."""
    layout = problem.layout
    tables = np.concatenate([np.zeros(layout.inner_cells), multipliers])
    pulled = transform.adjoint(layout, tables, weights=transform.outer_weights(layout))
    norms = np.array([(layout.view(pulled, t) ** 2).sum() for t in range(len(layout.sets))])
    return float(-0.5 * problem.curvatures @ norms - pulled @ problem.z)


def multipliers_of(rounds):
    """λ = −2 ρ min(v, 0) of the outer tables."""
    return -2 * per_cell(rounds.problem.layout, rounds.penalties) * np.minimum(rounds.point, 0)
