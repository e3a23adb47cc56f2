"""Fetch: read all rows once, encode them into small integers, and count all tables in this process.

Only the counts and a chunk of rows are in memory, however many rows there are. Where the rows of a person are limited,
the embedded DuckDB holds all rows once, as codes. One thread reads the next batch of rows while the others count the
last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

import numpy as np
import pyarrow as pa

from margrave.algebra.kernels import Integers
from margrave.algebra.layout import Layout
from margrave.algebra.threads import thread_count
from margrave.data.counting.rows import RowCoder, Rows
from margrave.data.counting.tally import Codes, Tally, chunk_rows
from margrave.data.description import Data
from margrave.data.engines.engine import Engine
from margrave.data.opening import kind_of, opened, require_columns, require_ids
from margrave.data.persons import PERSON, Choice, keep_rows
from margrave.data.read_only import connect, stream
from margrave.data.redaction import quiet_items
from margrave.domain import Domain

T = TypeVar("T")

_AHEAD = 2
_SECONDS = 0.1


def batches(data: Data, columns: Sequence[str] | None = None) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield all rows of some columns as Arrow data, and whether they are texts to read numbers from. PRIVATE.

    Parameters
    ----------
    data
        The private table.
    columns
        Which columns, by name; all if None.
    """
    yield from quiet_items(_opened_batches(data, columns), f"the {kind_of(data.source)}")


def _opened_batches(data: Data, columns: Sequence[str] | None) -> Iterator[tuple[pa.RecordBatch, bool]]:
    with opened(data.source, data.table, data.query, data.text_format) as engine:
        names = engine.names if columns is None else tuple(columns)
        require_columns(engine, names)
        for batch in engine.batches(names):
            yield batch, engine.untyped


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
        The column that tells what each row counts for, if there is one.
    choice
        Whose row it is, how many rows of one person are kept, and the salt that decides which; None: all are.
    """
    privacy_id = None if choice is None else choice.privacy_id
    needed = {k for members in layout.sets[layout.outer :] for k in members}
    coder = RowCoder(
        domain, needed, untyped=engine.untyped, decimal=engine.decimal, counts=counts, privacy_id=privacy_id
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
    # In the order of the domain, as an engine writes them that chooses by itself.
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
    """Return rows with their persons as Arrow data; some attributes, by name."""
    arrays = [pa.array(rows.codes[k]) for k in names]
    return pa.RecordBatch.from_arrays([*arrays, rows.persons], [*names.values(), PERSON])


def _coded(engine: Engine, coder: RowCoder, attributes: int) -> Iterator[Rows]:
    """Yield the rows of a table as codes, read ahead where the engine lets another thread read."""
    # Some column has to be read even where only the number of rows is counted.
    read = engine.batches(coder.columns or engine.names[:1])
    largest = chunk_rows(attributes, 1)
    with ThreadPoolExecutor(thread_count()) as threads:
        for batch in read_ahead(read) if engine.threaded else read:
            for begin in range(0, batch.num_rows, largest):
                yield coder.code(batch.slice(begin, largest), threads)


def _chunks(rows: Iterator[Rows], attributes: int) -> Iterator[Rows]:
    """Yield the same rows in pieces that are worth the counting: small batches are put together."""
    waiting: list[Rows] = []
    for part in rows:
        waiting.append(part)
        enough = chunk_rows(attributes, part.codes.itemsize)
        if sum(piece.codes.shape[1] for piece in waiting) >= enough // 2:
            yield _together(waiting)
            waiting = []
    if waiting:
        yield _together(waiting)


def _together(parts: Sequence[Rows]) -> Rows:
    """Return several pieces as one."""
    if len(parts) == 1:
        return parts[0]
    codes: Codes = np.concatenate([part.codes for part in parts], axis=1)
    weights = [part.weights for part in parts if part.weights is not None]
    return Rows(codes, np.concatenate(weights) if weights else None)


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator that a thread of its own runs, at most two of them ahead; pass on its failures."""
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
        except BaseException as error:  # any error belongs to the thread that waits
            put(True, error)

    thread = Thread(target=work, name="margrave reader", daemon=True)
    thread.start()
    try:
        yield from _taken(waiting)
    finally:
        stop.set()
        thread.join()


def _taken(waiting: Queue[tuple[bool, object]]) -> Iterator[T]:
    """Yield what the thread has read, up to the end or the failure that it met."""
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
