"""The DuckDB inside margrave: it reads files, and it draws which rows of a person are kept.

It sees no variable of the program, loads nothing from the network, and what does not fit in its memory goes into a
folder that only this user can read and that is removed with the connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from margrave.algebra.threads import thread_count
from margrave.privacy.entropy import SystemEntropy

if TYPE_CHECKING:
    import duckdb

_ROWS, _BATCH, _WORD = "margrave_rows", "margrave_batch", "margrave_word"


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def stream(relation: Any, rows: int) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - its class moves between versions
    """Yield the rows of a relation of DuckDB, about so many at a time."""
    # What DuckDB 1 calls otherwise.
    reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    yield from reader(rows)


@contextmanager
def connect(path: str = ":memory:") -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database, which is closed at the end; a file is opened for reading only."""
    import duckdb

    with TemporaryDirectory(prefix="margrave-") as folder:
        settings: dict[str, Any] = {
            "temp_directory": folder,
            "threads": thread_count(),
            "python_enable_replacements": False,
            "autoinstall_known_extensions": False,
            "preserve_insertion_order": False,
        }
        connection = duckdb.connect(path, read_only=path != ":memory:", config=settings)
        try:
            yield connection
        finally:
            connection.close()


def kept_rows(
    connection: duckdb.DuckDBPyConnection, batches: Iterator[pa.RecordBatch], person: str, most: int
) -> duckdb.DuckDBPyRelation:
    """Return a relation with at most so many rows of each person, drawn once, at random; the column of persons is gone.

    Every row gets 64 bits from the system's entropy; of each person the rows with the smallest are kept. Whose rows
    there are besides changes nothing in that.

    Parameters
    ----------
    connection
        A database of margrave's own, where the rows are held.
    batches
        All rows.
    person
        The column that tells whose row it is.
    most
        How many rows of one person are kept.
    """
    source, names = SystemEntropy(), None
    for batch in batches:
        words = pa.array(source.words(batch.num_rows).astype(np.uint64, copy=False))
        connection.register(_BATCH, pa.Table.from_batches([batch.append_column(_WORD, words)]))
        verb = f"CREATE TEMP TABLE {_ROWS} AS" if names is None else f"INSERT INTO {_ROWS} BY NAME"
        connection.execute(f"{verb} SELECT * FROM {_BATCH}")
        connection.unregister(_BATCH)
        names = batch.schema.names
    if names is None:
        return connection.sql("SELECT 0 WHERE false")
    columns = ", ".join(quoted(name) for name in names if name != person)
    rank = f"row_number() OVER (PARTITION BY {quoted(person)} ORDER BY {_WORD})"
    connection.execute(f"CREATE TEMP TABLE margrave_kept AS SELECT {columns} FROM {_ROWS} QUALIFY {rank} <= {most}")
    connection.execute(f"DROP TABLE {_ROWS}")
    return connection.table("margrave_kept")
