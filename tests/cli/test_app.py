"""The command line as a person meets it: help, version, wrong words, errors, exit codes."""

import subprocess
import sys

import pytest

import margrave
from margrave.cli import app
from margrave.errors import BudgetRefusedError, MargraveError


def margrave_command(*words):
    return subprocess.run([sys.executable, "-m", "margrave", *words], capture_output=True, text=True)


def test_version():
    done = margrave_command("--version")
    assert (done.returncode, done.stdout) == (0, f"margrave {margrave.__version__}\n")


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_help_names_the_commands(words):
    done = margrave_command(*words)
    assert done.returncode == 0
    assert "demo" in done.stdout


@pytest.mark.parametrize("command", [c.name or c.callback.__name__ for c in app.app.registered_commands])
def test_every_command_has_help_with_an_example(command):
    done = margrave_command(command, "--help")
    assert done.returncode == 0
    assert f"margrave {command}" in " ".join(done.stdout.split())


def test_a_misspelt_command_is_one_line_with_a_suggestion():
    done = margrave_command("demmo")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: No such command 'demmo'. Did you mean 'demo'?\n"


def test_an_unknown_option_is_one_line():
    done = margrave_command("demo", "--fast")
    assert done.returncode == 2
    assert done.stderr == "error: No such option: --fast\n"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (MargraveError("the table [red] is\nmissing"), 2, "error: the table [red] is missing\n"),
        (BudgetRefusedError("spent"), 3, "error: spent\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (
            ValueError("a private value"),
            1,
            "error: unexpected ValueError; run again with --debug to see where\n",
        ),
    ],
)
def test_errors_become_one_line_and_an_exit_code(error, code, line, monkeypatch, capsys):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(app, "app", fail)
    assert app.run(["demo"]) == code
    assert capsys.readouterr().err == line


def test_debug_shows_where_an_error_arose(monkeypatch, capsys):
    def fail(*args, **kwargs):
        raise MargraveError("no")

    monkeypatch.setattr(app, "app", fail)
    assert app.run(["--debug", "demo"]) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.endswith("error: no\n")


def test_demo_prints_a_table():
    done = margrave_command("demo")
    assert done.returncode == 0, done.stderr
    assert "Age by marital status, non-negative" in done.stdout
    last = next(line for line in done.stdout.splitlines() if "non-negative (lnn)" in line)
    assert last.split("│")[3].strip() == "0"  # no negative cells
    assert done.stderr == ""
