"""One person more changes every table by at most so many rows as are kept of a person, on every engine and way.

The salt is fixed, so that two runs choose by the same rule: what differs is what the person changes.
"""

import hashlib
import math
import random
import sqlite3
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import duckdb
import fake_spark
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from margrave.algebra.layout import Layout
from margrave.data.persons import Choice, Dialect, chosen_sql, draw_salt
from margrave.data.source import Data, open_source
from margrave.domain import Attribute, Domain
from margrave.errors import DataError

SALT = bytes(range(32))
MOST = 2
DOMAIN = Domain([Attribute("x", size=4, other="more"), Attribute("y", size=3), Attribute("z", size=2, outside="drop")])
TABLES = [("x", "y"), ("y", "z")]


@pytest.fixture(autouse=True)
def fixed_salt(monkeypatch):
    monkeypatch.setattr("margrave.data.persons.draw_salt", lambda: SALT)


def counted(data, tables=TABLES, domain=DOMAIN, most=MOST):
    """The tables that were asked for and all within them, by name."""
    layout = Layout.of(domain.shape, [domain.positions(names) for names in tables])
    counts = open_source(data, domain, contributions=most, privacy_id="p").count(layout)
    return {domain.names(members): table for members, table in layout.views(counts)}


def distances(one, other):
    return [int(np.abs(one[names] - other[names]).sum()) for names in one]


# --- ids, and one more person ------------------------------------------------------------------------------------

NOON = datetime(2024, 3, 31, 1, 59, 59, 999_999)
KINDS = {
    # The ids of those who are there; of the person who comes, one id or two that are equal; and their Arrow type.
    "whole numbers": ([*range(9), -1, 2**53, 2**53 + 2, -(2**63), 2**63 - 1], [2**53 + 1], pa.int64()),
    "texts": (
        [
            "a",
            "A",
            "ä",
            "a\u0308",
            " a",
            "",
            "1:1",
            "1",
            "1,1",
            "it's",
            "👍",
            "{rows}",
            "%s",
            "NULL",
            "STRASSE",
            "straße",
        ],
        ["a "],
        pa.string(),
    ),
    "floating-point numbers": ([1.5, -1.5, 5e-324, 1e300, math.inf, -math.inf], [-0.0, 0.0], pa.float64()),
    "timestamps": (
        [NOON + timedelta(hours=k) for k in range(6)],
        [NOON + timedelta(microseconds=1)],
        pa.timestamp("us"),
    ),
}
PLACES = {
    "csv": lambda table, folder: Data(csv(table, folder / "people.csv")),
    "json": lambda table, folder: Data(json(table, folder / "people.ndjson")),
    "parquet": lambda table, folder: Data(parquet(table, folder / "people.parquet")),
    "duckdb": lambda table, folder: Data(in_duckdb(table).table("people")),
    "duckdb file": lambda table, folder: Data(duckdb_file(table, folder / "people.duckdb"), table="people"),
    "arrow": lambda table, folder: Data(table),
    "arrow reader": lambda table, folder: Data(table.to_reader(max_chunksize=7)),
    "arrow dataset": lambda table, folder: Data(ds.dataset(parquet(table, folder / "people.parquet"))),
    "pandas": lambda table, folder: Data(table.to_pandas()),
    "polars": lambda table, folder: Data(pytest.importorskip("polars").from_arrow(table)),
    "polars lazy": lambda table, folder: Data(pytest.importorskip("polars").from_arrow(table).lazy()),
    "ibis on duckdb": lambda table, folder: Data(pytest.importorskip("ibis").duckdb.connect().create_table("t", table)),
    "ibis on polars": lambda table, folder: Data(ibis_polars(table)),
    "ibis on sqlite": lambda table, folder: Data(in_sqlite(table, folder / "people.sqlite")),
    "stand-in for spark": lambda table, folder: Data(fake_spark.DataFrame(in_duckdb(table).table("people"))),
    "stand-in for spark without margrave": lambda table, folder: Data(
        fake_spark.DataFrame(in_duckdb(table).table("people"))
    ),
}
TEXTS = ("csv", "json")
# These cannot choose rows, and are fetched.
CANNOT = ("ibis on polars", "ibis on sqlite")
# These choose rows elsewhere, by ids that are whole numbers and texts.
# Which hash ids as the engine writes them; the workers of a cluster bring ids of all types into one form first.
ELSEWHERE = ("postgres", "ibis on postgres", "stand-in for spark without margrave")
MAPPED = ("stand-in for spark", "spark")
ALL = {**dict.fromkeys([*PLACES, "postgres", "ibis on postgres"], ()), "spark": pytest.mark.engines}


