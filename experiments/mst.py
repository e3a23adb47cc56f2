r"""MST, a maximum spanning tree of pairs (McKenna, Miklau, Sheldon, arXiv:2108.04978), from the paper.

A third of ρ is for all one-way tables. Values whose noisy count is below three standard deviations are merged into one.
A third is for choosing a tree of pairs, edge by edge: among the pairs that join two parts which are not joined yet, the
exponential mechanism takes one by how far the pair is from the model of the one-way tables,

    q_ij = ‖μ_ij − μ_ij(p)‖₁,    sensitivity 1 for one row more or less,    ε = √(8 ρ/3 / (d − 1)) for each edge.    (1)

A third is for measuring the chosen pairs, all with the same noise. The graphical model of all that was measured
answers; what a merged value counts is spread evenly over the values that it stands for.

Not private as run here: the noise comes from a seeded generator, in floating point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from experiments.graphical_models import Model, NoisyTable
from margrave.algebra.kernels import Floats

Names = tuple[str, ...]
TrueTables = Callable[[Names], Floats]

# Noisy counts below so many standard deviations are merged.
MERGE_BELOW = 3.0
STEPS, TOLERANCE = 5000, 1e-7


@dataclass(frozen=True, eq=False)
class Spanned:
    """What MST found.

    Attributes
    ----------
    model
        The model over the merged values.
    spread
        For each attribute, shape (values, merged values): how much of a merged value's count each value gets.
    rho
        What was spent.
    chosen
        The pairs of the tree, in the order in which they were chosen.
    """

    model: Model
    spread: Mapping[str, Floats]
    rho: float
    chosen: tuple[Names, ...]

    def table(self, names: Names) -> Floats:
        """Return a table over the values of the domain, with axes in the order of the names."""
        found = self.model.tree.table(names) * self.model.total
        for axis, name in enumerate(names):
            found = np.moveaxis(np.tensordot(self.spread[name], found, axes=(1, axis)), 0, axis)
        return found


def mst(sizes: Mapping[str, int], truth: TrueTables, *, rho: float, draw: np.random.Generator) -> Spanned:
    """Return the model that MST fits.

    Parameters
    ----------
    sizes
        The domain.
    truth
        Returns the true cells, flat, of any table of one or two attributes.
    rho
        The budget of zCDP.
    draw
        What noise and choices are drawn from: seeded, so not private.
    """
    names = list(sizes)
    part = rho / 3
    deviation = math.sqrt(len(names) / (2 * part))
    noisy = {name: truth((name,)) + deviation * draw.standard_normal(sizes[name]) for name in names}
    merged = {name: merge(values, deviation) for name, values in noisy.items()}
    spread = {name: place / place.sum(axis=0) for name, place in merged.items()}
    model = Model({name: place.shape[1] for name, place in merged.items()})
    for name, values in noisy.items():
        # A merged count has the noise of all that it stands for.
        variance = deviation**2 * merged[name].sum(axis=0)
        model.add(NoisyTable((name,), merged[name].T @ values, variance))
    model.fit(steps=STEPS, tolerance=TOLERANCE)

    def true_pair(pair: Names) -> Floats:
        table = truth(pair).reshape([sizes[name] for name in pair])
        return np.asarray(merged[pair[0]].T @ table @ merged[pair[1]])

    chosen = tree_of_pairs(model, true_pair, rho=part, draw=draw)
    deviation = math.sqrt(len(chosen) / (2 * part))
    for pair in chosen:
        table = true_pair(pair)
        model.add(NoisyTable(pair, (table + deviation * draw.standard_normal(table.shape)).ravel(), deviation**2))
    model.fit(steps=STEPS, tolerance=TOLERANCE)
    return Spanned(model, spread, 3 * part, chosen)


def merge(noisy: Floats, deviation: float) -> Floats:
    """Return, shape (values, merged values), to which merged value each value belongs: rare ones share the last."""
    common = noisy >= MERGE_BELOW * deviation
    if common.sum() >= len(noisy) - 1:
        return np.eye(len(noisy))
    place = np.where(common, np.cumsum(common) - 1, common.sum())
    return np.asarray(np.eye(int(common.sum()) + 1)[place])


def tree_of_pairs(
    model: Model, true_pair: Callable[[Names], Floats], *, rho: float, draw: np.random.Generator
) -> tuple[Names, ...]:
    """Return the edges of a spanning tree, chosen one by one with the scores (1)."""
    names = list(model.sizes)
    epsilon = math.sqrt(8 * rho / (len(names) - 1))
    tree = model.tree
    scores = {
        pair: float(np.abs(true_pair(pair) - tree.table(pair) * model.total).sum()) for pair in combinations(names, 2)
    }
    part = {name: place for place, name in enumerate(names)}
    chosen: list[Names] = []
    while len(chosen) < len(names) - 1:
        open_pairs = [pair for pair in scores if part[pair[0]] != part[pair[1]]]
        noisy = np.array([epsilon * scores[pair] / 2 for pair in open_pairs]) + draw.gumbel(size=len(open_pairs))
        one, other = open_pairs[int(np.argmax(noisy))]
        chosen.append((one, other))
        part = {name: part[one] if place == part[other] else place for name, place in part.items()}
    return tuple(chosen)
