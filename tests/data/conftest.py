"""Tables on all engines that are there."""

from dataclasses import replace

import nasty
import pytest

from margrave.data.source import Data


def frame(source, name, folder, request):
    """The nasty table, or another of the same columns, on one engine."""
    table, path = source, folder / "people"
    if name == "pandas":
        pytest.importorskip("pandas", reason="pandas is not installed")
        return Data(nasty.pandas_frame(table))
    if name in ("polars", "polars lazy"):
        pytest.importorskip("polars", reason="Polars is not installed")
        made = nasty.polars_frame(table)
        return Data(made.lazy() if name == "polars lazy" else made)
    if name == "ibis on duckdb":
        ibis = pytest.importorskip("ibis", reason="Ibis needs margrave[ibis]")
        return Data(ibis.duckdb.connect().create_table("people", nasty.arrow(table)))
    if name == "postgres":
        url = nasty.write_postgres(table, request.getfixturevalue("postgres"))
        return Data(url, table="people")
    if name == "ibis on postgres":
        ibis = pytest.importorskip("ibis", reason="Ibis needs margrave[ibis]")
        psycopg = pytest.importorskip("psycopg", reason="PostgreSQL needs margrave[postgres]")
        url = nasty.write_postgres(table, request.getfixturevalue("postgres"))
        connection = psycopg.connect(url, autocommit=True)
        request.addfinalizer(connection.close)
        return Data(ibis.postgres.from_connection(connection).table("people"))
    if name == "spark":
        return Data(nasty.spark_frame(table, request.getfixturevalue("spark")))
    return PLAIN[name](table, path)


def reader(table):
    made = nasty.arrow(table)
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(made.schema, made.to_batches(max_chunksize=7))


def dataset(table, path):
    import pyarrow.dataset as ds

    return ds.dataset(nasty.write_parquet(table, path.with_suffix(".parquet")))


def relation(table):
    import duckdb

    connection = duckdb.connect()
    connection.register("people", nasty.arrow(table))
    return connection.sql("SELECT * FROM people")


class Stream:
    """Whatever speaks Arrow's stream interface."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def parts(table, path):
    half = len(table) // 2
    nasty.write_parquet(table[:half], path.with_name("part-1.parquet"))
    nasty.write_parquet(table[half:], path.with_name("part-2.parquet"))
    return path.with_name("part-*.parquet")


PLAIN = {
    "csv": lambda table, path: Data(nasty.write_csv(table, path.with_suffix(".csv"))),
    "tsv": lambda table, path: Data(nasty.write_csv(table, path.with_suffix(".tsv"), "\t")),
    "csv gzip": lambda table, path: Data(str(nasty.write_gzip(table, path.with_suffix(".csv.gz")))),
    "json": lambda table, path: Data(nasty.write_json(table, path.with_suffix(".json"))),
    "json lines": lambda table, path: Data(nasty.write_json(table, path.with_suffix(".ndjson"), lines=True)),
    "parquet": lambda table, path: Data(nasty.write_parquet(table, path.with_suffix(".parquet"))),
    "parquet files": lambda table, path: Data(parts(table, path)),
    "duckdb file": lambda table, path: Data(
        nasty.write_duckdb(table, path.with_suffix(".duckdb")), table="main.people"
    ),
    "duckdb query": lambda table, path: Data(
        str(nasty.write_duckdb(table, path.with_suffix(".duckdb"))), query="SELECT * FROM people ORDER BY code"
    ),
    "duckdb relation": lambda table, path: Data(relation(table)),
    "arrow table": lambda table, path: Data(nasty.arrow(table)),
    "arrow reader": lambda table, path: Data(reader(table)),
    "arrow dataset": lambda table, path: Data(dataset(table, path)),
    "arrow stream": lambda table, path: Data(Stream(nasty.arrow(table))),
}
FRAMES = ["pandas", "polars", "polars lazy", "ibis on duckdb", "postgres", "ibis on postgres"]
TEXTS = ["csv", "tsv", "csv gzip", "json", "json lines"]
EVERY = {**dict.fromkeys([*PLAIN, *FRAMES], ()), "spark": pytest.mark.engines}
WAYS = ["fetch", "push-down"]


def pytest_generate_tests(metafunc):
    if "engine_and_way" in metafunc.fixturenames:
        # Files of texts are fetched, and by no other way.
        metafunc.parametrize(
            "engine_and_way",
            [
                pytest.param((engine, way), id=f"{engine}-{way}", marks=marks)
                for engine, marks in EVERY.items()
                for way in WAYS
                if way == "fetch" or engine not in TEXTS
            ],
        )


@pytest.fixture
def on_engine(engine_and_way, tmp_path, request):
    """Puts rows on the engine of the test, to be counted in the way of the test."""
    engine, way = engine_and_way
    return lambda table, **options: replace(frame(table, engine, tmp_path, request), counting=way, **options)