def text_of(value):
    return value.isoformat() if isinstance(value, datetime) else str(value)


def csv(table, path):
    names = table.column_names
    lines = [",".join('"' + text_of(row[name]).replace('"', '""') + '"' for name in names) for row in table.to_pylist()]
    path.write_text("\n".join([",".join(names), *lines]) + "\n", encoding="utf-8")
    return path


def json(table, path):
    import json

    written = [json.dumps({name: text_of(value) for name, value in row.items()}) for row in table.to_pylist()]
    path.write_text("\n".join(written), encoding="utf-8")
    return path


def parquet(table, path):
    pq.write_table(table, path, row_group_size=11)
    return path


def in_duckdb(table, path=":memory:"):
    connection = duckdb.connect(str(path))
    connection.register("given", table)
    connection.execute("CREATE OR REPLACE TABLE people AS SELECT * FROM given")
    return connection


def duckdb_file(table, path):
    in_duckdb(table, path).close()
    return path


def ibis_polars(table):
    ibis = pytest.importorskip("ibis", reason="Ibis needs margrave[ibis]")
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    return ibis.polars.connect({"people": polars.from_arrow(table).lazy()}).table("people")


def in_sqlite(table, path):
    with sqlite3.connect(path) as connection:
        kind = "INTEGER" if pa.types.is_integer(table.schema.field("p").type) else "TEXT"
        connection.execute("DROP TABLE IF EXISTS people")
        connection.execute(f"CREATE TABLE people (p {kind}, x INTEGER, y INTEGER, z INTEGER)")
        connection.executemany(
            "INSERT INTO people VALUES (?, ?, ?, ?)", [tuple(row.values()) for row in table.to_pylist()]
        )
    return pytest.importorskip("ibis", reason="Ibis needs margrave[ibis]").sqlite.connect(path).table("people")


POSTGRES = {
    pa.int64(): "bigint",
    pa.string(): "text",
    pa.float64(): "double precision",
    pa.timestamp("us"): "timestamp",
}


def in_postgres(table, url):
    import psycopg

    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS people")
        kind = POSTGRES[table.schema.field("p").type]
        cursor.execute(f"CREATE TABLE people (p {kind}, x bigint, y bigint, z bigint)")
        with cursor.copy("COPY people FROM STDIN") as copy:
            for row in table.to_pylist():
                copy.write_row(tuple(row.values()))
    return url


def ibis_postgres(table, request):
    """A table on a connection of the caller's, whose generator the caller has seeded."""
    ibis = pytest.importorskip("ibis", reason="Ibis needs margrave[ibis]")
    import psycopg

    connection = psycopg.connect(in_postgres(table, request.getfixturevalue("postgres")), autocommit=True)
    request.addfinalizer(connection.close)
    connection.execute("SELECT setseed(0.25)")
    return ibis.postgres.from_connection(connection).table("people")


@pytest.fixture
def place(tmp_path, request, monkeypatch):
    """Puts a table on an engine."""

    def put(engine, table):
        if engine == "postgres":
            return Data(in_postgres(table, request.getfixturevalue("postgres")), table="people")
        if engine == "ibis on postgres":
            return Data(ibis_postgres(table, request))
        if engine == "spark":
            session = request.getfixturevalue("spark")
            return Data(
                session.createDataFrame([tuple(row.values()) for row in table.to_pylist()], spark_schema(table))
            )
        if engine.startswith("stand-in for spark"):
            made = fake_spark.EngineWithoutMargrave if engine.endswith("without margrave") else fake_spark.Engine
            monkeypatch.setattr("margrave.data.engines.spark.SparkEngine", made)
        return PLACES[engine](table, tmp_path)

    return put


