"""Tables in databases and on clusters: Ibis tables, PostgreSQL by a URL, and PySpark frames.

PostgreSQL is read in one transaction that sees one state of the database (REPEATABLE READ) and is rolled back in the
end, so that nothing is left there. A frame of Spark that rows were drawn from is held by a local checkpoint, so that a
part that is computed again cannot draw again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

import narwhals as nw
import pyarrow as pa

from margrave.data.addresses import split_url
from margrave.data.embedded import stream
from margrave.data.engines import BATCH_ROWS, Engine, FrameEngine
from margrave.errors import DataError

# Back ends of Ibis that run inside this process: fetching their rows costs nothing but time.
_IN_PROCESS = ("duckdb", "polars", "datafusion", "sqlite", "chdb")
# These take texts that differ in case or in blanks at the end for equal, unless their tables say otherwise.
_FOLDS_TEXT = ("mysql", "mssql", "singlestoredb")


class IbisEngine(Engine):
    """An Ibis table, on any back end."""

    # A connection may belong to the thread that made it, as that of SQLite does.
    threaded = False

    def __init__(self, table: Any, stack: ExitStack) -> None:  # noqa: ANN401 - Ibis is an extra
        uuids = {name: table[name].cast("string") for name, kind in table.schema().items() if kind.is_uuid()}
        self._table, self._backend = table.mutate(**uuids) if uuids else table, table.get_backend()
        self.remote = self._backend.name not in _IN_PROCESS
        self.folds_text = self._backend.name in _FOLDS_TEXT
        if self._backend.name == "postgres":
            stack.enter_context(_one_state(self._backend.con))
        super().__init__(table.columns, stack)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once."""
        yield from self._batches(self._table.select(*columns))

    def lazy(self) -> nw.LazyFrame[Any]:
        """Return the table as a lazy frame."""
        frame: nw.LazyFrame[Any] = nw.from_native(self._table).lazy()
        return frame

    def collect(self, frame: nw.LazyFrame[Any]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a frame that was made from `lazy`."""
        yield from self._batches(nw.to_native(frame))

    def _batches(self, table: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - Ibis is an extra
        """Yield the rows of an Ibis table."""
        if self._backend.name not in ("duckdb", "postgres"):
            yield from table.to_pyarrow_batches(chunk_size=BATCH_ROWS)
            return
        # A query for no rows, so that Ibis hands over the tables that it holds in memory.
        table.limit(0).to_pyarrow()
        query = self._backend.compile(table)
        if self._backend.name == "duckdb":  # Ibis 12 asks for a method that DuckDB 2 has no more
            yield from stream(self._backend.con.sql(query), BATCH_ROWS)
            return
        rows = _cursor_rows(self._backend.con, query, table.schema().to_pyarrow())
        self._stack.callback(rows.close)  # a cursor that is left half-way has to go before its transaction
        yield from rows

    def hold(self, frame: nw.LazyFrame[Any], person: str, most: int) -> nw.LazyFrame[Any]:
        """Return a frame with at most so many rows of each person, drawn once, in a temporary table."""
        import ibis

        name = f"margrave_{uuid4().hex}"
        rows = nw.to_native(frame).mutate(margrave_word=ibis.random())
        window = ibis.window(group_by=rows[person], order_by=rows.margrave_word)
        ranked = rows.mutate(margrave_rank=ibis.row_number().over(window))
        drawn = ranked.filter(ranked.margrave_rank < most).drop("margrave_word", "margrave_rank", person)
        held = self._backend.create_table(name, drawn, temp=True)
        if self._backend.name != "postgres":  # there the transaction is rolled back
            self._stack.callback(self._backend.drop_table, name, force=True)
        kept: nw.LazyFrame[Any] = nw.from_native(held).lazy()
        return kept


class SparkEngine(FrameEngine):
    """A PySpark frame."""

    remote = True

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once; they are in the memory of this machine for that time."""
        yield from self.collect(self.lazy().select(list(columns)))

    def hold(self, frame: nw.LazyFrame[Any], person: str, most: int) -> nw.LazyFrame[Any]:
        """Return a frame with at most so many rows of each person, drawn once."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        rows = nw.to_native(frame)
        rank = f.row_number().over(Window.partitionBy(rows[person]).orderBy(f.rand()))
        drawn = rows.withColumn("margrave_rank", rank).filter(f.col("margrave_rank") <= most)
        held = drawn.drop("margrave_rank", person).localCheckpoint()
        self._stack.callback(held.unpersist)
        kept: nw.LazyFrame[Any] = nw.from_native(held).lazy()
        return kept


def _cursor_rows(connection: Any, query: str, schema: pa.Schema) -> Generator[pa.RecordBatch, None, None]:  # noqa: ANN401
    """Yield the rows of a query, a batch at a time, by a cursor on the server."""
    with connection.cursor(name=f"margrave_{uuid4().hex}") as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield pa.RecordBatch.from_struct_array(pa.array(rows, type=pa.struct(list(schema))))


@contextmanager
def _one_state(connection: Any) -> Iterator[None]:  # noqa: ANN401 - psycopg is an extra
    """Read one state of a PostgreSQL database, and leave nothing in it."""
    from psycopg import IsolationLevel
    from psycopg.pq import TransactionStatus

    level = connection.isolation_level
    # Inside a transaction of the caller's own it is for the caller to say what is seen.
    if connection.info.transaction_status == TransactionStatus.IDLE:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
    try:
        with connection.transaction(force_rollback=True):
            yield
    finally:
        if not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE:
            connection.isolation_level = level


def open_url(url: str, table: str | None, query: str | None, stack: ExitStack) -> Engine:
    """Open a table, or the result of a query, of a PostgreSQL database.

    Parameters
    ----------
    url
        Where the database is: ``postgresql://user:password@host:port/database``, with all that libpq understands.
    table
        The name of the table, with its schema before a dot where there is one.
    query
        A query in its place.
    stack
        Where what has to be closed is put.
    """
    try:
        import ibis
        import psycopg
    except ImportError:
        raise DataError("a postgresql:// URL needs more packages; pip install 'margrave[postgres]'") from None
    address, named = split_url(url)
    connection = stack.enter_context(psycopg.connect(address))
    stack.enter_context(_one_state(connection))
    backend = ibis.postgres.from_connection(connection)
    if query is not None:
        return IbisEngine(backend.sql(query), stack)
    schema, _, name = (table or named or "").rpartition(".")
    return IbisEngine(backend.table(name, database=schema or None), stack)
