"""Paired trials: rows are added to one file, and ratios and their errors are those of the paired differences."""

import csv

import numpy as np
import pytest

from experiments.paired import COLUMNS, compare, run


def test_methods_run_on_the_same_trials_and_are_compared(tmp_path, capsys):
    file = tmp_path / "paired.csv"
    run(str(tmp_path), "binary-3", "1", "product,zeros", "2", str(file))
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    assert [(row["method"], row["trial"]) for row in rows] == [
        ("product", "0"), ("zeros", "0"), ("product", "1"), ("zeros", "1"),
    ]  # fmt: skip
    assert all(float(row["l1_order3"]) == 1 for row in rows if row["method"] == "zeros")
    compare("zeros", str(file))
    assert capsys.readouterr().out.startswith("binary-3, ε = 1, product/zeros, three-, two-, one-way: 0.")


def test_the_error_of_a_ratio_is_that_of_the_mean_difference(tmp_path, capsys):
    file = tmp_path / "paired.csv"
    ours, theirs = [0.9, 1.1, 1.0], [1.0, 1.3, 1.0]
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(COLUMNS)
        for method, errors in (("ours", ours), ("theirs", theirs)):
            writer.writerows(
                ["table", 3, 1, trial, method, error, error, error, 0] for trial, error in enumerate(errors)
            )
    compare("theirs", str(file))
    differences = (np.array(ours) - theirs) / np.mean(theirs)
    expected = f"{np.mean(ours) / np.mean(theirs):.3f} ± {differences.std(ddof=1) / 3**0.5:.3f}"
    assert f"three-, two-, one-way: {expected}, {expected}, {expected} (3 trials)" in capsys.readouterr().out
    assert pytest.approx(0.909, abs=1e-3) == np.mean(ours) / np.mean(theirs)
