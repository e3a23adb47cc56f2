"""SDMX-CSV: one cube of all tables, every cell once, with codes that SDMX allows."""

import csv
import re

import numpy as np
import pytest
from releases import DOMAIN, WORKLOAD, adaptive, foreign, made, measured

from margrave.domain import Attribute, Domain
from margrave.errors import MargraveError, StoreError
from margrave.release.export.sdmx import MEASURES, sdmx_codes, sdmx_dimensions, write_sdmx

RELEASE = made(measured(), "lnn")
IDENTITY = {"agency": "OFFICE.SUB", "dataflow": "SURVEY", "version": "2.1.0"}


def refused(text, error=StoreError):
    return pytest.raises(error, match=re.escape(text))


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def written(tmp_path, release=RELEASE, **options):
    write_sdmx(release, tmp_path / "data.csv", **{**IDENTITY, **options})
    return rows_of(tmp_path / "data.csv")


def test_the_header_is_that_of_sdmx_csv_2_and_lines_end_as_rfc_4180_wants(tmp_path):
    written(tmp_path)
    content = (tmp_path / "data.csv").read_bytes()
    assert content.startswith(
        b"STRUCTURE,STRUCTURE_ID,ACTION,AGE,SEX,REGIO_N,ONE,OBS_VALUE,ESTIMATE,STD_ERROR,CI_LOW,CI_HIGH\r\n"
        b"dataflow,OFFICE.SUB:SURVEY(2.1.0),I,_T,F,_T,_T,"
    )
    assert content.count(b"\r\n") == content.count(b"\n") == WORKLOAD.cells + 1


def test_every_cell_of_every_table_is_there_once_with_its_numbers(tmp_path):
    rows = written(tmp_path)
    dimensions = sdmx_dimensions(DOMAIN)
    by_key = {tuple(row[one] for one in dimensions): row for row in rows}
    assert len(by_key) == len(rows) == WORKLOAD.cells
    for table in RELEASE.tables():
        for place in np.ndindex(table.values.shape):
            code_of = {name: sdmx_codes(DOMAIN[name])[k] for name, k in zip(table.attributes, place, strict=True)}
            row = by_key[tuple(code_of.get(name, "_T") for name in DOMAIN.attributes)]
            assert float(row["OBS_VALUE"]) == table.values[place]
            assert float(row["ESTIMATE"]) == table.estimate[place]
            assert float(row["STD_ERROR"]) == table.std_error
            assert float(row["CI_LOW"]) == table.ci_low[place]
            assert float(row["CI_HIGH"]) == table.ci_high[place]


def test_codes_are_labels_where_these_are_identifiers_and_numbers_elsewhere():
    assert sdmx_codes(DOMAIN["sex"]) == ("F", "M")
    assert sdmx_codes(DOMAIN["age"]) == ("0", "1", "2")
    assert sdmx_codes(DOMAIN["régio/n"]) == ("0", "1", "2", "3")
    assert sdmx_codes(Attribute("a", labels=("_T", "b"))) == ("0", "1")
    assert sdmx_codes(Attribute("a", labels=("1", 1))) == ("0", "1")
    assert sdmx_codes(Attribute("a", labels=(True, 2.5))) == ("0", "1")


def test_no_code_is_a_formula_of_a_spreadsheet():
    assert sdmx_codes(Attribute("a", labels=("@A1", "b"))) == ("0", "1")
    assert sdmx_codes(Attribute("a", labels=("-A1", "b"))) == ("0", "1")
    assert sdmx_codes(Attribute("a", labels=("-1", "1"))) == ("-1", "1")


@pytest.mark.parametrize("period", ["=1+1", "", "2026\n=1", "@2026", 2026])
def test_a_time_period_is_one_of_sdmx(tmp_path, period):
    with refused(f"the time period is {period!r}; give one of SDMX, such as '2026', '2026-Q1' or '2026-01-01/P1Y'"):
        written(tmp_path, time_period=period)
    assert not list(tmp_path.iterdir())
    assert {row["TIME_PERIOD"] for row in written(tmp_path, time_period="2026-Q1")} == {"2026-Q1"}


