"""The linear algebra of marginals and residuals, judged by explicit matrices.

Tolerances: every value below is a sum of at most 1,024 numbers of size about 1 (a few dozen after scaling), so that
rounding stays below 1,024 · 50 · 2⁻⁵³ ≈ 6e-12; 1e-10 leaves a margin of an order and would miss no wrong formula.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from matrices import (
    centering,
    closure,
    expand_matrix,
    extract_matrix,
    full_difference,
    marginal_matrix,
    residual_matrix,
    subsets,
)
from strategies import families, seeds

from margrave.algebra import transform
from margrave.algebra.layout import Layout

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
NAMED_SHAPES = {
    "total only": ((3, 2), [()]),
    "one attribute": ((5,), [(0,)]),
    "chain": ((2, 3, 2, 4), [(0, 1), (1, 2), (2, 3)]),
    "cycle": ((2, 3, 4), [(0, 1), (1, 2), (0, 2)]),
    "star": ((2, 3, 4, 2), [(0, 1), (0, 2), (0, 3)]),
    "nested": ((3, 2, 4), [(0, 1, 2), (1, 2), (2,), ()]),
    "apart": ((3, 2, 4, 2), [(0, 1), (2, 3)]),
    "size one in the middle": ((3, 1, 4), [(0, 1, 2)]),
    "all sizes one": ((1, 1), [(0, 1)]),
    "order four": ((2, 3, 2, 4), [(0, 1, 2, 3)]),
    "order five and a stranger": ((2, 3, 2, 1, 2, 3), [(0, 1, 2, 3, 4), (4, 5)]),
    "order six": ((2, 2, 3, 2, 2, 2), [(0, 1, 2, 3, 4, 5)]),
}
named_shapes = pytest.mark.parametrize(("sizes", "family"), NAMED_SHAPES.values(), ids=NAMED_SHAPES)


def data_vector(sizes, seed):
    return np.random.default_rng(seed).normal(size=int(np.prod(sizes)))


def tables_of(layout, vector):
    """The buffer of all marginals of a data vector, by explicit matrices."""
    return np.concatenate([marginal_matrix(layout.sizes, gamma) @ vector for gamma in layout.sets])


def residuals_of(layout, vector):
    """The buffer of all centred residuals of a data vector, by explicit matrices."""
    return np.concatenate(
        [centering(layout.sizes, tau) @ marginal_matrix(layout.sizes, tau) @ vector for tau in layout.sets]
    )


def synthesis_matrix(layout):
    """S with one block A_{γ,τ} D_τ for each pair τ ⊆ γ: from centred residuals to all tables of the closure."""
    blocks = [
        [
            expand_matrix(layout.sizes, gamma, tau) @ full_difference(layout.sizes, tau)
            if set(tau) <= set(gamma)
            else np.zeros((marginal_matrix(layout.sizes, gamma).shape[0], marginal_matrix(layout.sizes, tau).shape[0]))
            for tau in layout.sets
        ]
        for gamma in layout.sets
    ]
    return np.block(blocks)


@given(families(), seeds)
@settings(deadline=None)
def test_decompose_gives_the_residuals_of_the_data(shape_and_family, seed):
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    vector = data_vector(sizes, seed)
    found = transform.decompose(layout, tables_of(layout, vector))
    np.testing.assert_allclose(found, residuals_of(layout, vector), **CLOSE)


@given(families(), seeds)
@settings(deadline=None)
def test_reconstruct_gives_the_marginals_of_the_data(shape_and_family, seed):
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    vector = data_vector(sizes, seed)
    found = transform.reconstruct(layout, residuals_of(layout, vector))
    np.testing.assert_allclose(found, tables_of(layout, vector), **CLOSE)


@named_shapes
def test_named_shapes_survive_the_round_trip(sizes, family):
    layout = Layout.of(sizes, family)
    tables = tables_of(layout, data_vector(sizes, 7))
    residuals = transform.decompose(layout, tables)
    np.testing.assert_allclose(transform.reconstruct(layout, residuals), tables, **CLOSE)


@named_shapes
def test_proposition_1_marginals_are_the_pseudo_inverse_of_residual_answers(sizes, family):
    """M_γ R_S⁺ z, with any z, equals reconstruct of the centred residuals D_τ⁺ z_τ."""
    layout = Layout.of(sizes, family)
    answers = [np.random.default_rng(3).normal(size=residual_matrix(sizes, tau).shape[0]) for tau in layout.sets]
    stacked = np.vstack([residual_matrix(sizes, tau) for tau in layout.sets])
    vector = np.linalg.pinv(stacked, rcond=1e-10) @ np.concatenate(answers)
    residuals = np.concatenate(
        [np.linalg.pinv(full_difference(sizes, tau)) @ z for tau, z in zip(layout.sets, answers, strict=True)]
    )
    np.testing.assert_allclose(transform.reconstruct(layout, residuals), tables_of(layout, vector), **CLOSE)


@given(families(), seeds)
@settings(deadline=None, max_examples=60)
def test_synthesis_and_adjoint_equal_their_dense_twin(shape_and_family, seed):
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    dense = synthesis_matrix(layout)
    generator = np.random.default_rng(seed)
    residuals = transform.center(layout, generator.normal(size=layout.cells))
    tables = generator.normal(size=layout.cells)
    np.testing.assert_allclose(transform.reconstruct(layout, residuals), dense @ residuals, **CLOSE)
    np.testing.assert_allclose(transform.adjoint(layout, tables), dense.T @ tables, **CLOSE)


@given(families(), seeds)
@settings(deadline=None)
def test_adjoint_law(shape_and_family, seed):
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    generator = np.random.default_rng(seed)
    residuals = transform.center(layout, generator.normal(size=layout.cells))
    tables = generator.normal(size=layout.cells)
    weights = generator.uniform(0, 2, size=len(layout.sets))
    weighted = np.concatenate([a * x.ravel() for a, (_, x) in zip(weights, layout.views(tables), strict=True)])
    left = transform.reconstruct(layout, residuals) @ weighted
    right = residuals @ transform.adjoint(layout, tables, weights=weights)
    np.testing.assert_allclose(left, right, **CLOSE)


@given(families(), seeds)
@settings(deadline=None)
def test_the_spectrum_is_the_diagonal_of_adjoint_times_synthesis(shape_and_family, seed):
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    generator = np.random.default_rng(seed)
    weights = generator.uniform(0, 2, size=len(layout.sets))
    residuals = transform.center(layout, generator.normal(size=layout.cells))
    product = transform.adjoint(layout, transform.reconstruct(layout, residuals), weights=weights)
    spectrum = transform.tables_spectrum(layout, weights)
    expected = np.concatenate([h * x.ravel() for h, (_, x) in zip(spectrum, layout.views(residuals), strict=True)])
    np.testing.assert_allclose(product, expected, **CLOSE)


@given(families(), seeds)
@settings(deadline=None, max_examples=60)
def test_decompose_of_tables_that_disagree_is_weighted_least_squares(shape_and_family, seed):
    """Equal to M_γ V⁺ v with V the weighted measured marginals, for every table that the weighted ones determine."""
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    generator = np.random.default_rng(seed)
    weights = np.where(generator.random(len(layout.sets)) < 0.4, 0.0, generator.uniform(0.1, 3, len(layout.sets)))
    tables = generator.normal(size=layout.cells)
    roots = np.sqrt(weights)
    stacked = np.vstack([a * marginal_matrix(sizes, gamma) for a, gamma in zip(roots, layout.sets, strict=True)])
    answers = np.concatenate([a * x.ravel() for a, (_, x) in zip(roots, layout.views(tables), strict=True)])
    # Singular values are zero or at least √0.1; the default cut-off of 1e-15 can keep a zero that rounding has raised.
    vector = np.linalg.pinv(stacked, rcond=1e-10) @ answers
    found = transform.reconstruct(layout, transform.decompose(layout, tables, weights=weights))
    # The pseudo-inverse of a stack with weights from √0.1 to √3 loses about two digits more.
    np.testing.assert_allclose(found, tables_of(layout, vector), rtol=1e-8, atol=1e-8)


def test_a_weight_of_zero_ignores_what_the_table_holds():
    layout = Layout.of((2, 3), [(0, 1)])
    tables = np.zeros(layout.cells)
    tables[: layout.inner_cells] = np.nan
    tables[layout.inner_cells :] = np.arange(6)
    assert np.isfinite(transform.decompose(layout, tables)).all()


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3, 2), (1, 3), (2, 2, 2, 2)])
def test_lemma_1_residuals_come_out_of_any_larger_marginal(sizes):
    for gamma in closure([tuple(range(len(sizes)))]):
        for tau in subsets(gamma):
            np.testing.assert_allclose(
                extract_matrix(sizes, gamma, tau) @ marginal_matrix(sizes, gamma),
                residual_matrix(sizes, tau),
                atol=0,
            )


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3, 2), (1, 3), (2, 2, 2, 2)])
def test_residuals_of_different_sets_are_orthogonal(sizes):
    family = closure([tuple(range(len(sizes)))])
    for tau in family:
        for other in family:
            product = residual_matrix(sizes, tau) @ residual_matrix(sizes, other).T
            against_marginal = residual_matrix(sizes, tau) @ marginal_matrix(sizes, other).T
            if tau != other:
                assert not product.any()
            if not set(tau) <= set(other):
                assert not against_marginal.any()


@pytest.mark.parametrize("sizes", [(3,), (3, 2), (2, 3, 4), (1, 3), (2, 2, 2, 2)])
def test_the_residuals_of_a_marginal_make_an_invertible_map_with_as_many_rows_as_cells(sizes):
    gamma = tuple(range(len(sizes)))
    stacked = np.vstack([extract_matrix(sizes, gamma, tau) for tau in subsets(gamma)])
    assert stacked.shape == (np.prod(sizes), np.prod(sizes))
    assert np.linalg.matrix_rank(stacked) == np.prod(sizes)


@given(families(max_sets=3), seeds)
@settings(deadline=None)
def test_attribute_order_does_not_matter(shape_and_family, seed):
    sizes, family = shape_and_family
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(sizes))
    place = np.argsort(order)
    renamed = [tuple(sorted(int(place[k]) for k in gamma)) for gamma in family]
    layout, other = Layout.of(sizes, family), Layout.of([sizes[k] for k in order], renamed)
    vector = data_vector(sizes, seed)
    moved = vector.reshape(sizes).transpose(order).ravel()
    found = dict(layout.views(transform.decompose(layout, tables_of(layout, vector))))
    other_found = dict(other.views(transform.decompose(other, tables_of(other, moved))))
    for tau, residual in found.items():
        image = tuple(sorted(int(place[k]) for k in tau))
        axes = np.argsort([place[k] for k in tau]) if tau else ()
        np.testing.assert_allclose(residual.transpose(axes), other_found[image], **CLOSE)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (3, 1, 2), (2, 3, 2, 2), (2, 2, 3, 2, 2)])
def test_one_marginal_round_trip_and_every_residual_sums_to_zero(shape):
    marginal = np.random.default_rng(1).integers(0, 50, size=shape).astype(float)
    residuals = transform.decompose_marginal(marginal)
    assert set(residuals) == set(subsets(tuple(range(len(shape)))))
    for axes, residual in residuals.items():
        for axis in range(residual.ndim):
            np.testing.assert_allclose(residual.sum(axis=axis), 0, atol=1e-10)
        summed = marginal.sum(axis=tuple(k for k in range(len(shape)) if k not in axes))
        np.testing.assert_allclose(residual.ravel(), centering(shape, axes) @ summed.ravel(), **CLOSE)
    np.testing.assert_allclose(transform.reconstruct_marginal(residuals, shape), marginal, **CLOSE)


def test_the_total_of_integer_tables_comes_out_exactly():
    counts = np.random.default_rng(5).integers(0, 2**40, size=(6, 7, 8)).astype(float)
    assert transform.decompose_marginal(counts)[()] == counts.sum()


def test_threads_and_one_thread_give_the_same_bits(monkeypatch):
    sizes = (30, 20, 25, 8, 9)
    layout = Layout.of(sizes, [(0, 1, 2), (0, 1, 3), (1, 2, 4), (2, 3, 4), (0, 4)])
    tables = np.random.default_rng(2).normal(size=layout.cells)
    monkeypatch.setenv("MARGRAVE_THREADS", "3")
    many = transform.decompose(layout, tables)
    monkeypatch.setenv("MARGRAVE_THREADS", "1")
    assert np.array_equal(many, transform.decompose(layout, tables))
