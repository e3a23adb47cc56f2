r"""Error bars: the exact variance and covariance of cells of the maximum-likelihood tables.

The estimate of residual τ has covariance σ²_τ C_τ with σ²_τ = 1/π_τ, estimates of different residuals are independent,
and μ̂_γ = Σ_{τ⊆γ} broadcast(r̂_τ) n_τ/n_γ. An entry of C_τ is ∏_{k∈τ} (1[a_k = b_k] − 1/n_k). Therefore

    Cov(μ̂_A(a), μ̂_B(b)) = Σ_{τ⊆A∩B} σ²_τ ∏_{k∈τ} (1[a_k = b_k] − 1/n_k) ∏_{k∈A∖τ} n_k⁻¹ ∏_{k∈B∖τ} n_k⁻¹           (1)
    Var(μ̂_γ(a))          = Σ_{τ⊆γ} σ²_τ p_τ ∏_{k∈γ∖τ} n_k⁻²,      p_τ = ∏_{k∈τ} (n_k − 1)/n_k,                    (2)

the same for all cells of a table. A table with a residual that was never measured is not unbiased, and has no error
bars; nor has one with noise that has no single variance. Law: tests/laws/test_uncertainty.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from margrave.errors import ReleaseError
from margrave.reconstruction.losses import Estimates


def cell_variance(estimates: Estimates, table: int) -> float:
    """Return the variance of a cell of a maximum-likelihood table, equation (2); NaN where it has none.

    Parameters
    ----------
    estimates
        The estimated residuals.
    table
        Number of the table in the layout of the estimates.
    """
    layout = estimates.layout
    cells = math.prod(layout.shape(table))
    variance = 0.0
    for part in layout.subsets(table):
        inside = math.prod(layout.shape(part))
        variance += _variance(estimates, part) * float(layout.degrees[part]) / inside * (inside / cells) ** 2
    return variance


def covariance(estimates: Estimates, one: Mapping[int, int], other: Mapping[int, int]) -> float:
    """Return the covariance of two cells of maximum-likelihood tables, equation (1); NaN where a table has none.

    Parameters
    ----------
    estimates
        The estimated residuals.
    one, other
        A cell of a table of the closure: the code of each of its attributes, by domain position.
    """
    layout = estimates.layout
    first, second = (_table(estimates, cell) for cell in (one, other))
    if math.isnan(cell_variance(estimates, first)) or math.isnan(cell_variance(estimates, second)):
        return math.nan
    shares = math.prod(layout.shape(first)) * math.prod(layout.shape(second))
    total = 0.0
    for part in set(layout.subsets(first)) & set(layout.subsets(second)):
        attributes = layout.sets[part]
        centred = math.prod(float(one[k] == other[k]) - 1 / layout.sizes[k] for k in attributes)
        total += _variance(estimates, part) * centred * math.prod(layout.shape(part)) ** 2 / shares
    return total


def _variance(estimates: Estimates, part: int) -> float:
    """Return σ²_τ of one residual: zero if it has no degree of freedom, NaN if it is not known."""
    if estimates.layout.degrees[part] == 0:
        return 0.0
    precision = float(estimates.precisions[part])
    return 1 / precision if precision > 0 else math.nan


def _table(estimates: Estimates, cell: Mapping[int, int]) -> int:
    """Return the number of the table that a cell belongs to."""
    layout = estimates.layout
    attributes = tuple(sorted(cell))
    if attributes not in layout.places:
        raise ReleaseError(f"no table over the attributes at {attributes} in the closure; give a cell of one that is")
    for attribute, code in cell.items():
        if not 0 <= code < layout.sizes[attribute]:
            most = layout.sizes[attribute] - 1
            raise ReleaseError(f"no code {code!r} for the attribute at {attribute}; codes run from 0 to {most}")
    return layout.places[attributes]
