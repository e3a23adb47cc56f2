r"""AIM, the adaptive and iterative mechanism (McKenna, Mullins, Sheldon, Miklau, arXiv:2201.12677), from the paper.

All one-way tables are measured first. Then, round by round, a table r of the workload's closure is chosen by the
exponential mechanism with ε_t and measured with noise of variance σ_t², and a graphical model p is fitted to all that
was measured. With n_r cells and the weight w_r = Σ_s |r ∩ s| over the tables s of the workload, the score is

    q_r = w_r (‖μ_r − μ_r(p)‖₁ − √(2/π) σ_t n_r),        sensitivity max_r w_r for one row more or less.             (1)

A round costs ε_t²/8 + 1/(2σ_t²), at first (1−α)ρ/T + αρ/T with α = 0.9 and T = 16 rounds for every attribute. If the
chosen table moved by no more than its noise explains, ε is doubled and σ halved. When two rounds or less are left, one
takes the rest, so that exactly ρ is spent. Only tables with which the junction tree stays below (ρ used)/ρ of a bound
(80 MB as published) may be chosen.

Scores with Gumbel noise are looked at from the largest down, and the first table that is small enough is taken: that is
the exponential mechanism on the small ones, without computing the size of the model for all of them.

Not private as run here: the noise comes from a seeded generator, in floating point.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from experiments.graphical_models import Model, NoisyTable
from experiments.junction_trees import model_megabytes
from margrave.algebra.kernels import Floats

Names = tuple[str, ...]
TrueTables = Callable[[Names], Floats]

MEASURING_SHARE = 0.9
ROUNDS_PER_ATTRIBUTE = 16
PUBLISHED_MEGABYTES = 80.0
# Steps of one fit; they go on from the potentials of the fit before, and stop where the loss does not fall any more.
STEPS, TOLERANCE = 1000, 1e-4
LAST_STEPS, LAST_TOLERANCE = 2500, 1e-6


@dataclass(frozen=True, eq=False)
class Adapted:
    """What AIM found.

    Attributes
    ----------
    model
        The fitted model.
    rho
        What was spent.
    chosen
        The tables that were chosen, in order.
    megabytes
        The size of the model in the end.
    """

    model: Model
    rho: float
    chosen: tuple[Names, ...]
    megabytes: float


@dataclass(frozen=True)
class Round:
    """What a round spends: ε of the choice and the standard deviation σ of the measurement."""

    epsilon: float
    deviation: float

    @property
    def rho(self) -> float:
        """The cost of the round."""
        return self.epsilon**2 / 8 + 1 / (2 * self.deviation**2)

    def annealed(self) -> Round:
        """Return a round of four times the cost."""
        return Round(2 * self.epsilon, self.deviation / 2)

    @classmethod
    def of(cls, rho: float) -> Round:
        """Return the round that spends ρ, nine parts in ten on measuring."""
        return cls(math.sqrt(8 * (1 - MEASURING_SHARE) * rho), math.sqrt(1 / (2 * MEASURING_SHARE * rho)))


def closure(workload: Sequence[Names]) -> dict[Names, int]:
    """Return all non-empty subsets of the wanted tables with their weights w_r."""
    # |r ∩ s| counts the attributes of r that s has, so w_r is how often each of them is wanted.
    wanted = Counter(name for names in workload for name in names)
    parts = (part for names in workload for size in range(1, len(names) + 1) for part in combinations(names, size))
    return {part: sum(wanted[name] for name in part) for part in parts}


def aim(
    sizes: Mapping[str, int],
    workload: Sequence[Names],
    truth: TrueTables,
    *,
    rho: float,
    draw: np.random.Generator,
    max_megabytes: float = PUBLISHED_MEGABYTES,
    estimator: Callable[[Mapping[str, int]], Model] = Model,
) -> Adapted:
    """Return the model that AIM fits.

    Parameters
    ----------
    sizes
        The domain.
    workload
        The tables wanted, attributes in the order of the domain.
    truth
        Returns the true cells, flat, of any table of at most as many attributes.
    rho
        The budget of zCDP.
    draw
        What noise and choices are drawn from: seeded, so not private.
    max_megabytes
        The bound on the size of the model.
    estimator
        Returns an empty model of a domain, which fits what is added to it.
    """
    weights = closure(workload)
    model, chosen = estimator(sizes), list[Names]()

    def measure(names: Names, deviation: float) -> None:
        values = truth(names)
        model.add(NoisyTable(names, values + deviation * draw.standard_normal(len(values)), deviation**2))

    first = Round.of(rho / (ROUNDS_PER_ATTRIBUTE * len(sizes)))
    spent = 0.0
    for name in sizes:
        measure((name,), first.deviation)
        spent += 1 / (2 * first.deviation**2)
    model.fit(steps=STEPS, tolerance=TOLERANCE)
    now, last = first, False
    while not last:
        if rho - spent <= 2 * now.rho:
            now, last = Round.of(rho - spent), True
        spent = rho if last else spent + now.rho
        answers = tables_of(model, weights)
        names = choose(weights, answers, truth, now, draw, _fits(model, max_megabytes * spent / rho))
        measure(names, now.deviation)
        chosen.append(names)
        model.fit(steps=LAST_STEPS if last else STEPS, tolerance=LAST_TOLERANCE if last else TOLERANCE)
        moved = np.abs(model.tree.table(names).ravel() * model.total - answers[names]).sum()
        if moved <= math.sqrt(2 / math.pi) * now.deviation * len(answers[names]):
            now = now.annealed()
    return Adapted(model, spent, tuple(chosen), model_megabytes(sizes, model.measured))


def choose(
    weights: Mapping[Names, int],
    answers: Mapping[Names, Floats],
    truth: TrueTables,
    spent: Round,
    draw: np.random.Generator,
    fits: Callable[[Names], bool],
) -> Names:
    """Return a table by the exponential mechanism with the scores (1) on those that fit."""
    names = list(weights)
    bias = math.sqrt(2 / math.pi) * spent.deviation
    scores = np.array(
        [weights[one] * (np.abs(truth(one) - answers[one]).sum() - bias * len(answers[one])) for one in names]
    )
    noisy = spent.epsilon * scores / (2 * max(weights.values())) + draw.gumbel(size=len(scores))
    return next(names[place] for place in np.argsort(-noisy) if fits(names[place]))


def tables_of(model: Model, wanted: Sequence[Names] | Mapping[Names, int]) -> dict[Names, Floats]:
    """Return wanted tables of a model, flat."""
    tree = model.tree
    return {names: tree.table(names).ravel() * model.total for names in wanted}


def _fits(model: Model, megabytes: float) -> Callable[[Names], bool]:
    """Return whether the model stays below a size when a table is measured too; what it holds already always fits."""
    held = [set(factor.names) for factor in model.tree.tables]

    def fits(names: Names) -> bool:
        if any(set(names) <= clique for clique in held):
            return True
        return model_megabytes(model.sizes, [*model.measured, names]) <= megabytes

    return fits
