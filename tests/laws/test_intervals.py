"""Intervals cover the truth as often as they say, and standard errors are those of the exact covariance.

Statistical tests: n independent draws, each covering with probability 0.95 if the law holds; the count of hits is
compared with Binomial(n, 0.95) at a false-alarm rate of 1e-6 (two-sided). With n = 20,000 the band is 0.950 ± 0.0076: a
standard error 6 % too small (coverage 0.935) or too large (0.962) is caught with probability over 0.999. Seeds are
fixed, so a test that passes once passes always.

Draws come all at once, as the values of one more attribute, which every noisy table contains: then the likelihood is a
product over the draws, and each slice is estimated from its own noise alone.

Matrices: sums of at most 64 terms of size about 1, so a relative 1e-11 is wide of rounding and misses no formula.
"""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matrices import expand_matrix, full_difference, marginal_matrix, subsets
from scipy.stats import binom
from strategies import families, seeds

from margrave.algebra.layout import Layout
from margrave.domain import Attribute, Domain
from margrave.measurements import Gaussian, Measurements
from margrave.reconstruction.estimates import estimate_residuals
from margrave.release.publication import reconstruct
from margrave.release.uncertainty import normal_interval, query_covariance, unmeasured
from margrave.workload import Workload

FALSE_ALARM = 1e-6
DRAWS = 20_000


def covers_as_often_as_it_says(covered, level=0.95):
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], covered.size, level)
    return low <= np.count_nonzero(covered) <= high


def test_the_test_of_coverage_catches_wrong_standard_errors():
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], DRAWS, 0.95)
    for wrong in (0.94, 1.06):
        coverage = math.erf(1.959964 * wrong / math.sqrt(2))
        missed = binom.cdf(high, DRAWS, coverage) - binom.cdf(low - 1, DRAWS, coverage)
        assert missed < 1e-3


SURVEY = (Attribute("age", cuts=(17, 64)), Attribute("sex", labels=("F", "M")), Attribute("region", size=4))
DOMAIN = Domain(SURVEY)
DRAWN = Domain([*SURVEY, Attribute("draw", size=DRAWS)])
TRUTH = np.random.default_rng(5).integers(0, 9, size=(3, 2, 4)).astype(float)
# Overlapping tables of different precision, one of them twice: EMP over-determined.
MARGINALS = [
    (("age", "sex"), 2, 4.0),
    (("sex", "region"), 0, 1.0),
    (("sex", "region"), 0, 9.0),
    (("sex",), (0, 2), 0.25),
]


def drawn_marginals(generator):
    triples = []
    for names, summed, variance in MARGINALS:
        table = np.broadcast_to(TRUTH.sum(axis=summed)[..., None], (*TRUTH.sum(axis=summed).shape, DRAWS))
        triples.append(((*names, "draw"), generator.normal(table, math.sqrt(variance)), variance))
    return Measurements.from_marginals(DRAWN, triples)


def drawn_residuals(generator):
    """Every residual of age × sex and sex × region by itself, that of sex twice.

    Measuring it in each of n draws with variance v is measuring its sum over draws with variance n v, and how the draws
    differ with variance v.
    """
    names, triples = ("age", "sex", "region"), []
    for tau in [(), (0,), (1,), (1,), (2,), (0, 1), (1, 2)]:
        variance = 1.0 + len(tau) + sum(tau)
        table = TRUTH.sum(axis=tuple(k for k in range(3) if k not in tau))
        noisy = generator.normal(np.repeat(table[..., None], DRAWS, axis=-1), math.sqrt(variance))
        for axis in range(len(tau)):
            noisy = -np.diff(noisy, axis=axis)
        chosen = [names[k] for k in tau]
        triples.append((chosen, noisy.sum(axis=-1), Gaussian(variance * DRAWS)))
        triples.append(([*chosen, "draw"], -np.diff(noisy, axis=-1), Gaussian(variance)))
    return Measurements.from_residuals(DRAWN, triples)


# What is asked of each draw, and the truth.
ASKED = {
    "a table": (lambda release: release.table("sex", "age", "draw"), TRUTH.sum(axis=2).T),
    "a table inside": (lambda release: release.table("region", "draw"), TRUTH.sum(axis=(0, 1))),
    "the total": (lambda release: release.table("draw"), TRUTH.sum()),
    "a query": (lambda release: release.query("age <= 64 and sex = 'F'", by=("draw",)), TRUTH[:2, 0].sum()),
    "a query by group": (
        lambda release: release.query("region in (1, 2, 3)", by=("sex", "draw")),
        TRUTH[:, :, 1:].sum(axis=(0, 2)),
    ),
}


