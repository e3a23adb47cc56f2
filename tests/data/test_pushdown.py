"""What an engine counts is what the encoder would: no row decides over others, and what is doubtful is fetched."""

import sqlite3
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from margrave.algebra.layout import Layout
from margrave.data.counting.engine_codes import Key
from margrave.data.source import Data, open_source
from margrave.domain import Attribute, Domain
from margrave.errors import DataError

WAYS = ["fetch", "push-down"]
SEX = Domain([Attribute("s", labels=("F", "M"), other="rest")])
CODE = Domain([Attribute("x", size=2)])
QUOTED = ("it's", 'a "b"', "back\\slash", "100 %", "%s", "$1", "Ünï", "line\nbreak", "")
NOT_BYTEWISE = "^the engine is not known to compare the texts of column '{}' byte for byte, as margrave does; count by"


def counted(data, domain, most=1, tables=None, **options):
    """The table over all attributes, or those that were asked for, by name."""
    tables = [domain.attributes] if tables is None else tables
    layout = Layout.of(domain.shape, [domain.positions(names) for names in tables])
    counts = open_source(data, domain, contributions=most, **options).count(layout)
    found = {domain.names(members): table.tolist() for members, table in layout.views(counts)}
    return found[tables[0]] if len(tables) == 1 else found


# --- texts that an engine treats as equal ------------------------------------------------------------------------


def no_case(values, setting=""):
    """A relation of DuckDB whose texts are equal whatever their case."""
    connection = duckdb.connect()
    collation = "" if setting else "COLLATE NOCASE"
    connection.execute(f"CREATE TABLE people (s VARCHAR {collation}, p VARCHAR {collation}, x INTEGER)")
    connection.executemany("INSERT INTO people VALUES (?, ?, ?)", [(value, value, 1) for value in values])
    if setting:
        connection.execute(setting)
    return connection.table("people")


@pytest.mark.parametrize("counting", WAYS)
@pytest.mark.parametrize("setting", ["", "SET default_collation = 'NOCASE'"])
def test_one_row_of_duckdb_does_not_decide_over_those_that_it_takes_for_equal(counting, setting):
    for values in (["f", *"FFFFF"], [*"FFFFF", "f"]):
        assert counted(Data(no_case(values, setting), counting=counting), SEX) == [5, 0, 1]
        with pytest.raises(
            DataError, match=r"^column 'p' has texts that the engine treats as equal although they differ"
        ):
            counted(Data(no_case(values, setting), counting=counting), CODE, privacy_id="p")


@pytest.mark.parametrize("counting", WAYS)
def test_one_row_of_ibis_on_duckdb_does_not_decide_either(counting):
    ibis = pytest.importorskip("ibis", reason="Ibis needs margrave[ibis]")
    back_end = ibis.duckdb.connect()
    back_end.con.execute("CREATE TABLE people (s VARCHAR COLLATE NOCASE)")
    back_end.con.execute("INSERT INTO people VALUES ('f'), ('F'), ('F')")
    assert counted(Data(back_end.table("people"), counting=counting), SEX) == [2, 0, 1]


def test_texts_of_a_back_end_whose_ways_are_not_known_are_fetched(tmp_path):
    ibis = pytest.importorskip("ibis", reason="Ibis needs margrave[ibis]")
    with sqlite3.connect(tmp_path / "people.sqlite") as connection:
        connection.execute("CREATE TABLE people (s TEXT COLLATE NOCASE, p TEXT, x INTEGER)")
        connection.executemany("INSERT INTO people VALUES (?, ?, 1)", [("f", "a"), ("F", "A"), ("F", "A")])
    table = ibis.sqlite.connect(tmp_path / "people.sqlite").table("people")
    assert counted(Data(table), SEX) == [2, 0, 1]
    assert counted(Data(table, counting="push-down"), CODE) == [0, 3]
    with pytest.raises(DataError, match=NOT_BYTEWISE.format("s")):
        counted(Data(table, counting="push-down"), SEX)
    assert counted(Data(table), CODE, privacy_id="p") == [0, 2]
    with pytest.raises(DataError, match=r"^the engine cannot choose which rows of a person are kept, by privacy_id; "):
        counted(Data(table, counting="push-down"), CODE, privacy_id="p")


