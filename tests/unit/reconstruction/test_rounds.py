"""One compiled round, and the loops of the certificate, against plain numpy (the transforms have laws of their own).

Tolerances: sums of at most 400 numbers of size about 1, so that rounding stays below 400 · 10 · 2⁻⁵³ ≈ 5e-13.
"""

import numpy as np
import pytest

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.reconstruction import rounds
from margrave.reconstruction.certificate import Problem
from margrave.reconstruction.nonnegative import Ascent

CLOSE = {"rtol": 1e-11, "atol": 1e-11}
SHAPES = {
    "order 0": ((3,), [()]),
    "order 1": ((5, 2), [(0,), (1,)]),
    "order 2": ((3, 4, 2), [(0, 1), (1, 2)]),
    "order 3": ((3, 4, 2, 5), [(0, 1, 2), (1, 2, 3)]),
    "order 4": ((3, 2, 4, 2), [(0, 1, 2, 3)]),
    "order 5": ((2, 3, 1, 4, 2), [(0, 1, 2, 3, 4)]),
    "order 6": ((2, 3, 2, 2, 3, 2), [(0, 1, 2, 3, 4, 5)]),
    "mixed orders": ((3, 2, 4, 2, 3), [(0, 1, 2, 3), (1, 2, 4), (0, 4), (3, 4)]),
    "sizes of one": ((1, 3, 1, 2), [(0, 1, 2, 3), ()]),
}
shapes = pytest.mark.parametrize(("sizes", "family"), SHAPES.values(), ids=SHAPES)


def random_state(sizes, family):
    """A layout with residuals, weights, multipliers λ and an extrapolated point y of its outer tables."""
    generator = np.random.default_rng(len(sizes))
    layout = Layout.of(sizes, family)
    z = transform.center(layout, generator.normal(size=layout.cells))
    weights = generator.uniform(0.3, 3, size=len(layout.sets))
    outer = layout.cells - layout.inner_cells
    return Problem(layout, z, weights), np.maximum(generator.normal(size=outer), 0), generator.normal(size=outer)


def numpy_tables(problem, y):
    """μ(r(y)) = S (z + κ Sᵀ y) of all tables of the closure."""
    layout = problem.layout
    tables = np.concatenate([np.zeros(layout.inner_cells), y])
    moves = transform.adjoint(layout, tables, weights=transform.outer_weights(layout), factors=0.5 / problem.weights)
    return transform.reconstruct(layout, problem.z + moves)


def numpy_round(problem, y, multipliers, steps, momentum):
    """λ⁺, y⁺ and each outer table's part of the restart test, cell by cell."""
    layout = problem.layout
    lengths = np.diff(layout.index.offset)[layout.outer :]
    own = np.repeat(steps[layout.outer :], lengths)
    new = np.maximum(y - own * numpy_tables(problem, y)[layout.inner_cells :], 0)
    turn = (y - new) * (new - multipliers)
    begins = layout.index.offset[layout.outer : -1] - layout.inner_cells
    return new, new + momentum * (new - multipliers), np.add.reduceat(turn, begins)


def facets_of(layout, y):
    facets = np.zeros(layout.facet_cells)
    transform.fill_facets(layout, np.concatenate([np.zeros(layout.inner_cells), y]), facets)
    return facets


@shapes
def test_one_round_is_the_plain_one(sizes, family):
    problem, multipliers, y = random_state(sizes, family)
    layout, momentum = problem.layout, 0.6
    steps = np.random.default_rng(0).uniform(0.1, 1, size=len(layout.sets))
    new, ahead, turns = numpy_round(problem, y, multipliers, steps, momentum)
    facets, found_turns = facets_of(layout, y), np.zeros(len(layout.sets))
    inner = numpy_tables(problem, y)[: layout.inner_cells].copy()
    rounds.step_tables(
        layout.outer,
        len(layout.sets),
        layout.index,
        layout.inner_cells,
        inner,
        problem.z[layout.inner_cells :],
        y,
        multipliers,
        facets,
        problem.curvatures,
        steps,
        momentum,
        found_turns,
    )
    np.testing.assert_allclose(multipliers, new, **CLOSE)
    np.testing.assert_allclose(y, ahead, **CLOSE)
    np.testing.assert_allclose(found_turns[layout.outer :], turns, **CLOSE)
    # The facets that the next round reads: those of y⁺, for outer tables; slots of inner tables are scratch.
    mine = layout.index.slot[layout.outer] if layout.index.axes.shape[1] else [0]
    np.testing.assert_allclose(facets[mine[0] :], facets_of(layout, y)[mine[0] :], **CLOSE)


