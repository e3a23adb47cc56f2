r"""The discrete Gaussian in numbers: its exact variance, and how far it reaches with a given probability.

The noise ξ of a measured count is a whole number with P(ξ = k) ∝ e^(−k²/2g²). Its parameter g² is what the privacy
costs are computed from; its variance is smaller. With a = 1/2g², Z(a) = Σ_k e^(−ak²) and Var ξ = −d ln Z / da,

    Var ξ = Σ k² e^(−k²/2g²) / Σ e^(−k²/2g²)                                                                       (1)
          = g² − 4π²g⁴ Σ_m m² e^(−2π²g²m²) / Σ_m e^(−2π²g²m²),                                                     (2)

sums over all whole numbers. The second form is Poisson's: Z(a) = √(π/a) Σ_m e^(−π²m²/a). Terms of (1) fall like
e^(−k²/2g²), those of (2) like e^(−2π²g²m²): from g² = 1/2π on (2) is used, below it (1), and the sixth term is below
e^(−25π) of the first. In (2) the difference is at least 0.49 of g²: nothing cancels. Where g² > 2.3 the variance is g²
to the last digit of float64.

**Reach.** The smallest whole number q with P(|ξ| ≤ q) ≥ level is summed up directly for small g². For large g² the sum
is long and a bound does the same: with f(x) = e^(−x²/2g²),

    P(|ξ| > q) ≤ erfc((q + ½) / g√2)  (q + ½ ≥ g),     P(|ξ| ≤ q) ≥ erf((q + ½) / g√2) / Θ  (q + ½ ≤ g)            (3)

with Θ = Σ e^(−2π²g²m²). Proof: f is convex beyond g, so that f(k) ≤ ∫ f over k ± ½, and Z ≥ g√(2π) by Poisson; f is
concave within g, so that f(k) ≥ ∫ f over k ± ½, and Z = g√(2π) Θ. So q = ⌈z g − ½⌉ with the normal quantile z covers
at least the level; where (3) is used, Θ is 1 to 35,000 digits. Law: tests/laws/test_discrete_gaussian.py.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

_SELF_DUAL = 1 / (2 * math.pi)
_TERMS = np.arange(1.0, 6.0)
# From here on the sum in (2) is below half a unit in the last place: the variance is g².
_EXACT_FROM = 2.3
# Beyond it the sum for the reach is long, and equation (3) takes its place.
_LARGEST_SUMMED = 4096.0
# The smallest positive float64 is e^−745: what lies further away is not there.
_LOWEST_EXPONENT = 745.0
# Far above the rounding of sums and quantiles, far below what any reader can see.
_ROOM = 1e-12


def exact_variance(parameter: ArrayLike) -> NDArray[np.float64]:
    """Return the variance of the discrete Gaussian, equations (1) and (2), to a relative 10⁻¹⁴.

    Parameters
    ----------
    parameter
        g², any shape; zero or more. Zero means no noise, and has variance zero. Below g² = 1/1490 the variance is less
        than float64 can hold, and is given as zero.
    """
    given = np.asarray(parameter, dtype=np.float64)
    low = given < _EXACT_FROM
    if not low.all():
        variance = given.copy()
        if low.any():
            variance[low] = exact_variance(given[low])
        return variance
    small, large = np.minimum(given, _SELF_DUAL), np.maximum(given, _SELF_DUAL)
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        first, second = _moments(0.5 / small) * _rounding(small), _moments(2 * math.pi**2 * large)
        exact = np.where(given < _SELF_DUAL, np.nan_to_num(first), large - 4 * math.pi**2 * large**2 * second)
    return np.asarray(np.abs(exact))  # −0.0 is 0.0


@lru_cache(maxsize=1024)
def reach(parameter: float, level: float) -> int:
    """Return the smallest whole number q known to have P(|ξ| ≤ q) ≥ level; by equation (3) where g² is large.

    Parameters
    ----------
    parameter
        g², positive.
    level
        The probability, above 0 and below 1.
    """
    if parameter > _LARGEST_SUMMED:
        quantile = -NormalDist().inv_cdf((1 - level) / 2)
        return max(0, math.ceil(quantile * math.sqrt(parameter) * (1 + _ROOM) - 0.5))
    farthest = math.ceil(math.sqrt(2 * _LOWEST_EXPONENT * parameter)) + 1
    weights = np.exp(-np.square(np.arange(farthest + 1.0)) / (2 * parameter))
    # Added from the far end, small terms first; outside[q] is the weight beyond q on one side.
    outside = np.append(np.cumsum(weights[:0:-1])[::-1], 0.0)
    allowed = (1 - level) * (1 - _ROOM) * (weights[0] + 2 * outside[0])
    return int(np.argmax(2 * outside <= allowed))


def _moments(rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Σ k² e^(−rate k²) / Σ e^(−rate k²) over all whole numbers, for rates of at least π."""
    weights = np.exp(-np.multiply.outer(rate, _TERMS**2))
    return np.asarray(2 * (weights @ _TERMS**2) / (1 + 2 * weights.sum(axis=-1)))


def _rounding(parameter: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the factor that the rounding of the rate 1/2g² took from e^(−rate): at rate 700 it is the 13th digit.

    The product of rate and g² is computed without error, by cutting both into halves of 26 bits (Dekker).
    """
    rate = 0.5 / parameter
    (a, b), (c, d) = _halves(rate), _halves(parameter)
    product = rate * parameter
    error = ((a * c - product) + a * d + b * c) + b * d
    return np.asarray(1 - ((0.5 - product) - error) / parameter)


def _halves(value: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two numbers of at most 26 binary digits that add up to the value."""
    high = (2.0**27 + 1) * value - ((2.0**27 + 1) * value - value)
    return high, value - high
