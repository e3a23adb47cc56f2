"""Options are declared once: the command line, job files and docs/cli.md are made from the same fields."""

from fractions import Fraction

import pytest

from margrave.cli import options
from margrave.cli.app import _FUNCTIONS
from margrave.errors import JobError
from margrave.job import Job, all_options, mechanism_options, method_options
from margrave.mechanisms.adaptive_planner import AdaptivePlanner
from margrave.mechanisms.gaussian_marginals import GaussianMarginals
from margrave.mechanisms.residual_planner import ResidualPlanner
from margrave.mechanisms.scalable_mwem import ScalableMWEM
from margrave.methods import MaximumLikelihood, NonNegative
from margrave.options import OptionKind, options_of

COMMANDS = {function.__name__: function for function in _FUNCTIONS}


def parameters(command):
    return options.complete(COMMANDS[command]).__signature__.parameters


def test_no_two_options_share_a_key():
    keys = [one.key for one in all_options()]
    assert len(keys) == len(set(keys))
    assert all(one.meaning for one in all_options())


@pytest.mark.parametrize("command", ["domain", "validate", "plan", "release", "reconstruct", "report"])
def test_a_command_takes_the_options_declared_for_it_and_no_others(command):
    declared = {one.name for one in options_of(Job) if command in one.commands}
    own = {"domain": {"out", "columns", "overwrite"}, "validate": {"domain", "json"}}
    own |= {"plan": {"margin", "budget_for", "compare_with", "json"}}
    own |= {"release": {"json"}, "reconstruct": {"files", "variance", "json"}, "report": {"folder", "out"}}
    if command in ("plan", "release", "reconstruct"):
        declared |= {"job"}
    if command in ("plan", "release"):
        declared |= set(mechanism_options())
    if command in ("release", "reconstruct"):
        declared |= set(method_options())
    assert set(parameters(command)) == declared | own[command]


def test_every_option_of_a_job_is_taken_by_some_command():
    assert all(one.commands for one in options_of(Job))
    # Only the private table is an argument; all else has a flag.
    assert [one.name for one in options_of(Job) if not one.group] == ["data"]


def written(tmp_path, text):
    file = tmp_path / "job.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_mechanism_of_a_job_has_the_options_of_its_file(tmp_path):
    assert Job().measuring() == AdaptivePlanner()
    assert Job(method="mle").measuring() == ResidualPlanner()
    assert Job.of(None, {"objective": "max_variance"}).measuring() == ResidualPlanner(objective="max_variance")
    text = 'mechanism = "mwem"\nrounds = 7\ninitial-share = 0.2\none-way-share = "1/4"\nrepeat = false\n'
    found = Job.read(written(tmp_path, text)).measuring()
    expected = ScalableMWEM(rounds=7, initial_share="0.2", one_way_share="1/4", repeat=False)
    assert found == expected
    # A tenth in a file is a tenth, and not the float next to it.
    assert Fraction(found.initial_share) == Fraction(1, 5)
    assert Job(mechanism="marginals").measuring() == GaussianMarginals()


def test_the_method_of_a_job_has_the_options_of_its_file(tmp_path):
    text = 'method = "lnn"\nweights = "paper"\nhold = [[], ["age", "sex"]]\ntolerance = 1e-5\nmax-steps = 9\n'
    found = Job.read(written(tmp_path, text)).reconstructing()
    expected = NonNegative(weights="paper", hold=[(), ("age", "sex")], tolerance=1e-5, max_steps=9).lenient()
    assert found == expected
    assert Job(method="trunc+rescale").reconstructing().name == "trunc+rescale"


def test_another_mechanism_or_method_on_the_command_line_drops_the_options_of_the_file(tmp_path):
    file = written(tmp_path, 'mechanism = "mwem"\nrounds = 7\nmethod = "lnn"\nweights = "paper"\n')
    job = Job.of(file, {"mechanism": "planner", "method": "mle"})
    assert (job.measuring(), job.reconstructing()) == (ResidualPlanner(), MaximumLikelihood())
    assert Job.of(file, {"rounds": 9}).measuring() == ScalableMWEM(rounds=9)
    assert Job.of(file, {"mechanism": "mwem"}).measuring() == ScalableMWEM(rounds=7)


def test_an_option_of_another_mechanism_or_method_is_refused():
    text = r"--rounds is not an option of the mechanism {} \(its options are {}\); .*or give --mechanism mwem$"
    with pytest.raises(JobError, match=text.format("adaptive", "--total-share")):
        Job.of(None, {"rounds": 3}).measuring()
    with pytest.raises(JobError, match=text.format("planner", "--objective, --total-share")):
        Job.of(None, {"rounds": 3, "mechanism": "planner"}).measuring()
    with pytest.raises(JobError, match=r"--rounds is not an option of the mechanism marginals \(it has no options\)"):
        Job.of(None, {"rounds": 3, "mechanism": "marginals"}).measuring()
    with pytest.raises(JobError, match=r"--weights is not an option of the method mle \(it has no options\)"):
        Job.of(None, {"weights": "paper", "method": "mle"}).reconstructing()


def test_the_words_that_continue_a_run_give_the_same_publication(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = Job.of(
        None,
        {
            "tables": (("age", "sex"), ("region",)),
            "max_cells": 9,
            "method": "lnn",
            "weights": "paper",
            "hold": ((), ("age",)),
            "out": "release",
            "csv": True,
            "report": False,
            "overwrite": True,
            "title": "A survey",
            "epsilon": 1.0,
        },
    )
    words = job.reconstruct_words()
    assert "--epsilon" not in words
    given, words = {}, iter(words)
    known = {one.flag: one for one in all_options()}
    for word in words:
        flag = word.replace("--no-", "--")
        one = known[flag]
        if one.kind is OptionKind.FLAG:
            given[one.name] = word == flag
        elif one.kind is OptionKind.TABLES:
            given.setdefault(one.name, []).append(next(words))
        else:
            given[one.name] = int(next(words)) if one.kind is OptionKind.WHOLE else next(words)
    again = Job.of(None, {name: known[f"--{name.replace('_', '-')}"].parsed(given[name]) for name in given})
    assert (again.tables, again.max_cells) == (job.tables, job.max_cells)
    assert again.publication() == job.publication()


def test_a_flag_that_is_off_in_a_file_can_be_overridden(tmp_path):
    file = written(tmp_path, "csv = true\nreport = false\n")
    assert (Job.of(file, {"csv": False}).csv, Job.of(file, {"report": True}).report) == (False, True)
