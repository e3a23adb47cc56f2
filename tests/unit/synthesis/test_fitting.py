"""Sweeps and counts against slow and obvious twins: tables by numpy's histogram, distances added up cell by cell."""

import itertools

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.synthesis import fitting
from margrave.synthesis.fitting import count_rows, fit_rows

SIZES = (3, 2, 5, 4, 2)
TRIPLES = list(itertools.combinations(range(5), 3))
# Tables of one, two and four attributes side by side, one attribute in no table.
MIXED = [(0, 1, 2, 4), (3,), (0, 2)]


def random_rows(sizes, rows, seed=0):
    generator = np.random.default_rng(seed)
    skewed = [np.minimum(generator.geometric(0.5, rows) - 1, size - 1) for size in sizes]
    skewed[1] = (skewed[0] + skewed[1]) % sizes[1]
    return np.column_stack(skewed).astype(np.int32)


def counted(layout, codes):
    """All tables by numpy's own histogram."""
    tables = []
    for members in layout.sets:
        shape = [layout.sizes[member] for member in members]
        cells = np.zeros(shape)
        np.add.at(cells, tuple(codes[:, list(members)].T), 1) if members else cells.__setitem__((), len(codes))
        tables.append(cells.ravel())
    return np.concatenate(tables)


def weights_of(layout, wanted):
    """The weight of every cell, table by table as the module's text says; the total has none."""
    weights = []
    outer = layout.sets[layout.outer :]
    for table, members in enumerate(layout.sets):
        around = sum(set(members) < set(other) for other in outer)
        share = 0.0 if not members else 0.3 if len(members) == 1 else 0.1
        cells = layout.view(wanted, table).ravel() + 0.5
        weights.append(share * around * cells**-0.5 if members not in outer else cells**-0.75)
    return np.concatenate(weights)


def distance(layout, codes, wanted):
    return float((weights_of(layout, wanted) * (counted(layout, codes) - wanted) ** 2).sum())


@pytest.mark.parametrize("sets", [TRIPLES, MIXED, [(0,)], [()]])
@pytest.mark.parametrize("rows", [0, 1, 3000])
def test_rows_are_counted_exactly(sets, rows):
    layout, codes = Layout.of(SIZES, sets), random_rows(SIZES, rows)
    assert (count_rows(layout, codes) == counted(layout, codes)).all()
    assert (count_rows(layout, codes, first=layout.outer) == counted(layout, codes)[layout.inner_cells :]).all()


@pytest.mark.parametrize("sets", [TRIPLES, MIXED])
@pytest.mark.parametrize("attribute", [0, 2, 4])
def test_every_row_takes_the_value_that_brings_the_tables_nearest(sets, attribute):
    layout, codes = Layout.of(SIZES, sets), random_rows(SIZES, 25)
    # No cell counts as empty, and tables that count as many people as there are rows are not scaled.
    wanted = counted(layout, random_rows(SIZES, 25, seed=1)) + 0.5
    wanted[0] = 25
    column = fitting._column(layout, attribute)
    costs, weights = fitting._costs(layout, codes, wanted)
    assert weights == pytest.approx(weights_of(layout, wanted)[1:], rel=1e-6)
    assert fitting._distance(costs, weights) == pytest.approx(distance(layout, codes, wanted), rel=1e-5)
    expected = codes.copy()
    for row in expected:
        distances = []
        present = row[attribute]
        for value in range(SIZES[attribute]):
            row[attribute] = value
            distances.append(distance(layout, expected, wanted))
        best = int(np.argmin(distances))
        row[attribute] = best if distances[best] < distances[present] else present
    before = distance(layout, codes, wanted)
    view, chosen = np.empty(column.length, dtype=np.float32), np.empty(len(codes), dtype=np.int32)
    moved, gained = fitting._visit(column, codes, costs, weights, view, chosen)
    after = distance(layout, codes, wanted)
    assert after == pytest.approx(distance(layout, expected, wanted))
    assert moved > 0
    assert gained == pytest.approx(before - after, rel=1e-4)
    # The kept costs are those of the rows that moved: each of at most 25 moves rounds them once.
    recounted, _ = fitting._costs(layout, codes, wanted)
    assert np.abs(costs - recounted).max() <= 25 * np.finfo(np.float32).eps * np.abs(recounted).max()