def spark_schema(table):
    kinds = {pa.int64(): "bigint", pa.string(): "string", pa.float64(): "double", pa.timestamp("us"): "timestamp_ntz"}
    return ", ".join(f"{field.name} {kinds[field.type]}" for field in table.schema)


def codes_of_rows(count, seed):
    """Rows with few different codes, so that some are equal, and some of which are dropped."""
    choose = random.Random(seed)
    return [(choose.choice([0, 1, 2, 3, 9]), choose.randrange(3), choose.choice([0, 0, 1, 7])) for _ in range(count)]


def table_of(kind, extra):
    """Seven rows of each person who is there, and some of the person who comes, among them."""
    ids, newcomer, arrow = KINDS[kind]
    rows = [(person, *codes) for person in ids for codes in codes_of_rows(7, repr(person))]
    # The first rows of the newcomer are not dropped.
    added = [(0, 1, 0), (2, 2, 1), (9, 0, 0), (2, 2, 1), (3, 0, 7)][:extra]
    rows += [(newcomer[place % len(newcomer)], *codes) for place, codes in enumerate(added)]
    random.Random(extra).shuffle(rows)
    names = dict(zip(["p", "x", "y", "z"], zip(*rows, strict=True), strict=True))
    return pa.table({name: pa.array(column, arrow if name == "p" else pa.int64()) for name, column in names.items()})


def by_hand(table, salt=SALT, most=MOST):
    """The rows that are kept, by the rule as it is written down, one row after the other."""
    kept, seen, persons = [], Counter(), {}
    for row in table.to_pylist():
        if row["z"] in (0, 1):
            person, codes = str(row["p"]), (min(row["x"], 4), row["y"], row["z"])
            seen[person, codes] += 1
            text = f"{salt.hex()}:{len(person)}:{person}:{','.join(map(str, codes))}:{seen[person, codes]}"
            persons.setdefault(person, []).append((hashlib.sha256(text.encode()).hexdigest(), codes))
    for rows in persons.values():
        kept += [codes for _, codes in sorted(rows)[:most]]
    found = {("x", "y"): np.zeros((5, 3), int), ("y", "z"): np.zeros((3, 2), int)}
    for x, y, z in kept:
        found["x", "y"][x, y] += 1
        found["y", "z"][y, z] += 1
    return found


def cases():
    for engine, marks in ALL.items():
        for kind in KINDS:
            if engine in (*TEXTS, "ibis on sqlite") and kind in ("floating-point numbers", "timestamps"):
                continue  # texts, and SQLite, have no ids of these types
            for way in ("fetch", "push-down") if engine not in TEXTS else ("fetch",):
                yield pytest.param(engine, kind, way, marks=marks, id=f"{engine}-{kind}-{way}")


@pytest.mark.parametrize(("engine", "kind", "way"), list(cases()))
def test_one_person_more_changes_each_table_by_at_most_so_many_rows(engine, kind, way, place):
    def count(extra):
        return counted(replace(place(engine, without_empty_texts(engine, table_of(kind, extra))), counting=way))

    texts_or_numbers = kind not in ("floating-point numbers", "timestamps")
    unwritable = kind == "timestamps" or (engine in ELSEWHERE and not texts_or_numbers)
    cannot = engine in CANNOT or (unwritable and engine not in MAPPED)
    if way == "push-down" and cannot:
        with pytest.raises(
            DataError, match=r"cannot choose which rows|ids of a type that not every engine|not known to"
        ):
            count(0)
        return
    without = count(0)
    for extra in (1, MOST, 5):
        having = count(extra)
        assert max(distances(having, without)) <= MOST, extra
        assert having[()] - without[()] == min(extra, MOST)
        if texts_or_numbers:
            expected = by_hand(without_empty_texts(engine, table_of(kind, extra)))
            assert all(np.array_equal(having[names], expected[names]) for names in expected)


