"""``margrave release`` and money: what is charged is kept, what is refused is free, the ledger says what for."""

import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

import duckdb
import pytest

import margrave as mg
from margrave import boundary, memory
from margrave.cli.app import run
from margrave.measurements import Measurements
from margrave.privacy.ledger import Ledger

DOMAIN = mg.Domain(
    [
        mg.Attribute("age", cuts=(17, 64)),
        mg.Attribute("sex", labels=("female", "male")),
        mg.Attribute("region", labels=("south", "east", "north")),
        mg.Attribute("health", labels=("good", "fair", "poor")),
    ]
)
ROWS = [
    (str(i % 90), ("female", "male")[i % 2], ("south", "east", "north")[i % 3], ("good", "fair", "poor")[i % 3])
    for i in range(300)
]
WORDS = ("--domain", "domain.json", "--kway", "2", "--rho", "0.1", "--contributions", "1", "--no-report")
LEDGER = ("--ledger", "people.ledger", "--cap-rho", "1")


@pytest.fixture
def survey(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [",".join(row) for row in [("age", "sex", "region", "health"), *ROWS]]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    DOMAIN.write(tmp_path / "domain.json")
    return tmp_path


def release(*more, out="release"):
    return run(["release", "people.csv", *WORDS, "--out", out, *map(str, more)])


def signalling(monkeypatch, *places, number=signal.SIGINT):
    """Send a signal to this process in the middle of these draws of noise."""
    drawn, lock, count = boundary._drawn, threading.Lock(), iter(range(10**6))

    def drawing(*words):
        with lock:
            place = next(count)
        if place in places:
            signal.pthread_kill(threading.main_thread().ident, number)
            time.sleep(0.7)  # more than one press of a key takes
        return drawn(*words)

    monkeypatch.setattr(boundary, "_drawn", drawing)


# Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_charge_keeps_what_was_paid_for_and_names_the_command_that_goes_on(
    survey, monkeypatch, capfd, number
):
    signalling(monkeypatch, 4, number=number)
    assert release(*LEDGER, "--mechanism", "planner", "--csv", "--title", "A survey") == 130
    said = capfd.readouterr().err
    assert "received while ρ = 0.1 (ε = 2.7155 at δ = 1e-09) is being spent: the run continues to the end" in said
    assert "error: interrupted; ρ = 0.1 (ε = 2.7155 at δ = 1e-09) is charged in full, and all that was measured" in said
    (entry,) = Ledger("people.ledger").entries()
    kept = Measurements.load("release.measurements.npz")
    assert (kept.provenance.ledger_hash, kept.provenance.rho) == (entry.hash, entry.rho)
    command = re.search(r"to continue from them at no cost: (margrave .*)$", said, flags=re.MULTILINE)[1]
    words = shlex.split(command)
    assert words[:3] == ["margrave", "reconstruct", "release.measurements.npz"]
    assert run(words[1:]) == 0
    released = mg.load("release")
    assert (len(released.workload), released.provenance) == (6, kept.provenance)
    assert len(list((survey / "release" / "tables").glob("*.csv"))) == 6
    assert Ledger("people.ledger").spent == entry.rho


def test_a_second_ctrl_c_ends_at_once_and_says_what_is_lost(survey, monkeypatch, capfd):
    monkeypatch.setenv("MARGRAVE_THREADS", "1")
    signalling(monkeypatch, 2, 3)
    assert release(*LEDGER, "--objective", "nonnegative") == 130  # in one stage
    said = capfd.readouterr().err
    assert "error: ended at once; ρ = 0.1 (ε = 2.7155 at δ = 1e-09) is charged and nothing that it paid for is" in said
    assert len(Ledger("people.ledger").entries()) == 1
    assert sorted(path.name for path in survey.iterdir()) == ["domain.json", "people.csv", "people.ledger"]


