"""Wide tables that hold several tables at once: counting one wide table and summing it up counts all that it holds.

Counting costs one step a row and table; summing costs one step a cell, however many rows there are. Ten columns of ten
values have 120 tables of three, and 17 tables of five, of 100,000 cells each, hold them all. Which tables are put
together depends on the declared sizes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.lattice import AttributeSet

# A wide table of so many 64-bit counts stays in the second cache of a core.
MOST_CELLS = 2**16
# Finding wide tables takes time in proportion to tables × attributes × wide tables: beyond this, more than it saves.
_MOST_INCIDENCES = 2**18
# What all wide tables together may take, in cells: 128 MB, or as much more as the tables themselves.
_ROOM = 2**24


@dataclass(frozen=True)
class Wide:
    """A table to be counted, and the tables that are sums of it.

    Attributes
    ----------
    members
        Its attributes, ascending.
    holds
        The places, in the sequence that was covered, of the tables it holds.
    """

    members: AttributeSet
    holds: tuple[int, ...]


def cover(sizes: Sequence[int], sets: Sequence[AttributeSet], *, most_cells: int = MOST_CELLS) -> tuple[Wide, ...]:
    """Return tables of at most so many cells that hold every given table exactly once; a larger one holds itself.

    Parameters
    ----------
    sizes
        Number of values of each attribute.
    sets
        The tables, as sets of attribute positions.
    most_cells
        How many cells a wide table may have.
    """
    alone = tuple(Wide(members, (place,)) for place, members in enumerate(sets))
    if len(sets) * len(sizes) > _MOST_INCIDENCES:
        return alone
    inside = np.zeros((len(sets), len(sizes)), dtype=bool)
    for place, members in enumerate(sets):
        inside[place, list(members)] = True
    waiting, wide = np.arange(len(sets)), []
    while waiting.size:
        chosen = _grown(np.array(sizes, dtype=np.int64), inside[waiting], most_cells)
        held = ~(inside[waiting] & ~chosen).any(axis=1)
        wide.append(Wide(tuple(np.flatnonzero(chosen).tolist()), tuple(waiting[held].tolist())))
        waiting = waiting[~held]
    room = max(_ROOM, 2 * _cells(sizes, alone))
    return tuple(wide) if _cells(sizes, wide) <= room else alone


def _grown(sizes: NDArray[np.int64], inside: NDArray[np.bool_], most_cells: int) -> NDArray[np.bool_]:
    """Return the first table, grown by one attribute after the other: always the one that completes most tables."""
    chosen: NDArray[np.bool_] = inside[0].copy()
    cells = prod(sizes[chosen].tolist())
    while True:
        lacking = inside & ~chosen
        completed = lacking[lacking.sum(axis=1) == 1].sum(axis=0)
        fits = (completed > 0) & (cells * sizes <= most_cells)
        if not fits.any():
            return chosen
        # Among those that complete as many tables, the one with the fewest values leaves room for more.
        best = min(np.flatnonzero(fits).tolist(), key=lambda k: (-int(completed[k]), int(sizes[k])))
        chosen[best] = True
        cells *= int(sizes[best])


def _cells(sizes: Sequence[int], tables: Sequence[Wide]) -> int:
    """Return the number of cells of all tables together."""
    return sum(prod(sizes[k] for k in table.members) for table in tables)
