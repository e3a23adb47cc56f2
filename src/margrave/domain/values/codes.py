"""Codes: only the number of values is declared, and the values are the whole numbers below it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from margrave.domain.values.kind import RELATIONS, Mask, Values, is_number
from margrave.domain.values.numbers import Range
from margrave.errors import DomainError


@dataclass(frozen=True, init=False)
class Codes(Values):
    """The whole numbers 0 … size − 1, each its own code.

    Parameters
    ----------
    size
        How many there are, at least 1.
    """

    keys = ("size",)
    _size: int

    def __init__(self, size: int) -> None:
        object.__setattr__(self, "_size", checked_size(size))

    @property
    def size(self) -> int:
        """The number of codes; there may be too many to make a list of them."""
        return self._size

    @property
    def categories(self) -> tuple[str, ...]:
        """Each code as text."""
        return tuple(str(code) for code in range(self.size))

    def entry(self) -> dict[str, object]:
        """Return the key ``size``."""
        return {"size": self.size}

    def numbers(self) -> Range:
        """Return how numbers are coded: a whole number below the size is its own code."""
        return Range(self.size)

    def code_named(self, category: str) -> int | None:
        """Return the code with these digits, without a list of all codes."""
        if not (category.isascii() and category.isdecimal() and len(category) <= len(str(self.size))):
            return None
        code = int(category)
        return code if str(code) == category and code < self.size else None

    def code_of(self, value: float) -> int | None:
        """Return the code of this value."""
        return int(value) if is_number(value) and value in range(self.size) else None

    def compare(self, relation: str, number: float, *, missing: int | None) -> Mask:
        """Return which codes stand in a relation to a number; the code of missing values is in no range."""
        found = (RELATIONS[relation](code, number) and code != missing for code in range(self.size))
        return np.fromiter(found, dtype=np.bool_, count=self.size)

    @property
    def free_texts(self) -> Iterable[str]:
        """None: codes are named by numbers."""
        return ()


def checked_size(size: object) -> int:
    """Return the size if it is a whole number of at least 1."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise DomainError(f"the size is {size!r}", remedy="give a whole number of at least 1")
    return int(size)
