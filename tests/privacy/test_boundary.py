"""The boundary against explicit matrices: exact integers in, the noise that was planned on top, and nothing else."""

import math
from fractions import Fraction

import numpy as np
import pytest
from boundary import ScriptedSampler, WrongSampler
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import centering, closure
from scipy import stats
from strategies import families, seeds

from margrave import boundary
from margrave.algebra.layout import Layout
from margrave.boundary import StagedResiduals, check_range, integer_residual, measure_marginal, measure_residuals
from margrave.discrete_gaussian import exact_variance
from margrave.domain import Domain
from margrave.errors import MeasurementError
from margrave.planning.plans import plan
from margrave.privacy.budget import Budget, PrivacyFilter
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler
from margrave.workload import Workload

WRAP = 2**64


def seeded(seed):
    return gaussian_sampler(source=InsecureSeededSource(seed))


def contrast(shape):
    """H = ⊗ (n_k I − 11ᵀ) as a matrix of Python integers."""
    matrix = np.ones((1, 1), dtype=object)
    for size in shape:
        matrix = np.kron(matrix, size * np.eye(size, dtype=int).astype(object) - np.ones((size, size), dtype=object))
    return matrix


def consistent(layout, seed):
    """Counts of a random table, for every table of a closure."""
    whole = np.random.default_rng(seed).integers(0, 1000, size=layout.sizes)
    tables = [
        whole.sum(axis=tuple(k for k in range(len(layout.sizes)) if k not in members)).ravel()
        for members in layout.sets
    ]
    return np.concatenate(tables).astype(np.int64)