@pytest.mark.parametrize("measured", [drawn_marginals, drawn_residuals])
def test_intervals_cover_the_truth_as_often_as_they_say(measured):
    """Binomial test on the raw ends; the reader's ends, given that counts are whole and not negative, cover no less."""
    workload = Workload(DRAWN, [("age", "sex", "draw"), ("sex", "region", "draw")])
    release = reconstruct(measured(np.random.default_rng(2024)), workload, method="mle")
    for ask, truth in ASKED.values():
        table, true = ask(release), np.asarray(truth)[..., None]
        raw = (table.ci_low_raw <= true) & (true <= table.ci_high_raw)
        read = (table.ci_low <= true) & (true <= table.ci_high)
        # Cells of one draw depend on each other, so each cell is tested by itself.
        assert all(covers_as_often_as_it_says(cell) for cell in raw.reshape(-1, DRAWS))
        assert (read >= raw).all()


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_exact_discrete_noise_is_covered_at_every_level(level):
    """One table, 4,000 cells with independent noise of standard deviation 20: discreteness moves coverage by < 0.02.

    |P − level| ≤ φ(z)/20 ≤ 0.4/20 for a lattice of step 1; the band below is wider by 0.02 for that.
    """
    from margrave import CodedTable
    from margrave.mechanisms.gaussian_marginals import gaussian_marginals
    from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler

    domain = Domain([Attribute("cell", size=4_000)])
    table = CodedTable(domain, {"cell": np.arange(4_000).repeat(2)})
    sampler = gaussian_sampler(source=InsecureSeededSource(3))
    noisy = gaussian_marginals(table, variances={("cell",): 400}, contributions=1, sampler=sampler)
    answer = reconstruct(noisy, Workload(domain, [("cell",)]), method="mle").table("cell", level=level)
    hits = np.mean((answer.ci_low_raw <= 2) & (answer.ci_high_raw >= 2))
    band = 4.9 * math.sqrt(level * (1 - level) / 4_000) + 0.02
    assert abs(hits - level) < band


@given(st.floats(-50, 50), st.floats(0.01, 20), st.integers(0, 60), st.floats(0.01, 0.999))
@example(-3.0, 0.5, 0, 0.95)
@example(0.5, 0.1, 0, 0.95)
def test_the_reader_s_ends_lose_no_true_count(estimate, std_error, truth, level):
    interval = normal_interval(np.array(estimate), std_error, level)
    if interval.low_raw <= truth <= interval.high_raw:
        assert interval.low <= truth <= interval.high
    assert 0 <= interval.low <= interval.high or interval.high_raw < 0
    assert interval.low >= interval.low_raw
    assert interval.high <= max(interval.high_raw, 0)
    if math.ceil(interval.low_raw) <= math.floor(interval.high_raw):
        assert float(interval.low).is_integer()
        assert float(interval.high).is_integer()


def exact_covariance(sizes, gamma, variance):
    """Σ_{τ⊆γ} A_{γ,τ} (σ²_τ D_τ D_τᵀ) A_{γ,τ}ᵀ, the covariance of all cells of a table."""
    parts = [(expand_matrix(sizes, gamma, tau), full_difference(sizes, tau), variance[tau]) for tau in subsets(gamma)]
    return sum(expand @ (one * d @ d.T) @ expand.T for expand, d, one in parts)


def indicator(masks):
    vector = np.ones(1)
    for mask in masks:
        vector = np.kron(vector, mask)
    return vector


def measured_everywhere(sizes, layout, variance):
    domain = Domain.fromdict({f"a{k}": size for k, size in enumerate(sizes)})
    triples = [
        ([f"a{k}" for k in tau], np.zeros([sizes[k] - 1 for k in tau]), Gaussian(variance[tau])) for tau in layout.sets
    ]
    return Measurements.from_residuals(domain, triples)


@given(families(max_sets=3), seeds)
@settings(deadline=None, max_examples=60)
def test_variance_and_covariance_of_queries_are_exact(shape_and_family, seed):
    """Var(qᵀμ̂) = qᵀ Cov(μ̂) q and Cov(qᵀμ̂, q′ᵀμ̂) = qᵀ Cov(μ̂) q′ with the explicit matrix."""
    sizes, family = shape_and_family
    generator = np.random.default_rng(seed)
    layout = Layout.of(sizes, family)
    variance = {tau: generator.uniform(0.1, 3) for tau in layout.sets}
    estimates = estimate_residuals(measured_everywhere(sizes, layout, variance), layout)
    for place, gamma in enumerate(layout.sets):
        matrix = exact_covariance(sizes, gamma, variance)
        one, other = ([generator.random(sizes[k]) < 0.6 for k in gamma] for _ in range(2))
        q, r = indicator(one), indicator(other)
        close = {"rtol": 1e-11, "atol": 1e-11}
        np.testing.assert_allclose(query_covariance(estimates, place, one, one), q @ matrix @ q, **close)
        np.testing.assert_allclose(query_covariance(estimates, place, one, other), q @ matrix @ r, **close)


