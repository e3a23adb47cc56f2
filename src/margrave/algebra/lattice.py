r"""Sets of attributes, ordered by inclusion: closures, maximal sets and the facets that join them.

A set is a tuple of attribute positions in ascending order. A family of sets is kept in its *canonical order*: by
number of members, then lexicographically. The *closure* of a family holds all subsets of its sets; within it, the
*facets* of a set are the sets that lack exactly one of its members. Everything is done a level (all sets of one
size) at a time in arrays, because a hundred attributes have 161,700 triples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from margrave.errors import MemoryLimitError

AttributeSet = tuple[int, ...]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """All sets of one size in a closure.

    Attributes
    ----------
    members
        Shape (count, size); one set a row, members ascending, rows in lexicographic order.
    facets
        Shape (count, size); ``facets[i, j]`` is the row, in the level below, of set i without its j-th member.
    """

    members: Integers
    facets: Integers


def canonical(sets: Iterable[Iterable[int]]) -> tuple[AttributeSet, ...]:
    """Return the distinct sets, members ascending, in canonical order."""
    distinct = {tuple(sorted(set(members))) for members in sets}
    return tuple(sorted(distinct, key=lambda members: (len(members), members)))


def by_size(sets: Iterable[AttributeSet]) -> dict[int, Integers]:
    """Return the sets of a family by their number of members, one array of shape (count, size) each, members ascending.

    Repeats stay in, and the order of the sets is as given: sorting a hundred thousand tuples would take longer than all
    that is done with them.
    """
    groups: dict[int, list[AttributeSet]] = {}
    for members in sets:
        groups.setdefault(len(members), []).append(members)
    return {
        size: np.sort(np.array(group, dtype=np.int64).reshape(len(group), size), axis=1)
        for size, group in groups.items()
    }


def closure_levels(groups: Mapping[int, Integers], *, most: int | None = None) -> tuple[Level, ...]:
    """Return the closure of a family, level by level from the empty set up; empty for no family.

    Parameters
    ----------
    groups
        The family, as `by_size` returns it.
    most
        How many sets the closure may have; a `MemoryLimitError` is raised as soon as there are more.
    """
    if not groups:
        return ()
    largest, found = max(groups), 0
    # The subsets of the largest set alone are 2 to the power of its size.
    _check_most(2 ** min(largest, 64), most)
    levels: list[Level] = []
    above: Integers = np.empty((0, largest + 1), dtype=np.int64)  # nothing above the largest sets
    for size in range(largest, -1, -1):
        own = groups.get(size, np.empty((0, size), dtype=np.int64))
        inherited = _without_each_member(above)
        members, row = _distinct_rows(np.concatenate([own, inherited]))
        found += len(members)
        _check_most(found, most)
        if levels:
            levels[-1] = Level(above, row[len(own) :].reshape(len(above), size + 1))
        levels.append(Level(members, np.empty((len(members), size), dtype=np.int64)))
        above = members
    return tuple(reversed(levels))


def _check_most(found: int, most: int | None) -> None:
    """Raise `MemoryLimitError` if there are more sets than there may be."""
    if most is not None and found > most:
        raise MemoryLimitError(
            f"the tables have more than {most:,} tables inside them", remedy="ask for fewer attributes a table"
        )


def closure(sets: Iterable[AttributeSet]) -> tuple[AttributeSet, ...]:
    """Return all subsets of the sets of a family, in canonical order."""
    return tuple(tuple(row) for level in closure_levels(by_size(sets)) for row in level.members.tolist())


def maximal(sets: Iterable[AttributeSet]) -> tuple[AttributeSet, ...]:
    """Return the sets of a family that no other set of it contains, in canonical order."""
    levels = closure_levels(by_size(sets))
    return tuple(
        tuple(row)
        for level, covered in zip(levels, covered_rows(levels), strict=True)
        for row in level.members[~covered].tolist()
    )


def covered_rows(levels: Sequence[Level]) -> tuple[NDArray[np.bool_], ...]:
    """Tell, for each set of each level of a closure, whether a larger set of the closure contains it.

    A set inside a larger one is a facet of some set of the closure: the larger one contains it plus one more member.
    """
    masks = [np.zeros(len(level.members), dtype=np.bool_) for level in levels]
    for below, level in zip(masks, levels[1:], strict=False):
        below[level.facets.ravel()] = True
    return tuple(masks)


def _without_each_member(members: Integers) -> Integers:
    """Return the rows with each column left out in turn: shape (count · size, size − 1), the rows of a set together."""
    count, size = members.shape
    kept = [[column for column in range(size) if column != left_out] for left_out in range(size)]
    return members[:, np.array(kept, dtype=np.int64).reshape(size, size - 1)].reshape(count * size, size - 1)


def _distinct_rows(rows: Integers) -> tuple[Integers, Integers]:
    """Return the distinct rows in lexicographic order, and for each given row its place among them.

    Columns are folded into one key, which is replaced by its rank whenever it could outgrow 64 bits.
    """
    count, size = rows.shape
    key = np.zeros(count, dtype=np.int64)
    base = int(rows.max(initial=0)) + 1
    bound = 1
    for column in range(size):
        if bound * base > 2**62:
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            bound = count
        key = key * base + rows[:, column]
        bound *= base
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return rows[first], place.astype(np.int64)
