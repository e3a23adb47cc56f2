"""Tasks in processes: every row once, errors told, nobody left behind."""

import fits
import pytest

from experiments import ExperimentError
from experiments.workers import run_alone, run_tasks
from margrave.errors import DataError


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_every_row_comes_once_and_every_task_ends(jobs, monkeypatch):
    monkeypatch.setenv("MARGRAVE_THREADS", "4")
    told = list(run_tasks(fits.two_rows, [10, 20, 30], jobs=jobs))
    for task in (10, 20, 30):
        mine = [row for of, row in told if of == task]
        assert [row and row[:2] for row in mine] == [(task, "first"), (task, "second"), None]
    assert {row[2] for _, row in told if row} == {{1: "4", 2: "2", 5: "1"}[jobs]}  # cores are shared out


def test_an_error_of_a_task_is_raised_here():
    with pytest.raises(DataError, match="three is not allowed"):
        list(run_tasks(fits.fails_at_three, [1, 2, 3], jobs=2))


def test_an_unexpected_error_says_which_trial_and_how_to_see_more():
    with pytest.raises(ExperimentError, match=r"a trial \(0\) ended with an unexpected ZeroDivisionError.*--jobs 1"):
        list(run_tasks(fits.stumbles, [1, 0], jobs=2))


def test_a_worker_that_is_killed_is_told_and_its_rows_are_kept():
    told = run_tasks(fits.is_killed, [7, 7], jobs=2)
    assert next(told) == (7, 7)
    with pytest.raises(ExperimentError, match=r"the process of a trial \(7\) was ended from outside"):
        list(told)


def test_one_task_alone():
    assert [row[1] for row in run_alone(fits.two_rows, 1)] == ["first", "second"]
    with pytest.raises(ExperimentError, match="ended from outside"):
        list(run_alone(fits.is_killed, 1))


def test_leaving_early_ends_the_workers():
    import multiprocessing

    for _ in run_tasks(fits.two_rows, list(range(50)), jobs=2):
        break
    assert multiprocessing.active_children() == []