@shapes
def test_a_range_of_tables_touches_no_other(sizes, family):
    problem, multipliers, y = random_state(sizes, family)
    layout = problem.layout
    before, ahead = multipliers.copy(), y.copy()
    facets, turns = facets_of(layout, y), np.zeros(len(layout.sets))
    steps = np.full(len(layout.sets), 0.5)
    inner = numpy_tables(problem, y)[: layout.inner_cells].copy()
    base = problem.z[layout.inner_cells :]
    rounds.step_tables(
        *(layout.outer, layout.outer + 1, layout.index, layout.inner_cells, inner, base, y, multipliers, facets),
        *(problem.curvatures, steps, 0.5, turns),
    )
    rest = layout.index.offset[layout.outer + 1] - layout.inner_cells
    assert np.array_equal(multipliers[rest:], before[rest:])
    assert np.array_equal(y[rest:], ahead[rest:])
    assert not turns[layout.outer + 1 :].any()


@pytest.mark.parametrize("warm", [False, True], ids=["from zero", "from a start"])
@shapes
def test_forty_rounds_with_momentum_and_restart_are_the_plain_ones(sizes, family, warm):
    """Errors of rounding do not grow: a step is a contraction and momentum at most doubles it between restarts."""
    problem, start, _ = random_state(sizes, family)
    layout = problem.layout
    spectrum = transform.tables_spectrum(layout, transform.outer_weights(layout)) * 0.5 / problem.weights
    steps = np.array([1 / max(spectrum[list(layout.subsets(t))]) for t in range(len(layout.sets))])
    multipliers = start if warm else np.zeros_like(start)
    y, since = multipliers, 0
    for _ in range(40):
        since += 1
        multipliers, y, turns = numpy_round(problem, y, multipliers, steps, (since - 1) / (since + 2))
        if turns.sum() > 0:
            since = 0
    ascent = Ascent(problem, start if warm else None)
    ascent.run(40)
    assert ascent.steps == 40
    np.testing.assert_allclose(ascent.multipliers, multipliers, rtol=1e-8, atol=1e-8)
    residuals = ascent.residuals(np.empty(layout.cells))
    marginals = transform.reconstruct(layout, residuals)
    np.testing.assert_allclose(marginals, numpy_tables(problem, multipliers), rtol=1e-8, atol=1e-8)


def test_some_runs_restart():
    """The rule is met in the test above: on this problem a step turns against the motion within forty rounds."""
    problem, _, _ = random_state(*SHAPES["mixed orders"])
    ascent = Ascent(problem)
    ascent.run(40)
    assert ascent._since_restart < 40


@shapes
def test_the_loops_of_the_certificate_are_plain_sums(sizes, family):
    problem, _, _ = random_state(sizes, family)
    layout, generator = problem.layout, np.random.default_rng(9)
    tables, index = len(layout.sets), layout.index
    pieces = [slice(*index.offset[t : t + 2]) for t in range(tables)]
    buffer = generator.normal(size=layout.cells)

    distances = np.zeros(tables)
    rounds.squared_distances(0, tables, index, problem.z, buffer, distances)
    np.testing.assert_allclose(distances, [((buffer[p] - problem.z[p]) ** 2).sum() for p in pieces], **CLOSE)

    moves, norms, products = buffer.copy(), np.zeros(tables), np.zeros(tables)
    rounds.move_residuals(0, tables, index, problem.z, problem.curvatures, moves, norms, products)
    np.testing.assert_allclose(norms, [(buffer[p] ** 2).sum() for p in pieces], **CLOSE)
    np.testing.assert_allclose(products, [buffer[p] @ problem.z[p] for p in pieces], **CLOSE)
    expected = problem.z + np.repeat(problem.curvatures, np.diff(index.offset)) * buffer
    np.testing.assert_allclose(moves, expected, **CLOSE)

    deficits, masses = buffer.copy(), np.zeros(tables)
    rounds.keep_deficits(0, tables, index, 0.7, deficits, masses)
    lacking = [np.maximum(-buffer[p] - 0.7 / buffer[p].size, 0) for p in pieces]
    np.testing.assert_allclose(deficits, np.concatenate(lacking), **CLOSE)
    np.testing.assert_allclose(masses, [piece.sum() for piece in lacking], **CLOSE)

    values, largest = generator.random(tables), np.zeros(tables)
    rounds.largest_inside(0, tables, index, values, largest)
    assert largest.tolist() == [max(values[list(layout.subsets(t))]) for t in range(tables)]


