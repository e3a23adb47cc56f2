"""Every residual from its own measurement and from what the others predict: limits, chains, and more never hurts."""

from itertools import combinations
from math import erfc, exp, pi, sqrt

import numpy as np
import pytest

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.nonnegative import reconstruct_nonnegative
from margrave.reconstruction.prior import automatic
from margrave.reconstruction.prior import levels as levels_module
from margrave.reconstruction.prior.cells import mutual_information
from margrave.reconstruction.prior.levels import Levels, hold_rare_values
from tests.planner import count_tables


def classes(rows, sizes, groups, seed):
    """Rows of latent classes: codes of each attribute."""
    draw = np.random.default_rng(seed)
    group = draw.choice(groups, rows, p=draw.dirichlet(np.ones(groups)))
    columns = []
    for size in sizes:
        profiles = np.cumsum(draw.dirichlet(np.full(size, 0.5), groups), axis=1)
        columns.append(np.minimum((draw.random(rows)[:, None] > profiles[group]).sum(axis=1), size - 1))
    return columns


def functions(rows, sizes, seed):
    """Rows in which every second attribute is nearly a function of the one before it."""
    draw = np.random.default_rng(seed)
    columns = [np.minimum(draw.geometric(0.3, rows) - 1, sizes[0] - 1)]
    for place, size in enumerate(sizes[1:], start=1):
        code = draw.integers(0, size, sizes[place - 1])[columns[-1]]
        other = np.minimum(draw.geometric(0.4, rows) - 1, size - 1)
        columns.append(np.where(draw.random(rows) < (0.95 if place % 2 else 0.2), code, other))
    return columns


def measure(layout, truth, variances, seed):
    """Residuals with centred Gaussian noise, those of infinite variance left out."""
    draw = np.random.default_rng(seed)
    finite = np.where(np.isfinite(variances), variances, 0.0)
    noise = draw.normal(size=layout.cells) * np.repeat(np.sqrt(finite), np.diff(layout.index.offset))
    values = transform.decompose(layout, truth) + transform.center(layout, noise)
    counts = (np.isfinite(variances) & (layout.degrees > 0)).astype(np.int64)
    values[np.repeat(counts == 0, np.diff(layout.index.offset))] = 0.0
    return Estimates(layout, values, counts, np.where(counts > 0, 1 / np.maximum(variances, 1e-300), 0.0))


def dropped(estimates, tables):
    """The same measurements without those of some tables."""
    counts, precisions, values = estimates.counts.copy(), estimates.precisions.copy(), np.array(estimates.values)
    counts[tables], precisions[tables] = 0, 0.0
    values[np.repeat(tables, np.diff(estimates.layout.index.offset))] = 0.0
    return Estimates(estimates.layout, values, counts, precisions)


def error(estimates, truth):
    """Mean L1 error of the outer tables, over the number of people."""
    layout, choice = estimates.layout, automatic(estimates)
    found = reconstruct_nonnegative(
        choice.estimates, weights=choice.weights, hold=choice.hold, tolerance=1e-3, max_steps=400
    ).marginals
    starts = layout.index.offset[layout.outer : -1] - layout.inner_cells
    return np.add.reduceat(np.abs(found - truth)[layout.inner_cells :], starts).mean() / truth[0]


CASES = {
    "latent classes": (4_000, (5, 3, 8, 2, 6, 4), lambda n, s: classes(n, s, 6, 1)),
    "binary": (3_000, (2,) * 9, lambda n, s: classes(n, s, 8, 2)),
    "functions": (2_000, (9, 6, 12, 5, 7), lambda n, s: functions(n, s, 3)),
}


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request):
    rows, sizes, make = CASES[request.param]
    layout = Layout.of(sizes, list(combinations(range(len(sizes)), 3)))
    return layout, count_tables(layout, make(rows, sizes))


@pytest.mark.parametrize("scale", [3.0, 30.0])
def test_a_measurement_without_content_changes_nothing(case, scale):
    """Noise a billion times the people: the estimates are those without the measurement, to 1e-6 of the people."""
    layout, truth = case
    top = layout.index.order == 3
    some = top & (np.arange(len(layout.sets)) % 2 == 0)
    variances = np.where(some, (1e9 * truth[0]) ** 2, scale**2)
    estimates = measure(layout, truth, variances, 1)
    with_it, without = automatic(estimates), automatic(dropped(estimates, some))
    np.testing.assert_allclose(with_it.estimates.values, without.estimates.values, rtol=0, atol=1e-6 * truth[0])
    np.testing.assert_allclose(with_it.weights, without.weights, rtol=1e-3)


