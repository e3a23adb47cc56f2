"""OpenDP's discrete Gaussian, for those who trust it more than ours, and as the oracle of our tests.

OpenDP takes a standard deviation in float64, so the variance cannot be kept exactly. The standard deviation is rounded
*up* to the next float64: the noise has at least the variance asked for, and at most a fraction of 2⁻⁵¹ more. Its 64-bit
whole numbers saturate, which no variance up to 10³⁰ reaches but with odds of e^(−4·10⁷).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from margrave.errors import NoiseError
from margrave.privacy.exponential import exact_fraction

# OpenDP takes and returns lists; this many numbers at a time keep them small.
_BLOCK = 65_536
# Where the squared float and the range of its samples are safe.
_SMALLEST_VARIANCE, _LARGEST_VARIANCE = Fraction(1, 10**6), 10**30


@dataclass(frozen=True)
class OpendpSampler:
    """OpenDP's sampler on its own entropy, which is the system's."""

    @property
    def name(self) -> str:
        """The sampler and its source of random bits."""
        return "opendp (system entropy)"

    @property
    def private(self) -> bool:
        """True: OpenDP draws from the system."""
        return True

    def draw(self, variance: Fraction, count: int) -> NDArray[np.int64]:
        """Return ``count`` samples of the discrete Gaussian."""
        return opendp_discrete_gaussian(variance, count)

    def spawn(self, count: int) -> Sequence[OpendpSampler]:
        """Return this sampler ``count`` times: it has no state."""
        return [self] * count


def require_opendp() -> None:
    """Raise `NoiseError` if the package opendp is not installed."""
    if find_spec("opendp") is None:
        raise NoiseError(
            "sampler 'opendp' needs the package opendp, which is not installed",
            remedy="run pip install 'margrave[opendp]', or use sampler 'margrave'",
        )


def opendp_discrete_gaussian(variance: Fraction | int, count: int) -> NDArray[np.int64]:
    """Return samples of the discrete Gaussian by OpenDP; the variance may come out larger by a fraction of 2⁻⁵¹.

    Parameters
    ----------
    variance
        From 10⁻⁶ to 10³⁰, as a fraction or whole number.
    count
        How many samples, at least 0.
    """
    variance = exact_fraction(variance, "the variance")
    if not _SMALLEST_VARIANCE <= variance <= _LARGEST_VARIANCE:
        raise NoiseError(
            "sampler 'opendp' takes a variance from 1e-06 to 1e+30, this one is outside",
            remedy="use sampler 'margrave' for less, or measure in other units",
        )
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise NoiseError(f"the count of samples must be a whole number of at least 0, got {count!r}")
    require_opendp()
    dp = import_module("opendp.prelude")
    dp.enable_features("contrib")
    # Plain int would be OpenDP's 32-bit numbers, at whose ends large noise would pile up.
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    mechanism = dp.m.make_gaussian(*space, scale=deviation_above(variance))
    samples = np.empty(int(count), dtype=np.int64)
    for begin in range(0, len(samples), _BLOCK):
        block = samples[begin : begin + _BLOCK]
        block[:] = mechanism([0] * len(block))
    return samples


def deviation_above(variance: Fraction) -> float:
    """Return the smallest float64, but for a step, whose square is at least the variance."""
    deviation = math.sqrt(variance)
    while Fraction(deviation) ** 2 < variance:
        deviation = math.nextafter(deviation, math.inf)
    return deviation
