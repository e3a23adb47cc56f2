r"""Junction trees of graphical models: the cliques that a set of measured tables makes, and how many cells they have.

Attributes that were measured together are joined; attributes are then taken out one by one, and what is joined to the
one that goes is joined to each other. Which goes next is decided greedily: one with at most one neighbour, which joins
nothing new, else the one whose clique has the fewest cells. mbi goes by the cells alone, unless the graph is a tree.

The cells of all cliques, in units of 8 bytes, are the model size that AIM keeps below a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Names = tuple[str, ...]
_BYTES = 8
_MEGABYTE = 2**20


@dataclass(frozen=True)
class JunctionTree:
    """The cliques of a model, in the order of a tree.

    Attributes
    ----------
    cliques
        Sets of attributes, each in the order of the domain; no one holds another.
    parents
        The place of each clique's parent, which comes before it; None for a root.
    """

    cliques: tuple[Names, ...]
    parents: tuple[int | None, ...]

    def separator(self, place: int) -> Names:
        """Return what a clique shares with its parent; nothing for a root."""
        parent = self.parents[place]
        if parent is None:
            return ()
        return tuple(name for name in self.cliques[place] if name in self.cliques[parent])


def junction_tree(sizes: Mapping[str, int], measured: Iterable[Names]) -> JunctionTree:
    """Return a junction tree in which every measured set is part of a clique, and every attribute too."""
    names = list(sizes)
    cliques = [_members(names, clique) for clique in _cliques(sizes, measured)]
    # Prim's algorithm for the heaviest spanning tree by shared attributes, which is a junction tree.
    order, waiting = [0], set(range(1, len(cliques)))
    parents: list[int | None] = [None]
    best = {place: (len({*cliques[place]} & {*cliques[0]}), 0) for place in waiting}
    while waiting:
        place = max(waiting, key=lambda other: (best[other][0], -other))
        shared, parent = best.pop(place)
        waiting.remove(place)
        parents.append(parent if shared else None)
        order.append(place)
        for other in waiting:
            common = len({*cliques[place]} & {*cliques[other]})
            if common > best[other][0]:
                best[other] = (common, len(order) - 1)
    return JunctionTree(tuple(cliques[place] for place in order), tuple(parents))


def model_megabytes(sizes: Mapping[str, int], measured: Iterable[Names]) -> float:
    """Return the size of the model of some measured sets: 8 bytes a cell of its cliques, in units of 2²⁰ bytes."""
    names = list(sizes)
    cells = sum(math.prod(sizes[name] for name in _members(names, clique)) for clique in _cliques(sizes, measured))
    return cells * _BYTES / _MEGABYTE


def _members(names: list[str], clique: int) -> Names:
    """Return the attributes of a clique that is given by its bits."""
    return tuple(name for place, name in enumerate(names) if clique >> place & 1)


def _cliques(sizes: Mapping[str, int], measured: Iterable[Names]) -> list[int]:
    """Return the largest cliques of the triangulated graph, as bits."""
    places = {name: place for place, name in enumerate(sizes)}
    logs = [math.log2(size) for size in sizes.values()]
    joined = [1 << place for place in range(len(places))]
    for names in measured:
        together = sum(1 << places[name] for name in set(names))
        for name in names:
            joined[places[name]] |= together

    def cost(place: int) -> tuple[bool, float, int]:
        members = joined[place]
        total = sum(log for other, log in enumerate(logs) if members >> other & 1)
        return members.bit_count() > 2, total, place

    costs = {place: cost(place) for place in range(len(logs))}
    found: list[int] = []
    while costs:
        gone = min(costs, key=costs.__getitem__)
        del costs[gone]
        clique = joined[gone]
        if not any(clique | other == other for other in found):
            found.append(clique)
        rest = clique & ~(1 << gone)
        for place in [place for place in costs if rest >> place & 1]:
            joined[place] = (joined[place] | rest) & ~(1 << gone)
            costs[place] = cost(place)
    return found
