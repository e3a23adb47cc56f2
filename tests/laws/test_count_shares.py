"""Errors of published shares: expected products of errors against exact ones, what must agree, and coverage."""

import itertools

import numpy as np
import pytest
from generated import SIZES
from seeded_releases import DOMAIN, LAYOUT, TRUTH, WORKLOAD, released

import margrave as mg
from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.reconstruction.estimates import Estimates
from margrave.release.count_errors import CURVE, CountErrors, Line

NAMES = list(SIZES)


def subsets(size, chosen):
    """All masks with so many of the values."""
    for places in itertools.combinations(range(size), chosen):
        yield np.isin(np.arange(size), places)


@pytest.mark.parametrize(
    ("part", "whole"), [((1, 1, 1), (3, 1, 1)), ((2, 1, 2), (3, 2, 2)), ((1, 2, 1), (1, 4, 1)), ((3, 1, 2), (3, 4, 2))]
)
def test_the_expected_product_is_the_mean_over_all_queries_of_a_shape(part, whole):
    """For any errors e, with v_τ = ‖e_τ‖²/m_τ and g = 1: equation (6) by summing all queries of that shape.

    A part counts some of the values that its whole counts, of each attribute; both are enumerated over a table of
    3 × 4 × 2 cells, and the means of products of their errors are compared to rounding.
    """
    sizes = (3, 4, 2)
    layout = Layout.of(sizes, [(0, 1, 2)])
    errors = np.random.default_rng(1).normal(size=24).reshape(sizes)
    tables = np.zeros(layout.cells)
    for place, members in enumerate(layout.sets):
        gone = tuple(axis for axis in range(3) if axis not in members)
        layout.view(tables, place)[...] = errors.sum(axis=gone)
    squares = np.add.reduceat(transform.decompose(layout, tables) ** 2, layout.index.offset[:-1])
    estimates = Estimates(layout, np.zeros(layout.cells), np.ones(8, dtype=np.int64), np.full(8, 1e-3))
    learned = CountErrors(squares / layout.degrees, np.tile(np.eye(1, CURVE), (4, 1)), 1, 1)
    found = []
    expected = None
    axes = [
        [
            (inside & outside, outside)
            for outside in subsets(n, w)
            for inside in subsets(n, p)
            if (inside <= outside).all()
        ]
        for n, p, w in zip(sizes, part, whole, strict=True)
    ]
    for masks in itertools.product(*axes):
        inside, outside = (tuple(pair[k] for pair in masks) for k in (0, 1))
        one, other = (float(errors[np.ix_(*query)].sum()) for query in (inside, outside))
        found.append((one * one, one * other, other * other))
        if expected is None:
            # Counts far above zero, so that nothing but the means decides.
            line = Line(np.array([2e6]), np.array([1e6]), 0.5)
            expected = learned.of_parts(estimates, 7, (inside, outside), np.array([1e6]), line)
    products = np.mean(found, axis=0)
    least = 0.25  # a count is never known better than to a half
    assert expected.part == pytest.approx(max(products[0], least))
    if products[0] > least and products[0] + products[2] - 2 * products[1] > least:
        assert expected.shared == pytest.approx(products[1])
        assert expected.whole == pytest.approx(products[2])


def test_by_maximum_likelihood_the_error_of_a_share_is_its_standard_error():
    release = released(1.0, 0, "mle")
    for where, by in ((("sex", 0), ["age"]), (("work", 2), ["region"]), (("income", 6), [])):
        share = release.share(dict([where]), by=by)
        known = np.isfinite(share.std_error)
        assert known.any()
        np.testing.assert_allclose(share.share_error[known], np.minimum(share.std_error[known], 0.5), rtol=1e-9)


@pytest.mark.parametrize("method", ["lnn", "mle", "trunc", "trunc+rescale"])
def test_a_share_and_its_rest_have_the_same_error_and_mirrored_intervals(method):
    release = released(1.0, 1, method)
    one, other = (release.share({"sex": value}, by=["age", "region"]) for value in (0, 1))
    np.testing.assert_allclose(one.share_error, other.share_error, rtol=1e-9)
    np.testing.assert_allclose(one.share_low, 1 - other.share_high, atol=1e-9)
    np.testing.assert_allclose(one.share_high, 1 - other.share_low, atol=1e-9)


def shares(epsilon, method="lnn"):
    """True share, share, error and ends over two releases: values of one attribute by groups of one or two."""
    columns = []
    for seed in range(2):
        release = released(epsilon, seed, method)
        for asked, group, other in itertools.permutations(range(len(NAMES)), 3):
            kept = tuple(sorted((asked, group, other)))
            true = np.moveaxis(
                LAYOUT.view(TRUTH, LAYOUT.places[kept]), [kept.index(k) for k in (asked, group, other)], (0, 1, 2)
            )
            groups = [NAMES[group], NAMES[other]] if other > group else [NAMES[group]]
            whole = true.sum(axis=0) if other > group else true.sum(axis=(0, 2))
            for value in range(0, len(true), 3):
                part = true[value] if other > group else true[value].sum(axis=1)
                share = release.share({NAMES[asked]: value}, by=groups)
                known = (whole > 0) & np.isfinite(share.values)
                parts = (share.values, share.share_error, share.share_low, share.share_high)
                columns.append(np.stack([(part[known] / whole[known]), *(array[known] for array in parts)]))
    return np.concatenate(columns, axis=1)


@pytest.mark.parametrize(("epsilon", "method"), [(0.1, "lnn"), (1.0, "lnn"), (10.0, "lnn"), (1.0, "trunc")])
def test_intervals_of_shares_cover_the_truth(epsilon, method):
    """Seeded releases of one table: fixed numbers, so that no run differs from another."""
    true, share, error, low, high = shares(epsilon, method)
    assert ((low <= share + 1e-12) & (share <= high + 1e-12)).all()
    assert (high > low).all()
    assert ((low >= 0) & (high <= 1)).all()
    assert np.mean((low <= true) & (true <= high)) >= 0.93
    # The error is a mean square by a linear approximation, and at most one half: of the right size, not exact.
    found, expected = np.sqrt(np.mean((share - true) ** 2)), np.sqrt(np.mean(error**2))
    assert 0.7 < expected / found < 2.5, (found, expected)


def test_shares_of_what_was_never_measured_have_errors_too():
    draw = np.random.default_rng(3)
    tables = [(names, LAYOUT.view(TRUTH, LAYOUT.places[DOMAIN.positions(names)])) for names in WORKLOAD.sets[::2]]
    noisy = mg.Measurements.from_marginals(
        DOMAIN, [(names, table + draw.normal(0, 5, table.shape), 25.0) for names, table in tables]
    )
    release = mg.reconstruct(noisy, WORKLOAD, errors=True)
    share = release.share({"age": 1}, by=list(WORKLOAD.sets[1])[1:])
    assert (share.share_error > 0).all()
    assert (share.share_high > share.share_low).all()


def test_a_share_that_cannot_be_computed_has_no_error_and_is_too_uncertain():
    domain = mg.Domain.fromdict({"a": 2, "b": 2})
    noisy = mg.Measurements.from_marginals(domain, [(("a", "b"), np.array([[50.0, -90.0], [60.0, -80.0]]), 1.0)])
    release = mg.reconstruct(noisy, mg.Workload.all_kway(domain, 2), method="trunc", errors=True)
    share = release.share({"a": 0}, by=["b"])
    assert np.isnan(share.values).tolist() == np.isnan(share.share_error).tolist() == [False, True]
    assert np.isnan(share.share_low).tolist() == [False, True]
    assert share.reliability().tolist()[1] == "too uncertain to quote"
