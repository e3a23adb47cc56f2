"""Whatever goes wrong while a table is read: a clear error, nothing charged, and no value of the table in any text."""

import traceback
from dataclasses import replace

import nasty
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from margrave.data.counting import pushdown
from margrave.data.engines import databases
from margrave.data.source import Data
from margrave.domain import Attribute, Domain
from margrave.errors import DataError
from margrave.mechanisms.gaussian_marginals import gaussian_marginals
from margrave.mechanisms.residual_planner import measure
from margrave.mechanisms.scalable_mwem import scalable_mwem
from margrave.planning.plans import plan
from margrave.privacy.budget import Budget
from margrave.privacy.ledger import Ledger
from margrave.workload import Workload

SECRET, PASSWORD = "Katharina Geheim", "correct-horse"
DOMAIN = Domain([Attribute("code", size=4), Attribute("flag", labels=(True, False))])
WORKLOAD, BUDGET = Workload(DOMAIN, [("code",), ("flag",)]), Budget.zcdp(rho=1)
RUNS = {
    "plan": lambda data, **options: measure(plan(WORKLOAD, BUDGET, contributions=1), data, **options),
    "rounds": lambda data, **options: scalable_mwem(data, WORKLOAD, BUDGET, contributions=1, rounds=1, **options),
    "marginals": lambda data, **options: gaussian_marginals(
        data, variances={("code",): 4, ("flag",): 4}, contributions=1, domain=DOMAIN, **options
    ),
}


def people(count=50):
    """Rows that fit the domain, with a secret in a column that it does not have."""
    template = {name: values[0] for name, values in nasty.VALUES.items()}
    return [
        {"person": k, **template, "code": k % 4, "flag": k % 2 == 0, "name": SECRET if k == 40 else str(k)}
        for k in range(count)
    ]


def assert_fails(data, text, folder, run=RUNS["plan"], **options):
    """Refused with this text, unpaid, and neither the error nor what is chained to it tells the secret."""
    ledger = Ledger(folder / "ledger", cap=10)
    with pytest.raises(DataError, match=text) as caught:
        run(data, ledger=ledger, **options)
    assert ledger.spent == 0
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    shown = "".join(traceback.format_exception(caught.value))
    for secret in (SECRET, "Katharina", "Geheim", PASSWORD):
        assert secret not in shown


def failed(kind, error):
    """The words for a failure of an engine."""
    return rf"^{kind} could not be read and counted \({error}\); check that it is complete and reachable, and that its"


def lost(error):
    """The words for a PostgreSQL server that does not answer."""
    return (
        rf"^the PostgreSQL database could not be reached, or the connection was lost \({error}\); check that the server"
    )


def no_query(kind, error):
    """The words for a query that is none."""
    return (
        rf"^{kind} could not be queried \({error}\): the query is not one SELECT in its SQL, or names a table, column"
    )


@pytest.fixture
def people_url(postgres):
    """A table of people on the PostgreSQL server."""
    return nasty.write_postgres(people(), postgres)


BOTH = pytest.mark.parametrize("counting", ["fetch", "push-down"])


@BOTH
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_lost_connection(people_url, counting, run, tmp_path):
    ends = "CASE WHEN code = 3 THEN pg_terminate_backend(pg_backend_pid()) ELSE true END"
    gone = f"SELECT code, flag FROM people WHERE {ends}"
    data = Data(people_url, query=gone, counting=counting)
    assert_fails(data, lost("AdminShutdown"), tmp_path, run)


def test_a_connection_that_is_lost_between_two_batches(people_url, tmp_path, monkeypatch):
    import psycopg

    monkeypatch.setattr(databases, "BATCH_ROWS", 7)
    read = databases._cursor_rows

    def cut(*arguments):
        for batch in read(*arguments):
            yield batch
            with psycopg.connect(people_url) as other:
                other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    monkeypatch.setattr(databases, "_cursor_rows", cut)
    data = Data(people_url, table="people", counting="fetch")
    assert_fails(data, lost("[A-Za-z]+"), tmp_path)