def signed(number):
    """What 64 bits make of a whole number."""
    return (int(number) + WRAP // 2) % WRAP - WRAP // 2


@given(st.lists(st.integers(1, 4), max_size=5), seeds, st.sampled_from([3, 10**4, boundary.MOST_ROWS]))
@settings(deadline=None, max_examples=60)
def test_the_integer_residual_is_the_kronecker_product_exactly(shape, seed, most):
    counts = np.random.default_rng(seed).integers(0, most, size=shape, endpoint=True)
    residual = integer_residual(np.asarray(counts))
    expected = contrast(shape) @ np.asarray(counts, dtype=object).ravel()
    assert residual.dtype == np.int64
    assert residual.shape == tuple(shape)
    assert [int(value) for value in residual.ravel()] == expected.tolist()


@given(st.lists(st.integers(1, 4), max_size=4), seeds)
@settings(deadline=None, max_examples=40)
def test_beyond_64_bits_the_residual_and_its_noise_wrap_around_and_so_reveal_no_more(shape, seed):
    """Every step is a sum or a product modulo 2⁶⁴, so what comes out is a function of the exact noisy residual."""
    generator = np.random.default_rng(seed)
    counts = np.asarray(generator.integers(2**60, 2**62, size=shape))
    noise = generator.integers(-(2**62), 2**62, size=math.prod(shape))
    wrapped = integer_residual(counts).ravel() + noise
    exact = contrast(shape) @ np.asarray(counts, dtype=object).ravel() + noise.astype(object)
    assert wrapped.tolist() == [signed(value) for value in exact]
    noisy = measure_marginal(counts, Fraction(1), ScriptedSampler(lambda variance, count: noise))
    assert np.ravel(noisy).tolist() == [
        signed(a + b) for a, b in zip(counts.ravel().tolist(), noise.tolist(), strict=True)
    ]


def test_the_counts_are_not_written_to():
    counts = np.arange(6).reshape(2, 3)
    counts.setflags(write=False)
    integer_residual(counts)
    measure_marginal(counts, Fraction(1), ScriptedSampler())
    assert counts.tolist() == [[0, 1, 2], [3, 4, 5]]


@given(families(), seeds)
@settings(deadline=None, max_examples=40)
def test_without_noise_the_true_residuals_come_out(shape_and_family, seed):
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    counts = consistent(layout, seed)
    noisy = measure_residuals(layout, counts, [Fraction(1)] * len(layout.sets), ScriptedSampler())
    for (members, table), (_, values) in zip(layout.views(counts), layout.views(noisy), strict=True):
        expected = centering(sizes, members) @ table.ravel()
        # counts below 4⁵ · 10³ < 2²⁰, a dozen roundings of 2⁻⁵³ each
        np.testing.assert_allclose(values.ravel(), expected, rtol=0, atol=1e-8)


@given(families(), seeds)
@settings(deadline=None, max_examples=40)
def test_with_known_noise_the_centred_integers_over_the_cells_come_out(shape_and_family, seed):
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    counts = consistent(layout, seed)
    # Each table has a variance of its own, by which the script tells the tables apart.
    noise = [Fraction(place + 1) for place in range(len(layout.sets))]

    def script(variance, count):
        return np.random.default_rng([seed, int(variance)]).integers(-(10**9), 10**9, size=count)

    sampler = ScriptedSampler(script)
    noisy = measure_residuals(layout, counts, noise, sampler)
    assert sorted(sampler.asked) == [(noise[place], math.prod(layout.shape(place))) for place in range(len(noise))]
    for place, (members, table) in enumerate(layout.views(counts)):
        exact = contrast(layout.shape(place)) @ table.ravel().astype(object) + script(noise[place], table.size)
        expected = centering(sizes, members) @ (exact.astype(float) / table.size)
        # integers below 2³¹ + 2³⁰, so 2⁻⁵³ · 2³² = 5e-7 would be one rounding of the largest; sums of a few
        np.testing.assert_allclose(layout.view(noisy, place).ravel(), expected, rtol=0, atol=1e-5)


def test_tables_that_are_not_measured_are_zero_and_no_noise_is_drawn_for_them():
    layout = Layout.of((3, 4), [(0, 1)])
    noise = [Fraction(5), None, Fraction(7), None]
    sampler = ScriptedSampler(lambda variance, count: np.arange(count))
    noisy = measure_residuals(layout, consistent(layout, 0), noise, sampler)
    assert sorted(sampler.asked) == sorted(
        [(Fraction(5), 1), (Fraction(7), layout.view(noisy, 2).size)],
    )
    assert not layout.view(noisy, 1).any()
    assert not layout.view(noisy, 3).any()
    assert layout.view(noisy, 2).any()


def test_a_table_that_could_leave_64_bits_is_refused_by_its_public_size(monkeypatch):
    monkeypatch.setattr(boundary, "MOST_ROWS", 2**58)
    layout = Layout.of((5, 4), [(0, 1)])
    noise = [Fraction(1)] * len(layout.sets)
    text = (
        "a table of 2 attributes has 20 cells; at most 16 can be measured exactly; ask for tables of fewer attributes"
    )
    with pytest.raises(MeasurementError, match=text):
        check_range(layout, noise)
    for counts in (np.zeros(layout.cells, dtype=np.int64), consistent(layout, 1)):
        with pytest.raises(MeasurementError, match="at most 16"):
            measure_residuals(layout, counts, noise, ScriptedSampler())
    # What is not measured may have any size, and counts of any size pass: they are never looked at.
    check_range(layout, [*noise[:3], None])
    monkeypatch.setattr(boundary, "MOST_ROWS", 2**36)
    huge = np.full(layout.cells, 2**62)
    measure_residuals(layout, huge, noise, ScriptedSampler())


def test_the_range_holds_at_the_public_bound():
    """|H v| ≤ n_τ · rows, also on the way: the worst table has all rows in one cell."""
    cells = 2**62 // boundary.MOST_ROWS
    shape = (2**13, 2**13)
    assert math.prod(shape) == cells
    largest = math.prod(size - 1 for size in shape) * boundary.MOST_ROWS
    # A discrete Gaussian of the largest variance, 10³⁰, passes 2⁶² (4,600 standard deviations) with odds of e^(−10⁷).
    assert largest + 2**62 <= 2**63


SIZES = {"a": 10, "b": 11, "c": 12}
DOMAIN = Domain.fromdict(SIZES)


def planned(contributions=1):
    return plan(Workload(DOMAIN, [tuple(SIZES)]), Budget.zcdp(rho="0.5"), contributions=contributions)


def energies(made, sampler):
    """Σ ‖z‖²/σ² of each residual over all repeats: χ² with m_τ degrees of freedom a measurement of an empty table."""
    layout = made.layout
    noise = [made.noise(table) for table in range(len(layout.sets))]
    counts = np.zeros(layout.cells, dtype=np.int64)
    total = np.zeros(len(layout.sets))
    for _ in range(REPEATS):
        noisy = measure_residuals(layout, counts, noise, sampler)
        total += [(layout.view(noisy, table) ** 2).sum() for table in range(len(layout.sets))]
    return total / made.variances


def accepted(energy, freedom):
    return 1e-5 < stats.chi2.cdf(energy, freedom) < 1 - 1e-5


# 8 residuals and their sum, each at 2 · 10⁻⁵: a false alarm for one seed in 5,000, and never with these. The sum has
# 1,320 degrees of freedom a measurement: 80 of them have a relative standard deviation of √(2/105,600) = 0.44 %.
# A scale wrong by 2 % is a variance wrong by 4 %, 9 of those: it passes with probability below 10⁻⁵.
REPEATS = 80


@pytest.mark.parametrize("contributions", [1, 3])
def test_every_residual_has_the_variance_that_the_plan_says(contributions):
    made = planned(contributions)
    found, freedom = energies(made, seeded(contributions)), REPEATS * made.layout.degrees
    assert all(accepted(*pair) for pair in zip(found, freedom, strict=True))
    assert accepted(found.sum(), freedom.sum())


@pytest.mark.parametrize("scale", [Fraction(98, 100), Fraction(102, 100)])
def test_the_same_test_catches_a_scale_that_is_wrong_by_two_percent(scale):
    made = planned()
    found = energies(made, WrongSampler(seeded(11), scale**2))
    assert not accepted(found.sum(), REPEATS * made.layout.degrees.sum())


def test_the_noise_of_a_residual_has_covariance_variance_times_centring():
    """An entry of the covariance of 2,000 draws has a standard error of at most σ²√(2/2,000); six are 0.19 σ²."""
    layout, repeats, variance = Layout.of((2, 3), [(0, 1)]), 2_000, Fraction(10**6)
    pool = seeded(3).draw(variance, 6 * repeats).reshape(repeats, 6)
    table = layout.places[(0, 1)]
    noise = [variance if place == table else None for place in range(4)]
    counts = np.zeros(layout.cells, dtype=np.int64)
    drawn = np.array(
        [
            layout.view(
                measure_residuals(layout, counts, noise, ScriptedSampler(lambda v, count, r=repeat: pool[r])), table
            ).ravel()
            for repeat in range(repeats)
        ]
    )
    scale = float(variance) / 36
    np.testing.assert_allclose(np.cov(drawn.T) / scale, centering((2, 3), (0, 1)), atol=0.19)
    np.testing.assert_allclose(drawn.mean(axis=0), 0, atol=6 * math.sqrt(scale / repeats))


def test_a_seed_gives_the_same_noise_whatever_the_number_of_threads(monkeypatch):
    layout = Layout.of((3, 4, 5), closure([(0, 1, 2)]))
    counts, noise = consistent(layout, 5), [Fraction(10**6)] * len(layout.sets)
    monkeypatch.setenv("MARGRAVE_THREADS", "1")
    alone = measure_residuals(layout, counts, noise, seeded(9))
    monkeypatch.setenv("MARGRAVE_THREADS", "4")
    assert np.array_equal(alone, measure_residuals(layout, counts, noise, seeded(9)))


def test_two_measurements_with_one_sampler_have_different_noise():
    layout, sampler = Layout.of((30,), [(0,)]), seeded(1)
    counts, noise = consistent(layout, 0), [Fraction(10**6)] * 2
    first = measure_residuals(layout, counts, noise, sampler)
    assert (measure_residuals(layout, counts, noise, sampler) != first).any()


def test_a_marginal_gets_one_sample_a_cell():
    counts = np.arange(12).reshape(3, 4)
    sampler = ScriptedSampler(lambda variance, count: np.arange(count) * 100)
    noisy = measure_marginal(counts, Fraction(7, 3), sampler)
    assert sampler.asked == [(Fraction(7, 3), 12)]
    assert noisy.tolist() == (counts + 100 * counts).tolist()


def test_several_measurements_of_one_residual_are_combined_as_stated(monkeypatch):
    """By inverse variance; with the plain mean and the first one beside; with the exact variance of small noise."""
    domain = Domain.fromdict({"a": 3})
    layout = Layout.of(domain.shape, [(0,)])
    place, cells = layout.places[(0,)], 3
    drawn = [np.array([2.0, -1.0, -1.0]), np.array([1.0, 0.0, -1.0]), np.array([5.0, -7.0, 2.0])]
    noise = np.array([0.3, 0.5, 2.0])
    scripted = iter(drawn)

    def measured(layout, counts, noise, sampler):
        values = np.zeros(layout.cells)
        layout.view(values, place)[:] = next(scripted)
        return values

    monkeypatch.setattr(boundary, "measure_residuals", measured)
    stages = StagedResiduals(
        domain, layout, np.zeros(4, np.int64), spending=PrivacyFilter(Fraction(100)), contributions=1, sampler=seeded(1)
    )
    for one in noise.tolist():
        asked = np.zeros(len(layout.sets))
        asked[place] = one
        stages.measure(asked, "again")
    found = stages.measurements()
    precisions = cells**2 / noise
    exact = exact_variance(noise) / cells**2
    assert layout.view(found.values, place) == pytest.approx(precisions @ drawn / precisions.sum())
    assert found.precisions[place] == pytest.approx(precisions.sum())
    assert found.variances[place] == pytest.approx(exact @ precisions**2 / precisions.sum() ** 2)
    assert found.averages == pytest.approx(np.mean(drawn, axis=0))
    assert found.counts[place] == 3
    assert found.first.values == pytest.approx(drawn[0])
    assert found.first.precisions[place] == pytest.approx(precisions[0])
    assert found.first.variances[place] == pytest.approx(exact[0])


def test_of_the_total_the_noise_of_its_first_measurement_is_kept_and_of_large_noise_no_exact_variance():
    """The total is the one table whose cells are a true count and a discrete Gaussian; g² ≥ 2.4 is its own variance."""
    domain = Domain.fromdict({"a": 3})
    layout = Layout.of(domain.shape, [(0,)])
    total, table = layout.places[()], layout.places[(0,)]

    def measured(*stages):
        filtered = PrivacyFilter(Fraction(10**6))
        counts = np.array([60, 10, 20, 30])
        held = StagedResiduals(domain, layout, counts, spending=filtered, contributions=1, sampler=seeded(3))
        for noise in stages:
            held.measure(np.array(noise), "a stage")
        return held.measurements()

    assert (total, table) == (0, 1)
    assert measured((0.0, 50.0)).direct is None
    assert measured((7.0, 0.0)).direct == ((), 7.0)
    assert measured((0.0, 50.0), (7.0, 50.0), (100.0, 0.0)).direct == ((), 7.0)
    assert measured((7.0, 50.0), (100.0, 30.0)).variances is None
    assert measured((7.0, 0.0)).variances is None
    small = measured((7.0, 0.5)).variances
    assert small[table] == pytest.approx(exact_variance(0.5) / 9)
    assert small[table] < 0.5 / 9 * (1 - 1e-4)
    assert small[total] == pytest.approx(7.0)
