"""GReM-MLE and EMP, judged by explicit matrices: pseudo-inverses, ranks, and ResidualPlanner's own sum.

Tolerances: tables hold at most 1,024 numbers of size about 1, and standard deviations lie between 0.3 and 3; the
pseudo-inverse of such a stack loses about four digits of sixteen, so 1e-8 leaves a wide margin and misses no formula.

Cutoff of the pseudo-inverse: the squared singular values of V are Σ n/(n_γ σ²_γ), from 1/9 to 6 · 1,024/0.1, so that
the smallest is at least 1e-3 of the largest. What repeated or nested marginals leave instead of zero is about 1e-15 of
it, and numpy's default cutoff of 1e-15 sometimes takes that for a direction; 1e-10 stands well between the two.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from matrices import closure, expand_matrix, full_difference, marginal_matrix, residual_matrix, subsets
from strategies import families, seeds

from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.measurements import Gaussian, Measurements
from margrave.reconstruction.estimates import determined, estimate_residuals, maximum_likelihood

CLOSE = {"rtol": 1e-8, "atol": 1e-8}
CUTOFF = 1e-10
CASES = {
    "one table": ((3, 2), [(0, 1)], [(0, 1)]),
    "over-determined": ((3, 2, 2), [(0, 1), (1, 2), (0, 2), (0,), (1,), ()], [(0, 1), (2,)]),
    "under-determined": ((3, 2, 2), [(0,), (1,)], [(0, 1, 2)]),
    "mixed": ((2, 3, 2, 2), [(0, 1), (1, 2), (1,)], [(0, 1), (0, 2), (2, 3)]),
    "repeated": ((3, 4), [(0, 1), (0, 1), (0,), (0,), (0, 1)], [(0, 1)]),
    "inside what was measured": ((2, 3, 4), [(0, 1, 2)], [(), (1,), (0, 2)]),
    "outside of it": ((2, 3, 4), [(0,)], [(1, 2)]),
    "the total alone": ((2, 3), [()], [(0, 1)]),
    "size one": ((3, 1, 2), [(0, 1), (1, 2)], [(0, 1, 2), (1,)]),
    "all sizes one": ((1, 1), [(0, 1)], [(0, 1)]),
    "order five": ((2, 2, 3, 2, 2), [(0, 1, 2, 3, 4), (0, 1)], [(0, 1, 2, 3)]),
}
named_cases = pytest.mark.parametrize(("sizes", "measured", "wanted"), CASES.values(), ids=CASES)


def domain_of(sizes):
    return Domain.fromdict({f"a{k}": size for k, size in enumerate(sizes)})


def noisy_marginals(sizes, measured, generator, variances):
    """Triples for from_marginals, each with its axes in an order of its own, and the same as V and v."""
    triples, rows, answers = [], [], []
    for gamma, variance in zip(measured, variances, strict=True):
        table = generator.normal(size=[sizes[k] for k in gamma])
        order = generator.permutation(len(gamma)).tolist()
        triples.append((tuple(f"a{gamma[i]}" for i in order), table.transpose(order), variance))
        rows.append(marginal_matrix(sizes, gamma) / np.sqrt(variance))
        answers.append(table.ravel() / np.sqrt(variance))
    return triples, np.vstack(rows), np.concatenate(answers)


def check_emp(sizes, measured, wanted, generator, variances):
    triples, stacked, answers = noisy_marginals(sizes, measured, generator, variances)
    measurements = Measurements.from_marginals(domain_of(sizes), triples)
    layout = Layout.of(sizes, wanted)
    estimates = estimate_residuals(measurements, layout)
    marginals = maximum_likelihood(estimates)
    vector = np.linalg.pinv(stacked, rcond=CUTOFF) @ answers
    flags = determined(estimates)
    rank = np.linalg.matrix_rank(stacked)
    for place, gamma in enumerate(layout.sets):
        matrix = marginal_matrix(sizes, gamma)
        np.testing.assert_allclose(layout.view(marginals, place).ravel(), matrix @ vector, **CLOSE)
        assert flags[place] == (np.linalg.matrix_rank(np.vstack([stacked, matrix])) == rank)


@named_cases
@pytest.mark.parametrize("equal", [True, False], ids=["equal noise", "different noise"])
def test_emp_is_the_pseudo_inverse_of_the_measured_marginals(sizes, measured, wanted, equal):
    generator = np.random.default_rng(11)
    variances = [2.0] * len(measured) if equal else generator.uniform(0.1, 9, len(measured)).tolist()
    check_emp(sizes, measured, wanted, generator, variances)


@given(families(), seeds)
@settings(deadline=None, max_examples=40)
def test_emp_is_the_pseudo_inverse_for_any_family_measured_and_any_wanted(shape_and_family, seed):
    sizes, family = shape_and_family
    generator = np.random.default_rng(seed)
    measured = [family[i] for i in generator.integers(0, len(family), size=len(family) + 1)]
    wanted = [tuple(np.flatnonzero(generator.random(len(sizes)) < 0.5).tolist()) for _ in range(3)]
    check_emp(sizes, measured, wanted, generator, generator.uniform(0.1, 9, len(measured)).tolist())


def test_a_total_measured_three_times_is_the_mean_by_inverse_variance():
    """No matrices: the one case where numpy's default cutoff misled an earlier form of the test above."""
    totals, variances = np.array([0.3, -1.2, 2.0]), np.array([3.7, 1.9, 2.4])
    domain = domain_of((2, 2, 2, 3, 3))
    measurements = Measurements.from_marginals(domain, [((), y, v) for y, v in zip(totals, variances, strict=True)])
    assert measurements.values == pytest.approx([np.average(totals, weights=1 / variances)], rel=1e-14)


