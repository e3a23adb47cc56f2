r"""The rule behind weights="auto": what the non-negative solver should be near to, and what it should hold.

It sees only the noisy residuals and their variances, so it is post-processing. Four steps:

1. **The total** is shrunk by its own noise and then held (``total``): z − σ²/z, at least σ/10. Where z > σ it moves by
   less than one standard deviation, and where σ ≪ z hardly at all.
2. **A pilot**: fifty rounds of the solver with the total held and weights 2^(−|τ|)/σ_τ. Non-negativity passes on to
   the small tables what the large ones know.
3. **Shrinkage** (``shrinkage``): every residual is moved towards what the pilot's smaller tables predict, by as much as
   its noise asks for; a residual that was never measured becomes its prediction. A second pilot starts from these, and
   the residuals as measured are shrunk again, towards its predictions.
4. **The weights** of the final solve are 1/σ_τ. Shrinkage has left little noise in the many cells of large tables, so
   they need not give way to small ones. What noise is left counts, but less than in proportion.

Where some residuals were never measured, as after Scalable MWEM, the others hold most of what can be known about their
tables: all are then completed level by level instead (``completion``).

docs/weights.md and docs/completion.md say on which generated tables this was chosen, and what did not help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.nonnegative import Problem, Splitting, solver_weights
from margrave.reconstruction.prior.completion import complete
from margrave.reconstruction.prior.shrinkage import shrink_residuals
from margrave.reconstruction.prior.total import shrunk_total

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout

# Of a solve by this rule. Shrunk or completed residuals are nearly feasible: the loss that is left is a small part of
# what the measurements have, and a gap relative to it says more (docs/weights.md has what 1e-4 would change).
TOLERANCE = 1e-3
_PILOT_ROUNDS = 50
_PILOT_BASE, _FINAL_BASE = 2.0, 1.0
# Standard deviations further than this factor from their median count as if they were that far: weights that differ by
# more would only slow the solver.
_LARGEST_FACTOR = 1e3


@dataclass(frozen=True, eq=False)
class Choice:
    """What to solve: residuals to be near to, how much each counts, and which stay as they are.

    Attributes
    ----------
    estimates
        The residuals as shrunk, with the counts and precisions of the measurements that they came from.
    weights
        As the solver takes them; from `automatic` one a table, all positive and finite.
    hold
        The tables whose residuals are to be held.
    tolerance
        The gap that is worth reaching.
    """

    estimates: Estimates
    weights: str | float | Floats
    hold: tuple[int, ...]
    tolerance: float


def automatic(estimates: Estimates, *, hold: Sequence[int] | None = None, eta: float | None = None) -> Choice:
    """Return what the non-negative solver should solve for these estimates.

    Parameters
    ----------
    estimates
        The residuals of a closure as measured.
    hold
        Tables whose residuals stay exactly at their estimates. By default the total, at the estimate of step 1. Where
        there is none, because no variance or no measurement is known, the total is held at the pilot's, if positive.
    eta
        The weight of residuals that were never measured; by default that of one with the median noise.

    Notes
    -----
    A total held at exactly zero leaves nothing to choose: all tables are zero.

    With ``eta``, or where more than the total is held, nothing is completed: residuals that were never measured are
    predicted by shrinkage alone.
    """
    if hold is not None and 0 in hold and estimates.values[0] == 0:
        return Choice(estimates, _weights(estimates, _FINAL_BASE, eta), tuple(hold), TOLERANCE)
    unmeasured = (estimates.counts == 0) & (estimates.layout.degrees > 0)
    total_given = hold is not None and tuple(hold) == (0,) and estimates.values[0] > 0
    if (hold is None or total_given) and eta is None and unmeasured[1:].any():
        completed = complete(estimates, total=float(estimates.values[0]) if total_given else None)
        return Choice(completed.estimates, completed.weights, (), TOLERANCE)
    values = np.array(estimates.values)
    held = (0,) if hold is None else tuple(hold)
    if hold is None:
        total = shrunk_total(estimates)
        values[0] = 0.0 if total is None else total
        held = (0,) if total is not None else ()
    weights = _weights(estimates, _PILOT_BASE, eta)
    if hold is None and not held:
        weights[0] = _least_weight_of_total(estimates.layout, weights)
    inner = _pilot(_with(estimates, values), weights, held)
    if hold is None and not held and inner[0] > 0:
        values[0], held = inner[0], (0,)
    variances = _variances(estimates, held)
    shrunk = _with(estimates, shrink_residuals(estimates.layout, values, inner, variances))
    inner = _pilot(shrunk, weights, held)
    shrunk = _with(estimates, shrink_residuals(estimates.layout, values, inner, variances))
    return Choice(shrunk, _weights(estimates, _FINAL_BASE, eta), held, TOLERANCE)


def _pilot(estimates: Estimates, weights: Floats, held: Sequence[int]) -> Floats:
    """Return the inner tables of a loose solve, negative cells cut off; shape (inner_cells,)."""
    layout = estimates.layout
    checked = solver_weights(estimates, weights=weights, eta=None, hold=held)
    rounds = Splitting(Problem(layout, estimates.values, checked))
    rounds.run(_PILOT_ROUNDS)
    inner = rounds.residuals(np.empty(layout.cells), np.empty(layout.facet_cells))[: max(layout.inner_cells, 1)].copy()
    transform.raise_inner(layout, inner, inner)
    return np.maximum(inner, 0.0, out=inner)


def _least_weight_of_total(layout: Layout, weights: Floats) -> float:
    """Return the least weight of the total that makes no step of the solver shorter: its h_∅ is the largest other one.

    An unmeasured total should be what the other residuals need, and not be drawn to zero.
    """
    spectrum = transform.tables_spectrum(layout, transform.outer_weights(layout))
    others = (spectrum / weights)[1:][layout.degrees[1:] > 0]
    return float(spectrum[0] / others.max() if others.size else weights[0])


def _weights(estimates: Estimates, base: float, eta: float | None) -> Floats:
    """Return b^(−|τ|)/σ_τ, or ``eta`` where it is given and nothing was measured; the median σ where none is known."""
    known = estimates.precisions > 0
    deviations = 1 / np.sqrt(estimates.precisions[known])
    relative = np.ones(len(estimates.counts))
    if deviations.size:
        quotients = deviations / np.median(deviations)
        relative[known] = np.clip(quotients, 1 / _LARGEST_FACTOR, _LARGEST_FACTOR)
    weights: Floats = base ** -estimates.layout.index.order.astype(np.float64) / relative
    if eta is not None:
        weights[estimates.counts == 0] = eta
    return weights


def _variances(estimates: Estimates, held: Sequence[int]) -> Floats:
    """Return σ² of each residual; infinite where it was never measured, zero where it is held or has other noise."""
    precisions = estimates.precisions
    variances: Floats = np.divide(1.0, precisions, out=np.full(len(precisions), np.inf), where=precisions > 0)
    variances[np.isnan(precisions)] = 0.0
    variances[list(held)] = 0.0
    return variances


def _with(estimates: Estimates, values: Floats) -> Estimates:
    """Return the estimates with other values."""
    return Estimates(estimates.layout, values, estimates.counts, estimates.precisions)
