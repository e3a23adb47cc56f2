"""Which trials a run has, what is left of them, and what is refused."""

import inspect
from dataclasses import replace
from pathlib import Path

import pytest

import experiments.__main__ as reproduce
from experiments import ExperimentError
from experiments.records import DONE, TIME_LIMIT, Record
from experiments.settings import DATASETS, DELTA, EPSILONS, MAX_STEPS, ROUNDS, Settings, pending_trials

FOLDER = Path("data")
RP = Settings("residual-planner", FOLDER, datasets=("one", "two"), epsilons=(1, 0.31), trials=2)
MWEM = Settings("mwem", FOLDER, datasets=("one",), epsilons=(1,), rounds=(10, 20), trials=3, pgm_trials=1)


def record_of(settings, trial, method, **changes):
    blank = Record(
        settings.experiment,
        trial.dataset,
        trial.epsilon,
        trial.rounds,
        trial.number,
        method,
        DONE,
        delta=settings.delta,
    )
    return replace(blank, max_steps=settings.max_steps, first_seed=settings.seed, **changes)


def test_all_settings_are_crossed():
    trials = pending_trials(RP, [])
    assert len(trials) == 2 * 2 * 2
    assert {trial.rounds for trial in trials} == {0}
    assert all(trial.methods == RP.methods for trial in trials)
    assert [trial.dataset for trial in trials] == ["one"] * 4 + ["two"] * 4  # one data set after another


def test_private_pgm_comes_last_in_trials_of_its_own():
    trials = pending_trials(MWEM, [])
    assert [trial.methods == ("private-pgm",) for trial in trials] == [False] * 6 + [True] * 2
    assert [trial.number for trial in trials[6:]] == [0, 0]
    assert not any("private-pgm" in t.methods for t in pending_trials(replace(MWEM, pgm_trials=0), []))


def test_what_is_finished_is_not_run_again():
    trials = pending_trials(RP, [])
    done = [record_of(RP, trial, method) for trial in trials for method in RP.methods]
    assert pending_trials(RP, done) == []
    left = pending_trials(RP, done[1:])
    assert [(trial.dataset, trial.epsilon, trial.number, trial.methods) for trial in left] == [
        ("one", 1.0, 0, ("mle",))
    ]


def test_what_ended_without_a_result_is_run_again_only_when_asked():
    trial = pending_trials(MWEM, [])[-1]
    failed = record_of(MWEM, trial, "private-pgm", status=TIME_LIMIT)
    assert trial not in pending_trials(MWEM, [failed])
    assert trial in pending_trials(replace(MWEM, retry=True), [failed])
    mended = replace(failed, status=DONE)
    assert trial not in pending_trials(replace(MWEM, retry=True), [failed, mended])


def test_seeds_follow_from_the_setting_alone():
    assert RP.seed_of("titanic", 0.31, 0, 4) == Settings("residual-planner", FOLDER).seed_of("titanic", 0.31, 0, 4)
    # The same on every machine and in every version: recorded results can be repeated.
    assert RP.seed_of("titanic", 1.0, 0, 0) == 279_294_279_488_095
    drawn = {RP.seed_of(name, epsilon, 0, n) for name in DATASETS for epsilon in EPSILONS for n in range(5)}
    assert len(drawn) == 4 * 5 * 5
    assert replace(RP, seed=1).seed_of("titanic", 1.0, 0, 0) != RP.seed_of("titanic", 1.0, 0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 1e-6}, "--delta 1e-06, and --delta 1e-09 is asked for"),
        ({"max_steps": 9}, "--max-steps 9, and --max-steps 400"),
        ({"repeat": "yes"}, "--repeat yes, and --repeat no"),
        ({"first_seed": 3}, "--seed 3, and --seed 0"),
    ],
)
def test_results_of_other_options_are_not_mixed_in(change, message):
    found = replace(record_of(RP, pending_trials(RP, [])[0], "mle"), **change)
    with pytest.raises(ExperimentError, match=message):
        pending_trials(RP, [found])


def test_a_delta_of_many_digits_is_found_again():
    settings = Settings("residual-planner", FOLDER, delta=1.2345678e-9)
    trial = pending_trials(settings, [])[0]
    written = replace(record_of(settings, trial, "mle"), delta=float(f"{settings.delta:.6g}"))
    assert "mle" not in pending_trials(settings, [written])[0].methods


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"datasets": ()}, "datasets is empty"),
        ({"trials": 0}, "trials is 0; give a whole number of at least 1"),
        ({"pgm_trials": -1}, "pgm_trials is -1; give a whole number of at least 0"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"jobs": 0}, "jobs is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"limit_seconds": 0.0}, "limit_seconds is 0.0; give a positive number"),
        ({"limit_gb": -1.0}, "limit_gb is -1.0"),
        ({"methods": ("trunk",)}, "no method 'trunk'; did you mean 'trunc'"),
        ({"methods": ("pipeline",)}, "no method 'pipeline'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ExperimentError, match=message):
        Settings("mwem", FOLDER, **options)


def test_methods_come_in_the_order_of_figures():
    assert Settings("mwem", FOLDER, methods=("ours", "mle")).methods == ("mle", "ours")


def test_the_command_line_has_the_defaults_of_the_paper():
    for command, names in (
        (reproduce.residual_planner, "datasets epsilons"),
        (reproduce.mwem, "datasets epsilons rounds"),
    ):
        given = {name: one.default for name, one in inspect.signature(command).parameters.items()}
        wanted = {"datasets": DATASETS, "epsilons": EPSILONS, "rounds": ROUNDS}
        for name in names.split():
            assert tuple(given[name].split(",")) == tuple(
                f"{one:g}" if name != "datasets" else one for one in wanted[name]
            )
        assert (given["delta"], given["max_steps"], given["trials"]) == (DELTA, MAX_STEPS, 5)
