"""The file of results survives whatever stops a run."""

import math
from dataclasses import dataclass

import pytest

from experiments import ExperimentError
from experiments.journal import Journal, read_rows


@dataclass(frozen=True)
class Row:
    name: str
    number: int
    value: float = math.nan


ROWS = [Row("a", 1, 0.5), Row("b, with a comma", 2), Row('with "quotes"', 3, 1e-9)]


def written(path, rows=ROWS):
    with Journal(path, Row) as journal:
        for row in rows:
            journal.append(row)
    return path


def same(rows):
    return [(row.name, row.number, "" if math.isnan(row.value) else row.value) for row in rows]


def test_rows_come_back(tmp_path):
    path = written(tmp_path / "deep" / "rows.csv")
    assert same(read_rows(path, Row)) == same(ROWS)
    assert path.read_text().splitlines()[:2] == ["name,number,value", "a,1,0.5"]


def test_a_missing_file_has_no_rows(tmp_path):
    assert read_rows(tmp_path / "none.csv", Row) == []


def test_a_row_is_in_the_file_before_the_next_begins(tmp_path):
    with Journal(tmp_path / "rows.csv", Row) as journal:
        journal.append(ROWS[0])
        assert same(read_rows(tmp_path / "rows.csv", Row)) == same(ROWS[:1])


def test_line_breaks_and_digits_are_flattened(tmp_path):
    path = written(tmp_path / "rows.csv", [Row("two\nlines", 1, 1 / 3)])
    assert read_rows(path, Row) == [Row("two lines", 1, 0.333333)]


def test_wherever_the_last_line_was_torn_it_is_dropped_and_the_rest_goes_on(tmp_path):
    whole = written(tmp_path / "whole.csv").read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path = tmp_path / "torn.csv"
        path.write_bytes(whole[:cut])
        kept = max(sum(end <= cut for end in ends) - 1, 0)
        assert same(read_rows(path, Row)) == same(ROWS[:kept])
        written(path, ROWS[kept:])
        assert path.read_bytes() == whole


def test_zeros_that_a_crash_left_behind_are_dropped(tmp_path):
    path = written(tmp_path / "rows.csv")
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0" * 100)
    written(path, [])
    assert path.read_bytes() == whole


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = written(tmp_path / "rows.csv")
    path.write_text(path.read_text().replace("a,1,0.5", "a,one,0.5"))
    with pytest.raises(ExperimentError, match=r"line 2 of .*rows.csv is damaged; remove the line"):
        read_rows(path, Row)
    path.write_text(path.read_text().replace("a,one,0.5", "a,1"))
    with pytest.raises(ExperimentError, match="line 2 of"):
        Journal(path, Row).__enter__()


def test_a_file_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,y\n1,2\n")
    with pytest.raises(ExperimentError, match="is not a file of these results"), Journal(path, Row):
        pass
    assert path.read_text() == "x,y\n1,2\n"


def test_two_runs_do_not_write_to_one_file(tmp_path):
    path = tmp_path / "rows.csv"
    with Journal(path, Row) as journal:
        with pytest.raises(ExperimentError, match="another run writes to"), Journal(path, Row):
            pass
        journal.append(ROWS[0])
    assert same(read_rows(path, Row)) == same(ROWS[:1])


def test_a_closed_file_takes_no_rows(tmp_path):
    with Journal(tmp_path / "rows.csv", Row) as journal:
        pass
    with pytest.raises(ExperimentError, match="is not open"):
        journal.append(ROWS[0])
