"""What every engine offers, and the engines of this process: frames, Arrow data and DuckDB.

An engine names its columns, returns batches of them as Arrow data (*fetch*), and offers itself as a lazy frame of
narwhals, which translates group-bys into the language of the engine (*push-down*).
"""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import narwhals as nw
import numpy as np
import pyarrow as pa

from margrave.data.persons import FOLDED, PERSON, ROW, Choice, canonical_ids, keep_rows, plain_ids, refused_ids
from margrave.data.read_only import connect, quoted, stream, text
from margrave.errors import DataError, suggestion

# Rows of a batch that an engine is asked for: few enough to stay in the caches, enough to make a call worth its while.
BATCH_ROWS = 2**17
# The column of numbers of rows.
COUNT = "margrave_count"
# Types of DuckDB whose values are equal in one sense only, and come as Arrow data as they are.
_DUCK_IDS = (
    *("boolean", "tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint"),
    *("uhugeint", "float", "double", "decimal", "varchar", "enum", "blob", "uuid", "date", "time", "time_ns"),
    *("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone"),
)
# Texts that are the same to collations that ignore case, accents or the form of Unicode.
_IDS, _ROWS = "margrave_ids", "margrave_coded"
# How many tables one query of DuckDB counts: each has its own groups in memory.
_MOST_SETS = 32
_ALIKE = ("a", "A", "\u00e1", "a\u0301")

# Readers that were read: what is left of them must not pass for a table.
_READ: WeakSet[Any] = WeakSet()


@dataclass(frozen=True)
class Costs:
    """What the work of an engine costs, in seconds, as far as the choice between fetching and pushing down needs it.

    They are measured once, on tables that were made up; a choice never measures the table that it is made for.

    Attributes
    ----------
    fetched
        Of a value that is fetched and encoded here.
    coded
        Of a value that the engine codes.
    grouped
        Of a row in a table that the engine counts.
    sent
        Of a cell that the engine sends.
    query
        Of a query, whatever it asks.
    sets
        How many tables one query counts.
    """

    fetched: float
    coded: float
    grouped: float
    sent: float
    query: float
    sets: int = 1