# A type of texts that are equal whatever their case, like that of the extension citext, which is not everywhere.
FOLDED_TYPE = """
    CREATE TYPE folded;
    CREATE FUNCTION folded_in(cstring) RETURNS folded AS 'textin' LANGUAGE internal IMMUTABLE STRICT;
    CREATE FUNCTION folded_out(folded) RETURNS cstring AS 'textout' LANGUAGE internal IMMUTABLE STRICT;
    CREATE TYPE folded (INPUT = folded_in, OUTPUT = folded_out, CATEGORY = 'S', COLLATABLE = true);
    CREATE CAST (folded AS text) WITHOUT FUNCTION AS IMPLICIT;
    CREATE FUNCTION folded_equal(folded, folded) RETURNS bool AS
        $$ SELECT lower($1::text) = lower($2::text) $$ LANGUAGE sql IMMUTABLE STRICT;
    CREATE FUNCTION folded_hash(folded) RETURNS int AS
        $$ SELECT hashtext(lower($1::text)) $$ LANGUAGE sql IMMUTABLE STRICT;
    CREATE OPERATOR = (LEFTARG = folded, RIGHTARG = folded, FUNCTION = folded_equal, HASHES);
    CREATE OPERATOR CLASS folded_class DEFAULT FOR TYPE folded USING hash AS
        OPERATOR 1 =, FUNCTION 1 folded_hash(folded);
"""


@pytest.fixture(scope="module")
def texts(postgres):
    """A database with types and collations by which texts that differ may be equal."""
    import psycopg

    with psycopg.connect(postgres) as connection:
        connection.execute("DROP TABLE IF EXISTS texts; DROP TYPE IF EXISTS folded CASCADE")
        connection.execute(FOLDED_TYPE)
        connection.execute("DROP COLLATION IF EXISTS loose; CREATE COLLATION loose (provider = libc, locale = 'C')")
        # Collations that fold come with libraries that are not everywhere: one that says that it does must do.
        connection.execute("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'loose'")
    yield lambda kind, values: _texts(postgres, kind, values)
    with psycopg.connect(postgres) as connection:
        connection.execute("DROP TABLE IF EXISTS texts; DROP COLLATION loose; DROP TYPE folded CASCADE")


def _texts(url, kind, values):
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS texts")
        connection.execute(f"CREATE TABLE texts (s {kind}, x int DEFAULT 1)")
        for value in values:
            connection.execute(f"INSERT INTO texts VALUES ('{value}')")
    return url


@pytest.mark.parametrize("kind", ["bpchar", "folded", "text COLLATE loose", "varchar(9) COLLATE loose", "name"])
def test_texts_that_postgres_may_take_for_equal_are_fetched(texts, kind):
    odd = "F " if kind == "bpchar" else "f"
    for values in ([odd, *"FFFFF"], [*"FFFFF", odd]):
        url = texts(kind, values)
        assert counted(Data(url, table="texts"), SEX) == [5, 0, 1]
        for data in (
            Data(url, table="texts", counting="push-down"),
            Data(url, query="SELECT s FROM texts", counting="push-down"),
        ):
            with pytest.raises(DataError, match=r"^(the engine is not known to compare|column 's' is of a type that)"):
                counted(data, SEX)
        for counting in WAYS:
            with pytest.raises(DataError, match=r"^column 's' has (texts that the engine treats as equal|ids of type)"):
                counted(Data(url, table="texts", counting=counting), CODE, privacy_id="s")


