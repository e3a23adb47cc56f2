"""How often intervals cover the truth under the noise that is really drawn, by summing its probabilities: no sampling.

- A count that was measured by itself: at least the level, for every parameter and level.
- Any other cell, off by Σ c_i ξ_i: at least the bound of docs/math.md ("Coverage"), checked by convolving the exact
  probabilities of all draws on small domains.
"""

import math
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from discrete_sums import probabilities, slow_variance
from scipy.stats import norm

import margrave as mg
from margrave import CodedTable
from margrave.discrete_gaussian import reach
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler

PARAMETERS = [0.02, 0.09, 0.2, 0.25, 0.3, 0.5, 1.0, 2.0, 3.3, 7.0, 30.0, 144.0, 1000.0]
LEVELS = [0.5, 0.8, 0.9, 0.95, 0.99, 0.9999]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("parameter", PARAMETERS)
def test_counts_measured_by_themselves_are_covered_at_least_as_often_as_the_level(parameter, level):
    """One cell for each whole number k that the noise can be, all with the same true count: P(k) of the covered cells.

    The reader's ends are not rounded up below zero here, because the true count is above all noise.
    """
    chances = probabilities(parameter)
    noise = np.arange(len(chances)) - len(chances) // 2
    truth = 3 + len(noise)
    domain = mg.Domain.fromdict({"cell": len(noise), "one": 1})
    noisy = mg.Measurements.from_marginals(domain, [(("cell",), truth + noise, parameter)], discrete=True)
    release = mg.reconstruct(noisy, mg.Workload(domain, [("cell", "one")]), method="mle")
    answers = [release.table("cell", level=level), release.query(by=("one", "cell"), level=level)]
    for answer in answers:
        covered = (answer.ci_low <= truth) & (truth <= answer.ci_high)
        # Sums of probabilities are off by less than 1e-13; the reach leaves 1e-12 of 1 − level.
        assert chances[covered.ravel()].sum() >= level - 1e-13
        assert np.array_equal(
            answer.ci_high_raw - answer.ci_low_raw, np.full(answer.values.shape, 2 * reach(parameter, level))
        )
        assert answer.std_error == pytest.approx(math.sqrt(slow_variance(parameter)), rel=1e-12)


def test_the_normal_interval_of_small_noise_covered_less_than_it_said():
    """Why counts measured by themselves have intervals of their own: g² = 0.25 and 1.96 standard errors give 78.7 %."""
    chances = probabilities(0.25)
    noise = np.arange(len(chances)) - len(chances) // 2
    assert chances[np.abs(noise) <= 1.959963984540054 * math.sqrt(0.25)].sum() == pytest.approx(0.7866, abs=1e-4)


def test_only_single_cells_of_the_one_table_measured_as_it_is_are_direct():
    domain = mg.Domain.fromdict({"a": 3, "b": 2})
    table = np.arange(6.0).reshape(3, 2)
    workload = mg.Workload(domain, [("a", "b")])
    release = mg.reconstruct(
        mg.Measurements.from_marginals(domain, [(("a", "b"), table, 0.25)], discrete=True), workload, method="mle"
    )
    assert release.table("b", "a").direct == 0.25
    assert release.query("a = 1 and b = 0").direct == 0.25
    assert release.query("a = 1", by=("b",)).direct == 0.25
    for summed in (
        release.table("a"),
        release.table(),
        release.query("a in (0, 1)", by=("b",)),
        release.query("b = 0"),
    ):
        assert summed.direct is None
    twice = [(("a", "b"), table, 0.25), (("a",), table.sum(axis=1), 1.0)]
    again = mg.Measurements.from_marginals(domain, twice, discrete=True)
    assert mg.reconstruct(again, workload, method="mle").table("a", "b").direct is None
    continuous = mg.Measurements.from_marginals(domain, [(("a", "b"), table, 0.25)])
    assert mg.reconstruct(continuous, workload, method="mle").table("a", "b").direct is None


DOMAIN = mg.Domain.fromdict({"a": 2, "b": 3})
TABLES = [(), ("a",), ("b",), ("a", "b")]


@lru_cache(maxsize=64)
def released(rho):
    """A plan of one table over a 2 × 3 domain at a budget, and its release."""
    workload = mg.Workload(DOMAIN, [("a", "b")])
    made = mg.plan(workload, mg.Budget.zcdp(rho=rho), contributions=1)
    counted = CodedTable(DOMAIN, {"a": np.arange(60) % 2, "b": np.arange(60) % 3})
    noisy = mg.measure(made, counted, sampler=gaussian_sampler(source=InsecureSeededSource(1)))
    return made, mg.reconstruct(noisy, workload, method="mle")


def draws(made, names):
    """(c_i, g²_i) of every draw in the error of the first cell of a table: c = ∏ (1[first] − 1/n_k) / n_γ."""
    cells = math.prod(DOMAIN[name].size for name in names)
    for mask in range(2 ** len(names)):
        inside = [name for k, name in enumerate(names) if mask >> k & 1]
        noise = float(made.integer_variances[made.layout.places[DOMAIN.positions(inside)]])
        for entry in product(*(range(DOMAIN[name].size) for name in inside)):
            parts = [Fraction(code == 0) - Fraction(1, DOMAIN[n].size) for n, code in zip(inside, entry, strict=True)]
            yield math.prod(parts, start=Fraction(1)) / cells, noise