def without_empty_texts(engine, table):
    """In a file of texts an empty one is missing."""
    return table.filter(pc.not_equal(table["p"], "")) if engine in TEXTS and table["p"].type == pa.string() else table


# SQLite has no NaN.
@pytest.mark.parametrize("engine", [name for name in ALL if name not in (*TEXTS, "spark", "ibis on sqlite")])
def test_nan_is_no_id(engine, place):
    table = table_of("floating-point numbers", 1).set_column(0, "p", pa.array([math.nan] * 43))
    with pytest.raises(DataError, match=r"^column 'p' has rows without an id"):
        counted(place(engine, table))


@pytest.mark.parametrize(
    ("engine", "way"),
    [(engine, way) for engine in ALL if engine != "spark" for way in ("fetch", "push-down")]
    + [pytest.param("spark", "push-down", marks=pytest.mark.engines)],
)
def test_the_total_alone(engine, way, place):
    if way == "push-down" and engine in (*TEXTS, *CANNOT):
        return
    rows = table_of("whole numbers", 1)
    for domain, kept in ((DOMAIN, rows.filter(pc.less(rows["z"], 2))), (DOMAIN.project(["x"]), rows)):
        found = counted(replace(place(engine, rows), counting=way), [()], domain)
        assert int(found[()]) == sum(min(MOST, count) for count in Counter(kept["p"].to_pylist()).values())


# --- the rule ----------------------------------------------------------------------------------------------------

DIGESTS = {"SHA-256": "sha256({})", "one bit": "left(sha256({}), 1) < '8'", "a constant": "left({}, 0)"}


@pytest.mark.parametrize("digest", DIGESTS.values(), ids=DIGESTS)
def test_the_bound_holds_for_every_hash(digest):
    """Where all rows collide, their codes decide: 60 pairs of tables of few persons, codes and many equal rows."""
    choose = random.Random(digest)
    connection = duckdb.connect()

    def kept(rows, most):
        connection.execute("CREATE OR REPLACE TABLE rows (margrave_person INTEGER, a INTEGER, b INTEGER)")
        choose.shuffle(rows)
        connection.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
        dialect = Dialect(digest=digest, person="CAST({} AS VARCHAR)")
        return Counter(
            connection.sql(chosen_sql("rows", ["a", "b"], ["a", "b"], most, "'s'", dialect)).project("a, b").fetchall()
        )

    for trial in range(60):
        most = 1 + trial % 3
        rows = [(choose.randrange(5), choose.randrange(2), choose.randrange(2)) for _ in range(30)]
        more = [(7, choose.randrange(2), choose.randrange(2)) for _ in range(1 + trial % 5)]
        without, having = kept(list(rows), most), kept([*rows, *more], most)
        assert not without - having
        assert (having - without).total() == min(most, len(more))


def test_of_equal_rows_each_is_as_likely_to_be_kept_as_any_other():
    """Three rows of four have one code. It is kept of 900 of 1,200 persons, with a standard deviation of 15: beyond
    ± 99 is a false alarm in 10⁻¹⁰ of salts, and the salt is fixed; a rule that takes equal rows for one gives 600."""
    table = pa.table({"p": list(range(1200)) * 4, "x": [0] * 3600 + [1] * 1200})
    found = counted(table, [("x",)], Domain([Attribute("x", size=2)]), 1)[("x",)]
    assert found.sum() == 1200
    assert abs(found[0] - 900) < 99


def test_every_run_has_a_salt_of_its_own_that_is_not_shown(monkeypatch):
    monkeypatch.undo()
    salts = {draw_salt() for _ in range(100)}
    assert len(salts) == 100
    assert {len(salt) for salt in salts} == {32}
    assert repr(Choice("p", 3, SALT)) == "Choice(privacy_id='p', most=3)"
    # Of 300 persons with two rows one is kept: two runs agree with probability 2⁻³⁰⁰ by their rows, 3 % by counts.
    table = pa.table({"p": list(range(300)) * 2, "x": list(range(600))})
    domain = Domain([Attribute("x", size=600)])
    assert len({counted(table, [("x",)], domain, 1)[("x",)].tobytes() for _ in range(3)}) == 3


