r"""Exact noise on the whole numbers: discrete Gaussian and discrete Laplace, millions a second.

    discrete Gaussian   P(y) ∝ e^(−y²/(2 variance))         discrete Laplace   P(y) ∝ e^(−|y|/scale)                 (1)

for any rational variance from 10⁻³⁰ to 10³⁰ and scale from 10⁻¹⁵ to 10¹⁵. The discrete Gaussian of variance parameter
g² gives Δ²/2g²-zCDP to a whole-numbered query of sensitivity Δ ([CKS] Thm. 4, arXiv 2004.00010), as the continuous one
does.

**Guarantee.** If the words of the source are independent and uniform, the samples are independent and distributed
*exactly* as (1): no rounding and no truncation stand between. Where the proof is:

- ``staircase``: proposals from a staircase above the target, accepted with a probability that makes (1) exact; the
  staircase itself is made of whole numbers, and any that lie above the target are right.
- its compiled loop: the one irrational comparison of a round, U < (C/n) e^−x, is made in floating point with a margin
  of 2⁻⁴⁰, more than twice the proven bound of its error, 2⁻⁴¹·⁴. It stays undecided with probability below 2⁻³⁸ (once
  in 2.7 · 10¹¹ comparisons), and then
- ``entropy`` decides it in whole numbers, with as many bits of e^−x and of U as that takes.
- ``staircase.draw_exactly`` is the same algorithm in whole numbers alone; fed the same words it gives the same samples,
  and the tests hold the compiled loop to that, also with a margin that leaves some or all comparisons undecided.

Two events end a call with a `MeasurementError` instead of samples: 4,096 zero bits in a row where coins are read, and a
call that needs more than 4,096 + 32 · count words (it takes 2.1 to 3.1 a sample). From a fair source they have
probability below 2⁻⁴⁰⁰⁰ a sample and 2⁻⁵⁰⁰ a call; they stand for broken sources. All samples fit int64 (see
``staircase``). *Not* promised: that the time a call takes, or the memory it leaves behind, tells nothing about its
samples.

A round reads two words as a rule, so most of the time goes into the system's entropy. The loop releases the interpreter
lock and calls share nothing but a source: threads can draw side by side, with `SystemEntropy` or with spawned sources.

`OpendpSampler` is OpenDP's discrete Gaussian, for those who trust it more than ours, and the oracle of our tests.
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
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from margrave.errors import MeasurementError, suggestion
from margrave.privacy.entropy import InsecureSeededSource, Source, SystemEntropy, Words, exact_fraction
from margrave.privacy.staircase import (
    DONE,
    MARGIN,
    PART,
    UNDECIDED,
    WHOLE,
    Integers,
    Staircase,
    fill,
    gaussian_staircase,
    laplace_staircase,
    propose_exactly,
)

__all__ = [
    "InsecureSeededSource",
    "Sampler",
    "Source",
    "SystemEntropy",
    "described_sampler",
    "described_source",
    "discrete_gaussian",
    "discrete_laplace",
    "draw_lazily",
    "gaussian_sampler",
]

# Beyond these the samples could leave int64; below, the noise is zero but for odds of e^(−5·10²⁹).
LARGEST_VARIANCE = 10**30
SMALLEST_VARIANCE = Fraction(1, 10**30)
LARGEST_SCALE = 10**15
SMALLEST_SCALE = Fraction(1, 10**15)

_SYSTEM = SystemEntropy()
_SAMPLERS = ("margrave", "opendp")
_LONGEST_NAME = 100
# OpenDP takes and returns lists; this many numbers at a time keep them small.
_OPENDP_BLOCK = 65_536
# Where the square of its float and the range of its samples are safe.
_OPENDP_SMALLEST, _OPENDP_LARGEST = Fraction(1, 10**6), 10**30


def discrete_gaussian(
    variance: Fraction | int, count: int, *, source: Source = _SYSTEM, out: Integers | None = None
) -> Integers:
    """Return independent samples of the discrete Gaussian, exactly P(y) ∝ e^(−y²/(2 variance)).

    Parameters
    ----------
    variance
        The parameter g² of (1), from 10⁻³⁰ to 10³⁰, as a fraction or whole number; a float is refused, never rounded.
        The variance of the samples is this number to within 3·10⁻⁷ from 1 on, and less below (0.0077 for 0.09).
    count
        How many samples, at least 0.
    source
        Where the random bits come from.
    out
        Where to write: contiguous int64 of shape (count,). By default a new array.

    Returns
    -------
    int64 of shape (count,).
    """
    variance = _within(exact_fraction(variance, "the variance"), "variance", SMALLEST_VARIANCE, LARGEST_VARIANCE)
    samples = _target(count, out)
    return draw_lazily(gaussian_staircase(variance), samples, _words(source, len(samples)))


def discrete_laplace(
    scale: Fraction | int, count: int, *, source: Source = _SYSTEM, out: Integers | None = None
) -> Integers:
    """Return independent samples of the discrete Laplace distribution, exactly P(y) ∝ e^(−|y|/scale).

    Parameters
    ----------
    scale
        From 10⁻¹⁵ to 10¹⁵, as a fraction or whole number; a float is refused, never rounded.
    count, source, out
        As for `discrete_gaussian`.

    Returns
    -------
    int64 of shape (count,).
    """
    scale = _within(exact_fraction(scale, "the scale"), "scale", SMALLEST_SCALE, LARGEST_SCALE)
    samples = _target(count, out)
    return draw_lazily(laplace_staircase(scale), samples, _words(source, len(samples)))


def draw_lazily(staircase: Staircase, out: Integers, words: Words, *, margin: float = MARGIN) -> Integers:
    """Fill ``out`` with samples and return it: floating point where it is certain, whole numbers where it is not.

    Parameters
    ----------
    staircase
        What to draw.
    out
        Where to write: contiguous int64.
    words
        The random words.
    margin
        What floating point must be certain by; at least `MARGIN`. Infinity leaves every comparison to whole numbers.
        The samples do not depend on it.
    """
    if not margin >= MARGIN:
        raise MeasurementError(
            f"a margin of {margin} does not cover the error of the comparisons", remedy=f"give {MARGIN} or more"
        )
    filled = 0
    while True:
        status, words.position, filled = fill(
            words.block, words.position, out, filled, staircase.steps, margin, WHOLE, PART
        )
        if status == DONE:
            return out
        if status == UNDECIDED:
            sample = propose_exactly(staircase, words)
            if sample is not None:
                out[filled] = sample
                filled += 1
        else:
            # A tenth more than two words a sample is what most calls read.
            words.fetch((len(out) - filled) * 11 // 5 + 8)


class Sampler(Protocol):
    """A way to draw discrete Gaussian noise, with what a provenance record says of it."""

    @property
    def name(self) -> str:
        """The sampler and its source of random bits."""
        ...

    @property
    def private(self) -> bool:
        """Whether noise of this sampler protects anyone."""
        ...

    def draw(self, variance: Fraction, count: int) -> Integers:
        """Return ``count`` independent samples; int64."""
        ...

    def spawn(self, count: int) -> Sequence[Sampler]:
        """Return independent samplers, so that threads need not share one."""
        ...


@dataclass(frozen=True)
class LazySampler:
    """The sampler of this module on a source."""

    source: Source = _SYSTEM

    @property
    def name(self) -> str:
        """The sampler and its source of random bits."""
        return f"margrave ({self.source.name})"

    @property
    def private(self) -> bool:
        """Whether the source is private."""
        return self.source.private

    def draw(self, variance: Fraction, count: int) -> Integers:
        """Return ``count`` samples of the discrete Gaussian."""
        return discrete_gaussian(variance, count, source=self.source)

    def spawn(self, count: int) -> Sequence[Sampler]:
        """Return samplers on sources spawned from this one's."""
        return [LazySampler(source) for source in self.source.spawn(count)]


