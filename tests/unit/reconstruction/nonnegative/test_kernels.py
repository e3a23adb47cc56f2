"""One compiled round, and the loops of the certificate, against plain numpy (the transforms have laws of their own).

Tolerances: sums of at most 400 numbers of size about 1, so that rounding stays below 400 · 10 · 2⁻⁵³ ≈ 5e-13.
"""

import numpy as np
import pytest
from plain_rounds import per_table, plain_round, random_state, shapes

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.reconstruction.nonnegative import Problem, Splitting, kernels
from margrave.reconstruction.nonnegative.outer import ROUNDS

CLOSE = {"rtol": 1e-11, "atol": 1e-11}


@pytest.mark.parametrize("changed", [False, True], ids=["penalties as they are", "penalties changed"])
@shapes
def test_one_round_is_the_plain_one(sizes, family, changed):
    rounds = random_state(sizes, family)
    problem, layout, before = rounds.problem, rounds.problem.layout, rounds.point.copy()
    penalties = rounds.penalties.copy()
    following = penalties * np.random.default_rng(1).uniform(0.2, 5, size=len(penalties)) if changed else None
    x, new = plain_round(problem, penalties, before, following=following)
    unscaled = plain_round(problem, penalties, before)[1]
    negative = rounds.step(1.7, following)
    np.testing.assert_allclose(rounds.point, new, **CLOSE)
    assert negative == pytest.approx(np.maximum(-x, 0).sum(), rel=1e-11, abs=1e-11)
    if not changed:
        kept = per_table(layout, (np.maximum(unscaled, 0) - np.maximum(before, 0)) ** 2)
        multiplier = per_table(layout, (np.minimum(unscaled, 0) - np.minimum(before, 0)) ** 2)
        moves = rounds.parts.part.moves(ROUNDS)
        np.testing.assert_allclose(moves.kept[layout.outer :], kept, **CLOSE)
        np.testing.assert_allclose(moves.multiplier[layout.outer :], multiplier, **CLOSE)
    # The next round starts from the facets and inner tables that this one left.
    following = penalties if following is None else following
    np.testing.assert_allclose(rounds.penalties, following)
    rounds.step()
    np.testing.assert_allclose(rounds.point, plain_round(problem, following, new)[1], **CLOSE)


@shapes
def test_a_range_of_tables_touches_no_other(sizes, family):
    rounds = random_state(sizes, family)
    layout, part, before = rounds.problem.layout, rounds.parts.part, rounds.point.copy()
    moves, facets = part.moves(ROUNDS), part._facets_of(ROUNDS)
    kernels.step_tables(
        *(layout.outer, layout.outer + 1, layout.index, layout.inner_cells, rounds.inner, part.z),
        *(rounds.point, facets, part.factors(ROUNDS), 1.7, rounds.penalties, moves),
    )
    rest = layout.index.offset[layout.outer + 1] - layout.inner_cells
    assert not np.array_equal(rounds.point[:rest], before[:rest])
    assert np.array_equal(rounds.point[rest:], before[rest:])
    assert not moves.negative[layout.outer + 1 :].any()


@shapes
def test_without_a_loss_the_estimates_are_not_read(sizes, family):
    """Weights of zero, as in a repair: estimates that are not numbers change nothing."""
    rounds = random_state(sizes, family)
    problem, layout = rounds.problem, rounds.problem.layout
    free = np.zeros(len(layout.sets))
    _, new = plain_round(Problem(layout, np.zeros(layout.cells), free), rounds.penalties, rounds.point.copy())
    found = Splitting(Problem(layout, problem.z, free), rounds.point.copy(), rounds.penalties)
    found.step()
    np.testing.assert_allclose(found.point, new, **CLOSE)


