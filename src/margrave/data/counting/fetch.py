"""Fetch: read all rows once, encode them into small integers, and count all tables in this process.

`RowCoder` turns a batch of rows into codes, with the count and the person of each row. Only the counts and a chunk of
rows are in memory, however many rows there are. Where the rows of a person are limited, the embedded DuckDB holds all
rows once, as codes. One thread reads the next batch of rows while the others count the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from margrave.algebra.kernels import thread_count
from margrave.data.counting.tally import Codes, Tally, chunk_rows, code_type
from margrave.data.encoding import DROPPED, Encoder
from margrave.data.engines.engine import require_columns, require_ids
from margrave.data.persons import PERSON, canonical_ids, keep_rows, missing_id, plain_ids
from margrave.data.read_only import connect, stream
from margrave.errors import DataError

if TYPE_CHECKING:
    from margrave.algebra.kernels import Integers
    from margrave.algebra.layout import Layout
    from margrave.data.engines.engine import Engine
    from margrave.data.persons import Choice
    from margrave.domain.domain import Domain

T = TypeVar("T")

# How many batches are read ahead, and the seconds after which a waiting thread looks whether it must stop.
_AHEAD = 2
_SECONDS = 0.1
# Larger than the number of rows of any table; sums of such counts are cut off before they leave 64 bits (``tally``).
_LARGEST_COUNT = 2**36


def fetch_counts(
    engine: Engine,
    domain: Domain,
    layout: Layout,
    *,
    counts: str | None = None,
    choice: Choice | None = None,
) -> Integers:
    """Return the exact counts of every table of a closure, in one buffer. PRIVATE.

    Parameters
    ----------
    engine
        The table.
    domain, layout
        What is declared, and the tables to count.
    counts
        The column with the count of each row, if there is one.
    choice
        Whose row it is, how many rows of one person are kept, and the salt that decides which; None keeps all rows.
    """
    privacy_id = None if choice is None else choice.privacy_id
    needed = set(layout.attributes)
    coder = RowCoder(
        domain,
        read_attributes(domain, needed),
        untyped=engine.untyped,
        decimal=engine.decimal,
        counts=counts,
        privacy_id=privacy_id,
    )
    require_columns(engine, coder.columns, privacy_id=privacy_id, counts=counts)
    if privacy_id is not None:
        require_ids(engine, privacy_id)
    tally = Tally(layout)
    for rows in _chunks(_rows(engine, coder, domain, needed, choice), len(domain)):
        tally.add(rows.codes, rows.weights)
    return tally.counts()


def _rows(engine: Engine, coder: RowCoder, domain: Domain, needed: set[int], choice: Choice | None) -> Iterator[Rows]:
    """Yield the rows to count; those of a person are bounded after rows have been dropped."""
    coded = _coded(engine, coder, len(domain))
    first = next(coded, None)
    if first is None:
        return
    if first.persons is None or choice is None:
        yield from _with_first(first, coded)
        return
    # In the order of the domain, as an engine that chooses rows itself writes them: all must keep the same rows.
    names = {k: f"code_{k}" for k in sorted(needed)}
    columns = list(names.values())
    with connect() as connection:
        held = (_as_batch(rows, names) for rows in _with_first(first, coded))
        for batch in stream(keep_rows(connection, held, columns, columns, choice), 2**20):
            codes = np.zeros((len(domain), batch.num_rows), dtype=first.codes.dtype)
            for k, name in names.items():
                codes[k] = batch.column(name).to_numpy(zero_copy_only=False)
            yield Rows(codes)


def _with_first(first: Rows, others: Iterator[Rows]) -> Iterator[Rows]:
    yield first
    yield from others


def _as_batch(rows: Rows, names: Mapping[int, str]) -> pa.RecordBatch:
    """Return the named attributes of rows, and their persons, as Arrow data."""
    arrays = [pa.array(rows.codes[k]) for k in names]
    return pa.RecordBatch.from_arrays([*arrays, rows.persons], [*names.values(), PERSON])


def _coded(engine: Engine, coder: RowCoder, attributes: int) -> Iterator[Rows]:
    """Yield the rows of a table as codes, read ahead where the engine lets another thread read."""
    # Some column has to be read even where only the number of rows is counted.
    batches = engine.batches(coder.columns or engine.names[:1])
    largest = chunk_rows(attributes, 1)
    with ThreadPoolExecutor(thread_count()) as threads:
        for batch in read_ahead(batches) if engine.threaded else batches:
            for begin in range(0, batch.num_rows, largest):
                rows, dropped = coder.coded(batch.slice(begin, largest), threads.map)
                yield rows.without(dropped)


def _chunks(rows: Iterator[Rows], attributes: int) -> Iterator[Rows]:
    """Yield the same rows in larger pieces: small batches are joined, because each call of the counter costs time."""
    waiting: list[Rows] = []
    for part in rows:
        waiting.append(part)
        enough = chunk_rows(attributes, part.codes.itemsize)
        if sum(piece.codes.shape[1] for piece in waiting) >= enough // 2:
            yield join_rows(waiting)
            waiting = []
    if waiting:
        yield join_rows(waiting)


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Return several pieces as one."""
    if len(parts) == 1:
        return parts[0]
    codes: Codes = np.concatenate([part.codes for part in parts], axis=1)
    weights = [part.weights for part in parts if part.weights is not None]
    return Rows(codes, np.concatenate(weights) if weights else None)


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator that runs in its own thread, at most two ahead; its errors are raised here."""
    waiting: Queue[tuple[bool, object]] = Queue(_AHEAD)
    stop = Event()

    def put(last: bool, item: object) -> None:
        while not stop.is_set():
            try:
                waiting.put((last, item), timeout=_SECONDS)
                break
            except Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(False, item)
                if stop.is_set():
                    break
            put(True, None)
        except BaseException as error:  # the waiting thread raises it
            put(True, error)

    thread = Thread(target=work, name="margrave reader", daemon=True)
    thread.start()
    try:
        yield from _taken(waiting)
    finally:
        stop.set()
        thread.join()


def _taken(waiting: Queue[tuple[bool, object]]) -> Iterator[T]:
    """Yield what the thread has read, up to the end or its error."""
    while True:
        try:
            last, item = waiting.get(timeout=_SECONDS)
        except Empty:
            continue
        if isinstance(item, BaseException):
            raise item
        if last:
            return
        yield item  # type: ignore[misc]


@dataclass(frozen=True)
class Rows:
    """Rows that are kept.

    Attributes
    ----------
    codes
        Shape (attributes of the domain, rows).
    weights
        Shape (rows,); the count of each row; None if each counts once.
    persons
        Whose row each is, as `canonical_ids` writes it; None without a privacy id.
    """

    codes: Codes
    weights: Integers | None = None
    persons: pa.Array | None = None

    def without(self, dropped: NDArray[np.bool_] | None) -> Rows:
        """Return the rows that are not dropped; all if None."""
        if dropped is None or not dropped.any():
            return self
        kept = ~dropped
        return Rows(
            np.ascontiguousarray(self.codes[:, kept]),
            None if self.weights is None else self.weights[kept],
            None if self.persons is None else self.persons.filter(pa.array(kept)),
        )


class RowCoder:
    """Turns batches of a table into rows of codes.

    Parameters
    ----------
    domain
        The declared domain.
    attributes
        Which of its attributes to encode, as returned by `read_attributes`.
    untyped
        Whether all values are texts.
    decimal
        The decimal mark of numbers that are read from texts.
    counts
        The column with the count of each row, if there is one.
    privacy_id
        The column that identifies the person of each row, if there is one.
    """

    def __init__(
        self,
        domain: Domain,
        attributes: Collection[int],
        *,
        untyped: bool,
        decimal: str = ".",
        counts: str | None = None,
        privacy_id: str | None = None,
    ) -> None:
        self._domain, self._counts, self._privacy_id, self._untyped = domain, counts, privacy_id, untyped
        self._encoders = {
            k: Encoder(domain[domain.attributes[k]], untyped=untyped, decimal=decimal) for k in attributes
        }
        self._type = code_type(domain.shape)
        self._id_type: pa.DataType | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read, each once."""
        beside = [name for name in (self._counts, self._privacy_id) if name is not None]
        return tuple(dict.fromkeys([*(self._domain.attributes[k] for k in self._encoders), *beside]))

    def coded(self, batch: pa.RecordBatch, run: Callable[..., Iterable[Any]]) -> tuple[Rows, NDArray[np.bool_] | None]:
        """Return all rows of a batch, and which of them are dropped; None if none is.

        Parameters
        ----------
        batch
            The rows.
        run
            Applies a function to each column: ``map``, or that of an executor for several threads.
        """
        codes = np.zeros((len(self._domain), batch.num_rows), dtype=self._type)

        def encode(k: int) -> NDArray[np.bool_] | None:
            found = self._encoders[k].encode(batch.column(self._domain.attributes[k]))
            codes[k] = found  # DROPPED wraps around in the unsigned type; the caller removes these rows
            return found == DROPPED if self._domain[self._domain.attributes[k]].outside == "drop" else None

        rows = Rows(codes, self._weights(batch), self._persons(batch))
        drops = [gone for gone in run(encode, self._encoders) if gone is not None]
        return rows, np.logical_or.reduce(drops) if drops else None

    def _weights(self, batch: pa.RecordBatch) -> Integers | None:
        """Return the count of each row; None if each counts once."""
        return None if self._counts is None else whole_counts(batch.column(self._counts), self._counts, self._untyped)

    def _persons(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return whose row each is, in the form of `canonical_ids`; every row must have an id."""
        if self._privacy_id is None:
            return None
        persons = plain_ids(batch.column(self._privacy_id), self._privacy_id)
        if len(persons):
            self._check_type(persons.type)
        persons = canonical_ids(persons, untyped=self._untyped)
        if persons.null_count:
            raise missing_id(self._privacy_id)
        return persons

    def _check_type(self, kind: pa.DataType) -> None:
        """Refuse ids of several types: the same person may have a different id in each."""
        if self._id_type is None:
            self._id_type = kind
        if kind != self._id_type:
            raise DataError(
                f"column {self._privacy_id!r} has ids of one type in some files and of another in others, so that one "
                "person could pass for two",
                remedy="write it with one type in all of them",
            )


def read_attributes(domain: Domain, needed: Collection[int]) -> list[int]:
    """Return the attributes to read: those in a table to count, and those that may drop a row from every table."""
    return [k for k, attribute in enumerate(domain) if k in needed or attribute.outside == "drop"]


def whole_counts(column: pa.Array, name: str, untyped: bool) -> Integers:
    """Return a column of counts as whole numbers if all of them are; no value is shown.

    Parameters
    ----------
    column
        The counts, as numbers of any type, or as texts.
    name
        The name of the column.
    untyped
        Whether they may be texts.
    """
    counts = _as_integers(column, untyped)
    if counts is None or column.null_count or (counts.size and not 0 <= int(counts.min()) <= int(counts.max())):
        raise DataError(f"column {name!r} is not made of whole numbers of at least 0", remedy="give one count a row")
    if counts.size and int(counts.max()) > _LARGEST_COUNT:
        raise DataError(
            f"column {name!r} has counts above 2³⁶, more than any table has rows", remedy="check the column"
        )
    return counts


def _as_integers(column: pa.Array, untyped: bool) -> Integers | None:
    """Return the numbers of a column, or None if they are not whole."""
    texts = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if pa.types.is_boolean(column.type) or (texts and not untyped):
        return None
    try:
        numbers: NDArray[Any] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        return None
    return numbers if numbers.dtype == np.int64 else None
