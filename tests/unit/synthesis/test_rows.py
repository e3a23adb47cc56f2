"""Rows as users get them: values of the domain, files that say what they are, and words where they cannot be made."""

import itertools
import json

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import margrave as mg
from margrave import errors
from margrave.algebra.layout import Layout
from margrave.data.source import Data, open_source
from margrave.errors import MemoryLimitError, ReleaseError, StoreError
from margrave.methods import NonNegative
from margrave.synthesis.fitting import count_rows
from margrave.synthesis.rows import make_codes, measured_distances
from tests.releases import DOMAIN, made, measured

MANY_KINDS = mg.Domain(
    [
        mg.Attribute("age", cuts=(17, 34, 64), whole=True, missing="not stated"),
        mg.Attribute("income", cuts=(0.0, 1e3, 2.5e3)),
        mg.Attribute("change", cuts=(-2.5, -1.0)),
        mg.Attribute("over", cuts=(40,), whole=True),
        mg.Attribute("sex", labels=("F", "M", "X")),
        mg.Attribute("grade", labels=(1, 2, 4), missing="none"),
        mg.Attribute("rate", labels=(0.5, 2, 3.25)),
        mg.Attribute("owns", labels=(True, False)),
        mg.Attribute("code", size=4, missing="3"),
        mg.Attribute("mixed", labels=(1, "1", "two")),
        mg.Attribute("kind", labels=("a", "b"), other="other", missing="none"),
        mg.Attribute("number", size=3, other="more"),
    ]
)


def released(domain, rows=600, order=2, seed=1):
    """A release of all tables of some order by foreign measurements without noise to speak of."""
    generator = np.random.default_rng(seed)
    codes = np.column_stack([generator.integers(0, member.size, rows) for member in domain])
    workload = mg.Workload.all_kway(domain, min(order, len(domain)))
    tables = []
    for names in workload.sets:
        places = [domain.attributes.index(name) for name in names]
        table = np.zeros([domain[name].size for name in names])
        np.add.at(table, tuple(codes[:, places].T), 1)
        tables.append((names, table, 0.01))
    return mg.reconstruct(mg.Measurements.from_marginals(domain, tables), workload)


@pytest.fixture(scope="module")
def survey():
    return made(measured(), "lnn")


@pytest.fixture(scope="module")
def kinds():
    return released(MANY_KINDS)


def test_the_same_seed_gives_the_same_rows_and_another_does_not(survey):
    one, again, other = (survey.synthesize(seed=seed) for seed in (4, 4, 5))
    assert one.to_arrow().equals(again.to_arrow(), check_metadata=True)
    assert not one.to_arrow().equals(other.to_arrow())
    chosen = survey.synthesize()
    assert survey.synthesize(seed=chosen.seed).to_arrow().equals(chosen.to_arrow())


def test_there_are_as_many_rows_as_the_release_counts_or_as_many_as_asked(survey):
    assert len(survey.synthesize(seed=1)) == round(float(survey.table().values))
    for rows in (0, 1, 2, 1000):
        assert len(survey.synthesize(rows, seed=1)) == rows
    many = survey.synthesize(10_000, seed=1)
    share = survey.table("age", "sex").values / survey.table().values
    table = many.to_pandas(codes=True).groupby(["age", "sex"]).size().to_numpy().reshape(3, 2)
    assert np.abs(table / 10_000 - share).max() < 0.01


def test_values_are_of_the_domain_and_are_counted_back_to_the_same_tables(kinds):
    rows = kinds.synthesize(seed=2)
    table = rows.to_arrow()
    # A category of other values has no value to show, and the labels 1 and "1" in one column have none either.
    readable = [name for name in MANY_KINDS.attributes if name not in ("mixed", "kind", "number")]
    domain = MANY_KINDS.project(readable)
    layout = Layout.of(domain.shape, list(itertools.combinations(range(len(readable)), 2)))
    kept = rows.codes[:, [MANY_KINDS.attributes.index(name) for name in readable]]
    source = open_source(Data(table.select(readable)), domain, contributions=1)
    assert (source.count(layout) == count_rows(layout, np.ascontiguousarray(kept))).all()


