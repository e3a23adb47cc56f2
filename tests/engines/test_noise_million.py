"""A million samples each of the compiled sampler against its whole-number twin, on the same words."""

from fractions import Fraction

import numpy as np
import pytest

from margrave.privacy.entropy import InsecureSeededSource, Words
from margrave.privacy.noise import draw_lazily
from margrave.privacy.staircase import MARGIN, draw_exactly, gaussian_staircase, laplace_staircase

pytestmark = pytest.mark.engines

DRAWS = 1_000_000
VARIANCES = [Fraction(9, 100), 1, Fraction(9, 4), Fraction(64, 9), 100, 10**6, 10**12, 10**18, 10**30]
STAIRCASES = {f"variance {v}": gaussian_staircase(Fraction(v)) for v in VARIANCES}
STAIRCASES["scale 7/3"] = laplace_staircase(Fraction(7, 3))


@pytest.mark.parametrize("name", STAIRCASES)
def test_a_million_samples_are_those_of_whole_number_arithmetic(name):
    staircase = STAIRCASES[name]

    def words():
        return Words(InsecureSeededSource(17), 64 * DRAWS)

    twin = draw_exactly(staircase, DRAWS, words())
    for margin in (MARGIN, 0.01):
        samples = draw_lazily(staircase, np.empty(DRAWS, dtype=np.int64), words(), margin=margin)
        assert samples.tolist() == twin
