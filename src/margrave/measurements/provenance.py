"""Where measurements come from: which mechanism, what it spent step by step, and under which guarantee.

Plain values that travel with the measurements into every file. Nothing here depends on the private table: amounts are
planned before it is read, and the sets that a mechanism chose were chosen privately.

A record comes from a file as often as from a mechanism, so everything in it is checked: every field has its type,
the steps cost no more than ρ, and the stated ε is no less than ρ and δ give.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from numbers import Rational
from typing import Any

from margrave.errors import MeasurementError, PlanError
from margrave.privacy.budget import Budget, shown_fraction, shown_value

NEIGHBOURS = "add or remove one person"
# What the name of a sampler has in it that is not fit for private data (``privacy.noise.described_sampler``).
_NOT_PRIVATE = ("foreign: ", "insecure seeded source")
_HASH = re.compile(r"[0-9a-f]{64}")
_TEXTS = ("mechanism", "sampler", "version", "contributions_bounded", "neighbours")
# An exact amount in a file: digits only, and no more of them than Python itself reads. ``Fraction("1e999999999")``
# would fill all memory.
_AMOUNT = re.compile(r"[0-9]{1,4300}(?:/[0-9]{1,4300})?")
# Bits of the sums that decide, nearly always, whether steps cost more than they may; and bits of the denominators that
# are added up exactly where those do not.
_SUM_BITS, _MOST_EXACT_BITS = 512, 2**18
# ε is rounded up to a float; a version that searches ε in another way may round it to a neighbouring one.
_EPSILON_ROUNDING = 1e-12


@dataclass(frozen=True)
class Step:
    """One thing a mechanism did with the private table.

    Attributes
    ----------
    purpose
        What was done, in words.
    rho
        What it cost, ρ of zCDP, exactly.
    """

    purpose: str
    rho: Fraction


@dataclass(frozen=True)
class Provenance:
    """How measurements were made.

    Attributes
    ----------
    mechanism
        The name of the mechanism.
    steps
        What it did and what each step cost.
    rho
        What was charged in all, exactly; no less than the sum of the steps.
    epsilon, delta
        The same as an (ε, δ) guarantee; ε is no less than ρ and δ give.
    contributions
        The most rows that one person has in the table; where a query was given, in its result.
    contributions_bounded
        How that is known: "declared", the caller's word, or "enforced": no more rows of a person were kept, by an id.
    sampler
        Which sampler drew the noise.
    private
        Whether its randomness is fit for private data. False marks experiments with a seed, and noise of a sampler
        that margrave does not know; it stays False in everything made from the measurements.
    version
        The version of margrave.
    neighbours
        What the guarantee hides.
    adaptive
        Whether what was measured depends on the noise of earlier measurements. Then no variance that ignores this is
        right given what was measured, and tables have no standard error.
    ledger_entry, ledger_hash
        The number and the hash of the charge in the ledger; None where no ledger was charged.
    queried
        Whether the table is the result of a query that was given to margrave; None if that is not known.
    query
        The text of that query, if its custodian publishes it.
    cut_short
        Where the run ended before all was measured, such as "after 7 of 30 rounds"; None if it did not. The whole
        budget is charged all the same.
    description
        What was measured and how the noise was chosen, as a sentence for reports; None in older files.
    """

    mechanism: str
    steps: tuple[Step, ...]
    rho: Fraction
    epsilon: float
    delta: float
    contributions: int
    sampler: str
    private: bool
    version: str
    contributions_bounded: str = "declared"
    neighbours: str = NEIGHBOURS
    adaptive: bool = False
    ledger_entry: int | None = None
    ledger_hash: str | None = None
    cut_short: str | None = None
    queried: bool | None = None
    query: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        """Refuse a record that cannot be true, or that does not say plainly whether it is private."""
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise MeasurementError(
                    f"{name} is {shown_value(getattr(self, name))} in a provenance", remedy="it must be text"
                )
        for name in ("private", "adaptive"):
            if not isinstance(getattr(self, name), bool):
                given = shown_value(getattr(self, name))
                raise MeasurementError(f"{name} is {given} in a provenance", remedy="it must be True or False")
        if self.private and any(mark in self.sampler for mark in _NOT_PRIVATE):
            raise MeasurementError(
                f"a provenance says private, and its sampler is {shown_value(self.sampler)}, whose noise is not",
                remedy="say that it is not private",
            )
        rows = self.contributions
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise MeasurementError(
                f"contributions is {shown_value(rows)} in a provenance", remedy="it must be at least 1 row"
            )
        object.__setattr__(self, "rho", _checked_rho("rho", self.rho))
        object.__setattr__(self, "steps", _checked_steps(self.steps))
        _check_epsilon(self.rho, self.epsilon, self.delta)
        if _exceed([step.rho for step in self.steps], self.rho):
            raise MeasurementError(
                f"the steps cost more than the record says, ρ = {_shown(self.rho)}", remedy="record all that was spent"
            )
        _check_entry(self.ledger_entry, self.ledger_hash)
        if self.cut_short is not None and not (isinstance(self.cut_short, str) and self.cut_short):
            raise MeasurementError("cut_short must be words that say where a run ended, or None")
        _check_query(self.queried, self.query)
        if self.description is not None and not (isinstance(self.description, str) and self.description):
            raise MeasurementError("description must be a sentence that says what was measured, or None")

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold; ρ as exact text "p/q"."""
        plain = asdict(self)
        plain["rho"] = str(self.rho)
        plain["steps"] = [{"purpose": step.purpose, "rho": str(step.rho)} for step in self.steps]
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Provenance:
        """Return the provenance that `to_dict` wrote; refuse what cannot be true."""
        try:
            known = {field.name for field in fields(cls)}
            unknown = sorted(set(plain) - known)
            if unknown:
                raise MeasurementError(f"it has the unknown key {shown_value(unknown[0])}")
            steps = tuple(Step(step["purpose"], _amount(step["rho"])) for step in plain["steps"])
            return cls(**{**plain, "rho": _amount(plain["rho"]), "steps": steps})
        except KeyError as error:
            raise MeasurementError(
                f"the provenance is damaged (it lacks {error})", remedy="save the measurements again"
            ) from None
        except (TypeError, ValueError, ArithmeticError, MeasurementError) as error:
            raise MeasurementError(
                f"the provenance is damaged ({error})", remedy="save the measurements again"
            ) from error


