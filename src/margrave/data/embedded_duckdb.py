"""The DuckDB inside margrave: it reads files, and it chooses which rows of a person are kept.

It sees no variable of the program, loads nothing from the network, opens no file but those that it is given, and what
does not fit in its memory goes into a folder that only this user can read and that is removed with the connection. No
statement can change any of this.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from margrave.algebra.kernels import thread_count

if TYPE_CHECKING:
    import duckdb


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def stream(relation: Any, rows: int) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - its class moves between versions
    """Yield the rows of a relation of DuckDB, about so many at a time."""
    # What DuckDB 1 calls otherwise.
    reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    yield from reader(rows)


@contextmanager
def connect(path: str = ":memory:", *, files: Sequence[str] = ()) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database, which is closed at the end; a file is opened for reading only.

    Parameters
    ----------
    path
        The file of the database.
    files
        The other files that it may open. It opens them again at every scan, so they have to be named.
    """
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
            _lock(connection, [*([] if path == ":memory:" else [path]), *files])
            yield connection
        finally:
            connection.close()


def _lock(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    """Let a database open these files and no others, and let no statement change that."""
    names = [os.path.abspath(file) for file in files]  # noqa: PTH100 - links stay as they are named
    # A name with an asterisk or a bracket is asked for in its escaped form, a pattern that matches this file alone.
    paths = ", ".join(text(name) for name in dict.fromkeys([*names, *map(escape, names)]))
    for setting in (f"allowed_paths = [{paths}]", "enable_external_access = false", "lock_configuration = true"):
        connection.execute(f"SET {setting}")
