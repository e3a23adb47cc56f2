"""``margrave validate``: whole runs."""

import json

import pytest
from command_line import command

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
    done = command("validate", people, domain)
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
        "present": True,
        "outside": 0,
        "outside_to": None,
        "outside_dropped": False,
        "examples": [],
        "missing": 0,
        "missing_to": None,
        "empty": ["> 100"],
        "problem": "",
        "hint": "",
    }
    assert (found["attributes"][1]["outside"], found["attributes"][1]["missing"]) == (1, 1)


def test_rows_that_are_dropped_are_told(people, tmp_path, capsys):
    domain = declare(tmp_path, AGE, Attribute("sex", labels=["F", "M"], outside="drop", missing="?"))
    assert run(["validate", people, domain]) == 0
    assert "1 rows are dropped from every table" in capsys.readouterr().out


def cells(shown, name):
    """What stands in the line of an attribute."""
    (line,) = [line for line in shown.splitlines() if line.startswith(f"│ {name} ")]
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_where_undeclared_and_missing_values_go(people, tmp_path, capsys):
    sex = Attribute("sex", labels=["F"], other="other", missing="not told")
    run(["validate", people, declare(tmp_path, sex)])
    assert cells(capsys.readouterr().out, "sex") == ["sex", "2 → 'other'", "1 → 'not told'", "", "fits"]
    sex = Attribute("sex", labels=["F"], outside="drop")
    run(["validate", people, declare(tmp_path, sex, Attribute("gender", size=2))])
    shown = capsys.readouterr().out
    assert cells(shown, "sex")[1].startswith("2, dropped")  # with their rows; the line is broken somewhere
    assert cells(shown, "gender") == ["gender", "–", "–", "–", "does not fit"]


def test_the_rows_of_persons_for_the_custodian(tmp_path, capsys):
    path = tmp_path / "people.csv"
    path.write_text("who;sex;h\n" + "a;F;1,5\n" * 3 + "b;M;1,6\nc;M;1,7\n", encoding="utf-8")
    domain = declare(tmp_path, SEX, Attribute("h", cuts=[1.55]))
    words = ["validate", str(path), domain, "--delimiter", ";", "--decimal", ",", "--encoding", "utf-8"]
    assert run([*words, "--privacy-id", "who"]) == 0
    shown = capsys.readouterr().out
    assert "5 rows; at most 3 of one person" in shown
    assert "│ 40.00% │ 20.00% │ 0.00% │ 0.00% │ 0.00% │" in shown
    assert run([*words, "--privacy-id", "who", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["persons"] == {
        "rows": 5,
        "most": 3,
        "nobody": 0,
        "lost": {"1": 0.4, "2": 0.2, "3": 0, "5": 0, "10": 0},
    }
    assert run([*words, "--privacy-id", "Who"]) == 2
    assert capsys.readouterr().err == "error: the table has no column 'Who'; did you mean 'who'?\n"
    path.write_text("who;sex;h\n;F;1\n", encoding="utf-8")
    assert run([*words, "--privacy-id", "who"]) == 2
    assert "the privacy id: 1 rows without an id: give every row one" in capsys.readouterr().out


def test_a_draft_is_called_one(people, tmp_path, capsys):
    assert run(["validate", people, declare(tmp_path, AGE, draft="check it")]) == 0
    assert capsys.readouterr().out.endswith(
        "the table fits the domain; the domain is a draft that is not reviewed yet\n"
    )


def test_a_domain_that_is_not_there_is_one_line(people, tmp_path, capsys):
    missing = tmp_path / "nowhere.json"
    assert run(["validate", people, str(missing)]) == 2
    assert capsys.readouterr().err == (
        f"error: {missing} cannot be read (No such file or directory); give the path of a domain file\n"
    )


def test_many_empty_categories_are_not_all_listed(people, tmp_path, capsys):
    assert run(["validate", people, declare(tmp_path, Attribute("age", size=200))]) == 0
    words = capsys.readouterr().out.replace("│", " ").split()
    assert "and 190" in " ".join(words)  # the line is broken after it
