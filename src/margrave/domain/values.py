"""What every kind of values has in common: categories, coding, comparing and an entry in the codebook.

An attribute declares a finite set of values. How it does so is its *kind*: labels, bins of numbers or
the whole numbers below a size (``kinds``). All that the rest of margrave asks about a set of values it asks through
`Values`, so a new kind is one subclass and one line in ``kinds``.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, TypeGuard

import numpy as np
from numpy.typing import NDArray

from margrave.domain.numbers import Numbers
from margrave.errors import DomainError, QueryError

Label = str | int | float | bool
Mask = NDArray[np.bool_]

# The comparisons by order.
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Values(ABC):
    """The declared values of an attribute: a set of categories with the codes 0 … size − 1.

    A kind must have `keys`, `categories` and `entry`, and say how the values of a column are coded: by `texts`,
    `text_rule`, `truths` or `numbers`. Everything else has a default. Kinds are frozen, equal by value and hashable.

    Attributes
    ----------
    keys
        The keys of the kind in a codebook, which are also the keywords of its constructor. The first one declares the
        kind; the others are options.
    holds_every_number
        Whether each number is in the set, so that a value outside of it is never a number.
    """

    keys: ClassVar[tuple[str, ...]]
    holds_every_number: ClassVar[bool] = False

    @property
    @abstractmethod
    def categories(self) -> tuple[str, ...]:
        """The name of each category, in the order of the codes."""

    @property
    def size(self) -> int:
        """The number of categories."""
        return len(self.categories)

    @abstractmethod
    def entry(self) -> dict[str, object]:
        """Return the keys of the codebook that declare these values; options that are off are left out."""

    # Coding: what a value of a column is. Values that none of these know are outside the declared set.

    @property
    def texts(self) -> Mapping[str, int]:
        """The code of each text that is declared by itself; dates and times are declared as texts too."""
        return {}

    @property
    def text_rule(self) -> Callable[[str], int | None] | None:
        """The code of any text that is not in `texts`, if a rule gives it; the rule returns None for other texts."""
        return None

    @property
    def truths(self) -> Mapping[bool, int]:
        """The code of each declared truth value."""
        return {}

    def numbers(self) -> Numbers | None:
        """Return how numbers are coded; None if no number is declared."""
        return None

    # Comparing: what a condition such as ``age >= 65`` means.

    def code_named(self, category: str) -> int | None:
        """Return the code of the category with this name, if there is one."""
        return self.categories.index(category) if category in self.categories else None

    def code_of(self, value: float) -> int | None:
        """Return the code of the category that is exactly this number or truth value, if there is one."""
        return None

    def compare(self, relation: str, number: float, *, missing: int | None) -> Mask:
        """Return which categories stand in a relation to a number, shape (size,).

        Parameters
        ----------
        relation
            One of < <= > >=.
        number
            The number on the right-hand side.
        missing
            The code of the category that counts missing values, which are in no range; None if there is none.
        """
        raise QueryError(NO_ORDER.format("its categories"))

    @property
    def equality_hint(self) -> str:
        """What to write instead of ``= number`` where no category is a single number; empty if there is no advice."""
        return ""

    # Describing.

    @property
    def free_texts(self) -> Iterable[str]:
        """The names of categories that people chose freely, so that they may contain anything."""
        return self.categories


# Why values without an order cannot be compared, given what has none.
NO_ORDER = "has no meaning: {} are not all numbers; list the categories you mean with in (…)"


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number; a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def checked_text(what: str, value: object) -> str:
    """Return the value if it is text that a file in UTF-8 can hold."""
    if not isinstance(value, str):
        raise DomainError(f"{what} must be text, got {value!r}", remedy="write it in quotes")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DomainError(
            f"{what} contains an unpaired surrogate, {value!r}", remedy="write whole characters only"
        ) from None
    return value


def checked_list(what: str, values: object) -> tuple[object, ...]:
    """Return the items of an ordered collection, with numpy scalars as Python values."""
    # The characters of a text, the keys of a mapping and the order of a set are never what was meant.
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping | set | frozenset):
        raise DomainError(f"{what} must be a list, got {values!r}", remedy="write them in order in [ ]")
    return tuple(value.item() if isinstance(value, np.generic) else value for value in values)
