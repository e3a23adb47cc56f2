"""The exponential mechanism: exact probabilities, its cost, and the sensitivity of inexact scores."""

import math
import re
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, ncx2

from margrave.errors import MeasurementError, PlanError
from margrave.privacy.entropy import InsecureSeededSource, Words
from margrave.privacy.selection import (
    _draw_below,
    _draw_group,
    _partial_sums,
    select,
    selection_cost,
    selection_epsilon,
)

DRAWS = 8_000
# The seeds are fixed, so a test never flickers; 1e-6 is the share of seeds at which a right sampler would fail.
FALSE_ALARM = 1e-6


def refused(kind, text):
    return pytest.raises(kind, match=re.escape(text))


def softmax(scores, epsilon, sensitivity):
    exponents = np.array([float(epsilon * (score - max(scores)) / (2 * sensitivity)) for score in scores])
    return np.exp(exponents) / np.exp(exponents).sum()


def pearson(scores, probabilities, *, seed=0, **options):
    """Pearson's χ² of many selections against the probabilities, and how many degrees of freedom it has."""
    source = InsecureSeededSource(seed)
    counts = Counter(select(scores, source=source, **options) for _ in range(DRAWS))
    expected = DRAWS * probabilities
    assert expected.min() > 5
    return sum((counts[i] - e) ** 2 / e for i, e in enumerate(expected)), len(expected) - 1


class Given:
    """A source that gives the words it was told, then zeros."""

    name, private = "given", False

    def __init__(self, *words):
        self.left = list(words)

    def words(self, count):
        taken = self.left[:count]
        del self.left[:count]
        return np.array(taken + [0] * (count - len(taken)), dtype=np.uint64)

    def spawn(self, count):
        raise NotImplementedError


# Probabilities


@pytest.mark.parametrize(
    ("scores", "epsilon", "sensitivity"),
    [
        ([0, 1, 2, 5, Fraction(11, 2)], 1, 1),
        ([3, 3, 3, 3], 2, 1),
        ([0, -1, -2, -3, -4], 2, 2),
        ([10**30, 10**30 + 1, 10**30 - 1], Fraction(3, 2), 1),
        ([0.5, 0.25, -1.75, 2.0], "0.7", Fraction(1, 3)),
        ([-5] * 40 + [0], 1, 1),
    ],
)
def test_candidates_are_drawn_with_their_exact_probability(scores, epsilon, sensitivity):
    probabilities = softmax([Fraction(score) for score in scores], Fraction(epsilon), Fraction(sensitivity))
    statistic, freedom = pearson(scores, probabilities, epsilon=epsilon, sensitivity=sensitivity)
    assert statistic < chi2.isf(FALSE_ALARM, freedom)


def test_an_epsilon_wrong_by_a_tenth_is_noticed():
    """The power against ε too large or too small by 10 % is above 99.9 %, so that passing above means something."""
    scores = [0] * 20 + [6]
    right = softmax(scores, 1, 1)
    for wrong in (Fraction(9, 10), Fraction(11, 10)):
        bound = chi2.isf(FALSE_ALARM, 20)
        shift = DRAWS * ((softmax(scores, wrong, 1) - right) ** 2 / right).sum()
        assert ncx2.sf(bound, 20, shift) > 0.999
        statistic, _ = pearson(scores, right, epsilon=wrong, sensitivity=1)
        assert statistic > bound


def test_the_error_of_scores_widens_the_sensitivity_by_twice_as_much():
    scores = [0, 1, 3]
    probabilities = softmax(scores, 1, Fraction(3, 2))
    options = {"epsilon": 1, "sensitivity": 1, "error": Fraction(1, 4)}
    statistic, freedom = pearson(scores, probabilities, **options)
    assert statistic < chi2.isf(FALSE_ALARM, freedom)
    source = InsecureSeededSource(3), InsecureSeededSource(3)
    for _ in range(200):
        assert select(scores, source=source[0], **options) == select(
            scores, source=source[1], epsilon=1, sensitivity="3/2"
        )


@given(
    st.lists(st.integers(-20, 20), min_size=1, max_size=6),
    st.lists(st.integers(-3, 3), min_size=6, max_size=6),
    st.fractions(Fraction(1, 10), 4),
)
def test_neighbouring_scores_keep_the_log_ratio_within_a_range_of_epsilon(scores, moves, epsilon):
    """The law behind the cost: scores that move by at most Δ give log-ratios in an interval of length ε."""
    other = [score + move for score, move in zip(scores, moves, strict=False)]
    ratios = np.log(softmax(scores, epsilon, 3)) - np.log(softmax(other, epsilon, 3))
    assert ratios.max() - ratios.min() <= float(epsilon) * (1 + 1e-9) + 1e-12


# The parts of the sampler


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=12, unique=True), st.integers(1, 50), st.sampled_from([64, 256])
)
def test_partial_sums_are_bounded_by_whole_numbers(order, count, bits):
    mpmath = pytest.importorskip("mpmath", reason="the high-precision oracle is a development dependency")
    order = sorted(order)
    low, high = _partial_sums(order, [count] * len(order), bits)
    with mpmath.workdps(120):
        total = mpmath.mpf(0)
        for group, least, most in zip(order, low, high, strict=True):
            total += count * mpmath.exp(-group) * mpmath.mpf(2) ** bits
            assert least <= total <= most
            assert most - least <= 4 * count * len(order)


