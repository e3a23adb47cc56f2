"""The errors that margrave raises: one sentence each, with what was given, what is allowed and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any
from unicodedata import normalize

from margrave.escaping import visible, without_passwords

_LONGEST_TEXT = 4000
# Comparing names takes time with the product of their lengths.
_LONGEST_COMPARED = 200


class MargraveError(Exception):
    """Any error that margrave raises on purpose; the command line shows its text as one line.

    Its text is one line of visible characters without a password, whatever names, paths, addresses and messages of
    others went into it. A text of more than 4,000 characters is shown without its middle.

    Parameters
    ----------
    problem
        What was given and what is allowed.
    remedy
        What to do about it; the text of the error ends with it.
    """

    def __init__(self, problem: object = "", *, remedy: str = "") -> None:
        text = without_passwords(str(problem))
        self.problem, self.remedy = text, without_passwords(remedy)
        super().__init__(f"{text}; {self.remedy}" if self.remedy else text)

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > _LONGEST_TEXT:
            text = f"{text[: _LONGEST_TEXT // 2]} … {text[-_LONGEST_TEXT // 2 :]}"
        return visible(text)


class DomainError(MargraveError, ValueError):
    """A domain, or a file that should hold one, is not what it must be; or it has no such attribute, value or range."""


class PlanError(MargraveError, ValueError):
    """A workload, a budget or a plan cannot be made as asked, or does not hold what it is asked for."""


class DataError(MargraveError, ValueError):
    """A private table cannot be read or does not fit its domain; the message shows no value of it."""


class MeasurementError(MargraveError, ValueError):
    """An array, a measurement, its noise, or a file that should hold measurements is not what it must be.

    Also where noise or a choice cannot be drawn as asked, or a source of random bits is broken; no score is shown.
    """


class ReleaseError(MargraveError, ValueError):
    """Tables cannot be made from the measurements as asked, or a release cannot tell what it is asked for."""


class ConvergenceError(MargraveError):
    """An iteration ended before it reached its tolerance."""


class StoreError(MargraveError):
    """A file or folder cannot be written, or a folder that should hold a release is damaged or holds something else."""


class DamageError(StoreError):
    """A file of a saved release is missing, or is not what was saved."""


class LedgerError(MargraveError):
    """A ledger cannot be read, written or trusted."""


class BudgetRefusedError(LedgerError):
    """A charge would pass the cap of the ledger; nothing was charged."""


class MemoryLimitError(MargraveError):
    """The work would need more memory than the machine has."""


class InterruptionError(MargraveError):
    """Work was interrupted after something had been paid for; the message says where that is kept."""


class JobError(MargraveError, ValueError):
    """A command line or a job file does not say what to do."""


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


def expected(wanted: str, value: object) -> str:
    """Return ``"expected a Workload, got a list"``; the value is not shown, as it may be the private table."""
    return f"expected {wanted}, got {'None' if value is None else f'a {type(value).__name__}'}"


def import_optional(package: str) -> Any:  # noqa: ANN401 — a module
    """Return a library of frames that margrave works without, or raise an error that says how to get it."""
    try:
        return import_module(package)
    except ImportError:
        raise ReleaseError(
            f"{package} is not installed", remedy=f"install it with 'pip install {package}', or use to_arrow() instead"
        ) from None
