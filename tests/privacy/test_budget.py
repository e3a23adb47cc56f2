"""The budget: ρ ⇄ (ε, δ), always rounded towards privacy, and exact arithmetic."""

import math
import pickle
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from margrave.errors import PlanError
from margrave.privacy.budget import Budget, exact_number, shown_epsilon, zcdp_delta, zcdp_epsilon, zcdp_rho

DELTAS = [1e-300, 1e-100, 1e-12, 1e-9, 1e-5, 0.01, 0.5]
EPSILONS = [1e-6, 1e-3, 0.1, 1.0, 3.16, 10.0, 1e3]

rhos = st.floats(-12, 4).map(lambda x: 10.0**x)
deltas = st.floats(-300, -0.302).map(lambda x: 10.0**x)
epsilons = st.floats(-6, 3).map(lambda x: 10.0**x)
fractions = st.fractions(min_value=Fraction(1, 10**6), max_value=10**6)
few = settings(max_examples=40, deadline=None)


def refused(text):
    return pytest.raises(PlanError, match=re.escape(text))


def log_delta(mp, rho, epsilon):
    """ln δ of equation (1) to 60 digits, the best α by golden section on ln(α − 1): no derivative, nothing shared."""
    rho, epsilon = mp.mpf(rho.numerator) / rho.denominator, mp.mpf(epsilon.numerator) / epsilon.denominator

    def bound(u):
        alpha = 1 + mp.e**u
        return (alpha - 1) * (alpha * rho - epsilon) - mp.log(alpha - 1) + alpha * mp.log1p(-1 / alpha)

    low, high, ratio = mp.mpf(-600), mp.mpf(100), (mp.sqrt(5) - 1) / 2
    for _ in range(300):  # 0.618³⁰⁰ · 700 ≈ 1e-60
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if bound(left) < bound(right) else (left, high)
    return bound((low + high) / 2)


@pytest.fixture
def mp():
    mpmath = pytest.importorskip("mpmath", reason="the high-precision oracle is a development dependency")
    with mpmath.workdps(80):
        yield mpmath


# Conversion


def test_the_published_rho_is_reached_and_rounded_down():
    budget = Budget.approx(epsilon=1, delta=1e-9)
    assert f"{float(budget.rho):.14f}" == "0.01497305767359"
    assert budget.delta_at(1) <= 1e-9
    assert budget.epsilon(1e-9) == 1.0
    next_rho = Fraction(math.nextafter(float(budget.rho), 1))
    assert zcdp_delta(rho=next_rho, epsilon=1) > 1e-9


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [1e-300, 1e-9, 0.5])
def test_rho_is_the_largest_float_that_keeps_the_promise(mp, epsilon, delta):
    rho = zcdp_rho(epsilon=epsilon, delta=delta)
    above = Fraction(math.nextafter(float(rho), math.inf))
    assert log_delta(mp, rho, Fraction(epsilon)) <= mp.log(mp.mpf(delta))
    assert log_delta(mp, above, Fraction(epsilon)) > mp.log(mp.mpf(delta))


@pytest.mark.parametrize("rho", [1e-12, 1e-5, 0.1, 1.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-9, 0.5])
def test_epsilon_is_the_smallest_float_that_keeps_the_promise(mp, rho, delta):
    epsilon = zcdp_epsilon(rho=rho, delta=delta)
    assert log_delta(mp, Fraction(rho), Fraction(epsilon)) <= mp.log(mp.mpf(delta))
    if epsilon > 0:
        below = Fraction(math.nextafter(epsilon, 0))
        assert log_delta(mp, Fraction(rho), below) > mp.log(mp.mpf(delta))


@pytest.mark.parametrize("rho", [1e-12, 1e-5, 0.1, 1.0, 1e4])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 1e3])
def test_delta_is_the_smallest_float_above_the_bound(mp, rho, epsilon):
    delta = zcdp_delta(rho=rho, epsilon=epsilon)
    exact = mp.exp(log_delta(mp, Fraction(rho), Fraction(epsilon)))
    assert mp.mpf(delta) >= exact or delta == 1.0
    assert mp.mpf(math.nextafter(delta, 0)) < exact


def test_conversion_agrees_with_dp_accounting():
    """It minimises over a list of orders: never below ours, and as close as the list is dense around the best one."""
    accounting = pytest.importorskip("dp_accounting.rdp", reason="dp-accounting is a development dependency")
    orders = 1 + np.geomspace(1e-2, 1e5, 20_001)
    for rho in (1e-4, 0.01, 0.1, 1.0, 10.0):
        for delta in (1e-12, 1e-9, 1e-5):
            theirs, _ = accounting.compute_epsilon(orders, orders * rho, delta)
            ours = zcdp_epsilon(rho=rho, delta=delta)
            # Orders 0.1 % apart: at most 0.05 % off in α, which costs ½ ρ α (5e-4)² relative to ε ≥ ρ α: 1.3e-7.
            assert ours * (1 - 1e-12) <= theirs <= ours * (1 + 1e-6)


