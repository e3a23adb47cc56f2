"""Completion: never fails, keeps what is certain, and fills what was not measured with what the rest implies."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.methods.maximum_likelihood import truncate_and_rescale
from margrave.reconstruction.estimates import Estimates, maximum_likelihood
from margrave.reconstruction.nonnegative import reconstruct_nonnegative
from margrave.reconstruction.prior.completion import complete, share_unexplained

SIZES = (4, 3, 5, 2)
TRIPLES = [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]
LAYOUT = Layout.of(SIZES, TRIPLES)


def counts_of(layout, joint):
    """All tables of a closure from the joint table of all attributes."""
    tables = np.empty(layout.cells)
    for place, members in enumerate(layout.sets):
        others = tuple(axis for axis in range(joint.ndim) if axis not in members)
        layout.view(tables, place)[...] = joint.sum(axis=others)
    return tables


def measured(layout, joint, sets, variance, *, seed=0):
    """Estimates from noisy tables, one variance each, as EMP would combine them if they did not overlap."""
    residuals = transform.decompose(layout, counts_of(layout, joint))
    known = {inside for members in sets for inside in layout.subsets(layout.places[members])} | {0}
    counts = np.array([int(place in known) for place in range(len(layout.sets))])
    noise = np.random.default_rng(seed).normal(size=layout.cells) * math.sqrt(variance)
    values = residuals + transform.center(layout, noise)
    values[np.repeat(counts == 0, np.diff(layout.index.offset))] = 0.0
    return Estimates(layout, values, counts, counts / variance)


def markov_chain(sizes, people, seed):
    """A joint table in which each attribute depends on the one before it only."""
    generator = np.random.default_rng(seed)
    joint = generator.dirichlet(np.ones(sizes[0]))
    for before, size in pairwise(sizes):
        joint = joint[..., None] * generator.dirichlet(np.full(size, 0.3), before)
    return people * joint


def table_of(layout, marginals, *members):
    return layout.view(marginals, layout.places[members])


def test_with_everything_measured_and_hardly_any_noise_the_centres_are_the_measurements():
    joint = np.random.default_rng(1).integers(1, 50, SIZES).astype(float)
    estimates = measured(LAYOUT, joint, TRIPLES, 1e-8)
    completion = complete(estimates)
    # The centre differs from z by what (5) holds for noise: at most √(2 b) with b = (m + 3 √(2m)) σ² of each residual.
    bound = np.sqrt(2 * (LAYOUT.degrees + 3 * np.sqrt(2 * LAYOUT.degrees)) * 1e-8)
    for place in range(1, len(LAYOUT.sets)):
        away = LAYOUT.view(completion.estimates.values, place) - LAYOUT.view(estimates.values, place)
        assert np.linalg.norm(away) <= bound[place]


def test_a_chain_of_attributes_is_completed_from_its_links():
    sizes = (4, 5, 3)
    joint = markov_chain(sizes, 1e6, seed=2)
    pairs = Layout.of(sizes, [(0, 1), (1, 2), (0, 2)])
    estimates = measured(pairs, joint, [(0, 1), (1, 2)], 1e-6)
    found = table_of(pairs, complete(estimates).marginals, 0, 2)
    # Independence would be far off; links with hardly any noise give the table up to the tolerance of fitting, 1e-3.
    independent = np.outer(joint.sum(axis=(1, 2)), joint.sum(axis=(0, 1))) / 1e6
    assert np.abs(independent - joint.sum(axis=1)).sum() > 0.1 * 1e6
    assert np.abs(found - joint.sum(axis=1)).sum() < 2e-3 * 1e6


def test_attributes_that_were_never_measured_are_spread_evenly_and_independently():
    joint = np.random.default_rng(3).integers(1, 50, SIZES).astype(float)
    estimates = measured(LAYOUT, joint, [(0, 1)], 1e-6)
    marginals = complete(estimates).marginals
    expected = np.multiply.outer(table_of(LAYOUT, marginals, 0, 1), np.full(5, 1 / 5))
    np.testing.assert_allclose(table_of(LAYOUT, marginals, 0, 1, 2), expected, rtol=1e-9)


@pytest.mark.parametrize("variance", [1.0, 100.0, 10_000.0])
def test_completed_tables_are_nearer_to_the_truth_than_truncation_with_rescaling(variance):
    sizes = (6, 8, 5, 7, 3)
    layout = Layout.of(sizes, [(a, b, c) for a in range(5) for b in range(a + 1, 5) for c in range(b + 1, 5)])
    joint = markov_chain(sizes, 20_000, seed=4)
    truth = counts_of(layout, joint)
    estimates = measured(layout, joint, [(0, 1, 2), (1, 2, 3), (2, 3, 4)], variance, seed=5)
    completion = complete(estimates)
    solved = reconstruct_nonnegative(completion.estimates, weights=completion.weights, max_steps=300).marginals
    baseline = truncate_and_rescale(layout, maximum_likelihood(estimates))
    outer = slice(layout.inner_cells, None)
    assert np.abs(solved - truth)[outer].sum() < 0.7 * np.abs(baseline - truth)[outer].sum()


def test_the_completion_is_a_function_of_the_estimates_alone():
    joint = markov_chain(SIZES, 5_000, seed=6)
    estimates = measured(LAYOUT, joint, [(0, 1, 2)], 50.0)
    assert np.array_equal(complete(estimates).estimates.values, complete(estimates).estimates.values)


def test_the_total_is_held_and_the_other_weights_fall_with_the_order():
    weights = complete(measured(LAYOUT, markov_chain(SIZES, 5_000, seed=6), [(0, 1, 2)], 50.0)).weights
    assert weights[0] == math.inf
    assert np.array_equal(weights[1:], 2.0 ** -LAYOUT.index.order[1:].astype(float))


def test_a_given_total_is_taken():
    completion = complete(measured(LAYOUT, markov_chain(SIZES, 5_000, seed=6), [(0, 1, 2)], 50.0), total=1_234.0)
    assert completion.estimates.values[0] == pytest.approx(1_234.0, rel=1e-9)
    for _, table in LAYOUT.views(completion.marginals):
        assert table.sum() == pytest.approx(1_234.0, rel=1e-3)  # fitting stops at 1e-3


def test_a_difference_is_put_back_only_where_noise_does_not_explain_it():
    estimates = measured(LAYOUT, markov_chain(SIZES, 5_000, seed=6), [(0, 1, 2)], 4.0)
    place = LAYOUT.places[(0,)]
    bound = (3 + 3 * math.sqrt(6)) * 4.0  # three degrees of freedom, variance four
    unit = np.array([0.5, 0.5, -0.5, -0.5])
    assert share_unexplained(estimates, place, unit * math.sqrt(1.9 * bound)) == 0.0
    assert share_unexplained(estimates, place, unit * math.sqrt(10 * bound)) == pytest.approx(0.9, rel=1e-12)
    assert share_unexplained(estimates, place, np.zeros(4)) == 0.0


@given(st.integers(0, 2**31), st.sampled_from([1e-9, 1.0, 1e6, 1e12]), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_measurements_give_finite_tables_without_negative_cells(seed, scale, total_measured, known_variance):
    generator = np.random.default_rng(seed)
    sizes = tuple(generator.integers(1, 6, 4).tolist())
    layout = Layout.of(sizes, [(0, 1, 2, 3)] if seed % 3 == 0 else TRIPLES)
    counts = generator.integers(0, 2, len(layout.sets))
    counts[0] = int(total_measured)
    values = transform.center(layout, generator.normal(size=layout.cells) * scale * 10 ** generator.uniform(-6, 6))
    values[np.repeat(counts == 0, np.diff(layout.index.offset))] = 0.0
    precisions = np.where(counts > 0, 1 / scale**2 if known_variance else np.nan, 0.0)
    completion = complete(Estimates(layout, values, counts, precisions))
    assert np.isfinite(completion.marginals).all()
    assert (completion.marginals >= 0).all()
    assert np.isfinite(completion.estimates.values).all()
    assert completion.estimates.values[0] > 0


def test_noise_alone_exceeds_the_bound_of_equation_5_one_time_in_forty_five_at_most():
    """The squared length of noise with m degrees of freedom is χ²_m σ²; it is worst at m = 1, and tends to Φ(−3)."""
    degrees = np.unique(np.geomspace(1, 1e9, 2_000).astype(int))
    exceeded = chi2.sf(degrees + 3 * np.sqrt(2.0 * degrees), degrees)
    assert exceeded.max() == exceeded[0] <= 1 / 45
