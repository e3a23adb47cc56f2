"""Paired trials: rows are added to one file, and ratios and their errors are those of the paired differences."""

import math

import numpy as np
import pytest

from experiments import ExperimentError, paired
from experiments.journal import read_rows
from experiments.paired import Trial, compare, main
from experiments.paired_page import paired_page


def trials(name, epsilon, order=3, **errors):
    """Return rows of one setting: by method, the errors of its trials, the same for all orders."""
    return [
        Trial(name, order, epsilon, trial, {"before": "version-0.1"}.get(method, method), error, error, error, 0.0)
        for method, found in errors.items()
        for trial, error in enumerate(found)
    ]


def test_methods_run_on_the_same_trials_and_are_compared(tmp_path, capsys):
    file = tmp_path / "paired.csv"
    main(["run", str(file), "--tables", "binary-3", "--epsilons", "1", "--methods", "product,zeros", "--trials", "2"])
    rows = read_rows(file, Trial)
    assert [(row.method, row.trial) for row in rows] == [("zeros", 0), ("product", 0), ("zeros", 1), ("product", 1)]
    assert all(row.l1_order3 == 1 for row in rows if row.method == "zeros")
    main(["compare", str(file), "--base", "zeros"])
    assert capsys.readouterr().out.startswith("binary-3, all 3-way tables, ε = 1, product/zeros: 3-way 0.")


def test_what_is_in_the_file_is_not_run_again_and_workloads_are_kept_apart(tmp_path, monkeypatch):
    file = tmp_path / "paired.csv"
    for order in (3, 2):
        paired.run(file, ["binary-3"], [1.0], ["zeros"], trials=1, order=order)
    rows = read_rows(file, Trial)
    assert [row.order for row in rows] == [3, 2]
    assert math.isnan(rows[1].l1_order3)
    monkeypatch.setattr(paired, "read_table", None)
    paired.run(file, ["binary-3"], [1.0], ["zeros"], trials=1)
    assert read_rows(file, Trial)[0] == rows[0]


def test_version_0_1_is_not_run_with_another_margrave(tmp_path):
    with pytest.raises(ExperimentError, match=r"method 'version-0.1' needs another version of margrave than this one"):
        paired.run(tmp_path / "paired.csv", ["binary-3"], [1.0], ["version-0.1"])


def test_the_error_of_a_ratio_is_that_of_the_mean_difference():
    ours, theirs = [0.9, 1.1, 1.0], [1.0, 1.3, 1.0]
    ((setting, one),) = compare(trials("table", 1.0, ours=ours, theirs=theirs), "theirs")
    differences = (np.array(ours) - theirs) / np.mean(theirs)
    assert setting == ("table", 3, 1.0)
    assert one.trials == 3
    for order in (1, 2, 3):
        assert one.ratios[order] == pytest.approx(np.mean(ours) / np.mean(theirs))
        assert one.errors[order] == pytest.approx(differences.std(ddof=1) / 3**0.5)


def test_trials_that_one_method_lacks_do_not_count():
    ((_, one),) = compare(trials("table", 1.0, ours=[2.0, 9.0], theirs=[1.0]), "theirs")
    assert one.trials == 1
    assert one.ratios[3] == pytest.approx(2)
    assert math.isnan(one.errors[3])
    assert not one.worse(3)


def test_the_page_names_what_is_worse_beyond_two_standard_errors():
    before = [1.0, 1.0, 1.0]
    page = paired_page(
        [
            *trials("titanic", 0.1, adaptive=[1.1, 1.1, 1.1], before=before),
            *trials("titanic", 10.0, adaptive=[0.9, 1.0, 1.4], before=before),
        ]
    )
    assert "| titanic | **1.100 ± 0.000** | 1.100 ± 0.153 | 3 |" in page
    assert "- titanic, ε = 0.1, ÷ margrave, version 0.1: **1.100 ± 0.000** (3 trials)" in page
    assert "titanic, ε = 10" not in page
