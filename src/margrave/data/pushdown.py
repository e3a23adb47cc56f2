"""Push-down: the engine counts, one GROUP BY for each table that is in no other; smaller tables are sums of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from margrave.algebra.kernels import Integers
from margrave.algebra.layout import Layout
from margrave.data.counting import sum_inner
from margrave.data.engines import Engine
from margrave.data.keys import Key
from margrave.data.opening import require_columns
from margrave.data.rows import missing_id, read
from margrave.domain import Domain
from margrave.errors import DataError

_COUNT, _PERSON = "margrave_count", "margrave_person"
# Beyond either, fetching the rows once is less work than so many queries, or than so many groups that come back.
_MOST_QUERIES = 1000
_MOST_CELLS = 10**7


def pays(engine: Engine, layout: Layout) -> bool:
    """Tell, from the engine and from public sizes alone, whether the engine should count."""
    outer = layout.sets[layout.outer :]
    cells = sum(prod(layout.sizes[k] for k in members) for members in outer)
    return engine.remote and not engine.folds_text and len(outer) <= _MOST_QUERIES and cells <= _MOST_CELLS


def push_counts(
    engine: Engine,
    domain: Domain,
    layout: Layout,
    *,
    privacy_id: str | None = None,
    contributions: int = 1,
    progress: Callable[[int, int], None],
) -> Integers:
    """Return the exact counts of every table of a closure, in one buffer. PRIVATE.

    Parameters
    ----------
    engine
        The table.
    domain, layout
        What is declared, and the tables to count.
    privacy_id
        The column that tells whose row it is, if rows are to be bounded.
    contributions
        How many rows of one person are kept.
    progress
        Called with the number of tables that are counted and of all to count.
    """
    _check_engine(engine)
    outer = range(layout.outer, len(layout.sets))
    needed = {k for place in outer for k in layout.sets[place]}
    names = {k: domain.attributes[k] for k in read(domain, needed)}
    beside = () if privacy_id is None else (privacy_id,)
    require_columns(engine, (*names.values(), *beside))
    frame = engine.lazy()
    schema = frame.select(*(dict.fromkeys((*names.values(), *beside)) or engine.names[:1])).collect_schema()
    keys = {k: Key(domain[name], schema[name]) for k, name in names.items()}
    keyed = _keyed(engine, frame, keys, privacy_id, contributions, schema)
    for k in set(names) - needed:
        _check(engine, keyed, keys[k], names[k])
    counts = np.zeros(layout.cells, dtype=np.int64)
    progress(0, len(outer))
    for done, place in enumerate(outer):
        table = counts[layout.index.offset[place] : layout.index.offset[place + 1]].reshape(layout.shape(place))
        _count(engine, keyed, {names[k]: keys[k] for k in layout.sets[place]}, table)
        progress(done + 1, len(outer))
    sum_inner(layout, counts)
    return counts


def _check_engine(engine: Engine) -> None:
    """Refuse an engine whose groups would not be those of the encoder."""
    if engine.untyped:
        raise DataError("a file of texts has no engine that knows its numbers; leave out counting='push-down'")
    if engine.folds_text:
        raise DataError("this engine takes texts that differ in case for equal; count by counting='fetch'")


def _keyed(
    engine: Engine,
    frame: nw.LazyFrame[Any],
    keys: Mapping[int, Key],
    privacy_id: str | None,
    contributions: int,
    schema: nw.Schema,
) -> nw.LazyFrame[Any]:
    """Return what is grouped: the rows that are kept, each column brought to few values."""
    person = []
    if privacy_id is not None:
        _check_ids(engine, frame, privacy_id, schema)
        person = [nw.col(privacy_id).alias(_PERSON)]
    for key in keys.values():
        kept = key.kept
        if kept is not None:
            frame = frame.filter(kept)
    # A frame has at least one column, also where there is nothing to group by.
    columns = [key.expression for key in keys.values()] or [nw.col(engine.names[0]).alias(_COUNT)]
    keyed = frame.select(*columns, *person)
    return keyed if privacy_id is None else engine.hold(keyed, _PERSON, contributions)


def _check_ids(engine: Engine, frame: nw.LazyFrame[Any], privacy_id: str, schema: nw.Schema) -> None:
    """Refuse a table with rows that are nobody's."""
    column = nw.col(privacy_id)
    missing = column.is_null()
    if schema[privacy_id].is_float():
        missing = missing | column.is_nan()
    found = frame.filter(missing).select(privacy_id).head(1)
    if any([batch.num_rows for batch in engine.collect(found)]):  # noqa: C419 - all of it, so that nothing is left open
        raise missing_id(privacy_id)


def _groups(engine: Engine, keyed: nw.LazyFrame[Any], names: list[str]) -> pa.Table:
    """Return how many rows there are of each combination of values."""
    rows = nw.len().alias(_COUNT)
    grouped = keyed.group_by(*names).agg(rows) if names else keyed.select(rows)
    batches = list(engine.collect(grouped))
    return pa.Table.from_batches(batches) if batches else pa.table({name: pa.nulls(0) for name in [*names, _COUNT]})


def _count(engine: Engine, keyed: nw.LazyFrame[Any], keys: Mapping[str, Key], table: Integers) -> None:
    """Add the counts of one table to it."""
    groups = _groups(engine, keyed, list(keys))
    counts = groups.column(_COUNT).cast(pa.int64()).fill_null(0).to_numpy()
    if not keys:
        table += counts.sum()
        return
    codes = tuple(key.encode(groups.column(name).combine_chunks()) for name, key in keys.items())
    # Two groups may be one value: 0.0 and −0.0, or NaN and null.
    np.add.at(table, codes, counts)


def _check(engine: Engine, keyed: nw.LazyFrame[Any], key: Key, name: str) -> None:
    """Encode a column that is in no table to count, as its rows would be if they were fetched."""
    key.encode(_groups(engine, keyed, [name]).column(name).combine_chunks())
