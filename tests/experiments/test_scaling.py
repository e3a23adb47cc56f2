"""Scaling: every step at every size, and what does not fit is left out with the reason."""

import pytest

from experiments import ExperimentError, scaling
from experiments.journal import read_rows
from experiments.records import DONE, MEMORY_LIMIT
from experiments.scaling import STEPS, Scaling, Size, made_up, run_scaling, sizes
from experiments.workers import WorkerKilledError
from margrave.errors import MemoryLimitError


def test_all_steps_of_small_sizes(tmp_path):
    wanted = [Size(4, 3, rows=100, rounds=5), Size(6, 2, rows=100, rounds=5)]
    shown = []
    rows = run_scaling(wanted, tmp_path, progress=lambda *told: shown.append(told))
    assert [(row.attributes, row.step) for row in rows] == [(n, step) for n in (4, 6) for step in STEPS]
    assert {row.status for row in rows} == {DONE}
    assert all(row.seconds > 0 and row.megabytes > 1 for row in rows)
    assert [row.rounds for row in rows[:4]] == [0, 0, 0, 5]
    assert (rows[0].tables, rows[0].cells) == (4, 4 * 27)
    assert [told[:2] for told in shown] == [(1, 2), (2, 2)]
    assert len(run_scaling(wanted, tmp_path)) == 8  # nothing is run again
    assert len(read_rows(tmp_path / "scaling.csv", Scaling)) == 8


def test_what_does_not_fit_is_left_out_with_the_reason(monkeypatch):
    def refuse(*words, **options):
        raise MemoryLimitError("counting and measuring needs 31.6 GB of memory")

    monkeypatch.setattr(scaling, "measure", refuse)
    rows = list(scaling.scale(Size(4, 2, rows=10)))
    assert [(row.step, row.status) for row in rows] == [("plan", DONE)] + [(step, MEMORY_LIMIT) for step in STEPS[1:]]
    assert rows[1].note == "counting and measuring needs 31.6 GB of memory"
    assert rows[2].note == rows[3].note == "not tried, as the step before it did not fit into memory"


def test_a_process_that_the_system_ended_is_told(monkeypatch, tmp_path):
    def ended(work, size):
        yield next(iter(work(size)))
        raise WorkerKilledError("the process of a trial was ended from outside")

    monkeypatch.setattr(scaling, "run_alone", ended)
    rows = run_scaling([Size(4, 2, rows=10)], tmp_path)
    assert [row.status for row in rows] == [DONE] + [MEMORY_LIMIT] * 3
    assert "ended from outside" in rows[1].note


def test_a_mistake_of_the_program_is_not_taken_for_want_of_memory(monkeypatch, tmp_path):
    def fails(work, size):
        yield next(iter(work(size)))
        raise ExperimentError("an unexpected ValueError")

    monkeypatch.setattr(scaling, "run_alone", fails)
    with pytest.raises(ExperimentError, match="unexpected"):
        run_scaling([Size(4, 2, rows=10)], tmp_path)
    assert [row.status for row in read_rows(tmp_path / "scaling.csv", Scaling)] == [DONE]


def test_other_numbers_of_rows_are_not_mixed_in(monkeypatch, tmp_path):
    monkeypatch.setattr(scaling, "run_alone", lambda work, size: work(size))
    run_scaling([Size(4, 2, rows=10)], tmp_path)
    with pytest.raises(ExperimentError, match="--rows 10, and --rows 20 is asked for"):
        run_scaling([Size(4, 2, rows=20)], tmp_path)


def test_sizes_come_small_ones_first_and_once():
    found = sizes((30, 10, 20), values=10, other_values=(5, 10), rows=7)
    assert [(size.attributes, size.values) for size in found] == [(10, 10), (20, 5), (20, 10), (30, 10)]
    assert {size.rows for size in found} == {7}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attributes": (2,)}, "attributes is 2; give numbers of at least 3"),
        ({"values": 0}, "values is 0; give numbers of at least 1"),
        ({"rows": 0}, "rows is 0; give a whole number of at least 1"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ExperimentError, match=message):
        sizes(**{"attributes": (10,), "values": 10, "other_values": (), "rows": 5, **given})


def test_made_up_rows_are_the_same_everywhere():
    one, other = made_up(Size(3, 4, rows=50)), made_up(Size(3, 4, rows=50))
    assert (one._codes == other._codes).all()
    assert one._codes.max() == 3
