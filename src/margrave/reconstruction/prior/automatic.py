r"""The rule behind weights="auto": what the non-negative solver should be near to, and what it should hold.

It sees only the noisy residuals and their variances, so it is post-processing:

1. **The total** is shrunk by its own noise (``total``): z − σ²/z, at least σ/10; and is held.
2. **Every residual** is estimated from its own measurement and from what the others predict, each in proportion to what
   it knows (``levels``).
3. **The weights** of the final solve are 2^(−|τ|)/√e_τ with e_τ the expected squared error of a cell.

docs/weights.md says on which generated tables this was chosen, and what did not help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.prior.levels import Levels
from margrave.reconstruction.prior.total import likely_total, shrunk_total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from margrave.algebra.kernels import Floats

# Of a solve by this rule. The estimates are nearly feasible: the loss that is left is a small part of what the
# measurements have, and a gap relative to it says more (docs/weights.md has what 1e-4 would change).
TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Choice:
    """What to solve: residuals to be near to, how much each counts, and which stay as they are.

    Attributes
    ----------
    estimates
        The residuals as estimated, with the counts and precisions of the measurements that they came from.
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
        The residuals of a closure as measured. One whose noise has no single variance is taken as it stands.
    hold
        Tables whose residuals stay exactly at their estimates. By default the total, at the estimate of step 1.
    eta
        The weight of residuals that were never measured; by default as of all others.

    Notes
    -----
    Never fails: where nothing says that there are people at all, one is spread over every table. A total held at
    exactly zero leaves nothing to choose: all tables are zero.
    """
    layout, held = estimates.layout, (0,) if hold is None else tuple(hold)
    measured = float(estimates.values[0])
    given = hold is not None and 0 in held
    if given and measured <= 0:
        weights: Floats = np.ldexp(1.0, -layout.index.order)
        return Choice(estimates, weights, held, TOLERANCE)
    people = measured if given else (shrunk_total(estimates) or likely_total(estimates))
    levels = Levels(layout, estimates.values, _variances(estimates, held), people)
    levels.run()
    if hold is not None:
        levels.residuals[0] = measured
    weights = levels.weights()
    if eta is not None:
        weights[estimates.counts == 0] = eta
    chosen = Estimates(layout, levels.residuals, estimates.counts, estimates.precisions)
    return Choice(chosen, weights, held, TOLERANCE)


def _variances(estimates: Estimates, held: Sequence[int]) -> Floats:
    """Return σ² of each residual; infinite where it was never measured, zero where it is held or has other noise."""
    precisions = estimates.precisions
    variances: Floats = np.divide(1.0, precisions, out=np.full(len(precisions), np.inf), where=precisions > 0)
    variances[np.isnan(precisions)] = 0.0
    variances[list(held)] = 0.0
    variances[0] = 0.0
    return variances
