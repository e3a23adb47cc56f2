"""Tables in files: CSV, TSV, Parquet and JSON, plain or compressed, one file or many by a pattern.

Nothing is guessed from the rows. The ending of the name tells the format. Files of CSV and JSON are read as texts,
which the encoder compares by the declared domain; a CSV file has a header, commas (tabs in TSV) and double quotes, and
an empty field is a missing value. Parquet has types of its own.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from glob import escape, glob, has_magic
from pathlib import Path
from typing import Any

import pyarrow as pa

from margrave.data.embedded import connect, quoted
from margrave.data.engines import BATCH_ROWS, DuckEngine, Engine
from margrave.errors import DataError

_CSV = {".csv": ",", ".tsv": "\t"}
_JSON = (".json", ".ndjson", ".jsonl")
_PARQUET = (".parquet", ".pq")
_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
DATABASES = (".duckdb", ".ddb")
# DuckDB refuses longer lines unless told otherwise; a field with an essay in it is no reason to fail.
_LONGEST_LINE = 2**24
_PIECE = 2**20


def format_of(path: str) -> str:
    """Return the ending that tells the format of a file, lower case, without that of its compression."""
    name = Path(path).name.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    return Path(name).suffix


def open_file(path: str | os.PathLike[str], stack: ExitStack) -> Engine:
    """Open a file, or all files that a pattern such as ``survey/*.parquet`` names, for reading.

    Parameters
    ----------
    path
        The file or the pattern.
    stack
        Where what has to be closed is put.
    """
    name = os.fspath(path)
    if Path(name).suffix.lower() in _PARQUET:
        return ParquetEngine(_files(name), stack)
    ending = format_of(name)
    if ending in _CSV:
        return TextEngine(_csv_relation(_files(name), _CSV[ending], stack), stack)
    if ending in _JSON:
        return TextEngine(_json_relation(_files(name), stack), stack)
    raise DataError(
        f"{name!r} ends in none of .csv, .tsv, .parquet, .json, .ndjson, .jsonl (all but Parquet also with .gz or .zst "
        "after it) or .duckdb; rename it, or open it with DuckDB and give the relation"
    )


def _files(name: str) -> list[str]:
    """Return the files of this name, or that match it as a pattern."""
    found = [name] if Path(name).exists() or not has_magic(name) else sorted(glob(name, recursive=True))  # noqa: PTH207 - may be absolute
    files = [file for file in found if Path(file).is_file()]
    if not files:
        raise DataError(f"there is no file {name!r}; see that the path is right, and from which folder it is meant")
    for file in files:
        if not os.access(file, os.R_OK):
            raise DataError(f"the file {file!r} may not be read; ask for the right to read it")
        _check_whole(file)
    return files


class TextEngine(DuckEngine):
    """Files that hold nothing but text."""

    untyped = True


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
            yield from file.iter_batches(batch_size=BATCH_ROWS, columns=list(columns))

    def lazy(self) -> Any:  # noqa: ANN401 - as in Engine
        """Return the table as a lazy frame."""
        connection = self._stack.enter_context(connect())
        relation = connection.read_parquet([escape(path) for path in self._paths], hive_partitioning=False)
        return DuckEngine(relation, self._stack).lazy()


def _csv_relation(files: Sequence[str], delimiter: str, stack: ExitStack) -> Any:  # noqa: ANN401 - a relation
    """Return CSV files, all with the same header, as a relation of texts."""
    headers = [_header(file, delimiter) for file in files]
    names = headers[0]
    if any(header != names for header in headers):
        raise DataError("the files have different headers; give files with the same columns in the same order")
    if len(set(names)) != len(names):
        raise DataError("two columns of the header have the same name; give each a name of its own")
    columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in names)
    options = f"delim = {_text(delimiter)}, quote = '\"', escape = '\"', header = true, auto_detect = false"
    return _relation("read_csv", files, f"{options}, columns = {{{columns}}}, max_line_size = {_LONGEST_LINE}", stack)


def _json_relation(files: Sequence[str], stack: ExitStack) -> Any:  # noqa: ANN401 - a relation
    """Return JSON files, an array of objects or one object a line, as a relation of texts.

    Which keys there are is read from the first twenty thousand objects.
    """
    seen = _relation("read_json", files, "format = 'auto', union_by_name = true", stack)
    if not seen.limit(1).fetchall():
        raise DataError("the file holds no object, so that nobody knows its columns; give one with rows")
    columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in seen.columns)
    return _relation("read_json", files, f"format = 'auto', columns = {{{columns}}}", stack)


def _relation(function: str, files: Sequence[str], options: str, stack: ExitStack) -> Any:  # noqa: ANN401 - a relation
    """Return what a function of DuckDB reads from files."""
    connection = stack.enter_context(connect())
    # The names are taken as they are: an asterisk in one that exists is no pattern.
    paths = ", ".join(_text(escape(file)) for file in files)
    return connection.sql(f"SELECT * FROM {function}([{paths}], {options})")


def _header(file: str, delimiter: str) -> list[str]:
    """Return the first line of a CSV file; refuse one that cannot be a header."""
    with _opened(file) as lines:
        names = next(csv.reader(lines, delimiter=delimiter), [])
    if not names or not all(names):
        raise DataError(f"the file {file!r} has no header, or one with an empty name; give every column a name there")
    return names


def _opened(file: str) -> io.TextIOWrapper:
    """Open a text file, unpacked; a mark of byte order at its beginning is skipped."""
    packing = _COMPRESSED.get(Path(file).suffix.lower())
    if packing is None:
        return Path(file).open(encoding="utf-8-sig", newline="")
    return io.TextIOWrapper(pa.CompressedInputStream(pa.OSFile(file), packing), encoding="utf-8-sig", newline="")


def _check_whole(file: str) -> None:
    """Unpack a compressed file to its end: DuckDB takes some that were cut short for shorter ones."""
    packing = _COMPRESSED.get(Path(file).suffix.lower())
    if packing is not None:
        with pa.OSFile(file) as packed, pa.CompressedInputStream(packed, packing) as unpacked:
            while unpacked.read(_PIECE):
                pass


def _text(value: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def open_database(path: str | os.PathLike[str], table: str | None, query: str | None, stack: ExitStack) -> Engine:
    """Open a table, or the result of a query, of a DuckDB file, for reading only.

    Parameters
    ----------
    path
        The file.
    table
        The name of the table, with its schema before a dot where there is one.
    query
        A query in its place.
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
    asked = query if query is not None else f"SELECT * FROM {'.'.join(quoted(part) for part in str(table).split('.'))}"
    return DuckEngine(connection.sql(asked), stack)
