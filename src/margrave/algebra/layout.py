"""Where each table of a workload's closure lives in one flat buffer; built once, used by every transform.

The closure of a workload holds all subsets of its tables. Its tables come in two groups: the *inner* ones, which lie
inside a larger table, by order, and after them the *outer* ones, which do not. Nearly all cells are in outer tables,
so a transform is one pass over those, and what happens among the inner ones hardly counts. Marginals and residuals of
a closure have the same shapes; a buffer of length ``layout.cells`` holds either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from margrave.algebra import lattice
from margrave.algebra.kernels import Floats, Index, Integers
from margrave.algebra.lattice import AttributeSet
from margrave.errors import MeasurementError, MemoryLimitError

# The bookkeeping of more subsets would take gigabytes before the first cell is stored.
_MOST_SUBSETS = 2**27
# Places are kept as 64-bit integers and checked as floating-point numbers; 2⁵⁰ cells are 9 petabytes.
_MOST_CELLS = 2**50


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
        groups = lattice.by_size(sets)
        # A size that no float or 64-bit integer holds is beyond what can be addressed, and must not end in overflow.
        capped = [min(size, _MOST_CELLS + 1) for size in sizes]
        _check_counts(np.array(capped, dtype=np.float64), groups)
        levels = lattice.closure_levels(groups, most=most_tables)
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


def _rank_inner_first(levels: Sequence[lattice.Level]) -> tuple[Integers, tuple[int, ...]]:
    """Return the place of each set of the closure, canonical order, inner ones first; and where levels begin."""
    covered = lattice.covered_rows(levels)
    counts = [int(mask.sum()) for mask in covered]
    starts = (0, *np.cumsum(counts).tolist())
    inner = np.concatenate(covered)
    rank = np.empty(len(inner), dtype=np.int64)
    rank[inner] = np.arange(starts[-1])
    rank[~inner] = np.arange(starts[-1], len(inner))
    return rank, starts


def _index(sizes: Integers, levels: Sequence[lattice.Level], rank: Integers) -> tuple[Index, int]:
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
