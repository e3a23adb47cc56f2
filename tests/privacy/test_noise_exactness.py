"""The compiled sampler against its whole-number twin, word by word, and at the words where floating point is in doubt.

Fast path, mixed path, forced fallback (every comparison undecided) and twin get the same words and must give the same
20,000 samples, at every parameter; tests/engines/test_noise_million.py has the million.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from margrave.errors import MeasurementError
from margrave.privacy.entropy import InsecureSeededSource, Words, exponential_bounds
from margrave.privacy.noise import discrete_gaussian, discrete_laplace, draw_lazily
from margrave.privacy.staircase import (
    CELLS,
    MARGIN,
    draw_exactly,
    gaussian_staircase,
    laplace_staircase,
    propose_exactly,
)

VARIANCES = [
    Fraction(1, 10**4),
    Fraction(9, 100),
    Fraction(1),
    Fraction(9, 4),
    Fraction(64, 9),
    Fraction(100),
    Fraction(10**7, 7),
    Fraction(10**12),
    Fraction(10**18),
    Fraction(10**30),
]
SCALES = [Fraction(1, 10), Fraction(7, 3), Fraction(10**4, 3), Fraction(10**15)]
STAIRCASES = {f"variance {v}": gaussian_staircase(v) for v in VARIANCES}
STAIRCASES |= {f"scale {s}": laplace_staircase(s) for s in SCALES}
# One comparison in ten or so is undecided with it, so that the two codes take turns.
MIXED = 0.1
FORCED = math.inf
DRAWS = 20_000
LARGEST_WORD = 2**64 - 1


class ScriptedSource:
    """Words written by the test, then zeros."""

    name, private = "script", False

    def __init__(self, script):
        self.script = list(script)

    def words(self, count):
        words, self.script = self.script[:count], self.script[count:]
        return np.array(words + [0] * (count - len(words)), dtype=np.uint64)

    def spawn(self, count):
        return [self] * count


def seeded(seed):
    return Words(InsecureSeededSource(seed), 64 * DRAWS)


def scripted(*script):
    return Words(ScriptedSource(script), 10**6)


def lazily(staircase, words, count=DRAWS, margin=MARGIN):
    return draw_lazily(staircase, np.empty(count, dtype=np.int64), words, margin=margin).tolist()


@pytest.mark.parametrize("name", STAIRCASES)
def test_compiled_loop_mixed_path_and_whole_number_twin_agree_sample_by_sample(name):
    staircase = STAIRCASES[name]
    twin = draw_exactly(staircase, DRAWS, seeded(1))
    assert lazily(staircase, seeded(1)) == twin
    assert lazily(staircase, seeded(1), margin=MIXED) == twin


@pytest.mark.parametrize("name", STAIRCASES)
def test_forced_fallback_changes_nothing(name):
    assert lazily(STAIRCASES[name], seeded(2), margin=FORCED) == lazily(STAIRCASES[name], seeded(2))


@pytest.mark.parametrize(
    ("margin", "fewest", "most"), [(MARGIN, 0, 0), (MIXED, 1_500, 15_000), (FORCED, 20_000, 45_000)]
)
def test_margins_send_as_many_rounds_to_whole_numbers_as_they_should(margin, fewest, most, monkeypatch):
    """Else the tests above could compare one path with itself."""
    rounds = []

    def counted(staircase, words):
        rounds.append(1)
        return propose_exactly(staircase, words)

    monkeypatch.setattr("margrave.privacy.noise.propose_exactly", counted)
    lazily(STAIRCASES["variance 64/9"], seeded(1), margin=margin)
    assert fewest <= len(rounds) <= most


def test_public_functions_draw_what_the_twin_draws():
    variance, scale = Fraction(64, 9), Fraction(7, 3)
    gaussian = discrete_gaussian(variance, 500, source=InsecureSeededSource(3))
    laplace = discrete_laplace(scale, 500, source=InsecureSeededSource(3))
    assert gaussian.tolist() == draw_exactly(gaussian_staircase(variance), 500, seeded(3))
    assert laplace.tolist() == draw_exactly(laplace_staircase(scale), 500, seeded(3))


def proposal(staircase, magnitude, negative=False):
    """The first word that proposes a magnitude outside the tail."""
    block, place = magnitude >> staircase.shift, magnitude % (1 << staircase.shift)
    cell = int(np.flatnonzero(staircase.block_of_cell == block)[0])
    return cell | negative << 12 | place << 18


def critical_word(staircase, magnitude):
    """The word u with u < 2⁶⁴ C e^−f / n < u + 1: neither accepted nor refused by itself."""
    n = staircase.cells[magnitude >> staircase.shift]
    bounds = exponential_bounds(staircase.exponent(magnitude), 400)
    low, high = ((bound * staircase.height << 64) // (n << 400) for bound in bounds)
    assert low == high, "400 bits are enough"
    return low


@pytest.mark.parametrize("name", [name for name in STAIRCASES if len(STAIRCASES[name].cells) > 1])
@pytest.mark.parametrize("margin", [MARGIN, FORCED])
def test_the_words_around_the_threshold_are_decided_exactly(name, margin):
    """One word below is accepted, one above refused, and the word itself is decided by the next words."""
    staircase = STAIRCASES[name]
    magnitude = (1 << staircase.shift) + (staircase.shift > 0)
    head, after = proposal(staircase, magnitude, negative=True), proposal(staircase, 0)
    critical = critical_word(staircase, magnitude)
    accept = {
        (head, critical - 1): True,
        (head, critical + 1): False,
        (head, critical, 0): True,
        (head, critical, LARGEST_WORD): False,
    }
    for script, accepted in accept.items():
        words = scripted(*script, after, 0)
        assert lazily(staircase, words, 1, margin) == [-magnitude if accepted else 0], script
        assert lazily(staircase, words, 1, margin) == [0], "no word is read twice or lost"
        assert propose_exactly(staircase, scripted(*script)) == (-magnitude if accepted else None)


def test_minus_zero_is_refused_without_reading_more():
    staircase = STAIRCASES["variance 1"]
    minus, plus, one = proposal(staircase, 0, negative=True), proposal(staircase, 0), proposal(staircase, 1)
    for margin in (MARGIN, FORCED):
        assert lazily(staircase, scripted(minus, plus, 0, minus, one, 0), 2, margin) == [0, 1]


@pytest.mark.parametrize("name", ["variance 1", "variance 1000000000000000000000000000000", "scale 7/3"])
@pytest.mark.parametrize("tails", [0, 1, 5, 63, 64, 130])
@pytest.mark.parametrize("margin", [MARGIN, FORCED])
def test_tail_blocks_follow_their_coins(name, tails, margin):
    """The odds of such samples go down to 2^−2000, and still they come when the words say so."""
    staircase = STAIRCASES[name]
    head = (CELLS - 1) | 1 << 12 | 7 << 13 | 3 << 18
    coins = [0] * (tails // 64) + [1 << tails % 64]
    magnitude = (len(staircase.cells) + 32 * tails + 7 << staircase.shift) + 3 % (1 << staircase.shift)
    refused = scripted(head, *coins, LARGEST_WORD, proposal(staircase, 0), 0)
    assert lazily(staircase, refused, 1, margin) == [0]
    # Acceptance needs U < 2^tails C e^−x, for which 1.45 x zero bits are enough.
    zeros = math.ceil(staircase.exponent(magnitude) * Fraction(145, 100) / 64)
    if zeros <= 32:
        words = scripted(head, *coins, *[0] * zeros, proposal(staircase, 0), 0)
        assert lazily(staircase, words, 2, margin) == [-magnitude, 0]


def test_samples_fit_however_the_coins_fall():
    """The longest run of tails that is not an error, at the widest blocks: the largest magnitude ever proposed."""
    for staircase in (gaussian_staircase(Fraction(10**30)), laplace_staircase(Fraction(10**15))):
        longest = 63 * 64 + 63
        assert (len(staircase.cells) + 32 * longest + 32) << staircase.shift < 2**63
        assert staircase.shift + 18 <= 64, "all places fit the first word"


def test_endless_zeros_where_coins_are_read_are_an_error():
    with pytest.raises(MeasurementError, match=r"4096 zeros in a row, which a fair one never does; use SystemEntropy"):
        lazily(STAIRCASES["variance 1"], scripted(CELLS - 1), 1)


def test_a_source_that_is_never_accepted_is_an_error():
    class Ones(ScriptedSource):
        name = "ones"

        def words(self, count):
            return np.full(count, LARGEST_WORD, dtype=np.uint64)

    with pytest.raises(MeasurementError, match=r"words of 'ones' are not random: .* use SystemEntropy\(\)"):
        discrete_gaussian(4, 10, source=Ones([]))


def test_a_margin_below_the_proven_error_is_refused():
    for margin in (0.0, math.nan):
        with pytest.raises(MeasurementError, match="does not cover the error of the comparisons"):
            lazily(STAIRCASES["variance 1"], seeded(1), 1, margin)
