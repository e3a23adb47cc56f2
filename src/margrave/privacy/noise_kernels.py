r"""The compiled loop that draws noise: it accepts and refuses by floating point where that is certain, and else stops.

One round of ``staircase`` compares U, whose first word is u, with T = C e^−x / n, x = rate · |y|^power. Here is

    P = 2⁶⁴ T as computed,    accept if (u + 1)(1 + μ) ≤ P,    refuse if u (1 − μ) ≥ P,    else *undecided*,         (1)

with the margin μ = 2⁻⁴⁰. **Bound.** ε = 2⁻⁵³ is the rounding of one operation; every operation below is one that
IEEE 754 rounds correctly, none is a library's exponential. For x < 512:

    x       |y| → float, rate → float, at most two roundings more, |y| squared       5 ε relative, 512 · 5 ε   < 2⁻⁴¹·⁶
    r       x = m/64 + r, 0 ≤ r < 1/64: x · 64, its whole part and r are exact                                  0
    e^−r    five terms of the series: what is left out                              r⁶/720                     < 2⁻⁴⁵·⁴
            rounding of the coefficients and of Horner's rule                       < 8 ε                      < 2⁻⁴⁹·⁹
    e^−m/64 two tables, each entry within 1.01 ε, and two products                  < 5 ε                      < 2⁻⁵⁰·⁶
    P, u    2⁶⁴ C/n, one product; u → float; the three operations of (1)            < 8 ε                      < 2⁻⁴⁹·⁹

Together less than 2⁻⁴¹·⁴ < μ/2: so an accepted y has (u + 1)/2⁶⁴ ≤ T and a refused one u/2⁶⁴ ≥ T, which is rule (1) of
``exponential``. For x ≥ 512 and fewer than 64 tails, T < 4096 · 2⁶⁴ · e⁻⁵¹² < 2⁻⁶⁴, so u ≥ 1 is refused for certain; P
is given as ½. Anything else is undecided. A comparison is undecided with probability below (3 μ + 2⁻⁶²) < 2⁻³⁸: once in
2.7 · 10¹¹. Then the loop hands the round, from its first word on, to ``staircase.propose_exactly``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from margrave.privacy.exponential import exponential_bounds

if TYPE_CHECKING:
    from margrave.privacy.entropy import WordArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Strict floating point: the bound above counts every rounding.
compiled = njit(cache=True, nogil=True, error_model="numpy")

MARGIN = 2.0**-40
# Why the loop came back: all drawn, a round that floating point cannot decide, not enough words for a whole round.
DONE, UNDECIDED, NO_WORDS = 0, 1, 2

_LARGEST_EXPONENT = 512
_PARTS = 64
_CELL_MASK = np.uint64(4095)
_TAIL_MASK = np.uint64(31)
_SIGN_SHIFT = np.uint64(12)
_TAIL_SHIFT = np.uint64(13)
_PLACE_SHIFT = np.uint64(18)
_TAIL_BITS = np.uint64(5)
_ZERO, _ONE, _WORD = np.uint64(0), np.uint64(1), np.uint64(64)


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
        μ of (1): `MARGIN`, or more (infinity: every comparison is undecided) to send rounds to the exact code.
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
