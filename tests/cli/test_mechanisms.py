"""Mechanisms on the command line: chosen by name, with their options, from job files too; a new one takes one line."""

import json

import pytest

import margrave as mg
from margrave.cli.app import run
from margrave.mechanisms import MECHANISMS
from margrave.release.report import report

DOMAIN = mg.Domain([mg.Attribute("sex", labels=("F", "M")), mg.Attribute("region", labels=("north", "south", "west"))])
TABLES = ("--up-to", "2", "--contributions", "1", "--rho", "0.5", "--domain", "domain.json")


@pytest.fixture
def survey(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    DOMAIN.write("domain.json")
    rows = "".join(f"{sex},{region}\n" for sex in "FM" for region in ("north", "south", "west") for _ in range(20))
    (tmp_path / "people.csv").write_text(f"sex,region\n{rows}", encoding="utf-8")
    return tmp_path


def release(*words):
    return run(["release", "people.csv", *TABLES, "--no-report", "--out", "release", *words])


@pytest.mark.parametrize(
    ("words", "mechanism", "steps"),
    [
        ((), "adaptive planner", 4),
        (("--rows", "120"), "adaptive planner", 4),
        (("--method", "mle"), "residual planner", 2),
        (("--target", "sex=9"), "residual planner", 1),
        (("--mechanism", "planner", "--rows", "120"), "residual planner", 1),
        (("--total-share", "1/10", "--objective", "counts"), "residual planner", 2),
        (("--mechanism", "adaptive", "--total-share", "1/10"), "adaptive planner", 4),
        (("--mechanism", "planner", "--objective", "max_variance"), "residual planner", 1),
        (("--mechanism", "marginals"), "Gaussian marginals", 4),
        (("--mechanism", "mwem", "--rounds", "2", "--no-repeat"), "scalable MWEM", 5),
        (("--mechanism", "mwem", "--rounds", "3", "--one-way-share", "1/4"), "scalable MWEM", 9),
    ],
)
def test_a_release_by_each_mechanism(survey, capsys, words, mechanism, steps):
    assert release(*words, "--ledger", "people.ledger", "--cap-rho", "1", "--json") == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["mechanism"] == mechanism
    record = mg.load("release").provenance
    assert (record.mechanism, len(record.steps), record.private) == (mechanism, steps, True)
    assert mg.Ledger("people.ledger").spent == record.rho == mg.Budget.zcdp(rho=0.5).rho


def test_a_mechanism_in_a_job_file(survey):
    text = 'data = "people.csv"\ndomain = "domain.json"\nup-to = 2\nrho = 0.5\ncontributions = 1\nout = "release"\n'
    (survey / "job.toml").write_text(text + 'report = false\nmechanism = "mwem"\nrounds = 2\n', encoding="utf-8")
    assert run(["release", "--job", "job.toml"]) == 0
    assert "in each of 2 rounds" in mg.load("release").provenance.description


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--mechanism", "mwen"),
            "no mechanism 'mwen'; did you mean 'mwem'? (there are adaptive, planner, marginals, mwem)",
        ),
        (("--total-share", "0.6"), "--total-share is '0.6'; give a number above 0, at most one half"),
        (
            ("--total-share", "0.1", "--objective", "nonnegative"),
            "--total-share is given, and the total is not measured first",
        ),
        (
            ("--mechanism", "adaptive", "--total-share", "0"),
            "--total-share is '0'; give a number above 0, at most one half",
        ),
        (("--rows", "0"), "--rows is 0; give a number from 1 to 1e+12"),
        (("--rounds", "3"), "--rounds is not an option of the mechanism adaptive"),
        (("--mechanism", "mwem", "--rounds", "0"), "--rounds is 0; give a whole number of at least 1"),
        (("--mechanism", "mwem", "--initial-share", "2"), "--initial-share is '2'; give a number between 0 and 1"),
        (("--mechanism", "mwem", "--objective", "max_variance"), "--objective is not an option of the mechanism mwem"),
        (("--objective", "best"), "no objective 'best'"),
        (("--weights", "papr"), "no weights 'papr'; did you mean 'paper'?"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_charged(survey, capsys, words, message):
    assert release(*words, "--ledger", "people.ledger", "--cap-rho", "1") == 2
    told = capsys.readouterr()
    assert message in told.err
    assert sorted(path.name for path in survey.iterdir()) == ["domain.json", "people.csv"]


def test_a_method_takes_its_options(survey):
    assert release("--weights", "paper", "--hold", "", "--tolerance", "1e-6") == 0
    assert mg.load("release").method.to_dict()["options"]["weights"] == "paper"


def test_what_each_mechanism_can_predict(survey, capsys):
    assert run(["plan", *TABLES, "--mechanism", "marginals", "--margin", "sex,region", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["mechanism"], told["objective"], len(told["orders"])) == ("marginals", None, 3)
    assert told["margins"][0]["margin"] > 0
    assert run(["plan", *TABLES, "--mechanism", "mwem", "--rounds", "2"]) == 0
    shown = capsys.readouterr().out
    assert "2 tables are chosen one by one" in shown
    assert "cannot be predicted" in shown
    assert run(["plan", *TABLES, "--mechanism", "mwem", "--margin", "sex"]) == 2
    assert "the errors of scalable MWEM cannot be predicted; leave out --margin" in capsys.readouterr().err


def test_a_plan_without_a_number_of_rows_says_what_it_waits_for(survey, capsys):
    planner = [*TABLES, "--mechanism", "planner"]
    assert run(["plan", *planner]) == 0
    assert "The number of rows is measured first, with a standard error of 7.071" in capsys.readouterr().out
    assert run(["plan", *planner, "--margin", "sex"]) == 2
    told = capsys.readouterr().err
    assert "the errors of residual planner cannot be predicted; give --rows, or leave out --margin" in told
    assert run(["plan", *planner, "--rows", "120", "--margin", "sex", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["objective"], len(shown["margins"]), len(shown["orders"])) == ("counts", 1, 3)


def test_a_plan_by_default_shows_the_errors_of_the_first_measurement(survey, capsys):
    assert run(["plan", *TABLES]) == 0
    assert "Give --rows, about how many rows there are" in capsys.readouterr().out
    assert run(["plan", *TABLES, "--rows", "120", "--margin", "sex"]) == 0
    assert "those of the first measurement" in capsys.readouterr().out
    assert run(["plan", *TABLES, "--rows", "120", "--margin", "sex", "--json"]) == 0
    (margin,) = json.loads(capsys.readouterr().out)["margins"]
    release()
    table = mg.load("release").table("sex")
    # The number of rows is noisy there (standard error 7), and so is what the plan for it promises.
    assert 1.96 * table.std_error == pytest.approx(margin["margin"], rel=0.25)


def test_a_plan_for_another_method_names_the_better_objective(survey, capsys):
    assert run(["plan", *TABLES, "--method", "mle"]) == 0
    assert "for method mle --objective total_variance is usually better" in capsys.readouterr().out
    assert run(["plan", *TABLES, "--method", "mle", "--objective", "total_variance"]) == 0
    assert "usually better" not in capsys.readouterr().out


def test_a_new_mechanism_is_one_module_and_one_line(survey, capsys, monkeypatch):
    """It is released, reported, saved, loaded and helped with, by name and from a job file."""
    monkeypatch.setitem(MECHANISMS, "toy", "toy_mechanism.Toy")
    assert run(["release", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "toy: the first table alone" in shown
    assert "--pieces" in shown
    assert release("--mechanism", "toy", "--pieces", "3", "--ledger", "people.ledger", "--cap-rho", "1") == 0
    loaded = mg.load("release")
    assert (loaded.provenance.mechanism, len(loaded.provenance.steps)) == ("toy mechanism", 3)
    assert "Only the first table was measured, in 3 pieces." in report(loaded)
    text = 'data = "people.csv"\ndomain = "domain.json"\nup-to = 2\nrho = 0.1\ncontributions = 1\nout = "again"\n'
    (survey / "job.toml").write_text(text + 'report = false\nmechanism = "toy"\npieces = 4\n', encoding="utf-8")
    assert run(["release", "--job", "job.toml"]) == 0
    assert len(mg.load("again").provenance.steps) == 4
    assert release("--mechanism", "toy", "--pieces", "0", "--overwrite") == 2
    assert "pieces is 0; give at least 1" in capsys.readouterr().err
