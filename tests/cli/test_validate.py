"""``margrave validate``: whole runs."""

import json
import subprocess
import sys

import pytest

from margrave.cli.app import run
from margrave.domain import Attribute, Domain

WARNING = "PRIVATE: for the custodian's eyes only, not for publication"


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,sex\n17,F\n40,M\n41,\n90,[red]X\n", encoding="utf-8")
    return str(path)


def declare(tmp_path, *attributes, **words):
    path = tmp_path / "domain.json"
    Domain(attributes, **words).write(path)
    return str(path)


AGE = Attribute("age", cuts=[17, 65, 100])
SEX = Attribute("sex", labels=["F", "M"])


def test_a_table_that_fits(people, tmp_path, capsys):
    domain = declare(tmp_path, AGE, Attribute("sex", labels=["F", "M"], other="other", missing="not told"))
    assert run(["validate", people, domain]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(WARNING)
    assert shown.out.endswith("the table fits the domain\n")
    assert "> 100" in shown.out  # a category without a row
    assert shown.err == ""


def test_a_table_that_does_not_fit(people, tmp_path):
    domain = declare(tmp_path, AGE, SEX)
    done = subprocess.run(
        [sys.executable, "-m", "margrave", "validate", people, domain], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith(WARNING)
    assert "not declared in sex, for example: '[red]X'" in done.stdout
    assert "sex: values that are not declared: declare them" in done.stdout
    assert done.stdout.endswith("the table does not fit the domain\n")


def test_json_for_a_program(people, tmp_path, capsys):
    domain = declare(tmp_path, AGE, SEX)
    assert run(["validate", people, domain, "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["warning"], found["fits"], found["dropped"]) == (WARNING, False, 0)
    assert found["attributes"][0] == {
        "name": "age",
        "outside": 0,
        "examples": [],
        "missing": 0,
        "empty": ["> 100"],
        "problem": "",
    }
    assert (found["attributes"][1]["outside"], found["attributes"][1]["missing"]) == (1, 1)


def test_rows_that_are_dropped_are_told(people, tmp_path, capsys):
    domain = declare(tmp_path, AGE, Attribute("sex", labels=["F", "M"], outside="drop", missing="?"))
    assert run(["validate", people, domain]) == 0
    assert "1 rows are dropped from every table" in capsys.readouterr().out


def test_a_draft_is_called_one(people, tmp_path, capsys):
    assert run(["validate", people, declare(tmp_path, AGE, draft="check it")]) == 0
    assert capsys.readouterr().out.endswith(
        "the table fits the domain; the domain is a draft that is not reviewed yet\n"
    )


def test_a_domain_that_is_not_there_is_one_line(people, tmp_path, capsys):
    missing = tmp_path / "nowhere.json"
    assert run(["validate", people, str(missing)]) == 2
    assert capsys.readouterr().err == (
        f"error: {missing} cannot be read (No such file or directory); give the path of a codebook\n"
    )


def test_many_empty_categories_are_not_all_listed(people, tmp_path, capsys):
    assert run(["validate", people, declare(tmp_path, Attribute("age", size=200))]) == 0
    words = capsys.readouterr().out.replace("│", " ").split()
    assert "and 190" in " ".join(words)  # the line is broken after it
