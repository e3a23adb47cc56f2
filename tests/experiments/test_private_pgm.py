"""Private-PGM: the problem it is given is the one that was measured, and its limits hold."""

import fits
import numpy as np
import pytest

import margrave as mg
from experiments import ExperimentError
from experiments import private_pgm as module
from experiments.datasets import read_dataset
from experiments.records import DONE, FAILED, MEMORY_LIMIT, TIME_LIMIT
from experiments.runs import run_experiment
from experiments.settings import Settings
from margrave.measurements import Measurements


@pytest.fixture(scope="module")
def town(folder):
    return read_dataset(folder, "town")


def measured_tables(dataset, sets, variances, seed=0):
    draw = np.random.default_rng(seed)
    tables = []
    for names, variance in zip(sets, variances, strict=True):
        place = dataset.layout.places[dataset.workload.domain.positions(names)]
        truth = dataset.layout.view(dataset.truth.astype(float), place)
        tables.append((names, truth + draw.normal(scale=variance**0.5, size=truth.shape), variance))
    return tables


def test_least_squares_does_not_see_the_difference(town):
    """Equation (1): for any consistent tables the two sums of squares differ by one constant."""
    sets = [("age", "sex", "region"), ("age", "work", "income"), ("sex", "work", "income"), ()]
    tables = measured_tables(town, sets, [4.0, 9.0, 25.0, 1.0])
    problem = module.problem_of(Measurements.from_marginals(town.workload.domain, tables), town.workload)
    assert [names for names, _, _ in problem.measured] == sets[:3]
    assert [deviation for _, _, deviation in problem.measured] == pytest.approx([2.0, 3.0, 5.0])

    def difference(seed):
        people = np.random.default_rng(seed).gamma(0.3, size=town.workload.domain.shape)
        people *= problem.total / people.sum()  # the total is given, so tables have it
        raw = fitted = 0.0
        for (names, noisy, variance), (_, flat, deviation) in zip(tables, problem.measured, strict=False):
            axes = town.workload.domain.positions(names)
            table = people.sum(axis=tuple(k for k in range(5) if k not in axes))
            raw += ((table - noisy) ** 2).sum() / variance
            fitted += ((table.ravel() - flat) ** 2).sum() / deviation**2
        return raw - fitted

    differences = [difference(seed) for seed in range(4)]
    # Sums of squares of the order 1e5: rounding stays below 1e5 · 2⁻⁴⁰.
    assert differences == pytest.approx([differences[0]] * 4, abs=1e-6)


def test_the_total_is_at_least_one(town):
    shape = (6, 2, 5)
    noisy = Measurements.from_marginals(town.workload.domain, [(("age", "sex", "region"), -np.ones(shape), 1.0)])
    assert module.problem_of(noisy, town.workload).total == 1.0


def test_attributes_of_one_value_are_not_given_to_it():
    domain = mg.Domain.fromdict({"a": 3, "b": 4, "c": 1})
    noisy = Measurements.from_marginals(domain, [(("a", "b", "c"), np.ones((3, 4, 1)), 1.0)])
    with pytest.raises(ExperimentError, match="attributes of one value"):
        module.problem_of(noisy, mg.Workload(domain, [("a", "b", "c")]))


@pytest.fixture
def outcome(town, monkeypatch):
    def run(fit, *, seconds=60.0, gigabytes=20.0):
        monkeypatch.setattr(module, "require_mbi", lambda: None)
        monkeypatch.setattr(module, "fit_in_process", fit)
        noisy = Measurements.from_marginals(
            town.workload.domain, measured_tables(town, [("age", "sex", "region")], [4.0])
        )
        limits = {"limit_seconds": seconds, "limit_gb": gigabytes}
        return module.private_pgm(noisy, town.workload, town.layout, **limits)

    return run


def test_the_time_limit_holds(outcome):
    found = outcome(fits.never_ends, seconds=2.0)
    assert (found.status, found.note, found.marginals) == (TIME_LIMIT, "more than 2 s", None)
    assert 2 < found.cost.seconds < 20


def test_the_memory_limit_holds(outcome):
    found = outcome(fits.takes_memory, gigabytes=0.3)
    assert (found.status, found.note, found.marginals) == (MEMORY_LIMIT, "more than 0.3 GB", None)
    assert 300 < found.cost.megabytes < 600


def test_a_process_that_dies_and_one_that_gives_up_are_told_apart(outcome):
    assert outcome(fits.dies).note == "its process ended with exit code -9"
    assert outcome(fits.gives_up).note == "ValueError: no"
    assert outcome(fits.gives_up).status == FAILED


@pytest.mark.parametrize(
    ("error", "status", "note"),
    [
        (MemoryError(), MEMORY_LIMIT, "out of memory"),
        (
            RuntimeError("INTERNAL: " + "Error: " * 99 + "Out of memory allocating 28 bytes."),
            MEMORY_LIMIT,
            "allocating",
        ),
        (ValueError("no such axis"), FAILED, "ValueError: no such axis"),
    ],
)
def test_memory_that_was_refused_is_a_limit_and_no_failure(error, status, note):
    found = module.how_it_failed(error)
    assert found[0] == status
    assert note in found[1]
    assert len(found[1]) <= 300


def test_tables_come_back_in_their_places(outcome, town):
    found = outcome(fits.answers_uniformly)
    assert found.status == DONE
    for members in town.workload.positions:
        view = town.layout.view(found.marginals, town.layout.places[members])
        assert view.std() == pytest.approx(0, abs=1e-9)
        assert view.sum() == pytest.approx(town.rows, rel=0.1)


@pytest.mark.engines
@pytest.mark.parametrize(
    "sets",
    [
        [("age", "sex", "region"), ("region", "work"), ("work", "income")],
        [("age", "sex"), ("sex", "region"), ("age", "region"), ("work", "income")],
        [("age", "income")],
    ],
    ids=["tree", "cycle and a part by itself", "most never measured"],
)
def test_tables_are_those_that_mbi_gives_one_by_one(town, sets):
    """Also of attributes that are far from each other in the model, and of those that were never measured."""
    mbi = pytest.importorskip("mbi", reason="Private-PGM is the package mbi, of the extra pgm")
    noisy = Measurements.from_marginals(town.workload.domain, measured_tables(town, sets, [25.0] * len(sets)))
    model = module.fitted_model(module.problem_of(noisy, town.workload))
    tree = module.clique_tree_of(model)
    for names in town.workload:
        expected = mbi.marginal_oracles.variable_elimination(model.potentials, names, float(model.total))
        np.testing.assert_allclose(
            tree.table(names) * float(model.total), expected.datavector(flatten=False), rtol=1e-9, atol=1e-9
        )


@pytest.mark.engines
def test_private_pgm_on_made_up_data(folder, tmp_path):
    """Where it runs, its error is about ours: it knows by maximum entropy what was not measured."""
    pytest.importorskip("mbi", reason="Private-PGM is the package mbi, of the extra pgm")
    settings = Settings(
        "mwem",
        folder,
        datasets=("town",),
        epsilons=(1.0,),
        rounds=(3,),
        trials=1,
        methods=("mle", "ours", "private-pgm"),
        limit_seconds=300,
    )
    records = {record.method: record for record in run_experiment(settings, tmp_path)}
    assert records["private-pgm"].status == DONE, records["private-pgm"].note
    assert records["private-pgm"].l1 < records["mle"].l1
    assert 0.4 < records["private-pgm"].l1 / records["ours"].l1 < 1.6
    assert (records["private-pgm"].limit_seconds, records["private-pgm"].limit_gb) == (300, 20)
