"""The comparison beside AIM and MST: every method answers within its budget, runs go on where they stopped."""

import math
from dataclasses import replace

import fits
import numpy as np
import pytest

import margrave as mg
from experiments import ExperimentError, aim, peers
from experiments.__main__ import reproduce
from experiments.confined import confined
from experiments.peer_methods import PEERS, Draw, find_peers, order_errors, read_table
from experiments.peers import PeerRecord, PeerSettings, run_peers
from experiments.peers_page import error_bands, mean_errors, peers_page, ratios
from experiments.records import DONE, FAILED, MEMORY_LIMIT, TIME_LIMIT
from margrave.cli import app

FAST = ("zeros", "product", "pairs", "nonnegative")


@pytest.fixture(scope="module")
def town(folder):
    return read_table(folder, "town", 3)


@pytest.fixture
def draw():
    return Draw(mg.Budget.approx(epsilon=10, delta=1e-9), 7)


@pytest.mark.parametrize("key", [peer.key for peer in find_peers(()) if peer.key != "aim-8"])
def test_every_method_answers_with_its_budget(town, draw, key, monkeypatch):
    monkeypatch.setattr(aim, "STEPS", 200)
    monkeypatch.setattr(aim, "LAST_STEPS", 400)
    answered = PEERS[key].run(town, draw)
    errors = order_errors(town, answered.marginals)
    assert set(errors) == {1, 2, 3}
    if key == "zeros":
        assert errors == {1: 1.0, 2: 1.0, 3: 1.0}
        assert answered.rho == 0
        return
    assert answered.rho == pytest.approx(float(draw.budget.rho), rel=1e-9)
    assert errors[1] < errors[2] < errors[3]
    assert errors[1] < 0.05
    assert errors[3] < (0.8 if key == "product" else 0.25)
    again = PEERS[key].run(town, draw)
    np.testing.assert_array_equal(again.marginals, answered.marginals)


def test_errors_by_order_are_those_of_plain_sums(town):
    draw = np.random.default_rng(0)
    people = draw.multinomial(town.rows, np.full(6 * 2 * 5 * 4 * 7, 1 / 1680)).reshape(6, 2, 5, 4, 7)
    marginals = np.zeros(town.layout.cells)
    for members in town.workload.positions:
        gone = tuple(axis for axis in range(5) if axis not in members)
        town.layout.view(marginals, town.layout.places[members])[...] = people.sum(axis=gone)
    found = order_errors(town, marginals)
    for order in (1, 2, 3):
        expected = []
        for place, members in enumerate(town.layout.sets):
            if len(members) == order:
                gone = tuple(axis for axis in range(5) if axis not in members)
                expected.append(np.abs(people.sum(axis=gone) - town.layout.view(town.truth, place)).sum() / town.rows)
        assert found[order] == pytest.approx(np.mean(expected))


def test_a_generated_table_is_read_without_a_folder():
    dataset = read_table(None, "binary-3", 2)
    assert (dataset.rows, len(dataset.workload)) == (1500, 190)
    with pytest.raises(ExperimentError, match="'town' is not a generated table; name the folder of the others"):
        read_table(None, "town", 2)


def test_a_run_goes_on_where_it_stopped(folder, tmp_path, monkeypatch):
    settings = PeerSettings(folder, datasets=("village",), epsilons=(0.31, 1.0), methods=FAST, trials=2)
    told = []
    first = run_peers(settings, tmp_path, progress=lambda *given: told.append(given))
    assert len(first) == len(told) == 2 * 4 * 2
    assert told[-1] == (16, 16, "village, ε = 1, trial 1, nonnegative")
    assert {record.status for record in first} == {DONE}
    monkeypatch.setattr(peers, "run_peer", None)
    assert [record.key for record in run_peers(settings, tmp_path)] == [record.key for record in first]


def test_all_methods_of_a_trial_share_a_seed_and_aim_runs_at_three_budgets(folder):
    settings = PeerSettings(folder, datasets=("village",), methods=("nonnegative", "aim"), trials=2)
    keys = peers.pending(settings, [])
    assert {key[2] for key in keys if key[4] == "aim"} == {0.1, 1.0, 10.0}
    assert {key[2] for key in keys if key[4] == "nonnegative"} == {0.1, 0.31, 1.0, 3.16, 10.0}
    assert sum(key[4] == "aim" for key in keys) == 3
    assert settings.seed_of("village", 1.0, 0) != settings.seed_of("village", 1.0, 1)


def test_what_ended_without_a_result_is_run_again_on_request_only(folder):
    settings = PeerSettings(folder, datasets=("village",), epsilons=(1.0,), methods=("aim",))
    failed = [PeerRecord("village", 3, 1.0, 0, "aim", TIME_LIMIT, delta=1e-9)]
    assert peers.pending(settings, failed) == []
    assert peers.pending(replace(settings, retry=True), failed) == [("village", 3, 1.0, 0, "aim")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"datasets": ()}, "datasets is empty"),
        ({"trials": 0}, "trials is 0; give a whole number of at least 1"),
        ({"order": 4}, "order is 4; the workload is all tables of 2 or of 3 attributes"),
        ({"limit_gb": 0}, "limit_gb is 0; give a positive number"),
        ({"methods": ("aims",)}, "no method 'aims'; did you mean 'aim'"),
    ],
)
def test_what_cannot_be_run_is_told(folder, change, message):
    with pytest.raises(ExperimentError, match=message):
        PeerSettings(folder, **change)