@pytest.mark.parametrize("scale", [3.0, 20.0, 100.0])
@pytest.mark.parametrize("share", [0.01, 0.03, 0.1, 0.3, 0.7])
def test_measured_triples_are_never_worse_than_none(case, scale, share):
    """Triples with a share of the budget, pairs the rest: throwing the triples away must not pay.

    Mean over draws, paired. The ratio of the two errors varies by about 0.02 from draw to draw. Power: where triples
    cost 5 %, two draws have a mean below 1, which ends the test, in one of 5,000 runs, and eight one below 1.03 in one
    of 400. False alarms: where triples cost nothing, the mean of eight has a standard error below 0.01, and 1.03 would
    be passed by chance in one of a thousand runs; seeds are fixed.
    """
    layout, truth = case
    order = layout.index.order
    variances = np.full(len(layout.sets), scale**2)
    variances[order == 2] /= 1 - share
    variances[order == 3] /= share
    with_them, without = 0.0, 0.0
    for seed in range(8):
        estimates = measure(layout, truth, variances, seed)
        with_them += error(estimates, truth)
        without += error(dropped(estimates, order == 3), truth)
        if seed == 1 and with_them <= without:
            return
    assert with_them <= 1.03 * without


def test_precise_measurements_are_kept(case):
    layout, truth = case
    estimates = measure(layout, truth, np.full(len(layout.sets), 1e-6), 2)
    found = automatic(estimates)
    # Tables that predict are settled in thirty rounds, which leaves less than half a person.
    np.testing.assert_allclose(found.estimates.values, estimates.values, rtol=0, atol=0.5)


def test_mere_noise_gives_what_the_smaller_tables_predict():
    """Two independent attributes and a pair of pure noise: the residual is that of independence, to 10 % of N."""
    layout = Layout.of((20, 15), [(0, 1)])
    shares = np.random.default_rng(1).dirichlet(np.full(20, 2.0)), np.random.default_rng(2).dirichlet(np.full(15, 2.0))
    truth = np.zeros(layout.cells)
    layout.view(truth, layout.places[0, 1])[...] = 10_000 * np.multiply.outer(*shares)
    estimates = measure(layout, truth, np.where(layout.index.order == 2, 1e6, 1.0), 3)
    found = layout.view(automatic(estimates).estimates.values, layout.places[0, 1])
    expected = layout.view(transform.decompose(layout, truth), layout.places[0, 1])
    assert np.abs(found - expected).sum() < 0.1 * 10_000


def test_a_pair_that_was_not_measured_is_expected_through_a_third_attribute():
    """a and b follow c, and both are measured with it alone: independent given c, by hand."""
    draw = np.random.default_rng(4)
    a_given, b_given = draw.dirichlet(np.full(4, 0.3), 3), draw.dirichlet(np.full(5, 0.3), 3)
    joint = 30_000 * np.einsum("c,ca,cb->abc", [0.5, 0.3, 0.2], a_given, b_given)
    layout = Layout.of((4, 5, 3), list(combinations(range(3), 2)))
    truth = np.zeros(layout.cells)
    for table, members in enumerate(layout.sets):
        layout.view(truth, table)[...] = joint.sum(axis=tuple(k for k in range(3) if k not in members))
    pair = layout.places[0, 1]
    variances = np.where(np.arange(len(layout.sets)) == pair, np.inf, 1e-4)
    levels = Levels(
        layout, measure(layout, truth, variances, 5).values, np.where(layout.index.order, variances, 0), truth[0]
    )
    levels.run()
    expected = layout.view(transform.decompose(layout, truth), pair)
    np.testing.assert_allclose(layout.view(levels.residuals, pair), expected, atol=1e-3 * truth[0])


