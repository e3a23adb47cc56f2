"""The errors are those of the formulas, written out."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.accuracy import accuracy
from experiments.datasets import read_dataset


def test_errors_are_means_over_tables_of_the_norms(folder):
    dataset = read_dataset(folder, "town")
    noise = np.random.default_rng(1).normal(size=dataset.layout.cells)
    found = accuracy(dataset, dataset.truth + noise)
    first, second, first_cells, second_cells = [], [], [], []
    for members in dataset.workload.positions:
        part = dataset.layout.view(noise, dataset.layout.places[members])
        first.append(np.abs(part).sum() / dataset.rows)
        second.append(np.linalg.norm(part) / dataset.rows)
        first_cells.append(np.abs(part).sum() / part.size)
        second_cells.append(np.linalg.norm(part) / part.size)
    # Sums of a few hundred numbers, added in another order.
    assert found.l1 == pytest.approx(np.mean(first), rel=1e-9)
    assert found.l2 == pytest.approx(np.mean(second), rel=1e-9)
    assert found.l1_cells == pytest.approx(np.mean(first_cells), rel=1e-9)
    assert found.l2_cells == pytest.approx(np.mean(second_cells), rel=1e-9)


def test_the_truth_has_no_error_and_inner_tables_do_not_count(folder):
    dataset = read_dataset(folder, "town")
    marginals = dataset.truth.astype(float)
    marginals[: dataset.layout.inner_cells] += 5
    assert accuracy(dataset, marginals).l1 == 0


def test_a_uniform_table_is_off_by_hand(folder):
    """All rows in one cell of n against a uniform table: L1 = 2 (1 − 1/n) N."""
    dataset = read_dataset(folder, "town")
    offset, layout = dataset.layout.index.offset, dataset.layout
    truth, uniform, expected = np.zeros(layout.cells), np.zeros(layout.cells), []
    for members in dataset.workload.positions:
        place = layout.places[members]
        cells = int(offset[place + 1] - offset[place])
        truth[offset[place]] = dataset.rows
        uniform[offset[place] : offset[place + 1]] = dataset.rows / cells
        expected.append(2 * (1 - 1 / cells))
    lone = replace(dataset, truth=truth)
    assert accuracy(lone, uniform).l1 == pytest.approx(np.mean(expected), rel=1e-12)
