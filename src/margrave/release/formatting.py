"""Numbers as people read them; what is promised never looks better than it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from margrave.privacy.budget import shown_fraction

_ORDERS = ("total", "1 attribute")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def order_name(order: int) -> str:
    """Return what tables of so many attributes are called."""
    return _ORDERS[order] if order < len(_ORDERS) else f"{order} attributes"


def counted(count: int, noun: str) -> str:
    """Return ``1 table`` or ``1,234 tables``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(parts: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def whole(value: float) -> str:
    """Return a number as a whole one with separators; a true minus sign, and no negative zero."""
    rounded = round(value)
    return f"−{-rounded:,}" if rounded < 0 else f"{rounded:,}"


def short(value: float) -> str:
    """Return a positive number to three digits or all its whole ones: 0.0123, 12.3, 1,234."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{abs(value):,.{digits}f}"
    plain = text.rstrip("0").rstrip(".") if "." in text else text
    return f"−{plain}" if value < 0 else plain


def percent(share: float) -> str:
    """Return a share in per cent, with a tenth; the smallest as a bound."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %"


def rounded_up(value: float, digits: int = 4) -> str:
    """Return a number to so many digits, rounded up: what is promised must not look better than it is."""
    # The shortest decimal that reads back as the float: 0.1 is 0.1, though the float is a trifle more.
    number = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{number.normalize():,f}" if 1e-4 <= value < 1e15 else f"{float(number):.{digits}g}"


def float_above(value: Fraction) -> float:
    """Return the smallest float that is no less than a fraction: no promise is rounded in its own favour."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def power_of_ten(value: float) -> str:
    """Return a small number to six digits, rounded up, as people write it: 10⁻⁹, 2.5 × 10⁻⁷, 0.001."""
    rounded = float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(repr(float(value))))
    if rounded >= 1e-4 or rounded <= 0:
        return f"{rounded:g}"
    digits, exponent = f"{rounded:.6e}".split("e")
    leading = digits.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(_RAISED)
    return power if leading == "1" else f"{leading} × {power}"


def power_of_ten_above(value: float) -> str:
    """Return a positive number to one digit, rounded up, as people write it: 9 × 10⁻⁵."""
    return power_of_ten(float(Context(prec=1, rounding=ROUND_CEILING).create_decimal(repr(float(value)))))


def equal_or_near(symbol: str, value: Fraction) -> str:
    """Return ``ρ = 0.015``, or ``ρ ≈ 0.0149731`` where that is not all of the number."""
    text = shown_fraction(value)
    return f"{symbol} ≈ {text[1:]}" if text.startswith("≈") else f"{symbol} = {text}"


def with_fraction(symbol: str, value: Fraction) -> str:
    """Return ``ρ = 0.125``, or ``ρ ≈ 0.333333 (exactly 1/3)`` where the decimals are not all of the number."""
    text = equal_or_near(symbol, value)
    return text if Fraction(text.split()[-1]) == value else f"{text} (exactly {value})"


def one_in(probability: float) -> str:
    """Return a small probability as "1 in 1,000,000", never smaller than it is."""
    if not 0 < probability < 1:
        return str(probability)
    # The shortest decimal that reads back as the float: 1e-9 is one in 1,000,000,000, not in 999,999,999.
    inverse = Context(prec=40).divide(Decimal(1), Decimal(repr(probability)))
    if inverse >= Decimal(10) ** 15:
        return f"1 in 10^{inverse.adjusted()}"
    return f"1 in {int(inverse.to_integral_value(rounding=ROUND_FLOOR)):,}"


def odds_factor(epsilon: float) -> str:
    """Return e^ε, rounded up to three digits; beyond a million as the next power of ten."""
    if epsilon > math.log(1e6):
        return "10" + str(math.ceil(epsilon / math.log(10))).translate(_RAISED)
    return rounded_up(math.exp(epsilon), 3)


def surest(prior: float, epsilon: float) -> str:
    """Return how likely somebody can come to hold that a person is in the table, in per cent, rounded up.

    With odds multiplied by at most e^ε, a probability p becomes at most  e^ε p / (1 − p + e^ε p).
    """
    # In this form nothing overflows, whatever ε is.
    posterior = prior / (prior + (1 - prior) * math.exp(-epsilon))
    tenths = math.ceil(1000 * posterior - 1e-9) / 10
    return "nearly 100 %" if tenths >= 100 else f"{tenths:g} %"
