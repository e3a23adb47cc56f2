"""ResidualPlanner measurements of a table, drawn in floating point: a stand-in for tests and benchmarks, not private.

The variances are the closed form of [RP] for the total variance of all cells (see shared reference values): with
p_τ = ∏_{k∈τ} (n_k − 1)/n_k and v_τ = Σ_{γ⊇τ} n_γ ∏_{k∈τ} (n_k − 1)/n_k ∏_{k∈γ∖τ} n_k⁻²,

    σ²_τ = (Σ √(p v) / 2ρ) · √(p_τ / v_τ).
"""

from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.domain import Domain


def zcdp_of(epsilon, delta=1e-9):
    """The ρ whose conversion to (ε, δ) by [ReM] Prop. 3 gives this ε; ε = 1 gives 0.014973."""

    def log_delta(rho):
        def exponent(log_a):
            a = 1 + np.exp(log_a)
            return (a - 1) * (a * rho - epsilon) + a * np.log1p(-1 / a) - np.log(a - 1)

        return minimize_scalar(exponent, bounds=(-10, 15), method="bounded").fun

    return brentq(lambda rho: log_delta(rho) - np.log(delta), 1e-8, 100)


def planned_variances(layout, rho):
    """σ²_τ of each residual of the closure for a workload of the outer tables."""
    cells = np.diff(layout.index.offset).astype(float)
    inside = np.arange(layout.index.axes.shape[1]) < layout.index.order[:, None]
    axes = layout.index.axes
    cost = np.where(inside, (axes - 1) / axes, 1.0).prod(axis=1)
    # n_γ ∏_{γ∖τ} n⁻² = n_τ² / n_γ, which is n_τ times the spectrum with weight one on each outer table
    weight = cost * cells * transform.tables_spectrum(layout, transform.outer_weights(layout))
    variances = np.zeros(len(cells))
    live = cost > 0
    variances[live] = np.sqrt(cost * weight)[live].sum() / (2 * rho) * np.sqrt(cost[live] / weight[live])
    return variances


def count_tables(layout, columns):
    """Exact counts of all tables of a closure from integer codes, one column per attribute."""
    tables = np.zeros(layout.cells)
    for place, attributes in enumerate(layout.sets):
        view = layout.view(tables, place)
        if attributes:
            flat = np.ravel_multi_index([columns[k] for k in attributes], view.shape)
            view[...] = np.bincount(flat, minlength=view.size).reshape(view.shape)
        else:
            view[...] = len(columns[0])
    return tables


def read_columns(table: Path, domain: Domain):
    """The integer codes of a data set, one array per attribute in domain order."""
    header = np.loadtxt(table, delimiter=",", dtype=str, max_rows=1, comments=None)
    codes = np.loadtxt(table, delimiter=",", dtype=np.int64, skiprows=1)
    return [np.ascontiguousarray(codes[:, list(header).index(name)]) for name in domain.attributes]


def measured_residuals(folder: Path, name: str, epsilon: float, *, seed: int = 0, order: int = 3):
    """Return the layout of all k-way tables of a data set, its true tables, noisy residuals and their variances."""
    domain = Domain.read(folder / f"{name}-domain.json")
    layout = Layout.of(domain.shape, list(combinations(range(len(domain)), order)))
    truth = count_tables(layout, read_columns(folder / f"{name}.csv.gz", domain))
    variances = planned_variances(layout, zcdp_of(epsilon))
    noise = np.random.default_rng(seed).normal(size=layout.cells)
    noise *= np.repeat(np.sqrt(variances), np.diff(layout.index.offset))
    residuals = transform.center(layout, truth + noise)
    return layout, truth, residuals, variances
