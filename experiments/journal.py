"""A CSV file of results that only grows: one line a result, on disk before the next begins, safe to interrupt.

A line that was not written to its end (the machine went down, the disk was full) is dropped when the file is opened
again; whatever it stood for is run again. Rows are frozen dataclasses of texts, whole numbers and floats; NaN stands as
an empty field.
"""

from __future__ import annotations

import csv
import io
import math
import os
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Generic, TypeVar, get_type_hints

from experiments import ExperimentError

Row = TypeVar("Row")


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Return the complete rows of a file; none if there is no file.

    Parameters
    ----------
    path
        The file.
    kind
        The dataclass of its rows.
    """
    if not path.exists():
        return []
    text = path.read_bytes()
    complete = text[: text.rfind(b"\n") + 1].decode("utf-8", errors="replace")
    if not complete:
        return []
    lines = list(csv.reader(io.StringIO(complete)))
    if lines[0] != _names(kind):
        raise ExperimentError(
            f"{path} is not a file of these results (its first line is another); name another folder with --out"
        )
    return [_parsed(path, kind, number, line) for number, line in enumerate(lines[1:], start=2)]


class Journal(Generic[Row]):
    """The file of results, open for one run alone; use it as a context manager.

    Parameters
    ----------
    path
        The file; its folder is made if it is not there.
    kind
        The dataclass of the rows.
    """

    def __init__(self, path: Path, kind: type[Row]) -> None:
        self._path, self._kind = path, kind
        self._file: BinaryIO | None = None
        self.rows: list[Row] = []

    def __enter__(self) -> Journal[Row]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a+b")
        try:
            self._lock(self._file)
            self.rows = read_rows(self._path, self._kind)
            self._mend(self._file)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, row: Row) -> None:
        """Write a row and wait until it is on disk."""
        if self._file is None or self._file.closed:
            raise ExperimentError(f"{self._path} is not open; append within its with statement")
        self._write(self._file, [_shown(getattr(row, name)) for name in _names(self._kind)])
        self.rows.append(row)

    def _lock(self, file: BinaryIO) -> None:
        try:
            import fcntl
        except ImportError:  # Windows: nothing keeps two runs apart
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ExperimentError(
                f"another run writes to {self._path} at this moment; wait for it, or name another folder with --out"
            ) from error

    def _mend(self, file: BinaryIO) -> None:
        """Cut off a torn last line, and write the header of a new file."""
        file.seek(0)
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)
        if b"\n" not in text:
            self._write(file, _names(self._kind))

    def _write(self, file: BinaryIO, line: list[str]) -> None:
        shown = io.StringIO()
        csv.writer(shown, lineterminator="\n").writerow(line)
        file.write(shown.getvalue().encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())


def _names(kind: type[Row]) -> list[str]:
    """Return the columns of a file."""
    return [field.name for field in fields(kind)]  # type: ignore[arg-type]


def _shown(value: str | int | float) -> str:
    """Return a field as text on one line; floats to six digits, which is more than any error bar here."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return " ".join(str(value).split())


def _parsed(path: Path, kind: type[Row], number: int, line: list[str]) -> Row:
    """Return the row that a line holds."""
    types = get_type_hints(kind)
    try:
        values: dict[str, Any] = {
            name: float(text or "nan") if types[name] is float else types[name](text)
            for name, text in zip(_names(kind), line, strict=True)
        }
        return kind(**values)
    except ValueError as error:
        raise ExperimentError(
            f"line {number} of {path} is damaged; remove the line, and what it stood for is run again"
        ) from error
