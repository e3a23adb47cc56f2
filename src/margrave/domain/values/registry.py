"""The kinds of values that an attribute can have, and which one a set of keywords declares."""

from __future__ import annotations

from collections.abc import Mapping

from margrave.domain.values.bins import Bins
from margrave.domain.values.codes import Codes, checked_size
from margrave.domain.values.kind import Values
from margrave.domain.values.labels import Labels
from margrave.errors import DomainError

# Each kind is one line here, in the order in which its keys stand in a codebook.
KINDS: tuple[type[Values], ...] = (
    Codes,
    Labels,
    Bins,
)


def value_keys() -> tuple[str, ...]:
    """Return the keys of all kinds of values in a codebook, in their order."""
    return tuple(key for kind in KINDS for key in kind.keys)


def declaring_keys() -> tuple[str, ...]:
    """Return the keys that each declare a kind of values by themselves."""
    return tuple(kind.keys[0] for kind in KINDS)


def declare(name: str, given: Mapping[str, object]) -> Values:
    """Return the values that keywords declare.

    Parameters
    ----------
    name
        The name of the attribute, for messages.
    given
        Keys of a codebook. A declaring key with None counts as left out. A size may stand beside another kind, and must
        agree with it then.
    """
    kind = _declared_kind(name, given)
    try:
        values = kind(**{key: given[key] for key in kind.keys if key in given})
        size = None if given.get("size") is None else checked_size(given["size"])
    except DomainError as error:
        raise DomainError(f"attribute {name!r}: {error}") from error
    if size is not None and size != values.size:
        raise DomainError(f"attribute {name!r} has size {size} but {values.size} values", remedy="leave the size out")
    return values


def _declared_kind(name: str, given: Mapping[str, object]) -> type[Values]:
    """Return the one kind that is declared; options of other kinds are refused."""
    declared = [kind for kind in KINDS if given.get(kind.keys[0]) is not None]
    chosen = [kind for kind in declared if kind is not Codes] or declared
    if not chosen:
        raise DomainError(f"attribute {name!r} has neither {' nor '.join(declaring_keys())}", remedy="give one of them")
    if len(chosen) > 1:
        both = " and ".join(kind.keys[0] for kind in chosen)
        raise DomainError(f"attribute {name!r} has both {both}", remedy="keep one of them")
    for kind in KINDS:
        for option in kind.keys[1:]:
            if kind is not chosen[0] and given.get(option, False) is not False:
                raise DomainError(
                    f"attribute {name!r} has {option}, which is for {kind.keys[0]}", remedy="leave it out"
                )
    return chosen[0]
