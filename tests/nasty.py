"""A table with everything that makes engines disagree, on every engine; and its counts by a plain loop."""

import csv
import gzip
import json
import math
import random
from datetime import date
from itertools import product
from pathlib import Path

import numpy as np

from margrave.domain import Attribute, Domain

BIG = 2**53
TEXTS = [
    "a",
    "A",
    " a",
    "a ",
    "ä",
    "a\u0308",
    "日本",
    "it's",
    'qu"ote',
    "x,y",
    "two\nlines",
    "null",
    "NaN",
    "1",
    "true",
]
DAYS = ["1899-12-31", "2000-02-29", "2024-01-01"]

DOMAIN = Domain(
    [
        Attribute("name", labels=TEXTS[:-3], missing="unknown", other="other"),
        Attribute("whole", labels=(0, 1, -5, BIG, BIG + 1, 2**62 + 1), outside="drop"),
        Attribute("real", labels=(0.0, 0.1, 1.5, -2.0), missing="none", other="else"),
        Attribute("income", cuts=(0, 10.5, 100), missing="unknown"),
        Attribute("age", cuts=(-3.5, 17, 34.5, BIG)),
        Attribute("flag", labels=(True, False), missing="unknown"),
        Attribute("day", labels=DAYS[:2], outside="drop", missing="never"),
        Attribute("code", size=4, other="3"),
    ]
)
VALUES = {
    "name": [*TEXTS, None],
    "whole": [0, 1, -5, BIG, BIG + 1, 2**62 + 1, 2**62, 7],
    "real": [0.0, -0.0, 0.1, 0.1 + 2**-56, 1.5, -2.0, math.nan, math.inf, None],
    "income": [0.0, -0.0, 5e-324, 10.5, 10.5 + 2**-49, 100.0, math.inf, -math.inf, math.nan, None],
    "age": [-4, -3, 17, 18, 34, 35, BIG, BIG + 1, -(2**63), 2**63 - 1],
    "flag": [True, False, None],
    "day": [date(1899, 12, 31), date(2000, 2, 29), date(2024, 1, 1), None],
    "code": [0, 1, 2, 3, 4, -1],
}
# ``whole`` and ``day`` drop rows, whether or not a table has them.
FAMILIES = [
    [("name", "income", "flag"), ("age", "real"), ("whole", "day"), ("code", "name")],
    [("income", "code"), ("flag",)],
    [()],
]


def rows(count=600, seed=5):
    """Rows of a table: every value at least once, in any company; two in three rows are not dropped."""
    choose = random.Random(seed)
    kept = {"whole": VALUES["whole"][:-2], "day": [VALUES["day"][0], VALUES["day"][1], None]}
    made = [{name: choose.choice(values) for name, values in {**VALUES, **kept}.items()} for _ in range(2 * count // 3)]
    made += [{name: choose.choice(values) for name, values in VALUES.items()} for _ in range(count - len(made))]
    return [{"person": 3 * k // 4 % 57, **row} for k, row in enumerate(made)]


def code(name, value):
    """The code of a value, or None for a row to drop, one comparison at a time."""
    attribute = DOMAIN[name]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return attribute.categories.index(attribute.missing)
    if attribute.cuts is not None:
        return sum(value > cut for cut in attribute.cuts)
    if attribute.labels is None:
        found = [value] if 0 <= value < attribute.declared else []
    else:
        given = value.isoformat() if isinstance(value, date) else value
        found = [k for k, label in enumerate(attribute.labels) if label == given]
    if found:
        return found[0]
    return None if attribute.outside == "drop" else attribute.categories.index(attribute.other)


def naive_counts(table, layout):
    """The counts of every table of a closure, row by row."""
    counts = {members: np.zeros([DOMAIN.shape[k] for k in members], dtype=np.int64) for members in layout.sets}
    for row in table:
        codes = [code(name, row[name]) for name in DOMAIN.attributes]
        if None not in codes:
            for members, array in counts.items():
                array[tuple(codes[k] for k in members)] += 1
    return np.concatenate([np.ravel(counts[members]) for members in layout.sets])


# --- the same table on each engine ------------------------------------------------------------------------------


def arrow_schema():
    import pyarrow as pa

    kinds = {"name": pa.string(), "whole": pa.int64(), "real": pa.float64(), "income": pa.float64(), "age": pa.int64()}
    kinds |= {"flag": pa.bool_(), "day": pa.date32(), "code": pa.int8(), "person": pa.int64()}
    return pa.schema(list(kinds.items()))


def arrow(table):
    import pyarrow as pa

    return pa.Table.from_pylist(table, schema=arrow_schema())


def pandas_frame(table):
    import pandas as pd

    frame = pd.DataFrame(table, columns=arrow_schema().names)
    return frame.astype({"name": "category", "code": "int16"})


def polars_frame(table):
    import polars as pl

    return pl.from_arrow(arrow(table)).with_columns(pl.col("name").cast(pl.Categorical))


def as_text(value):
    """What people write into text files."""
    return "" if value is None else str(value)


def write_csv(table, path, delimiter=",", opened=None):
    with (opened or Path(path).open)(*([path] if opened else []), "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(arrow_schema().names)
        writer.writerows([as_text(row[name]) for name in arrow_schema().names] for row in table)
    return path


def write_gzip(table, path):
    return write_csv(table, path, opened=gzip.open)


def plain(row):
    """A row as JSON holds it; its numbers know no NaN."""
    odd = {name: str(value) for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)}
    days = {"day": None if row["day"] is None else row["day"].isoformat()}
    return {**row, **odd, **days}


def write_json(table, path, lines=False):
    records = [json.dumps(plain(row), ensure_ascii=False) for row in table]
    Path(path).write_text("\n".join(records) if lines else f"[{', '.join(records)}]", encoding="utf-8")
    return path


def write_parquet(table, path):
    import pyarrow.parquet as pq

    pq.write_table(arrow(table), path, row_group_size=100)
    return path


def write_duckdb(table, path, name="people"):
    import duckdb

    with duckdb.connect(str(path)) as connection:
        connection.register("given", arrow(table))
        connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")
    return path


POSTGRES_TYPES = {
    "name": "text",
    "whole": "bigint",
    "real": "double precision",
    "income": "double precision",
    "age": "bigint",
    "flag": "boolean",
    "day": "date",
    "code": "smallint",
    "person": "bigint",
}


def write_postgres(table, url, name="people"):
    import psycopg

    names = list(POSTGRES_TYPES)
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {name}")
        cursor.execute(f"CREATE TABLE {name} ({', '.join(f'{key} {POSTGRES_TYPES[key]}' for key in names)})")
        slots = ", ".join(["%s"] * len(names))
        cursor.executemany(f"INSERT INTO {name} VALUES ({slots})", [[row[key] for key in names] for row in table])
    return url


def spark_frame(table, session):
    from pyspark.sql import types as t

    kinds = {"name": t.StringType(), "whole": t.LongType(), "real": t.DoubleType(), "income": t.DoubleType()}
    kinds |= {"age": t.LongType(), "flag": t.BooleanType(), "day": t.DateType(), "code": t.ShortType()}
    kinds |= {"person": t.LongType()}
    schema = t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])
    return session.createDataFrame([tuple(row[name] for name in kinds) for row in table], schema)


def every_value_is_there(table):
    """Whether each value of each column is in the table, so that nothing nasty is left out by chance."""
    return all(any(repr(row[name]) == repr(value) for row in table) for name, value in _pairs())


def _pairs():
    return [pair for name, values in VALUES.items() for pair in product([name], values)]
