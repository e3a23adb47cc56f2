"""Descriptions of tables: what is refused before anything is opened, what is never shown, and counts from elsewhere."""

import decimal
import itertools
import sys
from dataclasses import FrozenInstanceError

import nasty
import numpy as np
import pyarrow as pa
import pytest

import margrave
from margrave.algebra.layout import Layout
from margrave.data.counting import pushdown
from margrave.data.redaction import split_url
from margrave.data.source import Data, open_source
from margrave.domain import Attribute, Domain
from margrave.domain.values import as_written
from margrave.errors import DataError

TABLE = pa.table({"a": [0, 1, 1], "b": [2, 0, 0]})
DOMAIN = Domain.fromdict({"a": 2, "b": 3})


def counted(data, domain=DOMAIN, **options):
    layout = Layout.of(domain.shape, [tuple(range(len(domain)))])
    counts = open_source(data, domain, contributions=1, **options).count(layout)
    return counts[-np.prod(domain.shape) :].reshape(domain.shape)


@pytest.mark.parametrize(
    ("source", "options", "text"),
    [
        (
            [1, 2],
            {},
            "^a list is not a table; give a path, a postgresql:// URL, a pandas, Polars or PySpark frame, Arrow",
        ),
        (None, {}, "^a NoneType is not a table"),
        (b"people.csv", {}, "^a bytes is not a table"),
        ("https://example.org/people.csv", {}, "^a URL that begins with https:// cannot be opened; give a file, a"),
        ("s3://u:secret@bucket/x.parquet", {}, "^a URL that begins with s3:// cannot be opened"),
        ("people.csv", {"table": "t"}, r"^a file is one table; leave out table \(--table\) and query \(--query\)$"),
        (TABLE, {"query": "SELECT 1"}, "^a Arrow table is one table; leave out table"),
        (
            "people.duckdb",
            {},
            r"^a DuckDB file has many tables; name one of them by table=… \(--table\), or give a query=… \(--query\)$",
        ),
        ("people.duckdb", {"table": "t", "query": "q"}, "^a DuckDB file has many tables"),
        ("postgresql://host/db", {}, "^a PostgreSQL database has many tables; name one of them"),
        ("postgresql://host/db/t", {"table": "t"}, "^a PostgreSQL database has many tables; name one of them"),
        ("postgresql://host/db/a/b/c/d", {}, "^the path of the URL has more than database, schema and table; write"),
        (TABLE, {"privacy_id": 3}, "^privacy_id is a int or empty; give it as text"),
        (TABLE, {"counts": ""}, "^counts is a str or empty; give it as text"),
        (TABLE, {"privacy_id": "a", "counts": "b"}, "^counts that were computed elsewhere have no rows of persons"),
        (
            TABLE,
            {"counting": "fetching"},
            r"^no counting 'fetching'; did you mean 'fetch'\? \(counting, --counting, is auto, fetch, push",
        ),
        (TABLE, {"counting": None}, r"^no counting None \(counting, --counting, is auto, fetch, push-down\)"),
        (
            TABLE,
            {"counts": "b", "counting": "push-down"},
            r"^counts that were computed elsewhere are fetched; leave out counting='push-down' \(--counting\)$",
        ),
        (TABLE, {"progress": 1}, "^progress is a int; give a function of two numbers"),
        (
            "x.csv",
            {"delimiter": ""},
            r"^delimiter \(--delimiter\) is ''; give one character other than a letter, digit or",
        ),
        ("x.csv", {"delimiter": "ab"}, r"^delimiter \(--delimiter\) is 'ab'; give one character"),
        (
            "x.csv",
            {"delimiter": "x"},
            "give one character other than a letter, digit or quotation mark, such as ';' or",
        ),
        ("x.csv", {"delimiter": '"'}, "give one character other than a letter"),
        ("x.csv", {"delimiter": 3}, r"^delimiter \(--delimiter\) is 3"),
        ("x.csv", {"encoding": "latin-11"}, r"^no encoding 'latin-11' \(--encoding\) is known; give one such as utf-8"),
        ("x.csv", {"encoding": "rot13"}, r"^no encoding 'rot13' \(--encoding\) is known"),
        ("x.csv", {"encoding": ""}, r"^no encoding '' \(--encoding\) is known"),
        ("x.csv", {"encoding": 8}, r"^no encoding 8 \(--encoding\) is known"),
        ("x.csv", {"decimal": ";"}, r"^decimal \(--decimal\) is ';'; give '\.' or ','$"),
        ("x.csv", {"decimal": None}, r"^decimal \(--decimal\) is None; give"),
        (TABLE, {"delimiter": ";"}, r"^delimiter \(--delimiter\) is for CSV files, and this is another kind of table"),
        ("x.parquet", {"decimal": ","}, r"^decimal \(--decimal\) is for CSV files, and this is another kind of table"),
        ("x.json", {"encoding": "utf-16"}, r"^encoding \(--encoding\) is for CSV files, and this is another kind"),
        (
            "x.db",
            {"table": "t"},
            r"^'x\.db' is a database of some kind, and DuckDB files end in \.duckdb: if it is one",
        ),
        ("x.xlsx", {"query": "t"}, r"^'x\.xlsx' is a spreadsheet; save it as CSV \(UTF-8\) there and give that file$"),
        ("x.txt", {"encoding": "utf-16"}, r"^'x\.txt' does not say by its ending how fields are separated; give"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(source, options, text):
    with pytest.raises(DataError, match=text):
        Data(source, **options)


def test_a_path_of_bytes_is_refused():
    class BytesPath:
        def __fspath__(self):
            return b"people.csv"

    with pytest.raises(DataError, match=r"^the path is given as bytes; give it as text"):
        Data(BytesPath())


def test_a_url_without_the_packages_for_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        DataError, match=r"^a postgresql:// URL needs more packages; pip install 'margrave\[postgres\]'"
    ):
        counted(Data("postgresql://host/db/people"))


def test_a_description_shows_what_kind_of_table_it_is_and_nothing_else():
    assert margrave.Data is Data
    for source, kind in [
        ("postgresql://user:secret@host/db/people", "PostgreSQL database"),
        ("people.parquet", "file"),
        (TABLE, "Arrow table"),
        (TABLE.to_batches()[0], "Arrow record batch"),
    ]:
        data = Data(source)
        assert repr(data) == f"Data({kind})"
        assert repr(open_source(data, DOMAIN, contributions=1)) == f"TableSource(Data({kind}))"
    with pytest.raises(FrozenInstanceError):
        data.counting = "fetch"


def test_a_record_batch_is_a_table():
    assert counted(TABLE.to_batches()[0]).tolist() == [[0, 0, 1], [2, 0, 0]]


def test_urls_may_name_a_table():
    assert split_url("postgresql://u:p@host:5432/db?sslmode=require") == (
        "postgresql://u:p@host:5432/db?sslmode=require",
        None,
    )
    assert split_url("postgresql://host/db/people") == ("postgresql://host/db", "people")
    assert split_url("postgresql://host/db/survey/my%20people") == ("postgresql://host/db", "survey.my people")


def test_a_table_named_in_a_url_and_a_schema(postgres):
    import psycopg

    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS survey")
        connection.execute("DROP TABLE IF EXISTS survey.pairs")
        connection.execute("CREATE TABLE survey.pairs (a int, b double precision, id uuid)")
        connection.execute("INSERT INTO survey.pairs SELECT 1, 2.0, gen_random_uuid() FROM generate_series(1, 5)")
    head, _, query = postgres.partition("?")
    for counting in ("fetch", "push-down"):
        for data in (
            Data(f"{head}/survey/pairs?{query}", counting=counting),
            Data(postgres, table="survey.pairs", counting=counting),
            Data(postgres, query="SELECT * FROM survey.pairs", counting=counting, privacy_id="id"),
        ):
            assert counted(data).tolist() == [[0, 0, 0], [0, 0, 5]]


def test_postgres_is_left_as_it_was(postgres):
    """What is made there, temporary tables too, goes with the transaction; also the caller's own connection stays."""
    ibis = pytest.importorskip("ibis", reason="Ibis needs margrave[ibis]")
    import psycopg

    nasty.write_postgres(nasty.rows(), postgres)
    domain = nasty.DOMAIN.project(["flag", "code"])
    with psycopg.connect(postgres, autocommit=True) as connection:
        table = ibis.postgres.from_connection(connection).table("people")
        level = connection.isolation_level
        before = set(connection.execute("SELECT tablename FROM pg_tables").fetchall())
        counted(Data(table, privacy_id="person", counting="push-down"), domain)
        assert set(connection.execute("SELECT tablename FROM pg_tables").fetchall()) == before
        assert connection.isolation_level == level


def test_all_queries_see_one_state_of_the_database(postgres):
    """Rows that are added between two queries are in none of the tables."""
    import psycopg

    table = nasty.rows()
    nasty.write_postgres(table, postgres)

    def add(done, tables):
        with psycopg.connect(postgres) as connection:
            connection.execute("INSERT INTO people SELECT * FROM people LIMIT 10")

    domain = nasty.DOMAIN.project(["flag", "code"])
    layout = Layout.of(domain.shape, [(0,), (1,)])
    data = Data(postgres, table="people", counting="push-down", progress=add)
    counts = open_source(data, domain, contributions=1).count(layout)
    assert [int(array.sum()) for _, array in layout.views(counts)] == [len(table)] * 3


@pytest.mark.parametrize("counting", ["fetch", "push-down"])
def test_progress_counts_tables(counting):
    domain = Domain.fromdict(dict.fromkeys("abc", 2))
    layout = Layout.of(domain.shape, list(itertools.combinations(range(3), 2)))
    seen = []
    for rows in (1, 1000):
        table = pa.table({name: [0] * rows for name in "abc"})
        data = Data(table, counting=counting, progress=lambda *numbers: seen.append(numbers))
        open_source(data, domain, contributions=1).count(layout)
    expected = [(0, 3), (3, 3)] if counting == "fetch" else [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert seen == 2 * expected


def test_the_way_of_counting_is_chosen_by_engine_and_public_sizes():
    class Fake:
        remote = True

    small = Layout.of((2, 3), [(0, 1)])
    assert pushdown.pays(Fake, small)
    assert not pushdown.pays(Fake, Layout.of((4000, 4000), [(0, 1)]))
    assert not pushdown.pays(Fake, Layout.of((2,) * 1001, [(k,) for k in range(1001)]))
    Fake.remote = False
    assert not pushdown.pays(Fake, small)


def test_engines_that_cannot_group_exactly_are_not_asked_to(tmp_path):
    path = nasty.write_csv(nasty.rows(), tmp_path / "people.csv")
    with pytest.raises(DataError, match=r"^a file of texts has no engine that knows its numbers; leave out counting="):
        counted(Data(path, counting="push-down"), nasty.DOMAIN.project(["code"]))


# --- types that an engine groups by in one way or another --------------------------------------------------------


def numbers(*values):
    return pa.array([None if value is None else decimal.Decimal(value) for value in values], pa.decimal128(12, 2))


MOMENTS = pa.array([0, 1_000_000, None], pa.timestamp("us"))
# What 2.0**60 is written as.
LARGE = int(as_written(2.0**60))
DAYS = ("1970-01-01", "1970-01-01T00:00:01")
NARROW = pa.array([0.1, 0.5, None], pa.float32())
TYPES = {
    "unsigned": (pa.array([0, 255, 7], pa.uint8()), Attribute("x", size=2, other="rest"), [1, 0, 2]),
    "all of a type": (pa.array([0, 255, 7], pa.uint8()), Attribute("x", size=256, outside="drop"), None),
    "floats as codes": (pa.array([0.0, 1.0, 0.5, -0.0]), Attribute("x", size=2, outside="drop"), [2, 1]),
    "narrow floats": (NARROW, Attribute("x", labels=(0.1, 0.5), other="o", missing="m"), [0, 1, 1, 1]),
    "none of a type": (pa.array([1, 2], pa.int16()), Attribute("x", labels=(10**5, 10**6), outside="drop"), [0, 0]),
    "no fractions": (pa.array([1, 2], pa.int16()), Attribute("x", labels=(0.5, 1.5), outside="drop"), [0, 0]),
    "negative": (pa.array([-1.0, -2.0, 7.0, 8.0]), Attribute("x", labels=(-1.0, -2.0), other="rest"), [1, 1, 2]),
    "large floats": (pa.array([LARGE, 2**60]), Attribute("x", labels=(2.0**60,), other="rest"), [1, 1]),
    "far cuts": (pa.array([2**63 - 1, -(2**63), 0]), Attribute("x", cuts=(-1e300, 0, 1e300)), [0, 2, 1, 0]),
    "cuts beyond a type": (pa.array([-128, 127, 0], pa.int8()), Attribute("x", cuts=(-1000, 0, 1000)), [0, 2, 1, 0]),
    "cuts beside floats": (pa.array([2**53 + 1, 2**53], pa.int64()), Attribute("x", cuts=(0.5, 2**53)), [0, 1, 1]),
    "categories": (pa.array(["x", "y", "x"]).dictionary_encode(), Attribute("x", labels=("x",), outside="drop"), [2]),
    "stranger": (pa.array(["other", "?"]), Attribute("x", labels=("other", "other 0"), other="rest"), [1, 0, 1]),
    "one truth": (pa.array([True, False, True]), Attribute("x", labels=(True,), outside="drop"), [2]),
    "huge labels": (pa.array([1.0, 1e300]), Attribute("x", labels=(10**400, 1), other="rest"), [0, 1, 1]),
    "many cuts": (pa.array(range(300)), Attribute("x", cuts=range(299)), [1] * 300),
}  # fmt: skip


@pytest.mark.parametrize("counting", ["fetch", "push-down"])
@pytest.mark.parametrize("case", TYPES)
def test_types_of_columns(case, counting):
    import duckdb

    column, attribute, expected = TYPES[case]
    domain, table = Domain([attribute]), pa.table({"x": column})
    connection = duckdb.connect()
    connection.register("given", table)
    for source in (table, connection.sql("SELECT * FROM given")):
        counts = counted(Data(source, counting=counting), domain).tolist()
        assert counts == ([1 if code in (0, 7, 255) else 0 for code in range(256)] if expected is None else expected)


@pytest.mark.parametrize(
    ("column", "attribute", "expected"),
    [
        (numbers("0.30", "1.00", None), Attribute("x", labels=(0.3, 1), missing="m"), [1, 1, 1]),
        (numbers("0.5"), Attribute("x", cuts=(0.3,)), [0, 1]),
        (numbers("1", "7"), Attribute("x", size=2, outside="drop"), [0, 1]),
        (MOMENTS, Attribute("x", labels=DAYS, missing="m"), [1, 1, 1]),
        (pa.array([2**64 - 1, 0], pa.uint64()), Attribute("x", labels=(2**64 - 1,), other="rest"), [1, 1]),
    ],
)
def test_types_that_engines_do_not_compare_alike_are_fetched(column, attribute, expected):
    table, domain = pa.table({"x": column}), Domain([attribute])
    assert counted(Data(table), domain).tolist() == expected
    with pytest.raises(DataError, match=r"^column 'x' is of a type that engines do not compare as margrave"):
        counted(Data(table, counting="push-down"), domain)


@pytest.mark.parametrize("many", [{"labels": range(1001)}, {"cuts": range(1001)}])
def test_more_values_than_an_engine_should_compare_a_row_with(many):
    table, domain = pa.table({"x": [1000]}), Domain([Attribute("x", **many)])
    assert counted(Data(table), domain)[1000] == 1
    with pytest.raises(DataError, match=r"^attribute 'x' has more than 1,000 values to compare each row with"):
        counted(Data(table, counting="push-down"), domain)


# --- counts that were computed elsewhere -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "numbers",
    [
        pa.array([5, 0, 2**36]),
        pa.array([5.0, 0.0, 2.0**36]),
        pa.array([decimal.Decimal(5), decimal.Decimal(0), decimal.Decimal(2**36)]),
        pa.array([5, 0, 2**36], pa.uint64()),
    ],
)
def test_counts_from_elsewhere_are_added_up(numbers):
    table = pa.table({"a": [0, 1, 1], "b": [2, 0, 1], "count": numbers})
    assert counted(Data(table, counts="count")).tolist() == [[0, 0, 5], [0, 2**36, 0]]


def test_counts_from_a_file_and_with_rows_that_are_dropped(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("a,b,n\n0,2,5\n0,2,1\n1,7,100\n1,0,3\n")
    domain = Domain([Attribute("a", size=2), Attribute("b", size=3, outside="drop")])
    assert counted(Data(path, counts="n"), domain).tolist() == [[0, 0, 6], [3, 0, 0]]


@pytest.mark.parametrize(
    "numbers",
    [
        pa.array([1, -5]),
        pa.array([1, None]),
        pa.array([0.5, 1.0]),
        pa.array([1.0, float("nan")]),
        pa.array(["1", "2"]),
        pa.array([True, False]),
        pa.array([2**64 - 1, 1], pa.uint64()),
    ],
)
def test_what_is_no_count_is_refused(numbers):
    table = pa.table({"a": [0, 1], "b": [0, 1], "count": numbers})
    with pytest.raises(
        DataError, match=r"^column 'count' is not made of whole numbers of at least 0; give one count a"
    ):
        counted(Data(table, counts="count"))


def test_counts_that_are_none():
    table = pa.table({"a": [0], "b": [0], "count": [2**36 + 1]})
    with pytest.raises(DataError, match=r"^column 'count' has counts above 2³⁶, more than any table has rows"):
        counted(Data(table, counts="count"))
    with pytest.raises(DataError, match=r"^column 'a' is an attribute of the domain and cannot hold the counts too"):
        counted(Data(table, counts="a"))
    with pytest.raises(DataError, match=r"^the table has no column 'counts'; did you mean 'count'"):
        counted(Data(table, counts="counts"))
