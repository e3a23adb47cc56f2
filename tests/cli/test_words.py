"""What the command line says: in words of options, on any terminal, about the tables asked for."""

import io
import sys

import numpy as np
import pytest

import margrave as mg
from margrave.cli.app import run
from margrave.cli.options import in_words_of_options
from margrave.cli.screen import Screen, spelled

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
    ],
)
def test_messages_are_in_words_of_options(python, typed):
    assert in_words_of_options(python) == typed


def test_a_folder_that_is_there_is_replaced_by_an_option(saved, capsys):
    assert run(["reconstruct", str(saved), "--tables", "age,sex", "--out", str(saved)]) == 2
    assert capsys.readouterr().err.endswith("is there already; name another folder, or replace it with --overwrite\n")


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
