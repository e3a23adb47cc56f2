r"""Exact comparisons with e^−x, x rational: whole-number bounds of any tightness, and coins that fall with e^−x.

A uniform real number U in [0, 1) is never written down; its bits are read as far as a comparison needs them, 64 at a
time. After w words U lies in [v, v + 1) · 2^−64w for a whole number v, and

    U < T  is certain if  v + 1 ≤ 2^64w T,     U ≥ T  is certain if  v ≥ 2^64w T,     else one more word is read.    (1)

For T = (a/b) e^−x the bounds below decide (1): they become as tight as needed, and e^−x is irrational for every
rational x ≠ 0 (Lambert), so that it is never equal to v/2^64w and the tightening ends. For x = 0 the bounds are equal.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from margrave.errors import NoiseError
from margrave.privacy.entropy import WORD_BITS, Words

# Bits beyond those of U that the first comparison carries: tighter bounds are needed once in 2³¹ comparisons.
_FIRST_EXCESS = 32
# Arguments are halved until they are below 2⁻⁸, which makes the series short.
_SERIES_BITS = 8


def exact_fraction(value: object, what: str) -> Fraction:
    """Return a fraction or whole number as a fraction; a float is refused because it is rarely the number meant."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return Fraction(int(value))
    raise NoiseError(
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
    # Every halving doubles the relative error once; what is left of it must be small beside one unit of the result.
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
        raise NoiseError(f"e^−x is a probability for x ≥ 0 only, got x = {exponent}", remedy="give x of at least 0")
    return falls_below(words.take(), exponent, words)
