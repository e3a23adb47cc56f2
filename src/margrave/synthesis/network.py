r"""First rows: a Bayesian network read off the tables of a release, and rows drawn from it attribute by attribute.

Each attribute depends on the others of one table. They are found greedily: of all tables of which all attributes but
one, k, have their place already, the next is the one that says most about k, by the mutual information

    I(k; P) = H(k) + H(P) − H(P ∪ k),        P: the other attributes of the table,                                  (1)

as in PrivBayes (Zhang et al., SIGMOD 2014); here it costs nothing, because the tables are published. Every subset of a
table is a table too, so an attribute that no table ties to the others is drawn by itself. One that is in no table at
all has every value with the same chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra.kernels import over_tables
from margrave.synthesis.fitting import compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from margrave.algebra.kernels import Floats, Integers
    from margrave.algebra.layout import Layout
    from margrave.synthesis.fitting import Codes
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
        draw_column(codes, link.attribute, context, conditional, usual, draws.order(rows), shift)
    return codes


def links(layout: Layout, marginals: Floats) -> Iterator[Link]:
    """Yield how each attribute is drawn, in an order in which what it depends on comes first."""
    entropy = np.empty(len(layout.sets))
    offset = layout.index.offset
    over_tables(lambda a, b: entropies(marginals, offset, entropy, a, b), 0, len(entropy), offset)
    search = _Search(layout, entropy)
    left = dict.fromkeys(range(len(layout.sizes)))
    following = search.first()
    while left:
        del left[following]
        table = int(search.best_table[following])
        yield Link(following, table if table >= 0 else layout.places.get((following,)))
        search.place(following)
        if left:
            # The first of equals, so that the order does not depend on how a sum was rounded to the last bit.
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


@compiled
def entropies(counts: Floats, offset: Integers, entropy: Floats, first: int, last: int) -> None:
    """Write the entropy of each of the tables first … last − 1, as shares of their sum; zero for an empty table."""
    for t in range(first, last):
        total, plain = 0.0, 0.0
        for c in range(offset[t], offset[t + 1]):
            if counts[c] > 0:
                total += counts[c]
                plain += counts[c] * np.log(counts[c])
        entropy[t] = np.log(total) - plain / total if total > 0 else 0.0


@compiled
def draw_column(
    codes: Codes,
    attribute: int,
    context: Integers,
    conditional: Floats,
    fallback: Floats,
    order: Integers,
    shift: Floats,
) -> None:
    """Give one attribute of all rows values in proportion to a conditional table, spread evenly over each context.

    Of the n rows of a context as many get value v as n · share_v, up to one (systematic sampling): rows drawn one by
    one would stray by the square root of it.

    Parameters
    ----------
    codes
        The rows; ``codes[:, attribute]`` is written.
    context
        Shape (rows,); which row of the conditional table each row follows.
    conditional
        Shape (contexts, size), not negative.
    fallback
        Shape (size,), not all zero; followed where a context is empty in the table.
    order
        Shape (rows,); a random order of the rows, so that values go to any rows of a context.
    shift
        Shape (contexts,); where in 0 … 1 the spread of each context begins.
    """
    contexts, size = conditional.shape
    start = np.zeros(contexts + 1, dtype=np.int64)
    for i in range(len(context)):
        start[context[i] + 1] += 1
    for c in range(contexts):
        start[c + 1] += start[c]
    within = np.empty(len(context), dtype=np.int64)
    filled = start[:-1].copy()
    for i in order:
        c = context[i]
        within[filled[c]] = i
        filled[c] += 1
    for c in range(contexts):
        count = start[c + 1] - start[c]
        if count == 0:
            continue
        total = 0.0
        for v in range(size):
            total += conditional[c, v]
        shares = conditional[c] if total > 0 else fallback
        if total <= 0:
            total = fallback.sum()
        done, reached = 0, 0.0
        for v in range(size):
            reached += shares[v]
            until = count if v == size - 1 else int(np.floor(reached / total * count + shift[c]))
            while done < min(until, count):
                codes[within[start[c] + done], attribute] = v
                done += 1
        # Rounding may leave the last rows to a value that has no share; they take the last value that has one.
        if shares[size - 1] <= 0:
            last = size - 1
            while last > 0 and shares[last] <= 0:
                last -= 1
            for i in range(start[c], start[c + 1]):
                if codes[within[i], attribute] == size - 1 and last != size - 1:
                    codes[within[i], attribute] = last
