"""Tables in files: CSV, TSV, Parquet and JSON, plain or compressed, one file or many by a pattern.

Nothing is guessed from the rows. The ending of the name gives the format. Files of CSV and JSON are read as texts,
which the encoder compares by the declared domain; a CSV file has a header, commas (tabs in TSV) by default,
and double quotes, and an empty field is a missing value. Where fields have blanks around them, where other texts say
that a value is missing, and where there is no header, `TextFormat` says so. Parquet has types of its own.

DuckDB reads the rows. The header and the encoding of CSV files are read here, and so is what is wrong with a file that
DuckDB refuses. No message contains more than how a file is written: its marks and its encoding, never a field of it.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from glob import escape, glob, has_magic
from itertools import islice
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from margrave.data.engines.engine import BATCH_ROWS, DuckEngine, Engine
from margrave.data.kinds import COMPRESSED, JSON, PARQUET, TextFormat, format_of, is_separated, wrong_ending
from margrave.data.read_only import connect, duckdb_select, quoted, text
from margrave.data.redaction import shown
from margrave.errors import DataError, suggestion

# DuckDB refuses longer lines by default; a field may hold a long text.
_LONGEST_LINE = 2**24
_PIECE = 2**20
_MOST_TABLES = 50
# How many folders, by partitions, a file of a Delta or Iceberg table lies below the folder of the table.
_MOST_PARENTS = 6
_TABLES = (
    "SELECT CASE table_schema WHEN 'main' THEN table_name ELSE table_schema || '.' || table_name END "
    "FROM information_schema.tables WHERE table_catalog = current_database() ORDER BY 1"
)
_MARKS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
_AS_TYPED = {"\t": "tab"}
_IF_NO_HEADER = "if the file has no header, say so: header=False (--no-header), or names=… (--names age,sex)"
# What is left out at the edges of fields.
_BLANKS = " \t"
# How old and new files of Excel (the latter are ZIP archives), and texts in UTF-16, begin.
_EXCEL = (b"\xd0\xcf\x11\xe0", b"PK\x03\x04")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


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
        return ParquetEngine(files_of(name), stack)
    if is_separated(name, written.delimiter):
        return SeparatedEngine(files_of(name), written, stack)
    if format_of(name) in JSON:
        return TextEngine(_json_relation(files_of(name), stack), stack)
    if Path(name).is_dir():
        _check_alone(str(Path(name) / "any"))
        raise DataError(f"{shown(name)} is a folder", remedy="give its files by a pattern, such as 'folder/*.parquet'")
    raise wrong_ending(name)


def _check_alone(file: str) -> None:
    """Refuse a file of a Delta or Iceberg table: a log says which of its files, and which of their rows, are there."""
    for folder in Path(file).absolute().parents[:_MOST_PARENTS]:
        if (folder / "_delta_log").is_dir():
            kind = "Delta"
        elif next((folder / "metadata").glob("*.metadata.json"), None) is not None:
            kind = "Iceberg"
        else:
            continue
        raise DataError(
            f"the folder {shown(str(folder))} holds a table of {kind}, whose files may have rows that were deleted",
            remedy=f"open it with Spark, DuckDB, Polars or another reader of {kind}, and give the frame or relation",
        )


def files_of(name: str) -> list[str]:
    """Return the files of this name, or that match it as a pattern; refuse what cannot be read."""
    found = [name] if Path(name).exists() or not has_magic(name) else sorted(glob(name, recursive=True))  # noqa: PTH207 - may be absolute
    files = [file for file in found if Path(file).is_file()]
    if not files:
        raise DataError(f"there is no file {shown(name)}", remedy="check the path, and the folder that it starts from")
    for file in files:
        if not os.access(file, os.R_OK):
            raise DataError(f"the file {file!r} may not be read", remedy="request permission to read it")
        _check_whole(file)
        if Path(file).suffix.lower() in PARQUET:
            _check_alone(file)
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
                "the files have columns of different names or types, which the engine would convert",
                remedy="leave out counting='push-down' (--counting)",
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
    header = "true" if text_format.has_header else "false"
    options = f"delim = {text(delimiter)}, quote = '\"', escape = '\"', header = {header}, auto_detect = false"
    options = f"{options}, columns = {{{columns}}}, max_line_size = {_LONGEST_LINE}"
    _check_case(names)
    fields = ", ".join(f"{_field(name, text_format)} AS {quoted(name)}" for name in names)
    relation = _relation("read_csv", readable, options, stack, fields)
    if list(relation.columns) != names:
        raise DataError(
            "the files were read with other columns than their header has", remedy="give files of other names"
        )
    return relation


def _field(name: str, text_format: TextFormat) -> str:
    """Return the expression for a field of a CSV file: without the blanks around it, and missing where it says so."""
    field = quoted(name)
    if text_format.trim:
        field = f"trim({field}, {text(_BLANKS)})"
    for mark in text_format.null:
        field = f"nullif({field}, {text(mark)})"
    return field


def _json_relation(files: Sequence[str], stack: ExitStack) -> Any:  # noqa: ANN401 - a relation
    """Return JSON files, an array of objects or one object a line, as a relation of texts.

    Which keys there are is read from all objects.
    """
    objects = _relation("read_json_objects", files, "format = 'auto'", stack)
    keys = objects.query("margrave_objects", "SELECT DISTINCT unnest(json_keys(json)) AS name FROM margrave_objects")
    names = sorted(name for (name,) in keys.fetchall())
    if not names:
        raise DataError("the file contains no object, so its columns are unknown", remedy="give one with rows")
    _check_case(names)
    columns = ", ".join(f"{text(name)}: 'VARCHAR'" for name in names)
    return _relation("read_json", files, f"format = 'auto', records = true, columns = {{{columns}}}", stack)


def _check_case(names: Sequence[str]) -> None:
    """Refuse names that DuckDB would treat as one."""
    if len({name.lower() for name in names}) != len(names):
        raise DataError("two columns have names that differ only in case", remedy="give each its own name")


def _relation(function: str, files: Sequence[str], options: str, stack: ExitStack, fields: str = "*") -> Any:  # noqa: ANN401 - a relation
    """Return what a function of DuckDB reads from files."""
    connection = stack.enter_context(connect(files=files))
    # Names are taken literally: an asterisk in the name of a file that exists is not a pattern.
    paths = ", ".join(text(escape(file)) for file in files)
    # The name of a folder is never a value and must not replace one in the file.
    return connection.sql(f"SELECT {fields} FROM {function}([{paths}], {options}, hive_partitioning = false)")


def _check_whole(file: str) -> None:
    """Unpack a compressed file to its end: DuckDB reads some truncated files without an error."""
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
    name = files_of(os.fspath(path))[0]
    try:
        connection = stack.enter_context(connect(name))
    except Exception as error:
        raise DataError(
            f"the file {name!r} cannot be opened ({type(error).__name__})",
            remedy="check that it is a DuckDB file; if it is open already, give a relation of that connection",
        ) from None
    if query is not None:
        return DuckEngine(connection.sql(duckdb_select(query)), stack)
    return DuckEngine(_table_of(connection, str(table), name), stack)


def _table_of(connection: Any, table: str, file: str) -> Any:  # noqa: ANN401 - their classes move between versions
    """Return a table of a DuckDB file; if it does not exist, list those that do: names are not rows."""
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


def read_headers(files: Sequence[str], text_format: TextFormat) -> list[str]:
    """Return the header that CSV files have in common; refuse files that cannot be what they should."""
    headers = [_read_header(file, text_format) for file in files]
    names = headers[0]
    if not text_format.has_header:
        return _names_without_header(headers, text_format.names)
    if any(header != names for header in headers):
        raise DataError("the files have different headers", remedy="give files with the same columns in the same order")
    if len(set(names)) != len(names):
        raise DataError(
            "two columns of the header have the same name",
            remedy=f"give each its own name; {_IF_NO_HEADER}",
        )
    return names


def _names_without_header(rows: Sequence[list[str]], names: Sequence[str] | None) -> list[str]:
    """Return the names of the columns of CSV files without a header, given the first row of each."""
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise DataError("the files have rows of different lengths", remedy="give files with the same columns")
    if names is None:
        return [f"column{place + 1}" for place in range(width)]
    if len(names) != width:
        columns = "one column" if width == 1 else f"{width:,} columns"
        more = ", or say what separates them: delimiter=';' (--delimiter ';')" if width == 1 else ""
        raise DataError(
            f"{len(names):,} names (--names) for the {columns} of the file", remedy=f"give one for each column{more}"
        )
    return list(names)


def _read_header(file: str, text_format: TextFormat) -> list[str]:
    """Return the first line of a CSV file; refuse one that cannot be a header."""
    _check_beginning(file, text_format)
    try:
        with open_text(file, text_format.encoding) as lines:
            names = next(csv.reader(lines, delimiter=text_format.delimiter_of(file)), [])
    except UnicodeError:
        raise _wrong_encoding(file, text_format) from None
    if names:
        names[0] = names[0].removeprefix("\ufeff")
    if text_format.trim:
        names = [name.strip(_BLANKS) for name in names]
    if not text_format.has_header and names:
        if len(names) == 1:
            _check_remark(file, names[0], text_format)
        return names  # a first row like any other, which may have empty fields
    if not names or not all(names):
        raise DataError(
            f"the file {file!r} has no header, or one with an empty name",
            remedy=f"give every column a name there; {_IF_NO_HEADER}",
        )
    if len(names) == 1:
        _check_separated(file, names[0], text_format)
    return names


def _check_beginning(file: str, text_format: TextFormat) -> None:
    """Refuse a file whose first bytes say that it is something else."""
    with _open_bytes(file) as stream:
        beginning = bytes(stream.read(4))
    if beginning in _EXCEL:
        raise DataError(
            f"the file {file!r} is an Excel file or an archive, despite its name",
            remedy="open it in Excel, save it as CSV UTF-8, and give that file",
        )
    if beginning[:2] in _UTF_16 and text_format.encoding is None:
        raise DataError(f"the file {file!r} is UTF-16", remedy="give encoding='utf-16' (--encoding utf-16)")


def _check_remark(file: str, first: str, text_format: TextFormat) -> str:
    """Refuse a first line of one field before lines of many; return a mark that separates the fields of both lines."""
    with open_text(file, text_format.encoding) as lines:
        second = next(islice(lines, 1, None), "")
    mark = next((mark for mark in _MARKS if mark in first and first.count(mark) == second.count(mark)), "")
    fields = len(next(csv.reader([second], delimiter=text_format.delimiter_of(file)), []))
    if not mark and fields > 1:
        expected = "the header" if text_format.has_header else "a row"
        raise DataError(
            f"the first line of {file!r} is one field and the second line is {fields:,} fields",
            remedy=f"the first line must be {expected}: remove from the file a title or a remark that stands before "
            "it, as in: tail -n +2 OLD > NEW",
        )
    return mark


def _check_separated(file: str, header: str, text_format: TextFormat) -> None:
    """Refuse a header that is a remark, or one name with marks in it that separate names in other files."""
    delimiter = text_format.delimiter_of(file)
    # A mark that the next line has as often separates the fields of both.
    mark = _check_remark(file, header, text_format) or next((mark for mark in _MARKS if mark in header), "")
    if mark and text_format.delimiter is None:
        typed = _AS_TYPED.get(mark, mark)
        raise DataError(
            f"the header of {file!r} has {_MARKS[mark]} and no {_MARKS[delimiter]}",
            remedy=f"give delimiter={typed!r} "
            f"(--delimiter {typed!r}), or delimiter={_AS_TYPED.get(delimiter, delimiter)!r} if it is one name",
        )


def _wrong_encoding(file: str, text_format: TextFormat) -> DataError:
    """Return the error for a file whose bytes are not text in its encoding."""
    if text_format.encoding is None:
        return DataError(
            f"the file {file!r} is not UTF-8",
            remedy="give encoding=… (--encoding windows-1252 is usual for files of older Windows programs)",
        )
    return DataError(
        f"the file {file!r} is not written in {text_format.encoding}",
        remedy="give the encoding=… (--encoding) that it was saved in",
    )


def _open_bytes(file: str) -> pa.NativeFile:
    """Open a file, unpacked."""
    packing = COMPRESSED.get(Path(file).suffix.lower())
    return pa.OSFile(file) if packing is None else pa.CompressedInputStream(pa.OSFile(file), packing)


def open_text(file: str, encoding: str | None = None) -> io.TextIOWrapper:
    """Open a text file, unpacked; a mark of byte order at its beginning is skipped."""
    stream = _open_bytes(file)
    return io.TextIOWrapper(stream, encoding="utf-8-sig" if _is_utf_8(encoding) else encoding, newline="")


def _is_utf_8(encoding: str | None) -> bool:
    return encoding is None or codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def in_utf_8(files: Sequence[str], text_format: TextFormat, stack: ExitStack) -> list[str]:
    """Return files with the same text in UTF-8: themselves, or copies in a folder that only this user can read.

    Parameters
    ----------
    files
        The files.
    text_format
        How they are written.
    stack
        Where the removal of the copies is put.
    """
    if _is_utf_8(text_format.encoding):
        return list(files)
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="margrave-")))
    return [_copied(file, folder / f"{place}.csv", text_format) for place, file in enumerate(files)]


def _copied(file: str, copy: Path, text_format: TextFormat) -> str:
    """Copy a file in another encoding as UTF-8, and return where the copy is."""
    try:
        with open_text(file, text_format.encoding) as original, copy.open("w", encoding="utf-8", newline="") as written:
            copyfileobj(original, written, _PIECE)
    except UnicodeError:
        raise _wrong_encoding(file, text_format) from None
    return str(copy)


def fault_of(files: Sequence[str], text_format: TextFormat) -> DataError | None:
    """Return what is wrong with CSV files that could not be read, as far as it can be said without a field of them."""
    for file in files:
        try:
            fault = _fault_of_one(file, text_format)
        except (OSError, pa.ArrowException):
            fault = None  # it cannot be unpacked, or is gone
        if fault is not None:
            return fault
    return None


def _fault_of_one(file: str, text_format: TextFormat) -> DataError | None:
    """Read a CSV file again, slowly, to find what is wrong with it."""
    try:
        with open_text(file, text_format.encoding) as lines:
            rows = csv.reader(lines, delimiter=text_format.delimiter_of(file), strict=True)
            width = len(next(rows, []))
            if any(row and len(row) != width for row in rows):
                return DataError(
                    f"the rows of {file!r} have different lengths",
                    remedy="give every row as many fields as the header, and "
                    "put a field that holds the delimiter in double quotes",
                )
    except UnicodeError:
        return _wrong_encoding(file, text_format)
    except csv.Error:
        return DataError(
            f"a field of {file!r} does not end where it should",
            remedy="check that every double quote at the beginning of a "
            "field has one at its end, and that quotes inside are doubled",
        )
    return None
