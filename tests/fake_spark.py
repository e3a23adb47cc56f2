"""A stand-in for Spark: what margrave asks of Spark is run by DuckDB, so that the tests see it where Spark is not."""

import sys
from unittest.mock import patch

import duckdb
import narwhals as nw
import pyarrow as pa
import sqlglot

from margrave.data.engines.engine import DuckEngine, coded_columns
from margrave.data.engines.spark import chosen_on_spark

TYPES = {"bigint": pa.int64(), "string": pa.string()}
ROWS_A_BATCH = 5


class DataFrame:
    """As much of a PySpark frame as counting asks for, and named as one."""

    __module__ = "pyspark.stand_in"

    def __init__(self, rows, lacks=False):
        self.rows, self.sparkSession, self.lacks = rows, Session(), lacks

    def mapInArrow(self, function, schema):  # noqa: N802 - as PySpark calls it
        """Run a function on two partitions."""
        table, declared = self.rows.to_arrow_table(), dict(column.split() for column in schema.split(", "))
        kinds = pa.schema([(name, TYPES[kind]) for name, kind in declared.items()])
        half = table.num_rows // 2
        with patch.dict(sys.modules, {"margrave": None} if self.lacks else {}):  # a name that cannot be imported
            batches = [
                batch
                for part in (table[:half], table[half:])
                for batch in function(iter(part.to_batches(max_chunksize=ROWS_A_BATCH)))
            ]
        assert all(batch.schema == kinds for batch in batches)
        connection = duckdb.connect()
        connection.register("returned", pa.Table.from_batches(batches, schema=kinds))
        return DataFrame(connection.table("returned"), self.lacks)

    def selectExpr(self, *columns):  # noqa: N802 - as PySpark calls it
        """Compute columns from texts in the SQL of Spark."""
        written = [sqlglot.transpile(column, read="spark", write="duckdb")[0] for column in columns]
        return DataFrame(self.rows.project(", ".join(written)), self.lacks)

    def repartition(self, parts, name):
        """Put equal rows together: all are."""
        assert parts > 0
        assert name in self.rows.columns
        return self

    def groupBy(self, *names):  # noqa: N802 - as PySpark calls it
        """Group rows."""
        return Groups(self, names)


class Groups:
    """Rows that are grouped."""

    def __init__(self, frame, names):
        self.frame, self.names = frame, names

    def sum(self, name):
        """Add up a column."""
        listed = ", ".join(self.names)
        return DataFrame(self.frame.rows.aggregate(f"{listed}, sum({name})::BIGINT AS total", listed))


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
    """A table that is counted as one of Spark is, in one pass."""

    remote = True
    chooses_here = False
    maps = True

    def __init__(self, frame, stack):
        super().__init__(frame.rows, stack)

    def native(self, frame):
        return DataFrame(nw.to_native(frame))

    def collected(self, frame):
        return frame.rows.to_arrow_table()

    def _chosen(self, frame, choice):
        kept = chosen_on_spark(DataFrame(nw.to_native(frame)), coded_columns(frame), choice)
        return nw.from_native(kept.rows).lazy()


class EngineWithoutMargrave(Engine):
    """A table of a cluster whose workers lack margrave, counted by GROUP BY."""

    def native(self, frame):
        return DataFrame(nw.to_native(frame), lacks=True)
