"""The custodian's look at how far a release is from the truth: right, PRIVATE, and never inside a release."""

import json
import stat

import numpy as np
import pyarrow as pa
import pytest

import margrave as mg
from margrave.custodian import CHOICE, WARNING, evaluate
from margrave.data.source import Data
from margrave.errors import ReleaseError, StoreError
from tests import releases

PEOPLE = np.random.default_rng(3)
DOMAIN = mg.Domain.fromdict({"age": 4, "sex": 2, "work": 3})
ROWS = pa.table({one.name: PEOPLE.integers(0, one.size, 500) for one in DOMAIN})
WORKLOAD = mg.Workload.up_to(DOMAIN, 2)


@pytest.fixture(scope="module")
def release():
    made = mg.plan(WORKLOAD, mg.Budget.approx(epsilon=1, delta=1e-9), contributions=1)
    return mg.reconstruct(mg.measure(made, ROWS), WORKLOAD)


def exact(names):
    """The true table, counted row by row."""
    table = np.zeros([DOMAIN[name].size for name in names])
    for row in ROWS.to_pylist():
        table[tuple(row[name] for name in names)] += 1
    return table


def test_errors_are_those_of_tables_counted_row_by_row(release):
    found = evaluate(release, ROWS, level=0.9)
    assert found.rows == 500
    by_name = {one.attributes: one for one in found.tables}
    assert len(by_name) == len(WORKLOAD)
    for names in WORKLOAD:
        one, table, truth = by_name[" × ".join(names) or "total"], release.table(*names, level=0.9), exact(names)
        assert one.cells == truth.size
        assert one.count_error == pytest.approx(np.abs(table.values - truth).mean())
        assert one.estimate_error == pytest.approx(np.abs(table.estimate - truth).mean())
        assert one.worst == pytest.approx(np.abs(table.values - truth).max())
        inside = (table.ci_low_raw <= truth) & (truth <= table.ci_high_raw)
        assert one.coverage == pytest.approx(inside.mean())


def test_orders_are_means_over_all_their_cells(release):
    found = evaluate(release, ROWS)
    assert [one.attributes for one in found.orders] == ["0 attributes", "1 attribute", "2 attributes"]
    pairs = [one for one in found.tables if "×" in one.attributes]
    cells = sum(one.cells for one in pairs)
    assert found.orders[2].cells == cells
    assert found.orders[2].count_error == pytest.approx(sum(one.cells * one.count_error for one in pairs) / cells)
    assert found.orders[2].worst == max(one.worst for one in pairs)
    errors = [one.count_error for one in found.tables]
    assert errors == sorted(errors, reverse=True)


def test_all_rows_of_a_person_are_the_truth(release):
    again = ROWS.append_column("person", pa.array(["one"] * len(ROWS)))
    assert evaluate(release, Data(again, privacy_id="person")).rows == 500


@pytest.mark.parametrize("kind", [releases.foreign, releases.laplace, releases.adaptive])
def test_releases_without_intervals_or_estimates_are_evaluated_too(kind):
    found = evaluate(releases.made(kind()), releases.coded_table())
    assert found.tables
    assert all(one.coverage is None or 0 <= one.coverage <= 1 for one in found.tables)