def test_ctrl_c_before_the_charge_costs_nothing_and_leaves_nothing(survey, monkeypatch, capfd):
    from margrave.data.source import TableSource

    def interrupted(self, layout):
        raise KeyboardInterrupt

    monkeypatch.setattr(TableSource, "count", interrupted)
    assert release(*LEDGER) == 130
    assert "error: interrupted; nothing was charged\n" in capfd.readouterr().err
    assert sorted(path.name for path in survey.iterdir()) == ["domain.json", "people.csv"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_publishing_says_how_to_go_on(survey, monkeypatch, capfd, number):
    from margrave.release.store import saving

    monkeypatch.setattr(saving, "_write_tables", lambda *words: signal.raise_signal(number))
    assert release(*LEDGER, "--tables", "age,sex", "--max-cells", "9") == 2  # kway and tables are one too many
    assert release("--max-cells", "8", *LEDGER) == 130
    said = capfd.readouterr().err
    assert "interrupted; ρ = 0.1 (ε = 2.7155 at δ = 1e-09) is charged; the measurements are paid" in said
    assert "margrave reconstruct release.measurements.npz --kway 2 --max-cells 8 --method lnn --out release" in said
    assert len(Measurements.load("release.measurements.npz")) > 0
    assert not list(survey.glob(".*"))


@pytest.mark.parametrize(("number", "delay"), [(signal.SIGINT, 0), (signal.SIGHUP, 0.3), (signal.SIGTERM, 0.05)])
def test_a_signal_to_a_process_that_has_just_charged_loses_nothing(survey, number, delay):
    """A plan of 1.3 million cells, so that the noise takes a while to draw."""
    sizes = {f"a{place:02}": 8 for place in range(11)}
    mg.Domain.fromdict(sizes).write("large.json")
    (survey / "codes.csv").write_text(",".join(sizes) + "\n" + ",".join(["3"] * 11) + "\n", encoding="utf-8")
    words = ["release", "codes.csv", "--domain", "large.json", "--kway", "4", "--rho", "1", "--contributions", "1"]
    words += ["--out", "release", "--no-report", "--ledger", "codes.ledger", "--cap-rho", "1"]
    line = [sys.executable, "-m", "margrave", *words]
    with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as running:
        while not (survey / "codes.ledger").exists() and running.poll() is None:
            time.sleep(0.002)
        time.sleep(delay)
        running.send_signal(number)
        _, errors = running.communicate(timeout=120)
    assert running.returncode in (0, 130, -number), errors
    (entry,) = Ledger("codes.ledger").entries()
    kept = survey / "release.measurements.npz"
    found = Measurements.load(kept) if kept.exists() else mg.load("release").measurements
    assert found.provenance.ledger_hash == entry.hash
    if running.returncode == 130:
        assert "margrave reconstruct release.measurements.npz --kway 4" in errors


# Refusals come before the charge


# In bytes: tables 360, closure 456, and 600 for what is kept of each of six tables; "lnn" needs some five and "mle" 2.5
# times the tables, and the measurements beside them; the rule of "lnn" 5.2 MB more.
@pytest.mark.parametrize(
    ("method", "usable", "code"), [("mle", 5000, 0), ("mle", 4900, 2), ("lnn", 5_206_200, 0), ("lnn", 5_206_100, 2)]
)
def test_memory_is_asked_for_before_the_charge_as_it_is_afterwards(survey, monkeypatch, capsys, method, usable, code):
    monkeypatch.setenv("MARGRAVE_THREADS", "1")
    monkeypatch.setattr(memory, "_USABLE_SHARE", 1)
    # What the measurements take is gone by the time that tables are made from them.
    held = [0]
    monkeypatch.setattr(memory, "available_bytes", lambda: usable - held[0])
    save = Measurements.save

    def saved(noisy, path):
        held[0] = noisy.values.nbytes
        save(noisy, path)

    monkeypatch.setattr(Measurements, "save", saved)
    assert release(*LEDGER, "--mechanism", "planner", "--method", method, "--no-errors") == code
    assert (survey / "people.ledger").exists() == (code == 0)
    if code:
        assert f"reconstruction of 6 tables by '{method}' needs" in capsys.readouterr().err


def test_a_title_that_cannot_be_written_is_refused_before_the_charge(survey, capsys):
    assert release(*LEDGER, "--title", "\udcff") == 2
    assert "the title" in capsys.readouterr().err
    assert not (survey / "people.ledger").exists()


@pytest.mark.parametrize(
    "more", [("--method", "best"), ("--out", "no/such"), ("--rho", "2"), ("--privacy-id", "none"), ("--table", "x")]
)
def test_a_run_that_is_refused_begins_no_ledger(survey, more):
    before = sorted(survey.iterdir())
    assert release(*LEDGER, *more) in (2, 3)
    assert sorted(survey.iterdir()) == before


# The ledger


def test_a_new_ledger_is_announced_and_one_that_is_there_is_not(survey, capsys):
    assert release(*LEDGER) == 0
    said = capsys.readouterr().out
    assert (
        "a new ledger is created, people.ledger, with the cap ρ = 1 (ε = 9.5215 at δ = 1e-09). If this table"
        in said
        in said
    )
    assert "ledger: spent ρ = 0.1 (ε = 2.7155), cap ρ = 1 (ε = 9.5215), left ρ = 0.9 (ε = 8.9739), each ε at δ" in said
    assert "ρ adds up, these ε do not" in said
    assert release(*LEDGER, out="second") == 0
    assert "a new ledger" not in capsys.readouterr().out
    (survey / "people.ledger").rename(survey / "moved.ledger")
    assert release(*LEDGER, "--json", out="third") == 0
    told = json.loads(capsys.readouterr().out)["ledger"]
    assert (told["file"], told["begun"], told["entry"]) == ("people.ledger", True, 1)
    assert told["hash"] == Ledger("people.ledger").entries()[0].hash


def test_a_refusal_states_the_epsilon_of_each_amount(survey, capsys):
    assert release("--ledger", "people.ledger", "--cap-rho", "0.15") == 0
    assert release("--ledger", "people.ledger", out="second") == 3
    said = capsys.readouterr().err
    assert "has no room for it; nothing was read or charged: ask for less (spent ρ = 0.1 (ε = 2.7155), cap" in said
    assert "these ε do not)" in said


def test_the_entry_names_what_was_measured_and_the_release_names_the_entry(survey, capsys):
    assert release(*LEDGER, "--title", "A survey") == 0
    (entry,) = Ledger("people.ledger").entries()
    details = dict(entry.details)
    salt = details.pop("salt")
    assert len(salt) == 32
    workload = mg.Workload.all_kway(DOMAIN, 2)
    assert details == {
        "title": "A survey",
        "release": str(survey / "release"),
        "address": str(survey / "people.csv"),
        "domain": DOMAIN.fingerprint,
        "workload": "Workload(6 tables of 2 attributes, 45 cells)",
        "workload_fingerprint": workload.fingerprint,
        "epsilon": mg.Budget.zcdp(rho=0.1).epsilon(),
        "delta": 1e-9,
    }
    record = mg.load("release").provenance
    privacy = json.loads((survey / "release" / "privacy.json").read_text(encoding="utf-8"))
    for number, digest in (
        (record.ledger_entry, record.ledger_hash),
        (privacy["ledger_entry"], privacy["ledger_hash"]),
    ):
        assert (number, digest) == (1, entry.hash)
    assert salt not in json.dumps(privacy)


def test_the_entry_keeps_the_query_whole(survey):
    with duckdb.connect("people.duckdb") as database:
        database.execute("CREATE TABLE people AS SELECT * FROM read_csv('people.csv')")
    query = "SELECT * FROM people WHERE age < 80"
    assert run(["release", "people.duckdb", "--query", query, *WORDS, *LEDGER, "--out", "release"]) == 0
    (entry,) = Ledger("people.ledger").entries()
    assert (entry.details["query"], entry.details["address"]) == (query, str(survey / "people.duckdb"))


def test_another_domain_on_the_same_ledger_is_refused_unless_asked_for(survey, capsys):
    assert release(*LEDGER) == 0
    mg.Domain([*list(DOMAIN)[:3], mg.Attribute("health", labels=("good", "fair", "poor", "none"))]).write("domain.json")
    spent = Ledger("people.ledger").spent
    assert release(*LEDGER, out="second") == 2
    assert (
        f"is charged for the domain {DOMAIN.fingerprint[:12]}… and this table has the domain" in capsys.readouterr().err
    )
    assert (Ledger("people.ledger").spent, (survey / "second").exists()) == (spent, False)
    assert release(*LEDGER, "--ledger-any-domain", out="second") == 0
    # Words for the reader make no other domain.
    mg.Domain(list(DOMAIN), description="reworded").write("domain.json")
    assert release(*LEDGER, out="third") == 0


# ``margrave ledger``


def test_a_ledger_is_created_shown_and_repaired(survey, capsys):
    assert run(["ledger", "create", "people.ledger", "--cap-epsilon", "2", "--delta", "1e-9"]) == 0
    assert "New ledger: people.ledger" in capsys.readouterr().out
    assert Ledger("people.ledger").cap == mg.Budget.approx(epsilon=2, delta=1e-9).rho
    assert run(["ledger", "create", "people.ledger", "--cap-rho", "1"]) == 2
    assert "already exists; a ledger is never started over" in capsys.readouterr().err
    assert release("--ledger", "people.ledger", "--rho", "0.01", "--title", "[red]A survey[/]") == 0
    capsys.readouterr()
    for words in (["ledger", "people.ledger"], ["ledger", "show", "people.ledger"]):
        assert run(words) == 0
        shown = capsys.readouterr().out
        assert "adaptive planner" in shown
        assert "title: [red]A survey[/]" in shown
        assert "workload: Workload(6 tables of 2 attributes, 45 cells)" in shown
        for word in ("cap", "spent", "left"):
            assert re.search(rf"{word}: ρ [=≈] [0-9.]+, by itself ε = [0-9.]+ at δ = 1e-09", shown)
        assert "These ε do not add up" in shown
    for words in (["ledger", "--json", "people.ledger"], ["ledger", "people.ledger", "--json", "--delta", "1e-6"]):
        assert run(words) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["delta"] == (1e-6 if "--delta" in words else 1e-9)
        assert told["spent_epsilon"] == mg.Budget.zcdp(rho=told["spent"]).epsilon(told["delta"])
        assert told["spent_epsilon"] + told["remaining_epsilon"] > told["cap_epsilon"]
        assert told["entries"][0]["hash"] == Ledger("people.ledger").entries()[0].hash
    assert run(["ledger", "repair", "people.ledger"]) == 2
    assert "is complete: there is nothing to repair" in capsys.readouterr().err
    with (survey / "people.ledger").open("ab") as file:
        file.write(b'{"number":2,"ti')
    assert run(["ledger", "people.ledger"]) == 0
    assert "margrave ledger repair" in capsys.readouterr().out
    assert run(["ledger", "repair", "people.ledger"]) == 2
    assert "its amount cannot be read, so say what to book" in capsys.readouterr().err
    assert run(["ledger", "repair", "people.ledger", "--rho", "0.01"]) == 0
    assert "Booked ρ = 0.01 as entry 2; the ledger is complete again." in capsys.readouterr().out
    assert Ledger("people.ledger").torn is None


def test_words_that_name_no_ledger(survey, capsys):
    for words, message in (
        ([], "Missing argument"),
        (["nowhere.ledger"], "there is no ledger 'nowhere.ledger'"),
        (["create", "x.ledger"], "neither of --cap-epsilon and --cap-rho given"),
        (["create", "x.ledger", "--cap-epsilon", "1"], "--cap-epsilon needs --delta as well"),
        (["repair", "x.ledger"], "there is no ledger 'x.ledger'"),
    ):
        assert run(["ledger", *words]) == 2
        assert message in capsys.readouterr().err
    assert not (survey / "x.ledger").exists()


@pytest.mark.parametrize(("delta", "warned"), [("0.01", True), ("1e-9", False)])
def test_a_large_delta_is_pointed_out_before_anything_is_charged(survey, capsys, delta, warned):
    asked = ["--domain", "domain.json", "--kway", "2", "--epsilon", "1", "--delta", delta, "--contributions", "1"]
    assert run(["plan", *asked, "--rows", "100"]) == 0
    assert (f"δ = {delta} is large: take far less than one over" in capsys.readouterr().out) == warned
