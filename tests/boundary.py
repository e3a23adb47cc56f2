"""Fakes around the boundary: a source with counts that anyone would recognise, and witnesses of what happens when."""

import numpy as np

from margrave.domain import Domain
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler

SIZES = {"age": 3, "sex": 2, "region": 4}
DOMAIN = Domain.fromdict(SIZES)


def recognisable():
    """A table whose cells, and the sums of whose cells, are odd numbers of six digits and more."""
    return np.random.default_rng(20_241_115).integers(100_000, 999_999, size=tuple(SIZES.values()))


class CountsSource:
    """Counts of a whole table given as an array; keeps the buffers it handed out."""

    def __init__(self, whole, domain=DOMAIN, events=None):
        self.whole, self.domain = np.asarray(whole), domain
        self.events = [] if events is None else events
        self.handed_out = []

    def count(self, layout):
        self.events.append("count")
        everything = range(len(layout.sizes))
        tables = [self.whole.sum(axis=tuple(k for k in everything if k not in members)) for members in layout.sets]
        counts = np.concatenate([np.ravel(table) for table in tables]).astype(np.int64)
        self.handed_out.append(counts)
        return counts


class WitnessLedger:
    """Says yes to everything and keeps the order of events."""

    torn = None

    def __init__(self, events):
        self.events, self.charged = events, []

    def check(self, budget):
        self.events.append("check")
        return True

    def require_domain(self, fingerprint):
        pass

    def charge(self, budget, purpose, **details):
        self.events.append("charge")
        self.charged.append((budget.rho, purpose))


class WitnessSampler:
    """A seeded sampler that keeps the order of events; fails after a number of draws if told so."""

    private = False

    def __init__(self, events=None, seed=0, fails=False):
        self.events = [] if events is None else events
        self.sampler, self.fails = gaussian_sampler(source=InsecureSeededSource(seed)), fails
        self.name = self.sampler.name

    def draw(self, variance, count):
        if count:
            self.events.append("draw")
            if self.fails:
                raise RuntimeError("the sampler is out of order")
        return self.sampler.draw(variance, count)

    def spawn(self, count):
        return [self] * count


class WitnessEntropy:
    """Seeded words that keep the order of events."""

    name, private = "witness", False

    def __init__(self, events, seed=0):
        self.events, self.source = events, InsecureSeededSource(seed)

    def words(self, count):
        self.events.append("bits")
        return self.source.words(count)

    def spawn(self, count):
        return [self] * count


class ScriptedSampler:
    """Hands out what a function of (variance, count) says, and keeps what it was asked for."""

    name, private = "script", False

    def __init__(self, script=lambda variance, count: np.zeros(count, dtype=np.int64)):
        self.script, self.asked = script, []

    def draw(self, variance, count):
        self.asked.append((variance, count))
        return self.script(variance, count)

    def spawn(self, count):
        return [self] * count


class WrongSampler(ScriptedSampler):
    """Draws with a variance that is not the one asked for."""

    def __init__(self, sampler, factor):
        super().__init__(lambda variance, count: sampler.draw(variance * factor, count))
        self.sampler, self.factor = sampler, factor

    def spawn(self, count):
        return [WrongSampler(sampler, self.factor) for sampler in self.sampler.spawn(count)]