def test_columns_have_the_types_of_their_values(kinds):
    table = kinds.synthesize(seed=2).to_arrow()
    types = {field.name: str(field.type) for field in table.schema}
    assert types["age"] == "int64"
    assert types["income"] == "double"
    assert types["grade"] == "int64"
    assert types["rate"] == "double"
    assert types["owns"] == "bool"
    assert types["code"] == "int64"
    for name in ("sex", "mixed", "kind", "number"):
        assert types[name].startswith("dictionary<values=string"), name
    age = table["age"].to_numpy(zero_copy_only=False)
    # The outer bins are as wide as their neighbours, and no cut is negative.
    assert np.nanmin(age) >= 1
    assert np.nanmax(age) <= 64 + 30
    assert set(np.unique(table["over"].to_numpy())) == {40, 41}
    assert min(table["income"].to_pylist()) == 0
    assert max(table["change"].to_pylist()) <= 0.5
    assert set(table["mixed"].to_pylist()) == {"1 (code 0)", "1 (code 1)", "two"}
    assert None in table["age"].to_pylist()
    assert set(table["kind"].to_pylist()) == {"a", "b", "other", None}
    assert set(table["number"].to_pylist()) == {"0", "1", "2", "more"}


def test_values_inside_a_bin_are_spread_over_all_of_it():
    domain = mg.Domain([mg.Attribute("age", cuts=(9, 19), whole=True)])
    ages = released(domain, rows=3000, order=1).synthesize(6000, seed=1).to_pandas()["age"]
    counts = ages.value_counts().reindex(range(30), fill_value=0).to_numpy()
    assert counts.sum() == 6000
    # 200 of each age on average; six standard deviations of a binomial are 84.
    assert np.abs(counts - 200).max() < 100


def test_codes_on_request(kinds):
    rows = kinds.synthesize(seed=2)
    assert (rows.to_arrow(codes=True).to_pandas().to_numpy() == rows.codes).all()
    assert not rows.codes.flags.writeable


def test_frames(survey):
    rows = survey.synthesize(seed=1)
    frame = rows.to_pandas()
    assert list(frame.columns) == list(DOMAIN.attributes)
    assert frame["sex"].cat.ordered
    assert isinstance(rows.to_polars(), pl.DataFrame)
    assert rows.to_polars().shape == frame.shape == (len(rows), 4)
    assert repr(rows) == f"Rows({len(rows):,} synthetic rows of 4 attributes)"


def test_distances_are_by_order_and_those_of_a_recount(kinds):
    rows = kinds.synthesize(seed=3)
    layout = kinds.estimates.layout
    counts, wanted = count_rows(layout, rows.codes), kinds.marginals * (len(rows) / kinds.marginals[0])
    for distance in rows.distances:
        tables = [table for table, members in enumerate(layout.sets) if len(members) == distance.order]
        away = [np.abs(layout.view(counts, t) - layout.view(wanted, t)).sum() / len(rows) for t in tables]
        assert distance.tables == len(tables)
        assert distance.mean == pytest.approx(np.mean(away))
        assert distance.largest == pytest.approx(max(away))
    assert [distance.order for distance in rows.distances] == [1, 2]


def test_metadata_says_what_the_rows_are_and_where_they_come_from(survey):
    told = survey.synthesize(seed=8).metadata
    assert told["margrave.what"].startswith("These rows are synthetic")
    assert "No row describes a person" in told["margrave.what"]
    assert told["margrave.seed"] == "8"
    assert told["margrave.release"].startswith("4 tables by the method 'lnn'")
    assert "ε = 1 at δ = 10⁻⁹" in told["margrave.guarantee"]
    assert "Tables of 2 attributes differ from the release's by" in told["margrave.distance"]
    assert len(told["margrave.tables_sha256"]) == 64
    assert "margrave.note" not in told


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather", "csv"])
def test_files_hold_the_rows_and_say_what_they_are(survey, tmp_path, suffix):
    rows, file = survey.synthesize(seed=1), tmp_path / f"rows.{suffix}"
    rows.save(file)
    if suffix == "csv":
        document = json.loads((tmp_path / "rows.csv-metadata.json").read_text(encoding="utf-8"))
        assert document["url"] == "rows.csv"
        assert document["margrave:what"] == rows.metadata["margrave.what"]
        frame = pd.read_csv(file)
    else:
        read = {"parquet": pa.parquet.read_table}.get(suffix, pa.feather.read_table)(file)
        metadata = {key.decode(): value.decode() for key, value in read.schema.metadata.items()}
        assert rows.metadata.items() <= metadata.items()
        frame = read.to_pandas()
    mine = rows.to_pandas()
    for name in mine.columns:
        assert (frame[name].astype(mine[name].dtype) == mine[name]).all(), name
    with pytest.raises(StoreError, match="already exists; name another file"):
        rows.save(file)
    rows.save(file, codes=True, overwrite=True)