def distribution(terms):
    """Points and probabilities of Σ c_i ξ_i, on the lattice of the common denominator."""
    step = math.lcm(*(c.denominator for c, _ in terms))
    total = np.ones(1)
    for c, noise in terms:
        chances, stride = probabilities(noise), abs(int(c * step))
        spread = np.zeros((len(chances) - 1) * stride + 1)
        spread[::stride] = chances
        total = np.convolve(total, spread)
    return (np.arange(len(total)) - len(total) // 2) / step, total


def bound(terms, level):
    """The least coverage of μ̂ ± z s that docs/math.md proves."""
    z = norm.isf((1 - level) / 2)
    chebyshev = 1 - 1 / z**2
    smallest = min(noise for _, noise in terms)
    if smallest < 1:
        return chebyshev
    c, noise = max((abs(c), noise) for c, noise in terms)
    deviation = math.sqrt(sum(float(c) ** 2 * noise for c, noise in terms))
    exact = math.sqrt(sum(float(c) ** 2 * slow_variance(noise) for c, noise in terms))
    remainder = 1e-3 if smallest < 1.5**2 else 1e-6
    inside = 2 * norm.cdf((z * exact - float(c) / 2) / deviation) - 1
    return max(chebyshev, inside - 0.0605 / (z**2 * noise) - remainder)


@pytest.mark.parametrize("rho", [Fraction(1, 20), Fraction(1, 4), Fraction(1), Fraction(4), Fraction(16), Fraction(64)])
def test_other_intervals_cover_at_least_as_often_as_the_proven_bound(rho):
    made, release = released(rho)
    for names in TABLES[1:]:
        terms = list(draws(made, names))
        points, chances = distribution(terms)
        for level in LEVELS[1:]:
            table = release.table(*names, level=level)
            assert table.direct is None
            reached = (table.ci_high_raw - table.ci_low_raw).ravel()[0] / 2
            coverage = chances[np.abs(points) <= reached * (1 + 1e-12)].sum()
            assert coverage >= bound(terms, level) - 1e-12
        variance = (points**2 * chances).sum()
        assert release.table(*names).variance == pytest.approx(variance, rel=1e-9)


def test_the_total_of_a_plan_is_covered_at_least_as_often_as_the_level():
    for rho in (Fraction(1, 20), Fraction(1), Fraction(16)):
        made, release = released(rho)
        noise = float(made.integer_variances[made.layout.places[()]])
        for total in (release.table(), release.query()):
            assert total.direct == noise
            width = (total.ci_high_raw - total.ci_low_raw) / 2
            assert width == reach(noise, 0.95)
            chances = probabilities(noise)
            k = np.arange(len(chances)) - len(chances) // 2
            assert chances[np.abs(k) <= width].sum() >= 0.95
            # What a plan calls the margin is this width up to the rounding to whole numbers.
            assert abs(width - made.margin_of_error()) < 1


def test_the_remainder_of_the_bound_is_what_math_md_says():
    """K(g) = (2/π) (∫₀^π max_{x ≥ g²u²/2} e^−x (e^κx − 1) du/u + ∫_π^∞ e^(−g²u²/2) du/u), κ = ε(u)/(g²u²/2)."""
    for g, most in ((1.0, 1e-3), (1.5, 1e-6), (2.0, 1e-10)):
        u = (np.arange(200_000) + 0.5) * (math.pi / 200_000)
        x = g**2 * u**2 / 2
        kappa = (
            sum(2 * np.exp(-2 * (math.pi * g * m) ** 2) * (np.cosh(2 * math.pi * g**2 * m * u) - 1) for m in (1, 2, 3))
            / x
        )
        # At small u the sum is rounding alone, and the limit of κ is 8π²g² e^(−2π²g²); κ grows with u.
        kappa = np.maximum(kappa, 8 * (math.pi * g) ** 2 * math.exp(-2 * (math.pi * g) ** 2))
        peak = np.maximum(x, -np.log1p(-kappa) / kappa)
        inner = (np.exp(-peak) * np.expm1(kappa * peak) / u).sum() * (math.pi / 200_000)
        tail = np.arange(math.pi, 20, 1e-4)
        outer = (np.exp(-(g**2) * tail**2 / 2) / tail).sum() * 1e-4
        assert 2 / math.pi * (inner + outer) < most


def test_no_more_than_half_a_step_is_lost_where_one_draw_is_all_there_is():
    """For one draw the bound is half a step: the coverage of μ̂ ± z g itself, at parameters from 1 to 400."""
    for parameter in np.geomspace(1, 400, 60):
        chances = probabilities(float(parameter))
        k = np.arange(len(chances)) - len(chances) // 2
        for level in LEVELS[1:]:
            z = norm.isf((1 - level) / 2)
            covered = chances[np.abs(k) <= z * math.sqrt(slow_variance(float(parameter)))].sum()
            assert covered >= bound([(Fraction(1), float(parameter))], level)