@given(families(max_sets=3), seeds)
@settings(deadline=None, max_examples=60)
def test_a_query_is_determined_when_its_vector_lies_in_the_span_of_what_was_measured(shape_and_family, seed):
    sizes, family = shape_and_family
    generator = np.random.default_rng(seed)
    domain = Domain.fromdict({f"a{k}": size for k, size in enumerate(sizes)})
    gamma = max(family, key=len)
    measured = [tau for tau in subsets(gamma) if generator.random() < 0.6] or [()]
    triples = [([f"a{k}" for k in tau], np.zeros([sizes[k] for k in tau]), 1.0) for tau in measured]
    layout = Layout.of(sizes, [gamma])
    estimates = estimate_residuals(Measurements.from_marginals(domain, triples), layout)
    query = [generator.random(sizes[k]) < generator.choice([0.5, 1.0]) for k in gamma]
    rows = np.vstack([marginal_matrix(sizes, tau) for tau in measured])
    asked = indicator(query) @ marginal_matrix(sizes, gamma)
    spanned = np.linalg.matrix_rank(np.vstack([rows, asked])) == np.linalg.matrix_rank(rows)
    assert (not unmeasured(estimates, layout.places[gamma], query)) == spanned


def test_standard_errors_of_a_release_are_those_of_the_pseudo_inverse():
    """Through the public verbs: tables, queries and EMP from overlapping marginals, Cov(p̂) = V⁺ V⁺ᵀ."""
    sizes, places = (3, 2, 4), {"age": 0, "sex": 1, "region": 2}
    generator = np.random.default_rng(1)
    triples = [(names, generator.normal(TRUTH.sum(axis=axes)), variance) for names, axes, variance in MARGINALS]
    rows = [
        marginal_matrix(sizes, tuple(places[name] for name in names)) / math.sqrt(variance)
        for names, _, variance in triples
    ]
    # Nested marginals are linearly dependent: the cutoff is explained in test_emp.py.
    inverse = np.linalg.pinv(np.vstack(rows), rcond=1e-10)
    release = reconstruct(
        Measurements.from_marginals(DOMAIN, triples), Workload(DOMAIN, [("age", "sex"), ("sex", "region")])
    )
    every = [np.ones(3), np.ones(2), np.ones(4)]

    def exact(*changes):
        masks = list(every)
        for axis, mask in changes:
            masks[axis] = np.array(mask, dtype=float)
        return math.sqrt(((indicator(masks) @ inverse) ** 2).sum())

    cases = [
        (release.table("sex", "age"), exact((0, [1, 0, 0]), (1, [1, 0]))),
        (release.table("region"), exact((2, [0, 0, 1, 0]))),
        (release.table(), exact()),
        (release.query("age > 17 and sex = 'M'"), exact((0, [0, 1, 1]), (1, [0, 1]))),
        (release.query("region != 0", by=["sex"]), exact((1, [0, 1]), (2, [0, 1, 1, 1]))),
        (release.query("region != 0", by=["region"]), exact((2, [0, 1, 0, 0]))),
    ]
    for table, expected in cases:
        assert table.std_error == pytest.approx(expected, rel=1e-11)


def test_the_error_of_a_share_is_the_delta_method_on_the_exact_covariance():
    """R = N/D: the gradient (1, −R)/D on the explicit covariance of (N, D)."""
    sizes = (3, 2, 4)
    layout = Layout.of(sizes, [(0, 1), (1, 2)])
    variance = {tau: 0.5 + len(tau) for tau in layout.sets}
    domain = Domain.fromdict({"a0": 3, "a1": 2, "a2": 4})
    truth = np.array([[400.0, 300.0], [250.0, 350.0], [150.0, 500.0]])
    triples = [
        ([f"a{k}" for k in tau], full_difference(sizes, tau) @ _marginal(truth, tau), Gaussian(variance[tau]))
        for tau in layout.sets
        if set(tau) <= {0, 1}
    ]
    shaped = [(names, np.reshape(z, [sizes[int(n[1])] - 1 for n in names]), noise) for names, z, noise in triples]
    workload = Workload(domain, [("a0", "a1")])
    share = reconstruct(Measurements.from_residuals(domain, shaped), workload).share("a1 = 0", of="a0 in (0, 1)")
    matrix = exact_covariance(sizes, (0, 1), variance)
    part, whole = indicator([[1, 1, 0], [1, 0]]), indicator([[1, 1, 0], [1, 1]])
    ratio, size = 650 / 1300, 1300
    gradient = (part - ratio * whole) / size
    assert share.estimate == pytest.approx(ratio, rel=1e-12)
    assert share.std_error == pytest.approx(math.sqrt(gradient @ matrix @ gradient), rel=1e-11)


def _marginal(truth, tau):
    return truth.sum(axis=tuple(k for k in (0, 1) if k not in tau)).ravel()