def test_a_connection_that_is_lost_between_two_queries(people_url, tmp_path, monkeypatch):
    import psycopg

    # One set a query, and every table by itself.
    monkeypatch.setattr(pushdown, "_LIMITS", (1,))
    monkeypatch.setattr(databases.PostgresEngine, "costs", replace(databases.PostgresEngine.costs, sets=1))

    def cut(done, tables):
        if done == 1:
            with psycopg.connect(people_url) as other:
                other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    data = Data(people_url, table="people", counting="push-down", progress=cut)
    assert_fails(data, lost("[A-Za-z]+"), tmp_path)


@BOTH
def test_a_query_that_fails_half_way_on_postgres(people_url, counting, tmp_path):
    for query, error in [
        ("SELECT code, flag, 1 / (40 - person) AS broken FROM people WHERE 1 / (40 - person) < 2", "DivisionByZero"),
        ("SELECT code, flag FROM people WHERE name::int >= 0", "InvalidTextRepresentation"),
    ]:
        data = Data(people_url, query=query, counting=counting)
        assert_fails(data, failed("the PostgreSQL database", error), tmp_path)


def test_what_postgres_does_not_understand(people_url, tmp_path):
    for query, error in [
        ("SELECT code FROM peple", "UndefinedTable"),
        ("SELECT coda FROM people", "UndefinedColumn"),
        ("SELECT frobnicate(code) FROM people", "UndefinedFunction"),
        (f"SELEKT code FROM people -- {SECRET}", "SyntaxError"),
        (f"SELECT code FROM people WHERE '{SECRET}", "SyntaxError"),
        ("SELECT code FROM people WHERE code = ANY", "SyntaxError"),
    ]:
        assert_fails(Data(people_url, query=query), no_query("the PostgreSQL database", error), tmp_path)
    for table in ("peple", "nowhere.people"):
        text = rf"^the PostgreSQL database has no table '{table}'.*; name one of them, with its schema before a dot"
        assert_fails(Data(people_url, table=table), text, tmp_path)


@BOTH
def test_a_query_that_fails_half_way_on_duckdb(counting, tmp_path):
    path = nasty.write_duckdb(people(), tmp_path / "people.duckdb")
    query = "SELECT code, flag FROM people WHERE CAST(name AS INTEGER) >= 0"
    data = Data(path, query=query, counting=counting)
    assert_fails(data, failed("the DuckDB file", "ConversionException"), tmp_path)


def test_what_duckdb_does_not_understand(tmp_path):
    import duckdb

    path = nasty.write_duckdb(people(), tmp_path / "people.duckdb")
    for query, error in [
        ("SELECT code FROM peple", "CatalogException"),
        ("SELECT coda FROM people", "BinderException"),
        (f"SELEKT code FROM people -- {SECRET}", "ParserException"),
    ]:
        assert_fails(Data(path, query=query), no_query("the DuckDB file", error), tmp_path)
    text = r"^there is no table 'peple' in '.*'; did you mean 'people'\? \(it has people\)$"
    assert_fails(Data(path, table="peple"), text, tmp_path)
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA survey; CREATE TABLE survey.persons AS SELECT 1 AS code")
        connection.execute("CREATE TABLE gone AS SELECT 1 AS code; CREATE VIEW broken AS SELECT * FROM gone")
        connection.execute("DROP TABLE gone")
    for table in ("x", "no.x", "no.such.x"):
        text = rf"^there is no table '{table}' in '.*' \(it has broken, people, survey\.persons\)$"
        assert_fails(Data(path, table=table), text, tmp_path)
    assert_fails(Data(path, table="broken"), no_query("the DuckDB file", "CatalogException"), tmp_path)
    empty = tmp_path / "empty.duckdb"
    duckdb.connect(str(empty)).close()
    assert_fails(Data(empty, table="x"), r"^there is no table 'x' in '.*' \(it has none\)$", tmp_path)


@BOTH
@pytest.mark.engines
def test_a_query_that_fails_half_way_on_spark(spark, counting, tmp_path):
    frame = nasty.spark_frame(people(), spark).selectExpr("code", "flag", "cast(name as int) as number")
    data = Data(frame.filter("number >= 0"), counting=counting)
    assert_fails(data, failed("the PySpark frame", "[A-Za-z0-9]+"), tmp_path)


