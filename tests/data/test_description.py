"""Descriptions of tables: what is refused before anything is opened, what is never shown, and counts from elsewhere."""

import decimal
import itertools
import sys
from dataclasses import FrozenInstanceError

import nasty
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import margrave
from margrave.algebra.layout import Layout
from margrave.data.counting import pushdown
from margrave.data.engines.engine import Costs
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
            r"^'x\.db' looks like a database: if it is a DuckDB file",
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
    assert seen == 2 * [(0, 3), (3, 3)]  # one table of three attributes holds all


class Unasked:
    """An engine that fails whatever it is asked: a choice must not depend on the table."""

    remote, maps = True, False
    costs = Costs(fetched=1e-6, coded=1e-7, grouped=1e-7, sent=1e-5, query=0.1, sets=32)

    def __getattr__(self, name):
        raise AssertionError(f"asked for {name}")


def test_the_way_of_counting_is_chosen_by_engine_and_public_numbers():
    engine, small = Unasked(), Layout.of((2, 3), [(0, 1)])
    push, reason = pushdown.choose(engine, small)
    assert push
    assert reason == (
        "for 1 tables of 2 columns and 1,000,000 rows (assumed, because none is stated), counting there is "
        "expected to take 0.4 s, fetching 2.1 s"
    )
    assert pushdown.choose(engine, Layout.of((4000, 4000), [(0, 1)])) == (
        False,
        "the tables have 16,000,000 cells, more than 10,000,000",
    )
    # Few rows are fetched: the cells that come back are as many as the rows.
    triples = Layout.of((10,) * 6, list(itertools.combinations(range(6), 3)))
    assert pushdown.choose(engine, triples, 10**7)[0]
    push, reason = pushdown.choose(engine, triples, 1000)
    assert not push
    assert "1,000 rows (as stated)" in reason
    engine.maps = True
    assert pushdown.choose(engine, triples) == (True, "its workers read the table once, for 20 tables of 20,000 cells")
    engine.remote = False
    assert pushdown.choose(engine, small) == (False, "the rows are in this process")


def test_the_tables_that_an_engine_counts_hold_all_others():
    layout = Layout.of((10, 9, 8, 7, 2, 2), list(itertools.combinations(range(6), 2)))
    outer = layout.sets[layout.outer :]
    for rows in (None, 10, 10**9):
        tables = pushdown.covering(Unasked(), layout, rows)
        assert sorted(held for table in tables for held in table.holds) == list(range(len(outer)))
        assert all(set(outer[held]) <= set(table.members) for table in tables for held in table.holds)
    # The more rows, the more it pays to go through them for fewer, larger tables.
    assert len(pushdown.covering(Unasked(), layout, 10**9)) < len(pushdown.covering(Unasked(), layout, 3000))


def test_where_no_rows_are_stated_the_tables_are_good_for_few_rows_and_for_many():
    layout = Layout.of((10, 9, 8, 7, 16, 12, 15), list(itertools.combinations(range(7), 2)))
    numbers = (10**4, 10**5, 10**6, 10**7)
    tables = {stated: pushdown.covering(Unasked(), layout, stated) for stated in (None, *numbers)}
    expected = {
        stated: [pushdown._seconds(Unasked(), layout, some, rows) for rows in numbers]
        for stated, some in tables.items()
    }
    least = [expected[rows][place] for place, rows in enumerate(numbers)]
    worst = {stated: max(np.divide(seconds, least)) for stated, seconds in expected.items()}
    assert worst[None] <= min(worst[rows] for rows in numbers)
    assert worst[None] < worst[10**7]


@pytest.mark.parametrize("log", ["_delta_log/0.json", "metadata/v1.metadata.json"])
def test_the_files_of_a_table_with_a_log_are_not_read_by_themselves(log, tmp_path):
    """Some of them hold rows that the table no longer has."""
    folder = tmp_path / "people"
    for file in (folder / log, folder / "data" / "year=2024" / "part.parquet"):
        file.parent.mkdir(parents=True, exist_ok=True)
    (folder / log).write_text("{}")
    pq.write_table(TABLE, folder / "data" / "year=2024" / "part.parquet")
    name = "Delta" if "delta" in log else "Iceberg"
    for path in (folder, folder / "data", folder / "data" / "*" / "*.parquet"):
        with pytest.raises(
            DataError, match=rf"people' holds a table of {name}, whose files may .*; open it with Spark"
        ):
            counted(Data(path))


def test_a_folder_is_given_by_a_pattern(tmp_path):
    with pytest.raises(DataError, match=r"is a folder; give its files by a pattern, such as 'folder/\*\.parquet'"):
        counted(Data(tmp_path))


@pytest.mark.parametrize(
    ("library", "name", "remedy"),
    [
        ("pyspark.sql.session", "SparkSession", "give one of its frames, as spark.table"),
        ("deltalake.table", "DeltaTable", "give the dataset that its to_pyarrow_dataset"),
        ("pyiceberg.table", "Table", "give the reader that its scan"),
    ],
)
def test_what_leads_to_tables_is_refused_with_the_way_to_one(library, name, remedy):
    made = type(name, (), {"__module__": library})()
    with pytest.raises(DataError, match=rf"^a {name} is not a table by itself; {remedy}"):
        Data(made)


@pytest.mark.parametrize("rows", [-1, True, "many", 1.5])
def test_a_stated_number_of_rows_is_a_whole_number(rows):
    with pytest.raises(DataError, match=r"^rows \(--rows\) is .*; give a whole number of at least 0, or leave it out"):
        Data(TABLE, rows=rows)


def test_whoever_is_to_be_told_can_be():
    with pytest.raises(DataError, match=r"^notify is a int; give a function of a text"):
        Data(TABLE, notify=3)


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