@pytest.mark.parametrize("kind", ["text", "varchar(9)", 'text COLLATE "C"'])
def test_texts_that_postgres_compares_byte_for_byte_are_counted_there(texts, kind, monkeypatch):
    monkeypatch.setattr("psycopg.pq.__impl__", "python")
    url = texts(kind, ["f", *"FFFFF"])
    for data in (Data(url, table="texts"), Data(url, query="SELECT s FROM texts")):
        assert counted(replace(data, counting="push-down"), SEX) == [5, 0, 1]
        monkeypatch.setattr("margrave.data.counting.fetch.fetch_counts", None)
        assert counted(data, SEX) == [5, 0, 1]


def test_rows_are_fetched_where_psycopg_is_compiled(texts, monkeypatch):
    url, told = texts("text", ["f", *"FFFFF"]), []
    for implementation in ("python", "binary", "c"):
        monkeypatch.setattr("psycopg.pq.__impl__", implementation)
        assert counted(Data(url, table="texts", notify=told.append), SEX) == [5, 0, 1]
    assert [text.startswith("the engine counts: for 1 tables of 1 columns") for text in told] == [True, False, False]
    assert all(text.startswith("rows are fetched: for 1 tables of 1 columns") for text in told[1:])


# --- codes -------------------------------------------------------------------------------------------------------


def test_codes_that_an_attribute_does_not_have_are_refused():
    import narwhals as nw

    key = Key(Attribute("x", size=3, other="rest", missing="none"), nw.Int64, "x")
    assert key.codes(pa.array([0, 2, -2, -3])).tolist() == [0, 2, 3, 4]
    for wrong in (3, 4, -1, -4, None):
        with pytest.raises(DataError, match=r"^the engine gave codes for column 'x' that its attribute does not have"):
            key.codes(pa.array([0, wrong]))