def test_a_database_that_cannot_be_reached(tmp_path):
    url = f"postgresql://{SECRET.split()[0]}:{PASSWORD}@127.0.0.1:1/db"
    data = Data(url, table="people")
    assert repr(data) == "Data(PostgreSQL database)"
    text = "^the PostgreSQL database could not be reached: no server listens there; check host and port in the URL"
    assert_fails(data, text, tmp_path)
    assert_fails(Data(f"{url}/people"), text, tmp_path)


def test_a_missing_column_is_named_with_the_one_that_was_meant(tmp_path):
    rows = [{**row, "Flag": row["flag"]} for row in people()]
    table = pa.table({"code": [row["code"] for row in rows], "Flag": [row["flag"] for row in rows]})
    assert_fails(table, r"^the table has no column 'flag'; did you mean 'Flag'\?$", tmp_path)
    assert_fails(
        table.rename_columns(["flagg", "flags"]), "^the table has no column 'code'; name its columns", tmp_path
    )
    for counting in ("fetch", "push-down"):
        assert_fails(Data(table, counting=counting), "^the table has no column 'flag'; did you mean", tmp_path)


def test_a_forgotten_header_is_not_quoted(tmp_path):
    """The first line may be a row: a similar name might be a value of somebody."""
    path = tmp_path / "people.csv"
    path.write_text(f"flagg,{SECRET}\n1,x\n")
    assert_fails(path, "^the table has no column 'code'; name its columns as the domain does, or if a", tmp_path)
    path.write_text("Code,FLAG\n1,true\n")
    assert_fails(path, r"^the table has no column 'code'; did you mean 'Code'\?$", tmp_path)
    path.write_text("")
    assert_fails(path, "has no header, or one with an empty name; give every column a name there", tmp_path)
    path.write_text("code,,flag\n")
    assert_fails(path, "has no header, or one with an empty name", tmp_path)
    path.write_text("code,code,flag\n")
    assert_fails(path, "^two columns of the header have the same name; give each its own name", tmp_path)


def test_a_column_of_the_wrong_type(tmp_path, people_url):
    table = pa.table({"code": [SECRET], "flag": [True]})
    for counting in ("fetch", "push-down"):
        assert_fails(
            Data(table, counting=counting), "^column 'code' holds texts and its attribute declares numbers", tmp_path
        )
        data = Data(people_url, query="SELECT name AS code, flag FROM people", counting=counting)
        assert_fails(data, "^column 'code' holds texts and its attribute declares numbers", tmp_path)


def test_a_value_outside_and_a_missing_one(tmp_path):
    for values, text in [
        ([0, 123_457], "^column 'code' has values that its attribute does not declare"),
        ([0, None], "^column 'code' has missing values and its attribute no category for them"),
    ]:
        for counting in ("fetch", "push-down"):
            assert_fails(Data(pa.table({"code": values, "flag": [True, True]}), counting=counting), text, tmp_path)