def gaussian_sampler(name: str = "margrave", *, source: Source | None = None) -> Sampler:
    """Return a sampler by its name, or say at once why it is not available.

    Parameters
    ----------
    name
        ``"margrave"``: `discrete_gaussian`. ``"opendp"``: OpenDP's sampler, fifty times slower, of the extra package
        opendp.
    source
        Where the random bits come from, by default the system; OpenDP's sampler knows only its own.
    """
    if name == "margrave":
        return LazySampler(_SYSTEM if source is None else _checked_source(source))
    if name != "opendp":
        hint = suggestion(name, _SAMPLERS) if isinstance(name, str) else ""
        raise MeasurementError(f"no sampler {name!r}{hint} (there are {' and '.join(_SAMPLERS)})")
    if source is not None:
        raise MeasurementError("sampler 'opendp' takes its random bits from OpenDP", remedy="leave the source out")
    require_opendp()
    return OpendpSampler()


def described_sampler(sampler: Sampler) -> tuple[str, bool]:
    """Return what a record says of a sampler: its name, and whether its noise protects anyone.

    Only samplers of this package are taken at their word, and they are known by their exact type: a class of somebody's
    own, one that extends ours, or one of ours with a method replaced is foreign and not private, whatever it says of
    itself.
    """
    if type(sampler) is OpendpSampler and not vars(sampler):
        return sampler.name, sampler.private
    if type(sampler) is LazySampler and set(vars(sampler)) == {"source"}:
        name, private = described_source(sampler.source)
        return f"margrave ({name})", private
    return _foreign(sampler), False


