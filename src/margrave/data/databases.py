"""Tables in databases and on clusters: Ibis tables, PostgreSQL by a URL, and PySpark frames.

PostgreSQL is read in one transaction that sees one state of the database (REPEATABLE READ) and is rolled back in the
end, so that nothing is left there. A frame of Spark that rows were drawn from is held by a local checkpoint, so that a
part that is computed again cannot draw again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from logging import LogRecord
from typing import Any
from uuid import uuid4

import narwhals as nw
import pyarrow as pa

from margrave.data.addresses import split_url
from margrave.data.engines import BATCH_ROWS, DuckEngine, Engine, FrameEngine
from margrave.errors import DataError

# Back ends of Ibis that run inside this process: fetching their rows costs nothing but time.
_IN_PROCESS = ("polars", "datafusion", "sqlite", "chdb")
# Which of some columns are text (25) or varchar (1043), of a collation that takes no two texts for equal. No row is
# read: the columns of an outer join with nothing have their types all the same.
_BYTEWISE = """
    SELECT {tests} FROM (SELECT 1) AS one
    LEFT JOIN LATERAL (SELECT * FROM ({query}) AS asked LIMIT 0) AS q({names}) ON true
"""
_IS_BYTEWISE = """
    pg_typeof({name})::oid IN (25, 1043)
    AND (SELECT collisdeterministic FROM pg_collation WHERE oid = pg_collation_for({name})::regcollation)
"""
# They print the message of a failed query, which may quote values, on the screen.
_TALKATIVE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Where Spark notes that a column is CHAR or VARCHAR, which it compares by rules of their own.
_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"


def open_ibis(table: Any, stack: ExitStack) -> Engine:  # noqa: ANN401 - Ibis is an extra
    """Open an Ibis table, on any back end."""
    uuids = {name: table[name].cast("string") for name, kind in table.schema().items() if kind.is_uuid()}
    plain, backend = table.mutate(**uuids) if uuids else table, table.get_backend()
    if backend.name == "duckdb":
        return IbisDuckEngine(_relation(plain, backend), stack)
    return PostgresEngine(plain, stack) if backend.name == "postgres" else IbisEngine(plain, stack)


def _relation(table: Any, backend: Any) -> Any:  # noqa: ANN401 - Ibis is an extra
    """Return an Ibis table on DuckDB as a relation of DuckDB: Ibis 12 asks for a method that DuckDB 2 has no more."""
    _hand_over(table)
    return backend.con.sql(backend.compile(table))


def _hand_over(table: Any) -> None:  # noqa: ANN401 - Ibis is an extra
    """Ask for no rows, so that Ibis hands the tables that it holds in memory over to the back end."""
    table.limit(0).to_pyarrow()


class IbisDuckEngine(DuckEngine):
    """An Ibis table on DuckDB."""

    # The connection belongs to the caller, who may use it meanwhile.
    threaded = False


class IbisEngine(Engine):
    """An Ibis table, on a back end whose ways with texts are not known."""

    # A connection may belong to the thread that made it, as that of SQLite does.
    threaded = False

    def __init__(self, table: Any, stack: ExitStack) -> None:  # noqa: ANN401 - Ibis is an extra
        self._table, self._backend = table, table.get_backend()
        self.remote = self._backend.name not in _IN_PROCESS
        super().__init__(table.columns, stack)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once."""
        yield from self._batches(self._table.select(*columns))

    def lazy(self) -> nw.LazyFrame[Any]:
        """Return the table as a lazy frame."""
        frame: nw.LazyFrame[Any] = nw.from_native(self._table).lazy()
        return frame

    def bytewise(self, columns: Sequence[str]) -> frozenset[str]:
        """Return those of some columns of texts that are known to be compared byte for byte: none."""
        return frozenset()

    def collect(self, frame: nw.LazyFrame[Any]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a frame that was made from `lazy`."""
        yield from self._batches(nw.to_native(frame))

    def _batches(self, table: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - Ibis is an extra
        """Yield the rows of an Ibis table."""
        yield from table.to_pyarrow_batches(chunk_size=BATCH_ROWS)

    def hold(self, frame: nw.LazyFrame[Any], person: str, most: int) -> nw.LazyFrame[Any]:
        """Return a frame with at most so many rows of each person, drawn once, in a temporary table."""
        import ibis

        name = f"margrave_{uuid4().hex}"
        rows = nw.to_native(frame).mutate(margrave_word=ibis.random())
        window = ibis.window(group_by=rows[person], order_by=rows.margrave_word)
        ranked = rows.mutate(margrave_rank=ibis.row_number().over(window))
        drawn = ranked.filter(ranked.margrave_rank < most).drop("margrave_word", "margrave_rank", person)
        held = self._backend.create_table(name, drawn, temp=True)
        self._let_go(name)
        kept: nw.LazyFrame[Any] = nw.from_native(held).lazy()
        return kept

    def _let_go(self, name: str) -> None:
        """See to it that a temporary table is dropped in the end."""
        self._stack.callback(self._backend.drop_table, name, force=True)


class PostgresEngine(IbisEngine):
    """An Ibis table on PostgreSQL."""

    def __init__(self, table: Any, stack: ExitStack) -> None:  # noqa: ANN401 - Ibis is an extra
        stack.enter_context(_one_state(table.get_backend().con))
        super().__init__(table, stack)

    def bytewise(self, columns: Sequence[str]) -> frozenset[str]:
        """Return those of some columns whose type and collation compare texts byte for byte, by the catalogue."""
        chosen = self._table.select(*columns)
        _hand_over(chosen)
        places = [f"c{place}" for place in range(len(columns))]
        tests = ", ".join(_IS_BYTEWISE.format(name=f"q.{place}") for place in places)
        query = _BYTEWISE.format(tests=tests, query=self._backend.compile(chosen), names=", ".join(places))
        answers = self._backend.con.execute(query).fetchone()
        return frozenset(name for name, answer in zip(columns, answers, strict=True) if answer is True)

    def _batches(self, table: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - Ibis is an extra
        """Yield the rows of an Ibis table."""
        _hand_over(table)
        rows = _cursor_rows(self._backend.con, self._backend.compile(table), table.schema().to_pyarrow())
        self._stack.callback(rows.close)  # a cursor that is left half-way has to go before its transaction
        yield from rows

    def _let_go(self, name: str) -> None:
        """Do nothing: the transaction is rolled back."""


class SparkEngine(FrameEngine):
    """A PySpark frame."""

    remote = True

    def __init__(self, frame: object, stack: ExitStack) -> None:
        stack.enter_context(_silenced())
        super().__init__(frame, stack)

    def bytewise(self, columns: Sequence[str]) -> frozenset[str]:
        """Return those of some columns that are plain strings, without a collation or a length."""
        fields = {field.name: field for field in nw.to_native(self._frame).schema.fields}
        return frozenset(
            name
            for name in columns
            if fields[name].dataType.simpleString() == "string" and _CHAR_TYPE not in fields[name].metadata
        )

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


@contextmanager
def _silenced() -> Iterator[None]:
    """Keep what PySpark says of failed queries off the screen."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # before PySpark 4 there is none
        yield
        return

    def nothing(record: LogRecord) -> bool:
        return False

    loggers = [PySparkLogger.getLogger(name) for name in _TALKATIVE]
    for logger in loggers:
        logger.addFilter(nothing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(nothing)


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
        return open_ibis(backend.sql(query), stack)
    schema, _, name = (table or named or "").rpartition(".")
    return open_ibis(backend.table(name, database=schema or None), stack)