def test_predictions_through_several_attributes_count_by_what_they_share_and_how_near_they_are():
    """Equation (4) by loops, for a pair of four attributes that was measured."""
    draw = np.random.default_rng(8)
    joint = draw.dirichlet(np.full(3 * 4 * 2 * 5, 0.2)).reshape(3, 4, 2, 5) * 2_000
    layout = Layout.of(joint.shape, list(combinations(range(4), 2)))
    tables = np.zeros(layout.cells)
    for table, members in enumerate(layout.sets):
        layout.view(tables, table)[...] = joint.sum(axis=tuple(k for k in range(4) if k not in members))
    pair, variance = layout.places[0, 1], 40.0
    measured = draw.normal(size=layout.cells) * 5
    levels = Levels(layout, measured, np.where(layout.index.order, variance, 0.0), 2_000.0)
    levels._chain((layout, tables))

    def pair_of(first, second):
        return joint.sum(axis=tuple(k for k in range(4) if k not in (first, second)))

    def information(first, second):
        table = pair_of(first, second) / 2_000
        return (table * np.log(table / np.outer(table.sum(1), table.sum(0)))).sum()

    center_rows, center_columns = np.eye(3) - 1 / 3, np.eye(4) - 1 / 4
    predictions, logs = [], []
    for third, axis in ((2, 2), (3, 3)):
        by_third = joint.sum(axis=tuple(k for k in range(4) if k != axis))
        prediction = np.zeros((3, 4))
        for value in range(len(by_third)):
            prediction += np.outer(pair_of(0, third)[:, value], pair_of(1, third)[:, value]) / by_third[value]
        distance = ((layout.view(measured, pair) - center_rows @ prediction @ center_columns) ** 2).sum()
        predictions.append(prediction)
        logs.append((min(information(0, third), information(1, third)), distance))
    spread = max(variance, min(distance for _, distance in logs) / 6)
    weights = np.array([shared**2 * np.exp(-distance / (2 * spread)) for shared, distance in logs])
    expected = np.tensordot(weights / weights.sum(), predictions, 1)
    np.testing.assert_allclose(layout.view(levels.residuals, pair), expected, rtol=1e-9)


def test_a_cell_far_above_the_noise_of_a_large_table_is_kept_and_not_outgrown_by_the_others():
    """Four of five people in one cell of 250,000; the noise is a hundredth of it, and hundreds of times the rest."""
    layout = Layout.of((500, 500), [(0, 1)])
    truth = np.zeros(layout.cells)
    table = layout.view(truth, layout.places[0, 1])
    table[...] = 0.04
    table[12, 34] = 40_000.0
    estimates = measure(layout, truth, np.where(layout.index.order == 2, 160_000.0, 100.0), 6)
    values = transform.reconstruct(layout, automatic(estimates).estimates.values)
    assert layout.view(values, layout.places[0, 1])[12, 34] == pytest.approx(40_000, abs=4 * 400)


def test_more_noise_is_expected_to_err_more_and_nothing_measured_the_most(case):
    layout, truth = case
    errors = []
    for variance in (1.0, 100.0, 1e4, np.inf):
        variances = np.where(layout.index.order == 3, variance, 25.0)
        estimates = measure(layout, truth, variances, 7)
        levels = Levels(layout, estimates.values, np.where(layout.index.order, variances, 0.0), truth[0])
        levels.run()
        errors.append(levels.errors[layout.index.order == 3].mean())
    assert errors == sorted(errors)
    assert errors[0] <= 1.0


@pytest.mark.parametrize("people", [300.0, 800.0, 5_000.0])
def test_a_rare_value_that_was_measured_precisely_is_kept(people):
    """A cell far below what was predicted is known to its noise: neither cut to zero nor pulled towards the others.

    Forty binary attributes of which one value is rare, noise of standard deviation 100 a cell. The posterior mean may
    move a cell by a part of the noise; 3 standard deviations on average over all is what a grid too coarse would do.
    """
    rows, attributes = 40_000.0, 40
    layout = Layout.of((2,) * attributes, [(one,) for one in range(attributes)])
    truth = np.zeros(layout.cells)
    truth[0] = rows
    truth[1::2], truth[2::2] = rows - people, people
    residuals = transform.center(layout, truth)
    draw = np.random.default_rng(0)
    variances = np.full(len(layout.sets), 2 * 100.0**2)
    variances[0] = 1.0
    noise = transform.center(layout, np.sqrt(2) * 100 * draw.standard_normal(layout.cells))
    noise[0] = 0.0
    measured = residuals + noise
    levels = Levels(layout, measured, np.where(layout.index.order, variances, 0.0), rows)
    levels.run()
    error = np.abs(levels.residuals - residuals)[1:].mean()
    assert error < 1.1 * np.abs(noise[1:]).mean()