def test_a_user_opens_the_file_in_duckdb(survey, tmp_path):
    rows = survey.synthesize(seed=1)
    rows.save(tmp_path / "rows.parquet")
    query = f"SELECT sex, count(*) FROM '{tmp_path / 'rows.parquet'}' GROUP BY sex ORDER BY sex"
    assert duckdb.sql(query).fetchall() == list(enumerate_counts(rows.to_pandas()["sex"]))


def enumerate_counts(column):
    return sorted(column.value_counts().items())


@pytest.mark.parametrize(
    ("domain", "order"),
    [
        (mg.Domain([mg.Attribute("one", size=5)]), 1),
        (mg.Domain([mg.Attribute("only", size=1)]), 1),
        (mg.Domain([mg.Attribute("a", size=1), mg.Attribute("b", size=1), mg.Attribute("c", size=3)]), 2),
    ],
)
@pytest.mark.parametrize("people", [1, 2, 50])
def test_small_releases(domain, order, people):
    rows = released(domain, rows=people, order=order).synthesize(seed=1)
    assert len(rows) == people
    assert (rows.codes < np.array(domain.shape)).all()
    # One table of whole people is within one of the release in every cell.
    assert all(distance.largest * people <= max(domain.shape) for distance in rows.distances)


def test_a_release_of_two_hundred_attributes():
    shape = (2,) * 200
    layout = Layout.of(shape, list(itertools.combinations(range(200), 2)))
    hidden = np.random.default_rng(0).random((60, 1))
    truth = (np.random.default_rng(1).random((60, 200)) < hidden).astype(np.int32)
    made_up = make_codes(layout, count_rows(layout, truth), seed=1)
    assert made_up.codes.shape == (60, 200)
    pairs = next(distance for distance in made_up.distances if distance.order == 2)
    assert pairs.tables == 19_900
    # Columns that know nothing of each other are what rows must beat.
    apart = np.column_stack([np.random.default_rng(k).permutation(truth[:, k]) for k in range(200)])
    away = measured_distances(layout, count_rows(layout, apart), count_rows(layout, truth), 60)
    assert pairs.mean < 0.4 * away[-1].mean


def test_attributes_that_are_in_no_table_have_no_column():
    domain = mg.Domain.fromdict({"age": 3, "sex": 2, "work": 4})
    noisy = mg.Measurements.from_marginals(domain, [(("age", "work"), np.full((3, 4), 5.0), 1.0)])
    rows = mg.reconstruct(noisy, mg.Workload(domain, [("age", "work")])).synthesize(seed=1)
    assert rows.to_arrow().column_names == ["age", "work"]
    assert rows.metadata["margrave.left_out"] == "sex: in no table of the release"
    counted = np.zeros((3, 4))
    np.add.at(counted, tuple(rows.codes.T), 1)
    np.testing.assert_array_equal(counted, np.full((3, 4), 5.0))
    with pytest.raises(ReleaseError, match="has the total alone, so rows would have no columns"):
        mg.reconstruct(noisy, mg.Workload(domain, [()])).synthesize()


def test_a_release_that_counts_nobody():
    layout = Layout.of((2, 3), [(0, 1)])
    assert make_codes(layout, np.zeros(layout.cells)).codes.shape == (0, 2)
    with pytest.raises(ReleaseError, match=r"the release counts nobody.*; ask for rows=0"):
        make_codes(layout, np.zeros(layout.cells), rows=5)


