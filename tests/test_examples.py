"""The worked examples run from top to bottom, and their notebooks are made from them."""

import importlib.util
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
pytest.importorskip("jupytext", reason="notebooks need jupytext")
specification = importlib.util.spec_from_file_location("notebooks", FOLDER / "notebooks.py")
notebooks = importlib.util.module_from_spec(specification)
specification.loader.exec_module(notebooks)


@pytest.mark.parametrize("script", notebooks.SCRIPTS, ids=lambda script: script.stem)
def test_a_notebook_is_in_step_with_its_script(script):
    made = script.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert made == notebooks.notebook(script), "run python examples/notebooks.py"


def test_every_example_has_a_line_in_the_list():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    scripts = {path.stem for path in FOLDER.glob("*.py")} - {"notebooks"}
    assert scripts == {script.stem for script in notebooks.SCRIPTS}
    for name in scripts:
        assert f"`{name}.py`" in text


def test_the_statistics_office_publishes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(FOLDER / "statistics_office.py"))
    assert (tmp_path / "publication" / "report.html").exists()
    assert found["pyramid"].values.min() >= 0
    # The margins were promised before the data was opened.
    assert all(found["plan"].margin_of_error(*names) <= most for names, most in found["headlines"].items())


def test_the_researcher_compares(tmp_path, monkeypatch, capsys):
    pytest.importorskip("mbi", reason="mbi needs margrave[pgm]")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / "researcher.py"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    errors = [float(line.split()[-1]) for line in lines]
    # Ten tables of 50,000 people at ε = 0.3: every estimator errs by some per cent; ten times that would be a fault.
    assert max(errors) < 0.2


@pytest.mark.engines
def test_the_engineer_is_refused_when_the_budget_is_spent(tmp_path, monkeypatch, capsys, postgres, spark):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE", postgres)
    found = runpy.run_path(str(FOLDER / "engineer.py"))
    # ε = 1 at δ = 1e-9 is about 3.8 times ε = 0.5 in ρ.
    assert found["nights"] == 3
    assert "newcomers-release" in {path.name for path in tmp_path.iterdir()}
