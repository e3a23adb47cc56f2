"""The non-negative solver's manners: what it refuses and what it says (laws: tests/laws)."""

import inspect
import itertools
import re
from dataclasses import FrozenInstanceError
from itertools import combinations

import numpy as np
import pytest

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.errors import MeasurementError, ReleaseError
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.nonnegative import State, Status, reconstruct_nonnegative
from margrave.reconstruction.nonnegative import solver as solver_module

LAYOUT = Layout.of((3, 2, 1), [(0, 1, 2)])
# The total, three attributes, three pairs, the triple: k_τ, with nothing measured where an attribute has one value.
COUNTS = np.array([3, 1, 0, 0, 2, 0, 0, 0])
PRECISIONS = np.array([0.5, 2.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0])
INF = np.inf


def estimates_of(values=None, counts=COUNTS, precisions=PRECISIONS, layout=LAYOUT):
    return Estimates(layout, np.zeros(layout.cells) if values is None else values, counts, precisions)


def noisy(seed=0, total=20.0, layout=LAYOUT):
    generator = np.random.default_rng(seed)
    values = 6 * transform.center(layout, generator.normal(size=layout.cells))
    values[0] = total
    ones = np.ones(len(layout.sets))
    return Estimates(layout, values, ones.astype(np.int64), ones)


def refused(text):
    return pytest.raises(ReleaseError, match=re.escape(text))


@pytest.mark.parametrize("weights", ["papr", 0, -2.0, INF, np.nan])
def test_unknown_weights_are_refused(weights):
    with refused(f"weights is {weights!r}; give 'paper', 'noise', a positive number b for b^(−|τ|), or one weight a"):
        reconstruct_nonnegative(noisy(), weights=weights)


@pytest.mark.parametrize("eta", [0, -1.0, np.nan, "x", True, 1j])
def test_eta_must_be_positive_even_where_everything_was_measured(eta):
    for estimates in (estimates_of(), noisy()):
        with refused(f"eta is {eta!r}; give a positive number, or None for the default"):
            reconstruct_nonnegative(estimates, eta=eta)


def test_a_weight_of_zero_is_refused_and_so_are_too_few():
    with refused("eta is None or a weight is not positive; give positive numbers"):
        reconstruct_nonnegative(estimates_of(), weights=np.zeros(8))
    with pytest.raises(MeasurementError, match=r"one number per table has shape \(8,\), this array has \(7,\)"):
        reconstruct_nonnegative(estimates_of(), weights=np.ones(7))


@pytest.mark.parametrize("tolerance", [0, -1e-3, np.nan, None, "1e-4", True, 1j])
def test_the_tolerance_must_be_positive(tolerance):
    with refused(f"tolerance is {tolerance!r}; give a positive number, such as 1e-4"):
        reconstruct_nonnegative(noisy(), tolerance=tolerance)


@pytest.mark.parametrize("most_negative", [-1e-9, np.nan, -INF, None, "x", True, 1j])
def test_the_most_negative_cell_must_be_a_number_from_zero_on(most_negative):
    with refused(f"most_negative is {most_negative!r}; give a number from 0 on: how far below zero a cell may be"):
        reconstruct_nonnegative(noisy(), most_negative=most_negative)


@pytest.mark.parametrize("max_steps", [0, -5, "x", True, 1.5, None, np.nan, 1j])
def test_steps_must_be_a_whole_number_from_one_on(max_steps):
    with refused(f"max_steps is {max_steps!r}; give a whole number of at least 1"):
        reconstruct_nonnegative(noisy(), max_steps=max_steps)
    assert reconstruct_nonnegative(noisy(), max_steps=np.int64(3)).steps == 3


@pytest.mark.parametrize(
    ("point", "penalties"),
    [
        (np.zeros(5), np.ones(8)),
        (np.zeros((6, 1)), np.ones(8)),
        (np.full(6, np.nan), np.ones(8)),
        (np.full(6, INF), np.ones(8)),
        (np.zeros(6), np.ones(7)),
        (np.zeros(6), np.zeros(8)),
        (np.zeros(6), np.full(8, np.nan)),
    ],
)
def test_a_start_of_another_workload_is_refused(point, penalties):
    text = f"the state to start from has {point.size} cells and {penalties.size} penalties, or numbers that it cannot"
    with refused(text):
        reconstruct_nonnegative(noisy(), start=State(point, penalties))


