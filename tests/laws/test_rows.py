r"""Rows against the tables they are made from: how near they come, and which cells stay empty.

The tables of real rows can be met exactly, by those rows. How near the sweeps come to them is no theorem: one row at a
time, one attribute at a time, can end where no single move helps. The distances below are stated for generated tables
of four kinds, of which the seeds are fixed, and they are what docs/rows.md promises: a share of rows, Σ |rows − table|
over N, on average over all tables of three attributes.
"""

import itertools

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.synthesis.fitting import count_rows
from margrave.synthesis.rows import make_codes

SIZES = (2, 3, 4, 5, 6, 3, 2)


def population(kind, rows=4000, seed=0):
    """Rows of one kind: independent, latent classes, a chain in which each attribute hangs on the last, functions."""
    draw = np.random.default_rng(seed)
    columns = []
    group = draw.integers(0, 5, rows)
    for size in SIZES:
        if kind == "independent" or not columns:
            column = np.minimum(draw.geometric(0.4, rows) - 1, size - 1)
        elif kind == "classes":
            profiles = draw.dirichlet(np.full(size, 0.4), 5)
            column = (draw.random(rows)[:, None] > np.cumsum(profiles[group], axis=1)).sum(axis=1)
        elif kind == "chain":
            column = np.where(draw.random(rows) < 0.8, columns[-1] % size, draw.integers(0, size, rows))
        else:
            column = (columns[-1] + columns[max(len(columns) - 2, 0)]) % size
        columns.append(np.minimum(column, size - 1))
    return np.column_stack(columns).astype(np.int32)


LAYOUT = Layout.of(SIZES, list(itertools.combinations(range(len(SIZES)), 3)))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "most"), [("independent", 0.01), ("classes", 0.01), ("chain", 0.01), ("functions", 0.02)]
)
def test_rows_meet_tables_that_can_be_met(kind, most, seed):
    wanted = count_rows(LAYOUT, population(kind, seed=seed))
    made = make_codes(LAYOUT, wanted, seed=seed)
    one, two, three = made.distances
    assert three.mean <= most
    assert two.mean <= most / 2
    assert one.mean <= most / 4


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", ["chain", "functions"])
def test_cells_that_are_empty_stay_empty_where_they_can(kind, seed):
    wanted = count_rows(LAYOUT, population(kind, seed=seed))
    made = make_codes(LAYOUT, wanted, seed=seed)
    tables = len(LAYOUT.sets) - LAYOUT.outer
    inside = made.counts[LAYOUT.inner_cells :][wanted[LAYOUT.inner_cells :] == 0].sum()
    assert inside / tables / len(made.codes) <= 0.001


def test_rows_are_nearer_to_the_truth_than_noisy_tables():
    """Tables of real rows plus rounding and noise of whole people: the rows are one joint table, and noise is not."""
    truth = count_rows(LAYOUT, population("classes"))
    draw = np.random.default_rng(3)
    noisy = truth.copy()
    outer = slice(LAYOUT.inner_cells, None)
    noisy[outer] = np.maximum(noisy[outer] + np.rint(8 * draw.standard_normal(noisy[outer].size)), 0)
    made = make_codes(LAYOUT, noisy, seed=1)
    away = [np.abs(counts - truth)[outer].sum() for counts in (made.counts, noisy)]
    assert away[0] < 0.9 * away[1]


def test_whole_tables_agree_exactly():
    noisy = count_rows(LAYOUT, population("chain")) * 1.013 + 0.25
    counts = make_codes(LAYOUT, noisy, seed=2).counts
    tables = {members: LAYOUT.view(counts, table) for table, members in enumerate(LAYOUT.sets)}
    for members, table in tables.items():
        assert (table == np.round(table)).all()
        for axis in range(len(members)):
            assert (table.sum(axis=axis) == tables[members[:axis] + members[axis + 1 :]]).all()
