r"""First rows: a Bayesian network read off the tables of a release, and rows drawn from it attribute by attribute.

Each attribute hangs on the others of one table. They are found greedily: of all tables of which all attributes but one,
k, have their place already, the next is the one that says most about k, by the mutual information

    I(k; P) = H(k) + H(P) − H(P ∪ k),        P: the other attributes of the table,                                  (1)

as in PrivBayes (Zhang et al., SIGMOD 2014); here it costs nothing, because the tables are published. Every subset of a
table is a table too, so an attribute that no table ties to the others is drawn by itself. One that is in no table at
all has every value with the same chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from margrave.algebra.kernels import Floats, Integers
from margrave.algebra.layout import Layout
from margrave.algebra.threads import over_tables
from margrave.synthesis import kernels
from margrave.synthesis.kernels import Codes
from margrave.synthesis.made_up_draws import MadeUpDraws


@dataclass(frozen=True)
class Link:
    """How one attribute is drawn.

    Attributes
    ----------
    attribute
        Position of the attribute.
    table
        The table it is drawn from, given the other attributes of the table; None if it is in no table.
    """

    attribute: int
    table: int | None


def draw_rows(layout: Layout, marginals: Floats, rows: int, draws: MadeUpDraws) -> Codes:
    """Return rows drawn from the network of a release; shape (rows, attributes).

    Parameters
    ----------
    layout
        The closure of the release's tables.
    marginals
        Shape (layout.cells,); the tables.
    rows
        How many rows.
    draws
        Where the randomness comes from.
    """
    codes = np.zeros((rows, len(layout.sizes)), dtype=np.int32)
    for link in links(layout, marginals):
        size = layout.sizes[link.attribute]
        if link.table is None:
            conditional = fallback = np.ones((1, size))
            others: tuple[int, ...] = ()
        else:
            members = layout.sets[link.table]
            others = tuple(member for member in members if member != link.attribute)
            table = np.moveaxis(layout.view(marginals, link.table), members.index(link.attribute), -1)
            conditional = np.ascontiguousarray(np.maximum(table, 0.0).reshape(-1, size))
            fallback = np.maximum(layout.view(marginals, layout.places[(link.attribute,)]), 0.0)
        usual = fallback.reshape(size) if fallback.sum() > 0 else np.ones(size)
        context = np.zeros(rows, dtype=np.int64)
        for other in others:
            context = context * layout.sizes[other] + codes[:, other]
        shift = draws.uniform(len(conditional))
        kernels.draw_column(codes, link.attribute, context, conditional, usual, draws.order(rows), shift)
    return codes


def links(layout: Layout, marginals: Floats) -> Iterator[Link]:
    """Yield how each attribute is drawn, in an order in which what it hangs on comes first."""
    entropy = np.empty(len(layout.sets))
    offset = layout.index.offset
    over_tables(lambda a, b: kernels.entropies(marginals, offset, entropy, a, b), 0, len(entropy), offset)
    search = _Search(layout, entropy)
    left = dict.fromkeys(range(len(layout.sizes)))
    following = search.first()
    while left:
        del left[following]
        table = int(search.best_table[following])
        yield Link(following, table if table >= 0 else layout.places.get((following,)))
        search.place(following)
        if left:
            # The first of equals, so that the order does not hang on how a sum was rounded to the last bit.
            following = max(left, key=lambda attribute: round(float(search.best[attribute]), 9))


class _Search:
    """Which table says most about each attribute, given the attributes that have their place.

    Every table counts its attributes that have none yet. When one is left, the table is a candidate for it, once: all
    the work together is in proportion to the number of tables.
    """

    def __init__(self, layout: Layout, entropy: Floats) -> None:
        order, facet = layout.index.order, layout.index.facet
        tables = np.repeat(np.arange(len(order)), order)
        members = np.array([member for members in layout.sets for member in members], dtype=np.int64)
        axes = np.concatenate([np.arange(count) for count in order.tolist()]).astype(np.int64)
        by_member = np.argsort(members, kind="stable")
        self._start = np.searchsorted(members[by_member], np.arange(len(layout.sizes) + 1))
        self._tables, self._axes = tables[by_member], axes[by_member]
        self._entropy, self._facet = entropy, facet
        self._missing = order.copy()
        # The attributes and axes of a table that have no place yet, added up: where one is left, that is the one.
        self._member_sum = np.bincount(tables, members, len(order)).astype(np.int64)
        self._axis_sum = np.bincount(tables, axes, len(order)).astype(np.int64)
        self._single: Integers = np.array([layout.places.get((k,), -1) for k in range(len(layout.sizes))])
        self.best = np.zeros(len(layout.sizes))
        self.best_table = np.full(len(layout.sizes), -1)
        self._pairs = np.flatnonzero(order == 2)
        self._pair_members = np.array([layout.sets[pair] for pair in self._pairs.tolist()]).reshape(-1, 2)

    def first(self) -> int:
        """Return an attribute of the pair that says most, or the first of all where there is no pair."""
        if not len(self._pairs):
            return 0
        one, other = self._pair_members.T
        shared = self._entropy[self._single[one]] + self._entropy[self._single[other]] - self._entropy[self._pairs]
        return int(one[np.argmax(np.round(shared, 9))])

    def place(self, attribute: int) -> None:
        """Give an attribute its place: tables that lack one other attribute now say something about that one."""
        mine = slice(self._start[attribute], self._start[attribute + 1])
        tables = self._tables[mine]
        self._missing[tables] -= 1
        self._member_sum[tables] -= attribute
        self._axis_sum[tables] -= self._axes[mine]
        ready = tables[self._missing[tables] == 1]
        about = self._member_sum[ready]
        rest = self._facet[ready, self._axis_sum[ready]]
        shared = self._entropy[self._single[about]] + self._entropy[rest] - self._entropy[ready]
        # The largest for each attribute comes last, and the smaller table among equals.
        for place in np.lexsort((-ready, np.round(shared, 9))).tolist():
            if shared[place] > self.best[about[place]] + 1e-9:
                self.best[about[place]], self.best_table[about[place]] = shared[place], ready[place]
