"""Queries read, and do nothing else: hostile ones on every engine leave no trace, and honest ones count as before."""

import hashlib
from contextlib import suppress

import nasty
import pyarrow as pa
import pytest

from margrave.algebra.layout import Layout
from margrave.data.read_only import connect, connect_reading
from margrave.data.source import Data, open_source
from margrave.domain import Attribute, Domain
from margrave.errors import DataError

DOMAIN = Domain([Attribute("code", size=4), Attribute("flag", labels=(True, False))])
WAYS = pytest.mark.parametrize("counting", ["fetch", "push-down"])


def people(count=20):
    template = {name: values[0] for name, values in nasty.VALUES.items()}
    return [{"person": k, **template, "code": k % 4, "flag": k % 2 == 0} for k in range(count)]


def counted(data, **options):
    """The tables of code and of flag; a query that changes settings between the two has its chance."""
    layout = Layout.of(DOMAIN.shape, [(0,), (1,)])
    return open_source(data, DOMAIN, contributions=1, **options).count(layout)[-6:].tolist()


def both_ways(hostile, parsed):
    """Hostile queries with each way of counting; those that the parser refuses do not get as far as that."""
    return [
        pytest.param(query, text, counting, id=f"{name}-{counting}")
        for name, (query, text) in hostile.items()
        for counting in (["fetch"] if text in parsed else ["fetch", "push-down"])
    ]


# --- DuckDB -----------------------------------------------------------------------------------------------------


@pytest.fixture
def duck(tmp_path, monkeypatch):
    """A DuckDB file with people, a sequence and a view of another file, in a folder of its own."""
    import duckdb

    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "other.csv").write_text("code,flag\n1,true\n")
    path = nasty.write_duckdb(people(), folder / "people.duckdb")
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SEQUENCE numbers")
        connection.execute(f"CREATE VIEW elsewhere AS SELECT * FROM read_csv('{folder / 'other.csv'}')")
    return path


