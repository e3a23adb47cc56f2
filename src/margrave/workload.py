"""Workloads: which cross-tabulations are wanted, and how much each of them matters.

A workload is a family of attribute sets over one domain; every set asks for the marginal on its attributes,
the empty set for the total. The sets stand in canonical order: by number of attributes, then in domain order.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.layout import AttributeSet, canonical, closure, maximal
from margrave.domain.values import table_label
from margrave.errors import DomainError, PlanError, expected
from margrave.escaping import html_table
from margrave.memory import require_memory

if TYPE_CHECKING:
    from margrave.domain.domain import Domain

Names = tuple[str, ...]
Weights = Mapping[Iterable[str], float] | Iterable[float]

# A workload of more tables than this could not be listed in the memory of a laptop, let alone counted.
_MOST_TABLES = 10_000_000


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Workload:
    """The marginals that a user wants, with their weights.

    Parameters
    ----------
    domain
        The domain whose attributes the sets name.
    sets
        Collections of attribute names; the order of names does not matter, and ``()`` is the total.
    weights
        How much each table matters: None for 1 each, a list as long as ``sets``, or a mapping that gives
        every set its weight; positive and finite. A set that is named twice keeps the largest of its weights,
        because to ask twice does not make a table twice as important.

    Attributes
    ----------
    positions
        The sets as ascending tuples of domain positions, in canonical order.
    weights
        Shape (count,), read-only; the weight of each set in canonical order.
    """

    domain: Domain
    positions: tuple[AttributeSet, ...]
    weights: NDArray[np.float64]

    def __init__(self, domain: Domain, sets: Iterable[Iterable[str]], *, weights: Weights | None = None) -> None:
        if isinstance(sets, str | Mapping):
            raise PlanError(
                f"the sets of a workload must be a list of collections of names, got {sets!r}",
                remedy="write [('age', 'sex')] for one table, and give weights as weights=…",
            )
        given = [_distinct_positions(domain, names) for names in sets]
        _assemble(self, domain, _largest_weights(given, _listed_weights(domain, given, weights)))

    @classmethod
    def all_kway(cls, domain: Domain, k: int) -> Workload:
        """Return the workload of all sets of ``k`` attributes, from 0 to all of them, with weight 1."""
        return cls._of_orders(domain, k, k)

    @classmethod
    def up_to(cls, domain: Domain, k: int) -> Workload:
        """Return the workload of all sets of 0 to ``k`` attributes, the total included, with weight 1."""
        return cls._of_orders(domain, 0, k)

    @classmethod
    def _of_orders(cls, domain: Domain, fewest: int, most: int) -> Workload:
        """Return the workload of all sets of ``fewest`` to ``most`` attributes."""
        if not _is_whole(most) or not 0 <= most <= len(domain):
            raise PlanError(
                f"k is {most!r}", remedy=f"give a whole number from 0 to {len(domain)}, the attributes there are"
            )
        orders = range(fewest, most + 1)
        count = sum(math.comb(len(domain), order) for order in orders)
        if count > _MOST_TABLES:
            raise PlanError(
                f"k = {most} makes {count:,} tables, the most is {_MOST_TABLES:,}", remedy="choose a smaller k"
            )
        # Combinations of ascending positions come in canonical order: nothing to sort.
        sets = chain.from_iterable(combinations(range(len(domain)), order) for order in orders)
        return _assemble(cls.__new__(cls), domain, dict.fromkeys(sets, 1.0))

    def filter(self, *, max_cells: int) -> Workload:
        """Return the workload without the tables that have more than ``max_cells`` cells."""
        if not _is_whole(max_cells) or max_cells < 1:
            raise PlanError(f"max_cells is {max_cells!r}", remedy="give a whole number of at least 1")
        table = zip(self.positions, self.weights.tolist(), self._cells_of_each, strict=True)
        kept = {members: weight for members, weight, cells in table if cells <= max_cells}
        if not kept:
            smallest = min(self._cells_of_each)
            raise PlanError(
                f"no table has at most {max_cells:,} cells", remedy=f"the smallest has {smallest:,}: allow more"
            )
        return _assemble(Workload.__new__(Workload), self.domain, kept)

    def weighted(self, weights: Mapping[Names, float]) -> Workload:
        """Return the workload with these weights for the tables named; a table that it does not have is added.

        Parameters
        ----------
        weights
            Weights by table, as in ``{("income",): 20, ("age", "sex"): 5}``; positive and finite. The other tables keep
            theirs, which is 1 unless they were given another.
        """
        if not isinstance(weights, Mapping):
            raise PlanError(f"weights must be a mapping, got {weights!r}", remedy="give {('age', 'sex'): 5}")
        named = {_distinct_positions(self.domain, names): _weight(weight) for names, weight in weights.items()}
        merged = {**dict(zip(self.positions, self.weights.tolist(), strict=True)), **named}
        return _assemble(Workload.__new__(Workload), self.domain, {one: merged[one] for one in canonical(merged)})

    def graded(self) -> Workload:
        """Return the workload in which a table counts four times as much as one with an attribute more.

        Small tables are what most people read. With equal weights they are planned as parts of the large ones, which
        are many: the total has little weight. Four is the weight that asks for half the standard error.
        """
        most = len(self.positions[-1])
        grades = np.fromiter((4.0 ** (most - len(members)) for members in self.positions), np.float64, len(self))
        merged = dict(zip(self.positions, (self.weights * grades).tolist(), strict=True))
        return _assemble(Workload.__new__(Workload), self.domain, merged)

    def union(self, other: Workload) -> Workload:
        """Return the tables of both workloads; a set in both keeps the larger weight."""
        if self.domain != other.domain:
            raise PlanError(
                f"the workloads are over different domains, {self.domain!r} and {other.domain!r}",
                remedy="make both over one (labels and descriptions count too)",
            )
        weights = [*self.weights.tolist(), *other.weights.tolist()]
        merged = _largest_weights([*self.positions, *other.positions], weights)
        return _assemble(Workload.__new__(Workload), self.domain, merged)

    def __or__(self, other: object) -> Workload:
        return self.union(other) if isinstance(other, Workload) else NotImplemented

    @cached_property
    def sets(self) -> tuple[Names, ...]:
        """The sets as tuples of names in domain order, in canonical order."""
        return self._named(self.positions)

    @cached_property
    def closure(self) -> tuple[Names, ...]:
        """All subsets of the sets, in canonical order: the residuals that the tables are made of."""
        return self._named(closure(self.positions))

    @cached_property
    def maximal(self) -> tuple[Names, ...]:
        """The sets that no other set contains, in canonical order: all other tables are sums of theirs."""
        return self._named(maximal(self.positions))

    @cached_property
    def cells(self) -> int:
        """The number of cells of all tables together."""
        return sum(self._cells_of_each)

    @property
    def bytes(self) -> int:
        """The memory that all tables take as 64-bit numbers."""
        return 8 * self.cells

    def largest(self, count: int = 5) -> tuple[Names, ...]:
        """Return the ``count`` sets with the most cells, largest first, equal ones in canonical order."""
        if not _is_whole(count) or count < 1:
            raise PlanError(f"count is {count!r}", remedy="give a whole number of at least 1")
        ranked = heapq.nlargest(count, range(len(self)), key=self._cells_of_each.__getitem__)
        return tuple(self.sets[index] for index in ranked)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the tables, by name, and of their weights."""
        tables = [[list(names), weight] for names, weight in zip(self.sets, self.weights.tolist(), strict=True)]
        return hashlib.sha256(json.dumps(tables).encode()).hexdigest()

    def require_memory(self, arrays: float, purpose: str, *, beside: int = 0, first: str = "") -> None:
        """Raise `MemoryLimitError`, before anything is allocated, if the machine cannot hold this many copies.

        Parameters
        ----------
        arrays
            How many arrays of the size of all tables together the work holds at once.
        purpose
            What they are for, as in "reconstruction of 364 tables".
        beside
            Bytes that will be held in addition by then, and are not held yet.
        first
            What to try before anything else, for the message.
        """
        named = [(table_label(names, total="total"), 8 * self.domain.cells(names)) for names in self.largest(3)]
        advice = "leave these out (Workload.filter), ask for fewer attributes a table, or use a larger machine"
        advice = f"{first}, or {advice}" if first else advice
        require_memory(math.ceil(arrays * self.bytes) + beside, purpose, named, advice=advice)

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[Names]:
        return iter(self.sets)

    def __contains__(self, names: object) -> bool:
        try:
            return isinstance(names, Iterable) and _set_positions(self.domain, names) in self._lookup
        except DomainError:  # what the domain does not know is in no workload
            return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Workload):
            return NotImplemented
        same_tables = self.domain == other.domain and self.positions == other.positions
        return same_tables and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash((self.domain, self.positions, self.weights.tobytes()))

    @property
    def description(self) -> str:
        """How many tables there are, of how many attributes, with how many cells, in words."""
        fewest, most = len(self.positions[0]), len(self.positions[-1])
        orders = f"{most}" if fewest == most else f"{fewest} to {most}"
        noun = "attribute" if orders == "1" else "attributes"
        tables, cells = _counted(len(self), "table"), _counted(self.cells, "cell")
        return f"{tables} of {orders} {noun}, {cells}"

    def __repr__(self) -> str:
        return f"Workload({self.description})"

    def _repr_html_(self) -> str:
        orders = sorted({len(members) for members in self.positions})
        rows = []
        for order in orders:
            of_order = [place for place, members in enumerate(self.positions) if len(members) == order]
            cells = sum(self._cells_of_each[place] for place in of_order)
            first = table_label(self.sets[of_order[0]], total="total")
            rows.append((f"{order}", f"{len(of_order):,}", f"{cells:,}", first))
        return html_table(repr(self), ("attributes", "tables", "cells", "such as"), rows)

    @cached_property
    def _cells_of_each(self) -> tuple[int, ...]:
        # In Python's integers, which do not overflow: thirty attributes of ten values make 10³⁰ cells.
        size_of = self.domain.shape.__getitem__
        return tuple(math.prod(map(size_of, members)) for members in self.positions)

    @cached_property
    def _lookup(self) -> frozenset[AttributeSet]:
        return frozenset(self.positions)

    def _named(self, sets: Sequence[AttributeSet]) -> tuple[Names, ...]:
        name_of = self.domain.attributes.__getitem__
        return tuple(tuple(map(name_of, members)) for members in sets)