def _amount(text: object) -> Fraction:
    """Return an exact amount from its text ``p/q`` or ``p``; a number, a sign or an exponent is refused."""
    if not isinstance(text, str) or not _AMOUNT.fullmatch(text):
        raise MeasurementError(f"an amount is {shown_value(text)}", remedy="it must be a text such as '1/3'")
    return Fraction(text)


def _shown(rho: Fraction) -> str:
    """Return ρ exactly where that is short, and else rounded."""
    text = str(rho) if rho.denominator.bit_length() < 64 else ""
    return text if 0 < len(text) < 40 else shown_fraction(rho)


def _checked_rho(what: str, rho: object) -> Fraction:
    """Return an amount as a fraction if it is an exact number."""
    if isinstance(rho, bool) or not isinstance(rho, Rational):
        raise MeasurementError(f"{what} is {shown_value(rho)} in a provenance", remedy="it must be a Fraction")
    return Fraction(rho)


def _checked_steps(steps: object) -> tuple[Step, ...]:
    """Return the steps if each has a purpose in words and an exact cost of at least 0."""
    if not isinstance(steps, tuple) or not all(isinstance(step, Step) for step in steps):
        raise MeasurementError(f"steps is {shown_value(steps)} in a provenance", remedy="it must be a tuple of Step")
    for step in steps:
        if not isinstance(step.purpose, str):
            raise MeasurementError(f"the purpose of a step is {shown_value(step.purpose)}", remedy="it must be text")
    checked = tuple(Step(step.purpose, _checked_rho("the cost of a step", step.rho)) for step in steps)
    if any(step.rho < 0 for step in checked):
        raise MeasurementError("a step costs less than 0", remedy="record all that was spent")
    return checked


def _exceed(amounts: Sequence[Fraction], most: Fraction) -> bool:
    """Tell whether amounts add up to more than ``most``, exactly.

    In units of 2⁻ˢ, far below ``most``, each amount rounds down by less than one unit. Only where the sums of those are
    too close to tell are the fractions added up: the common denominator of many hostile ones has millions of digits.
    """
    shift = _SUM_BITS + max(0, most.denominator.bit_length() - most.numerator.bit_length())
    rounded = sum((amount.numerator << shift) // amount.denominator for amount in amounts)
    limit = (most.numerator << shift) // most.denominator
    if rounded > limit:
        return True
    if rounded + len(amounts) <= limit:
        return False
    if sum(size.bit_length() for size in {amount.denominator for amount in amounts}) > _MOST_EXACT_BITS:
        raise MeasurementError("the costs of the steps are fractions too long to add up", remedy="round them up")
    return sum(amounts, Fraction(0)) > most


def _check_epsilon(rho: Fraction, epsilon: object, delta: object) -> None:
    """Refuse an ε that is not a number, or is less than ρ and δ give; more is a weaker statement, and true."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise MeasurementError(
                f"{name} is {shown_value(value)} in a provenance", remedy="it must be a finite number from 0"
            )
    try:
        least = Budget(rho=rho, delta=delta).epsilon()  # type: ignore[arg-type]
    except PlanError as error:
        raise MeasurementError(f"a provenance has impossible numbers: {error}") from error
    if epsilon < least * (1 - _EPSILON_ROUNDING):  # type: ignore[operator]
        raise MeasurementError(
            f"the record says ε = {shown_value(epsilon)}, and its ρ gives ε = {least:g} at δ = {delta:g}",
            remedy="state no less",
        )


def _check_query(queried: object, query: object) -> None:
    """Refuse what cannot be said about a query."""
    if queried is not None and not isinstance(queried, bool):
        raise MeasurementError("queried must be True, False or None in a provenance")
    if query is not None and not (isinstance(query, str) and query and queried):
        raise MeasurementError("query must be the text of a query in a provenance that says queried, or None")


def _check_entry(number: object, digest: object) -> None:
    """Refuse what cannot be the number and the hash of a charge in a ledger."""
    if number is None and digest is None:
        return
    whole = isinstance(number, int) and not isinstance(number, bool) and number > 0
    if not whole or not isinstance(digest, str) or not _HASH.fullmatch(digest):
        raise MeasurementError(
            "ledger_entry and ledger_hash must be the number of a charge, from 1, and its SHA-256 in hexadecimal",
            remedy="give both, or neither",
        )
