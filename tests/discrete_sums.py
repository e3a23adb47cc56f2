"""The discrete Gaussian by plain sums in 50 decimal digits: the slow and obvious twin of margrave.discrete_gaussian."""

from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=256)
def weights(parameter):
    """e^(−k²/2g²) for k = 0, 1, … until nothing is left within 50 digits; 2g² is taken as exactly the float it is."""
    with localcontext() as context:
        context.prec = 50
        twice = 2 * Decimal(parameter)
        found = [Decimal(1)]
        # What is left out next to k = 1 is below 10⁻⁶⁰ of it, however small that one is.
        while len(found) < 3 or found[-1] > Decimal("1e-60") * found[1]:
            found.append((-(Decimal(len(found)) ** 2) / twice).exp())
        return tuple(found)


def slow_variance(parameter):
    """Σ k² P(k), as a float."""
    with localcontext() as context:
        context.prec = 50
        found = weights(parameter)
        return float(2 * sum(k * k * w for k, w in enumerate(found)) / (found[0] + 2 * sum(found[1:])))


def outside(parameter, reach):
    """P(|ξ| > reach), as a Decimal."""
    with localcontext() as context:
        context.prec = 50
        found = weights(parameter)
        return 2 * sum(found[reach + 1 :], Decimal(0)) / (found[0] + 2 * sum(found[1:]))


def probabilities(parameter):
    """P(k) for k = −K … K as an array of floats; what is left out is below 10⁻⁶⁰."""
    half = np.array([float(w) for w in weights(parameter)])
    both = np.concatenate([half[:0:-1], half])
    return both / both.sum()