def _assemble(blank: Workload, domain: Domain, weight_of: Mapping[AttributeSet, float]) -> Workload:
    """Fill a blank workload with sets that are in canonical order, and their weights."""
    if not weight_of:
        raise PlanError(
            "the workload names no table", remedy="give at least one set of attributes, or () for the total"
        )
    weights = np.fromiter(weight_of.values(), dtype=np.float64, count=len(weight_of))
    weights.setflags(write=False)
    object.__setattr__(blank, "domain", domain)
    object.__setattr__(blank, "positions", tuple(weight_of))
    object.__setattr__(blank, "weights", weights)
    return blank


def _largest_weights(sets: Sequence[AttributeSet], weights: Sequence[float]) -> dict[AttributeSet, float]:
    """Return the distinct sets in canonical order, each with the largest of its weights."""
    largest: dict[AttributeSet, float] = {}
    for members, weight in zip(sets, weights, strict=True):
        largest[members] = max(weight, largest.get(members, weight))
    return {members: largest[members] for members in canonical(largest)}


def _set_positions(domain: Domain, names: Iterable[str]) -> AttributeSet:
    """Return the positions of one set; refuse a text before its letters are read as names."""
    if isinstance(names, str):
        raise PlanError(
            f"a table is a collection of attribute names, got the text {names!r}",
            remedy=f"write ({names!r},) for the table of one attribute",
        )
    return domain.positions(names)


