r"""The total to spread over all tables, from a noisy measurement z of it with standard deviation σ.

Every table has this total, so it must be positive: at least σ/10, because some people are there and no more can be
said.

- `shrunk_total`, z − σ²/z: as every other residual is shrunk (James & Stein in one dimension, positive part).
- `likely_total`, z + σ φ(z/σ)/Φ(z/σ): the posterior mean under a flat prior on positive numbers; it also answers where
  nothing says what the total is.

They differ by about a share (σ/z)² of the total. The first has the lower L1 error where the total is hardly known: of
people whose place in a table is not known any is a likely miss.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from margrave.reconstruction.estimates import Estimates

# The least total, in standard deviations of its measurement.
LEAST = 0.1
# From so many standard deviations on, a measured total is its own posterior mean to the last digit.
_CERTAIN = 10.0


def shrunk_total(estimates: Estimates) -> float | None:
    """Return the measured total shrunk by its own noise, positive; None where no measurement says what it is.

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
    return max(shrunk, LEAST * deviation)


def likely_total(estimates: Estimates) -> float:
    """Return the posterior mean of the total under a flat prior on positive numbers; above zero in any case.

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

    At least `LEAST`, which it passes just above −10; further down its two terms would cancel.
    """
    from scipy.special import log_ndtr

    if center < -10:
        return LEAST
    hazard = math.exp(-0.5 * center**2 - 0.5 * math.log(2 * math.pi) - float(log_ndtr(center)))
    return max(center + hazard, LEAST)
