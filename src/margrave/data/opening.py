"""What an object is, by its type alone, and how the table behind it is opened; only its own library is loaded."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from margrave.data.engines.formats import DATABASES, TextFormat
from margrave.data.redaction import SCHEMES, shown_scheme
from margrave.errors import DataError, suggestion

if TYPE_CHECKING:
    from margrave.data.engines.engine import Engine

PATH, DATABASE, URL = "file", "DuckDB file", "PostgreSQL database"
_OTHER_URLS = "give a file, a postgresql:// URL, or open it with DuckDB or Ibis and give the relation or the table"
_FRAMES = {
    ("pandas", "DataFrame"): "pandas frame",
    ("polars", "DataFrame"): "Polars frame",
    ("polars", "LazyFrame"): "lazy Polars frame",
    ("pyarrow", "Table"): "Arrow table",
    ("pyarrow", "RecordBatch"): "Arrow record batch",
    ("pyarrow", "RecordBatchReader"): "Arrow record batch reader",
    ("pyarrow", "Dataset"): "Arrow dataset",
    ("duckdb", "DuckDBPyRelation"): "DuckDB relation",
    ("_duckdb", "DuckDBPyRelation"): "DuckDB relation",
    ("ibis", "Table"): "Ibis table",
    ("pyspark", "DataFrame"): "PySpark frame",
}
_SUITABLE = (
    "a path, a postgresql:// URL, a pandas, Polars or PySpark frame, Arrow data, a DuckDB relation, an Ibis table or a "
    "CodedTable"
)


def kind_of(source: object) -> str:
    """Return what a source is, in words, without a look inside; raise `DataError` if it is nothing that can be read."""
    if isinstance(source, str | os.PathLike):
        return _kind_of_name(os.fspath(source))
    for parent in type(source).__mro__:
        known = _FRAMES.get((parent.__module__.split(".")[0], parent.__name__))
        if known is not None:
            return known
    if hasattr(type(source), "__arrow_c_stream__"):
        return "Arrow stream"
    raise DataError(f"a {type(source).__name__} is not a table", remedy=f"give {_SUITABLE}")


def _kind_of_name(name: str | bytes) -> str:
    """Return whether a name is that of a file, of a DuckDB file or of a database."""
    if isinstance(name, bytes):
        raise DataError("the path is given as bytes", remedy="give it as text")
    scheme, found, _ = name.partition("://")
    if not found:
        return DATABASE if name.lower().endswith(DATABASES) else PATH
    if scheme.lower() in SCHEMES:
        return URL
    raise DataError(f"{shown_scheme(scheme)} cannot be opened", remedy=f"{_OTHER_URLS}")


@contextmanager
def opened(
    source: object, table: str | None = None, query: str | None = None, text_format: TextFormat | None = None
) -> Iterator[Engine]:
    """Open a private table for reading, and close what was opened at the end.

    Parameters
    ----------
    source
        Whatever `kind_of` knows.
    table, query
        Which table of a database, or the query in its place.
    text_format
        How the text in CSV files is written.
    """
    with ExitStack() as stack:
        yield _engine(source, table, query, text_format, stack)


def _engine(
    source: object, table: str | None, query: str | None, text_format: TextFormat | None, stack: ExitStack
) -> Engine:
    """Return the engine for a source; libraries are loaded here, each when it is needed."""
    from margrave.data.engines import databases, engine, files

    kind = kind_of(source)
    if kind == PATH:
        return files.open_file(str(os.fspath(source)), stack, text_format)  # type: ignore[call-overload]
    if kind == DATABASE:
        return files.open_database(str(os.fspath(source)), table, query, stack)  # type: ignore[call-overload]
    if kind == URL:
        return databases.open_url(str(source), table, query, stack)
    if kind == "DuckDB relation":
        return engine.DuckEngine(source, stack)
    if kind == "Ibis table":
        return databases.open_ibis(source, stack)
    if kind == "PySpark frame":
        return databases.SparkEngine(source, stack)
    return _arrow_engine(source, kind, stack)


def _arrow_engine(source: object, kind: str, stack: ExitStack) -> Engine:
    """Return the engine for Arrow data and for frames."""
    import pyarrow as pa

    from margrave.data.engines import engine

    if kind in ("Arrow dataset", "Arrow record batch reader"):
        return engine.ArrowEngine(source, stack)
    if kind == "Arrow stream":
        return engine.ArrowEngine(pa.RecordBatchReader.from_stream(source), stack)
    return engine.FrameEngine(pa.Table.from_batches([source]) if kind == "Arrow record batch" else source, stack)


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
    remedies = dict.fromkeys(columns, "name its columns as the domain does")
    if counts is not None:
        remedies[counts] = "give the column that tells how often each row is there as counts=… (--counts)"
    if privacy_id is not None:
        remedies[privacy_id] = "give the column that tells whose row it is as privacy_id=… (--privacy-id)"
    for name, remedy in remedies.items():
        if name not in engine.names:
            hint = suggestion(name, engine.names) if for_custodian or not engine.untyped else _hint(name, engine.names)
            raise DataError(f"the table has no column {name!r}{hint or f'; {remedy}'}")


def require_ids(engine: Engine, privacy_id: str) -> None:
    """Raise `DataError` if the engine takes ids for equal that differ, or changes ids when it returns them.

    Parameters
    ----------
    engine
        The table.
    privacy_id
        The column of ids.
    """
    from margrave.data.persons import refused_ids

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
