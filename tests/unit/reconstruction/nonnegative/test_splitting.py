"""The rounds against plain numpy: many of them, what a look says, how penalties follow, and where to start from."""

import numpy as np
import pytest
from plain_rounds import (
    multipliers_of,
    plain_bound,
    plain_loss,
    plain_residuals,
    plain_round,
    random_state,
    shapes,
)

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.reconstruction.nonnegative import Problem, Splitting
from margrave.reconstruction.nonnegative.outer import REPAIR, ROUNDS
from margrave.reconstruction.nonnegative.splitting import first_penalties

CLOSE = {"rtol": 1e-11, "atol": 1e-11}


def facets_of(layout):
    return np.empty(layout.facet_cells)


@shapes
def test_forty_rounds_are_the_plain_ones(sizes, family):
    """A round does not enlarge distances by more than α − 1 < 1 allows: rounding does not grow."""
    rounds = random_state(sizes, family)
    v = rounds.point.copy()
    for _ in range(40):
        rounds.step()
        v = plain_round(rounds.problem, rounds.penalties, v)[1]
    assert rounds.steps == 40
    np.testing.assert_allclose(rounds.point, v, rtol=1e-9, atol=1e-9)


@shapes
def test_residuals_and_tables_are_those_of_the_state(sizes, family):
    rounds = random_state(sizes, family)
    layout = rounds.problem.layout
    rounds.step()
    v = rounds.point.copy()
    found = rounds.residuals(np.empty(layout.cells), facets_of(layout))
    expected = plain_residuals(rounds.problem, rounds.penalties, v)
    np.testing.assert_allclose(found, expected, **CLOSE)
    tables = transform.reconstruct(layout, expected)
    np.testing.assert_allclose(rounds.inner, tables[: layout.inner_cells], **CLOSE)
    assert rounds.write_tables(REPAIR) == pytest.approx(tables[layout.inner_cells :].min(), rel=1e-11, abs=1e-11)
    outer = rounds.parts.part.point(REPAIR)
    np.testing.assert_allclose(outer, tables[layout.inner_cells :], **CLOSE)
    assert rounds.total == pytest.approx(tables[0], rel=1e-11, abs=1e-11)
    assert rounds.loss(REPAIR, rounds.inner) == pytest.approx(plain_loss(rounds.problem, expected), rel=1e-10)
    outer += np.where(np.arange(outer.size) % 2, 0.25, -0.5)
    assert rounds.distance(REPAIR) == pytest.approx(sum(0.25 if k % 2 else 0.5 for k in range(outer.size)), rel=1e-9)
    assert np.array_equal(rounds.point, v)


@shapes
def test_a_round_without_relaxation_leaves_the_state_and_tells_what_is_negative(sizes, family):
    rounds = random_state(sizes, family)
    rounds.step()
    v = rounds.point.copy()
    negative = rounds.step(relaxation=0.0)
    assert np.array_equal(rounds.point, v)
    tables = transform.reconstruct(rounds.problem.layout, plain_residuals(rounds.problem, rounds.penalties, v))
    lacking = np.maximum(-tables[rounds.problem.layout.inner_cells :], 0).sum()
    assert negative == pytest.approx(lacking, rel=1e-11, abs=1e-12)


@shapes
def test_a_look_is_the_difference_of_loss_and_bound(sizes, family):
    """Equation (4) against the loss and the dual, each evaluated by itself; and the dual against plain numpy."""
    rounds = random_state(sizes, family)
    problem, layout = rounds.problem, rounds.problem.layout
    rounds.run(7)
    look = rounds.look()
    residuals = plain_residuals(problem, rounds.penalties, rounds.point)
    x = transform.reconstruct(layout, residuals)[layout.inner_cells :]
    multipliers = multipliers_of(rounds)
    loss, dual = plain_loss(problem, residuals), plain_bound(problem, multipliers)
    # Terms as large as the loss cancel.
    scale = loss + abs(dual)
    assert rounds.bound() == pytest.approx(dual, rel=1e-10, abs=1e-11 * scale)
    assert look.excess == pytest.approx(loss - dual, rel=1e-9, abs=1e-11 * scale)
    assert look.owed == pytest.approx(float(multipliers @ np.maximum(-x, 0)), rel=1e-9, abs=1e-11)
    assert look.violation == pytest.approx(max(0.0, -x.min()), rel=1e-11, abs=1e-12)
    outer = len(layout.sets) - layout.outer
    assert look.negative == pytest.approx(np.maximum(-x, 0).sum() / outer, rel=1e-11, abs=1e-12)
    assert look.total == pytest.approx(residuals[0], rel=1e-11, abs=1e-11)
    # None of it has changed the rounds.
    v = plain_round(problem, rounds.penalties, rounds.point.copy())[1]
    rounds.step()
    np.testing.assert_allclose(rounds.point, v, rtol=1e-9, atol=1e-9)


def four_tables():
    layout = Layout.of((2, 3, 4, 2), [(0, 1), (1, 2), (2, 3), (0, 3)])
    z = transform.center(layout, np.random.default_rng(0).normal(size=layout.cells))
    return Splitting(Problem(layout, z, np.ones(len(layout.sets))), penalties=transform.outer_weights(layout))


