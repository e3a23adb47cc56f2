"""The results that are kept in docs/results: the summary is made from the rows, and the page tells what they say."""

import re
from pathlib import Path

import pytest

from experiments.coverage import FILE as COVERAGE_FILE
from experiments.coverage import PAGE as COVERAGE_PAGE
from experiments.coverage import CoverageRecord, coverage_page
from experiments.journal import read_rows
from experiments.methods import METHODS
from experiments.pages import summary_page
from experiments.paired import FILE as PAIRED_FILE
from experiments.paired import Trial, compare
from experiments.paired_page import PAGE as PAIRED_PAGE
from experiments.paired_page import paired_page
from experiments.peer_methods import BEFORE, GENERATED, read_table
from experiments.peers import FILE as PEERS_FILE
from experiments.peers import PeerRecord
from experiments.peers_page import PAGE as PEERS_PAGE
from experiments.peers_page import peers_page
from experiments.records import DONE, Record
from experiments.runs import results_file
from experiments.scaling import FILE, Scaling
from experiments.settings import DATASETS, EPSILONS, ROUNDS
from experiments.summary import bands, ratios

FOLDER = Path(__file__).parents[1] / "docs" / "results"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def records():
    return {experiment: read_rows(results_file(FOLDER, experiment), Record) for experiment in METHODS}


def test_the_summary_is_made_from_the_rows(records):
    scaling = read_rows(FOLDER / FILE, Scaling)
    assert (FOLDER / "summary.md").read_text(encoding="utf-8") == summary_page(records, scaling, FOLDER)


def test_the_page_of_coverage_is_made_from_its_rows():
    rows = read_rows(FOLDER / COVERAGE_FILE, CoverageRecord)
    assert (FOLDER / COVERAGE_PAGE).read_text(encoding="utf-8") == coverage_page(rows)
    widths = [
        row.width_beside / row.unbiased_width
        for row in rows
        if (row.group, row.method) == ("order", "lnn") and row.unbiased_width > 0
    ]
    assert max(widths) <= 1.05


@pytest.mark.parametrize(("experiment", "rounds"), [("residual-planner", 0), ("mwem", 10), ("mwem", 20), ("mwem", 30)])
def test_all_twenty_settings_have_five_trials_of_every_method(records, experiment, rounds):
    found = [band for band in bands(records[experiment], experiment) if band.rounds == rounds]
    own = [method for method in METHODS[experiment] if method != "private-pgm"]
    assert {(band.dataset, band.epsilon, band.method) for band in found if band.trials == 5} == {
        (dataset, epsilon, method) for dataset in DATASETS for epsilon in EPSILONS for method in own
    }


@pytest.mark.parametrize(
    ("title", "experiment", "rounds", "other", "method"),
    [
        ("ResidualPlanner / margrave", "residual-planner", 0, "mle", "ours"),
        ("Trunc / margrave", "residual-planner", 0, "trunc", "ours"),
        ("Trunc+Rescale / margrave", "residual-planner", 0, "trunc+rescale", "ours"),
        ("published LNN / margrave", "residual-planner", 0, "lnn-paper", "ours"),
        ("EMP / margrave", "mwem", 30, "mle", "ours"),
        ("Trunc+Rescale / margrave (MWEM)", "mwem", 30, "trunc+rescale", "ours"),
        ("published LNN / margrave (MWEM)", "mwem", 30, "lnn-paper", "ours"),
    ],
)
def test_the_page_quotes_what_the_rows_say(records, title, experiment, rounds, other, method):
    """Rows of the page: title | paper | measured | least of the settings."""
    (told,) = re.findall(rf"^\| {re.escape(title)} \|[^|]*\| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    (ratio,) = (
        one for one in ratios(records[experiment], experiment, [method]) if (one.rounds, one.other) == (rounds, other)
    )
    assert told == (f"{ratio.average:.3g}", f"{ratio.least:.3g}")


def test_the_page_quotes_what_the_whole_pipeline_saves(records):
    """The error of plan and rule relative to that of the published pipeline, by setting."""
    found = {
        (band.dataset, band.epsilon, band.method): band.mean
        for band in bands(records["residual-planner"], "residual-planner")
    }
    shares = [
        found[dataset, epsilon, "pipeline"] / found[dataset, epsilon, "lnn-paper"]
        for dataset in DATASETS
        for epsilon in EPSILONS
    ]
    (told,) = re.findall(
        r"^\| own plan and margrave / published pipeline \|[^|]*\| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE
    )
    assert told == (f"{sum(shares) / len(shares):.3g}", f"{max(shares):.3g}")


def test_private_pgm_was_tried_at_every_setting_and_is_not_far_below_us_where_it_ran(records):
    """One trial of each of the 60 settings; where it came to an end, our error is at most 1.1 of its own."""
    ours = {setting_of(record): record for record in records["mwem"] if record.method == "ours"}
    tried = {setting_of(record): record for record in records["mwem"] if record.method == "private-pgm"}
    assert set(tried) == {(name, epsilon, rounds, 0) for name in DATASETS for epsilon in EPSILONS for rounds in ROUNDS}
    ended = {setting: record for setting, record in tried.items() if record.status == DONE}
    assert len(ended) >= 9
    for setting, record in ended.items():
        assert ours[setting].l1 <= 1.1 * record.l1


@pytest.fixture(scope="module")
def peers():
    return read_rows(FOLDER / PEERS_FILE, PeerRecord)


def test_the_page_beside_aim_and_mst_is_made_from_the_rows(peers):
    assert (FOLDER / PEERS_PAGE).read_text(encoding="utf-8") == peers_page(peers, FOLDER)


def test_the_page_of_paired_trials_is_made_from_the_rows():
    rows = read_rows(FOLDER / PAIRED_FILE, Trial)
    assert (FOLDER / PAIRED_PAGE).read_text(encoding="utf-8") == paired_page(rows)
    assert len({row.key for row in rows}) == len(rows)


def test_ratios_in_the_page_about_adaptive_planning_are_those_of_the_rows():
    """Lines like "| titanic, adaptive | .707 ± .054 | …": three-way errors over version 0.1, a column for each ε."""
    rows = read_rows(FOLDER / PAIRED_FILE, Trial)
    found = {(*setting, one.method): one for setting, one in compare(rows, BEFORE)}
    methods = {"adaptive": "adaptive", "planner": "counts"}
    text = (FOLDER.parent / "adaptive.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| ([\w-]+), (adaptive|planner) \| (.*?) \|$", text, re.MULTILINE)
    assert len(lines) >= 6
    for name, method, cells in lines:
        for epsilon, cell in zip(EPSILONS, cells.split(" | "), strict=True):
            one = found.get((name, 3, epsilon, methods[method]))
            shown = f"{one.ratios[3]:.3f} ± {one.errors[3]:.3f}".replace("0.", ".") if one else ""
            assert cell.strip(" *") == shown, (name, method, epsilon)


def test_all_methods_beside_aim_and_mst_spend_the_same(peers):
    """But for zeros, which spend nothing; files keep six digits."""
    spent = [record for record in peers if record.status == DONE and record.method != "zeros"]
    assert spent
    for record in spent:
        assert record.rho_spent == pytest.approx(record.rho, rel=1e-5)


def test_generated_tables_are_still_those_that_the_rows_were_made_with(peers):
    made = {record.dataset: record.data for record in peers if record.dataset in GENERATED}
    assert {name: read_table(None, name, 2).fingerprint for name in made} == made


def setting_of(record):
    return record.dataset, record.epsilon, record.rounds, record.trial
