"""Numbers as people read them; what is promised never looks better than it is."""

from fractions import Fraction

import pytest

from margrave.release.report.wording import (
    counted,
    equal_or_near,
    odds_factor,
    one_in,
    order_name,
    percent,
    power_of_ten,
    rounded_up,
    short,
    surest,
    whole,
)


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (order_name(0), "total"),
        (order_name(1), "1 attribute"),
        (order_name(3), "3 attributes"),
        (counted(1, "table"), "1 table"),
        (counted(1234, "table"), "1,234 tables"),
        (whole(1234.5), "1,234"),
        (whole(-1234.6), "−1,235"),
        (whole(-0.2), "0"),
        (short(0.0), "0"),
        (short(0.01234), "0.0123"),
        (short(12.34), "12.3"),
        (short(1234.4), "1,234"),
        (short(99.96), "100"),
        (short(-7.931), "−7.93"),
        (short(float("inf")), "inf"),
        (percent(0.0), "0.0 %"),
        (percent(0.0001), "< 0.1 %"),
        (percent(0.7375), "73.8 %"),
        (rounded_up(1.0), "1"),
        (rounded_up(1.00001), "1.001"),
        (rounded_up(12.0), "12"),
        (rounded_up(100.0), "100"),
        (rounded_up(0.00001234567), "1.235e-05"),
        (power_of_ten(1e-9), "10⁻⁹"),
        (power_of_ten(2.5e-7), "2.5 × 10⁻⁷"),
        (power_of_ten(0.001), "0.001"),
        (one_in(1e-9), "1 in 1,000,000,000"),
        (one_in(3e-7), "1 in 3,333,333"),
        (one_in(1e-20), "1 in 10^20"),
        (one_in(0.0), "0.0"),
        (odds_factor(1.0), "2.72"),
        (odds_factor(0.1), "1.11"),
        (odds_factor(30.0), "10¹⁴"),
        (odds_factor(1e5), "10⁴³⁴³⁰"),
        (surest(0.5, 1.0), "73.2 %"),
        (surest(0.01, 0.1), "1.2 %"),
        (surest(0.5, 900.0), "nearly 100 %"),
        (equal_or_near("ρ", Fraction(1, 8)), "ρ = 0.125"),
        (equal_or_near("ρ", Fraction(1, 3)), "ρ ≈ 0.333333"),
    ],
)
def test_numbers_are_shown_so(shown, wanted):
    assert shown == wanted
