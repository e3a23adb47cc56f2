"""CSV files beside what DuckDB does with them: the header, the encoding, and what is wrong with one that it refuses.

No message tells more than how the file is written: its marks and its encoding, never a field of it.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory

import pyarrow as pa

from margrave.data.formats import COMPRESSED, TextFormat
from margrave.errors import DataError

_MARKS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
_AS_TYPED = {"\t": "tab"}
# How old and new files of Excel (the latter are ZIP archives), and texts in UTF-16, begin.
_EXCEL = (b"\xd0\xcf\x11\xe0", b"PK\x03\x04")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PIECE = 2**20


def read_headers(files: Sequence[str], text_format: TextFormat) -> list[str]:
    """Return the header that CSV files have in common; refuse files that cannot be what they should."""
    headers = [_read_header(file, text_format) for file in files]
    names = headers[0]
    if any(header != names for header in headers):
        raise DataError("the files have different headers; give files with the same columns in the same order")
    if len(set(names)) != len(names):
        raise DataError("two columns of the header have the same name; give each a name of its own")
    return names


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
    if not names or not all(names):
        raise DataError(f"the file {file!r} has no header, or one with an empty name; give every column a name there")
    if len(names) == 1 and text_format.delimiter is None:
        _check_parted(file, names[0], text_format.delimiter_of(file))
    return names


def _check_beginning(file: str, text_format: TextFormat) -> None:
    """Refuse a file whose first bytes say that it is something else."""
    with _open_bytes(file) as stream:
        beginning = bytes(stream.read(4))
    if beginning in _EXCEL:
        raise DataError(
            f"the file {file!r} is an Excel file, or an archive, whatever its name says; open it in Excel, save it as "
            "CSV UTF-8, and give that file"
        )
    if beginning[:2] in _UTF_16 and text_format.encoding is None:
        raise DataError(f"the file {file!r} is UTF-16; give encoding='utf-16' (--encoding utf-16)")


def _check_parted(file: str, header: str, delimiter: str) -> None:
    """Refuse a header that is one name, but with marks in it that part names in other files."""
    for mark, spoken in _MARKS.items():
        if mark in header:
            typed = _AS_TYPED.get(mark, mark)
            raise DataError(
                f"the header of {file!r} has {spoken} and no {_MARKS[delimiter]}; give delimiter={typed!r} "
                f"(--delimiter {typed!r}), or delimiter={_AS_TYPED.get(delimiter, delimiter)!r} if it is one name"
            )


def _wrong_encoding(file: str, text_format: TextFormat) -> DataError:
    """Return the error that says that the bytes of a file are no text in its encoding."""
    if text_format.encoding is None:
        return DataError(
            f"the file {file!r} is not UTF-8; give encoding=… (--encoding windows-1252 is usual for files of older "
            "Windows programs)"
        )
    return DataError(
        f"the file {file!r} is not written in {text_format.encoding}; give the encoding=… (--encoding) that it was "
        "saved in"
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
        with open_text(file, text_format.encoding) as text, copy.open("w", encoding="utf-8", newline="") as written:
            copyfileobj(text, written, _PIECE)
    except UnicodeError:
        raise _wrong_encoding(file, text_format) from None
    return str(copy)


def fault_of(files: Sequence[str], text_format: TextFormat) -> DataError | None:
    """Return what is wrong with CSV files that could not be read, as far as it can be told without a field of them."""
    for file in files:
        try:
            fault = _fault_of_one(file, text_format)
        except (OSError, pa.ArrowException):
            fault = None  # it cannot be unpacked, or is gone
        if fault is not None:
            return fault
    return None


def _fault_of_one(file: str, text_format: TextFormat) -> DataError | None:
    """Read a CSV file once more, slowly, for what is wrong with it."""
    try:
        with open_text(file, text_format.encoding) as lines:
            rows = csv.reader(lines, delimiter=text_format.delimiter_of(file), strict=True)
            width = len(next(rows, []))
            if any(row and len(row) != width for row in rows):
                return DataError(
                    f"the rows of {file!r} have different lengths; give every row as many fields as the header, and "
                    "put a field that holds the delimiter in double quotes"
                )
    except UnicodeError:
        return _wrong_encoding(file, text_format)
    except csv.Error:
        return DataError(
            f"a field of {file!r} does not end where it should; see that every double quote at the beginning of a "
            "field has one at its end, and that quotes inside are doubled"
        )
    return None
