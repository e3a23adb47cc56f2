"""The experiment on coverage: what it counts, that it goes on where it stopped, and the page that it writes."""

import math

import numpy as np
import pytest
from generated import SIZES, rows_of, write_dataset
from typer.testing import CliRunner

from experiments import ExperimentError
from experiments.__main__ import reproduce
from experiments.coverage import (
    FILE,
    Cells,
    CoverageRecord,
    CoverageSettings,
    coverage_page,
    run_coverage,
)
from experiments.coverage import _groups as groups
from experiments.journal import read_rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    write_dataset(path, "people", SIZES, rows_of())
    return path


@pytest.fixture(scope="module")
def records(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    settings = CoverageSettings(
        folder, ("people",), epsilons=(1.0,), mechanisms=("planner", "mwem"), methods=("lnn", "mle"), trials=2
    )
    return out, settings, run_coverage(settings, out)


def test_every_cell_is_in_one_order_one_band_and_has_one_word(records):
    _, _, found = records
    settings = {record.setting for record in found}
    assert len(settings) == 4
    for setting in settings:
        own = [record for record in found if record.setting == setting]
        cells = {group: sum(record.cells for record in own if record.group == group) for group in ("order", "true")}
        assert cells["order"] == cells["true"] == sum(record.cells for record in own if record.group == "published")
        assert cells["order"] == sum(record.cells for record in own if record.group == "flag")
        assert all(0 <= record.covered <= 1 and record.private == "no" for record in own)


def test_unbiased_intervals_cover_as_often_as_they_say(records):
    """By "mle" after a plan: 2 releases, all cells of orders 2 and 3 together between 0.9 and 1."""
    _, _, found = records
    own = [one for one in found if (one.mechanism, one.method, one.group) == ("planner", "mle", "order")]
    assert 0.9 < np.average([one.covered for one in own], weights=[one.cells for one in own]) <= 1
    assert all(one.expected == pytest.approx(one.found, rel=0.3) for one in own if one.band in ("2", "3"))


def test_a_run_goes_on_where_it_stopped(records):
    out, settings, found = records
    lines = (out / FILE).read_text(encoding="utf-8").splitlines(keepends=True)
    (out / FILE).write_text("".join(lines[:-1]), encoding="utf-8")
    again = run_coverage(settings, out)
    # The setting whose last line was lost is run again, with the same noise.
    last = found[-1].setting
    before = [record for record in found if record.setting == last]
    after = [record for record in again if record.setting == last][-len(before) :]
    for one, other in zip(before, after, strict=True):
        assert (one.cells, one.group, one.band) == (other.cells, other.group, other.band)
        assert one.covered == pytest.approx(other.covered, abs=1e-5)
    assert len(run_coverage(settings, out)) == len(again)


def test_the_page_has_a_line_for_every_setting(records):
    _, _, found = records
    page = coverage_page(found)
    assert page.count("| people | planner | lnn | 1 |") == 3
    assert page.count("| people | mwem | mle | 1 |") == 3


def test_groups_are_told_apart_by_truth_and_by_what_is_published():
    column = np.array([0.0, 5, 50, 500, 5000])
    cells = Cells(
        column,
        column[::-1],
        column,
        column,
        column,
        column,
        column,
        np.array([0.0, 1, 1, 2, 3]),
        column,
        np.arange(5) % 3,
    )
    found = {(group, band): np.flatnonzero(chosen).tolist() for group, band, _, chosen in groups(cells)}
    assert [found["true", band] for band in ("0", "1-10", "11-100", "101-1000", "more")] == [[0], [1], [2], [3], [4]]
    assert [found["published", band] for band in ("0", "more")] == [[4], [0]]
    assert found["nonempty", "1"] == [1, 2]
    assert found["largest", "1"] == [1, 2]


def test_the_command_runs_and_refuses_what_it_does_not_know(folder, tmp_path):
    words = ["coverage", "--data", str(folder), "--datasets", "people", "--epsilons", "10", "--trials", "1"]
    done = CliRunner().invoke(reproduce, [*words, "--mechanisms", "nonnegative", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = read_rows(tmp_path / FILE, CoverageRecord)
    assert {row.mechanism for row in rows} == {"nonnegative"}
    assert not any(math.isnan(row.covered) for row in rows)
    with pytest.raises(ExperimentError, match="no mechanism 'planer'; did you mean 'planner'"):
        CoverageSettings(None, ("people",), mechanisms=("planer",))
    with pytest.raises(ExperimentError, match="'people' is not a generated table; name the folder of the others"):
        run_coverage(CoverageSettings(None, ("people",)), tmp_path / "none")
