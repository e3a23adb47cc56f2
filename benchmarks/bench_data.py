"""From a table to the exact counts of all its three-way tables, each case in a process of its own.

Asked: 10 million rows of 10 columns of small whole numbers, all 120 triples, from a Parquet file in 2.5 s on two cores,
and at least 4 times as fast as 120 queries of DuckDB in the same run; the adult table from CSV, 364 triples, in 1 s;
100 million rows in a time that grows in proportion and with less than 2 GB of memory (``--large``; its file takes about
0.5 GB of disk and a minute to write).

The adult table is read from MARGRAVE_DATASETS (default: shared/datasets beside the project).
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from timing import report, resident_megabytes

from margrave.algebra.layout import Layout
from margrave.data.source import Data, open_source
from margrave.domain import Domain

FOLDER = Path(os.environ.get("MARGRAVE_DATASETS", Path(__file__).parents[2] / "shared" / "datasets"))
SIZES = (2, 3, 5, 7, 8, 10, 12, 15, 16, 20)
DOMAIN = Domain.fromdict({f"a{k}": size for k, size in enumerate(SIZES)})
CHUNK = 2_000_000


def write_rows(path: Path, rows: int) -> None:
    """Write made-up rows to a Parquet file, a chunk at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(0)
    schema = pa.schema([(name, pa.int64()) for name in DOMAIN.attributes])
    with pq.ParquetWriter(path, schema) as writer:
        for begin in range(0, rows, CHUNK):
            count = min(CHUNK, rows - begin)
            columns = [generator.integers(0, size, count) for size in SIZES]
            writer.write_table(pa.table(dict(zip(DOMAIN.attributes, columns, strict=True)), schema=schema))


def triples(domain: Domain) -> Layout:
    """Return the closure of all three-way tables."""
    return Layout.of(domain.shape, list(itertools.combinations(range(len(domain)), 3)))


def counting_seconds(path: Path, domain: Domain, repeats: int) -> float:
    """Return the shortest time of several runs from the file to the counts, once everything is compiled."""
    layout, source = triples(domain), open_source(Data(path), domain, contributions=1)
    seconds = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        source.count(layout)
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])


def query_seconds(path: Path) -> float:
    """Return the time that DuckDB takes for one query a table."""
    import duckdb

    connection = duckdb.connect()
    started = time.perf_counter()
    for names in itertools.combinations(DOMAIN.attributes, 3):
        listed = ", ".join(names)
        connection.execute(f"SELECT {listed}, count(*) FROM read_parquet('{path}') GROUP BY {listed}").fetchall()
    return time.perf_counter() - started


def parquet(rows: int) -> None:
    """Time the triples of made-up rows; up to 10 million also against DuckDB's own queries."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_rows(path, rows)
        more: dict[str, object] = {"before_mb": round(resident_megabytes(), 1)}
        seconds = counting_seconds(path, DOMAIN, 3 if rows <= 10**7 else 1)
        if rows <= 10**7:
            queries = query_seconds(path)
            more |= {"duckdb_seconds": round(queries, 3), "times_faster": round(queries / seconds, 1)}
        report(f"120 triples of {rows:,} rows, Parquet", seconds, 2.5 * rows / 10**7, **more)


def adult() -> None:
    """Time the triples of the adult table, from packed CSV."""
    domain = Domain.read(FOLDER / "adult-domain.json")
    report("364 triples of adult, CSV", counting_seconds(FOLDER / "adult.csv.gz", domain, 5), 1.0)


CASES = {"adult": adult, "ten million": lambda: parquet(10**7), "hundred million": lambda: parquet(10**8)}

if __name__ == "__main__":
    chosen = [argument for argument in sys.argv[1:] if argument != "--large"]
    if chosen:
        CASES[chosen[0]]()
    else:
        for case in CASES:
            if case == "adult" and not (FOLDER / "adult.csv.gz").exists():
                print(json.dumps({"name": case, "left_out": f"no adult in {FOLDER.name}; set MARGRAVE_DATASETS"}))
            elif case != "hundred million" or "--large" in sys.argv:
                subprocess.run([sys.executable, __file__, case], check=True)
