"""The errors that margrave raises: one sentence each, with what was given, what is allowed and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from unicodedata import normalize

from margrave.escaping import visible, without_passwords

_LONGEST_TEXT = 4000
# Comparing names takes time with the product of their lengths.
_LONGEST_COMPARED = 200


class MargraveError(Exception):
    """Any error that margrave raises on purpose; the command line shows its text as one line.

    Its text is one line of visible characters without a password, whatever names, paths, addresses and messages of
    others went into it. A text of more than 4,000 characters is shown without its middle.
    """

    def __init__(self, *words: object) -> None:
        super().__init__(*(without_passwords(word) if isinstance(word, str) else word for word in words))

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > _LONGEST_TEXT:
            text = f"{text[: _LONGEST_TEXT // 2]} … {text[-_LONGEST_TEXT // 2 :]}"
        return visible(text)


class DomainError(MargraveError):
    """A domain, or a file that should hold one, is not what it must be."""


class WorkloadError(MargraveError):
    """A workload names tables that cannot be made."""


class ArrayError(MargraveError):
    """An array has the wrong shape or holds a value that is not a number."""


class MemoryLimitError(MargraveError):
    """The work would need more memory than the machine has."""


class DataError(MargraveError):
    """A private table cannot be read or does not fit its domain; the message shows no value of it."""


class MeasurementError(MargraveError):
    """A measurement, its noise, or a file that should hold measurements is not what it must be."""


class ConvergenceError(MargraveError):
    """An iteration ended before it reached its tolerance."""


class ReconstructionError(MargraveError):
    """Tables cannot be made from the measurements in the way asked for."""


class ReleaseError(MargraveError):
    """A reconstruction cannot be made as asked, or a release does not hold the table asked for."""


class QueryError(ReleaseError):
    """A condition cannot be read, or asks for what the tables cannot tell."""


class StoreError(MargraveError):
    """A release cannot be saved, or a folder that should hold one is damaged or holds something else."""


class DamageError(StoreError):
    """A file of a saved release is missing, or is not what was saved."""


class PlanError(MargraveError):
    """A plan cannot be made as asked, or does not hold what it is asked for."""


class BudgetError(MargraveError):
    """A privacy budget, or a number that should be one, is not what it must be."""


class SelectionError(MargraveError):
    """A candidate cannot be selected as asked; the message shows no score."""


class LedgerError(MargraveError):
    """A ledger cannot be read, written or trusted."""


class BudgetRefusedError(LedgerError):
    """A charge would pass the cap of the ledger; nothing was charged."""


class NoiseError(MargraveError):
    """Noise cannot be drawn as asked, or its source of random bits is broken."""


class InterruptionError(MargraveError):
    """Work was interrupted after something had been paid for; the message says where that is kept."""


class JobError(MargraveError):
    """A command line or a job file does not say what is to be done."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'age'?"`` when one known name is close to ``name``, else nothing."""
    names = [other for other in known if len(other) <= _LONGEST_COMPARED]
    if len(name) > _LONGEST_COMPARED:
        return ""
    for other in names:
        if other != name and normalize("NFC", other) == normalize("NFC", name):
            return f"; did you mean {other!r}? The two look alike but differ in Unicode form (é as one or as two)"
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
