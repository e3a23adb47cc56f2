r"""A staircase above e^−f: the one proposal from which both discrete Gaussian and discrete Laplace are drawn, exactly.

The target is P(y) ∝ e^−f(|y|) on the whole numbers, with f(y) = rate · y^power:

    discrete Gaussian   rate = 1/(2 variance),  power = 2         discrete Laplace   rate = 1/scale,  power = 1      (1)

The magnitudes 0, 1, 2, … are cut into blocks of 2^s. Block k < K is given n_k of 4096 *cells*; the 32 blocks
K + 32j … K + 32j + 31 of the tail are given 2^−j cells each, 64 in all; and with a whole number C, the height,

    n_k ≥ C e^−f(k 2^s)   for k < K,         C e^−f(K 2^s) ≤ 1,         Σ_{k<K} n_k + 64 = 4096.                     (2)

*Proposal*: a cell, a sign, and a place within the block, all uniform. In the tail, j is the number of coins that fall
tails before the first head, and one of the 32 blocks is uniform. So every magnitude of a block with n cells comes with
probability n / (4096 · 2^s), with either sign. *Acceptance*: −0 is refused; any other y is accepted with probability

    C e^−f(|y|) / n    (n = n_k, or 2^−j in the tail).                                                               (3)

**The result is exact**: y comes out of one round with probability n/(2 · 4096 · 2^s) · C e^−f(|y|)/n, a constant times
e^−f(|y|), for every whole number y.

**(3) is a probability**: f grows, so within a block e^−f(|y|) ≤ e^−f(k 2^s), and (2) does the rest. In the tail f is
convex along the steps j, so that f((K + 32j) 2^s) ≥ f(K 2^s) + j·d with d the first difference, and d ≥ ln 2 makes
C e^−f ≤ 2^−j. Indeed with h = 2^s/scale > 1/32, for Laplace d = 32h > 1; for Gauss, where scale² = variance,
d = 32 K h² + 512 h² ≥ ln 2 as soon as h ≥ 1/27 or K ≥ 7, and C ≥ 2 makes K ≥ √(2 ln 2)/h > 27 where h < 1/27.

The numbers n_k and C may be *any* that satisfy (2): that they come from floating point, rounded up by far more than its
error, cannot touch the distribution. tests/privacy/test_noise_staircase.py checks (2) in whole numbers.

A round accepts with probability 0.49 (almost no noise: half of the proposals are −0), 0.70 (variance 1) to 0.96 (from
variance 256 on at least 0.945).

The compiled loop (`fill`) plays these rounds. `draw_exactly` plays them in plain whole numbers: it is what
the loop must equal, and `propose_exactly` is where the loop turns in doubt. Given the same words, both give the same
samples, one by one. Both read, for a round,

    one word     from the lowest bit: 12 bits cell, 1 sign, 5 block of the tail, then s bits place in the block
    in the tail  the coins: words up to and with the first that is not zero; from the lowest bit, zeros are tails
    unless −0    one word of U, and more only while rule (1) of ``entropy`` does not decide

**The compiled loop** accepts and refuses by floating point where that is certain, and else stops. One round compares U,
whose first word is u, with T = C e^−x / n, x = rate · |y|^power. Here is

    P = 2⁶⁴ T as computed,    accept if (u + 1)(1 + μ) ≤ P,    refuse if u (1 − μ) ≥ P,    else *undecided*,         (4)

with the margin μ = 2⁻⁴⁰. **Bound.** ε = 2⁻⁵³ is the rounding of one operation; every operation below is one that
IEEE 754 rounds correctly, none is a library's exponential. For x < 512:

    x       |y| → float, rate → float, at most two roundings more, |y| squared       5 ε relative, 512 · 5 ε   < 2⁻⁴¹·⁶
    r       x = m/64 + r, 0 ≤ r < 1/64: x · 64, its whole part and r are exact                                  0
    e^−r    five terms of the series: what is left out                              r⁶/720                     < 2⁻⁴⁵·⁴
            rounding of the coefficients and of Horner's rule                       < 8 ε                      < 2⁻⁴⁹·⁹
    e^−m/64 two tables, each entry within 1.01 ε, and two products                  < 5 ε                      < 2⁻⁵⁰·⁶
    P, u    2⁶⁴ C/n, one product; u → float; the three operations of (4)            < 8 ε                      < 2⁻⁴⁹·⁹

Together less than 2⁻⁴¹·⁴ < μ/2: so an accepted y has (u + 1)/2⁶⁴ ≤ T and a refused one u/2⁶⁴ ≥ T, which is rule (1) of
``entropy``. For x ≥ 512 and fewer than 64 tails, T < 4096 · 2⁶⁴ · e⁻⁵¹² < 2⁻⁶⁴, so u ≥ 1 is refused for certain; P
is given as ½. Anything else is undecided. A comparison is undecided with probability below (3 μ + 2⁻⁶²) < 2⁻³⁸: once in
2.7 · 10¹¹. Then the loop hands the round, from its first word on, to `propose_exactly`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from margrave.errors import MeasurementError
from margrave.privacy.entropy import WORD_BITS, Words, exponential_bounds, falls_below

if TYPE_CHECKING:
    from margrave.privacy.entropy import WordArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CELL_BITS = 12
CELLS = 1 << CELL_BITS
TAIL_BITS = 5
TAIL_BLOCKS = 1 << TAIL_BITS
# Σ_j 32 · 2^−j.
TAIL_CELLS = 2 * TAIL_BLOCKS
# In the first word of a proposal stand, from the lowest bit on: cell, sign, block of the tail, place in the block.
SIGN_BIT = CELL_BITS
TAIL_SHIFT = CELL_BITS + 1
PLACE_SHIFT = TAIL_SHIFT + TAIL_BITS
# Blocks are at most 1/16 of the scale wide: refusing under the steps then costs 2 % of the proposals.
_BLOCKS_PER_SCALE = 16
# More blocks than any table has: C < 4096 and h > 1/32 make K < 32 ln 4096 + 1 = 268.
_MOST_BLOCKS = 268
# Far above the error of the exponentials that it covers, 2⁻⁴⁰, and far below one cell of 4096.
_SLACK = 1 + 2.0**-20
# 4,096 tails in a row have probability 2⁻⁴⁰⁹⁶. Below that, magnitudes are less than (268 + 32 · 4161) · 2⁴⁵ < 2⁶³.
_MOST_TAIL_WORDS = 64

# Strict floating point: the bound above counts every rounding.
compiled = njit(cache=True, nogil=True, error_model="numpy")
MARGIN = 2.0**-40
# Why the loop came back: all drawn, a round that floating point cannot decide, not enough words for a whole round.
DONE, UNDECIDED, NO_WORDS = 0, 1, 2
_LARGEST_EXPONENT = 512
_PARTS = 64
# The layout of the first word again, in the type that compiled loops compute with.
_CELL_MASK = np.uint64(CELLS - 1)
_TAIL_MASK = np.uint64(TAIL_BLOCKS - 1)
_SIGN_SHIFT = np.uint64(SIGN_BIT)
_TAIL_SHIFT = np.uint64(TAIL_SHIFT)
_PLACE_SHIFT = np.uint64(PLACE_SHIFT)
_TAIL_BITS = np.uint64(TAIL_BITS)
_ZERO, _ONE, _WORD = np.uint64(0), np.uint64(1), np.uint64(64)


@dataclass(frozen=True)
class Staircase:
    """The numbers of (1) and (2), and the arrays that compiled loops read.

    Attributes
    ----------
    rate, power
        The target, (1).
    shift
        s: blocks hold 2^s magnitudes; at most 45.
    height
        C.
    cells
        n_k for k = 0 … K − 1.
    block_of_cell
        Shape (4096,); the block of each cell, K for the tail.
    steps
        The same for the compiled loops.
    """

    rate: Fraction
    power: int
    shift: int
    height: int
    cells: tuple[int, ...]
    block_of_cell: NDArray[np.uint16]
    steps: Steps

    def exponent(self, magnitude: int) -> Fraction:
        """Return f(magnitude)."""
        return self.rate * (magnitude if self.power == 1 else magnitude * magnitude)


@lru_cache(maxsize=256)
def gaussian_staircase(variance: Fraction) -> Staircase:
    """Return the staircase of the discrete Gaussian; ``variance`` is from 10⁻³⁰ to 10³⁰."""
    # 2^s ≤ √variance / 16, by whole numbers: 4^s ≤ variance / 256.
    square = int(variance / _BLOCKS_PER_SCALE**2)
    return _staircase(1 / (2 * variance), 2, max(0, square.bit_length() - 1) // 2)


@lru_cache(maxsize=256)
def laplace_staircase(scale: Fraction) -> Staircase:
    """Return the staircase of the discrete Laplace; ``scale`` is from 10⁻¹⁵ to 10¹⁵."""
    return _staircase(1 / scale, 1, max(0, int(scale / _BLOCKS_PER_SCALE).bit_length() - 1))


def _staircase(rate: Fraction, power: int, shift: int) -> Staircase:
    """Return the staircase of e^−rate·y^power with blocks of 2^shift."""
    exponents = float(rate * (1 << shift) ** power) * np.arange(_MOST_BLOCKS, dtype=np.float64) ** power
    height, cells = _fitted_cells(exponentials(exponents) * _SLACK)
    block_of_cell = np.repeat(np.arange(len(cells) + 1, dtype=np.uint16), np.append(cells, TAIL_CELLS))
    # Acceptance is decided in units of 2⁻⁶⁴, the last bit of a word.
    thresholds = np.append(height / cells, height) * 2.0**64
    steps = Steps(block_of_cell, thresholds, np.uint64(shift), float(rate), power)
    for array in (block_of_cell, thresholds):
        array.flags.writeable = False
    return Staircase(rate, power, shift, height, tuple(cells.tolist()), block_of_cell, steps)


def _fitted_cells(bounds: NDArray[np.float64]) -> tuple[int, NDArray[np.int64]]:
    """Return a large C, and n_k, that satisfy (2); ``bounds`` are upper bounds of e^−f(k 2^s)."""
    room = CELLS - TAIL_CELLS
    height = int(room / bounds.sum())
    while True:
        blocks = max(1, int(np.count_nonzero(height * bounds > 1)))
        cells = np.ceil(height * bounds[:blocks]).astype(np.int64)
        spare = room - int(cells.sum())
        if spare >= 0:
            cells[0] += spare
            return height, cells
        height -= 1


def propose_exactly(staircase: Staircase, words: Words) -> int | None:
    """Return the sample of one round, or nothing if the round refuses its proposal."""
    head = words.take()
    block = int(staircase.block_of_cell[head % CELLS])
    # What (3) calls C/n, as a fraction.
    numerator = staircase.height
    denominator = 1
    if block < len(staircase.cells):
        denominator = staircase.cells[block]
    else:
        tails = _count_tails(words)
        block += (tails << TAIL_BITS) + (head >> TAIL_SHIFT) % TAIL_BLOCKS
        numerator <<= tails
    magnitude = (block << staircase.shift) + (head >> PLACE_SHIFT) % (1 << staircase.shift)
    negative = (head >> SIGN_BIT) % 2 == 1
    if magnitude == 0 and negative:
        return None
    first = words.take()
    exponent = staircase.exponent(magnitude)
    if not falls_below(first, exponent, words, numerator=numerator, denominator=denominator):
        return None
    return -magnitude if negative else magnitude


def draw_exactly(staircase: Staircase, count: int, words: Words) -> list[int]:
    """Return ``count`` samples by whole-number arithmetic alone: slow, obvious, and the law of the compiled loop."""
    samples: list[int] = []
    while len(samples) < count:
        sample = propose_exactly(staircase, words)
        if sample is not None:
            samples.append(sample)
    return samples


def _count_tails(words: Words) -> int:
    """Return how many coins fall tails before the first head."""
    for empty in range(_MOST_TAIL_WORDS):
        word = words.take()
        if word:
            return empty * WORD_BITS + (word & -word).bit_length() - 1
    raise MeasurementError(
        f"a source of random bits gave {_MOST_TAIL_WORDS * WORD_BITS} zeros in a row, which a fair one never does",
        remedy="use SystemEntropy()",
    )


class Steps(NamedTuple):
    """A staircase as the compiled loop reads it.

    Attributes
    ----------
    block_of_cell
        Shape (4096,), uint16; the block of each cell, K for the tail.
    thresholds
        Shape (K + 1,); 2⁶⁴ C/n_k, then 2⁶⁴ C for the tail.
    shift
        Blocks hold 2^shift magnitudes.
    rate, power
        The exponent is rate · |y|^power; power is 1 or 2.
    """

    block_of_cell: NDArray[np.uint16]
    thresholds: Floats
    shift: np.uint64
    rate: float
    power: int


def _table(step: Fraction, length: int) -> Floats:
    """Return e^−i·step for i < length, each within 1.01 · 2⁻⁵³ of its value."""
    # e^−x > 2^−1.5x, so that 64 bits at least are left for the quotient, which Python rounds correctly.
    bits = 64 + int(length * step * 3 / 2)
    values = [exponential_bounds(i * step, bits)[0] / (1 << bits) for i in range(length)]
    return np.array(values, dtype=np.float64)


WHOLE = _table(Fraction(1), _LARGEST_EXPONENT)
PART = _table(Fraction(1, _PARTS), _PARTS)


@compiled
def exponential(x: float, whole: Floats, part: Floats) -> float:
    """Return e^−x for 0 ≤ x < 512, within 2⁻⁴⁵ relative, from the tables `WHOLE` and `PART`."""
    index = np.int64(x * 64.0)
    r = x - index * 0.015625
    series = 1.0 - r * (1.0 - r * (0.5 - r * (1.0 / 6.0 - r * (1.0 / 24.0 - r * (1.0 / 120.0)))))
    value: float = whole[index >> 6] * part[index & 63] * series
    return value


@compiled
def _exponentials(exponents: Floats, whole: Floats, part: Floats) -> Floats:
    """Return e^−x for each x ≥ 0, and 2⁻⁶⁹² in place of anything smaller."""
    values = np.full(exponents.size, 2.0**-692)
    for i in range(exponents.size):
        if exponents[i] < 480.0:
            values[i] = exponential(exponents[i], whole, part)
    return values


def exponentials(exponents: Floats) -> Floats:
    """Return upper bounds, but for a relative error of 2⁻⁴⁵, of e^−x for each x ≥ 0 of an array."""
    return _exponentials(exponents, WHOLE, PART)


@compiled
def fill(
    words: WordArray,
    position: int,
    out: Integers,
    filled: int,
    steps: Steps,
    margin: float,
    whole: Floats,
    part: Floats,
) -> tuple[int, int, int]:
    """Draw until ``out`` is full, the words end, or a round is undecided.

    Parameters
    ----------
    words, position
        The random words, and the place of the first to use.
    out, filled
        Where to write, and how much of it holds samples already.
    steps
        The staircase.
    margin
        μ of (4): `MARGIN`, or more (infinity: every comparison is undecided) to send rounds to the exact code.
    whole, part
        The tables `WHOLE` and `PART`.

    Returns
    -------
    `DONE`, `UNDECIDED` or `NO_WORDS`; the place of the first word of the next round; how much of ``out`` is filled.
    """
    tail = np.uint64(steps.thresholds.size - 1)
    place_mask = (_ONE << steps.shift) - _ONE
    while filled < out.size:
        if position + 2 > words.size:
            return NO_WORDS, position, filled
        head = words[position]
        following = position + 1
        block = np.uint64(steps.block_of_cell[head & _CELL_MASK])
        threshold = steps.thresholds[block]
        if block == tail:
            coins = words[following]
            following += 1
            if coins == _ZERO:
                return UNDECIDED, position, filled
            tails = _trailing_zeros(coins)
            block += (tails << _TAIL_BITS) + ((head >> _TAIL_SHIFT) & _TAIL_MASK)
            threshold *= float(_ONE << tails)
        magnitude = (block << steps.shift) + ((head >> _PLACE_SHIFT) & place_mask)
        negative = (head >> _SIGN_SHIFT) & _ONE
        if magnitude == _ZERO and negative == _ONE:
            position = following
            continue
        if following >= words.size:
            return NO_WORDS, position, filled
        u = float(words[following])
        x = steps.rate * float(magnitude)
        if steps.power == 2:
            x *= float(magnitude)
        limit = 0.5
        if x < 512.0:
            limit = threshold * exponential(x, whole, part)
        if (u + 1.0) * (1.0 + margin) <= limit:
            out[filled] = -np.int64(magnitude) if negative == _ONE else np.int64(magnitude)
            filled += 1
        elif not u * (1.0 - margin) >= limit:
            return UNDECIDED, position, filled
        position = following + 1
    return DONE, position, filled


@compiled
def _trailing_zeros(word: np.uint64) -> np.uint64:
    """Return how many zero bits stand below the lowest one of a word that is not zero."""
    count = _ZERO
    while (word >> count) & _ONE == _ZERO:
        count += _ONE
    return count
