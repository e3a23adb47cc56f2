"""The DuckDB inside margrave: it reads files, and it chooses which rows of a person are kept.

It sees no variable of the program, loads nothing from the network, and what does not fit in its memory goes into a
folder that only this user can read and that is removed with the connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from margrave.algebra.threads import thread_count

if TYPE_CHECKING:
    import duckdb


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