def test_a_parquet_file_cut_in_half(tmp_path):
    path = nasty.write_parquet(people(), tmp_path / "people.parquet")
    whole = path.read_bytes()
    for part in (whole[: len(whole) // 2], whole[:0], b"PAR1" + whole[len(whole) // 2 :]):
        path.write_bytes(part)
        assert_fails(path, failed("the file", "[A-Za-z]+"), tmp_path)
    # A page that is damaged in the middle of the file is found while rows are read.
    pq.write_table(pa.table({"code": [k % 4 for k in range(5000)], "flag": [True] * 5000}), path, compression="gzip")
    whole = bytearray(path.read_bytes())
    whole[20:60] = bytes(40)
    path.write_bytes(whole)
    assert_fails(path, failed("the file", "[A-Za-z]+"), tmp_path)


@pytest.mark.parametrize("packing", ["gz", "zst"])
def test_a_packed_file_cut_short(tmp_path, packing):
    text = nasty.write_csv(people(20_000), tmp_path / "people.csv").read_bytes()
    path = tmp_path / f"people.csv.{packing}"
    with pa.CompressedOutputStream(str(path), {"gz": "gzip", "zst": "zstd"}[packing]) as file:
        file.write(text)
    assert len(RUNS["plan"](path)) == 3
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 40):
        path.write_bytes(whole[:size])
        assert_fails(path, failed("the file", "[A-Za-z]+"), tmp_path)


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = nasty.write_csv(people(), tmp_path / "people.csv")
    monkeypatch.setattr("os.access", lambda *arguments: False)
    assert_fails(path, "^the file '.*' may not be read; request permission to read it", tmp_path)


def test_a_csv_file_with_a_line_that_is_none(tmp_path):
    path = tmp_path / "people.csv"
    lengths = "^the rows of '.*' have different lengths; give every row as many fields as the header, and put a field"
    quotes = (
        "^a field of '.*' does not end where it should; check that every double quote at the beginning of a field has"
    )
    for line, text in [
        (f"1,true,{SECRET}", lengths),
        ("1", lengths),
        (f'1,"{SECRET}', quotes),
        (f'1,"{SECRET}"x', quotes),
    ]:
        path.write_text(f"code,flag\n0,true\n{line}\n")
        assert_fails(path, text, tmp_path)
    path.write_bytes(b"code,flag\n" + b"0,true\n" * 100_000 + b"1,tr\xffue" + SECRET.encode() + b"\n")
    assert_fails(path, r"^the file '.*' is not UTF-8; give encoding=… \(--encoding windows-1252 is usual", tmp_path)
    path.write_text("code,flag\n0,true\n")
    path.with_name("people-2.csv").write_text("flag,code\ntrue,0\n")
    assert_fails(f"{tmp_path}/people*.csv", "^the files have different headers; give files with the same", tmp_path)


def test_a_json_file_that_is_none(tmp_path):
    path = tmp_path / "people.json"
    path.write_text('[{"code": 1, "flag": true}, {"code": 2, "flag": ' + SECRET)
    assert_fails(path, failed("the file", "[A-Za-z]+"), tmp_path)


def test_a_database_file_that_is_none_or_is_open(tmp_path):
    import duckdb

    text = r"^the file '.*' cannot be opened \([A-Za-z]+\); check that it is a DuckDB file; if it is open already"
    (tmp_path / "text.duckdb").write_text(SECRET * 1000)
    assert_fails(Data(tmp_path / "text.duckdb", table="people"), text, tmp_path)
    path = nasty.write_duckdb(people(), tmp_path / "people.duckdb")
    with duckdb.connect(str(path)) as connection:
        assert_fails(Data(path, table="people"), text, tmp_path)
        assert len(RUNS["plan"](connection.table("people"))) == 3


def test_a_missing_file(tmp_path):
    for name in ("none.csv", "none.parquet", "none*.json", "none.csv.gz"):
        assert_fails(
            tmp_path / name, "^there is no file '.*'; check the path, and the folder that it starts from", tmp_path
        )
    assert_fails(Data(tmp_path / "none.duckdb", table="t"), "^there is no file", tmp_path)
    (tmp_path / "table.table").write_text("x")
    assert_fails(tmp_path / "table.table", r"ends in none of \.csv, \.tsv, \.parquet.*; if it is a CSV file", tmp_path)
    (tmp_path / "table.parquet.gz").write_text("x")
    assert_fails(tmp_path / "table.parquet.gz", r"ends in none of \.csv, \.tsv, \.parquet", tmp_path)


def test_a_reader_that_was_read_is_no_empty_table(tmp_path):
    table = pa.table({"code": [0, 1], "flag": [True, False]})
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    RUNS["plan"](reader)
    assert_fails(reader, "^this Arrow reader was already read, and it can be read only once; make a new one", tmp_path)


def test_a_column_of_objects_that_have_no_type(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"code": [0, SECRET], "flag": [True, False]})
    assert_fails(frame, "the pandas frame could not be read and counted|holds texts and its attribute", tmp_path)


def test_an_interrupt_gets_through_and_costs_nothing(tmp_path):
    ledger = Ledger(tmp_path / "ledger", cap=10)

    def interrupt(done, tables):
        raise KeyboardInterrupt

    data = Data(pa.table({"code": [0], "flag": [True]}), progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        RUNS["plan"](data, ledger=ledger)
    assert ledger.spent == 0
