"""Tables in files: CSV, TSV, Parquet and JSON, plain or compressed, one file or many by a pattern.

Nothing is guessed from the rows. The ending of the name tells the format. Files of CSV and JSON are read as texts,
which the encoder compares by the declared domain; a CSV file has a header, commas (tabs in TSV) unless told otherwise,
and double quotes, and an empty field is a missing value. Parquet has types of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from glob import escape, glob, has_magic
from pathlib import Path
from typing import Any

import pyarrow as pa

from margrave.data.addresses import shown
from margrave.data.embedded_duckdb import connect, quoted, text
from margrave.data.engines import BATCH_ROWS, DuckEngine, Engine
from margrave.data.formats import COMPRESSED, JSON, PARQUET, TextFormat, format_of, is_separated, wrong_ending
from margrave.data.queries import duckdb_select
from margrave.data.separated import fault_of, in_utf_8, read_headers
from margrave.errors import DataError, suggestion

# DuckDB refuses longer lines unless told otherwise; a field with an essay in it is no reason to fail.
_LONGEST_LINE = 2**24
_PIECE = 2**20
_MOST_TABLES = 50
_TABLES = (
    "SELECT CASE table_schema WHEN 'main' THEN table_name ELSE table_schema || '.' || table_name END "
    "FROM information_schema.tables WHERE table_catalog = current_database() ORDER BY 1"
)


def open_file(path: str | os.PathLike[str], stack: ExitStack, text_format: TextFormat | None = None) -> Engine:
    """Open a file, or all files that a pattern such as ``survey/*.parquet`` names, for reading.

    Parameters
    ----------
    path
        The file or the pattern.
    stack
        Where what has to be closed is put.
    text_format
        How the text in CSV files is written.
    """
    name = os.fspath(path)
    written = text_format or TextFormat()
    if Path(name).suffix.lower() in PARQUET:
        return ParquetEngine(_files(name), stack)
    if is_separated(name, written.delimiter):
        return SeparatedEngine(_files(name), written, stack)
    if format_of(name) in JSON:
        return TextEngine(_json_relation(_files(name), stack), stack)
    raise wrong_ending(name)


def _files(name: str) -> list[str]:
    """Return the files of this name, or that match it as a pattern."""
    found = [name] if Path(name).exists() or not has_magic(name) else sorted(glob(name, recursive=True))  # noqa: PTH207 - may be absolute
    files = [file for file in found if Path(file).is_file()]
    if not files:
        raise DataError(
            f"there is no file {shown(name)}; see that the path is right, and from which folder it is meant"
        )
    for file in files:
        if not os.access(file, os.R_OK):
            raise DataError(f"the file {file!r} may not be read; ask for the right to read it")
        _check_whole(file)
    return files


class TextEngine(DuckEngine):
    """Files that hold nothing but text."""

    untyped = True

    def id_fault(self, column: str) -> str:
        """Return nothing: these texts are compared byte for byte."""
        return ""


class SeparatedEngine(TextEngine):
    """CSV files."""

    def __init__(self, files: Sequence[str], text_format: TextFormat, stack: ExitStack) -> None:
        self._files, self._text_format, self.decimal = files, text_format, text_format.decimal
        super().__init__(_csv_relation(files, text_format, stack), stack)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once."""
        try:
            yield from super().batches(columns)
        except Exception:
            fault = fault_of(self._files, self._text_format)
            if fault is None:
                raise
            raise fault from None


class ParquetEngine(Engine):
    """Parquet files."""

    def __init__(self, files: Sequence[str], stack: ExitStack) -> None:
        from pyarrow.parquet import ParquetFile

        self._files = [stack.enter_context(ParquetFile(file)) for file in files]
        self._paths = list(files)
        super().__init__(self._files[0].schema_arrow.names, stack)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once."""
        for file in self._files:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(columns)):
                yield batch.select(list(columns))  # in this order, and none left out

    def lazy(self) -> Any:  # noqa: ANN401 - as in Engine
        """Return the table as a lazy frame."""
        if len({tuple(zip(*_named_types(file), strict=True)) for file in self._files}) > 1:
            raise DataError(
                "the files have columns of different names or types, which the engine would convert; leave out "
                "counting='push-down' (--counting)"
            )
        connection = self._stack.enter_context(connect(files=self._paths))
        relation = connection.read_parquet([escape(path) for path in self._paths], hive_partitioning=False)
        return DuckEngine(relation, self._stack).lazy()


def _named_types(file: Any) -> tuple[list[str], list[pa.DataType]]:  # noqa: ANN401 - pyarrow declares no types
    """Return the names and the types of the columns of a Parquet file."""
    schema = file.schema_arrow
    return schema.names, schema.types


def _csv_relation(files: Sequence[str], text_format: TextFormat, stack: ExitStack) -> Any:  # noqa: ANN401 - a relation
    """Return CSV files, all with the same header, as a relation of texts."""
    names, delimiter = read_headers(files, text_format), text_format.delimiter_of(files[0])
    readable = in_utf_8(files, text_format, stack)
    columns = ", ".join(f"{text(name)}: 'VARCHAR'" for name in names)
    options = f"delim = {text(delimiter)}, quote = '\"', escape = '\"', header = true, auto_detect = false"
    options = f"{options}, columns = {{{columns}}}, max_line_size = {_LONGEST_LINE}"
    _check_case(names)
    relation = _relation("read_csv", readable, options, stack)
    if list(relation.columns) != names:
        raise DataError("the files were read with other columns than their header has; give files of other names")
    return relation


def _json_relation(files: Sequence[str], stack: ExitStack) -> Any:  # noqa: ANN401 - a relation
    """Return JSON files, an array of objects or one object a line, as a relation of texts.

    Which keys there are is read from all objects.
    """
    objects = _relation("read_json_objects", files, "format = 'auto'", stack)
    keys = objects.query("margrave_objects", "SELECT DISTINCT unnest(json_keys(json)) AS name FROM margrave_objects")
    names = sorted(name for (name,) in keys.fetchall())
    if not names:
        raise DataError("the file holds no object, so that nobody knows its columns; give one with rows")
    _check_case(names)
    columns = ", ".join(f"{text(name)}: 'VARCHAR'" for name in names)
    return _relation("read_json", files, f"format = 'auto', records = true, columns = {{{columns}}}", stack)


def _check_case(names: Sequence[str]) -> None:
    """Refuse names that DuckDB would take for one."""
    if len({name.lower() for name in names}) != len(names):
        raise DataError("two columns have names that differ only in case; give each a name of its own")


def _relation(function: str, files: Sequence[str], options: str, stack: ExitStack) -> Any:  # noqa: ANN401 - a relation
    """Return what a function of DuckDB reads from files."""
    connection = stack.enter_context(connect(files=files))
    # The names are taken as they are: an asterisk in one that exists is no pattern.
    paths = ", ".join(text(escape(file)) for file in files)
    # The name of a folder is no value, whatever form it has, and must not take the place of one in the file.
    return connection.sql(f"SELECT * FROM {function}([{paths}], {options}, hive_partitioning = false)")


def _check_whole(file: str) -> None:
    """Unpack a compressed file to its end: DuckDB takes some that were cut short for shorter ones."""
    packing = COMPRESSED.get(Path(file).suffix.lower())
    if packing is not None:
        with pa.OSFile(file) as packed, pa.CompressedInputStream(packed, packing) as unpacked:
            while unpacked.read(_PIECE):
                pass


def open_database(path: str | os.PathLike[str], table: str | None, query: str | None, stack: ExitStack) -> Engine:
    """Open a table, or the result of a query, of a DuckDB file, for reading only.

    Parameters
    ----------
    path
        The file.
    table
        The name of the table, with its schema before a dot where there is one.
    query
        One SELECT in its place.
    stack
        Where what has to be closed is put.
    """
    name = _files(os.fspath(path))[0]
    try:
        connection = stack.enter_context(connect(name))
    except Exception as error:
        raise DataError(
            f"the file {name!r} cannot be opened ({type(error).__name__}); see that it is a DuckDB file, and where it "
            "is open already, give a relation of the connection that has it"
        ) from None
    if query is not None:
        return DuckEngine(connection.sql(duckdb_select(query)), stack)
    return DuckEngine(_table_of(connection, str(table), name), stack)


def _table_of(connection: Any, table: str, file: str) -> Any:  # noqa: ANN401 - their classes move between versions
    """Return a table of a DuckDB file; if there is none of that name, say which there are, since names are no rows."""
    import duckdb

    try:
        return connection.sql(f"SELECT * FROM {'.'.join(quoted(part) for part in table.split('.'))}")
    except (duckdb.CatalogException, duckdb.BinderException):
        names = [name for (name,) in connection.execute(_TABLES).fetchall()]
        if table in names:  # a view whose own tables are gone
            raise
    listed = [*names[:_MOST_TABLES], *(["…"] if len(names) > _MOST_TABLES else [])]
    there = f"it has {', '.join(listed)}" if names else "it has none"
    raise DataError(f"there is no table {table!r} in {file!r}{suggestion(table, names)} ({there})")
