r"""Where random bits come from: the operating system, or a seed for experiments that promise no privacy.

All randomness is a sequence of *words*, independent and uniform whole numbers below 2⁶⁴. A source makes them, and its
``name`` and ``private`` travel with everything that was drawn from it: noise whose bits can be computed again from a
seed can be subtracted again.

**Coins that fall with e^−x**, x rational, exactly. A uniform real number U in [0, 1) is never written down; its bits
are read as far as a comparison needs them, 64 at a time. After w words U lies in [v, v + 1) · 2^−64w for a whole
number v, and

    U < T  is certain if  v + 1 ≤ 2^64w T,     U ≥ T  is certain if  v ≥ 2^64w T,     else one more word is read.    (1)

For T = (a/b) e^−x whole-number bounds of any tightness decide (1) (`exponential_bounds`), and e^−x is irrational for
every rational x ≠ 0 (Lambert), so that it is never equal to v/2^64w and the tightening ends. For x = 0 the bounds are
equal.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from margrave.errors import MeasurementError

WordArray = NDArray[np.uint64]

WORD_BITS = 64
# 512 kB: stays in the cache, and threads meet at the interpreter lock once in 30,000 samples. Where a source stands
# after a long call depends on it, and with it what a seed gives.
_LARGEST_BLOCK = 1 << 16
# Bits beyond those of U that the first comparison carries: tighter bounds are needed once in 2³¹ comparisons.
_FIRST_EXCESS = 32
# Arguments are halved until they are below 2⁻⁸, which makes the series short.
_SERIES_BITS = 8


class Source(Protocol):
    """What makes random words."""

    @property
    def name(self) -> str:
        """What provenance records call the source."""
        ...

    @property
    def private(self) -> bool:
        """Whether the words cannot be computed again, so that noise made of them protects."""
        ...

    def words(self, count: int) -> WordArray:
        """Return the next ``count`` words; shape (count,)."""
        ...

    def spawn(self, count: int) -> list[Source]:
        """Return sources independent of this one and of each other, so that threads need not share one."""
        ...


@dataclass(frozen=True)
class SystemEntropy:
    """The random bits of the operating system (``os.urandom``), which are suitable for cryptography."""

    name: str = field(default="system entropy", init=False)
    private: bool = field(default=True, init=False)

    def words(self, count: int) -> WordArray:
        """Return ``count`` fresh words."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def spawn(self, count: int) -> list[Source]:
        """Return this source ``count`` times: it has no state that threads could disturb."""
        return [self] * count


class InsecureSeededSource:
    """Words that anyone who knows the seed can compute again: for experiments that must repeat, never for a release.

    The words are those of numpy's PCG64, which are the same on every machine. Two threads that share one source get
    the words in an order that is not controlled; give each a source of its own with `spawn`.

    Parameters
    ----------
    seed
        A whole number of at least 0.
    """

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise MeasurementError(
                f"a seed is a whole number of at least 0, got {seed!r}", remedy="give for instance seed=0"
            )
        self._seeds = np.random.SeedSequence(int(seed))
        self._generator = np.random.PCG64(self._seeds)

    @property
    def name(self) -> str:
        """What provenance records call the source."""
        return "insecure seeded source"

    @property
    def private(self) -> bool:
        """Always False."""
        return False

    def words(self, count: int) -> WordArray:
        """Return the next ``count`` words of the seed."""
        return self._generator.random_raw(count).astype(np.uint64, copy=False)

    def spawn(self, count: int) -> list[Source]:
        """Return sources that follow from the seed and from how many were spawned before, and from nothing else."""
        return [InsecureSeededSource._of(seeds) for seeds in self._seeds.spawn(count)]

    @classmethod
    def _of(cls, seeds: np.random.SeedSequence) -> InsecureSeededSource:
        source = cls.__new__(cls)
        source._seeds, source._generator = seeds, np.random.PCG64(seeds)
        return source


class Words:
    """The words of a source, in order, read one at a time or by the block.

    How the words are cut into blocks changes nothing: the words read are those of the source, each once. Words that
    were fetched and not read when the reader goes are lost.

    Parameters
    ----------
    source
        Where the words come from.
    limit
        How many words may be fetched before the source is considered broken: a fair source never needs that many.

    Attributes
    ----------
    block
        The words that were fetched last.
    position
        The place in ``block`` of the next word to read; code that reads the block itself moves it.
    """

    def __init__(self, source: Source, limit: int) -> None:
        self.block: WordArray = np.empty(0, dtype=np.uint64)
        self.position = 0
        self._source = source
        self._left = limit

    def fetch(self, count: int) -> None:
        """Fetch about this many more words, at least one, after those that were not read yet."""
        wanted = min(max(count, 1), _LARGEST_BLOCK)
        if self._left < 1:
            raise MeasurementError(
                f"the words of {self._source.name!r} are not random: noise that takes a few of them from a fair source "
                "is not complete after many times as many",
                remedy="use SystemEntropy()",
            )
        self._left -= wanted
        self.block = np.concatenate([self.block[self.position :], _checked(self._source, wanted)])
        self.position = 0

    def take(self) -> int:
        """Return the next word."""
        if self.position == len(self.block):
            self.fetch(WORD_BITS)
        word = int(self.block[self.position])
        self.position += 1
        return word