@shapes
def test_violations_are_counted_by_size_and_share(sizes, family):
    layout = Layout.of(sizes, family)
    marginals = np.random.default_rng(2).normal(size=layout.cells) * 10.0 ** np.random.default_rng(3).integers(-9, 9)
    tables, total = len(layout.sets), 3.0
    worst = np.zeros(tables)
    found = rounds.count_violations(0, tables, layout.index, marginals, total, worst)
    expected, largest = np.zeros(rounds.BINS), []
    for _, table in layout.views(marginals):
        lacking = -table[table < 0]
        largest.append(lacking.max(initial=0))
        # Bin b holds relative sizes from 2^(b − 1 − BINS/2), and up to twice that.
        bins = np.floor(np.log2(lacking * table.size / total)).astype(int) + 1 + rounds.BINS // 2
        np.add.at(expected, bins, 1 / table.size)
    np.testing.assert_allclose(found, expected, **CLOSE)
    assert worst.tolist() == largest


def test_violations_beyond_all_bins_are_counted_in_the_last_ones():
    layout = Layout.of((2,), [(0,)])
    worst = np.zeros(2)
    found = rounds.count_violations(1, 2, layout.index, np.array([0.0, -1e40, -1e-40]), 1.0, worst)
    assert found[0] == found[-1] == 0.5
    assert found.sum() == 1.0


def test_the_least_share_leaves_no_negative_cell_and_no_less_would_do():
    layout, generator = Layout.of((3, 4), [(0, 1)]), np.random.default_rng(5)
    marginals, point = generator.normal(size=layout.cells), generator.uniform(0.1, 1, size=layout.cells)
    tables = len(layout.sets)
    shares = np.zeros(tables)
    rounds.least_share(0, tables, layout.index, marginals, point, shares)
    assert (shares > 0).any()
    for table, share in enumerate(shares.tolist()):
        mixed = (1 - share) * layout.view(marginals, table) + share * layout.view(point, table)
        assert mixed.min() == pytest.approx(0, abs=1e-15) if share > 0 else mixed.min() >= 0


def test_no_share_helps_where_the_other_point_is_not_positive():
    layout = Layout.of((2,), [(0,)])
    shares = np.zeros(2)
    rounds.least_share(0, 2, layout.index, np.array([1.0, -1.0, 2.0]), np.array([1.0, 0.0, 1.0]), shares)
    assert shares.tolist() == [0.0, np.inf]


def test_finished_facets_are_centred_means():
    axes = np.array([3, 2, 4])
    table = np.random.default_rng(6).normal(size=(3, 2, 4))
    sums = [table.sum(axis=j) for j in range(3)]
    slot = np.array([0, 8, 20])
    facets = np.concatenate([one.ravel() for one in sums])
    rounds.finish_facets(axes, 3, facets, slot)
    expected = [sums[0] / 3, sums[1] / 2, sums[2] / 4]
    expected[1] = expected[1] - expected[1].mean(axis=0)
    expected[2] = expected[2] - expected[2].mean(axis=0)
    expected[2] = expected[2] - expected[2].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(facets, np.concatenate([one.ravel() for one in expected]), **CLOSE)
