r"""The problem of GReM-LNN: what tables should be near to, how much each residual counts, and which stay as they are.

With estimates z_τ and weights w_τ, over residuals r of a closure and its outer tables (every other table is a sum of
one of those and needs no constraint of its own),

    minimise  f(r) = Σ_τ w_τ ‖r_τ − z_τ‖²     subject to   μ = S r ≥ 0           ([ReM] sec. 4.3, app. F).         (1)

An infinite weight holds a residual at its estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from margrave.algebra import transform
from margrave.errors import ReleaseError

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout
    from margrave.reconstruction.estimates import Estimates

# The paper's η for its own weights, which are at most k_∅: unmeasured residuals are held closer to zero than measured
# ones to their estimates.
_ETA = 40.0
# Cells of tables that are held may be negative by rounding, by this share of the total; no repair could change that.
ROUNDING = 1e-12
# A loss below this share of that of all-zero tables is rounding.
_ROUNDED_LOSS = 1e-26


@dataclass(frozen=True, eq=False)
class Problem:
    """Nearest residuals under non-negativity: what to be near to, and how much each residual counts.

    Attributes
    ----------
    layout
        The closure.
    z
        Shape (layout.cells,); the residuals to be near to.
    weights
        Shape (tables,); w_τ > 0; infinite for residuals that stay at z, and for those that are identically zero.
    """

    layout: Layout
    z: Floats
    weights: Floats

    @property
    def curvatures(self) -> Floats:
        """κ_τ = 1/(2 w_τ), zero for residuals that are held."""
        return 0.5 / self.weights

    @property
    def holds_total(self) -> bool:
        """Whether the total stays as it is."""
        return bool(np.isinf(self.weights[0]))

    @property
    def holds_more(self) -> bool:
        """Whether a residual other than the total, and not identically zero, stays as it is."""
        return bool((np.isinf(self.weights) & (self.layout.degrees > 0))[1:].any())

    def __post_init__(self) -> None:
        # Always read-only, so that the kernels are compiled for one kind of array.
        view = self.z.view()
        view.setflags(write=False)
        object.__setattr__(self, "z", view)

    @cached_property
    def loss_of_zero(self) -> float:
        """f(0), the loss of tables that are all zero."""
        offset = self.layout.index.offset.tolist()
        free = np.flatnonzero(np.isfinite(self.weights)).tolist()
        tables = (self.z[offset[t] : offset[t + 1]] for t in free)
        return float(sum(self.weights[t] * (x @ x) for t, x in zip(free, tables, strict=True)))

    @cached_property
    def rounding_loss(self) -> float:
        """The loss that residuals may have that differ from z by rounding alone.

        Rounding is 2⁻⁵² of the numbers that were added, the largest of which may be held; squared, about 2⁻¹⁰⁴ ≈ 5e-32.
        """
        free = np.isfinite(self.weights)
        largest = max(float(self.z.max()), -float(self.z.min()))
        return _ROUNDED_LOSS * (self.loss_of_zero + float(self.weights[free].max(initial=0.0)) * largest**2)

    @cached_property
    def fixed(self) -> NDArray[np.bool_]:
        """Whether the holds fix each table: its own residual is held and all its facets are fixed; shape (tables,)."""
        layout = self.layout
        fixed = np.isinf(self.weights)
        for table in range(len(layout.sets)):
            facets = layout.index.facet[table, : layout.index.order[table]]
            fixed[table] &= bool(fixed[facets].all())
        return fixed

    def independent(self) -> Floats:
        """Return residuals of independent attributes: held one-way tables where they are positive, else even ones.

        With the held total T the tables are T ∏ (μ_k / T), so that the residuals are T ∏ (r_k / T).
        """
        layout, total = self.layout, float(self.z[0])
        shares: dict[int, Floats] = {}
        for attribute, size in enumerate(layout.sizes):
            table = layout.places.get((attribute,))
            if table is not None and np.isinf(self.weights[table]):
                share = layout.view(self.z, table) / total
                if share.min() > -1 / size:
                    shares[attribute] = share
        residuals = np.zeros(layout.cells)
        for table, attributes in enumerate(layout.sets):
            if shares.keys() >= set(attributes):
                parts = np.ix_(*(shares[attribute] for attribute in attributes))
                layout.view(residuals, table)[...] = total * math.prod(parts)
        return residuals

    @cached_property
    def largest_loss(self) -> float:
        """A bound on f over all non-negative tables with the held total T, where it is held; else infinity.

        Cells between 0 and T that add up to T have ‖r_τ‖ ≤ ‖μ_τ‖ ≤ T, so that f ≤ Σ w_τ (T + ‖z_τ‖)². A dual value
        above it proves that no such tables keep all holds.
        """
        if not self.holds_total:
            return math.inf
        free = np.isfinite(self.weights)
        norms = np.sqrt(np.add.reduceat(self.z * self.z, self.layout.index.offset[:-1]))
        return float(self.weights[free] @ (abs(float(self.z[0])) + norms[free]) ** 2)


def solver_weights(
    estimates: Estimates, *, weights: str | float | Floats, eta: float | None, hold: Sequence[int]
) -> Floats:
    """Return w_τ of each table: the scheme's, ``eta`` where nothing was measured, infinite where nothing can move."""
    layout, counts = estimates.layout, estimates.counts
    order = layout.index.order.astype(np.float64)
    default_eta = _ETA
    if isinstance(weights, np.ndarray):
        found = transform.one_per_table(layout, weights).copy()
    elif weights == "paper":
        found = np.where(counts > 0, counts * 2.0**-order, np.nan)
    elif weights == "noise":
        known = estimates.precisions[counts > 0]
        if np.isnan(known).any() or known.size == 0:
            raise ReleaseError(
                "weights 'noise' need one variance for each measured residual, and one of them has other noise",
                remedy="use weights='paper' or a number",
            )
        found = np.where(counts > 0, estimates.precisions, np.nan)
        default_eta *= float(known.max())
    elif isinstance(weights, str) or not 0 < weights < math.inf:
        raise ReleaseError(
            f"weights is {weights!r}",
            remedy="give 'paper', 'noise', a positive number b for b^(−|τ|), or one weight a table",
        )
    else:
        found = np.where(counts > 0, float(weights) ** -order, np.nan)
    found[np.isnan(found)] = default_eta if eta is None else eta
    found[list(hold)] = np.inf
    if not (found > 0).all():
        raise ReleaseError(f"eta is {eta!r} or a weight is not positive", remedy="give positive numbers")
    # A residual that is identically zero has nothing to weigh, and takes no part in the step size.
    found[layout.degrees == 0] = np.inf
    return found