@pytest.mark.parametrize("size", [2, 4, 5, 8, 9, 17])
@pytest.mark.parametrize("sets", [[(0, 1, 2), (1, 2, 3), (0, 3, 4), (1, 4)], [(0, 1, 3, 4), (1, 2), (1,)]])
def test_rows_want_the_value_with_the_least_sum_of_costs(size, sets):
    """Attributes of whole vectors, parts of one and several; tables that lie side by side and tables with gaps."""
    sizes = (3, size, 2, 4, 2)
    layout, codes, generator = Layout.of(sizes, sets), random_rows(sizes, 300), np.random.default_rng(2)
    costs, weights = (generator.random(layout.cells - 1).astype(np.float32) for _ in range(2))
    column = fitting._column(layout, 1)
    view, wanted = np.empty(column.length, dtype=np.float32), np.empty(300, dtype=np.int32)
    column.copy(costs, weights, view)
    fitting.propose(codes, 1, size, view, *column.blocks, wanted, 0, 300)
    for row, found in zip(codes, wanted, strict=True):
        sums, own = np.zeros(size), 0.0
        for table, members in enumerate(layout.sets):
            if 1 in members:
                at = tuple(slice(None) if member == 1 else row[member] for member in members)
                sums += layout.view(np.append(0, costs), table)[at]
                own += layout.view(np.append(0, weights), table)[at][row[1]]
        sums[row[1]] -= 2 * own
        # Sums of at most a dozen numbers below one, of 24 bits each.
        assert sums[found] == pytest.approx(sums.min(), abs=1e-5)
    back = np.zeros_like(costs)
    column.copy(back, weights, view, back=True)
    kept = [1 in members for members in layout.sets[1:]]
    assert (back == costs * np.repeat(kept, np.diff(layout.index.offset[1:]))).all()


def test_blocks_of_rows_come_as_near_and_threads_change_no_row(monkeypatch):
    layout, wanted = Layout.of(SIZES, TRIPLES), counted(Layout.of(SIZES, TRIPLES), random_rows(SIZES, 4000))
    start = np.column_stack([np.random.default_rng(k).permutation(random_rows(SIZES, 4000)[:, k]) for k in range(5)])
    alone = start.copy()
    fit_rows(layout, alone, wanted)
    monkeypatch.setattr(fitting, "_BLOCKS", 16)
    monkeypatch.setattr(fitting, "_BLOCK_LOOKUPS", 1)
    monkeypatch.setattr(fitting, "_SHARE", 16)
    monkeypatch.setattr("margrave.algebra.kernels._CELLS_WORTH_A_THREAD", 1)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("MARGRAVE_THREADS", threads)
        codes = start.copy()
        fit_rows(layout, codes, wanted)
        found.append(codes)
    assert (found[0] == found[1]).all()
    begin = distance(layout, start, wanted)
    assert distance(layout, found[0], wanted) < 0.01 * begin
    assert distance(layout, alone, wanted) < 0.01 * begin


def test_ctrl_c_keeps_the_best_rows_so_far():
    layout, wanted = Layout.of(SIZES, TRIPLES), counted(Layout.of(SIZES, TRIPLES), random_rows(SIZES, 500))
    codes = np.zeros((500, 5), dtype=np.int32)
    seen = []

    def interrupt(done, _):
        seen.append(distance(layout, codes, wanted))
        if done == 3:
            raise KeyboardInterrupt

    fit = fit_rows(layout, codes, wanted, progress=interrupt)
    assert (fit.sweeps, fit.interrupted) == (1, True)
    assert distance(layout, codes, wanted) == seen[-1] < seen[0]


def test_progress_counts_visits_of_attributes():
    layout, codes = Layout.of(SIZES, TRIPLES), random_rows(SIZES, 50)
    seen = []
    fit = fit_rows(layout, codes, counted(layout, codes), progress=lambda done, of: seen.append((done, of)))
    # Rows that have the tables already do not move, and one sweep shows it.
    assert (fit.sweeps, fit.interrupted) == (1, False)
    assert seen == [(number, 5 * fitting.MOST_SWEEPS) for number in range(1, 6)]
    assert (codes == random_rows(SIZES, 50)).all()


def test_nothing_to_move():
    assert fit_rows(Layout.of((1, 1), [(0, 1)]), np.zeros((9, 2), dtype=np.int32), np.full(4, 9.0)).sweeps == 0
    layout = Layout.of(SIZES, TRIPLES)
    assert fit_rows(layout, np.zeros((0, 5), dtype=np.int32), np.zeros(layout.cells)).sweeps == 0