def test_a_method_that_this_margrave_has_not_is_told(monkeypatch):
    monkeypatch.setitem(PEERS, "aim", replace(PEERS["aim"], available=lambda: False))
    with pytest.raises(ExperimentError, match="method 'aim' needs another version of margrave than this one"):
        find_peers(("aim",))
    assert "aim" not in {peer.key for peer in find_peers(())}


def test_results_of_other_options_or_tables_are_not_mixed(folder, tmp_path):
    settings = PeerSettings(folder, datasets=("village",), epsilons=(1.0,), methods=("zeros",), trials=1)
    run_peers(settings, tmp_path)
    with pytest.raises(ExperimentError, match="results with --seed 0, and --seed 5 is asked for"):
        run_peers(replace(settings, seed=5), tmp_path)
    file = tmp_path / "peers.csv"
    file.write_text(file.read_text().replace(read_table(folder, "village", 3).fingerprint, "0" * 12))
    with pytest.raises(ExperimentError, match="results of another table than the 'village' that there is now"):
        run_peers(settings, tmp_path)
    with pytest.raises(ExperimentError, match="'village' is not a generated table; name the folder"):
        run_peers(replace(settings, data=None), tmp_path)


def test_limits_hold_and_failures_are_told_apart():
    def run(work, *given, seconds=60.0, gigabytes=8.0):
        return confined(work, *given, limit_seconds=seconds, limit_gb=gigabytes)

    found = run(fits.spins, seconds=0.5)
    assert (found.status, found.value, found.note) == (TIME_LIMIT, None, "more than 0.5 s of processor time")
    assert found.processor_seconds > 0.5
    held = run(fits.takes_memory, None, None, gigabytes=0.3)
    assert (held.status, held.note) == (MEMORY_LIMIT, "more than 0.3 GB")
    assert run(fits.dies, None, None).note == "its process ended with exit code -9"
    failed = run(math.sqrt, -1.0)
    assert failed.status == FAILED
    assert failed.note.startswith("ValueError: ")
    assert run(math.sqrt, 4.0).value == 2.0


def test_aim_runs_in_a_process_of_its_own(folder, tmp_path):
    settings = PeerSettings(folder, datasets=("village",), epsilons=(10.0,), methods=("aim",), limit_seconds=120)
    (record,) = run_peers(settings, tmp_path)
    assert (record.status, record.note) == (DONE, "")
    assert record.rho_spent == pytest.approx(record.rho, rel=1e-5)
    assert (record.cap_mb, record.limit_seconds, record.private) == (80, 120, "no")
    assert 0 < record.model_mb < 80
    assert record.l1 == record.l1_order3 < 0.6
    answered = PEERS["aim"].run(
        read_table(folder, "village", 3), Draw(mg.Budget.approx(epsilon=10, delta=1e-9), record.seed)
    )
    assert record.chosen == answered.chosen


def rows_of_page():
    def row(name, epsilon, method, error, trial=0, status=DONE):
        errors = {"l1_order1": error / 4, "l1_order2": error / 2, "l1_order3": error} if status == DONE else {}
        return PeerRecord(name, 3, epsilon, trial, method, status, **errors, processor_seconds=2.0, note="too long")

    return [
        row("titanic", 1.0, "nonnegative", 0.2),
        row("titanic", 1.0, "nonnegative", 0.4, trial=1),
        row("titanic", 1.0, "aim", 0.6),
        row("adult", 1.0, "nonnegative", 0.4),
        row("adult", 1.0, "aim", 0.2),
        row("binary-1", 1.0, "nonnegative", 0.1),
        row("binary-1", 1.0, "aim", math.nan, status=TIME_LIMIT),
    ]


def test_the_page_says_what_the_rows_say(tmp_path):
    rows = rows_of_page()
    means = mean_errors(rows, 3)
    assert means["titanic", 3, 1.0, "nonnegative"] == pytest.approx(0.3)
    assert sorted(ratios(means, "nonnegative", "aim", 1.0)) == pytest.approx([0.5, 2.0])
    page = peers_page(rows, tmp_path)
    assert "| margrave, plan nonnegative | AIM, 80 MB | **1.00** (2.00; 2) |" in page
    assert "| titanic | 1 | 0.3 | 0.6 |" in page
    assert "| titanic | 1 | 0.15 | 0.3 |" in page
    assert "- binary-1, ε = 1, trial 0, AIM, 80 MB: time limit (too long)" in page
    assert "peers-3way.svg" not in page
    (band,) = [band for band in error_bands(rows, 3) if band.dataset == "titanic" and band.method == "nonnegative"]
    assert (band.trials, band.least, band.most) == (2, 0.2, 0.4)


def test_the_command_runs_draws_and_writes_the_page(folder, tmp_path, capsys):
    pytest.importorskip("altair", reason="figures need altair, of the extra report")
    pytest.importorskip("vl_convert", reason="figures need vl-convert-python, of the extra report")
    words = ["peers", "--data", str(folder), "--datasets", "village", "--epsilons", "1,10", "--trials", "1"]
    assert app.run([*words, "--methods", "zeros,product", "--order", "2", "--out", str(tmp_path)], reproduce) == 0
    told = [line.rsplit("/", 1)[-1] for line in capsys.readouterr().out.split() if "/" in line]
    assert told == ["peers.csv", "peers-2way.png", "peers-2way.svg", "peers.md"]
    assert "![Error against ε](peers-2way.svg)" in (tmp_path / "peers.md").read_text()