def test_names_of_columns_that_margrave_uses_itself():
    names = ["margrave_word", "margrave_person", "margrave_count", "margrave_code_0", "margrave_rank", "a", "A"]
    domain = Domain([Attribute(name, size=2) for name in names])
    table = pa.table({**{name: [place % 2] * 9 for place, name in enumerate(names)}, "p": [k // 3 for k in range(9)]})
    expected = {(): 3, **{(name,): [3, 0] if place % 2 == 0 else [0, 3] for place, name in enumerate(names)}}
    for counting in WAYS:
        data = Data(table, counting=counting)
        assert counted(data, domain, tables=[(name,) for name in names], privacy_id="p") == expected


def test_codes_that_are_written_for_postgres_are_those_of_fetched_rows(postgres, monkeypatch):
    psycopg = pytest.importorskip("psycopg", reason="PostgreSQL needs margrave[postgres]")
    monkeypatch.setattr(Key, "expression", None)  # so that it is Ibis that writes nothing
    domain = Domain(
        [
            Attribute("s", labels=QUOTED, other="rest", missing="none"),
            Attribute("small", labels=(-1, 0, 2.5, 7, 40_000, 10**30), other="rest", missing="none"),
            Attribute("cut", cuts=(-40_000, -3.5, 0, 2, 40_000), missing="none"),
            Attribute("range", size=3, outside="drop", missing="none"),
        ]
    )
    values = {
        "s": [*QUOTED, "label", None],
        "small": [-1, 0, 2, 3, 7, 8, 32_767, -32_768, None],
        "cut": [-32_768, -4, -3, 0, 1, 2, 3, 32_767, None],
        "range": [-1, 0, 1, 2, 3, 2**62, None],
    }
    draw = np.random.default_rng(0)
    chosen = {name: draw.integers(len(some), size=300) for name, some in values.items()}
    table = pa.table({name: pa.array([values[name][k] for k in places]) for name, places in chosen.items()})
    table = table.append_column("p", pa.array(draw.integers(150, size=300)))
    with psycopg.connect(postgres) as connection:
        connection.execute("DROP TABLE IF EXISTS written")
        connection.execute("CREATE TABLE written (s text, small smallint, cut smallint, range bigint, p int)")
        with connection.cursor() as cursor, cursor.copy("COPY written FROM STDIN") as copy:
            for row in table.to_pylist():
                copy.write_row(tuple(row.values()))
    pairs = [("s", "small"), ("small", "cut"), ("cut", "range")]
    for source in (
        Data(postgres, table="written"),
        Data(postgres, query="SELECT * FROM written WHERE s LIKE '%' OR true"),
    ):
        for most, privacy_id in ((1, None), (300, "p")):
            ways = [replace(source, counting="push-down"), Data(table)]
            found = [counted(way, domain, most, tables=pairs, privacy_id=privacy_id) for way in ways]
            assert found[0] == found[1]
    # At most one row of a person: which one depends on the salt, how many rows does not.
    one = counted(replace(source, counting="push-down"), domain, tables=pairs, privacy_id="p")
    persons = {row["p"] for row in table.to_pylist() if row["range"] is None or 0 <= row["range"] < 3}
    assert one[()] == len(persons)


# --- attributes of many labels: a table of them is joined -----------------------------------------------------------

MANY = (*QUOTED, *(f"label {k}" for k in range(1200)))


def many_rows():
    values = [*QUOTED, "label 7", "label 7", "label 1199", "LABEL 7", "label 7 ", "it''s", None]
    return pa.table({"s": pa.array(values * 2), "x": [0, 1] * len(values), "p": range(2 * len(values))})


@pytest.mark.parametrize("where", ["duckdb", "postgres", "postgres query", "ibis on postgres"])
@pytest.mark.parametrize("privacy_id", [None, "p"])
def test_labels_by_the_thousand_are_counted_by_the_engine(where, privacy_id, request):
    table, domain = (
        many_rows(),
        Domain([Attribute("s", labels=MANY, other="rest", missing="none"), Attribute("x", size=2)]),
    )
    if where == "duckdb":
        connection = duckdb.connect()
        connection.register("people", table)
        source = Data(connection.sql("SELECT * FROM people"))
    else:
        psycopg = pytest.importorskip("psycopg", reason="PostgreSQL needs margrave[postgres]")
        url = request.getfixturevalue("postgres")
        connection = psycopg.connect(url, autocommit=True)
        request.addfinalizer(connection.close)
        connection.execute('DROP TABLE IF EXISTS many; CREATE TABLE many (s text COLLATE "C", x int, p int)')
        with connection.cursor() as cursor, cursor.copy("COPY many FROM STDIN") as copy:
            for row in table.to_pylist():
                copy.write_row(tuple(row.values()))
        source = Data(url, table="many")
        if where == "postgres query":
            source = Data(url, query="SELECT s, x, p FROM many WHERE s LIKE '%' OR s IS NULL")
        if where == "ibis on postgres":
            ibis = pytest.importorskip("ibis", reason="Ibis needs margrave[ibis]")
            source = Data(ibis.postgres.from_connection(connection).table("many"))
    found = {
        counting: counted(replace(source, counting=counting), domain, tables=[("s", "x")], privacy_id=privacy_id)
        for counting in WAYS
    }
    assert found["push-down"] == found["fetch"]
    plain = counted(Data(table), domain, tables=[("s", "x")], privacy_id=privacy_id)
    assert found["push-down"] == plain
    assert np.sum(plain) == table.num_rows


def test_more_labels_than_a_query_should_hold_are_fetched(monkeypatch):
    monkeypatch.setattr("margrave.data.counting.engine_codes._MOST_JOINED", 1000)
    connection = duckdb.connect()
    connection.register("people", many_rows())
    data = Data(connection.sql("SELECT * FROM people"), counting="push-down")
    with pytest.raises(
        DataError, match=r"^attribute 's' has more than 1,000 values to compare each row with; count by"
    ):
        counted(data, Domain([Attribute("s", labels=MANY, other="rest", missing="none")]))


# --- what is an error is one, by either way ----------------------------------------------------------------------

DROPPING = Domain([Attribute("a", size=2), Attribute("b", size=2, outside="drop")])
UNDECLARED = "^column '{}' has values that its attribute does not declare"
MISSING = "^column '{}' has missing values and its attribute no category for them"


@pytest.mark.parametrize("counting", WAYS)
@pytest.mark.parametrize("privacy_id", [None, "p"])
def test_rows_that_are_dropped_are_looked_at_all_the_same(counting, privacy_id):
    for a, b, text in [
        ([0, 7], [0, 9], UNDECLARED.format("a")),
        ([0, None], [0, 9], MISSING.format("a")),
        ([0, 0], [9, None], MISSING.format("b")),
    ]:
        table = pa.table({"a": pa.array(a, pa.int64()), "b": pa.array(b, pa.int64()), "p": [1, 2]})
        with pytest.raises(DataError, match=text):
            counted(Data(table, counting=counting), DROPPING, privacy_id=privacy_id)
    table = pa.table({"a": [0, 1], "b": [0, 9], "p": [1, None]})
    with pytest.raises(DataError, match=r"^column 'p' has rows without an id"):
        counted(Data(table, counting=counting), DROPPING, privacy_id="p")


@pytest.mark.parametrize("counting", WAYS)
def test_rows_of_a_person_that_are_not_kept_are_looked_at_all_the_same(counting):
    """Of twenty rows one is kept: a look at that one alone would miss the bad row nineteen times in twenty."""
    table = pa.table({"x": [7] + [0] * 19, "p": [1] * 20})
    for _ in range(3):
        with pytest.raises(DataError, match=UNDECLARED.format("x")):
            counted(Data(table, counting=counting), CODE, privacy_id="p")


@pytest.mark.parametrize("counting", WAYS)
def test_a_column_of_another_kind_is_none_where_all_is_missing(counting):
    domain = Domain([Attribute("x", size=2, missing="none")])
    for column in (pa.nulls(2, pa.string()), pa.nulls(2, pa.bool_()), pa.array([float("nan"), None])):
        assert counted(Data(pa.table({"x": column}), counting=counting), domain) == [0, 0, 2]
    for column in (pa.array([None, "0"]), pa.array([None, True])):
        with pytest.raises(DataError, match=r"^column 'x' holds (texts|booleans) and its attribute declares"):
            counted(Data(pa.table({"x": column}), counting=counting), domain)


# --- ids ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array(["7", "8"]), pa.array([7.0, 8.0])),
        (pa.array([7, 8]), pa.array(["7", "8"])),
        (pa.array([7, 8]), pa.array([7.0, 8.0])),
        (pa.array(["a", "b"]), pa.array([b"a", b"b"])),
    ],
)
def test_ids_that_change_their_type_from_file_to_file_are_refused(tmp_path, first, second):
    pq.write_table(pa.table({"x": [0, 0], "p": first}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": [1, 1], "p": second}), tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"^column 'p' has ids of one type in some files and of another in others, so"):
        counted(Data(tmp_path / "*.parquet"), CODE, privacy_id="p")


def test_ids_that_are_texts_however_they_are_stored(tmp_path):
    kinds = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    for place, kind in enumerate(kinds):
        pq.write_table(pa.table({"x": [1], "p": pa.array(["a"]).cast(kind)}), tmp_path / f"{place}.parquet")
    assert counted(Data(tmp_path / "*.parquet"), CODE, privacy_id="p") == [0, 1]


def test_ids_in_files_of_texts_are_compared_byte_for_byte(tmp_path):
    (tmp_path / "people.csv").write_text("x,p\n1,7\n1,7.0\n1,07\n1, 7\n1,7\n")
    assert counted(Data(tmp_path / "people.csv"), CODE, privacy_id="p") == [0, 4]


def test_files_whose_types_differ_are_fetched(tmp_path):
    pq.write_table(pa.table({"x": [0, 0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": [0.6, 1.4]}), tmp_path / "2.parquet")
    domain = Domain([Attribute("x", cuts=(0, 0.5))])
    assert counted(Data(tmp_path / "*.parquet"), domain) == [2, 0, 2]
    with pytest.raises(DataError, match=r"^the files have columns of different names or types, which the engine would"):
        counted(Data(tmp_path / "*.parquet", counting="push-down"), domain)
