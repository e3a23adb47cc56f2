"""What others read of a release: SDMX-CSV by pysdmx, CSVW by csvw, Parquet by its schema as documented."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import margrave as mg

PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "arrow.md").read_text(encoding="utf-8")
DOMAIN = mg.Domain(
    [
        mg.Attribute("age", cuts=(17, 64), whole=True, missing="not stated"),
        mg.Attribute("sex", labels=("F", "M")),
        mg.Attribute("odd name", labels=("=1+1", "-5", " x, y", 'a "quote"', "é\u202e")),
    ],
    description="a made-up survey",
)
WORKLOAD = mg.Workload.all_kway(DOMAIN, 2)


def release(**options):
    draw = np.random.default_rng(1)
    table = mg.CodedTable(DOMAIN, {one.name: draw.integers(0, one.size, 900) for one in DOMAIN})
    noisy = mg.measure(mg.plan(WORKLOAD, mg.Budget.zcdp(rho=0.1), contributions=1), table)
    return mg.reconstruct(noisy, WORKLOAD, **options)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published") / "release"
    made = release(errors=True)
    made.save(folder, csv=True)
    return made, folder


def test_pysdmx_reads_sdmx_csv_back(published, tmp_path):
    read = pytest.importorskip("pysdmx.io", reason="pysdmx is not installed").read_sdmx
    made, _ = published
    tables = [("age", "sex"), ("sex",)]
    mg.export(made, tmp_path / "out.csv", form="sdmx", agency="OFFICE", dataflow="SURVEY", period="2026", tables=tables)
    message = read(tmp_path / "out.csv")
    (dataset,) = message.data
    assert str(dataset.structure) == "Dataflow=OFFICE:SURVEY(1.0.0)"
    frame = dataset.data
    assert len(frame) == sum(made.table(*names).values.size for names in tables)
    for names in tables:
        dimensions = {"age": "AGE", "sex": "SEX", "odd name": "ODD_NAME"}
        inside = np.ones(len(frame), dtype=bool)
        for name, dimension in dimensions.items():
            inside &= (frame[dimension] == "_T").to_numpy() != (name in names)
        found = frame[inside]
        table = made.table(*names)
        for column, expected in (("OBS_VALUE", table.values), ("ESTIMATE", table.estimate)):
            assert found[column].astype(float).tolist() == np.ravel(expected).tolist()
        assert found["COUNT_ERROR"].astype(float).tolist() == np.ravel(table.count_error).tolist()
        assert set(found["OBS_STATUS"]) <= {"A", "U", "N"}
    assert set(frame["TIME_PERIOD"]) == {"2026"}


def test_csvw_finds_the_description_of_the_files_valid(published):
    csvw = pytest.importorskip("csvw", reason="csvw is not installed")
    made, folder = published
    described = csvw.CSVW(str(folder / "csvw-metadata.json"), validate=True)
    assert described.is_valid, described.warnings
    assert len(described.tables) == len(WORKLOAD)
    for table, names in zip(described.tables, WORKLOAD, strict=True):
        rows = list(table.iterdicts())
        assert [row["count"] for row in rows] == made.table(*names).values.ravel().tolist()


def test_csvw_would_find_a_wrong_number(published, tmp_path):
    csvw = pytest.importorskip("csvw", reason="csvw is not installed")
    _, folder = published
    (tmp_path / "tables").mkdir()
    for file in (folder / "tables").glob("*.csv"):
        (tmp_path / "tables" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "csvw-metadata.json").write_bytes((folder / "csvw-metadata.json").read_bytes())
    first = tmp_path / "tables" / "age.sex.csv"
    head, _, rest = first.read_text(encoding="utf-8").partition("\n")
    first.write_text(f"{head}\n{rest.replace(',', ',many', 2)}", encoding="utf-8")
    assert not csvw.CSVW(str(tmp_path / "csvw-metadata.json"), validate=True).is_valid


def documented():
    """The columns that the page names, with their types."""
    rows = re.findall(r"^\| (.*?) \| `(.*?)` \| .* \|$", PAGE, flags=re.MULTILINE)
    return [(name, kind) for names, kind in rows for name in re.findall(r"`(\w+)`", names) or ["attribute"]]


def test_the_schema_of_a_table_is_the_one_documented(published):
    _, folder = published
    kinds = documented()
    assert kinds[0] == ("attribute", "dictionary<values=string, indices=int32, ordered=1>")
    for names, file in (
        (("age", "sex"), "age.sex.parquet"),
        (("age", "odd name"), "age.odd_name.parquet"),
    ):
        schema = pq.read_schema(folder / "tables" / file)
        expected = [(name, kinds[0][1]) for name in names] + kinds[1:]
        assert [(field.name, str(field.type)) for field in schema] == expected
        assert json.loads(schema.metadata[b"margrave"]) == {"margrave": "table", "method": "lnn", "private": True}


def test_without_errors_their_columns_are_missing(tmp_path):
    release().save(tmp_path / "plain")
    names = pq.read_schema(tmp_path / "plain" / "tables" / "age.sex.parquet").names
    assert names == ["age", "sex", "count", "estimate", "std_error", "ci_low", "ci_high"]


def test_an_arrow_table_has_the_columns_of_the_file(published):
    made, folder = published
    table, file = made.table("age", "sex").to_arrow(), pq.read_table(folder / "tables" / "age.sex.parquet")
    assert table.column_names == file.column_names
    assert table.column("count").to_pylist() == file.column("count").to_pylist()