# --- types of ids ------------------------------------------------------------------------------------------------

REFUSED = r"^column 'p' has {}, so that one person could pass for two, or two for one; ids may be whole numbers, texts"
CODE = Domain([Attribute("x", size=2)])


def code_counts(data, most=1):
    return counted(data, [("x",)], CODE, most)[("x",)].tolist()


@pytest.mark.parametrize(
    "kind",
    [
        pa.duration("ns"),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.list_(pa.int8()),
        pa.struct({"a": pa.int8()}),
        pa.dictionary(pa.int8(), pa.duration("ns")),
        pa.bool8(),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", ["fetch", "push-down"])
def test_types_that_do_not_tell_persons_apart_are_refused(kind, way):
    values = {pa.list_(pa.int8()): [1], pa.struct({"a": pa.int8()}): {"a": 1}, pa.month_day_nano_interval(): (1, 2, 3)}
    ids = pa.array([values.get(kind, 1)], kind.storage_type if isinstance(kind, pa.BaseExtensionType) else None)
    if kind == pa.bool8():
        ids = pa.ExtensionArray.from_storage(kind, pa.array([1], pa.int8()))
    elif kind not in values:
        ids = ids.cast(getattr(kind, "value_type", kind))
        ids = ids.dictionary_encode() if pa.types.is_dictionary(kind) else ids
    with pytest.raises(DataError, match=REFUSED.format("ids of type .*") + r"|^column 'p' has ids of a type that not"):
        code_counts(Data(pa.table({"x": [0], "p": ids}), counting=way))


NANO = 1_700_000_000_000_000_000
EQUAL = {
    # Four rows of x = 0, 0, 1, 1; the ids of the first two are equal, all others are not.
    "−0.0": pa.array([-0.0, 0.0, 1.0, -1.0]),
    "half precision": pa.array([-0.0, 0.0, 1.0, -1.0], pa.float16()),
    "nanoseconds": pa.array([NANO, NANO, NANO + 1, NANO + 2], pa.timestamp("ns")),
    "nanoseconds of a zone": pa.array([NANO, NANO, NANO + 1, NANO + 2], pa.timestamp("ns", "Europe/Berlin")),
    "times": pa.array([1, 1, 2, 86_399_999_999_999], pa.time64("ns")),
    "dates": pa.array([1, 1, 2, 3], pa.date32()),
    "dates in milliseconds": pa.array([0, 86_399_999, 86_400_000, -1], pa.date64()),
    "decimals": pa.array([Decimal("1.0"), Decimal("1.00"), Decimal("1.01"), Decimal("-1")], pa.decimal128(38, 2)),
    "wide decimals": pa.array([Decimal(10**60), Decimal(10**60), Decimal(1), Decimal(2)], pa.decimal256(70, 0)),
    "large numbers": pa.array([2**64 - 1, 2**64 - 1, 2**64 - 2, 2**63], pa.uint64()),
    "booleans": pa.array([True, True, False, False]),
    "bytes": pa.array([b"a", b"a", b"a\0", b"A"]),
    "bytes of one length": pa.array([b"ab", b"ab", b"a\0", b"aB"], pa.binary(2)),
    "UUIDs": pa.array([bytes(16), bytes(16), bytes(15) + b"1", b"1" + bytes(15)], pa.uuid()),
    "runs": pc.run_end_encode(pa.array(["a", "a", "A", "a "])),
    "categories": pa.array(["a", "a", "A", "a "]).dictionary_encode(),
    "views": pa.array(["a", "a", "A", "a "], pa.string_view()),
}


@pytest.mark.parametrize("ids", EQUAL.values(), ids=EQUAL)
def test_ids_that_are_equal_are_one_person_and_others_are_not(ids):
    assert code_counts(pa.table({"x": [0, 0, 1, 1], "p": ids})) == ([1, 1] if pa.types.is_boolean(ids.type) else [1, 2])


@pytest.mark.parametrize(
    "ids",
    [
        pc.run_end_encode(pa.array([1, None])),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
        pa.nulls(2),
        pa.array([1.0, math.nan]),
    ],
    ids=["a run of nulls", "a category that is null", "no type", "NaN"],
)
def test_missing_ids_are_found_however_they_are_stored(ids):
    with pytest.raises(DataError, match=r"^column 'p' has rows without an id"):
        code_counts(pa.table({"x": [0, 1], "p": ids}))


@pytest.mark.parametrize("kind", ["TIMETZ", "INTERVAL", "BIT", "BIGNUM", "INTEGER[]"])
@pytest.mark.parametrize("way", ["fetch", "push-down"])
def test_types_of_duckdb_that_do_not_tell_persons_apart_are_refused(kind, way):
    """Arrow data has no times of day with a zone: 10:00+02 and 10:00+01 would be one id."""
    value = {"TIMETZ": "'10:00+02'", "INTERVAL": "'1 month'", "BIT": "'1'", "BIGNUM": "1"}.get(kind, "[1]")
    relation = duckdb.connect().sql(f"SELECT 1 AS x, CAST({value} AS {kind}) AS p")
    with pytest.raises(DataError, match=REFUSED.format("ids of type .*")):
        code_counts(Data(relation, counting=way))


@pytest.mark.parametrize(
    "kind", ["HUGEINT", "UHUGEINT", "UUID", "BLOB", "DECIMAL(38, 3)", "TIMESTAMP_NS", "TIMESTAMPTZ", "TIME"]
)
def test_types_of_duckdb_that_tell_persons_apart(kind):
    values = {
        "HUGEINT": ["170141183460469231731687303715884105727", "-170141183460469231731687303715884105727", "0"],
        "UHUGEINT": ["340282366920938463463374607431768211455", "340282366920938463463374607431768211454", "0"],
        "UUID": [f"'00000000-0000-0000-0000-00000000000{k}'" for k in range(3)],
        "BLOB": ["'a'", "'A'", "'a '"],
        "DECIMAL(38, 3)": ["1.000", "1.001", "-1"],
        "TIMESTAMP_NS": [f"'2024-01-01 00:00:00.00000000{k}'" for k in range(3)],
        "TIMESTAMPTZ": [f"'2024-10-27 0{k}:30:00+00'" for k in range(3)],
        "TIME": ["'00:00:00'", "'24:00:00'", "'00:00:00.000001'"],
    }[kind]
    rows = ", ".join(f"(CAST({value} AS {kind}), {place % 2})" for value in values for place in range(4))
    relation = duckdb.connect().sql(f"SELECT p, x FROM (VALUES {rows}) AS given(p, x)")
    assert sum(code_counts(relation, 2)) == 6


@pytest.mark.parametrize("collation", ["NOCASE", "NOACCENT", "NFC", "NOCASE.NOACCENT"])
@pytest.mark.parametrize("way", ["fetch", "push-down"])
def test_texts_that_duckdb_takes_for_equal_are_refused_as_ids(collation, way):
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE people (p VARCHAR COLLATE {collation}, x INTEGER)")
    connection.execute("INSERT INTO people VALUES ('a', 1)")
    with pytest.raises(DataError, match=REFUSED.format("texts that the engine treats as equal although they differ")):
        code_counts(Data(connection.table("people"), counting=way))


def on_postgres(url, kind, values, before="", after=""):
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(f"DROP TABLE IF EXISTS persons; {after} {before}")
        connection.execute(f"CREATE TABLE persons (p {kind}, x int)")
        for value, x in values:
            connection.execute(f"INSERT INTO persons VALUES ({value}, {x})")
    return Data(url, table="persons")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timetz", "'10:00+02'"),
        ("interval", "'1 month'"),
        ("bpchar", "'a '"),
        ("char(3)", "'a'"),
        ("money", "1"),
        ("inet", "'::1'"),
    ],
)
@pytest.mark.parametrize("way", ["auto", "fetch", "push-down"])
def test_types_of_postgres_that_do_not_tell_persons_apart_are_refused(postgres, kind, value, way):
    with pytest.raises(DataError, match=REFUSED.format("(ids of type|texts that the engine treats as equal).*")):
        code_counts(replace(on_postgres(postgres, kind, [(value, 1)]), counting=way))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("numeric", ["1.0", "1.00", "1.01"]),
        ("numeric(40, 20)", ["1.0", "1.00", "1.01"]),
        ("real", ["'-0.0'", "0", "1"]),
        (
            "uuid",
            ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "'{a0eebc999c0b4ef8bb6d6bb9bd380a11}'", "gen_random_uuid()"],
        ),
        ("timestamptz", ["'2024-10-27 00:30+00'", "'2024-10-27 02:30+02'", "'2024-10-27 01:30+00'"]),
        ("mood", ["'sad'", "'sad'", "'happy'"]),
        ("named", ["'a'", "'a'", "'A'"]),
        ("bytea", ["'a'", "'a'", "'A'"]),
        ("date", ["'2024-01-01'", "'2024-01-01'", "'2024-01-02'"]),
        ("smallint", ["1", "1", "-1"]),
    ],
)
@pytest.mark.parametrize("way", ["auto", "fetch"])
def test_types_of_postgres_that_tell_persons_apart(postgres, kind, values, way):
    """The first two ids are equal, the third is another."""
    before = "CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN named AS text;"
    after = "DROP TYPE IF EXISTS mood CASCADE; DROP DOMAIN IF EXISTS named CASCADE;"
    data = on_postgres(postgres, kind, zip(values, [0, 0, 1], strict=True), before, after)
    assert code_counts(replace(data, counting=way)) == [1, 1]


