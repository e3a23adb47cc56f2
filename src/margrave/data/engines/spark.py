"""PySpark frames, of a session in this process or of Spark Connect.

Columns get names of ours before anything is asked of them: in an expression of Spark a dot in a name means a field of a
structure, and names that differ only in case are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from logging import LogRecord
from typing import Any

import narwhals as nw
import pyarrow as pa

from margrave.data.engines.engine import Costs, FrameEngine, coded_columns
from margrave.data.persons import FOLDED, ROW, Choice, Dialect, chosen_sql
from margrave.errors import DataError

_SPARK_IDS = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"),
    *("binary", "date", "timestamp", "timestamp_ntz"),
)
_SPARK = Dialect(digest="sha2({}, 256)")
# They print the message of a failed query, which may quote values, on the screen.
_NOISY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Where Spark notes that a column is CHAR or VARCHAR, which it compares by rules of their own.
_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_COLUMN = "margrave_column_{}"


class SparkEngine(FrameEngine):
    """A PySpark frame."""

    remote = True
    chooses_here = False
    costs = Costs(fetched=1e-7, coded=1e-8, grouped=1e-7, sent=1e-6, query=0.5)
    maps = True

    def __init__(self, frame: Any, stack: ExitStack) -> None:  # noqa: ANN401 - PySpark is an extra
        stack.enter_context(_silenced())
        self._fields = list(frame.schema.fields)
        super().__init__(frame.toDF(*(_COLUMN.format(place) for place in range(len(self._fields)))), stack)
        self.names = tuple(field.name for field in self._fields)

    def column(self, name: str) -> str:
        """Return the name that a column has in `lazy`."""
        if self.names.count(name) > 1:
            raise DataError(f"the frame has two columns {name!r}", remedy="give each its own name, or drop one")
        return _COLUMN.format(self.names.index(name))

    def bytewise(self, columns: Sequence[str]) -> frozenset[str]:
        """Return those of some columns that are plain strings, without a collation or a length."""
        return frozenset(
            field.name
            for field in self._fields
            if field.name in columns
            and field.dataType.simpleString() == "string"
            and _CHAR_TYPE not in (field.metadata or {})
        )

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once; they are in the memory of this machine for that time."""
        for batch in self.collect(self.lazy().select([self.column(name) for name in columns])):
            yield batch.rename_columns(list(columns))

    def id_fault(self, column: str) -> str:
        """Return what keeps a column from telling persons apart, by its type and its collation."""
        field = self._fields[self.names.index(column)]
        kind = field.dataType.simpleString()
        if kind.startswith(("string", "char", "varchar")):
            padded = str((field.metadata or {}).get(_CHAR_TYPE, kind)).startswith("char")
            return FOLDED if " collate " in kind or padded else ""
        return "" if kind.partition("(")[0] in _SPARK_IDS else f"ids of type {kind}"

    def _chosen(self, frame: nw.LazyFrame[Any], choice: Choice) -> nw.LazyFrame[Any]:
        """Return the rows of each person that are kept, held so that they are chosen once."""
        held = chosen_on_spark(nw.to_native(frame), coded_columns(frame), choice).localCheckpoint()
        self._stack.callback(held.unpersist)
        kept: nw.LazyFrame[Any] = nw.from_native(held).lazy()
        return kept


def chosen_on_spark(rows: Any, columns: Sequence[str], choice: Choice) -> Any:  # noqa: ANN401 - PySpark is an extra
    """Return the rows of a PySpark frame that are kept.

    Parameters
    ----------
    rows
        A frame with the columns ``PERSON`` and ``ROW``.
    columns
        The columns to keep.
    choice
        How many rows of each person are kept, and the salt.
    """
    session = rows.sparkSession
    # As a frame, so that it is in no query and in no plan, which Spark shows and may store.
    salt = session.createDataFrame(_salt_rows(choice.salt), "margrave_salt string")
    source = "(SELECT * FROM {rows} CROSS JOIN {salt}) AS margrave_rows"
    return session.sql(chosen_sql(source, columns, [ROW], choice.most, "margrave_salt", _SPARK), rows=rows, salt=salt)


def _salt_rows(salt: bytes) -> pa.Table | list[tuple[str]]:
    """Return the salt as rows that a Spark session takes.

    From Arrow, the rows are read by Spark itself. From a list, they go through a Python process on a worker, which may
    not be there, or may not start in time on a busy machine; PySpark 3 takes nothing else.
    """
    from pyspark import __version__

    if __version__.startswith("3."):
        return [(salt.hex(),)]
    return pa.table({"margrave_salt": [salt.hex()]})


@contextmanager
def _silenced() -> Iterator[None]:
    """Keep what PySpark says of failed queries off the screen."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # PySpark 3 has none
        yield
        return

    def nothing(record: LogRecord) -> bool:
        return False

    loggers = [PySparkLogger.getLogger(name) for name in _NOISY_LOGGERS]
    for logger in loggers:
        logger.addFilter(nothing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(nothing)
