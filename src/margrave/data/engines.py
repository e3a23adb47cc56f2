"""What a table must offer, wherever it is kept, and the engines of this process: frames, Arrow data and DuckDB.

An engine names its columns, hands over batches of them as Arrow data (*fetch*), and offers itself as a lazy frame of
narwhals, which turns group-bys into whatever the engine speaks (*push-down*).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any
from weakref import WeakSet

import narwhals as nw
import pyarrow as pa

from margrave.data.embedded import connect, kept_rows, quoted, stream
from margrave.errors import DataError

# Rows of a batch that an engine is asked for: few enough to stay in the caches, enough to make a call worth its while.
BATCH_ROWS = 2**17


# Readers that were read: what is left of them must not pass for a table.
_READ: WeakSet[Any] = WeakSet()


class Engine(ABC):
    """A private table that can be read.

    Attributes
    ----------
    names
        The columns.
    untyped
        Whether all values are texts that numbers and truth values have to be read from.
    decimal
        The mark before the fraction of a number that is read from a text.
    remote
        Whether the rows are elsewhere, so that it pays to count there.
    threaded
        Whether batches may be read by another thread than the one that opened it.
    """

    names: tuple[str, ...]
    untyped = False
    decimal = "."
    remote = False
    threaded = True

    def __init__(self, names: Sequence[str], stack: ExitStack) -> None:
        self.names = tuple(names)
        self._stack = stack

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once."""

    @abstractmethod
    def lazy(self) -> nw.LazyFrame[Any]:
        """Return the table as a lazy frame; what it was asked for may be asked for again and again."""

    def bytewise(self, columns: Sequence[str]) -> frozenset[str]:
        """Return those of some columns of texts that the engine is known to compare byte for byte.

        Others may take texts that differ in case, in blanks or in accents for equal. In this process all are compared
        byte for byte.
        """
        return frozenset(columns)

    def collect(self, frame: nw.LazyFrame[Any]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a frame that was made from `lazy`."""
        table: pa.Table = frame.collect("pyarrow").to_native()
        yield from table.to_batches()

    def hold(self, frame: nw.LazyFrame[Any], person: str, most: int) -> nw.LazyFrame[Any]:
        """Return a frame with at most so many rows of each person, drawn once; it is dropped when the engine closes.

        Parameters
        ----------
        frame
            Made from `lazy`.
        person
            The column that tells whose row it is; left out of what is returned.
        most
            How many rows of one person are kept.
        """
        connection = self._stack.enter_context(connect())
        return nw.from_native(kept_rows(connection, self.collect(frame), person, most)).lazy()


class FrameEngine(Engine):
    """A frame in memory, or a lazy one of Polars: whatever narwhals knows."""

    def __init__(self, frame: object, stack: ExitStack) -> None:
        self._frame: Any = nw.from_native(frame)
        super().__init__(self._frame.collect_schema().names(), stack)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once."""
        chosen = self._frame.select(list(columns))
        if isinstance(chosen, nw.LazyFrame):
            for part in nw.to_native(chosen).collect_batches(chunk_size=BATCH_ROWS):
                yield from part.to_arrow().to_batches()
            return
        rows = len(chosen)
        # A slice at a time: the whole as Arrow data would take as much memory again.
        for begin in range(0, rows, 8 * BATCH_ROWS):
            yield from chosen[begin : begin + 8 * BATCH_ROWS].to_arrow().to_batches(max_chunksize=8 * BATCH_ROWS)

    def lazy(self) -> nw.LazyFrame[Any]:
        """Return the table as a lazy frame."""
        frame = self._frame
        if frame.implementation.is_pandas():  # whose columns of objects have no type that an engine could group by
            frame = nw.from_native(_without_null_types(frame.to_arrow()))
        lazy: nw.LazyFrame[Any] = frame.lazy()
        return lazy


def _without_null_types(table: pa.Table) -> pa.Table:
    """Return a table whose columns all have a type; one without any value gets some."""
    fields = [pa.field(field.name, pa.int8()) if pa.types.is_null(field.type) else field for field in table.schema]
    return table.cast(pa.schema(fields))


class ArrowEngine(Engine):
    """Arrow data that comes in batches: a dataset, or a reader, which can be read once."""

    def __init__(self, data: Any, stack: ExitStack) -> None:  # noqa: ANN401 - pyarrow declares no types
        self._data = data
        super().__init__(data.schema.names, stack)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once."""
        if not isinstance(self._data, pa.RecordBatchReader):
            yield from self._data.scanner(columns=list(columns), batch_size=BATCH_ROWS).to_batches()
            return
        if self._data in _READ:
            raise DataError("this reader of Arrow data was read before, and it can be read once; make a new one")
        _READ.add(self._data)
        for batch in self._data:
            yield batch.select(list(columns))

    def lazy(self) -> nw.LazyFrame[Any]:
        """Return the table as a lazy frame; a reader is read into memory."""
        batches = list(self.batches(self.names))
        schema = batches[0].schema if batches else self._data.schema
        frame: nw.LazyFrame[Any] = nw.from_native(pa.Table.from_batches(batches, schema=schema)).lazy()
        return frame


class DuckEngine(Engine):
    """A relation of DuckDB."""

    def __init__(self, relation: Any, stack: ExitStack) -> None:  # noqa: ANN401 - its class moves between versions
        self._relation = relation
        super().__init__(relation.columns, stack)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once."""
        chosen = self._relation.project(", ".join(quoted(name) for name in columns))
        yield from stream(chosen, BATCH_ROWS)

    def lazy(self) -> nw.LazyFrame[Any]:
        """Return the table as a lazy frame, in which texts are compared byte for byte."""
        columns = [_plainly_compared(*column) for column in zip(self.names, self._relation.types, strict=True)]
        frame: nw.LazyFrame[Any] = nw.from_native(self._relation.project(", ".join(columns))).lazy()
        return frame


def _plainly_compared(name: str, kind: Any) -> str:  # noqa: ANN401 - a type of DuckDB
    """Return a column as SQL writes it; texts without the collation of their table or of their connection."""
    column = quoted(name)
    texts = str(kind) == "VARCHAR" or kind.id == "enum"
    return f'(CAST({column} AS VARCHAR) COLLATE "C") AS {column}' if texts else column
