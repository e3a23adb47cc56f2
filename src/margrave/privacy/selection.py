r"""The exponential mechanism: the index of a good candidate, by its score, sampled exactly.

For scores s_i of sensitivity Δ (no score moves by more than Δ when one person is added or removed) it returns i with

    P(i) = e^(−x_i) / Σ_j e^(−x_j),      x_i = ε (max s − s_i) / 2Δ.                                             (1)

*Cost.* ln P(i) is ε s_i / 2Δ plus a constant of the table, and each s_i moves by at most Δ. So the log-ratio of P(i)
between neighbouring tables lies, for all i, in one interval of length ε ("bounded range"), which is ε²/8-zCDP
([CR] Cesar and Rogers, arXiv 2004.07223; quoted in [ReM] App. B).

*Scores that are not exact.* If every score given differs from the true one by at most η on every table, then scores of
neighbours differ by at most Δ + 2η: the sensitivity of what was given. (1) is therefore used with Δ + 2 · ``error``,
which must bound the rounding whatever the table is. A float is a rational number and is taken as it is: nothing is
rounded here.

*Sampling.* Write x_i = g_i + f_i with g_i whole and 0 ≤ f_i < 1. Propose a group g with probability proportional to
c_g e^(−g), c_g being its number of candidates, then one of its members evenly: candidate i is proposed with
probability proportional to e^(−g_i). Accept it with probability e^(−f_i) > 1/e, else begin again: what is accepted has
distribution (1). The group comes from a uniform real U: it is the g with S_(g−1) ≤ U S < S_g, where the S_g are the
partial sums of c_g e^(−g) and S is the whole. Bits of U and of the sums are added until whole-number bounds decide
(they almost surely do), so that no probability is ever rounded. Expected cost: fewer than e proposals, each of a
few words and one search, after one division for each candidate. A group beyond the bits in use, e^(−g) < 2^−128, is
not computed at all until U falls where it matters.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate
from numbers import Rational, Real

from margrave.errors import MeasurementError, PlanError
from margrave.privacy.budget import Number, exact_number, positive_number, shown_value
from margrave.privacy.entropy import WORD_BITS, Source, SystemEntropy, Words, bernoulli_exponential, exponential_bounds

# Bits of U and of the sums at the first attempt; more are needed less than once in 2⁶⁴ groups.
_FIRST_WORDS = 2
# A fair source needs more words than this for one selection with probability below e^−100,000.
_MOST_WORDS = 1 << 20
_ROOT_BITS = 64


def select(
    scores: Sequence[int | float | Fraction],
    *,
    epsilon: Number,
    sensitivity: Number,
    error: Number = 0,
    source: Source | None = None,
) -> int:
    """Return the index of a candidate, drawn by the exponential mechanism: higher scores are likelier.

    The cost is `selection_cost` (ε²/8 of zCDP), whatever the number of candidates, which is public.

    Parameters
    ----------
    scores
        One for each candidate: whole numbers, fractions or finite floats, or an array of them of shape (candidates,).
    epsilon
        ε of (1), positive.
    sensitivity
        Δ: by how much a true score can move when one person is added or removed; positive.
    error
        η: by how much a score given can differ from the true one, on any table; at least 0.
    source
        Where the random bits come from; the operating system if not given.
    """
    rate = positive_number("epsilon", epsilon) / (2 * (positive_number("sensitivity", sensitivity) + 2 * _error(error)))
    values, common = _whole_scores(scores)
    best, above, below = max(values), rate.numerator, rate.denominator * common
    groups: dict[int, list[int]] = {}
    for index, value in enumerate(values):
        groups.setdefault((best - value) * above // below, []).append(index)
    order = sorted(groups)
    counts = [len(groups[group]) for group in order]
    sums = cache(lambda bits: _partial_sums(order, counts, bits))
    words = Words(SystemEntropy() if source is None else source, _MOST_WORDS)
    while True:
        members = groups[order[_draw_group(sums, words)]]
        index = members[_draw_below(len(members), words)]
        if bernoulli_exponential(Fraction((best - values[index]) * above % below, below), words):
            return index


def selection_cost(epsilon: Number) -> Fraction:
    """Return ρ of one selection with ε: ε²/8."""
    return positive_number("epsilon", epsilon) ** 2 / 8


def selection_epsilon(rho: Number) -> Fraction:
    """Return ε of a selection that costs at most ρ: √(8ρ), exact where it is a fraction, else rounded down.

    The rounding, to 64 bits or more, never passes the budget: ε² ≤ 8ρ holds in whole numbers.
    """
    square = 8 * positive_number("rho", rho)
    above, below = square.numerator, square.denominator
    root = Fraction(math.isqrt(above), math.isqrt(below))
    if root * root == square:
        return root
    places = _ROOT_BITS + max(0, (below.bit_length() - above.bit_length()) // 2 + 1)
    return Fraction(math.isqrt((above << 2 * places) // below), 1 << places)


def _error(value: Number) -> Fraction:
    number = exact_number("error", value)
    if number < 0:
        raise PlanError(
            f"error of a selection must be at least 0, got {shown_value(value)}", remedy="give 0 for exact scores"
        )
    return number


def _whole_scores(scores: Sequence[int | float | Fraction]) -> tuple[list[int], int]:
    """Return whole numbers and the positive number by which all of them are divided to give the scores."""
    values = scores.tolist() if hasattr(scores, "tolist") else scores
    pairs = [_ratio(place, value) for place, value in enumerate(values)]
    if not pairs:
        raise MeasurementError("there is no candidate to select from", remedy="give at least one score")
    common = math.lcm(*{below for _, below in pairs})
    return [above * (common // below) for above, below in pairs], common


def _ratio(place: int, value: object) -> tuple[int, int]:
    number = None if isinstance(value, bool) else value
    if isinstance(number, Rational):
        return int(number.numerator), int(number.denominator)
    if isinstance(number, Real) and math.isfinite(number):
        return float(number).as_integer_ratio()
    # The value itself is private and stays out of the message.
    raise MeasurementError(
        f"the score of candidate {place} is not a finite number",
        remedy="give whole numbers, fractions or finite floats",
    )


def _partial_sums(order: list[int], counts: list[int], bits: int) -> tuple[list[int], list[int]]:
    """Return bounds low_k ≤ 2^bits S_k ≤ high_k of the partial sums of counts[k] e^(−order[k]); order increases."""
    near = bisect_right(order, bits)
    bounds = [exponential_bounds(Fraction(group), bits) for group in order[:near]]
    bounds += [(0, 1)] * (len(order) - near)
    low = accumulate(count * bound for count, (bound, _) in zip(counts, bounds, strict=True))
    high = accumulate(count * bound for count, (_, bound) in zip(counts, bounds, strict=True))
    return list(low), list(high)


def _draw_group(sums: Callable[[int], tuple[list[int], list[int]]], words: Words) -> int:
    """Return place k with probability (S_k − S_(k−1)) / S, exactly.

    With b bits, U lies in [u, u + 1) · 2^−b and 2^b S_k between whole numbers low_k ≤ high_k. Place k is certain if
    u · low ≥ 2^b high_(k−1) and (u + 1) · high ≤ 2^b low_k, low and high being those of the whole sum; the last place
    needs no bound above, because U < 1.
    """
    uniform, bits = 0, 0
    while True:
        for _ in range(max(_FIRST_WORDS, bits // WORD_BITS)):  # twice as many bits at each attempt
            uniform, bits = uniform << WORD_BITS | words.take(), bits + WORD_BITS
        low, high = sums(bits)
        place = bisect_right(high, (uniform * low[-1]) >> bits)
        if place == len(low) - 1 or (uniform + 1) * high[-1] <= low[place] << bits:
            return place


def _draw_below(count: int, words: Words) -> int:
    """Return a whole number below ``count``, each with the same probability: words that would favour some are left."""
    most = (1 << WORD_BITS) - (1 << WORD_BITS) % count
    while True:
        word = words.take()
        if word < most:
            return word % count
