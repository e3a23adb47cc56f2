"""A stand-in for Spark: what margrave asks of Spark is run by DuckDB, so that the tests see it where Spark is not."""

import duckdb
import narwhals as nw
import sqlglot

from margrave.data.engines.databases import chosen_on_spark
from margrave.data.engines.engine import DuckEngine, coded_columns


class DataFrame:
    """As much of a PySpark frame as choosing rows asks for, and named as one."""

    __module__ = "pyspark.stand_in"

    def __init__(self, rows):
        self.rows, self.sparkSession = rows, Session()


class Session:
    """Runs a query of Spark on frames by DuckDB."""

    def createDataFrame(self, rows, schema):  # noqa: N802 - as PySpark calls it
        (name, kind), ((value,),) = schema.split(), rows
        assert kind == "string"
        return DataFrame(duckdb.connect().sql(f"SELECT '{value}' AS {name}"))

    def sql(self, query, **frames):
        connection = duckdb.connect()
        for name, frame in frames.items():
            connection.register(f"given_{name}", frame.rows.to_arrow_table())
        [written] = sqlglot.transpile(
            query.format(**{name: f"given_{name}" for name in frames}), read="spark", write="duckdb"
        )
        return DataFrame(connection.sql(written))


class Engine(DuckEngine):
    """A table that is counted as one of Spark is."""

    remote = True
    chooses_here = False

    def __init__(self, frame, stack):
        super().__init__(frame.rows, stack)

    def _chosen(self, frame, choice):
        kept = chosen_on_spark(DataFrame(nw.to_native(frame)), coded_columns(frame), choice)
        return nw.from_native(kept.rows).lazy()