def test_conversion_agrees_with_opendp():
    dp = pytest.importorskip("opendp.prelude", reason="opendp is an extra")
    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    for rho in (1e-4, 0.01, 0.1, 1.0, 10.0):
        gaussian = dp.m.make_gaussian(*space, scale=1.0)
        private = dp.c.make_zCDP_to_approxDP(gaussian)
        distance = math.sqrt(2 * rho)
        curve, spent = private.map(distance), gaussian.map(distance)
        for delta in (1e-12, 1e-9, 1e-5):
            ours = zcdp_epsilon(rho=spent, delta=delta)
            # OpenDP bisects ε in floats and rounds up: never below ours by more than one unit in the last place.
            assert ours * (1 - 1e-15) <= curve.epsilon(delta) <= ours * (1 + 1e-9)


@few
@given(epsilons, deltas)
def test_round_trips_are_never_less_private(epsilon, delta):
    budget = Budget.approx(epsilon=epsilon, delta=delta)
    assert budget.delta_at(epsilon) <= delta
    assert budget.epsilon(delta) <= epsilon


@few
@given(rhos, deltas)
def test_round_trips_from_rho_lose_a_unit_in_the_last_place_at_most(rho, delta):
    epsilon = zcdp_epsilon(rho=rho, delta=delta)
    if epsilon > 0:
        assert zcdp_delta(rho=rho, epsilon=epsilon) <= delta
        assert zcdp_rho(epsilon=epsilon, delta=delta) >= Fraction(rho)


@few
@given(rhos, rhos, deltas, epsilons)
def test_more_rho_is_more_epsilon_and_more_delta(one, other, delta, epsilon):
    low, high = sorted([one, other])
    assert zcdp_epsilon(rho=low, delta=delta) <= zcdp_epsilon(rho=high, delta=delta)
    assert zcdp_delta(rho=low, epsilon=epsilon) <= zcdp_delta(rho=high, epsilon=epsilon)


def test_more_epsilon_or_more_delta_is_more_rho():
    grid = [[zcdp_rho(epsilon=epsilon, delta=delta) for delta in DELTAS] for epsilon in EPSILONS]
    assert np.all(np.diff(np.array(grid, dtype=float), axis=0) > 0)
    assert np.all(np.diff(np.array(grid, dtype=float), axis=1) > 0)


def test_extremes_end_in_trivial_statements():
    assert zcdp_epsilon(rho=1e-12, delta=0.5) == 0.0
    assert zcdp_delta(rho=1e4, epsilon=1e-6) == 1.0
    assert zcdp_delta(rho=1e-12, epsilon=1e3) == math.ulp(0.0)
    assert zcdp_delta(rho=1e-100, epsilon=1e100) == math.ulp(0.0)
    assert zcdp_rho(epsilon=1e-100, delta=1e-300) > 0
    assert zcdp_rho(epsilon=1e100, delta=1 - 2**-53) > 0


# Values


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        (0.1, Fraction(3602879701896397, 36028797018963968)),
        ("0.1", Fraction(1, 10)),
        (" 1/3 ", Fraction(1, 3)),
        (Decimal("0.25"), Fraction(1, 4)),
        (Fraction(2, 7), Fraction(2, 7)),
        (2, Fraction(2)),
        (np.float64(0.5), Fraction(1, 2)),
        (np.float32(0.25), Fraction(1, 4)),
        (np.int64(3), Fraction(3)),
    ],
)
def test_numbers_are_taken_exactly(given, exact):
    assert exact_number("rho", given) == exact
    assert Budget.zcdp(rho=given).rho == exact


@pytest.mark.parametrize(
    "bad",
    [
        math.nan,
        math.inf,
        True,
        None,
        "much",
        "",
        "1/0",
        "nan",
        "1e9999999999",
        Decimal("Infinity"),
        1j,
        [1],
        np.bool_(1),
    ],
)
def test_what_is_no_number_is_refused(bad):
    with refused("rho must be a finite number such as 0.1, '0.1' or Fraction(1, 10), got"):
        Budget.zcdp(rho=bad)
    with refused("epsilon must be a finite number"):
        Budget.approx(epsilon=bad, delta=1e-9)
    with refused("delta must be a finite number"):
        Budget.approx(epsilon=1, delta=bad)


