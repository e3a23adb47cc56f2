"""What reaches a terminal: labels, names, paths and messages are shown as texts, by every command, on any terminal."""

import csv
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import margrave as mg
from margrave.cli import app, demo, release, town
from margrave.cli.app import run
from margrave.cli.screen import Screen, progress
from margrave.errors import MargraveError
from margrave.privacy.budget import Budget
from margrave.privacy.ledger import Ledger

# Clears the screen; another way to begin a sequence; turns the line around; ends a line; has no width; half a letter.
ACTS = "\x1b[2J", "\x9b31m", "\u202ert l", "two\nlines\r", "zero\u200bwidth"
# What rich would take for markup, for the end of a style that never began, or for a picture.
MARKUP = "[/red]", "[bold]b[/bold]", ":smile:", "[link=http://evil.example]x[/link]"
LABELS = (*ACTS, *MARKUP, "=1+1", "plain")
NAMES = "na[/red]me\x1b[2J", "other \u202e"
DOMAIN = mg.Domain([mg.Attribute(name, labels=LABELS) for name in NAMES], description="\x1b[31m[/red]")
SHOWN = r"\x1b[2J", r"\x9b31m", r"\u202ert l", r"two\nlines\r", r"zero\u200bwidth", *MARKUP, "=1+1", "plain"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A release whose names and labels are hostile, in a folder with a name of that kind."""
    folder = tmp_path_factory.mktemp("hostile") / "re[b]lease\x1b[2J\u202e"
    counts = np.arange(len(LABELS) ** 2, dtype=float).reshape(len(LABELS), -1) - 5
    noisy = mg.Measurements.from_marginals(DOMAIN, [(NAMES, counts, 25.0)])
    mg.reconstruct(noisy, mg.Workload(DOMAIN, [NAMES]), method="mle").save(folder)
    return folder


def harmless(text):
    """Whether a text has nothing in it that acts on a terminal, line ends apart."""
    return all(one == "\n" or one.isprintable() for one in text)


def said(capsys, *words, code=0):
    """What a command says on both streams, if it ends as it should and harms no terminal."""
    assert run([str(word) for word in words]) == code
    shown = capsys.readouterr()
    assert harmless(shown.out + shown.err)
    return shown.out + shown.err


def test_labels_in_an_answer_are_shown_as_they_are(saved, capsys):
    shown = said(capsys, "query", saved, "--by", NAMES[0])
    lines = [line.strip("│ ").split(" │ ")[0].strip() for line in shown.splitlines() if "│" in line]
    assert lines == list(SHOWN)
    assert r"na[/red]me\x1b[2J" in shown


def test_json_holds_the_labels_themselves_and_harms_no_terminal(saved, capsys):
    told = json.loads(said(capsys, "query", saved, "--by", NAMES[0], "--json"))
    assert [row[NAMES[0]] for row in told["rows"]] == list(LABELS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("query", "no\x1b[31m [/red] \u202e\nsuch"), r"no\x1b[31m [/red] \u202e\nsuch"),
        (("--\x1b[31m[/red]",), r"--\x1b[31m[/red]"),
        (("query\x1b[31m",), r"query\x1b[31m"),
        (("plan", "--domain", "x\udcff\x07"), r"x\udcff\x07"),
    ],
)
def test_an_error_is_one_line_whatever_was_given(capsys, words, message):
    shown = said(capsys, *words, code=2)
    assert message in shown
    assert shown.count("\n") == 1


def test_an_error_about_a_label_shows_it_escaped(saved, capsys):
    shown = said(capsys, "query", saved, "'\x1b[2J' = 1", code=2)
    assert shown.startswith("error: ")


def test_the_trace_of_an_error_harms_no_terminal_either(monkeypatch, capsys):
    def fail(*words, **options):
        raise MargraveError("[/red]\x1b[2J")

    monkeypatch.setattr(app, "app", fail)
    shown = said(capsys, "--debug", "demo", code=2)
    assert "\n  File " in shown
    assert shown.endswith("error: [/red]\\x1b[2J\n")


def test_drafts_and_their_fit(tmp_path, capsys):
    table = tmp_path / "ta[b]ble\x1b[2J.csv"
    with table.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(NAMES)
        writer.writerows([(LABELS[k % len(LABELS)], LABELS[k % 7]) for k in range(200)])
    drafted = said(capsys, "domain", table)
    assert r"na[/red]me\x1b[2J" in drafted
    text = drafted[drafted.index("{") :]
    document = json.loads(text[: text.rindex("\n}") + 2])
    assert sorted(document["attributes"][0]["labels"]) == sorted(LABELS)
    domain = tmp_path / "domain [b].json"
    DOMAIN.write(domain)
    assert r"na[/red]me\x1b[2J" in said(capsys, "validate", table, domain)
    mg.Domain([mg.Attribute(name, labels=("plain",)) for name in NAMES]).write(domain)
    unfit = said(capsys, "validate", table, domain, code=2)
    assert "[/red]" in unfit
    written = tmp_path / "dra[b]ft\u202e.json"
    assert r"dra[b]ft\u202e.json is written" in said(capsys, "domain", table, "--out", written)


def test_ledgers(tmp_path, capsys):
    file = tmp_path / "led[b]ger\x1b[2J"
    Ledger(file, Budget.zcdp(rho=1)).charge(0.5, "pur[/red]pose\x1b[2J")
    shown = said(capsys, "ledger", file)
    assert r"led[b]ger\x1b[2J" in shown
    assert r"pur[/red]pose\x1b[2J" in shown


def test_reports_and_exports(saved, tmp_path, capsys):
    for form, ending in (("csv", "c"), ("sdmx", "s.csv"), ("registry", "r.yaml")):
        out = tmp_path / f"[b]\u202e{ending}"
        words = ("--agency", "A", "--dataflow", "D") if form == "sdmx" else ()
        assert rf"{form}: " in said(capsys, "export", saved, "--form", form, *words, "--out", out)
        assert out.exists()
    assert r"page[b]\x1b.html" in said(capsys, "report", saved, "--out", tmp_path / "page[b]\x1b.html")


def test_a_plan_and_a_reconstruction(saved, tmp_path, capsys):
    DOMAIN.write(tmp_path / "domain.json")
    words = ("--domain", tmp_path / "domain.json", "--kway", 2, "--epsilon", 1, "--delta", 1e-9, "--contributions", 1)
    shown = said(capsys, "plan", *words, "--rows", 1000, "--margin", ",".join(NAMES))
    assert r"na[/red]me\x1b[2J × other \u202e: ±" in shown
    out = tmp_path / "out[b]\x1b[2J"
    shown = said(capsys, "reconstruct", saved, "--kway", 1, "--method", "mle", "--out", out)
    assert shown.startswith("2 tables in ")
    assert r"out[b]\x1b[2J" in shown


def test_what_is_exported_for_spreadsheets_can_be_read_again(saved, tmp_path, capsys):
    said(capsys, "export", saved, "--out", tmp_path / "csv")
    (file,) = (tmp_path / "csv").iterdir()
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    assert "'=1+1" in {row[0] for row in rows}
    with (tmp_path / "noisy.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([row[:3] for row in rows])
    DOMAIN.write(tmp_path / "domain.json")
    words = ("--variance", 25, "--domain", tmp_path / "domain.json", "--kway", 2, "--method", "mle", "--no-report")
    said(capsys, "reconstruct", tmp_path / "noisy.csv", *words, "--out", tmp_path / "again")
    before, after = mg.load(saved).table(*NAMES), mg.load(tmp_path / "again").table(*NAMES)
    # Two passes of a least-squares fit through the numbers 0 … 120: 1e-9 is far above their rounding.
    np.testing.assert_allclose(after.values, before.values, rtol=0, atol=1e-9)


@pytest.mark.parametrize("guard", [True, False])
def test_names_and_labels_of_noisy_tables_may_be_guarded_or_not(tmp_path, capsys, guard):
    domain = mg.Domain([mg.Attribute("=a", labels=("=x", "'=x", "-y")), mg.Attribute("'=a", labels=("u", "v"))])
    domain.write(tmp_path / "domain.json")
    mark = "'" if guard else ""
    rows = [(f"{mark}=a", f"{mark}'=a", "count")]
    rows += [(f"{mark}{a}", b, 10 * k + j) for k, a in enumerate(("=x", "'=x", "-y")) for j, b in enumerate("uv")]
    with (tmp_path / "noisy.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)
    words = ("--variance", 1, "--domain", tmp_path / "domain.json", "--kway", 2, "--method", "mle", "--no-report")
    said(capsys, "reconstruct", tmp_path / "noisy.csv", *words, "--out", tmp_path / "out")
    found = mg.load(tmp_path / "out").table("=a", "'=a").values
    np.testing.assert_allclose(found, [[0, 1], [10, 11], [20, 21]], rtol=0, atol=1e-9)


def test_the_demo_names_the_extra_in_full(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "_can_report", lambda: False)
    monkeypatch.setattr(demo, "_show", lambda released, by_one_plan: None)
    monkeypatch.setattr(demo, "_by_one_plan", lambda job, workload: [])
    monkeypatch.setattr(release, "run", lambda job: None)
    monkeypatch.setattr(town, "write_csv", lambda path: None)
    monkeypatch.setattr("margrave.release.store.loading.load", lambda folder: SimpleNamespace())
    shown = said(capsys, "demo", "--out", tmp_path / "de[b]mo")
    assert shown.endswith("pip install 'margrave[report]'\n")
    assert "de[b]mo" in shown


def test_negative_counts_of_the_demo_are_red_and_labels_are_texts(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    table = demo.crosstab("t[/red]\x1b", ["r[/red]\x1b", "s"], ["c[/red]\x1b"], np.array([[-5.0], [7.0]]))
    Screen(width=80).print(table)
    shown = capsys.readouterr().out
    assert re.search(r"\x1b\[31m *-5\x1b\[0m", shown)
    for name in "trc":
        assert rf"{name}[/red]\x1b" in shown


def test_progress_shows_texts(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with progress() as begin:
        begin("read[/red]ing\x1b]0;x\x07")(1, 2)
    shown = capsys.readouterr().err
    assert r"read[/red]ing\x1b]0;x\x07" in shown
    assert "\x1b]0;" not in shown


@pytest.mark.parametrize(
    ("encoding", "columns"), [("ascii", "1"), ("cp1252", "0"), ("utf-8", "20"), ("utf-16", "wide"), ("utf-8", "99999")]
)
def test_no_terminal_is_too_narrow_or_too_old(saved, encoding, columns):
    settings = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": columns, "TERM": "dumb", "LC_ALL": "C"}
    line = [sys.executable, "-m", "margrave", "query", str(saved), "--by", NAMES[0]]
    done = subprocess.run(line, capture_output=True, env=settings)
    assert (done.returncode, done.stderr.decode(encoding)) == (0, "")
    shown = done.stdout.decode(encoding)
    assert harmless(shown.replace("\r\n", "\n"))
    assert all(label in shown for label in SHOWN)


def test_words_that_are_no_text_of_the_terminal_are_shown_escaped(tmp_path):
    line = [sys.executable, "-m", "margrave", "query", b"\xff\xfe\x1b[2J"]
    done = subprocess.run(line, capture_output=True, cwd=tmp_path, env={**os.environ, "PYTHONUTF8": "1"})
    assert done.returncode == 2
    assert done.stderr == b"error: there is no folder \\udcff\\udcfe\\x1b[2J; give the folder of a release\n"