class Engine(ABC):
    """A private table that can be read.

    Attributes
    ----------
    names
        The columns.
    untyped
        Whether all values are texts that numbers and booleans have to be read from.
    decimal
        The mark before the fraction of a number that is read from a text.
    remote
        Whether the rows are elsewhere, so that it pays to count there.
    threaded
        Whether batches may be read by another thread than the one that opened it.
    chooses
        Whether it can tell by itself which rows of a person are kept (`margrave.data.persons`).
    chooses_here
        Whether the codes of all rows come into this process for that, so that ids of every allowed type will do.
    costs
        What its work costs, for the choice between fetching and pushing down.
    joins
        Whether `text_table` gives a table.
    maps
        Whether it runs functions of Python on batches of rows where the rows are, as a cluster does
        (`margrave.data.counting.executors`).
    """

    names: tuple[str, ...]
    untyped = False
    decimal = "."
    remote = False
    threaded = True
    chooses = True
    chooses_here = True
    # As measured in this process: a query of a frame, or of DuckDB, is soon made.
    costs = Costs(fetched=1e-8, coded=1e-8, grouped=5e-8, sent=1e-7, query=0.01)
    joins = False
    maps = False

    def __init__(self, names: Sequence[str], stack: ExitStack) -> None:
        self.names = tuple(names)
        self._stack = stack

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once."""

    @abstractmethod
    def lazy(self) -> nw.LazyFrame[Any]:
        """Return the table as a lazy frame; what it was asked for may be asked for again and again."""

    def column(self, name: str) -> str:
        """Return the name that a column has in `lazy`."""
        return name

    def native(self, frame: nw.LazyFrame[Any]) -> Any:  # noqa: ANN401 - a frame of the engine
        """Return a frame that was made from `lazy` as a frame of the engine, which has ``mapInArrow`` where it maps."""
        return nw.to_native(frame)

    def collected(self, frame: Any) -> pa.Table:  # noqa: ANN401 - a frame of the engine
        """Return the rows of a frame of the engine."""
        table: pa.Table = nw.from_native(frame).lazy().collect("pyarrow").to_native()
        return table

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

    def coded(self, codes: Mapping[str, str], kept: Mapping[str, str]) -> nw.LazyFrame[Any] | None:
        """Return rows of codes as a lazy frame; None where the engine takes expressions of narwhals only.

        Parameters
        ----------
        codes
            What each column of codes is, as PostgreSQL writes it.
        kept
            The columns of the table that are kept as they are, by the names that they get.
        """
        return None

    def text_table(self, codes: Mapping[str, int], names: tuple[str, str]) -> nw.LazyFrame[Any]:
        """Return a table of labels and their codes that `lazy` can be joined with, where ``joins``.

        Parameters
        ----------
        codes
            The code of each label.
        names
            The names of the two columns.
        """
        raise NotImplementedError

    def id_fault(self, column: str) -> str:
        """Return what keeps a column from telling persons apart, in words; empty if nothing is known that does.

        `margrave.data.persons` knows what follows from the type of Arrow data; this is what the type of the engine
        says in addition.
        """
        return ""

    def groups(
        self, frame: nw.LazyFrame[Any], sets: Sequence[Sequence[str]], choice: Choice | None = None
    ) -> Iterator[pa.Table]:
        """Yield, for each set of columns, how many rows there are of each combination of their values.

        Parameters
        ----------
        frame
            Made from `lazy`; where rows are chosen, all its columns but ``PERSON`` and ``ROW`` are to be counted.
        sets
            The columns of each table.
        choice
            How many rows of each person are counted, and the salt that decides which; all rows if None.
        """
        rows = frame if choice is None else self._chosen(frame, choice)
        for names in sets:
            length = nw.len().alias(COUNT)
            grouped = rows.group_by(*names).agg(length) if names else rows.select(length)
            batches = list(self.collect(grouped))
            yield pa.Table.from_batches(batches) if batches else pa.table({key: pa.nulls(0) for key in [*names, COUNT]})

    def _chosen(self, frame: nw.LazyFrame[Any], choice: Choice) -> nw.LazyFrame[Any]:
        """Return the rows of each person that are kept; here, in this process, by the DuckDB inside margrave."""
        connection = self._stack.enter_context(connect())
        columns = coded_columns(frame)
        rows = (_with_canonical_ids(batch, choice.privacy_id) for batch in self.collect(frame))
        kept = keep_rows(connection, rows, columns, [ROW], choice)
        return nw.from_native(kept).lazy()


def grouping_sets(rows: str, names: Sequence[str], sets: Sequence[Sequence[str]]) -> str:
    """Return the query that counts several tables at once.

    Parameters
    ----------
    rows
        The rows, as SQL has them after FROM.
    names
        All columns of codes, which are never null.
    sets
        The columns of each table.
    """
    listed = ", ".join(f"({', '.join(group)})" for group in sets)
    return f"SELECT {', '.join([*names, f'count(*) AS {COUNT}'])} FROM {rows} GROUP BY GROUPING SETS ({listed})"


def split_sets(groups: pa.Table, names: Sequence[str], sets: Sequence[Sequence[str]]) -> Iterator[pa.Table]:
    """Yield the groups of each set of `grouping_sets`; a column is null exactly in the groups of sets without it."""
    there = [groups.column(name).is_valid().to_numpy() for name in names]
    patterns = np.packbits(np.array(there, dtype=np.bool_).reshape(len(names), groups.num_rows), axis=0)
    for group in sets:
        wanted = np.packbits(np.array([name in group for name in names], dtype=np.bool_))
        yield groups.filter(pa.array((patterns == wanted[:, None]).all(axis=0)))


def values_sql(codes: Mapping[str, int], names: tuple[str, str]) -> str:
    """Return the query for a table of labels and their codes."""
    listed = ", ".join(f"({text(label)}, {code})" for label, code in codes.items())
    return f"SELECT * FROM (VALUES {listed}) AS margrave_labels({', '.join(names)})"


def coded_columns(frame: nw.LazyFrame[Any]) -> list[str]:
    """Return the columns of rows to choose from that are to be counted."""
    return [name for name in frame.collect_schema().names() if name not in (PERSON, ROW)]


def _with_canonical_ids(batch: pa.RecordBatch, privacy_id: str) -> pa.RecordBatch:
    """Return rows with their ids in the form of `canonical_ids`."""
    place = batch.schema.get_field_index(PERSON)
    return batch.set_column(place, PERSON, canonical_ids(plain_ids(batch.column(place), privacy_id)))


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
            raise DataError("this Arrow reader was already read, and it can be read only once", remedy="make a new one")
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

    joins = True

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

    def text_table(self, codes: Mapping[str, int], names: tuple[str, str]) -> nw.LazyFrame[Any]:
        """Return a table of labels and their codes."""
        frame: nw.LazyFrame[Any] = nw.from_native(self._relation.query(_IDS, values_sql(codes, names))).lazy()
        return frame

    def groups(
        self, frame: nw.LazyFrame[Any], sets: Sequence[Sequence[str]], choice: Choice | None = None
    ) -> Iterator[pa.Table]:
        """Yield the groups of each set, several sets a query."""
        rows = frame if choice is None else self._chosen(frame, choice)
        relation = nw.to_native(rows)
        for begin in range(0, len(sets), _MOST_SETS):
            some = sets[begin : begin + _MOST_SETS]
            names = list(dict.fromkeys(name for group in some for name in group))
            groups = relation.query(_ROWS, grouping_sets(_ROWS, names, some)).to_arrow_table()
            yield from split_sets(groups, names, some)

    def id_fault(self, column: str) -> str:
        """Return what keeps a column from telling persons apart, by its type and its collation."""
        kind = self._relation.types[self.names.index(column)]
        if kind.id not in _DUCK_IDS:
            return f"ids of type {kind}"
        return FOLDED if kind.id == "varchar" and self._folds(column) else ""

    def _folds(self, column: str) -> bool:
        """Tell whether the collation of a column treats different texts as equal; no row is read."""
        nothing = self._relation.project(f"{quoted(column)} AS id").limit(0)
        values = ", ".join(f"('{text}')" for text in _ALIKE)
        texts = f"(VALUES {values}) AS texts(given) LEFT JOIN {_IDS} ON true"
        asked = f"SELECT count(DISTINCT coalesce(id, given)) FROM {texts}"
        return bool(nothing.query(_IDS, asked).fetchall()[0][0] < len(_ALIKE))


def _plainly_compared(name: str, kind: Any) -> str:  # noqa: ANN401 - a type of DuckDB
    """Return a column as SQL writes it; texts without the collation of their table or of their connection."""
    column = quoted(name)
    texts = str(kind) == "VARCHAR" or kind.id == "enum"
    return f'(CAST({column} AS VARCHAR) COLLATE "C") AS {column}' if texts else column


def require_columns(
    engine: Engine,
    columns: tuple[str, ...],
    *,
    privacy_id: str | None = None,
    counts: str | None = None,
    for_custodian: bool = False,
) -> None:
    """Raise `DataError` if a table lacks a column.

    The first line of a text file may be a row, if its header was forgotten: then a name that is merely similar to the
    one asked for may be a value, and only one that differs in case, blanks and signs is suggested.

    Parameters
    ----------
    engine
        The table.
    columns
        The columns that are needed.
    privacy_id, counts
        Two more, if given; these names need not be in the domain.
    for_custodian
        Whether only the custodian of the table sees the message.
    """
    named = "name its columns as the domain does"
    if engine.untyped:
        named += ", or if a CSV file has no header, give names=… (--names age,sex)"
    remedies = dict.fromkeys(columns, named)
    if counts is not None:
        remedies[counts] = "name the column that says how often each row counts by counts=… (--counts)"
    if privacy_id is not None:
        remedies[privacy_id] = "name the column that identifies the person of each row by privacy_id=… (--privacy-id)"
    for name, remedy in remedies.items():
        if name not in engine.names:
            hint = suggestion(name, engine.names) if for_custodian or not engine.untyped else _hint(name, engine.names)
            raise DataError(f"the table has no column {name!r}{hint or f'; {remedy}'}")


def require_ids(engine: Engine, privacy_id: str) -> None:
    """Raise `DataError` if the engine treats different ids as equal, or changes ids when it returns them.

    Parameters
    ----------
    engine
        The table.
    privacy_id
        The column of ids.
    """
    fault = engine.id_fault(privacy_id)
    if fault:
        raise refused_ids(privacy_id, fault)


def _hint(name: str, known: tuple[str, ...]) -> str:
    """Return which name may be meant, if one differs only in case, blanks, signs and Unicode form."""
    alike = [other for other in known if _plain(other) == _plain(name)]
    return suggestion(name, alike) or (f"; did you mean {alike[0]!r}?" if alike else "")


def _plain(name: str) -> str:
    """Return the letters and digits of a name."""
    return "".join(character for character in unicodedata.normalize("NFC", name).casefold() if character.isalnum())