def traces(folder):
    """Every file of a folder with the hash of its content."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


NOT_A_SELECT = (
    r"^the query (has \d statements|is a [A-Z_]+ statement); a query is one SELECT, with or without WITH; it can"
)
NO_FILE = (
    r"^the DuckDB file may not open other files \(PermissionException\): a query or a view reads the tables of its"
)
REFUSED = r"^the DuckDB file could not be (read and counted|queried) \([A-Za-z]+\)"
HOSTILE_DUCKDB = {
    "two statements": ("SELECT * FROM people; SELECT * FROM people", NOT_A_SELECT),
    "copy, then select": ("COPY people TO 'stolen.csv'; SELECT * FROM people", NOT_A_SELECT),
    "select, then copy": ("SELECT * FROM people; COPY people TO 'stolen.csv'", NOT_A_SELECT),
    "copy after a comment": ("SELECT * FROM people /* ; */ ; /* */ COPY people TO 'stolen.csv' -- ';", NOT_A_SELECT),
    "copy after a text": ("SELECT code, flag, 'a'';' FROM people; COPY people TO 'stolen.csv'", NOT_A_SELECT),
    "copy": ("COPY people TO 'stolen.csv'", NOT_A_SELECT),
    "copy of a select": ("COPY (SELECT * FROM people) TO 'stolen.parquet'", NOT_A_SELECT),
    "export": ("EXPORT DATABASE 'stolen'", NOT_A_SELECT),
    "attach": ("ATTACH 'new.duckdb'; SELECT * FROM people", NOT_A_SELECT),
    "install": ("INSTALL httpfs", NOT_A_SELECT),
    "load": ("LOAD httpfs", NOT_A_SELECT),
    "pragma": ("PRAGMA enable_profiling", NOT_A_SELECT),
    "set": ("SET enable_external_access = true", NOT_A_SELECT),
    "unlock": ("SET lock_configuration = false; SELECT * FROM people", NOT_A_SELECT),
    "call": ("CALL enable_logging()", NOT_A_SELECT),
    "create": ("CREATE TEMP TABLE stolen AS SELECT * FROM people", NOT_A_SELECT),
    "drop": ("DROP TABLE people", NOT_A_SELECT),
    "transaction": ("COMMIT", NOT_A_SELECT),
    "explain": ("EXPLAIN ANALYZE SELECT * FROM people", NOT_A_SELECT),
    "nothing": ("-- nothing", NOT_A_SELECT),
    "select into": ("SELECT code, flag INTO stolen FROM people", REFUSED),
    "delete in with": ("WITH gone AS (DELETE FROM people RETURNING *) SELECT * FROM gone", REFUSED),
    "insert in with": ("WITH new AS (INSERT INTO people SELECT * FROM people RETURNING *) SELECT * FROM new", REFUSED),
    "sequence": ("SELECT code, flag FROM people WHERE nextval('numbers') > 0", REFUSED),
    "log to a file": ("SELECT code, flag FROM people, enable_logging(storage = 'file', storage_path = 'log')", REFUSED),
    "profile to a file": ("SELECT code, flag FROM people, enable_profiling()", REFUSED),
    "copy in a function": ("SELECT * FROM query('COPY people TO ''stolen.csv''')", REFUSED),
    "another file": ("SELECT * FROM 'other.csv'", NO_FILE),
    "another file by a function": ("SELECT * FROM read_csv('other.csv')", NO_FILE),
    "a file of the system": ("SELECT code, flag FROM people, read_text('/etc/hostname')", NO_FILE),
    "a pattern": ("SELECT code, flag FROM people, glob('*')", NO_FILE),
    "a function in a function": ("SELECT * FROM query('FROM read_csv(''other.csv'')')", NO_FILE),
    "the network": ("SELECT * FROM read_parquet('http://127.0.0.1:1/x.parquet')", NO_FILE),
    "a view of another file": ("SELECT * FROM elsewhere", NO_FILE),
}


@pytest.mark.parametrize(("query", "text", "counting"), both_ways(HOSTILE_DUCKDB, [NOT_A_SELECT]))
def test_a_hostile_query_to_duckdb_is_refused_and_leaves_nothing(duck, tmp_path, query, text, counting):
    before = traces(tmp_path)
    with pytest.raises(DataError, match=text):
        counted(Data(duck, query=query, counting=counting))
    assert traces(tmp_path) == before


def test_a_pivot_needs_its_values(duck):
    with pytest.raises(
        DataError, match=r"^the query has a PIVOT without a list of values, .*; list them, as in PIVOT …"
    ):
        counted(Data(duck, query="PIVOT people ON code"))


@WAYS
@pytest.mark.parametrize(
    "query",
    [
        "SELECT code, flag FROM people",
        "WITH them AS (SELECT * FROM people) SELECT code, flag FROM them;",
        "FROM people -- a comment; with a semicolon",
        "/* one; */ SELECT code, flag, ';' AS mark, '--' AS dashes FROM people ; ",
        "SELECT code, flag FROM people ORDER BY random()",
        "SELECT * FROM query('SELECT code, flag FROM people')",
    ],
)
def test_an_honest_query_to_duckdb_counts(duck, query, counting):
    assert counted(Data(duck, query=query, counting=counting)) == [5, 5, 5, 5, 10, 10]


def test_a_table_that_is_a_view_of_another_file_is_refused_in_words(duck):
    with pytest.raises(DataError, match=NO_FILE):
        counted(Data(duck, table="elsewhere"))


def test_a_connection_of_the_caller_s_own_is_not_touched(duck):
    """It reads what it can read, before and after."""
    import duckdb

    with duckdb.connect(str(duck)) as connection:
        settings = "SELECT name, value FROM duckdb_settings() ORDER BY name"
        before = connection.execute(settings).fetchall()
        assert counted(connection.sql("SELECT * FROM elsewhere")) == [0, 1, 0, 0, 1, 0]
        relation = connection.sql("SELECT p.code, p.flag FROM people AS p, 'other.csv'")
        assert counted(Data(relation, counting="push-down")) == [5, 5, 5, 5, 10, 10]
        assert connection.execute(settings).fetchall() == before
        connection.execute("SET threads = 1; CREATE TABLE another AS SELECT 1 AS x")


def test_margrave_s_own_duckdb_opens_the_files_it_is_given_and_no_others(tmp_path):
    import duckdb

    for name in ("one.csv", "two.csv", "it's [1].csv"):
        (tmp_path / name).write_text("x\n1\n")
    given = [str(tmp_path / "one.csv"), str(tmp_path / "it's [1].csv")]
    with connect(files=given) as connection:
        for name in ("one.csv", "it''s [[]1].csv"):
            assert connection.sql(f"SELECT * FROM read_csv('{tmp_path}/{name}')").fetchall() == [(1,)]
        for query in (
            f"SELECT * FROM read_csv('{tmp_path}/two.csv')",
            f"SELECT * FROM read_csv('{tmp_path}/*.csv')",
            f"COPY (SELECT 1) TO '{tmp_path}/three.csv'",
            f"ATTACH '{tmp_path}/new.duckdb'",
        ):
            with pytest.raises(duckdb.PermissionException):
                connection.execute(query)
        for setting in ("lock_configuration = false", "enable_external_access = true", "threads = 1"):
            with pytest.raises(duckdb.InvalidInputException, match="locked"):
                connection.execute(f"SET {setting}")
    assert len(list(tmp_path.iterdir())) == 3


def test_what_does_not_fit_in_memory_still_goes_to_the_folder_of_margrave_s_own(monkeypatch):
    """DuckDB puts the folder for what it spills among those that it may open."""
    import duckdb

    open_database = duckdb.connect

    def small(path, **options):
        return open_database(path, **{**options, "config": {**options["config"], "memory_limit": "40MB", "threads": 1}})

    monkeypatch.setattr(duckdb, "connect", small)
    with connect() as connection:
        sums = connection.sql(
            "SELECT count(*), max(n) FROM (SELECT range % 1500000 AS g, count(*) AS n FROM range(3000000) GROUP BY g)"
        )
        assert sums.fetchall() == [(1_500_000, 2)]


# --- PostgreSQL -------------------------------------------------------------------------------------------------


@pytest.fixture
def server(postgres):
    """A PostgreSQL server with people, a sequence, functions with effects, and nothing else of ours."""
    import psycopg

    nasty.write_postgres(people(), postgres)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS victim CASCADE; CREATE TABLE victim AS SELECT 1 AS x")
        connection.execute("DROP SEQUENCE IF EXISTS numbers; CREATE SEQUENCE numbers")
        connection.execute(
            "CREATE OR REPLACE FUNCTION deletes() RETURNS int LANGUAGE sql AS 'DELETE FROM victim RETURNING x'"
        )
        connection.execute(
            "CREATE OR REPLACE FUNCTION commits() RETURNS int LANGUAGE plpgsql AS "
            "$$ BEGIN COMMIT; DELETE FROM victim; RETURN 1; END $$"
        )
        connection.execute(
            "CREATE OR REPLACE FUNCTION unlocks() RETURNS int LANGUAGE plpgsql AS $$ BEGIN "
            "PERFORM set_config('transaction_read_only', 'off', true); DELETE FROM victim; RETURN 1; END $$"
        )
        yield postgres
        connection.execute("DROP FUNCTION deletes, commits, unlocks; DROP SEQUENCE numbers; DROP TABLE victim")


def state(url):
    """All tables, settings, sequences, functions and large objects of a database, and the rows of our tables."""
    import psycopg

    questions = (
        "SELECT oid, relname, relnamespace::regnamespace::text FROM pg_class ORDER BY oid",
        "SELECT oid, proname FROM pg_proc ORDER BY oid",
        "SELECT oid FROM pg_largeobject_metadata ORDER BY oid",
        "SELECT * FROM pg_db_role_setting",
        "SELECT rolname FROM pg_roles ORDER BY 1",
        "SELECT slot_name FROM pg_replication_slots",
        "SELECT x FROM victim",
        "SELECT last_value, is_called FROM numbers",
        "SELECT count(*), sum(person) FROM people",
    )
    with psycopg.connect(url) as connection:
        return [connection.execute(question).fetchall() for question in questions]


PEOPLE = "SELECT code, flag FROM people"
NO_SELECT = r"^the query is not a SELECT, or it changes something \([A-Za-z]+\); a query is one SELECT, with or without"
NO_QUERY = (
    r"^the PostgreSQL database could not be queried \(SyntaxError\): the query is not one SELECT in its SQL, or names"
)
READ_ONLY = (
    r"^the PostgreSQL database may not be changed \(ReadOnlySqlTransaction\): a query can read and do nothing else"
)
FAILED = r"^the PostgreSQL database could not be read and counted \([A-Za-z]+\)"
HOSTILE_POSTGRES = {
    "two statements": (f"{PEOPLE}; {PEOPLE}", NO_QUERY),
    "drop and commit": (f"{PEOPLE}; DROP TABLE victim; COMMIT", NO_QUERY),
    "commit and drop": (f"{PEOPLE}; COMMIT; DROP TABLE victim", NO_QUERY),
    "after a comment": (f"{PEOPLE} /* ; /* */ */ ; COMMIT; DROP TABLE victim; --", NO_QUERY),
    "out of the parenthesis": (f"{PEOPLE}) AS q; COMMIT; DROP TABLE victim; SELECT * FROM (SELECT 1", NO_QUERY),
    "out of the parenthesis at once": (f"{PEOPLE}) AS q, (SELECT 1", NO_QUERY),
    "an open comment": (f"{PEOPLE} /*", NO_QUERY),
    "an open text": (f"{PEOPLE} WHERE name = $a$", NO_QUERY),
    "commit": ("COMMIT", NO_SELECT),
    "read write": ("SET TRANSACTION READ WRITE", NO_SELECT),
    "delete": ("DELETE FROM victim RETURNING 1 AS code, true AS flag", NO_SELECT),
    "drop": ("DROP TABLE victim", NO_SELECT),
    "create": ("CREATE TABLE stolen AS SELECT * FROM people", NO_SELECT),
    "copy": ("COPY people TO '/tmp/stolen.csv'", NO_SELECT),
    "copy to a program": ("COPY people TO PROGRAM 'touch /tmp/stolen.csv'", NO_SELECT),
    "do": ("DO $$ BEGIN DELETE FROM victim; COMMIT; END $$", NO_SELECT),
    "explain analyze": ("EXPLAIN ANALYZE DELETE FROM victim", NO_SELECT),
    "notify": ("NOTIFY everybody", NO_SELECT),
    "nothing": ("-- nothing", NO_SELECT),
    "select into": ("SELECT code, flag INTO stolen FROM people", NO_SELECT),
    "delete in with": (f"WITH gone AS (DELETE FROM victim RETURNING x) {PEOPLE}", NO_SELECT),
    "insert in with": (f"WITH new AS (INSERT INTO victim SELECT 2 RETURNING x) {PEOPLE}, new", NO_SELECT),
    "lock": (f"{PEOPLE} FOR UPDATE", READ_ONLY),
    "nextval": (f"{PEOPLE} WHERE nextval('numbers') > 0", READ_ONLY),
    "setval": (f"{PEOPLE} WHERE setval('numbers', 9) > 0", READ_ONLY),
    "a function that deletes": (f"{PEOPLE} WHERE deletes() > 0", READ_ONLY),
    "a query in a text": (f"{PEOPLE} WHERE query_to_xml('DELETE FROM victim', true, true, '') IS NULL", FAILED),
    "a function that commits": (f"{PEOPLE} WHERE commits() > 0", FAILED),
    "a function that unlocks": (f"{PEOPLE} WHERE unlocks() > 0", FAILED),
    "read write by a function": (f"{PEOPLE} WHERE set_config('transaction_read_only', 'off', false) = 'off'", FAILED),
}


@pytest.mark.parametrize(("query", "text", "counting"), both_ways(HOSTILE_POSTGRES, [NO_QUERY, NO_SELECT]))
def test_a_hostile_query_to_postgres_is_refused_and_leaves_nothing(server, query, text, counting):
    before = state(server)
    with pytest.raises(DataError, match=text):
        counted(Data(server, query=query, counting=counting))
    assert state(server) == before


# They run, and what they do ends with the transaction or with the connection.
GONE = {
    "a setting": f"{PEOPLE} WHERE set_config('work_mem', '1MB', false) <> ''",
    "a default": f"{PEOPLE} WHERE set_config('default_transaction_read_only', 'off', false) <> ''",
    "a lock": f"{PEOPLE} WHERE pg_advisory_lock(7) IS NOT NULL",
    "a notification": f"{PEOPLE} WHERE pg_notify('everybody', 'stolen') IS NOT NULL",
}


@WAYS
@pytest.mark.parametrize("query", GONE.values(), ids=GONE)
def test_what_a_query_to_postgres_does_for_itself_ends_with_it(server, query, counting):
    import psycopg

    before = state(server)
    with psycopg.connect(server, autocommit=True) as listener:
        listener.execute("LISTEN everybody")
        assert counted(Data(server, query=query, counting=counting)) == [5, 5, 5, 5, 10, 10]
        assert not list(listener.notifies(timeout=0.1))
        assert listener.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
    assert state(server) == before


@WAYS
def test_a_query_that_changes_how_its_own_text_is_read_cannot_end_the_transaction(server, counting):
    """Once it has run, a backslash escapes the quote after it, and the text goes on with COMMIT and DROP."""
    query = (
        "SELECT code, flag, set_config('standard_conforming_strings', 'off', false) AS s, '\\' AS a, "
        "', 1 AS b FROM people) AS q; COMMIT; DROP TABLE victim; --' AS c FROM people"
    )
    before = state(server)
    with suppress(DataError):
        counted(Data(server, query=query, counting=counting))
    assert state(server) == before


def test_a_connection_of_margrave_s_own_takes_one_statement_and_reads(server):
    """Also where the statement is not checked first."""
    import psycopg

    with connect_reading(server) as connection:
        with pytest.raises(psycopg.errors.SyntaxError, match="cannot insert multiple commands"):
            connection.execute("SELECT 1; COMMIT; DROP TABLE victim")
        connection.rollback()
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("DROP TABLE victim")


def test_a_role_that_may_only_select_cannot_act_outside_of_the_database(server, tmp_path):
    """The remedy of docs/guarantee.md; a superuser could call all of these."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN; GRANT SELECT ON people TO reader")
        info = connection.info
        url = f"postgresql:///{info.dbname}?host={info.host}&port={info.port}&user=reader"
        try:
            assert counted(Data(url, query=PEOPLE)) == [5, 5, 5, 5, 10, 10]
            for call in (
                f"lo_export(1, '{tmp_path}/stolen')",
                "length(pg_read_file('postgresql.conf'))",
                "pg_terminate_backend((SELECT min(pid) FROM pg_stat_activity WHERE usename <> 'reader'))::int",
                "pg_reload_conf()::int",
                "(SELECT x FROM victim)",
            ):
                text = r"^the PostgreSQL database may not be read by this user \(InsufficientPrivilege\)"
                with pytest.raises(DataError, match=text):
                    counted(Data(url, query=f"{PEOPLE} WHERE ({call}) IS NOT NULL"))
        finally:
            connection.execute("DROP OWNED BY reader; DROP ROLE reader")
    assert not list(tmp_path.iterdir())