@pytest.mark.parametrize("kind", ["Cursor", "ClientCursor"])
def test_the_salt_is_in_no_query_of_postgres(postgres, monkeypatch, kind):
    """A query that is written to a log of the server, as many are when they fail, does not tell the salt.

    Not even if the caller's connection has cursors that write parameters into the query: noted is what libpq is told
    to send.
    """
    ibis = pytest.importorskip("ibis", reason="Ibis needs margrave[ibis]")
    import psycopg

    if psycopg.pq.__impl__ != "python":
        pytest.skip("the compiled part of psycopg cannot be observed")
    asked = []

    def note(name, place):
        plain = getattr(psycopg.pq.PGconn, name)

        def noted(self, *given, **options):
            asked.append(given[place])
            return plain(self, *given, **options)

        monkeypatch.setattr(psycopg.pq.PGconn, name, noted)

    for name, place in (("send_query", 0), ("send_query_params", 0), ("send_prepare", 1)):
        note(name, place)
    url = in_postgres(table_of("whole numbers", 1), postgres)
    with psycopg.connect(url, autocommit=True, cursor_factory=getattr(psycopg, kind)) as connection:
        counted(Data(ibis.postgres.from_connection(connection).table("people"), counting="push-down"))
    assert any(b"sha256" in query for query in asked)
    assert not any(SALT.hex().encode() in query for query in asked)


@pytest.mark.parametrize("way", ["fetch", "push-down"])
def test_a_query_cannot_change_the_salt_from_row_to_row(postgres, way):
    """Rows of one person would change which rows of others are kept."""
    changed = "set_config('margrave.salt', md5(concat(current_setting('margrave.salt', true), p)), true)"
    query = f"SELECT *, '100% of %s' AS share FROM people WHERE {changed} IS NOT NULL"
    found = [
        counted(Data(in_postgres(table_of("whole numbers", extra), postgres), query=query, counting=way))
        for extra in (0, 3)
    ]
    assert max(distances(*found)) <= MOST
