"""``margrave domain``: whole runs."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import command

from margrave.cli.app import run
from margrave.domain import Domain

PEOPLE = "name,age,sex\n" + "".join(f"person {k},{k % 70 + 18},{'FM'[k % 2]}\n" for k in range(100))


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE, encoding="utf-8")
    return path


def test_a_draft_is_written_and_says_on_file_and_screen_what_it_is(people, tmp_path, capsys):
    out = tmp_path / "domain.json"
    assert run(["domain", str(people), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    first = out.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith('{"draft": "PRIVATE DRAFT, not for publication: these values were read from private data.')
    assert shown.out.startswith("PRIVATE DRAFT, not for publication: these values were read from private data.")
    assert "left out: name (an identifier: no value comes twice)" in shown.out
    assert shown.err == ""
    domain = Domain.read(out)
    assert domain.unreviewed
    assert domain.attributes == ("age", "sex")
    assert (domain["sex"].labels, domain["age"].cuts) == (("F", "M"), (20, 30, 40, 50, 60, 70, 80))


def test_an_existing_file_is_kept_unless_told_otherwise(people, tmp_path, capsys):
    out = tmp_path / "domain.json"
    out.write_text("mine", encoding="utf-8")
    assert run(["domain", str(people), "--out", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"error: {out} already exists; give another name, or --overwrite to replace it\n"
    )
    assert out.read_text(encoding="utf-8") == "mine"
    assert run(["domain", str(people), "--out", str(out), "--overwrite"]) == 0
    assert Domain.read(out).unreviewed


def test_without_a_file_the_draft_goes_to_standard_output_alone(people):
    done = command("domain", people)
    assert done.returncode == 0
    assert json.loads(done.stdout)["reviewed"] is False
    assert "PRIVATE DRAFT" in done.stderr


def test_columns_and_the_privacy_id(people, capsys):
    assert run(["domain", str(people), "--columns", "sex, age", "--privacy-id", "sex"]) == 0
    shown = capsys.readouterr()
    assert Domain.from_json(shown.out).attributes == ("age",)
    assert "left out: sex (the privacy id)" in shown.err


def test_a_table_of_a_database(tmp_path, capsys):
    import duckdb

    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people AS SELECT 'F' AS sex UNION ALL SELECT 'M'")
    assert run(["domain", str(path), "--table", "people"]) == 0
    assert Domain.from_json(capsys.readouterr().out) == Domain.fromdict({"sex": ["F", "M"]})


def test_hostile_names_and_labels_are_shown_as_they_are(tmp_path, capsys):
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"[bold]sex[/]": ["[red]F", "[/]"], "[x]": pa.nulls(2)}), path)
    assert run(["domain", str(path)]) == 0
    shown = capsys.readouterr()
    for text in ("[bold]sex[/]", "[red]F", "left out: [x]", "Left out: [x]."):
        assert text in shown.err


def test_an_office_file_from_the_first_error_to_a_draft(tmp_path, capsys):
    path = tmp_path / "leute.csv"
    rows = [
        f"{k % 40};{'k.A.' if k == 7 else k % 70 + 18};{k % 50},5;{'FM'[k % 2]};{k % 28 + 1}.{k % 9 + 1}.1999"
        for k in range(200)
    ]
    path.write_bytes("\n".join(["Person;Alter;Größe; Geschlecht;Tag", *rows]).encode("windows-1252"))
    words = ["domain", str(path)]
    for error, more in [
        ("is not UTF-8; give encoding=… (--encoding windows-1252 is usual", ["--encoding", "windows-1252"]),
        ("has semicolons and no commas; give --delimiter ';'", ["--delimiter", ";"]),
        ("left out: Größe (they look like numbers with a decimal comma; give --decimal ,)", ["--decimal", ","]),
        ("left out: Tag (dates; derive years or months from them)", ["--privacy-id", "Persn"]),
        ("error: the table has no column 'Persn'; did you mean 'Person'?", ["--privacy-id", "Person"]),
    ]:
        run(words)
        assert error in capsys.readouterr().err
        words += more
    assert run(words) == 0
    shown = capsys.readouterr()
    assert Domain.from_json(shown.out).attributes == ("Alter", "Größe", " Geschlecht")
    assert "Alter: numbers, and texts such as 'k.A.', which are counted as 'missing'" in shown.err


def test_blanks_at_the_edges_are_seen(tmp_path, capsys):
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"town": [" Bonn", "Bonn", "Bonn ", ""]}), path)
    assert run(["domain", str(path)]) == 0
    assert "'', ' Bonn', Bonn, 'Bonn '" in capsys.readouterr().err


def test_a_table_of_nothing_but_texts_cannot_be_drafted(tmp_path, capsys):
    path = tmp_path / "people.csv"
    path.write_text("name\n" + "".join(f"person {k}\n" for k in range(100)), encoding="utf-8")
    assert run(["domain", str(path)]) == 2
    shown = capsys.readouterr()
    assert "left out: name (an identifier: no value comes twice)" in shown.err
    assert shown.err.endswith("error: no column has few values or numbers; declare the domain by hand\n")


def test_a_file_as_it_was_downloaded_is_read_and_the_words_for_it_are_said(tmp_path, capsys):
    path = tmp_path / "adult.csv"
    rows = (f"{k % 60 + 18}, {('Private', 'State', '?')[k % 3]}, {'FM'[k % 2]}\n" for k in range(300))
    path.write_text("".join(rows), encoding="utf-8")
    out = tmp_path / "domain.json"
    assert run(["domain", str(path), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "guessed from the file and used: --trim --null '?' --no-header (check them" in shown
    assert "draft again with --overwrite and --names" in shown
    assert f"margrave validate {path} {out} --trim --null '?' --no-header\n" in shown
    words = ["--trim", "--null", "?", "--names", "age,work,sex"]
    assert run(["domain", str(path), *words, "--out", str(out), "--overwrite"]) == 0
    shown = capsys.readouterr().out
    assert "guessed" not in shown
    assert f"margrave validate {path} {out} --trim --null '?' --names age,work,sex\n" in shown
    assert Domain.read(out).attributes == ("age", "work", "sex")
    assert run(["validate", str(path), str(out), *words]) == 0


def test_how_a_file_is_written_stands_in_a_job_file(tmp_path):
    from margrave.job import Job

    job = tmp_path / "job.toml"
    job.write_text('data = "a.csv"\ntrim = true\nnull = "?"\nnames = ["age", "sex"]\n', encoding="utf-8")
    source = Job.read(job).source()
    assert (source.trim, source.null, source.names) == (True, ("?",), ("age", "sex"))
    job.write_text('data = "a.csv"\nnull = ["?", "NA"]\nheader = false\n', encoding="utf-8")
    source = Job.read(job).source()
    assert (source.null, source.header) == (("?", "NA"), False)


def test_a_job_file_with_something_else_than_texts_is_refused(tmp_path, capsys):
    job = tmp_path / "job.toml"
    job.write_text('data = "a.csv"\nnull = [1]\n', encoding="utf-8")
    assert run(["release", "--job", str(job)]) == 2
    assert "has [1] in null; give a text or a list of texts" in capsys.readouterr().err
