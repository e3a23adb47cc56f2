"""The published method as the experiments judge it: rounds without an end, negative cells cut off."""

import numpy as np
import pytest

import margrave as mg
from experiments.datasets import read_dataset
from experiments.methods import METHODS, apply_method
from experiments.published import published_tables
from margrave.measurements import Measurements


@pytest.fixture(scope="module")
def measured(folder):
    """Noisy three-way tables of the made-up town: all of them, and three, as after Scalable MWEM."""
    town = read_dataset(folder, "town")
    draw = np.random.default_rng(3)
    domain = town.workload.domain

    def noisy(sets):
        tables = []
        for names in sets:
            truth = town.layout.view(town.truth.astype(float), town.layout.places[domain.positions(names)])
            tables.append((names, truth + draw.normal(scale=20, size=truth.shape), 400.0))
        return Measurements.from_marginals(domain, tables)

    sets = list(town.workload)
    return town, noisy(sets), noisy(sets[:3])


@pytest.mark.parametrize("few", [False, True])
def test_at_the_end_of_the_solver_it_is_reconstruct_with_the_published_weights(measured, few):
    town, all_tables, three_tables = measured
    noisy = three_tables if few else all_tables
    cut = published_tables(noisy, town.workload, steps=5000)
    solved = mg.reconstruct(noisy, town.workload, method=mg.methods.NonNegative(weights="paper", tolerance=1e-9))
    assert cut.min() == 0
    # A relative gap of 1e-9 leaves distances of about its root, times the distance to the measurements (about 300).
    np.testing.assert_allclose(cut, solved.marginals, atol=0.05)


def test_negative_cells_are_cut_off_when_there_are_few_rounds(measured):
    town, noisy, _ = measured
    cut = published_tables(noisy, town.workload, steps=3)
    assert cut.min() == 0
    assert np.abs(cut - published_tables(noisy, town.workload, steps=5000)).max() > 1


def test_the_experiments_use_it_and_say_how_many_rounds(measured):
    town, noisy, _ = measured
    applied = apply_method(METHODS["mwem"]["lnn-paper"], noisy, town.workload, max_steps=7)
    np.testing.assert_array_equal(applied.marginals, published_tables(noisy, town.workload, steps=7))
    assert applied.steps == 7
    assert np.isnan(applied.gap)
