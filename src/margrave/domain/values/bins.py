"""Bins: all numbers, divided by cuts into intervals that are closed on the right."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from margrave.domain.values.kind import Mask, Values, checked_list
from margrave.domain.values.numbers import Intervals
from margrave.errors import DomainError, QueryError

# Beyond it a whole number need not have a float of its own, and two cuts could become equal.
_LARGEST_WHOLE_CUT = 2**53


@dataclass(frozen=True, init=False)
class Bins(Values):
    """All numbers, divided by the cuts a < b < … < z into (−∞, a], (a, b], …, (z, ∞).

    Parameters
    ----------
    cuts
        Strictly increasing finite numbers, at least one.
    whole
        Whether the values are whole numbers, as ages in years are; all cuts are whole then. The bins are named and
        compared by the whole numbers in them, ``18–64`` for (17, 64]; how numbers are coded stays the same.
    """

    keys = ("cuts", "whole")
    holds_every_number = True
    cuts: tuple[float, ...]
    whole: bool

    def __init__(self, cuts: Iterable[float], whole: bool = False) -> None:
        edges = _checked_cuts(cuts)
        object.__setattr__(self, "cuts", edges)
        object.__setattr__(self, "whole", _checked_whole(whole, edges))

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """Each bin as an interval, ``(18, 65]``, or by its whole numbers, ``18–64``."""
        if self.whole:
            return _whole_bins([int(cut) for cut in self.cuts])
        edges = [_written(cut) for cut in self.cuts]
        return f"≤ {edges[0]}", *(f"({a}, {b}]" for a, b in pairwise(edges)), f"> {edges[-1]}"

    def entry(self) -> dict[str, object]:
        """Return the key ``cuts``, and ``whole`` if it is true."""
        return {"cuts": self.cuts, "whole": True} if self.whole else {"cuts": self.cuts}

    def numbers(self) -> Intervals:
        """Return how numbers are coded: by the number of cuts below them."""
        return Intervals(self.cuts)

    def compare(self, relation: str, number: float, *, missing: int | None) -> Mask:
        """Return which bins stand in a relation to a number; a number inside a bin is refused.

        Each edge lies in the bin below it, so bins are divided by > and <= an edge alone. Between whole numbers
        ``>= 65`` is ``> 64`` and ``< 65`` is ``<= 64``. A bin that counts missing values too is compared like the
        others.
        """
        first = self._bins_below(relation, number)
        above: Mask = np.arange(self.size) >= first
        return above if relation.startswith(">") else ~above

    @property
    def equality_hint(self) -> str:
        """How a bin, or a range of bins, is written."""
        by = ">= or < and the first number of a bin" if self.whole else "> or <= and an edge"
        return f"; name a bin in quotes, or a range by {by}"

    @property
    def free_texts(self) -> Iterable[str]:
        """None: bins are named by numbers."""
        return ()

    def _bins_below(self, relation: str, number: float) -> int:
        """Return how many bins lie below an edge."""
        stepped = self.whole and relation in (">=", "<") and (isinstance(number, int) or number.is_integer())
        edge = number - 1 if stepped else number
        place = bisect_left(self.cuts, edge)
        exact = place < len(self.cuts) and self.cuts[place] == edge
        if exact and (stepped or relation in (">", "<=")):
            return place + 1
        nearest = (edge,) if exact else self.cuts[max(place - 1, 0) : place + 1]
        raise QueryError("would split a bin", remedy=f"{self._allowed_edges(nearest)}")

    def _allowed_edges(self, nearest: Iterable[float]) -> str:
        """Return at which numbers bins can be divided, and the nearest of them."""
        if self.whole:
            first = " and ".join(_written(edge + 1) for edge in nearest)
            return f"write >= or < and the first whole number of a bin (nearest: {first})"
        last = " and ".join(_written(edge) for edge in nearest)
        return f"write > or <= and one of its edges, each of which lies in the bin below it (nearest: {last})"


def _written(number: float) -> str:
    """Return a number as it stands in the name of a bin."""
    return repr(number).removesuffix(".0")


def _whole_bins(cuts: list[int]) -> tuple[str, ...]:
    """Return the names of bins of whole numbers: ``≤ 17``, ``18–64``, ``65``, ``≥ 66``."""
    inner = (str(b) if b == a + 1 else f"{a + 1}–{b}" for a, b in pairwise(cuts))
    return f"≤ {cuts[0]}", *inner, f"≥ {cuts[-1] + 1}"


def _checked_cuts(cuts: object) -> tuple[float, ...]:
    """Return the cuts if there are any and they are finite numbers in strictly increasing order."""
    edges = tuple(_checked_cut(cut) for cut in checked_list("the cuts", cuts))
    if not edges:
        raise DomainError("the list of cuts is empty", remedy="give at least one number to cut at")
    for a, b in pairwise(edges):
        if not a < b:
            raise DomainError(f"the cut {b!r} comes after {a!r}", remedy="sort the cuts, each once")
    return edges


def _checked_cut(cut: object) -> float:
    """Return the cut if it is a finite number that a float holds exactly."""
    if isinstance(cut, float) and math.isfinite(cut):
        return cut + 0.0  # −0.0 becomes 0.0
    if isinstance(cut, int) and not isinstance(cut, bool) and abs(cut) <= _LARGEST_WHOLE_CUT:
        return cut
    raise DomainError(f"the cut {cut!r} is not allowed", remedy="give finite numbers, whole ones within ±2⁵³")


def _checked_whole(whole: object, cuts: tuple[float, ...]) -> bool:
    """Return whether the values are whole numbers, if bins with these cuts allow it."""
    if not isinstance(whole, bool):
        raise DomainError(f"whole is {whole!r}", remedy="write true or false")
    if whole and any(cut != int(cut) for cut in cuts):
        raise DomainError("whole is for cuts at whole numbers, and not all of these are", remedy="leave it out")
    return whole