def _distinct_positions(domain: Domain, names: Iterable[str]) -> AttributeSet:
    """Return the positions of one set that is asked for; refuse one that names an attribute twice."""
    # A text, and what is not a list of names, is refused by the others.
    given = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else names
    positions = _set_positions(domain, given)
    if len(positions) != len(tuple(given)):
        raise PlanError(f"the table {' × '.join(given)} names an attribute twice", remedy="name each once")
    return positions


def _listed_weights(domain: Domain, given: Sequence[AttributeSet], weights: Weights | None) -> list[float]:
    """Return one weight for each of the given sets."""
    if weights is None:
        return [1.0] * len(given)
    if isinstance(weights, Mapping):
        return _mapped_weights(domain, given, weights)
    # A text and a set have no order of numbers to go by.
    if not isinstance(weights, Iterable) or isinstance(weights, str | set | frozenset):
        raise PlanError(f"weights must be a list or a mapping, got {weights!r}", remedy="give one number for each set")
    listed = [_weight(weight) for weight in weights]
    if len(listed) != len(given):
        raise PlanError(f"{len(listed)} weights for {len(given)} sets", remedy="give one number for each set")
    return listed


def _mapped_weights(
    domain: Domain, given: Sequence[AttributeSet], weights: Mapping[Iterable[str], float]
) -> list[float]:
    """Return the weight of each of the given sets from a mapping that names all of them and no other."""
    named = [_distinct_positions(domain, names) for names in weights]
    weight_of = _largest_weights(named, [_weight(weight) for weight in weights.values()])
    wanted = set(given)
    for members in weight_of:
        if members not in wanted:
            raise PlanError(
                f"a weight for {domain.names(members)}, which the workload does not name", remedy="leave it out"
            )
    for members in given:
        if members not in weight_of:
            raise PlanError(f"no weight for {domain.names(members)}", remedy="give one for every set")
    return [weight_of[members] for members in given]


def _weight(weight: object) -> float:
    """Return the weight as a float if it is a positive finite number."""
    try:
        value = math.nan if isinstance(weight, bool) or not isinstance(weight, Real) else float(weight)
    except OverflowError:  # a whole number too large for a float
        value = math.inf
    if not 0 < value < math.inf:
        raise PlanError(f"a weight is {weight!r}", remedy="give a positive finite number")
    return value


def _is_whole(value: object) -> bool:
    """Tell whether the value is an integer, which True is not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _counted(count: int, noun: str) -> str:
    """Return ``1 table`` or ``1,234 tables``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def require_workload(value: object) -> Workload:
    """Return a workload; refuse anything else. What it holds is not shown: it may be the private table."""
    if not isinstance(value, Workload):
        raise PlanError(expected("a Workload", value), remedy="make one, as in Workload.all_kway(domain, 3)")
    return value
