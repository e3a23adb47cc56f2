"""Where random bits come from: the operating system, or a seed for experiments that promise no privacy.

All randomness is a sequence of *words*, independent and uniform whole numbers below 2⁶⁴. A source makes them, and its
``name`` and ``private`` travel with everything that was drawn from it: noise whose bits can be computed again from a
seed can be subtracted again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from margrave.errors import NoiseError

WordArray = NDArray[np.uint64]

WORD_BITS = 64
# 512 kB: stays in the cache, and threads meet at the interpreter lock once in 30,000 samples. Where a source stands
# after a long call depends on it, and with it what a seed gives.
_LARGEST_BLOCK = 1 << 16


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
    """The random bits of the operating system (``os.urandom``), which are fit for cryptography."""

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
            raise NoiseError(f"a seed is a whole number of at least 0, got {seed!r}", remedy="give for instance seed=0")
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
        source = cls(0)
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
        How many words may be fetched before the source is held to be broken: no reader needs so many from a fair one.

    Attributes
    ----------
    block
        The words that were fetched last.
    position
        The place in ``block`` of the next word to read; whoever reads the block itself moves it.
    """

    def __init__(self, source: Source, limit: int) -> None:
        self.block: WordArray = np.empty(0, dtype=np.uint64)
        self.position = 0
        self._source = source
        self._left = limit

    def fetch(self, count: int) -> None:
        """Fetch about so many words more, at least one, behind those that were not read yet."""
        wanted = min(max(count, 1), _LARGEST_BLOCK)
        if self._left < 1:
            raise NoiseError(
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
    """Return words of a source that keeps its word about their number and type."""
    words = source.words(count)
    if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.shape != (count,):
        raise NoiseError(
            f"source {source.name!r} must give {count} words as an array of uint64, it gave something else"
        )
    return words
