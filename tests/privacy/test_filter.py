"""The privacy filter: whatever is asked for, in whatever order, no run costs more than the budget."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.boundary import StagedResiduals
from margrave.domain import Domain
from margrave.errors import MeasurementError, PlanError
from margrave.planning.coefficients import exact_cost
from margrave.privacy.budget import PrivacyFilter
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler

DOMAIN = Domain.fromdict({"a": 2, "b": 3, "c": 4})
LAYOUT = Layout.of(DOMAIN.shape, [(0, 1), (1, 2)])


class CountedSampler:
    """A seeded sampler that counts what is drawn."""

    name, private = "counted", False

    def __init__(self, sampler, drawn):
        self.sampler, self.drawn = sampler, drawn

    def draw(self, variance, count):
        if count:
            self.drawn.append((Fraction(variance), count))
        return self.sampler.draw(variance, count)

    def spawn(self, count):
        return [CountedSampler(one, self.drawn) for one in self.sampler.spawn(count)]


def staged(rho, contributions=1, seed=0):
    drawn, passing = [], PrivacyFilter(rho)
    sampler = CountedSampler(gaussian_sampler(source=InsecureSeededSource(seed)), drawn)
    counts = np.arange(LAYOUT.cells, dtype=np.int64)
    stages = StagedResiduals(DOMAIN, LAYOUT, counts, spending=passing, contributions=contributions, sampler=sampler)
    return stages, passing, drawn


def cost_of(noise, contributions):
    return sum(
        (exact_cost(LAYOUT.shape(table), Fraction(float(noise[table])), contributions) for table in noise.nonzero()[0]),
        Fraction(0),
    )


def spend_everything_twice(left, generator):
    """The noise of the total that takes just what is left, or half of it."""
    noise = np.zeros(len(LAYOUT.sets))
    noise[0] = float(1 / (2 * left)) * float(generator.choice([1.0, 0.5, 1 - 2**-40, 1 + 2**-40]))
    return noise


def anything(left, generator):
    size = len(LAYOUT.sets)
    return np.where(generator.random(size) < 0.5, 2.0 ** generator.integers(-6, 12, size), 0.0)


def ever_less(left, generator):
    noise = np.zeros(len(LAYOUT.sets))
    noise[generator.integers(len(LAYOUT.sets))] = max(float(24 / left), 1e-6)
    return noise


def after_what_came_out(left, generator):
    noise = anything(left, generator)
    return noise * (1 if generator.random() < 0.5 else 1e-9)


@pytest.mark.parametrize("choose", [spend_everything_twice, anything, ever_less, after_what_came_out])
@pytest.mark.parametrize("contributions", [1, 3])
def test_no_choice_of_stages_passes_the_budget(choose, contributions):
    refused = 0
    for seed in range(25):
        generator, rho = np.random.default_rng(seed), Fraction(1 + seed, 7)
        stages, passing, drawn = staged(rho, contributions, seed)
        spent = Fraction(0)
        for number in range(12):
            noise = choose(max(passing.left, Fraction(1, 10**9)), generator)
            before = len(drawn)
            try:
                stages.measure(noise, f"stage {number}")
            except PlanError:
                refused += 1
                assert len(drawn) == before, "noise was drawn for a stage that was refused"
                # What is refused does not fit: costs are rounded up by less than 2⁻⁷⁰ of the budget.
                assert spent + cost_of(noise, contributions) > rho * (1 - Fraction(1, 2**70))
                continue
            spent += cost_of(noise, contributions)
            assert spent <= rho
            assert passing.left <= rho - spent
        assert sum(step for _, step in passing.steps) <= rho
        # What was drawn is what was paid for.
        cells = np.diff(LAYOUT.index.offset)
        assert sum(count for _, count in drawn) == int(cells @ times_measured(stages))
    assert refused > 10


def times_measured(stages):
    try:
        return stages.measurements().counts
    except MeasurementError:  # nothing was measured at all
        return np.zeros(len(LAYOUT.sets), dtype=np.int64)


def test_the_budget_can_be_spent_to_the_last():
    passing = PrivacyFilter(Fraction(1, 3))
    passing.spend("half", [Fraction(1, 6)])
    assert passing.left == Fraction(1, 6)
    assert passing.fits([Fraction(1, 6)])
    passing.spend("the rest", [Fraction(1, 6)])
    assert passing.left == 0
    assert passing.steps == [("half", Fraction(1, 6)), ("the rest", Fraction(1, 6))]
    assert not passing.fits([Fraction(1, 10**30)])
    with pytest.raises(PlanError, match="a hair more would cost more than what is left of the budget; it was not done"):
        passing.spend("a hair more", [Fraction(1, 10**30)])


def test_costs_are_never_rounded_down():
    passing = PrivacyFilter(Fraction(1))
    for number in range(1, 50):
        passing.spend(f"step {number}", [Fraction(1, 97 * number)])
    assert all(paid >= Fraction(1, 97 * (number + 1)) for number, (_, paid) in enumerate(passing.steps))
    assert all(one[1] > other[1] for one, other in pairwise(passing.steps))


@pytest.mark.parametrize("cost", [0.1, Fraction(-1, 2), None])
def test_a_cost_that_is_no_fraction_is_refused(cost):
    passing = PrivacyFilter(Fraction(1))
    with pytest.raises(PlanError, match="a cost is not a fraction of at least zero; give exact costs"):
        passing.spend("odd", [cost])
    assert passing.left == 1


@pytest.mark.parametrize("rho", [Fraction(0), Fraction(-1), 1.0])
def test_a_filter_needs_a_budget(rho):
    with pytest.raises(PlanError, match="the budget of a filter is"):
        PrivacyFilter(rho)