def test_dimensions_are_identifiers_and_no_two_are_alike():
    names = ["age", "AGE", "a g e", "2nd", "年齢", "obs_value", "Time-Period", "ACTION", "_"]
    found = sdmx_dimensions(Domain.fromdict(dict.fromkeys(names, 2)))
    assert found == ("AGE", "AGE_2", "A_G_E", "D_2ND", "D_5", "OBS_VALUE_2", "TIME_PERIOD_2", "ACTION_2", "D_9")


def test_labels_can_stand_beside_the_codes(tmp_path):
    rows = written(tmp_path, labels="both", time_period="2026")
    header = list(rows[0])
    assert header[3:8] == ["AGE: age", "SEX: sex", "REGIO_N: régio/n", "ONE: one", "TIME_PERIOD: time period"]
    assert header[8:] == [f"{one}: {name}" for one, name in MEASURES.items()]
    assert rows[0]["STRUCTURE_ID"] == "OFFICE.SUB:SURVEY(2.1.0): a survey of {nobody}"
    texts = {row["REGIO_N: régio/n"] for row in rows}
    assert texts == {"_T: Total", "0: nord, est", '1: so"uth', "2: “west”\nland", "3: =1+1"}
    assert {row["TIME_PERIOD: time period"] for row in rows} == {"2026"}


def test_some_tables_can_be_chosen_also_smaller_ones(tmp_path):
    rows = written(tmp_path, tables=[(), ("sex", "age"), ("age", "sex")])
    assert len(rows) == 1 + 6
    assert float(rows[0]["OBS_VALUE"]) == RELEASE.table().values
    with refused("tables is the text 'age'; give a list of tables, as in [('age', 'sex')]"):
        written(tmp_path, tables="age")
    with refused("no attribute 'who' in the domain", MargraveError):
        written(tmp_path, tables=[("who",)])
    with refused("no table of this release covers sex × régio/n", MargraveError):
        written(tmp_path, tables=[("sex", "régio/n")])


@pytest.mark.parametrize("source", [foreign, adaptive])
def test_numbers_that_do_not_exist_are_empty(tmp_path, source):
    release = made(source())
    rows = written(tmp_path, release, tables=[("age", "régio/n")])
    table = release.table("age", "régio/n")
    assert table.std_error is None
    assert {row["STD_ERROR"] + row["CI_LOW"] + row["CI_HIGH"] for row in rows} == {""}
    assert all((row["ESTIMATE"] == "") is (table.estimate is None) for row in rows)


def test_progress_counts_tables(tmp_path):
    seen = []
    written(tmp_path, progress=lambda *numbers: seen.append(numbers))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("what", "value"),
    [("agency", "9x"), ("agency", ""), ("dataflow", "a b"), ("dataflow", None), ("version", "one"), ("version", "1")],
)
def test_identifiers_are_checked(tmp_path, what, value):
    with refused(f"the {what} is {value!r}; give an SDMX identifier of ASCII letters"):
        written(tmp_path, **{what: value})
    with refused("no labels 'name' in SDMX-CSV; give 'id' or 'both'"):
        written(tmp_path, labels="name")


def test_a_failure_leaves_the_file_as_it_was(tmp_path):
    (tmp_path / "data.csv").write_text("before")

    def progress(done, tables):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written(tmp_path, progress=progress)
    with refused("cannot be written ("):
        write_sdmx(RELEASE, tmp_path / "nowhere" / "data.csv", **IDENTITY)
    with refused("cannot be written ("):
        write_sdmx(RELEASE, tmp_path, **IDENTITY)
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]
    assert (tmp_path / "data.csv").read_text() == "before"
