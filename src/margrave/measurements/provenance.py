"""Where measurements come from: which mechanism, what it spent step by step, and under which guarantee.

Plain values that travel with the measurements into every file. Nothing here depends on the private table: amounts are
planned before it is read, and the sets that a mechanism chose were chosen privately.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from margrave.errors import MeasurementError

NEIGHBOURS = "add or remove one person"
_HASH = re.compile(r"[0-9a-f]{64}")


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
        The same as an (ε, δ) guarantee.
    contributions
        The most rows that one person has in the table.
    contributions_bounded
        How that is known: "declared", the caller's word, or "enforced": no more rows of a person were kept, by an id.
    sampler
        Which sampler drew the noise.
    private
        Whether its randomness is fit for private data; False marks experiments with a seed, for ever.
    version
        The version of margrave.
    neighbours
        What the guarantee hides.
    adaptive
        Whether what was measured depends on the noise of earlier measurements. Then no variance that ignores this is
        right given what was measured, and tables have no standard error.
    ledger_entry, ledger_hash
        The number and the hash of the charge in the ledger; None where no ledger was charged.
    cut_short
        Where the run ended before all was measured, such as "after 7 of 30 rounds"; None if it did not. The whole
        budget is charged all the same.
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

    def __post_init__(self) -> None:
        """Refuse a record that says less than was spent, or that does not say plainly whether it is private."""
        spent = sum((step.rho for step in self.steps), Fraction(0))
        if spent > self.rho or any(step.rho < 0 for step in self.steps):
            raise MeasurementError(
                f"the steps cost ρ = {spent} and the record says {self.rho}; record all that was spent"
            )
        if not isinstance(self.private, bool):
            raise MeasurementError(f"private is {self.private!r} in a provenance; it must be True or False")
        _check_entry(self.ledger_entry, self.ledger_hash)
        if self.cut_short is not None and not (isinstance(self.cut_short, str) and self.cut_short):
            raise MeasurementError("cut_short must be words that say where a run ended, or None")

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold; ρ as exact text "p/q"."""
        plain = asdict(self)
        plain["rho"] = str(self.rho)
        plain["steps"] = [{"purpose": step.purpose, "rho": str(step.rho)} for step in self.steps]
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Provenance:
        """Return the provenance that `to_dict` wrote."""
        try:
            steps = tuple(Step(str(step["purpose"]), Fraction(step["rho"])) for step in plain["steps"])
            return cls(**{**plain, "rho": Fraction(plain["rho"]), "steps": steps})
        except (KeyError, TypeError, ValueError, ArithmeticError, MeasurementError) as error:
            raise MeasurementError(f"the provenance is damaged ({error}); save the measurements again") from error


def _check_entry(number: object, digest: object) -> None:
    """Refuse what cannot be the number and the hash of a charge in a ledger."""
    if number is None and digest is None:
        return
    whole = isinstance(number, int) and not isinstance(number, bool) and number > 0
    if not whole or not isinstance(digest, str) or not _HASH.fullmatch(digest):
        raise MeasurementError(
            "ledger_entry and ledger_hash must be the number of a charge, from 1, and its SHA-256 in hexadecimal; give "
            "both, or neither"
        )