def _checked(source: Source, count: int) -> WordArray:
    """Return words of a source, checked for their number and type."""
    words = source.words(count)
    if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.shape != (count,):
        raise MeasurementError(
            f"source {source.name!r} must give {count} words as an array of uint64, it gave something else"
        )
    return words


def exact_fraction(value: object, what: str) -> Fraction:
    """Return a fraction or whole number as a fraction; a float is refused because it is rarely the number meant."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return Fraction(int(value))
    raise MeasurementError(
        f"{what} must be a Fraction or a whole number, got {value!r} ({type(value).__name__})",
        remedy="noise is exact and "
        "never rounds: write Fraction('0.1'), or Fraction(x) for the exact value of a finite float x",
    )


def exponential_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return whole numbers l ≤ 2^bits · e^−exponent ≤ u, as a rule with u − l ≤ 2; equal for exponent 0.

    With z = exponent / 2^q < 2⁻⁸, the terms zⁱ/i! of e^z are rounded down for one bound and up for the other, and so
    are the q squares that lead back to e^exponent and the division that turns it over. What the series leaves out
    is less than twice its first term left out.

    Parameters
    ----------
    exponent
        At least 0.
    bits
        At least 1; where the exponent is larger than that, the bounds are (0, 1).
    """
    numerator, denominator = exponent.numerator, exponent.denominator
    if numerator == 0:
        return 1 << bits, 1 << bits
    if numerator > bits * denominator:
        return 0, 1
    halvings = max(0, numerator.bit_length() - denominator.bit_length() + 1 + _SERIES_BITS)
    # Every halving doubles the relative error once; what is left of it must be small compared with one unit of the
    # result.
    places = bits + halvings + 16
    low, high = _series(((numerator << places) // denominator) >> halvings, places)
    for _ in range(halvings):
        low = (low * low) >> places
        high = -((-high * high) >> places)
    one = 1 << (places + bits)
    return one // high, -(-one // low)


def _series(argument: int, places: int) -> tuple[int, int]:
    """Return bounds of 2^places · e^z for every z from argument/2^places to (argument + 1)/2^places, below 2⁻⁷."""
    low = high = low_term = high_term = 1 << places
    index = 0
    while high_term > 1:
        index += 1
        low_term = ((low_term * argument) >> places) // index
        high_term = -((-high_term * (argument + 1)) >> places)
        high_term = -(-high_term // index)
        low += low_term
        high += high_term
    # The terms left out are each less than 2⁻⁷ of the one before, which was at most 1.
    return low, high + 1


def falls_below(first: int, exponent: Fraction, words: Words, *, numerator: int = 1, denominator: int = 1) -> bool:
    """Return whether U < (numerator/denominator) · e^−exponent, where U begins with the word ``first``.

    Further words are read only while (1) does not decide, which happens once in 2⁶⁴ calls.

    Parameters
    ----------
    first
        The first word of U.
    exponent
        At least 0.
    words
        Where the further words of U come from.
    numerator, denominator
        Positive.
    """
    value, width = first, WORD_BITS
    bits = width + _FIRST_EXCESS
    while True:
        low, high = exponential_bounds(exponent, bits)
        least, most = (low * numerator) << width, (high * numerator) << width
        here, above = (value * denominator) << bits, ((value + 1) * denominator) << bits
        if above <= least:
            return True
        if here >= most:
            return False
        # e^−x is positive, so that a U of zeros so far asks for more of U and never for e^−x to its first bit.
        if (here < least or here == 0) and most < above:
            value, width = (value << WORD_BITS) | words.take(), width + WORD_BITS
            bits = max(bits, width + _FIRST_EXCESS)
        else:
            bits *= 2


def bernoulli_exponential(exponent: Fraction, words: Words) -> bool:
    """Return true with probability e^−exponent, exactly.

    Parameters
    ----------
    exponent
        A fraction or whole number of at least 0.
    words
        Where the random bits come from.
    """
    exponent = exact_fraction(exponent, "the exponent of a probability e^−x")
    if exponent < 0:
        raise MeasurementError(
            f"e^−x is a probability for x ≥ 0 only, got x = {exponent}", remedy="give x of at least 0"
        )
    return falls_below(words.take(), exponent, words)
