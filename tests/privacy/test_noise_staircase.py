"""The whole numbers of a staircase satisfy (2) of ``staircase``, in exact arithmetic, over sixty decades."""

from fractions import Fraction

import numpy as np
import pytest

from margrave.privacy.entropy import exponential_bounds
from margrave.privacy.staircase import CELLS, TAIL_CELLS, gaussian_staircase, laplace_staircase

BITS = 200
# Every kind of block width: h from 1/32 to 1/16 in many steps, then single numbers, then hardly any noise at all.
DEVIATIONS = [
    Fraction(n, 10) for n in (1, 3, 7, 10, 15, 40, 100, 159, 160, 161, 200, 250, 319, 320, 321, 500, 639, 640)
]
PARAMETERS = [*DEVIATIONS, Fraction(10**15), Fraction(1, 10**15), Fraction(2**44 * 16), Fraction(2**44 * 16 - 1)]
FAMILIES = {"gaussian": lambda deviation: gaussian_staircase(deviation**2), "laplace": laplace_staircase}


def below(staircase, block, cells):
    """Whether C e^−f at the beginning of a block is at most so many cells, for certain."""
    _, high = exponential_bounds(staircase.exponent(block << staircase.shift), BITS)
    return high * staircase.height <= cells * 2**BITS


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("parameter", PARAMETERS, ids=str)
def test_steps_lie_above_the_target(family, parameter):
    staircase = FAMILIES[family](parameter)
    blocks = len(staircase.cells)
    assert sum(staircase.cells) + TAIL_CELLS == CELLS
    assert all(below(staircase, block, cells) for block, cells in enumerate(staircase.cells))
    # Convexity makes the first step of the tail stand for all (see the docstring); a few more are looked at.
    assert all(below(staircase, blocks + 32 * j, Fraction(1, 2**j)) for j in range(5))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("parameter", PARAMETERS, ids=str)
def test_blocks_are_as_wide_as_the_proof_says(family, parameter):
    width = (1 << FAMILIES[family](parameter).shift) / parameter
    assert Fraction(1, 32) < width
    assert width <= Fraction(1, 16) or FAMILIES[family](parameter).shift == 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("parameter", PARAMETERS, ids=str)
def test_arrays_say_what_the_whole_numbers_say(family, parameter):
    staircase = FAMILIES[family](parameter)
    counts = np.bincount(staircase.block_of_cell, minlength=len(staircase.cells) + 1)
    assert counts.tolist() == [*staircase.cells, TAIL_CELLS]
    assert staircase.steps.rate == float(staircase.rate)
    assert staircase.steps.shift == staircase.shift
    heights = [*(Fraction(staircase.height, n) for n in staircase.cells), Fraction(staircase.height)]
    assert staircase.steps.thresholds.tolist() == [float(height * 2**64) for height in heights]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("parameter", DEVIATIONS, ids=str)
def test_few_proposals_are_refused(family, parameter):
    """The odds of a round are C Z / (2 · 4096 · 2^s) with Z = Σ e^−f; half of all proposals may be −0, few the rest."""
    staircase = FAMILIES[family](parameter)
    magnitudes = np.arange(1, 60 * int(parameter) + 60)
    total = 1 + 2 * np.exp(-float(staircase.rate) * magnitudes.astype(float) ** staircase.power).sum()
    odds = staircase.height * total / (2 * CELLS * 2**staircase.shift)
    assert odds * (1 + 1 / total) > 0.89
    assert odds < 1
