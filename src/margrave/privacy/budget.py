r"""The privacy budget: ρ of zero-concentrated differential privacy, and what it means as (ε, δ).

A mechanism that is ρ-zCDP is (ε, δ)-DP whenever, for some α > 1 ([CKS] arXiv 2004.00010v4, Prop. 12; [ReM] App. B),

    δ ≥ exp((α − 1)(αρ − ε)) / (α − 1) · (1 − 1/α)^α.                                                            (1)

With t = α − 1 > 0 the logarithm of the right side is

    t (t + 1) ρ − t ε − G(t),      G(t) = t ln(1 + 1/t) + ln(1 + t).                                             (2)

It is convex in t, with derivative (2t + 1) ρ − ε − ln(1 + 1/t). **Every** t gives a valid statement, so the search for
the best t may be approximate, and only the evaluation of (2) must be trusted. Solved for each of the three numbers,
with the best t as the root of an increasing function (the derivative set to 0, and (2) set to ln δ):

    ln δ = t (t + 1) ρ − t ε − G(t)                 (2t + 1) ρ − ln(1 + 1/t) = ε                                 (3)
    ε    = (t + 1) ρ − (G(t) + ln δ) / t            t² ρ + ln(1 + t) = −ln δ                                     (4)
    ρ    = (ln δ + t ε + G(t)) / (t (t + 1))        (ε + ln(1 + 1/t)) t² / (2t + 1) + ln(1 + t) = −ln δ          (5)

Rounding always goes towards privacy: δ and ε up, ρ down. The left column is evaluated in ``decimal``, whose sums,
products and quotients round exactly in the direction asked for, and whose ``ln`` and ``exp`` are correctly rounded to
the nearest number of the precision: one unit in the last place downwards (upwards) from there is a bound. So the
rounding error is accounted for step by step, and its size, 10⁻⁵⁰ relative to the largest term, is lost in the final
rounding to a float.

**Filter** (`PrivacyFilter`). Where the cost of a step, or the number of steps, depends on what earlier steps gave,
ordinary composition does not apply: it adds up costs that are known beforehand. A *filter* does. Before every step it
adds the cost of the step, which may depend on all that was released so far, to the exact sum of the costs before, and
refuses the step if that is more than ρ. Then every possible run costs at most ρ, and the whole is ρ-zCDP (Feldman &
Zrnic, arXiv:2008.11193, for each order of Rényi privacy; Whitehouse, Ramdas, Rogers & Wu, arXiv:2203.05481;
docs/guarantee.md has the argument). The steps are charged to the ledger as one budget, up front; what is left over is
lost. Costs are rounded *up* to multiples of 2⁻⁸⁰ of the budget before they are added: the exact sum of thousands of
fractions has millions of digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation, localcontext
from fractions import Fraction
from functools import lru_cache, total_ordering
from numbers import Rational, Real
from typing import final

from margrave.errors import PlanError, expected

Number = int | float | str | Decimal | Fraction

DEFAULT_DELTA = 1e-9

# Within these bounds the best t lies between 10⁻²⁵⁰ and 10²⁵⁰, where it is looked for.
_SMALLEST, _LARGEST = Fraction(1e-100), Fraction(1e100)
_SMALLEST_DELTA, _LARGEST_DELTA = Fraction(1e-300), 1 - Fraction(1, 10**17)
_DIGITS = 50
_SEARCH_DIGITS = 36
_SEARCH_DECADES = 250
_SEARCH_STEPS = 85
# Powers of ten up to which ε is written without an exponent.
_MOST_PLAIN = 5
# A filter counts in these parts of its budget.
_PARTS = 2**80


@final
@total_ordering
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Budget:
    """How much privacy may be spent: ρ of zCDP, exact, with the δ at which its ε is shown.

    Made by `Budget.zcdp` or `Budget.approx`. Two budgets are equal when their ρ are; a budget is never zero.
    Numbers may be given as int, float, Fraction, Decimal or text; a float counts as exactly what it is, so 0.1 is
    a little more than the text ``"0.1"``.

    Attributes
    ----------
    rho
        ρ, a positive fraction.
    delta
        The stated δ. The guarantee itself is ρ and holds for every δ.
    """

    rho: Fraction
    delta: float

    def __init__(self, *, rho: Number, delta: Number = DEFAULT_DELTA) -> None:
        object.__setattr__(self, "rho", positive_number("rho", rho))
        object.__setattr__(self, "delta", _float_above(_delta_in_range(delta)))

    @classmethod
    def zcdp(cls, *, rho: Number, delta: Number = DEFAULT_DELTA) -> Budget:
        """Return the budget of ρ-zCDP; ``delta`` only says where its ε is shown."""
        return cls(rho=rho, delta=delta)

    @classmethod
    def approx(cls, *, epsilon: Number, delta: Number) -> Budget:
        """Return the largest budget, rounded down to a float, of which every mechanism is (ε, δ)-DP by (1)."""
        return cls(rho=zcdp_rho(epsilon=epsilon, delta=delta), delta=delta)

    def epsilon(self, delta: Number | None = None) -> float:
        """Return ε, rounded up, such that the budget is (ε, δ)-DP; at the stated δ if none is given."""
        return zcdp_epsilon(rho=self.rho, delta=self.delta if delta is None else delta)

    def delta_at(self, epsilon: Number) -> float:
        """Return δ, rounded up, such that the budget is (ε, δ)-DP."""
        return zcdp_delta(rho=self.rho, epsilon=epsilon)

    def split(self, *shares: Number | Iterable[Number]) -> tuple[Budget, ...]:
        """Return parts in proportion to the shares, which add up to the whole exactly.

        ``split(0.1, 0.45, 0.45)`` or ``split([1, 2, 3])``: only the proportions count.
        """
        given: list[Number] = []
        for share in shares:
            given.extend(share if isinstance(share, Iterable) and not isinstance(share, str) else [share])
        parts = [positive_number("a share", share) for share in given]
        if not parts:
            raise PlanError("a budget is split by at least one share, got none", remedy="try split(0.5, 0.5)")
        whole = sum(parts)
        return tuple(Budget(rho=self.rho * part / whole, delta=self.delta) for part in parts)

    def __add__(self, other: Budget) -> Budget:
        return self._with(self.rho + other.rho) if isinstance(other, Budget) else NotImplemented

    def __sub__(self, other: Budget) -> Budget:
        if not isinstance(other, Budget):
            return NotImplemented
        if other.rho >= self.rho:
            raise PlanError(
                f"nothing is left when {format_rho(other.rho)} is taken from {format_rho(self.rho)}",
                remedy="take less, or compare the two first",
            )
        return self._with(self.rho - other.rho)

    def __mul__(self, share: Number) -> Budget:
        return self._with(self.rho * positive_number("a share", share))

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return self.rho == other.rho if isinstance(other, Budget) else NotImplemented

    def __lt__(self, other: Budget) -> bool:
        return self.rho < other.rho if isinstance(other, Budget) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.rho)

    def __repr__(self) -> str:
        return f"Budget({format_rho(self.rho)}, that is ε = {shown_epsilon(self.epsilon())} at δ = {self.delta:g})"

    def _with(self, rho: Fraction) -> Budget:
        return Budget(rho=rho, delta=self.delta)


def zcdp_delta(*, rho: Number, epsilon: Number) -> float:
    """Return δ, rounded up, such that ρ-zCDP implies (ε, δ)-DP: equation (3)."""
    r, e = positive_number("rho", rho), positive_number("epsilon", epsilon)
    low, high = _decimal(r, _search()), _decimal(e, _search())
    t = _root(lambda t: (2 * t + 1) * low - _log1p_inverse(t), high)
    up, down = _contexts(t)
    with localcontext(down):
        credit = t * _decimal(e, down) + _gain(t)
    with localcontext(up):
        logarithm = t * (t + 1) * _decimal(r, up) - credit
        # 1 bounds every probability; it also keeps the exponential within range.
        return 1.0 if logarithm >= 0 else _float_above(logarithm.exp().next_plus())


def zcdp_epsilon(*, rho: Number, delta: Number) -> float:
    """Return ε ≥ 0, rounded up, such that ρ-zCDP implies (ε, δ)-DP: equation (4)."""
    return _epsilon(positive_number("rho", rho), _delta_in_range(delta))


@lru_cache(maxsize=256)  # one release asks for the same ε in its checks, its record and its report
def _epsilon(r: Fraction, d: Fraction) -> float:
    slope = _decimal(r, _search())
    t = _root(lambda t: t * t * slope + (1 + t).ln(), -_search().ln(_decimal(d, _search())))
    up, down = _contexts(t)
    with localcontext(down):
        credit = (_gain(t) + _decimal(d, down).ln().next_minus()) / t
    with localcontext(up):
        return max(0.0, _float_above((t + 1) * _decimal(r, up) - credit))


def zcdp_rho(*, epsilon: Number, delta: Number) -> Fraction:
    """Return ρ, rounded down to a float, such that ρ-zCDP implies (ε, δ)-DP: equation (5)."""
    e, d = positive_number("epsilon", epsilon), _delta_in_range(delta)
    slope = _decimal(e, _search())
    t = _root(
        lambda t: (slope + _log1p_inverse(t)) * t * t / (2 * t + 1) + (1 + t).ln(),
        -_search().ln(_decimal(d, _search())),
    )
    up, down = _contexts(t)
    divisor = up.multiply(t, up.add(t, Decimal(1)))
    with localcontext(down):
        # At the root the sum is ρ t (t + 1) > 0, far above its rounding error: a larger divisor rounds it down.
        rho = (_decimal(d, down).ln().next_minus() + t * _decimal(e, down) + _gain(t)) / divisor
    return Fraction(_float_below(rho))


def exact_number(what: str, value: Number) -> Fraction:
    """Return exactly the number given, or say that ``what`` must be one.

    Parameters
    ----------
    what
        The name of the number in a message.
    value
        int, float, Decimal, Fraction (or a number of NumPy), or a text such as ``"0.1"`` or ``"1/3"``; finite.
    """
    number: object = None if isinstance(value, bool) else value
    try:
        if isinstance(number, str):
            number = Fraction(number) if "/" in number else Decimal(number)
        # A fraction of 10^±5000 is a matter of microseconds, one of 10^±999999999 takes all memory.
        if isinstance(number, Decimal) and number.is_finite() and abs(number.adjusted()) <= 5000:
            return Fraction(number)
        if isinstance(number, Rational):
            return Fraction(int(number.numerator), int(number.denominator))
        if isinstance(number, Real) and math.isfinite(number):
            return Fraction(float(number))
    except (ValueError, ZeroDivisionError, InvalidOperation):
        pass
    raise PlanError(f"{what} must be a finite number such as 0.1, '0.1' or Fraction(1, 10), got {shown_value(value)}")


def shown_fraction(value: Fraction) -> str:
    """Return a fraction for people: at most six digits, with ≈ where they are not all of it."""
    text = f"{float(value):.6g}"
    return text if Fraction(text) == value or float(text) == float(value) else f"≈{text}"


def format_rho(value: Fraction) -> str:
    """Return ``ρ = 0.5``, or ``ρ ≈ 0.0149731`` where six digits are not all of it."""
    text = shown_fraction(value)
    return f"ρ ≈ {text[1:]}" if text.startswith("≈") else f"ρ = {text}"


def shown_epsilon(epsilon: float) -> str:
    """Return ε for people, with at most five digits, rounded up."""
    number = Context(prec=5, rounding=ROUND_CEILING).create_decimal_from_float(epsilon).normalize()
    # Without an exponent where people write none: 10, and not 1e+1.
    return f"{number:f}" if abs(number.adjusted()) <= _MOST_PLAIN else f"{number:g}"


def format_budget(budget: Budget) -> str:
    """Return ``ρ = 0.1 (ε = 2.7155 at δ = 1e-09)``."""
    return f"{format_rho(budget.rho)} (ε = {shown_epsilon(budget.epsilon())} at δ = {budget.delta:g})"


def positive_number(what: str, value: Number) -> Fraction:
    """Return exactly the number given, or say that ``what`` must be a positive number of a reasonable size."""
    number = exact_number(what, value)
    if not _SMALLEST <= number <= _LARGEST:
        raise PlanError(
            f"{what} must be above 0, from 1e-100 to 1e100, got {shown_value(value)}", remedy="give a positive number"
        )
    return number


def _delta_in_range(value: Number) -> Fraction:
    number = exact_number("delta", value)
    if not _SMALLEST_DELTA <= number <= _LARGEST_DELTA:
        raise PlanError(
            f"delta must be above 0 and below 1, from 1e-300 to 1 − 1e-17, got {shown_value(value)}",
            remedy="choose it well below one over the number of people, such as 1e-9",
        )
    return number


def shown_value(value: object) -> str:
    """Return what was given, cut to a length that fits in a message."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no int of more than 4,300 digits.
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}…"


