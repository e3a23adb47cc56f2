r"""Any table of a graphical model, from the tables of the cliques of its junction tree.

A junction tree with tables p_C on its cliques C, which agree on the separators S = C ∩ parent(C), stands for

    p = Π_C p_C / Π_S p_S.                                                                                          (1)

For the table of a few attributes only the smallest subtree that holds them matters; p_C/p_S of every clique outside
sums to one. What is left is multiplied from the leaves up, where

    Σ p_C / p_S    over what is in no other clique and not wanted

comes first, so that an attribute is gone as soon as it can be. mbi answers such questions by programs that are compiled
for each table, which for thousands of tables takes longer than the fit.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from margrave.algebra.kernels import Floats

Names = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Factor:
    """A table with the names of its axes."""

    names: Names
    values: Floats

    def sum_to(self, kept: Collection[str]) -> Factor:
        """Return the table of those of its attributes that are kept."""
        gone = tuple(axis for axis, name in enumerate(self.names) if name not in kept)
        return Factor(tuple(name for name in self.names if name in kept), self.values.sum(axis=gone))

    def given(self, condition: Collection[str]) -> Factor:
        """Return the table conditional on some of its attributes: zero where these never occur."""
        gone = tuple(axis for axis, name in enumerate(self.names) if name not in condition)
        among = np.broadcast_to(self.values.sum(axis=gone, keepdims=True), self.values.shape)
        return Factor(self.names, np.divide(self.values, among, out=np.zeros_like(self.values), where=among > 0))

    def axes(self, *groups: Names) -> Floats:
        """Return the values with one axis for each group of names, which together are its attributes."""
        sizes = dict(zip(self.names, self.values.shape, strict=True))
        order = [self.names.index(name) for group in groups for name in group]
        return self.values.transpose(order).reshape([math.prod(sizes[name] for name in group) for group in groups])


@dataclass(frozen=True, eq=False)
class CliqueTree:
    """A junction tree, or several that share nothing.

    Attributes
    ----------
    tables
        The tables of the cliques, which sum to one and agree on what they share.
    parents
        The place of each clique's parent, which comes before it; None for a root.
    """

    tables: tuple[Factor, ...]
    parents: tuple[int | None, ...]

    def table(self, wanted: Names) -> Floats:
        """Return the table of some attributes, with axes in their order, by (1)."""
        kept = self._subtree(wanted)
        # What each clique shares with its parent, as long as the two have not been multiplied.
        joints = {
            (place, parent): frozenset(self.tables[place].names).intersection(self.tables[parent].names)
            for place in kept
            if (parent := self.parents[place]) is not None and parent in kept
        }

        def needed(place: int) -> set[str]:
            return set(wanted).union(*(shared for joint, shared in joints.items() if place in joint))

        left = {place: self.tables[place].sum_to(needed(place)) for place in kept}
        left.update({place: left[place].given(shared) for (place, _), shared in joints.items()})
        # Children come after their parents.
        for place, parent in sorted(joints, reverse=True):
            del joints[place, parent]
            left[parent] = multiply(left[parent], left.pop(place), needed(parent))
        found = reduce(lambda one, other: multiply(one, other, wanted), left.values())
        return found.values.transpose([found.names.index(name) for name in wanted])

    @cached_property
    def _neighbours(self) -> tuple[frozenset[int], ...]:
        """The places next to each clique."""
        found: list[set[int]] = [set() for _ in self.tables]
        for place, parent in enumerate(self.parents):
            if parent is not None:
                found[place].add(parent)
                found[parent].add(place)
        return tuple(map(frozenset, found))

    def _subtree(self, wanted: Names) -> set[int]:
        """Return the cliques that are left when those which sum to one have gone, from the leaves inwards."""
        kept = set(range(len(self.tables)))
        needed = [frozenset(table.names).intersection(wanted) for table in self.tables]
        waiting = sorted(kept)
        while waiting and len(kept) > 1:
            place = waiting.pop()
            around = self._neighbours[place] & kept
            # Idle: at most one neighbour is left, and nothing wanted that this has not.
            if (
                place in kept
                and len(around) <= 1
                and not needed[place].difference(*(needed[other] for other in around))
            ):
                kept.remove(place)
                waiting += around
        return kept


def multiply(left: Factor, right: Factor, kept: Collection[str]) -> Factor:
    """Return the product of two factors, summed to the attributes kept, as a product of matrices.

    Attributes of both that are kept number the matrices; attributes of both that are not are summed over by it.
    """
    left, right = left.sum_to({*kept, *right.names}), right.sum_to({*kept, *left.names})
    both = [name for name in left.names if name in right.names]
    numbered = tuple(name for name in both if name in kept)
    summed = tuple(name for name in both if name not in kept)
    rows = tuple(name for name in left.names if name not in both)
    columns = tuple(name for name in right.names if name not in both)
    sizes = dict(zip((*left.names, *right.names), (*left.values.shape, *right.values.shape), strict=True))
    product = left.axes(numbered, rows, summed) @ right.axes(numbered, summed, columns)
    names = (*numbered, *rows, *columns)
    return Factor(names, product.reshape([sizes[name] for name in names]))