@named_cases
def test_counts_and_precisions_are_those_of_algorithm_4(sizes, measured, wanted):
    variances = np.random.default_rng(2).uniform(0.1, 9, len(measured)).tolist()
    triples, _, _ = noisy_marginals(sizes, measured, np.random.default_rng(3), variances)
    measurements = Measurements.from_marginals(domain_of(sizes), triples)
    for tau in closure([*measured, *wanted]):
        names = [f"a{k}" for k in tau]
        live = all(sizes[k] > 1 for k in tau)
        containing = [
            (gamma, v) for gamma, v in zip(measured, variances, strict=True) if set(tau) <= set(gamma) and live
        ]
        assert measurements.count(*names) == len(containing)
        expected = sum(1 / (v * np.prod([sizes[k] for k in gamma if k not in tau])) for gamma, v in containing)
        assert measurements.precision(*names) == pytest.approx(expected, rel=1e-12)


@given(families(max_sets=3), seeds)
@settings(deadline=None, max_examples=40)
def test_maximum_likelihood_is_residual_planners_sum_when_the_closure_is_measured(shape_and_family, seed):
    """[ReM] Alg. 1: μ̂_γ = Σ_{τ⊆γ} A_{γ,τ} z_τ, in any order of the axes."""
    sizes, family = shape_and_family
    generator = np.random.default_rng(seed)
    layout = Layout.of(sizes, family)
    answers = {tau: generator.normal(size=[sizes[k] - 1 for k in tau]) for tau in layout.sets}
    triples = []
    for tau, z in answers.items():
        order = generator.permutation(len(tau)).tolist()
        names = tuple(f"a{tau[i]}" for i in order)
        triples.append((names, z.transpose(order), Gaussian(generator.uniform(0.1, 9))))
    estimates = estimate_residuals(Measurements.from_residuals(domain_of(sizes), triples), layout)
    marginals = maximum_likelihood(estimates)
    assert determined(estimates).all()
    for place, gamma in enumerate(layout.sets):
        expected = sum(expand_matrix(sizes, gamma, tau) @ answers[tau].ravel() for tau in subsets(gamma))
        np.testing.assert_allclose(layout.view(marginals, place).ravel(), expected, **CLOSE)


@given(families(max_sets=4), seeds)
@settings(deadline=None, max_examples=40)
def test_a_table_is_determined_when_its_rows_lie_in_the_span_of_the_measured_residuals(shape_and_family, seed):
    sizes, family = shape_and_family
    generator = np.random.default_rng(seed)
    layout = Layout.of(sizes, family)
    live = [tau for tau in layout.sets if all(sizes[k] > 1 for k in tau)]
    measured = [tau for tau in live if generator.random() < 0.7] or [()]
    triples = [([f"a{k}" for k in tau], np.zeros([sizes[k] - 1 for k in tau]), Gaussian(1.0)) for tau in measured]
    estimates = estimate_residuals(Measurements.from_residuals(domain_of(sizes), triples), layout)
    stacked = np.vstack([residual_matrix(sizes, tau) for tau in measured])
    _, singular, right = np.linalg.svd(stacked, full_matrices=False)
    # Residuals of different tables are orthogonal: singular values are zero or far from it.
    basis = right[singular > CUTOFF * singular[0]]
    flags = determined(estimates)
    for place, gamma in enumerate(layout.sets):
        matrix = marginal_matrix(sizes, gamma)
        # A row outside the span keeps a part of norm 2⁻⁵ at least in 1,024 cells: an entry of 1e-3, far above rounding.
        assert flags[place] == bool(np.abs(matrix - matrix @ basis.T @ basis).max() < 1e-9)


def test_a_marginal_and_its_residuals_with_the_covariance_of_theorem_2_say_the_same():
    """Measured as one table, or as its residuals D_τ (sums of it) with variance σ² n_γ/n_τ."""
    sizes, variance = (3, 4, 2), 2.5
    table = np.random.default_rng(4).normal(size=sizes)
    whole = Measurements.from_marginals(domain_of(sizes), [(("a0", "a1", "a2"), table, variance)])
    parts = []
    for tau in subsets((0, 1, 2)):
        rest = tuple(k for k in range(3) if k not in tau)
        z = (full_difference(sizes, tau) @ table.sum(axis=rest).ravel()).reshape([sizes[k] - 1 for k in tau])
        parts.append(([f"a{k}" for k in tau], z, Gaussian(variance * np.prod([sizes[k] for k in rest]))))
    split = Measurements.from_residuals(domain_of(sizes), parts)
    np.testing.assert_allclose(split.values, whole.values, **CLOSE)
    np.testing.assert_allclose(split.precisions, whole.precisions, rtol=1e-12)
