r"""What a residual costs in privacy, and what its noise does to the tables: the numbers that a plan is based on.

Write n_τ = ∏_{k∈τ} n_k for the cells of a table, and c for the rows that one person may have. Residual τ is measured
as an array of integers H v + (independent discrete Gaussians with parameter g²), where v is the marginal on τ, and

    H = ⊗_{k∈τ} (n_k I − 11ᵀ) = n_τ C_τ,    so that the residual itself has covariance σ²_τ C_τ with σ²_τ = g²/n_τ².

One row moves v by one unit vector and H v by a column of H, whose squared length is ∏_{k∈τ} n_k(n_k − 1). The discrete
Gaussian costs Δ²/2g² of zCDP ([CKS], the multivariate one), and c rows of one person move H v by at most c columns:

    ρ_τ = c² ∏_{k∈τ} n_k(n_k − 1) / 2g²                                       exactly, in integers                (1)
        = c² p_τ / 2σ²_τ,      p_τ = ∏_{k∈τ} (n_k − 1)/n_k                    as in [RP], whose pcost is 2ρ       (2)

A cell of the maximum-likelihood table on γ is a sum of independent residuals, as in [RP]:

    Var_γ = Σ_{τ⊆γ} σ²_τ p_τ ∏_{k∈γ∖τ} n_k⁻² = Σ_{τ⊆γ} σ²_τ p_τ (n_τ/n_γ)²                                        (3)

and with importance Imp_A of a cell's variance in table A, the noise of τ weighs

    Σ_A Imp_A Var_A = Σ_τ v_τ σ²_τ,      v_τ = p_τ Σ_{A⊇τ} Imp_A (n_τ/n_A)².                                      (4)

A residual with an attribute of one value has p_τ = 0: it is identically zero, costs nothing and is not measured. The
total has p_∅ = 1, so every workload has something to measure. Law: tests/laws/test_planning.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import fsum, prod
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats, Index, compiled, subset_tables
from margrave.errors import PlanError

if TYPE_CHECKING:
    from margrave.algebra.layout import Layout


def checked_contributions(contributions: object) -> int:
    """Return c, the most rows that one person has, if it is a whole number from one; every cost depends on it."""
    if isinstance(contributions, bool) or not isinstance(contributions, int | np.integer) or contributions < 1:
        raise PlanError(
            f"contributions is {contributions!r}",
            remedy="give the most rows that one person has, a whole number of at least 1",
        )
    return int(contributions)


def squared_sensitivity(shape: Iterable[int]) -> int:
    """Return ∏ n_k(n_k − 1): the squared length by which one row moves the integer residual of a table."""
    return prod(size * (size - 1) for size in shape)


def exact_cost(shape: Iterable[int], noise: Fraction, contributions: int) -> Fraction:
    """Return the zCDP cost of measuring one integer residual, equation (1), as an exact fraction.

    Parameters
    ----------
    shape
        The sizes n_k of the attributes of the residual.
    noise
        g², the parameter of the discrete Gaussian on each entry; positive.
    contributions
        c, the most rows that one person has.
    """
    return Fraction(contributions**2 * squared_sensitivity(shape)) / (2 * noise)


def cost_coefficients(layout: Layout) -> Floats:
    """Return p_τ of each residual of a closure, equation (2); shape (tables,), zero where there is nothing to measure.

    Whole numbers below 2⁵⁰ divided once: relative error at most 2⁻⁵³.
    """
    return layout.degrees / cell_counts(layout)


def cell_counts(layout: Layout) -> Floats:
    """Return n_τ of each table of a closure; shape (tables,), exact since a closure has at most 2⁵⁰ cells."""
    return np.diff(layout.index.offset).astype(np.float64)


def unit_costs(layout: Layout, noise: Floats) -> Floats:
    """Return p_τ n_τ²/2g²_τ, the cost (1) at c = 1 as a float; shape (tables,), infinite where noise is missing.

    Parameters
    ----------
    layout
        The closure.
    noise
        Shape (tables,); g² of each residual, ignored where there is nothing to measure.
    """
    cost = cost_coefficients(layout) * cell_counts(layout) ** 2
    return np.divide(cost, 2 * noise, out=np.where(cost > 0, np.inf, 0.0), where=(cost > 0) & (noise > 0))


def cost_bound(layout: Layout, noise: Floats) -> float:
    """Return a number that the exact sum of all costs at c = 1 does not exceed.

    A cost takes five operations, each off by at most 2⁻⁵³ of itself, and the terms are added without error and rounded
    once. Raising the sum by 2⁻⁴⁰ of itself covers all of it with room to spare.
    """
    return fsum(unit_costs(layout, noise)) * (1 + 2.0**-40)


def cell_variances(layout: Layout, variances: Floats) -> Floats:
    """Return the variance of a cell of each table of a closure, equation (3); shape (tables,).

    Parameters
    ----------
    layout
        The closure.
    variances
        Shape (tables,); σ²_τ of each residual, zero where nothing is measured.
    """
    cells = cell_counts(layout)
    sums = np.empty(len(cells))
    terms = transform.one_per_table(layout, variances) * cost_coefficients(layout) * cells**2
    add_subsets(layout.index, terms, sums)
    return sums / cells**2


def variance_coefficients(layout: Layout, importance: Floats) -> Floats:
    """Return v_τ, the weight of each residual's variance in the sum over all tables, equation (4); shape (tables,).

    Parameters
    ----------
    layout
        The closure.
    importance
        Shape (tables,); Imp_A of each table, zero for those that do not count.
    """
    cells = cell_counts(layout)
    # The spectrum Σ_{A⊇τ} a_A n_τ/n_A with a_A = Imp_A/n_A lacks one factor n_τ.
    return cost_coefficients(layout) * cells * transform.tables_spectrum(layout, importance / cells)


def largest_weights(layout: Layout, weights: Floats) -> Floats:
    """Return for each table A of a closure max w_γ over the tables γ that contain A; shape (tables,).

    Parameters
    ----------
    layout
        The closure.
    weights
        Shape (tables,); w_γ of each table.
    """
    largest = weights.copy()
    # By falling order, so that every table comes before its facets.
    for table in np.argsort(-layout.index.order, kind="stable").tolist():
        facets = layout.index.facet[table, : layout.index.order[table]]
        largest[facets] = np.maximum(largest[facets], largest[table])
    return largest


@compiled
def add_subsets(index: Index, terms: Floats, sums: Floats) -> None:
    """Write the sum of ``terms`` over all tables inside a table, itself included, to ``sums``, for each table."""
    subsets = np.empty(1 << index.axes.shape[1], dtype=np.int64)
    for table in range(len(terms)):
        subset_tables(table, index, subsets)
        total = 0.0
        for mask in range(1 << index.order[table]):
            total += terms[subsets[mask]]
        sums[table] = total
