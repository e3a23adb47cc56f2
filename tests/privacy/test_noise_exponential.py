"""e^−x in whole numbers against 60 and more decimal digits, in floating point against whole numbers, and as a coin."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from margrave.errors import MeasurementError
from margrave.privacy.entropy import InsecureSeededSource, Words, bernoulli_exponential, exponential_bounds, falls_below
from margrave.privacy.staircase import PART, WHOLE, exponential, exponentials

EXPONENTS = [Fraction(1, 10**9), Fraction(1, 7), Fraction(1), Fraction(22, 7), Fraction(100), Fraction(10**6 + 1, 3000)]
fractions = st.fractions(min_value=0, max_value=500, max_denominator=10**30)


def decimal_exponential(x, digits=60):
    """e^−x to so many significant digits, as a fraction, with the error of the last digit."""
    with localcontext() as context:
        context.prec = digits + 10
        value = (-(Decimal(x.numerator) / Decimal(x.denominator))).exp()
    # The quotient is off by x · 10^−(digits + 10) relative, with x ≤ 500: three digits of the ten.
    return Fraction(value), Fraction(value) / 10**digits


@pytest.mark.parametrize("x", EXPONENTS, ids=str)
@pytest.mark.parametrize("bits", [64, 96, 192, 1000])
def test_bounds_enclose_sixty_decimal_digits_and_are_tight(x, bits):
    value, error = decimal_exponential(x, max(60, bits // 3 + 10))
    low, high = exponential_bounds(x, bits)
    assert low <= (value + error) * 2**bits
    assert high >= (value - error) * 2**bits
    assert 0 <= high - low <= 2


@given(x=fractions, bits=st.integers(1, 400))
@settings(max_examples=300, deadline=None)
def test_bounds_enclose_the_value_for_any_fraction(x, bits):
    value, error = decimal_exponential(x, 150 + bits // 3)
    low, high = exponential_bounds(x, bits)
    assert low <= (value + error) * 2**bits
    assert high >= (value - error) * 2**bits
    assert high - low <= 2


def test_bounds_are_equal_at_zero_and_trivial_far_out():
    assert exponential_bounds(Fraction(0), 80) == (2**80, 2**80)
    assert exponential_bounds(Fraction(10**29), 80) == (0, 1)


@given(x=st.floats(0, 511.999))
@settings(max_examples=500, deadline=None)
def test_floating_point_keeps_its_proven_bound(x):
    """2⁻⁴⁵·⁴ of the series, 2⁻⁴⁹ of the rest: less than 2⁻⁴⁵ relative, and no library's exponential in it."""
    bits = 900
    low, high = exponential_bounds(Fraction(x), bits)
    computed = Fraction(exponential(x, WHOLE, PART)) * 2**bits
    assert low * (1 - Fraction(1, 2**45)) <= computed <= high * (1 + Fraction(1, 2**45))


def test_tables_are_as_close_as_the_bound_assumes():
    for table, step in ((WHOLE, Fraction(1)), (PART, Fraction(1, 64))):
        for index, entry in enumerate(table.tolist()):
            low, high = exponential_bounds(index * step, 900)
            assert abs(Fraction(entry) * 2**900 - low) <= (high - low) + high * Fraction(101, 100) / 2**53


def test_exponentials_of_an_array_never_fall_below_the_value():
    values = exponentials(np.array([0.0, 1.0, 479.0, 480.0, 1e30]))
    assert values[0] == 1.0
    assert values[3] == values[4] == 2.0**-692
    assert Fraction(values[3]) * 2**900 > exponential_bounds(Fraction(480), 900)[1]


def words(seed=0, limit=10**7):
    return Words(InsecureSeededSource(seed), limit)


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 100), Fraction(1), Fraction(5, 2)], ids=str)
def test_coins_fall_as_often_as_they_should(x):
    """20,000 throws; five standard deviations have a false-alarm rate of 6e-7, and the seed is fixed."""
    stream, throws = words(), 20_000
    heads = sum(bernoulli_exponential(x, stream) for _ in range(throws))
    p = float(decimal_exponential(x)[0])
    assert abs(heads - throws * p) <= 5 * (throws * p * (1 - p)) ** 0.5


def test_a_coin_with_a_factor_is_decided_at_its_edge():
    """T = (3/4) e⁰ is a whole number of words: its last word below accepts and itself refuses, with no word more."""
    empty = words(limit=0)
    edge = 3 * 2**62
    assert falls_below(edge - 1, Fraction(0), empty, numerator=3, denominator=4)
    assert not falls_below(edge, Fraction(0), empty, numerator=3, denominator=4)


def test_an_exponent_must_be_an_exact_number_of_at_least_zero():
    with pytest.raises(
        MeasurementError, match=r"e\^−x is a probability for x ≥ 0 only, got x = -1/2; give x of at least 0"
    ):
        bernoulli_exponential(Fraction(-1, 2), words())
    with pytest.raises(MeasurementError, match=r"must be a Fraction or a whole number, got 0\.5 \(float\)"):
        bernoulli_exponential(0.5, words())
