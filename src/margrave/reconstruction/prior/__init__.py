r"""The rule behind weights="auto": what the non-negative solver should be near to, and what it should hold.

It sees only the noisy residuals and their variances, so it is post-processing:

1. **The total** is shrunk by its own noise (`shrunk_total`) and held.
2. **Every residual** is estimated from its own measurement and from what the others predict, each in proportion to what
   it knows (``levels``).
3. **The weights** of the final solve are 2^(−|τ|)/√e_τ with e_τ the expected squared error of a cell.

docs/weights.md says on which generated tables this was chosen, and what did not help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.prior.levels import Levels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from margrave.algebra.kernels import Floats
    from margrave.reconstruction.nonnegative.workers import WorkerPool

# Of a solve by this rule. The estimates are nearly feasible: the loss that is left is a small part of what the
# measurements have, and a gap relative to it says more (docs/weights.md has what 1e-4 would change).
TOLERANCE = 1e-3
# The least total, in standard deviations of its measurement.
_LEAST = 0.1
# From this many standard deviations on, a measured total is its own posterior mean to the last digit.
_CERTAIN = 10.0


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


def automatic(
    estimates: Estimates,
    *,
    hold: Sequence[int] | None = None,
    eta: float | None = None,
    workers: WorkerPool | None = None,
) -> Choice:
    """Return what the non-negative solver should solve for these estimates.

    Parameters
    ----------
    estimates
        The residuals of a closure as measured. One whose noise has no single variance is taken as it stands.
    hold
        Tables whose residuals stay exactly at their estimates. By default the total, at the estimate of step 1.
    eta
        The weight of residuals that were never measured; by default as of all others.
    workers
        The workers that estimate the largest tables; by default this process does.

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
    levels = Levels(layout, estimates.values, _variances(estimates, held), people, workers=workers)
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


def shrunk_total(estimates: Estimates) -> float | None:
    """Return the measured total shrunk by its own noise, z − σ²/z, at least σ/10; None if nothing says what it is.

    Every table has this total, so it must be positive: some people are there, and no more can be said. James & Stein in
    one dimension, positive part, as every other residual is shrunk. Where the total is hardly known it has a lower L1
    error than `likely_total`: of people whose place in a table is not known any is a likely miss.

    Noise without a single variance cannot be shrunk by: then the total is the measured one, if that is positive.

    Parameters
    ----------
    estimates
        The residuals of a closure.
    """
    total, deviation = _measured(estimates)
    if deviation is None:
        return None
    if math.isnan(deviation):
        return total if total > 0 else None
    shrunk = total - deviation * (deviation / total) if total > deviation else 0.0
    return max(shrunk, _LEAST * deviation)


def likely_total(estimates: Estimates) -> float:
    """Return the posterior mean of the total, z + σ φ(z/σ)/Φ(z/σ), under a flat prior on positive numbers.

    A total that was never measured is the least one with which each measured residual by itself makes a table without
    negative cells; where even that is zero, one.

    Parameters
    ----------
    estimates
        The residuals of a closure.
    """
    total, deviation = _measured(estimates)
    if deviation is None:
        least = max(-float(table.min()) * table.size for _, table in estimates.layout.views(estimates.values))
    elif math.isnan(deviation) or total > _CERTAIN * deviation:
        least = total
    else:
        least = deviation * _positive_mean(total / deviation)
    return least if least > 0 else 1.0


def _measured(estimates: Estimates) -> tuple[float, float | None]:
    """Return z and σ; σ is None where the total was never measured, NaN where its noise has no single variance."""
    place = estimates.layout.places[()]
    total, precision = float(estimates.values[place]), float(estimates.precisions[place])
    if estimates.counts[place] == 0 or precision <= 0:
        return total, None
    return total, precision if math.isnan(precision) else 1 / math.sqrt(precision)


def _positive_mean(center: float) -> float:
    """Return the mean of a normal variable of variance one around ``center``, given that it is positive.

    At least a tenth, which it passes just above −10; further down its two terms would cancel.
    """
    from scipy.special import log_ndtr

    if center < -10:
        return _LEAST
    hazard = math.exp(-0.5 * center**2 - 0.5 * math.log(2 * math.pi) - float(log_ndtr(center)))
    return max(center + hazard, _LEAST)
