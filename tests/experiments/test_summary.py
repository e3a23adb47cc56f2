"""The summary: averages by hand, the paper's figures beside them, and a page that says it is not private."""

import json
import math
from dataclasses import replace

import pytest

from experiments.journal import Journal
from experiments.pages import NOT_PRIVATE, summary_page, write_summary
from experiments.records import DONE, FAILED, MEMORY_LIMIT, TIME_LIMIT, Record
from experiments.scaling import Scaling
from experiments.summary import QUOTED_PGM, bands, completions, ratios, spent


def record(dataset, epsilon, trial, method, l1, *, experiment="residual-planner", rounds=0, **more):
    costs = {"plan_seconds": 1.0, "measure_seconds": 2.0, "reconstruct_seconds": 3.0, "plan_mb": 10.0}
    kept = {"status": DONE, "l1": l1, "l2": l1 / 2, "l1_cells": 10 * l1, "l2_cells": l1, **costs, **more}
    sizes = {"measure_mb": 20.0, "reconstruct_mb": 30.0 + trial}
    return Record(experiment, dataset, epsilon, rounds, trial, method, **{**sizes, **kept})


PLANNER = [
    record("one", 1.0, 0, "mle", 8.0),
    record("one", 1.0, 1, "mle", 12.0),
    record("two", 1.0, 0, "mle", 30.0),
    record("one", 1.0, 0, "lnn-paper", 2.0),
    record("one", 1.0, 1, "lnn-paper", 2.0),
    record("two", 1.0, 0, "lnn-paper", 3.0),
]


def test_bands_are_mean_least_and_most():
    found = bands(PLANNER, "residual-planner")
    first = found[0]
    assert (first.dataset, first.method, first.trials, first.mean, first.least, first.most) == (
        "one",
        "mle",
        2,
        10,
        8,
        12,
    )
    assert [band.method for band in found] == ["mle", "lnn-paper", "mle", "lnn-paper"]
    assert bands(PLANNER, "residual-planner", "l1_cells")[0].mean == 100


def test_settings_are_in_order_however_they_were_run():
    """Data sets as in the paper, others after them; then rounds, then ε as numbers."""
    keys = [("town", 5, 1.0), ("adult", 30, 10.0), ("adult", 30, 0.31), ("adult", 10, 3.16), ("titanic", 30, 1.0)]
    made = [record(name, epsilon, 0, "mle", 1.0, experiment="mwem", rounds=rounds) for name, rounds, epsilon in keys]
    expected = [("titanic", 30, 1.0), ("adult", 10, 3.16), ("adult", 30, 0.31), ("adult", 30, 10.0), ("town", 5, 1.0)]
    assert [(band.dataset, band.rounds, band.epsilon) for band in bands(made, "mwem")] == expected
    costs = [(one.dataset, one.rounds) for one in spent(made, "mwem")]
    assert costs == [("titanic", 30), ("adult", 10), ("adult", 30), ("town", 5)]
    runs = [replace(one, method="private-pgm") for one in made]
    assert [(one.dataset, one.rounds) for one in completions(runs)] == costs


def test_ratios_are_averaged_as_the_paper_does():
    (ratio,) = ratios(PLANNER, "residual-planner", ["lnn-paper"])
    assert ratio.other == "mle"
    assert ratio.average == pytest.approx((4 + 6 + 10) / 3)  # over settings and trials
    assert ratio.of_means == pytest.approx((5 + 10) / 2)  # over settings
    assert (ratio.least, ratio.settings, ratio.quoted) == (5, 2, 44.0)
    assert math.isnan(ratios(PLANNER, "residual-planner", ["lnn-paper"], "l2")[0].quoted)


def test_only_trials_that_both_have_finished_count():
    failed = replace(PLANNER[5], status=FAILED, l1=math.nan)
    (ratio,) = ratios([*PLANNER[:5], failed], "residual-planner", ["lnn-paper"])
    assert ratio.average == pytest.approx(5)
    assert ratios(PLANNER[:3], "residual-planner", ["lnn-paper"]) == []