@pytest.mark.parametrize("rows", [-1, 2.0, True, "9"])
def test_a_number_of_rows_is_a_whole_number(survey, rows):
    with pytest.raises(ReleaseError, match=r"rows is .*; give a whole number from 0 on"):
        survey.synthesize(rows)


def test_more_rows_than_can_be_made_are_refused(survey, monkeypatch):
    with pytest.raises(ReleaseError, match="rows are asked for; at most 2,147,483,647"):
        survey.synthesize(10**12)
    monkeypatch.setattr("margrave.memory.available_bytes", lambda: 10**9)
    with pytest.raises(MemoryLimitError, match=r"making 100,000,000 rows needs .*; ask for fewer rows"):
        survey.synthesize(10**8)


@pytest.mark.parametrize("method", ["mle", "trunc"])
def test_tables_that_no_rows_could_have_are_refused(method):
    release = made(measured(), method)
    for call in (release.synthesize, release.integers):
        with pytest.raises(ReleaseError, match=f"by '{method.split('+')[0]}.*; reconstruct with method='lnn'"):
            call()


def test_files_that_cannot_be_written_are_refused(survey, tmp_path):
    rows = survey.synthesize(seed=1)
    with pytest.raises(ReleaseError, match=r"does not say in which form; end its name in \.csv, \.parquet"):
        rows.save(tmp_path / "rows.xlsx")
    with pytest.raises(StoreError, match="is not there; make it first"):
        rows.save(tmp_path / "nowhere" / "rows.csv")
    (tmp_path / "rows.csv-metadata.json").write_text("mine")
    with pytest.raises(StoreError, match=r"metadata\.json already exists"):
        rows.save(tmp_path / "rows.csv")
    assert not (tmp_path / "rows.csv").exists()


def test_rows_of_an_interrupted_run_say_so(survey):
    def interrupt(done, _):
        if done == 2:
            raise KeyboardInterrupt

    rows = survey.synthesize(seed=1, progress=interrupt)
    assert rows.interrupted
    assert len(rows) == round(float(survey.table().values))
    assert "interrupted" in rows.metadata["margrave.note"]


def test_a_frame_library_that_is_not_there(survey, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(errors, "import_module", missing)
    with pytest.raises(ReleaseError, match="pandas is not installed; install it with 'pip install pandas'"):
        survey.synthesize(seed=1).to_pandas()


# Whole numbers that agree


def test_whole_numbers_agree_in_every_sum(kinds):
    whole = kinds.integers()
    for names in whole.workload.sets:
        table = whole.table(*names).values
        assert (table == np.round(table)).all()
        assert (table >= 0).all()
        for axis, name in enumerate(names):
            others = tuple(other for other in range(len(names)) if other != axis)
            assert (table.sum(axis=others) == whole.table(name).values).all()
    # The estimates and their intervals are what they were.
    names = whole.workload.sets[0]
    assert (whole.table(*names).estimate == kinds.table(*names).estimate).all()
    assert whole.table(*names).std_error == kinds.table(*names).std_error


def test_whole_numbers_are_a_form_of_release_that_is_saved_and_read(survey, tmp_path):
    whole = survey.integers()
    assert whole.method == NonNegative(strict=False, max_steps=300, whole_numbers=True)
    assert whole.method.words.count == "whole count"
    whole.save(tmp_path / "whole")
    read = mg.load(tmp_path / "whole")
    assert read.method == whole.method
    assert (read.marginals == whole.marginals).all()
    assert "whole numbers that agree" in (tmp_path / "whole" / "README.md").read_text(encoding="utf-8")


def test_whole_numbers_asked_of_the_method_are_those_of_the_release(survey):
    method = NonNegative(strict=False, max_steps=300, whole_numbers=True)
    direct = mg.reconstruct(survey.measurements, survey.workload, method=method)
    assert (direct.marginals == survey.integers().marginals).all()
    with pytest.raises(ReleaseError, match="whole_numbers is 1; give True or False"):
        NonNegative(whole_numbers=1)