@pytest.mark.parametrize("bad", [0, -1, -0.0, "-0.1", 1e-101, 1e101, "1e200"])
def test_rho_and_epsilon_must_be_positive(bad):
    with refused("rho must be above 0, from 1e-100 to 1e100, got"):
        Budget.zcdp(rho=bad)
    with refused("epsilon must be above 0, from 1e-100 to 1e100, got"):
        Budget.approx(epsilon=bad, delta=1e-9)
    with refused("epsilon must be above 0"):
        Budget.zcdp(rho=1).delta_at(bad)


@pytest.mark.parametrize("bad", [0, 1, -0.5, 1.5, 1e-301, 1 - Fraction(1, 10**18)])
def test_delta_must_lie_between_0_and_1(bad):
    with refused("delta must be above 0 and below 1, from 1e-300 to 1 − 1e-17, got"):
        Budget.approx(epsilon=1, delta=bad)
    with refused("choose it well below one over the number of people, such as 1e-9"):
        Budget.zcdp(rho=1).epsilon(bad)


def test_long_numbers_are_cut_in_messages():
    with refused("got a number of thousands of digits; give a positive number"):
        Budget.zcdp(rho=-(10**5000))
    with refused("…"):
        Budget.zcdp(rho="x" * 1000)


def test_repr_shows_rho_with_its_epsilon_rounded_up_and_its_delta():
    assert repr(Budget.zcdp(rho=0.1)) == "Budget(ρ = 0.1, that is ε = 2.7155 at δ = 1e-09)"
    assert Budget.zcdp(rho=0.1).epsilon() < 2.7155
    assert repr(Budget.approx(epsilon=1, delta=1e-5)) == "Budget(ρ ≈ 0.0305566, that is ε = 1 at δ = 1e-05)"
    assert repr(Budget.zcdp(rho=1, delta=1e-6)).endswith("at δ = 1e-06)")


def test_a_budget_is_frozen_hashable_and_can_be_pickled():
    budget = Budget.zcdp(rho="0.1")
    with pytest.raises(AttributeError):
        budget.rho = Fraction(1)
    assert pickle.loads(pickle.dumps(budget)) == budget
    assert len({budget, Budget.zcdp(rho=Fraction(1, 10), delta=0.1)}) == 1


# Arithmetic


@given(fractions, st.lists(st.floats(1e-6, 1e6) | st.integers(1, 100) | fractions, min_size=1, max_size=8))
def test_parts_add_up_to_the_whole_exactly(rho, shares):
    budget = Budget.zcdp(rho=rho)
    parts = budget.split(*shares)
    assert sum(part.rho for part in parts) == rho
    assert parts == budget.split(shares)
    pairs = list(zip(parts, shares, strict=True))
    assert all(a.rho * Fraction(t) == b.rho * Fraction(s) for a, s in pairs for b, t in pairs)


def test_split_keeps_delta_and_takes_text():
    first, second, third = Budget.approx(epsilon=1, delta=1e-6).split(0.1, 0.45, 0.45)
    assert second == third
    assert first.delta == 1e-6
    assert Budget.zcdp(rho=3).split("1", "2")[1].rho == 2


def test_split_refuses_what_is_no_share():
    budget = Budget.zcdp(rho=1)
    with refused("a budget is split by at least one share, got none; try split(0.5, 0.5)"):
        budget.split()
    with refused("a budget is split by at least one share"):
        budget.split([])
    with refused("a share must be above 0, from 1e-100 to 1e100, got 0"):
        budget.split(1, 0)


@given(fractions, fractions)
def test_sums_differences_and_comparisons_are_exact(a, b):
    one, other = Budget.zcdp(rho=a), Budget.zcdp(rho=b)
    whole = one + other
    assert whole.rho == a + b
    assert whole - other == one
    assert (one < other, one <= other, one > other, one >= other) == (a < b, a <= b, a > b, a >= b)
    assert (one * b).rho == (b * one).rho == a * b


def test_taking_all_or_more_is_refused():
    budget = Budget.zcdp(rho=1)
    with refused("nothing is left when ρ = 2 is taken from ρ = 1; take less, or compare the two first"):
        budget - Budget.zcdp(rho=2)
    with refused("nothing is left"):
        budget - budget


def test_budgets_do_not_mix_with_numbers():
    budget = Budget.zcdp(rho=1)
    for operation in (lambda: budget + 1, lambda: budget - 1, lambda: budget < 1):
        with pytest.raises(TypeError):
            operation()
    assert budget != 1
    with refused("a share must be a finite number"):
        budget * budget
    with refused("a share must be above 0"):
        budget * 0


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [(10.0, "10"), (100.0, "100"), (20_000.0, "20000"), (1e6, "1e+6"), (0.3, "0.3"), (12.34567, "12.346"), (0.0, "0")],
)
def test_epsilon_is_shown_as_people_write_it(epsilon, shown):
    assert shown_epsilon(epsilon) == shown
