"""The rounds of ``staircase`` in plain whole numbers: what the compiled loop must equal, and where it turns in doubt.

Given the same words, `draw_exactly` and the compiled loop give the same samples, one by one: both read, for a round,

    one word     from the lowest bit: 12 bits cell, 1 sign, 5 block of the tail, then s bits place in the block
    in the tail  the coins: words up to and with the first that is not zero; from the lowest bit, zeros are tails
    unless −0    one word of U, and more only while rule (1) of ``exponential`` does not decide
"""

from __future__ import annotations

from margrave.errors import NoiseError
from margrave.privacy.entropy import WORD_BITS, Words
from margrave.privacy.exponential import falls_below
from margrave.privacy.staircase import CELLS, PLACE_SHIFT, SIGN_BIT, TAIL_BITS, TAIL_BLOCKS, TAIL_SHIFT, Staircase

# 4,096 tails in a row have probability 2⁻⁴⁰⁹⁶. Below that, magnitudes are less than (268 + 32 · 4161) · 2⁴⁵ < 2⁶³.
_MOST_TAIL_WORDS = 64


def propose_exactly(staircase: Staircase, words: Words) -> int | None:
    """Return the sample of one round, or nothing if the round refuses its proposal."""
    head = words.take()
    block = int(staircase.block_of_cell[head % CELLS])
    # What (3) of ``staircase`` calls C/n, as a fraction.
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
    raise NoiseError(
        f"a source of random bits gave {_MOST_TAIL_WORDS * WORD_BITS} zeros in a row, which a fair one never does",
        remedy="use SystemEntropy()",
    )