def test_a_single_attribute_that_was_not_measured_has_what_its_pair_says():
    """b and the residual of the pair are known; without a negative cell a can only be as uneven as it is."""
    layout, joint = Layout.of((2, 2), [(0, 1)]), np.array([[60.0, 0.0], [20.0, 20.0]])
    truth = np.zeros(layout.cells)
    for table, members in enumerate(layout.sets):
        layout.view(truth, table)[...] = joint.sum(axis=tuple(k for k in range(2) if k not in members))
    measured, single = transform.decompose(layout, truth), layout.places[(0,)]
    variances = np.where(layout.index.order > 0, 0.01, 0.0)
    variances[single] = np.inf
    layout.view(measured, single)[...] = 0.0
    levels = Levels(layout, measured, variances, truth[0])
    levels.run()
    # Tables are settled by some rounds of the solver, not solved: it goes more than half of the way.
    residual = layout.view(levels.residuals, single)
    assert 5.0 < residual[0] <= 10.0
    assert residual[1] == pytest.approx(-residual[0])


def test_single_attributes_stay_as_the_pairs_left_them(case, monkeypatch):
    """The total and rare values apart, each is the settled table of its attribute; one that is held is as measured."""
    layout, truth = case
    monkeypatch.setattr(levels_module, "hold_rare_values", lambda table, measured, variance: None)
    variances = np.where(layout.index.order > 0, 200.0, 0.0)
    held = layout.places[(1,)]
    variances[held] = 0.0
    measured = measure(layout, truth, variances, 8).values
    levels, settled = Levels(layout, measured, variances, truth[0]), []
    singles = levels._singles

    def noted():
        levels._inner *= 1.05  # as where cells below zero were cut off: no longer the total
        settled.append(levels._inner.copy())
        return singles()

    monkeypatch.setattr(levels, "_singles", noted)
    levels.run()
    (inner,) = settled
    for k in range(len(layout.sizes)):
        place = layout.places[(k,)]
        table = layout.view(inner, place)
        expected = (
            layout.view(measured, place) if place == held else table * truth[0] / table.sum() - truth[0] / table.size
        )
        np.testing.assert_allclose(layout.view(levels.residuals, place), expected, rtol=1e-9, atol=1e-7)
    assert levels.residuals[0] == truth[0]


def test_rare_values_move_together_towards_what_was_measured_of_their_sum():
    """Equation (5), written out: four rare values, one that is nearly so, two frequent ones."""
    variance, cells = 7 / 6 * 10.0**2, 7  # a standard error of 10 a cell
    table = np.array([4.0, 6.0, 2.0, 8.0, 30.0, 500.0, 450.0])
    measured = np.array([-3.0, 5.0, -9.0, 6.0, 35.0, 510.0, 456.0])
    rare = np.array([1.0, 1.0, 1.0, 1.0, 0.75, 0.0, 0.0])
    settled, seen = 42.5, -1.0 + 35.0 * 0.75
    lifted = sum(
        6 * 10 * share * (exp(-0.5 * x * x) / sqrt(2 * pi) - x * 0.5 * erfc(x / sqrt(2)))
        for share, x in zip(rare, table / 10, strict=True)
    )
    noise = variance * (4 + 0.75**2 - 4.75**2 / cells)
    change = (seen - settled) * lifted**2 / (lifted**2 + noise)
    expected = table + change * (rare * table / settled - (1 - rare) / 2.25)
    found = table.copy()
    hold_rare_values(found, measured, variance)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert -17.25 < change < -15
    assert found.sum() == pytest.approx(table.sum(), rel=1e-14)


@pytest.mark.parametrize(
    ("table", "variance"),
    [
        ([400.0, 300.0, 90.0], 100.0),  # all are frequent
        ([4.0, 3.0, 9.0], 100.0),  # all are rare
        ([4.0, 0.0, 500.0], np.inf),  # never measured
        ([0.0, 0.0, 500.0], 100.0),  # nobody is there to share a larger sum
        ([12.0], 100.0),  # a single value
        ([0.0, 0.0], 100.0),  # no people
    ],
)
def test_where_rare_values_say_nothing_they_stay(table, variance):
    found = np.array(table)
    hold_rare_values(found, found + 5, variance)
    np.testing.assert_allclose(found, table, rtol=1e-14)


def test_rare_values_at_most_double_and_frequent_ones_stay_positive():
    table = np.array([1.0, 2.0, 61.0])
    hold_rare_values(table, np.array([300.0, 300.0, -536.0]), 150.0)
    assert table.min() >= 0
    assert table.sum() == pytest.approx(64.0)
    assert table[:2].sum() == pytest.approx(6.0)