def test_a_start_is_a_state():
    with refused("expected the state of a solution to start from, got a ndarray; give solution.state of an earlier"):
        reconstruct_nonnegative(noisy(), start=np.zeros(6))


def test_complex_numbers_are_refused():
    with pytest.raises(
        MeasurementError, match="the array of one number per table holds complex numbers; give real ones"
    ):
        reconstruct_nonnegative(noisy(), weights=np.ones(8, dtype=complex))
    with pytest.raises(MeasurementError, match="a buffer of this workload holds complex numbers; give real ones"):
        transform.reconstruct(LAYOUT, np.zeros(LAYOUT.cells, dtype=complex))


def test_a_held_total_must_not_be_negative():
    with refused("the total is held at -3.5, which no table without negative cells has; do not hold it"):
        reconstruct_nonnegative(noisy(total=-3.5), hold=[0])


@pytest.mark.parametrize("total", [0.0, -0.0])
@pytest.mark.parametrize("weights", ["paper", "noise", 3.0, np.array([INF, 1, 1, 1, 1, 1, 1, 1])], ids=str)
def test_a_total_held_at_zero_gives_the_only_tables_there_are(weights, total):
    solution = reconstruct_nonnegative(noisy(total=total), weights=weights, hold=[0])
    assert solution.status is Status.SOLVED
    assert not solution.marginals.any()
    assert (solution.gap, solution.lift, solution.violation, solution.steps) == (0.0, 0.0, 0.0, 0)
    # The solution is one to start another solve from.
    again = reconstruct_nonnegative(noisy(), start=solution.state)
    assert again.status is Status.SOLVED


def test_a_total_held_at_zero_leaves_no_other_residual_to_hold():
    with refused("the total is held at 0, with which all tables are zero, and another held residual is not zero"):
        reconstruct_nonnegative(noisy(total=0.0), hold=[0, 4])
    assert not reconstruct_nonnegative(estimates_of(), hold=[0, 4]).marginals.any()
    with refused("the total is held and was never measured; do not hold it, or measure it"):
        reconstruct_nonnegative(estimates_of(counts=0 * COUNTS, precisions=0 * PRECISIONS), hold=[0])


def test_held_residuals_must_not_fix_a_negative_table():
    values = np.zeros(LAYOUT.cells)
    values[0] = 10.0
    LAYOUT.view(values, LAYOUT.places[(1,)])[...] = [7.0, -7.0]
    estimates = estimates_of(values)
    with refused("fix a table over 1 attributes (number 2) with the negative cell -2; hold fewer residuals"):
        reconstruct_nonnegative(estimates, hold=[0, 2])
    # Without the total the table can grow; without the residual it can bend.
    for hold in ([2], [0]):
        solution = reconstruct_nonnegative(estimates, hold=hold)
        assert solution.status is Status.SOLVED
        assert (solution.marginals >= 0).all()


def test_holding_everything_returns_the_tables_as_they_are():
    people = np.random.default_rng(1).uniform(0, 1, size=(3, 2, 1))
    people[0, 0, 0] = 0.0
    tables = np.concatenate(
        [people.sum(axis=tuple(k for k in range(3) if k not in gamma)).ravel() for gamma in LAYOUT.sets]
    )
    values = transform.center(LAYOUT, tables)
    solution = reconstruct_nonnegative(estimates_of(values), hold=range(8))
    assert solution.status is Status.SOLVED
    assert solution.gap == 0.0
    # The cell of zero may come out a rounding below it, and is then put back.
    np.testing.assert_allclose(solution.marginals, tables, atol=1e-15)
    assert (solution.marginals >= 0).all()