@WAYS
@pytest.mark.parametrize(
    "query",
    [
        f"{PEOPLE};",
        "WITH them AS (SELECT * FROM people) SELECT code, flag FROM them -- a comment",
        "TABLE people",
        "/* one; */ SELECT code, flag, ';)' AS mark, $a$ -- ' $a$ AS dashes, '100%' AS share FROM people ;\n;",
        "SELECT code, flag, '%s' AS slot, E'\\'' AS quote, U&'\\00e9' AS letter FROM people",
        "(SELECT code, flag FROM people WHERE person < 7) UNION ALL (SELECT code, flag FROM people WHERE person >= 7)",
        'SELECT code, flag, name COLLATE "C" AS n, ARRAY[1, 2] AS several, 1::numeric(5, 2) AS two FROM people',
        # What the parser of Ibis does not know.
        "SELECT code, flag, person OPERATOR(pg_catalog.+) 1 AS sum FROM ONLY people TABLESAMPLE SYSTEM (100)",
    ],
)
def test_an_honest_query_to_postgres_counts(server, query, counting):
    assert counted(Data(server, query=query, counting=counting)) == [5, 5, 5, 5, 10, 10]


@WAYS
def test_rows_of_a_person_are_bounded_in_the_result_of_a_query(server, counting):
    data = Data(server, query="SELECT code, flag, person / 2 AS pair FROM people", privacy_id="pair", counting=counting)
    assert sum(counted(data)[:4]) == 10


def test_two_columns_of_one_name_are_refused(server):
    with pytest.raises(DataError, match=r"^the query's result has two columns of one name; give each its own name"):
        counted(Data(server, query="SELECT code, flag, flag FROM people"))


# --- Spark, Ibis and frames -------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["SELECT code, flag FROM people", "DROP TABLE people"])
def test_a_frame_takes_no_query(query):
    import ibis

    table = pa.table({"code": [0], "flag": [True]})
    for source in (table, ibis.memtable(table)):
        with pytest.raises(DataError, match=r"^a .* is one table; leave out table \(--table\) and query \(--query\)"):
            Data(source, query=query)


@pytest.mark.engines
def test_a_spark_frame_takes_no_query(spark):
    frame = nasty.spark_frame(people(), spark)
    with pytest.raises(DataError, match=r"^a PySpark frame is one table; leave out table"):
        Data(frame, query="DROP TABLE people")
