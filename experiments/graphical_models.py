r"""Private-PGM by mirror descent, with the steps of mbi 2.0 and without a compiler.

A model of maximum entropy is fitted to noisy tables y_M with standard deviations σ_M (arXiv:1901.09136, Algorithm 1):

    minimise  L(μ) = ½ Σ_M ‖μ_M − y_M‖² / σ_M²        over the tables μ of distributions of N rows.                  (1)

With potentials θ, which stand for p ∝ exp Σ_M θ_M, a step is θ_M ← θ_M − α g_M with the gradient
g_M = (μ_M − y_M)/σ_M². It is taken if

    L(μ) − L(μ′) ≥ ½ α Σ_M ⟨g_M, μ_M − μ′_M⟩,                                                                       (2)

and then α grows by 1 %; otherwise α is halved. α begins at 2/(λN), with λ the Lipschitz constant of the gradient. These
are the steps of ``mbi.estimation.MirrorDescent``; tests/experiments compare the two. mbi compiles programs for every
new set of cliques, and AIM fits dozens of such models in a run: for 69 tables of 30 attributes they take 14 s of
processor time to compile, and 2 ms a step to run. Here a junction tree holds the calibrated tables p_C and a step
multiplies them:

    ψ_C = p_C Π_{M→C} exp(−α g_M),    to the parent  s = Σ ψ_C over all but S,  m = s/p_S,  ψ_parent ← ψ_parent m    (3)
    from the root down  p_C ← ψ_C · p′_S / s                                                                         (4)

so that nothing is raised to a power but the small tables g_M.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numba
import numpy as np
from numpy.typing import NDArray

from experiments.clique_trees import CliqueTree, Factor
from experiments.junction_trees import JunctionTree, junction_tree
from margrave.algebra.kernels import Floats

Names = tuple[str, ...]
Places = NDArray[np.int32]

# As mbi looks at the loss.
_LOOK_EVERY = 50
_PATIENCE = 2


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """A measured table.

    Attributes
    ----------
    names
        Its attributes, in the order of the domain.
    values
        Its noisy cells, flat.
    variance
        The variance of the noise of its cells: one number, or one for each cell.
    """

    names: Names
    values: Floats
    variance: float | Floats


@dataclass(eq=False)
class Model:
    """A graphical model of noisy tables, which can be given more of them.

    Attributes
    ----------
    sizes
        The number of values of each attribute.
    total
        The number of rows N, as estimated.
    measured
        What was measured: each set of attributes once, repeats combined by their precision.
    potentials
        θ_M.
    """

    sizes: Mapping[str, int]
    measured: dict[Names, NoisyTable] = field(default_factory=dict)
    potentials: dict[Names, Floats] = field(default_factory=dict)
    total: float = 1.0
    _state: _Calibrated | None = None

    def add(self, table: NoisyTable) -> None:
        """Add a noisy table; one of the same attributes is combined with it, the same least squares (1)."""
        known = self.measured.get(table.names)
        if known is not None:
            share = known.variance / (known.variance + table.variance)
            values = (1 - share) * known.values + share * table.values
            table = NoisyTable(table.names, values, 1 / (1 / known.variance + 1 / table.variance))
        self.measured[table.names] = table
        self.potentials.setdefault(table.names, np.zeros(len(table.values)))

    def fit(self, *, steps: int, tolerance: float | None = None) -> None:
        """Take up to so many steps from where the potentials are.

        Parameters
        ----------
        steps
            The most steps.
        tolerance
            Stop when the loss falls by no more than this share of itself in 50 steps, twice in a row.
        """
        self.total = estimated_total(list(self.measured.values()))
        self._state = state = _Calibrated.of(self)
        alpha = 2 / (self._lipschitz() * self.total)
        previous, stalls = math.inf, 0
        for step in range(steps):
            alpha = state.step(alpha)
            if tolerance is not None and step % _LOOK_EVERY == _LOOK_EVERY - 1:
                stalled = previous - state.loss <= tolerance * max(abs(state.loss), 1.0)
                stalls, previous = (stalls + 1 if stalled else 0), state.loss
                if stalls >= _PATIENCE:
                    break
        for names, change in state.changes.items():
            self.potentials[names] = self.potentials[names] + change

    @property
    def loss(self) -> float:
        """L after the last fit."""
        return self._fitted.loss

    @property
    def tree(self) -> CliqueTree:
        """The tables of the cliques, which sum to one."""
        state = self._fitted
        factors = [
            Factor(names, (table / table.sum()).reshape([self.sizes[name] for name in names]))
            for names, table in zip(state.tree.cliques, state.tables, strict=True)
        ]
        return CliqueTree(tuple(factors), state.tree.parents)

    @property
    def _fitted(self) -> _Calibrated:
        if self._state is None:
            raise ValueError("the model has not been fitted; call fit first")
        return self._state

    def _lipschitz(self) -> float:
        """Return λ: for each largest measured set, Σ over what is measured in it of (its cells over theirs)/σ²."""
        sets = [set(names) for names in self.measured]
        largest = [names for names in self.measured if not any(set(names) < other for other in sets)]
        found = dict.fromkeys(largest, 0.0)
        for names, table in self.measured.items():
            holder = min((one for one in largest if set(names) <= set(one)), key=self._cells)
            found[holder] += self._cells(holder) / self._cells(names) / float(np.min(table.variance))
        return max(found.values())

    def _cells(self, names: Names) -> int:
        return math.prod(self.sizes[name] for name in names)


def estimated_total(measured: Sequence[NoisyTable]) -> float:
    """Return the number of rows, the mean of the sums of all tables weighted by their precision; at least one."""
    weights = np.array([1 / np.broadcast_to(table.variance, table.values.shape).sum() for table in measured])
    return max(1.0, float(np.dot(weights, [table.values.sum() for table in measured]) / weights.sum()))


@dataclass(eq=False)
class _Calibrated:
    """The calibrated tables of a junction tree, and the steps."""

    tree: JunctionTree
    total: float
    measured: list[NoisyTable]
    # For each measured table the clique that it is taken from, and to which of its cells each of the clique's belongs.
    homes: list[int]
    inside: list[Places]
    # The same for what each clique shares with its parent, seen from the clique and from the parent.
    below: list[Places]
    above: list[Places]
    tables: list[Floats]
    separators: list[Floats]
    answers: list[Floats] = field(default_factory=list)
    loss: float = math.inf
    changes: dict[Names, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model) -> _Calibrated:
        """Return the distribution that the potentials of a model stand for."""
        sizes, measured = model.sizes, list(model.measured.values())
        tree = junction_tree(sizes, model.measured)
        cells = [math.prod(sizes[name] for name in names) for names in tree.cliques]
        homes = [
            min(
                (place for place, names in enumerate(tree.cliques) if set(table.names) <= set(names)),
                key=cells.__getitem__,
            )
            for table in measured
        ]
        inside = [
            cells_within(sizes, tree.cliques[home], table.names) for home, table in zip(homes, measured, strict=True)
        ]
        places = range(len(tree.cliques))
        below = [cells_within(sizes, tree.cliques[place], tree.separator(place)) for place in places]
        above = [cells_within(sizes, tree.cliques[tree.parents[place] or 0], tree.separator(place)) for place in places]
        logs = [np.zeros(count) for count in cells]
        for table, home, within in zip(measured, homes, inside, strict=True):
            logs[home] += model.potentials[table.names][within]
        new = cls(tree, model.total, measured, homes, inside, below, above, [], [])
        new._calibrate(logs)
        new.changes = {table.names: np.zeros(len(table.values)) for table in measured}
        new.answers = new._answers(new.tables)
        new.loss = new._loss(new.answers)
        return new

    def _calibrate(self, logs: list[Floats]) -> None:
        """Set the tables from potentials of the cliques, in logarithms: once a fit, from wherever they are."""
        parents, places = self.tree.parents, range(len(logs))
        counts = [int(self.below[place].max()) + 1 for place in places]
        messages: list[Floats] = [np.empty(0)] * len(logs)
        for place in reversed(places):
            parent = parents[place]
            if parent is not None:
                messages[place] = _log_sums(logs[place], self.below[place], counts[place])
                logs[parent] += messages[place][self.above[place]]
        self.tables, self.separators = [], []
        for place in places:
            parent = parents[place]
            if parent is None:
                table = np.exp(logs[place] - logs[place].max())
                self.separators.append(np.array([self.total]))
                self.tables.append(table * (self.total / table.sum()))
                continue
            shared = sums(self.tables[parent], self.above[place], counts[place])
            with np.errstate(divide="ignore"):
                shift = np.log(shared) - messages[place]
            self.separators.append(shared)
            self.tables.append(np.exp(logs[place] + shift[self.below[place]]))

    def step(self, alpha: float) -> float:
        """Take a step, or not; return the next α."""
        gradients = [
            (answer - table.values) / table.variance for answer, table in zip(self.answers, self.measured, strict=True)
        ]
        tables, separators = self._moved(gradients, alpha)
        answers = self._answers(tables)
        loss = self._loss(answers)
        gain = sum(
            float(np.dot(gradient, old - new))
            for gradient, old, new in zip(gradients, self.answers, answers, strict=True)
        )
        if not self.loss - loss >= 0.5 * alpha * gain:
            return 0.5 * alpha
        self.tables, self.separators, self.answers, self.loss = tables, separators, answers, loss
        for table, gradient in zip(self.measured, gradients, strict=True):
            self.changes[table.names] -= alpha * gradient
        return 1.01 * alpha

    def _moved(self, gradients: list[Floats], alpha: float) -> tuple[list[Floats], list[Floats]]:
        """Return tables and separators after a step, by (3) and (4)."""
        moved = [table.copy() for table in self.tables]
        for gradient, home, within in zip(gradients, self.homes, self.inside, strict=True):
            # The least change is none: what all cells share is scaled away.
            scale(moved[home], within, np.exp(-alpha * (gradient - gradient.min())))
        parents = self.tree.parents
        below: list[Floats] = [np.empty(0)] * len(moved)
        for place in reversed(range(len(moved))):
            parent = parents[place]
            if parent is not None:
                below[place] = sums(moved[place], self.below[place], len(self.separators[place]))
                scale(moved[parent], self.above[place], _quotient(below[place], self.separators[place]))
        separators: list[Floats] = []
        for place, parent in enumerate(parents):
            if parent is None:
                moved[place] *= self.total / moved[place].sum()
                separators.append(np.array([self.total]))
                continue
            shared = sums(moved[parent], self.above[place], len(below[place]))
            scale(moved[place], self.below[place], _quotient(shared, below[place]))
            separators.append(shared)
        return moved, separators

    def _answers(self, tables: list[Floats]) -> list[Floats]:
        """Return the measured tables as the model has them."""
        return [
            sums(tables[home], within, len(table.values))
            for table, home, within in zip(self.measured, self.homes, self.inside, strict=True)
        ]

    def _loss(self, answers: list[Floats]) -> float:
        """Return (1)."""
        return sum(
            0.5 * float((np.square(answer - table.values) / table.variance).sum())
            for answer, table in zip(answers, self.measured, strict=True)
        )


def cells_within(sizes: Mapping[str, int], names: Names, inner: Names) -> Places:
    """Return for each cell of a table to which cell of the table of some of its attributes it belongs."""
    found = np.zeros([sizes[name] for name in names], dtype=np.int32)
    stride = 1
    for name in reversed(inner):
        axis = names.index(name)
        found += (stride * np.arange(sizes[name], dtype=np.int32)).reshape(
            [-1 if k == axis else 1 for k in range(len(names))]
        )
        stride *= sizes[name]
    return found.ravel()


def _quotient(upper: Floats, lower: Floats) -> Floats:
    """Return the quotient, zero where both are."""
    return np.divide(upper, lower, out=np.zeros_like(upper), where=lower > 0)


def _log_sums(logs: Floats, places: Places, count: int) -> Floats:
    """Return the logarithms of sums of exponentials."""
    largest = np.full(count, -np.inf)
    np.maximum.at(largest, places, logs)
    return np.asarray(largest + np.log(sums(np.exp(logs - largest[places]), places, count)))


@numba.njit(cache=True)
def sums(values: Floats, places: Places, count: int) -> Floats:
    """Return the sums of the values that belong to each place."""
    found = np.zeros(count)
    for cell in range(len(values)):
        found[places[cell]] += values[cell]
    return found


@numba.njit(cache=True)
def scale(values: Floats, places: Places, factors: Floats) -> None:
    """Multiply each value by the factor of its place."""
    for cell in range(len(values)):
        values[cell] *= factors[places[cell]]