def test_it_is_marked_private_and_says_what_it_must_not_be_used_for(release, tmp_path):
    found = evaluate(release, ROWS)
    assert repr(found) == "Evaluation(PRIVATE)"
    path = tmp_path / "evaluation.json"
    found.write(path)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert (document["warning"], document["choice"]) == (WARNING, CHOICE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(StoreError, match="already exists; choose another name"):
        found.write(path)


def test_it_is_never_written_inside_a_release(release, tmp_path):
    release.save(tmp_path / "release")
    before = sorted(path.name for path in (tmp_path / "release").rglob("*"))
    for inside in ("evaluation.json", "tables/evaluation.json"):
        with pytest.raises(StoreError, match="lies in the release"):
            evaluate(release, ROWS).write(tmp_path / "release" / inside)
    assert sorted(path.name for path in (tmp_path / "release").rglob("*")) == before


def test_what_is_no_release_is_refused():
    with pytest.raises(ReleaseError, match="expected a Release, got a str; load one"):
        evaluate("release", ROWS)


def test_the_command_shows_and_writes_it(release, tmp_path, capsys):
    from margrave.cli.app import run

    folder, truth, out = (str(tmp_path / name) for name in ("release", "people.parquet", "evaluation.json"))
    release.save(folder)
    pa.parquet.write_table(ROWS, truth)
    assert run(["evaluate", folder, truth, "--out", out, "--worst", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(WARNING)
    assert CHOICE in shown
    assert "the truth is in the 95% interval" in shown
    assert run(["evaluate", folder, truth, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "evaluation.json").read_text(encoding="utf-8"))
    assert run(["evaluate", folder, truth, "--out", f"{folder}/evaluation.json"]) == 2
    assert "lies in the release" in capsys.readouterr().err


def test_two_releases_are_compared_without_the_data(release):
    other = mg.reconstruct(release.measurements, WORKLOAD, method="mle")
    found = release.compare(other)
    assert [one.attributes for one in found.tables] == list(WORKLOAD.sets)
    for one in found.tables:
        distance = np.abs(release.table(*one.attributes).values - other.table(*one.attributes).values)
        assert (one.mean, one.largest) == pytest.approx((distance.mean(), distance.max()))
        assert one.estimates == pytest.approx(0, abs=1e-9)
    assert found.only == (0, 0)
    assert found.to_arrow().num_rows == len(WORKLOAD)
    assert "7 tables in both" in repr(found)


def test_releases_with_other_tables_are_compared_where_they_meet(release):
    smaller = mg.reconstruct(release.measurements, mg.Workload(DOMAIN, [("sex", "age"), ("work",)]))
    found = release.compare(smaller)
    assert [one.attributes for one in found.tables] == [("work",), ("age", "sex")]
    assert found.only == (5, 0)


def test_releases_that_have_nothing_in_common_are_refused(release):
    domain = mg.Domain.fromdict({"height": 3})
    noisy = mg.Measurements.from_marginals(domain, [(("height",), [1.0, 2.0, 3.0], 1.0)])
    with pytest.raises(ReleaseError, match="have no table in common"):
        release.compare(mg.reconstruct(noisy, mg.Workload(domain, [("height",)])))
    domain = mg.Domain.fromdict({"sex": ["F", "M"]})
    noisy = mg.Measurements.from_marginals(domain, [(("sex",), [1.0, 2.0], 1.0)])
    with pytest.raises(ReleaseError, match="sex has other categories in the other release"):
        release.compare(mg.reconstruct(noisy, mg.Workload(domain, [("sex",)])))


def test_the_worst_cells_are_those_of_a_plain_loop(release):
    found = evaluate(release, ROWS)
    cells = []
    for names in release.workload:
        table, truth = release.table(*names), exact(names)
        for place in np.ndindex(truth.shape):
            cells.append(abs(float(table.values[place]) - float(truth[place])))
    assert [one.error for one in found.cells] == pytest.approx(sorted(cells, reverse=True)[:20])
    worst = found.cells[0]
    names = () if worst.table == "total" else tuple(worst.table.split(" × "))
    place = tuple(
        release.workload.domain[name].categories.index(label)
        for name, label in zip(names, worst.categories, strict=True)
    )
    assert (worst.count, worst.truth) == (float(release.table(*names).values[place]), float(exact(names)[place]))
    assert found.to_dict()["worst"][0]["error"] == worst.error


def test_the_plot_is_marked_private(release):
    pytest.importorskip("altair")
    chart = evaluate(release, ROWS).plot().to_dict()
    assert chart["title"]["text"].startswith("PRIVATE")
    (rows,) = chart["datasets"].values() if "datasets" in chart else (chart["data"]["values"],)
    assert len(rows) == 2 * len(release.workload)