def test_a_trial_that_was_run_again_counts_as_it_ended_last():
    again = replace(PLANNER[0], l1=800.0)
    assert bands([*PLANNER, again], "residual-planner")[0].most == 800


def test_costs_are_mean_times_and_largest_memory():
    first = spent(PLANNER, "residual-planner")[0]
    assert (first.plan_seconds, first.measure_seconds, first.reconstruct_seconds) == (1, 2, 3)
    assert (first.plan_mb, first.measure_mb, first.reconstruct_mb) == (10, 20, 31)


def pgm(epsilon, status, l1=math.nan):
    limits = {"limit_seconds": 600.0, "limit_gb": 20.0}
    return record("adult", epsilon, 0, "private-pgm", l1, experiment="mwem", rounds=20, status=status, **limits)


MWEM = [
    pgm(0.1, DONE, 0.5),
    pgm(1.0, TIME_LIMIT),
    pgm(3.16, MEMORY_LIMIT),
    pgm(10.0, FAILED),
    record("adult", 0.1, 0, "ours", 0.6, experiment="mwem", rounds=20),
    record("adult", 1.0, 0, "ours", 0.1, experiment="mwem", rounds=20),
]


def test_private_pgm_is_counted_by_how_it_ended():
    (found,) = completions(MWEM)
    assert (found.trials, found.completed, found.over_time, found.over_memory, found.failed) == (4, 1, 1, 1, 1)
    assert (found.error, found.ours, found.quoted) == (0.5, 0.6, 14)  # ours on the same trials only
    assert sum(trials[0] for trials in QUOTED_PGM.values()) == 100
    assert all(sum(trials) == 25 for trials in QUOTED_PGM.values())


def test_the_page_says_that_it_is_not_private_and_quotes_the_paper(tmp_path):
    rows = [Scaling(10, 10, 120, 120_000, "plan", seconds=0.5, megabytes=100.0)]
    rows += [Scaling(200, 10, 1, 10**9, "measure", status=MEMORY_LIMIT, note="needs 31 GB")]
    page = summary_page({"residual-planner": PLANNER, "mwem": MWEM}, rows, tmp_path)
    assert page.splitlines()[2] == f"> **{NOT_PRIVATE}**"
    assert "| ResidualPlanner | 44 | **6.67** (7.5; 5) |" in page
    assert "| one | 1 | 10 (8 – 12) | 2 (2 – 2) |" in page
    assert "| adult | 20 | 4 | 1 | 1 | 1 | 1 | 14 of 25 | 3 | 0.5 | 0.6 |" in page
    assert (
        "600 s and 20 GB (the paper: 24 hours and 20 GB, 100 of 300 trials completed). Completed here: 1 of 4" in page
    )
    assert "- 200 × 10, measure: needs 31 GB" in page
    assert "![" not in page  # no figure is there


def test_what_failed_is_listed_until_it_was_run_again(tmp_path):
    failed = replace(PLANNER[0], status=FAILED, l1=math.nan, note="no room")
    shown = "- one, ε = 1, trial 0, mle: no room"
    assert shown in summary_page({"residual-planner": [failed, *PLANNER[1:]]}, [], tmp_path)
    assert shown not in summary_page({"residual-planner": [failed, *PLANNER]}, [], tmp_path)


def test_the_numbers_of_the_page_are_strict_json(tmp_path):
    with Journal(tmp_path / "residual-planner.csv", Record) as journal:
        for one in PLANNER:
            journal.append(one)
    (tmp_path / "residual-planner-l1.svg").write_text("<svg/>")
    page, numbers = write_summary(tmp_path)
    found = json.loads(numbers.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert found["private"] is False
    assert found["residual-planner"]["ratios"][0]["quoted"] == 44.0
    assert found["residual-planner"]["errors"][0]["mean"] == 10
    assert "mwem" not in found
    assert "![L1 error against ε](residual-planner-l1.svg)" in page.read_text()


def test_an_empty_folder_gives_an_empty_page(tmp_path):
    page, _ = write_summary(tmp_path)
    assert NOT_PRIVATE in page.read_text()