@shapes
def test_the_loops_of_the_certificate_are_plain_sums(sizes, family):
    problem = random_state(sizes, family).problem
    layout, generator = problem.layout, np.random.default_rng(9)
    tables, index = len(layout.sets), layout.index
    pieces = [slice(*index.offset[t : t + 2]) for t in range(tables)]
    buffer = generator.normal(size=layout.cells)

    distances = np.zeros(tables)
    kernels.squared_distances(0, tables, index, problem.z, buffer, distances)
    np.testing.assert_allclose(distances, [((buffer[p] - problem.z[p]) ** 2).sum() for p in pieces], **CLOSE)

    facets, residuals = np.empty(layout.facet_cells), transform.center(layout, buffer)
    kernels.residual_distances(0, tables, index, 0, problem.z, buffer, facets, distances)
    np.testing.assert_allclose(distances, [((residuals[p] - problem.z[p]) ** 2).sum() for p in pieces], **CLOSE)

    norms, products, penalties = np.zeros(tables), np.zeros(tables), generator.uniform(0.5, 2, size=tables)
    kernels.dual_sums(0, tables, index, 0, problem.z, buffer, penalties, facets, norms, products)
    multipliers = 2 * np.repeat(penalties, np.diff(index.offset)) * np.maximum(-buffer, 0)
    moves = transform.center(layout, multipliers)
    np.testing.assert_allclose(norms, [(moves[p] ** 2).sum() for p in pieces], **CLOSE)
    np.testing.assert_allclose(products, [moves[p] @ problem.z[p] for p in pieces], **CLOSE)

    masses = np.zeros(tables)
    kernels.sum_deficits(0, tables, index, 0, 0.7, buffer, facets, masses)
    lacking = [np.maximum(-buffer[p] - 0.7 / buffer[p].size, 0) for p in pieces]
    np.testing.assert_allclose(masses, [piece.sum() for piece in lacking], **CLOSE)


@shapes
def test_violations_are_counted_by_size_and_share(sizes, family):
    layout = Layout.of(sizes, family)
    marginals = np.random.default_rng(2).normal(size=layout.cells) * 10.0 ** np.random.default_rng(3).integers(-9, 9)
    tables, total = len(layout.sets), 3.0
    worst, masses = np.zeros(tables), np.zeros(tables)
    found = kernels.count_violations(0, tables, layout.index, 0, marginals, total, worst, masses)
    expected, largest = np.zeros(kernels.BINS), []
    for _, table in layout.views(marginals):
        lacking = -table[table < 0]
        largest.append(lacking.max(initial=0))
        # Bin b holds relative sizes from 2^(b − 1 − BINS/2), and up to twice that.
        bins = np.floor(np.log2(lacking * table.size / total)).astype(int) + 1 + kernels.BINS // 2
        np.add.at(expected, bins, 1 / table.size)
    np.testing.assert_allclose(found, expected, **CLOSE)
    assert worst.tolist() == largest
    np.testing.assert_allclose(masses, [np.maximum(-table, 0).sum() for _, table in layout.views(marginals)])


def test_violations_beyond_all_bins_are_counted_in_the_last_ones():
    layout = Layout.of((2,), [(0,)])
    worst = np.zeros(2)
    found = kernels.count_violations(1, 2, layout.index, 0, np.array([0.0, -1e40, -1e-40]), 1.0, worst, worst.copy())
    assert found[0] == found[-1] == 0.5
    assert found.sum() == 1.0


def test_the_least_share_leaves_no_negative_cell_and_no_less_would_do():
    layout, generator = Layout.of((3, 4), [(0, 1)]), np.random.default_rng(5)
    marginals, point = generator.normal(size=layout.cells), generator.uniform(0.1, 1, size=layout.cells)
    tables = len(layout.sets)
    shares = np.zeros(tables)
    kernels.least_share(0, tables, layout.index, 0, marginals, point, shares)
    assert (shares > 0).any()
    for table, share in enumerate(shares.tolist()):
        mixed = (1 - share) * layout.view(marginals, table) + share * layout.view(point, table)
        assert mixed.min() == pytest.approx(0, abs=1e-15) if share > 0 else mixed.min() >= 0


def test_no_share_helps_where_the_other_point_is_not_positive():
    layout = Layout.of((2,), [(0,)])
    shares = np.zeros(2)
    kernels.least_share(0, 2, layout.index, 0, np.array([1.0, -1.0, 2.0]), np.array([1.0, 0.0, 1.0]), shares)
    assert shares.tolist() == [0.0, np.inf]


@pytest.mark.parametrize("axes", [(5,), (3, 4), (3, 2, 4), (2, 3, 2, 4)])
def test_finished_facets_are_centred_means(axes):
    """Facet j is centred along the axes before j, and divided by the length of axis j."""
    table = np.random.default_rng(6).normal(size=axes)
    sums = [table.sum(axis=j) for j in range(len(axes))]
    slot = np.cumsum([0, *(one.size for one in sums)])
    facets = np.concatenate([one.ravel() for one in sums])
    kernels.finish_facets(np.array(axes), len(axes), facets, slot, 0.5, np.empty(max(axes)))
    for j, one in enumerate(sums):
        expected = 0.5 * one / axes[j]
        for axis in range(j):
            expected = expected - expected.mean(axis=axis, keepdims=True)
        np.testing.assert_allclose(facets[slot[j] : slot[j + 1]], expected.ravel(), **CLOSE)