def _gain(t: Decimal) -> Decimal:
    """Return a lower bound of G(t) of (2); the context rounds down.

    1/t, 1 + 1/t and 1 + t are rounded down, the logarithm increases, and its own rounding to the nearest is taken back
    by one unit in the last place. A logarithm of a number ≥ 1 is no less than 0.
    """
    first = max(Decimal(0), (1 + 1 / t).ln().next_minus())
    second = max(Decimal(0), (1 + t).ln().next_minus())
    return t * first + second


def _root(function: Callable[[Decimal], Decimal], target: Decimal) -> Decimal:
    """Return t, to about 20 digits, where the increasing function reaches the target; or an end of the search."""
    with localcontext(_search()):
        low, high = Decimal(-_SEARCH_DECADES), Decimal(_SEARCH_DECADES)
        for _ in range(_SEARCH_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if function(10**middle) < target else (low, middle)
        return 10**low


def _log1p_inverse(t: Decimal) -> Decimal:
    """Return ln(1 + 1/t) for the search; from the series where 1 + 1/t would lose too many digits."""
    return (1 + 1 / t).ln() if t < 10**12 else 1 / t - 1 / (2 * t * t)


def _search() -> Context:
    return Context(prec=_SEARCH_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)


def _contexts(t: Decimal) -> tuple[Context, Context]:
    """Return the contexts that round up and down; a large or small t takes more digits to keep those of the result."""
    digits = _DIGITS + 2 * abs(t.adjusted())
    up, down = (Context(digits, rounding, Emin=MIN_EMIN, Emax=MAX_EMAX) for rounding in (ROUND_CEILING, ROUND_FLOOR))
    return up, down


def _decimal(value: Fraction, context: Context) -> Decimal:
    """Return the fraction as a decimal, rounded as the context does."""
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def _float_above(value: Decimal | Fraction) -> float:
    """Return the smallest float that is no less."""
    nearest = float(value)
    # Decimals are compared as such: e^(−10¹⁷) as a fraction would fill all memory.
    enough = Decimal(nearest) >= value if isinstance(value, Decimal) else Fraction(nearest) >= value
    return nearest if enough else math.nextafter(nearest, math.inf)


def _float_below(value: Decimal) -> float:
    """Return the largest float that is no greater."""
    nearest = float(value)
    return nearest if Decimal(nearest) <= value else math.nextafter(nearest, -math.inf)


class PrivacyFilter:
    """Adds up what steps cost, exactly, and refuses the first step that would pass the budget.

    Parameters
    ----------
    rho
        The budget, positive.
    """

    def __init__(self, rho: Fraction) -> None:
        if not isinstance(rho, Fraction) or rho <= 0:
            raise PlanError(f"the budget of a filter is {rho!r}", remedy="give a positive fraction")
        self._rho, self._part, self._spent = rho, rho / _PARTS, 0
        self._steps: list[tuple[str, Fraction]] = []

    @property
    def left(self) -> Fraction:
        """What is not spent yet, at least zero."""
        return (_PARTS - self._spent) * self._part

    @property
    def steps(self) -> list[tuple[str, Fraction]]:
        """What was done and what each step cost, rounded up; together no more than the budget."""
        return list(self._steps)

    def fits(self, costs: Iterable[Fraction]) -> bool:
        """Tell whether a step with these costs would be allowed."""
        return self._spent + self._counted(costs) <= _PARTS

    def spend(self, purpose: str, costs: Iterable[Fraction]) -> None:
        """Count a step, before it is made; raise `PlanError` and count nothing if it would pass the budget.

        Parameters
        ----------
        purpose
            What the step does, in words.
        costs
            ρ of each draw of the step, none negative.
        """
        counted = self._counted(costs)
        if self._spent + counted > _PARTS:
            raise PlanError(
                f"{purpose} would cost more than what is left of the budget", remedy="it was not done; ask for less"
            )
        self._spent += counted
        self._steps.append((purpose, counted * self._part))

    def _counted(self, costs: Iterable[Fraction]) -> int:
        """Return the sum of costs in parts of the budget, each rounded up."""
        total = 0
        for cost in costs:
            if not isinstance(cost, Fraction) or cost < 0:
                raise PlanError("a cost is not a fraction of at least zero", remedy="give exact costs")
            total += math.ceil(cost / self._part)
        return total


def require_budget(value: object) -> Budget:
    """Return a budget; refuse anything else. What it holds is not shown: it may be the private table."""
    if not isinstance(value, Budget):
        raise PlanError(expected("a Budget", value), remedy="make one, as in Budget.zcdp(rho=0.1)")
    return value
