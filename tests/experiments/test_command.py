"""`python -m experiments` as a person meets it."""

import pytest

from experiments.__main__ import reproduce
from experiments.pages import NOT_PRIVATE
from margrave.cli import app


def run(words):
    return app.run(words, reproduce)


pytestmark = pytest.mark.usefixtures("plain_terminal")


@pytest.fixture
def plain_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def test_a_run_writes_results_and_a_summary_and_warns(folder, tmp_path, capsys):
    words = ["residual-planner", "--data", str(folder), "--datasets", "town", "--epsilons", "1", "--trials", "1"]
    assert run([*words, "--max-steps", "50", "--out", str(tmp_path), "--no-figures"]) == 0
    told = capsys.readouterr()
    assert told.err == f"{NOT_PRIVATE}\n"  # one loud line, and no progress where there is no terminal
    assert [line.rsplit("/", 1)[1] for line in told.out.splitlines()] == [
        "residual-planner.csv",
        "summary.md",
        "summary.json",
    ]
    assert "| town | 1 |" in (tmp_path / "summary.md").read_text()


def test_figures_are_drawn_where_they_can_be(folder, tmp_path):
    pytest.importorskip("altair", reason="figures need altair, of the extra report")
    pytest.importorskip("vl_convert", reason="figures need vl-convert-python, of the extra report")
    words = ["mwem", "--data", str(folder), "--datasets", "town", "--epsilons", "1", "--trials", "1", "--rounds", "2"]
    assert run([*words, "--pgm-trials", "0", "--max-steps", "50", "--out", str(tmp_path)]) == 0
    assert {"mwem.csv", "mwem-l1.png", "mwem-l2.svg", "summary.md"} <= {file.name for file in tmp_path.iterdir()}
    assert "![L1 error against ε](mwem-l1.svg)" in (tmp_path / "summary.md").read_text()


def test_scaling_needs_no_data(tmp_path):
    words = ["scaling", "--attributes", "4", "--other-values", "", "--rows", "50", "--no-figures"]
    assert run([*words, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "scaling.csv").read_text().count("\n") == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mwem", "--epsilons", "0"], "error: --epsilons is '0'; give positive numbers with commas between"),
        (["mwem", "--rounds", "1.5"], "error: --rounds is '1.5'; give positive numbers"),
        (["residual-planner", "--methods", "nothing"], "error: no method 'nothing'"),
        (["residual-planner", "--datasets", ","], "error: datasets is empty"),
        (["pgm-table", "--datasets", "adult"], "has no adult.csv.gz and no adult-domain.json"),
    ],
)
def test_wrong_words_are_one_line_and_exit_code_2(folder, tmp_path, words, message, capsys):
    figures = [] if words[0] == "pgm-table" else ["--no-figures"]
    assert run([words[0], "--data", str(folder), "--out", str(tmp_path), *figures, *words[1:]]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("command", ["residual-planner", "mwem", "pgm-table", "scaling"])
def test_every_command_has_help_with_an_example(command, capsys):
    assert run([command, "--help"]) == 0
    assert f"python -m experiments {command} --" in " ".join(capsys.readouterr().out.split())