def test_defaults_are_the_papers():
    found = {name: one.default for name, one in inspect.signature(reconstruct_nonnegative).parameters.items()}
    del found["estimates"]
    assert found == {
        "weights": "paper",
        "eta": None,
        "hold": (),
        "tolerance": 1e-4,
        "most_negative": INF,
        "max_steps": 20_000,
        "progress": None,
        "start": None,
        "workers": None,
    }


def test_progress_is_called_at_each_look_with_the_gap():
    calls = []
    solution = reconstruct_nonnegative(
        noisy(), tolerance=1e-300, max_steps=35, progress=lambda steps, gap: calls.append((steps, gap))
    )
    assert [steps for steps, _ in calls] == [10, 20, 30, 35]
    assert calls[-1] == (solution.steps, solution.gap)


def test_looks_come_earlier_where_the_end_is_expected():
    """Never nearer than three rounds, and not further apart than ten, or a tenth of the rounds so far."""
    nearer = 0
    for seed in range(8):
        looks = []
        reconstruct_nonnegative(
            noisy(seed), tolerance=1e-9, progress=lambda steps, gap, looks=looks: looks.append(steps), hold=(0,)
        )
        for before, after in itertools.pairwise(looks):
            assert 3 <= after - before <= max(10, 0.1 * before)
            nearer += after - before < 10
    assert nearer > 0


def test_what_a_certificate_moved_is_expected_again_of_the_same_look(monkeypatch):
    learned = []
    learn = solver_module._Run._learn

    def noted(run, look, proof):
        learn(run, look, proof)
        learned.append((look.negative, run._expected(look)[1], proof.lift))

    monkeypatch.setattr(solver_module._Run, "_learn", noted)
    layout = Layout.of((6, 5, 7, 4), [(0, 1, 2), (1, 2, 3), (0, 2, 3)])
    reconstruct_nonnegative(noisy(3, 60.0, layout), tolerance=1e-300, max_steps=20)
    moved = [(found, lift) for negative, found, lift in learned if negative > 0]
    assert moved
    assert [found for found, _ in moved] == pytest.approx([lift for _, lift in moved], rel=1e-12)


def test_an_expected_gap_is_of_the_size_of_the_proven_one():
    """The looks decide when to repair: if they expected ten times too little or too much, repairs would come in vain
    or too late. The state after 20 rounds is expected in a long run and proven in a short one."""
    layout = Layout.of((6, 5, 7, 4), [(0, 1, 2), (1, 2, 3), (0, 2, 3)])
    for seed in range(4):
        calls = []
        estimates = noisy(seed, 60.0, layout)
        reconstruct_nonnegative(estimates, tolerance=1e-7, progress=lambda steps, gap, calls=calls: calls.append(gap))
        proven = reconstruct_nonnegative(estimates, tolerance=1e-300, max_steps=20).gap
        assert proven / 10 < calls[1] < 10 * proven


def test_too_few_steps_give_honest_tables_and_say_so():
    estimates = noisy(seed=3)
    solution = reconstruct_nonnegative(estimates, max_steps=2)
    assert solution.status is Status.MAX_STEPS
    assert solution.status.value.startswith("stopped at max_steps before the tolerance was reached; raise max_steps or")
    assert solution.steps == 2
    assert 1e-4 < solution.gap < INF
    assert solution.violation > 0
    assert 0 < solution.lift <= 1
    assert (solution.marginals >= 0).all()
    table = LAYOUT.view(solution.marginals, 7)
    np.testing.assert_allclose(table.sum(axis=(1, 2)), LAYOUT.view(solution.marginals, 1), rtol=1e-12, atol=1e-12)
    better = reconstruct_nonnegative(estimates)
    assert better.status is Status.SOLVED
    assert better.status.value == "solved to the tolerance asked for"
    assert better.gap <= 1e-4
    assert better.lift <= 1e-3


def test_the_most_negative_cell_is_a_tolerance_of_its_own():
    estimates = noisy(layout=Layout.of((4, 3, 5, 2), [(0, 1, 3), (1, 2), (0, 2, 3)]))
    loose = reconstruct_nonnegative(estimates, tolerance=0.5)
    strict = reconstruct_nonnegative(estimates, tolerance=0.5, most_negative=1e-9)
    assert strict.violation <= 1e-9 < loose.violation
    assert strict.steps > loose.steps
    hasty = reconstruct_nonnegative(estimates, tolerance=0.5, most_negative=1e-9, max_steps=loose.steps)
    assert hasty.status is Status.MAX_STEPS