def described_source(source: Source) -> tuple[str, bool]:
    """Return what a record says of a source of random bits: its name, and whether they cannot be computed again.

    As for `described_sampler`, a source that is not of this package is foreign and not private.
    """
    if type(source) is SystemEntropy and not vars(source):
        return "system entropy", True
    if type(source) is InsecureSeededSource:
        return source.name, False
    return _foreign(source), False


def _foreign(thing: Sampler | Source) -> str:
    """Return the name of a sampler or source that is not of this package, as its own claim and marked as foreign."""
    name = thing.name if isinstance(thing.name, str) else type(thing).__name__
    return f"foreign: {name[:_LONGEST_NAME]}"


def _within(value: Fraction, what: str, smallest: Fraction, largest: int) -> Fraction:
    """Return the parameter if its samples can be represented."""
    if value <= 0:
        raise MeasurementError(
            f"the {what} must be positive, got {value}", remedy=f"noise of {what} 0 would not protect anyone"
        )
    if not smallest <= value <= largest:
        size = f"10^{len(str(int(value))) - 1} or more" if value > 1 else f"less than 1/{int(1 / value)}"
        raise MeasurementError(
            f"noise of {what} {size} is not representable: the {what} must be from {float(smallest):.0e} to "
            f"{float(largest):.0e}",
            remedy="measure in other units",
        )
    return value


def _target(count: object, out: Integers | None) -> Integers:
    """Return the array to fill, new or given, once the count is checked."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise MeasurementError(f"the count of samples must be a whole number of at least 0, got {count!r}")
    if out is None:
        return np.empty(int(count), dtype=np.int64)
    fits = isinstance(out, np.ndarray) and out.dtype == np.int64 and out.shape == (count,)
    if not (fits and out.flags.c_contiguous and out.flags.writeable):
        raise MeasurementError(
            f"out must be a contiguous, writeable int64 array of shape ({count},)", remedy="leave it out to get one"
        )
    return out


def _checked_source(source: Source) -> Source:
    """Return the source if it is one: a seed given instead must not pass for randomness."""
    # A class in place of its instance has all of these, and would fail after the charge.
    if not isinstance(source, type) and all(hasattr(source, name) for name in ("name", "private", "words", "spawn")):
        return source
    raise MeasurementError(f"a source of random bits is SystemEntropy() or InsecureSeededSource(seed), got {source!r}")


def _words(source: Source, count: int) -> Words:
    """Return the words of one call, and no more of them than any call needs from a fair source."""
    return Words(_checked_source(source), 4096 + 32 * count)


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
    """Raise `MeasurementError` if the package opendp is not installed."""
    if find_spec("opendp") is None:
        raise MeasurementError(
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
    if not _OPENDP_SMALLEST <= variance <= _OPENDP_LARGEST:
        raise MeasurementError(
            "sampler 'opendp' takes a variance from 1e-06 to 1e+30, this one is outside",
            remedy="use sampler 'margrave' for less, or measure in other units",
        )
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise MeasurementError(f"the count of samples must be a whole number of at least 0, got {count!r}")
    require_opendp()
    dp = import_module("opendp.prelude")
    dp.enable_features("contrib")
    # Plain int would be OpenDP's 32-bit numbers, at whose ends large noise would pile up.
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    mechanism = dp.m.make_gaussian(*space, scale=deviation_above(variance))
    samples = np.empty(int(count), dtype=np.int64)
    for begin in range(0, len(samples), _OPENDP_BLOCK):
        block = samples[begin : begin + _OPENDP_BLOCK]
        block[:] = mechanism([0] * len(block))
    return samples


def deviation_above(variance: Fraction) -> float:
    """Return the smallest float64, but for a step, whose square is at least the variance."""
    deviation = math.sqrt(variance)
    while Fraction(deviation) ** 2 < variance:
        deviation = math.nextafter(deviation, math.inf)
    return deviation
