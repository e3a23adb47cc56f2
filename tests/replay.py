"""Run a mechanism on two neighbouring tables with the same outputs, and keep what it did to each of them.

The first run draws noise and makes choices; everything that leaves the boundary is kept. The second run, on the
neighbour, is handed the outputs of the first: wherever noise is added, the sum comes out as it did before, and wherever
a choice is made, the choice is the same. So both runs go the same way, however a mechanism decides what to do next, and
what is left to compare are the inputs: the arrays to which noise was added, and the scores from which was chosen.

Noise is an array that knows who drew it, with what variance, and tells what it was added to. A mechanism cannot add it
without leaving a trace, and noise that is drawn and not added, or added twice, is noticed.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler
from margrave.privacy.selection import select, selection_cost


@dataclass
class Draw:
    """Noise that was added: its variance, what it was added to, and what came out."""

    variance: Fraction
    given: np.ndarray
    output: np.ndarray

    def loss(self, other):
        """ρ of this draw for the two tables at hand: ‖x − x′‖² / 2g², exactly."""
        moved = (self.given - other.given).ravel().tolist()
        return Fraction(sum(one * one for one in moved)) / (2 * self.variance)


@dataclass
class Choice:
    """A selection by the exponential mechanism."""

    scores: list
    epsilon: Fraction
    sensitivity: Fraction
    output: int

    def loss(self, other):
        """ρ of this choice for the two tables at hand: (ε max|s − s′| / Δ)² / 8, exactly."""
        moved = max(abs(one - two) for one, two in zip(self.scores, other.scores, strict=True))
        return selection_cost(self.epsilon) * (Fraction(moved) / Fraction(self.sensitivity)) ** 2


@dataclass
class Recording:
    """What one run did, by the place of the draw: spawned samplers draw in any order."""

    draws: dict = field(default_factory=dict)
    choices: list = field(default_factory=list)
    pending: set = field(default_factory=set)


class TracedNoise(np.ndarray):
    """Noise that tells its recorder what it is added to."""

    def __array_finalize__(self, parent):
        self.on_add = getattr(parent, "on_add", None)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        noise = [array for array in inputs if isinstance(array, TracedNoise)]
        others = [array for array in inputs if not isinstance(array, TracedNoise)]
        assert ufunc is np.add, f"noise was not added: {ufunc}"
        assert method == "__call__"
        assert (len(noise), len(others)) == (1, 1)
        result = noise[0].on_add(np.array(others[0]), noise[0].view(np.ndarray))
        if out is None:
            return result
        out[0][...] = result
        return out[0]


class ReplaySampler:
    """Draws from a seed and records; with an earlier recording it gives the outputs of that."""

    name, private = "replay", False

    def __init__(self, seed, earlier=None):
        self.recording, self.earlier, self.seed, self.place, self.spawned = Recording(), earlier, seed, (), 0
        self.sampler = gaussian_sampler(source=InsecureSeededSource(seed))
        self.drawn = 0

    def draw(self, variance, count):
        noise = self.sampler.draw(variance, count)
        if not count:
            return noise  # a question whether such noise can be drawn
        key = (*self.place, self.drawn)
        self.drawn += 1
        self.recording.pending.add(key)

        def on_add(given, drawn):
            assert key in self.recording.pending, "one noise was added twice"
            self.recording.pending.remove(key)
            output = given + drawn if self.earlier is None else self.earlier.draws[key].output
            self.recording.draws[key] = Draw(Fraction(variance), given, output.copy())
            return output

        traced = noise.view(TracedNoise)
        traced.on_add = on_add
        return traced

    def spawn(self, count):
        children = []
        for child in range(count):
            one = ReplaySampler((self.seed * 1_000_003 + 97 * self.spawned + child) % 2**63, self.earlier)
            one.recording, one.place = self.recording, (*self.place, "spawned", self.spawned, child)
            children.append(one)
        self.spawned += 1
        return children

    def select(self, scores, *, epsilon, sensitivity, error=0, source=None):
        """Stands in for the exponential mechanism."""
        assert error == 0
        taken = list(scores)
        place = len(self.recording.choices)
        if self.earlier is None:
            chosen = select(
                taken, epsilon=epsilon, sensitivity=sensitivity, source=InsecureSeededSource(self.seed + place)
            )
        else:
            chosen = self.earlier.choices[place].output
        self.recording.choices.append(Choice(taken, Fraction(epsilon), Fraction(sensitivity), chosen))
        return chosen


def replay(run, one, other, seed):
    """Return the recordings of a mechanism on a table and on its neighbour, and the record of what was charged.

    ``run(table, sampler)`` runs the mechanism with this sampler, choices by ``sampler.select``.
    """
    first = ReplaySampler(seed)
    noisy = run(one, first)
    second = ReplaySampler(seed, earlier=first.recording)
    again = run(other, second)
    for recording in (first.recording, second.recording):
        assert not recording.pending, "noise was drawn and not added"
    assert first.recording.draws.keys() == second.recording.draws.keys()
    assert len(first.recording.choices) == len(second.recording.choices)
    assert again.provenance == noisy.provenance
    return first.recording, second.recording, noisy.provenance