def test_tables_without_negative_cells_are_left_alone():
    estimates = noisy(total=1000.0)
    solution = reconstruct_nonnegative(estimates)
    assert solution.gap == solution.lift == solution.violation == 0.0
    assert not solution.state.multipliers(LAYOUT).any()
    assert np.array_equal(solution.marginals, transform.reconstruct(LAYOUT, estimates.values.copy()))


def test_estimates_are_not_touched_and_solutions_are_frozen():
    estimates = noisy()
    before = estimates.values.copy()
    solution = reconstruct_nonnegative(estimates, hold=[0])
    assert np.array_equal(estimates.values, before)
    assert solution.marginals[0] == pytest.approx(before[0], rel=1e-14)
    with pytest.raises(FrozenInstanceError):
        solution.gap = 0.0


def test_where_the_loss_is_next_to_nothing_the_gap_is_absolute():
    """Tables that are exact but for rounding, with cells at zero: a relative gap would compare two roundings."""
    layout = Layout.of((4, 3, 5), [(0, 1), (1, 2), (0, 2)])
    data = np.zeros((4, 3, 5))
    data[0, 0, 0], data[1, 2, 3] = 1e9, 7.0
    tables = np.zeros(layout.cells)
    for number, members in enumerate(layout.sets):
        summed = tuple(axis for axis in range(3) if axis not in members)
        layout.view(tables, number)[...] = data.sum(axis=summed)
    ones = np.ones(len(layout.sets))
    exact = Estimates(layout, transform.decompose(layout, tables), ones.astype(np.int64), ones)
    solution = reconstruct_nonnegative(exact, weights=2.0)
    assert solution.status is Status.SOLVED
    # Within rounding of a billion: 2⁻⁵³ for each of the few operations on a cell.
    np.testing.assert_allclose(solution.marginals, tables, atol=1e9 * 2.0**-48)


def test_how_near_is_said_in_words():
    unfinished = reconstruct_nonnegative(noisy(), max_steps=7)
    assert unfinished.nearness("2e-5") == "within 2e-5 (relative) of the best fit, after 7 rounds"
    text = "the best fit itself: no cell was negative, no round was needed"
    assert reconstruct_nonnegative(noisy(total=1000.0)).nearness("0") == text


def test_a_state_with_other_penalties_has_the_same_tables_and_multipliers():
    solution = reconstruct_nonnegative(noisy())
    state, other = solution.state, 3 * solution.state.penalties
    before, multipliers = state.point.copy(), state.multipliers(LAYOUT)
    assert multipliers.max() > 0
    changed = State(before.copy(), state.penalties).with_penalties(other, LAYOUT)
    np.testing.assert_allclose(changed.multipliers(LAYOUT), multipliers, rtol=1e-14)
    np.testing.assert_array_equal(np.maximum(changed.point, 0), np.maximum(before, 0))


def test_a_start_near_by_saves_rounds():
    """Noise of a hundredth of what the first solve had: fewer rounds on each of ten draws, two thirds on average."""
    layout = Layout.of((6, 5, 7, 4, 5), list(combinations(range(5), 3)))
    rounds = []
    for seed in range(10):
        estimates = noisy(seed, 200.0, layout)
        first = reconstruct_nonnegative(estimates)
        values = 0.06 * transform.center(layout, np.random.default_rng(100 + seed).normal(size=layout.cells))
        moved = Estimates(layout, estimates.values + values, estimates.counts, estimates.precisions)
        cold, warm = (reconstruct_nonnegative(moved, start=start) for start in (None, first.state))
        assert warm.status is Status.SOLVED
        assert warm.steps < cold.steps
        rounds.append((warm.steps, cold.steps))
    warm_rounds, cold_rounds = np.sum(rounds, axis=0)
    assert warm_rounds <= 2 / 3 * cold_rounds