def groups(order, counts, *words):
    return _draw_group(lambda bits: _partial_sums(order, counts, bits), Words(Given(*words), 1 << 12))


def test_a_uniform_number_close_to_a_border_takes_more_bits_and_falls_on_the_right_side():
    """The border between groups 0 and 1 is at 1 / (1 + e⁻¹), here to 512 bits; no word decides before the last."""
    mpmath = pytest.importorskip("mpmath", reason="the high-precision oracle is a development dependency")
    with mpmath.workdps(400):
        border = int(mpmath.floor(mpmath.mpf(2) ** 512 / (1 + mpmath.exp(-1))))
    for shift, place in ((-(2**10), 0), (2**10, 1)):
        value = border + shift
        words = [value >> 64 * k & 2**64 - 1 for k in reversed(range(8))]
        assert groups([0, 1], [1, 1], *words) == place


def test_groups_too_unlikely_to_compute_are_still_reached():
    """e⁻²⁰⁰ = 2^−288.5: U = 1 − 2⁻²⁵⁶ still belongs to group 0, U = 1 − 2⁻³²⁰ to group 200."""
    largest = 2**64 - 1
    assert groups([0, 200], [1, 1], *[largest] * 4) == 0
    assert groups([0, 200], [1, 1], *[largest] * 5) == 1
    assert groups([0, 10**6], [1, 1], 0, 0) == 0


def test_whole_numbers_are_drawn_evenly_and_words_that_would_favour_some_are_left():
    top = 2**64 - 1  # 2⁶⁴ = 3 · k + 1: the last word would favour 0
    assert _draw_below(3, Words(Given(top, 5), 100)) == 2
    assert [_draw_below(1, Words(Given(word), 100)) for word in (0, 7, top)] == [0, 0, 0]


def test_a_broken_source_is_found_out():
    class Stuck(Given):
        def words(self, count):
            return np.full(count, 2**64 - 1, dtype=np.uint64)

    with refused(MeasurementError, "are not random"):
        select([0, 1, 1], epsilon=1, sensitivity=1, source=Stuck())


# Extremes


def test_one_candidate_is_always_selected():
    assert select([-7], epsilon=1, sensitivity=1) == 0


def test_hopeless_candidates_are_never_selected():
    scores = [0, -(2 * 10**6), -(10**400), Fraction(-(10**30), 7)]
    assert {select(scores, epsilon=1, sensitivity=1) for _ in range(50)} == {0}
    assert select([-1e308, 1e308], epsilon=1, sensitivity=1e-90) == 1


def test_many_candidates_and_any_spread_take_less_than_a_moment():
    scores = np.arange(166_751)
    assert select(scores, epsilon=1, sensitivity=1) > 166_751 - 200
    assert 0 <= select(scores / 1e9, epsilon=1, sensitivity=1) < 166_751


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, True, None, "3", 1j])
def test_scores_must_be_finite_numbers_and_are_not_shown(bad):
    with refused(MeasurementError, "the score of candidate 1 is not a finite number; give whole numbers, fractions or"):
        select([0, bad], epsilon=1, sensitivity=1)


def test_no_candidate_is_an_error():
    for nothing in ([], np.empty(0)):
        with refused(MeasurementError, "there is no candidate to select from; give at least one score"):
            select(nothing, epsilon=1, sensitivity=1)


@pytest.mark.parametrize("bad", [0, -1])
def test_epsilon_sensitivity_and_rho_must_be_positive(bad):
    with refused(PlanError, f"epsilon must be above 0, from 1e-100 to 1e100, got {bad}"):
        select([0, 1], epsilon=bad, sensitivity=1)
    with refused(PlanError, "sensitivity must be above 0"):
        select([0, 1], epsilon=1, sensitivity=bad)
    with refused(PlanError, "rho must be above 0"):
        selection_epsilon(bad)
    with refused(PlanError, "epsilon must be above 0"):
        selection_cost(bad)


def test_an_error_cannot_be_negative():
    with refused(PlanError, "error of a selection must be at least 0, got -1; give 0 for exact scores"):
        select([0, 1], epsilon=1, sensitivity=1, error=-1)


# Cost


def test_the_cost_is_an_eighth_of_the_square():
    assert selection_cost(1) == Fraction(1, 8)
    assert selection_cost("0.2") == Fraction(1, 200)
    assert selection_epsilon(Fraction(1, 8)) == 1
    assert selection_epsilon(Fraction(1, 72)) == Fraction(1, 3)


@given(st.fractions(Fraction(1, 10**12), 10**6) | st.floats(1e-90, 1e90))
def test_the_epsilon_of_a_budget_never_passes_it_and_wastes_next_to_nothing(rho):
    epsilon = selection_epsilon(rho)
    assert selection_cost(epsilon) <= Fraction(rho)
    assert selection_cost(epsilon * (1 + Fraction(1, 2**60))) > Fraction(rho)


@given(st.fractions(Fraction(1, 10**6), 10**6))
def test_the_epsilon_of_a_cost_is_the_one_it_came_from(epsilon):
    assert selection_epsilon(selection_cost(epsilon)) == epsilon
