"""Sets of attributes ordered by inclusion, and where the table of each lives in one flat buffer.

A set is a tuple of attribute positions in ascending order. A family of sets is kept in its *canonical order*: by
number of members, then lexicographically. The *closure* of a family holds all subsets of its sets; within it, the
*facets* of a set are the sets that lack exactly one of its members. Everything is done a level (all sets of one
size) at a time in arrays, because a hundred attributes have 161,700 triples.

The closure of a workload holds all subsets of its tables. Its tables come in two groups: the *inner* ones, which lie
inside a larger table, by order, and after them the *outer* ones, which do not. Nearly all cells are in outer tables,
so a transform is one pass over those, and the work on the inner ones is small. Marginals and residuals of
a closure have the same shapes; a buffer of length ``layout.cells`` holds either. A `Layout` is built once and used by
every transform.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.kernels import Floats, Index, Integers
from margrave.errors import MeasurementError, MemoryLimitError

# The bookkeeping of more subsets would take gigabytes before the first cell is stored.
_MOST_SUBSETS = 2**27
# Places are kept as 64-bit integers and checked as floating-point numbers; 2⁵⁰ cells are 9 petabytes.
_MOST_CELLS = 2**50
AttributeSet = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Layout:
    """The tables of a closure, in order, and their places.

    Attributes
    ----------
    sizes
        Number of values of each attribute of the domain.
    sets
        All tables of the closure as sets of attribute positions: the inner ones by order, then the outer ones.
    levels
        ``levels[k] : levels[k + 1]`` are the inner tables of order k; ``levels[-1]`` is the first outer table.
    index
        The same as arrays, for the kernels.
    facet_cells
        Length of a buffer of facets: one slot for each axis of each table.
    """

    sizes: tuple[int, ...]
    sets: tuple[AttributeSet, ...]
    levels: tuple[int, ...]
    index: Index
    facet_cells: int

    @classmethod
    def of(cls, sizes: Sequence[int], sets: Collection[AttributeSet], *, most_tables: int | None = None) -> Layout:
        """Lay out the closure of a family of attribute sets.

        Parameters
        ----------
        sizes
            Number of values of each attribute.
        sets
            Sets of attribute positions; at least one.
        most_tables
            How many tables the closure may have. Where it has more, the work ends with a `MemoryLimitError` before it
            has taken much more time or memory than a closure of that size.
        """
        groups = by_size(sets)
        # A size that no float or 64-bit integer holds is beyond what can be addressed, and must not end in overflow.
        capped = [min(size, _MOST_CELLS + 1) for size in sizes]
        _check_counts(np.array(capped, dtype=np.float64), groups)
        levels = closure_levels(groups, most=most_tables)
        rank, starts = _rank_inner_first(levels)
        members = [tuple(row) for level in levels for row in level.members.tolist()]
        placed: list[AttributeSet] = [()] * len(members)
        for place, attributes in zip(rank.tolist(), members, strict=True):
            placed[place] = attributes
        index, facet_cells = _index(np.array(capped, dtype=np.int64), levels, rank)
        return cls(tuple(int(size) for size in sizes), tuple(placed), starts, index, facet_cells)

    @property
    def outer(self) -> int:
        """The first outer table: tables below it are inner, tables from it on are not inside any other."""
        return self.levels[-1]

    @property
    def inner_cells(self) -> int:
        """Number of cells of the inner tables, which come first in every buffer."""
        return int(self.index.offset[self.outer])

    @property
    def cells(self) -> int:
        """Number of cells of the whole closure: the length of its buffers."""
        return int(self.index.offset[-1])

    @cached_property
    def attributes(self) -> tuple[int, ...]:
        """The positions of all attributes that are in a table, in ascending order."""
        return tuple(sorted({position for members in self.sets[self.outer :] for position in members}))

    @cached_property
    def places(self) -> dict[AttributeSet, int]:
        """The number of each table."""
        return {attributes: place for place, attributes in enumerate(self.sets)}

    @cached_property
    def degrees(self) -> Floats:
        """The dimension of each residual, ∏ (n_k − 1); zero where an attribute has one value only."""
        order, axes = self.index.order, self.index.axes
        inside = np.arange(axes.shape[1]) < order[:, None]
        degrees: Floats = np.prod(np.where(inside, axes - 1.0, 1.0), axis=1)
        return degrees

    @cached_property
    def within(self) -> Layout:
        """The inner tables alone, none of which counts as outer."""
        return self.restricted(self.outer, self.outer)

    def restricted(self, first: int, last: int) -> Layout:
        """Return the layout of all inner tables and the outer tables first … last − 1, in the same order.

        A share of the outer tables is enough for whatever is done table by table. Inner tables keep their numbers and
        places, and know as tables above them only those that are there.
        """
        rows = np.concatenate([np.arange(self.outer), np.arange(first, last)])
        index, facet_cells = _placed(self.index.order[rows], self.index.axes[rows], self.index.facet[rows])
        sets = self.sets[: self.outer] + self.sets[first:last]
        return Layout(self.sizes, sets, self.levels, index, facet_cells)

    def shape(self, table: int) -> tuple[int, ...]:
        """Return the lengths of the axes of a table."""
        return tuple(self.sizes[attribute] for attribute in self.sets[table])

    def view(self, buffer: Floats, table: int, *, shift: int = 0) -> Floats:
        """Return one table of a buffer as an array with one axis per attribute, sharing its memory.

        Parameters
        ----------
        buffer
            A buffer of the closure, or of its part from cell ``shift`` on.
        table
            Number of the table.
        shift
            The cell of the closure that ``buffer`` begins at.
        """
        offset = self.index.offset
        return buffer[offset[table] - shift : offset[table + 1] - shift].reshape(self.shape(table))

    def views(self, buffer: Floats) -> Iterator[tuple[AttributeSet, Floats]]:
        """Iterate over the tables of a buffer with their attributes."""
        for table, attributes in enumerate(self.sets):
            yield attributes, self.view(buffer, table)

    def subsets(self, table: int) -> tuple[int, ...]:
        """Return the numbers of all tables inside a table, itself included."""
        attributes = self.sets[table]
        chosen = range(1 << len(attributes))
        return tuple(self.places[tuple(a for bit, a in enumerate(attributes) if mask >> bit & 1)] for mask in chosen)

    def checked(self, buffer: Floats) -> Floats:
        """Return the buffer as contiguous float64, or raise `MeasurementError` if it is not one of this closure."""
        if np.iscomplexobj(buffer):
            raise MeasurementError("a buffer of this workload holds complex numbers", remedy="give real ones")
        array = np.ascontiguousarray(buffer, dtype=np.float64)
        if array.shape != (self.cells,):
            raise MeasurementError(f"a buffer of this workload has shape ({self.cells},), this one has {array.shape}")
        return array


def _check_counts(sizes: Floats, groups: Mapping[int, Integers]) -> None:
    """Refuse families whose closure could not be listed, or whose cells could not be numbered."""
    if sum(len(rows) << size for size, rows in groups.items()) > _MOST_SUBSETS:
        raise MemoryLimitError(
            f"tables of {max(groups)} attributes have too many sub-tables to list (at most {_MOST_SUBSETS:,} in all)",
            remedy="ask for tables of fewer attributes",
        )
    cells = float(sum(np.prod(sizes[rows] + 1, axis=1).sum() for rows in groups.values()))
    if cells > _MOST_CELLS:
        raise MemoryLimitError(
            f"the tables and what lies inside them have {cells:.2g} cells",
            remedy=f"at most {_MOST_CELLS:.2g} can be addressed; ask for tables of fewer attributes",
        )


def _rank_inner_first(levels: Sequence[Level]) -> tuple[Integers, tuple[int, ...]]:
    """Return the place of each set of the closure, canonical order, inner ones first; and where levels begin."""
    covered = covered_rows(levels)
    counts = [int(mask.sum()) for mask in covered]
    starts = (0, *np.cumsum(counts).tolist())
    inner = np.concatenate(covered)
    rank = np.empty(len(inner), dtype=np.int64)
    rank[inner] = np.arange(starts[-1])
    rank[~inner] = np.arange(starts[-1], len(inner))
    return rank, starts


def _index(sizes: Integers, levels: Sequence[Level], rank: Integers) -> tuple[Index, int]:
    """Return the arrays that describe a closure to the kernels, and the length of a buffer of facets."""
    count, largest = len(rank), len(levels) - 1
    order = np.empty(count, dtype=np.int64)
    axes = np.ones((count, largest), dtype=np.int64)
    facet = np.zeros((count, largest), dtype=np.int64)
    begin, below = 0, rank[:0]
    for k, level in enumerate(levels):
        own = rank[begin : begin + len(level.members)]
        order[own] = k
        axes[own, :k] = sizes[level.members]
        facet[own, :k] = below[level.facets]
        begin, below = begin + len(level.members), own
    return _placed(order, axes, facet)


def _placed(order: Integers, axes: Integers, facet: Integers) -> tuple[Index, int]:
    """Return the index of tables that stand one after the other, and the length of a buffer of their facets."""
    count, largest = axes.shape
    cells = axes.prod(axis=1)
    inside = np.arange(largest) < order[:, None]
    widths = np.where(inside, cells[:, None] // axes, 0)
    slot = (np.cumsum(widths) - widths.ravel()).reshape(count, largest)
    by_facet = np.argsort(facet[inside], kind="stable")
    above_start = np.searchsorted(facet[inside][by_facet], np.arange(count + 1))
    index = Index(
        order=order,
        axes=axes,
        offset=np.concatenate([[0], np.cumsum(cells)]),
        facet=facet,
        slot=slot,
        above_start=above_start.astype(np.int64),
        above_slot=slot[inside][by_facet],
    )
    return index, int(widths.sum())


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