def test_people_of_frequent_values_are_not_lost_to_many_empty_ones():
    """Two attributes with nearly all people in one value and none in seven and four others, noise of 20 a cell.

    Over these 30 draws the largest counts are low by 0.21 ± 0.05 standard errors beside their measurements, and by 0.57
    ± 0.06 where rare values are not held. Other draws would miss the bar once in 2,000 times and show the loss in 99 %.
    """
    draw, rows = np.random.default_rng(1), 50_000
    group, columns, sizes = draw.integers(0, 3, rows), [], (11, 8, 3, 4)
    for size, base in zip(sizes, (0.03, 0.05, 1.0, 0.5), strict=True):
        shares = base ** np.arange(size) * (np.arange(size) < 4) * draw.gamma(3, 1 / 3, (3, size))
        ends = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
        columns.append(np.minimum((draw.random(rows)[:, None] > ends[group]).sum(axis=1), size - 1))
    layout = Layout.of(sizes, list(combinations(range(4), 3)))
    truth = count_tables(layout, columns)
    found = []
    for seed in range(30):
        estimates = measure(layout, truth, np.where(layout.index.order == 0, 1.0, 400.0), seed)
        chosen = automatic(estimates)
        counts = reconstruct_nonnegative(
            chosen.estimates, weights=chosen.weights, hold=chosen.hold, tolerance=chosen.tolerance
        ).marginals
        for attribute in (0, 1):
            place = layout.places[attribute,]
            seen = layout.view(estimates.values, place)[0] + truth[0] / sizes[attribute]
            found.append((layout.view(counts, place)[0] - seen) / 20 / np.sqrt(1 - 1 / sizes[attribute]))
    assert -0.4 < np.mean(found) < 0.1


def test_a_pair_that_was_never_measured_says_nothing_about_others(case, monkeypatch):
    """It is a prediction itself: how much two attributes depend on each other is asked of measured pairs alone."""
    layout, truth = case
    variances = np.where(layout.index.order > 0, 50.0, 0.0)
    never = [(0, 1), (2, 4)]
    for pair in never:
        variances[layout.places[pair]] = np.inf
    asked = []

    def noted(pairs, *others):
        asked.append({tuple(pair) for pair in pairs.tolist()})
        return mutual_information(pairs, *others)

    monkeypatch.setattr("margrave.reconstruction.prior.levels.mutual_information", noted)
    Levels(layout, measure(layout, truth, variances, 9).values, variances, truth[0]).run()
    measured = set(combinations(range(len(layout.sizes)), 2)) - set(never)
    assert asked == [measured] * len(asked)
    assert asked


@pytest.mark.parametrize("order", [2, 3])
def test_tables_weigh_by_their_expected_errors_in_units_of_the_median(order):
    layout = Layout.of((3, 2, 4), list(combinations(range(3), order)))
    levels = Levels(layout, np.zeros(layout.cells), np.ones(len(layout.sets)), 50.0)
    draw = np.random.default_rng(order)
    levels.errors[:] = draw.lognormal(3, 1, len(layout.sets))
    levels.errors[:3] = 0.0, 1e-9, 1e12
    expected = []
    for members, error in zip(layout.sets, levels.errors, strict=True):
        relative = min(max(error / np.median(levels.errors[levels.errors > 0]), 1e-4), 1e4) if error > 0 else 1.0
        single = 30.0 if len(members) == 1 and order > 2 else 1.0
        expected.append(single * 2.0 ** -len(members) / np.sqrt(relative))
    np.testing.assert_allclose(levels.weights(), expected, rtol=1e-12)


def test_a_worker_asks_for_the_memory_of_the_tables_that_it_holds(monkeypatch):
    """Measured and estimated residuals, for all who share its machine."""
    asked = []
    monkeypatch.setattr(levels_module, "prepare_worker", lambda version, needed, sharing: asked.append(needed))
    layout = Layout.of((3, 2, 4, 5), list(combinations(range(4), 3)))
    actor = levels_module._TablesActor()
    actor.open("", 3, layout.index, layout.outer, layout.degrees, np.ones(len(layout.sets)))
    assert asked == [3 * (actor._local.measured.nbytes + actor._local.residuals.nbytes)]
    assert actor._local.measured.size == layout.cells
