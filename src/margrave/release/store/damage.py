"""Damage to the folder of a release, in one sentence that ends with what to do about it."""

from __future__ import annotations

from margrave.errors import DamageError

_AGAIN = "; get the release again"


def damage(what: str) -> DamageError:
    """Return the error for a file that is missing or is not what was saved, with the remedy that always helps."""
    return DamageError(what + _AGAIN)


def remedied(error: DamageError, remedy: str | None) -> DamageError:
    """Return the same damage with a better remedy, if there is one.

    Parameters
    ----------
    error
        An error of `damage`.
    remedy
        What to do, in words; None if nothing better is known.
    """
    said = str(error)
    if remedy is None or not said.endswith(_AGAIN):
        return error
    return DamageError(f"{said.removesuffix(_AGAIN)}; {remedy}")