def check_holds(problem: Problem) -> None:
    """Raise `ReleaseError` if the held residuals fix a table that is negative.

    A table is fixed when all residuals inside it are held. Fixed tables that are not negative may still contradict each
    other; that shows in the solver, whose dual then grows beyond `Problem.largest_loss`.
    """
    if not problem.holds_total:
        return
    layout, total = problem.layout, float(problem.z[0])
    if total < 0:
        raise ReleaseError(
            f"the total is held at {total:.6g}, which no table without negative cells has",
            remedy="do not hold it, or measure it more precisely",
        )
    if not problem.holds_more:
        return
    held = np.repeat(np.isinf(problem.weights) & (layout.degrees > 0), np.diff(layout.index.offset))
    if total == 0 and problem.z[held].any():
        raise ReleaseError(
            "the total is held at 0, with which all tables are zero, and another held residual is not zero",
            remedy="hold fewer residuals",
        )
    residuals = np.zeros(layout.cells)
    fixed = np.flatnonzero(problem.fixed).tolist()
    for table in fixed:
        layout.view(residuals, table)[...] = layout.view(problem.z, table)
    marginals = transform.reconstruct(layout, residuals, out=residuals)
    for table in fixed:
        least = float(layout.view(marginals, table).min())
        if least < -ROUNDING * total:
            raise ReleaseError(
                f"the held residuals fix a table over {len(layout.sets[table])} attributes (number {table}) with the "
                f"negative cell {least:.6g}",
                remedy="hold fewer residuals",
            )