def test_penalties_follow_the_moves_of_their_own_tables():
    """By hand: all together 16 to 4, a ratio of 2 in norms; tables may be within 2/3 and 6."""
    rounds = four_tables()
    part, outer = rounds.parts.part, slice(rounds.problem.layout.outer, None)
    part.moves(ROUNDS).multiplier[outer] = [4.0, 12.0, 0.0, 0.0]
    part.moves(ROUNDS).kept[outer] = [1.0, 0.0, 3.0, 0.0]
    ratios = np.array([2.0, 6.0, 2 / 3, 1.0])
    np.testing.assert_allclose(part.balanced(ROUNDS, 2.0)[outer], np.sqrt(ratios), rtol=1e-12)
    assert not part.balanced(ROUNDS, 2.0)[: outer.start].any()


def test_penalties_change_by_a_factor_of_ten_at_most_and_not_at_rest():
    rounds = four_tables()
    part, outer = rounds.parts.part, slice(rounds.problem.layout.outer, None)
    assert part.balanced(ROUNDS, 1.0)[outer].tolist() == [1.0] * 4
    part.moves(ROUNDS).multiplier[outer] = 1.0
    assert part.balanced(ROUNDS, 1e150)[outer].tolist() == [10.0] * 4
    part.moves(ROUNDS).kept[outer] = 1e9
    np.testing.assert_allclose(part.balanced(ROUNDS, 1e-4)[outer], 0.1)


def test_penalties_follow_every_second_round_and_later_less_often():
    rounds = four_tables()
    part, when = rounds.parts.part, []
    balanced = part.balanced

    def watched(state, together):
        when.append(rounds.steps)
        moves = [one[rounds.problem.layout.outer :].sum() for one in part.moves(state)]
        assert together == pytest.approx(np.sqrt(moves[1] / moves[0]))
        return balanced(state, together)

    part.balanced = watched
    rounds.run(60)
    assert when == [*range(2, 31, 2), 33, 36, 39, 42, 46, 50, 55]


def test_penalties_start_at_ten_times_the_least_typical_quotient_in_proportion_to_weights():
    """Sizes of two, all pairs of three: h = 3/4 for the total, 1 for one attribute, 1 for pairs (ρ = 1).

    The pairs have weights 5 and 7, of the geometric mean √35; what is held counts as an average table.
    """
    layout = Layout.of((2, 2, 2), [(0, 1), (0, 2), (1, 2)])
    weights = np.array([9.0, 2.0, 4.0, 8.0, 5.0, 7.0, np.inf])
    shares = np.array([0, 0, 0, 0, 5 / np.sqrt(35), 7 / np.sqrt(35), 1])
    expected = 10 * shares * min(9 / 0.75, 4 / 1, 6 / 1)
    np.testing.assert_allclose(first_penalties(Problem(layout, np.zeros(layout.cells), weights)), expected)


def test_a_penalty_grows_to_the_weight_times_the_rounds_ahead_at_most():
    """Moves that ask for ever larger penalties; one that is larger from the start stays as it is."""
    rounds = four_tables()
    part, outer = rounds.parts.part, rounds.problem.layout.outer
    rounds.run(1)
    moves = part.moves(ROUNDS)
    for count in range(2, 30):
        moves.kept[:], moves.multiplier[:] = 1.0, 1e12
        before = rounds.penalties[outer:].copy()
        rounds.step(penalties=part.balanced(ROUNDS, 1e6))
        most = (count - 1 + 40) * rounds.problem.weights[outer:]
        np.testing.assert_allclose(rounds.penalties[outer:], np.minimum(np.maximum(before, most), 10 * before))
    assert (rounds.penalties[outer:] >= 40 * rounds.problem.weights[outer:]).all()


def test_penalties_where_everything_is_held():
    layout = Layout.of((2, 3), [(0, 1)])
    problem = Problem(layout, np.ones(layout.cells), np.full(4, np.inf))
    assert first_penalties(problem).tolist() == [0.0, 0.0, 0.0, 10.0]


def test_a_state_that_is_carried_over_goes_on_as_if_nothing_had_happened():
    layout = Layout.of((4, 3, 5), [(0, 1), (1, 2), (0, 2)])
    values = 6 * transform.center(layout, np.random.default_rng(3).normal(size=layout.cells))
    values[0] = 40.0
    problem = Problem(layout, values, np.ones(7))
    rounds = Splitting(problem)
    rounds.run(25)
    again = Splitting(problem, rounds.point.copy(), rounds.penalties.copy())
    for _ in range(5):
        rounds.step()
        again.step()
    np.testing.assert_allclose(again.point, rounds.point, rtol=1e-12, atol=1e-12)


@shapes
def test_the_first_state_is_the_tables_of_the_estimates(sizes, family):
    problem = random_state(sizes, family).problem
    tables = transform.reconstruct(problem.layout, problem.z.copy())[problem.layout.inner_cells :]
    assert np.array_equal(Splitting(problem).point, tables)
