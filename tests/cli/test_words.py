"""What the command line says: in words of options, on any terminal, about the tables asked for."""

import io
import os
import subprocess
import sys

import numpy as np
import pytest

import margrave as mg
from margrave.cli.app import run
from margrave.cli.options import in_words_of_options
from margrave.cli.screen import Screen, spell_errors, spelled

DOMAIN = mg.Domain.fromdict({"age": 3, "sex": 2, "work": 2})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words") / "release"
    noisy = mg.Measurements.from_marginals(DOMAIN, [(("age", "sex", "work"), np.arange(12.0).reshape(3, 2, 2), 4.0)])
    mg.reconstruct(noisy, mg.Workload(DOMAIN, [("age", "sex"), ("work", "sex")])).save(folder)
    return folder


@pytest.mark.parametrize(
    ("python", "typed"),
    [
        ("replace it with overwrite=True", "replace it with --overwrite"),
        ("reconstruct it with method='lnn'", "reconstruct it with --method lnn"),
        ("give trim=True (--trim)", "give --trim"),
        ("give null='?' (--null '?')", "give --null '?'"),
        ("say so: header=False (--no-header), or names=… (--names age,sex)", "say so: --no-header, or --names age,sex"),
        ("delimiter (--delimiter) is 'x'", "--delimiter is 'x'"),
        ("leave out privacy_id (--privacy-id) or counts (--counts)", "leave out --privacy-id or --counts"),
        ("name it by table=… (--table), or give a query=… (--query)", "name it by --table, or give a --query"),
        ("no attribute 'x=True' in the domain", "no attribute 'x=True' in the domain"),
        ("nothing of it (--else) is meant", "nothing of it (--else) is meant"),
        ("total_share is '0.9'; give a number", "--total-share is '0.9'; give a number"),
        ("rounds is 0; give a whole number", "--rounds is 0; give a whole number"),
        ("the domain is a draft", "the domain is a draft"),
        ("with initial_share, a part of it", "with --initial-share, a part of it"),
        ("residual_planner(…, total_share=…)", "residual_planner(…, total_share=…)"),
        ("no column 'up_to' (it has max_cells, age)", "no column 'up_to' (it has max_cells, age)"),
    ],
)
def test_messages_are_in_words_of_options(python, typed):
    assert in_words_of_options(python) == typed


def test_a_folder_that_is_there_is_replaced_by_an_option(saved, capsys):
    assert run(["reconstruct", str(saved), "--tables", "age,sex", "--out", str(saved)]) == 2
    assert capsys.readouterr().err.endswith("already exists; name another folder, or replace it with --overwrite\n")


def test_some_tables_are_exported(saved, tmp_path, capsys):
    out = tmp_path / "csv"
    assert run(["export", str(saved), "--tables", "sex,age", "--tables", "work", "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["age.sex.csv", "work.csv"]
    assert len((out / "age.sex.csv").read_text(encoding="utf-8").splitlines()) == 7
    sdmx = ["--form", "sdmx", "--agency", "A", "--dataflow", "B", "--out", str(tmp_path / "one.csv")]
    assert run(["export", str(saved), "--tables", "work", *sdmx]) == 0
    assert len((tmp_path / "one.csv").read_text(encoding="utf-8").splitlines()) == 3
    capsys.readouterr()
    assert run(["export", str(saved), "--tables", "age,work", "--out", str(tmp_path / "none")]) == 2
    assert "no table of this release covers age × work" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    entry = ["--form", "registry", "--tables", "age", "--out", str(tmp_path / "entry.yaml")]
    assert run(["export", str(saved), *entry]) == 2
    assert "an entry of the registry is about all tables; leave out --tables" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", "epsilon <= 1 +/- 2, 10^-9, a x b: 5-9 ..."),
        ("latin-1", "epsilon <= 1 ± 2, 10^-9, a × b: 5-9 ..."),
        ("utf-8", "ε ≤ 1 ± 2, 10⁻⁹, a × b: 5–9 …"),
        ("no such encoding", "ε ≤ 1 ± 2, 10⁻⁹, a × b: 5–9 …"),
    ],
)
def test_signs_are_spelled_where_a_terminal_lacks_them(encoding, shown):
    assert spelled("ε ≤ 1 ± 2, 10⁻⁹, a × b: 5–9 …", encoding) == shown


def test_a_letter_without_a_spelling_stays_for_the_stream_to_replace():
    assert spelled("Zürich ≤ ß", "ascii") == "Zürich <= ß"


def test_a_screen_of_letters_without_unicode(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    monkeypatch.setattr(sys, "stdout", stream)
    Screen().print("age × sex: ± 92.0 people, ε = 1")
    stream.flush()
    assert stream.buffer.getvalue() == b"age x sex: +/- 92.0 people, epsilon = 1\n"


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_line_of_a_table_is_wider_than_the_terminal(saved, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["query", str(saved), "age >= 0", "--by", "age,sex"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= width
    words = " ".join(shown).split()
    assert {"count", "estimate", "std_error", "ci_low", "ci_high"} <= set(words)
    asked = ["--kway", "2", "--rho", "1", "--contributions", "1", "--rows", "100"]
    assert run(["plan", "--domain", str(saved / "domain.json"), *asked]) == 0
    listed = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("attributes", "median"))]
    assert listed
    assert max(map(len, listed)) <= width


def test_a_table_for_a_pipe_is_one_table_whatever_its_width(saved, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run(["query", str(saved), "", "--by", "age"]) == 0
    assert capsys.readouterr().out.count("count") == 1


def test_shares_have_three_decimals(saved, capsys):
    assert run(["query", str(saved), "sex = 1", "--share-of", "age > 0", "--by", "age"]) == 0
    numbers = [cell.strip() for line in capsys.readouterr().out.splitlines()[3:-1] for cell in line.split("│")[2:-1]]
    assert numbers
    assert all(len(number.partition(".")[2]) == 3 for number in numbers if number[-1:].isdigit())


def test_signs_that_a_stream_lacks_are_spelled():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors=spell_errors())
    stream.write("ε ≤ 1 ± 2 × “a” ž\n")
    stream.flush()
    assert stream.buffer.getvalue() == b'epsilon <= 1 +/- 2 x "a" ?\n'


@pytest.mark.parametrize("words", [["--help"], ["release", "--help"], ["ledger", "--help"]])
def test_help_on_a_narrow_terminal_without_signs_is_whole(words):
    told = {**os.environ, "COLUMNS": "40", "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "NO_COLOR": "1"}
    command = [sys.executable, "-c", "from margrave.cli.app import main; main()", *words]
    shown = subprocess.run(command, env=told, capture_output=True, check=True).stdout
    text = shown.decode("ascii")
    # The name of an option is never cut; ε is spelled after lines were broken.
    assert max(len(line) for line in text.splitlines() if not line.startswith("  --")) <= 40 + len("psilon")
    assert words[0] != "release" or "--ledger-any-domain" in text
