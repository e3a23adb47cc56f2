"""The folder that lasts: a release on disk, written as a whole, checked when it is read (docs/folder.md).

Here is its manifest: which table is in which file, how it was made, and the checksum of every file. Its last key is a
checksum of all others. What is wrong with it, or with a file that it lists, is `damage`: one sentence that ends with
what to do.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from margrave.errors import DamageError, DomainError, MargraveError, StoreError
from margrave.files import parse_object, read_text

Names = tuple[str, ...]

MANIFEST, MEASUREMENTS, TABLES = "manifest.json", "measurements.npz", "tables"
# What the folder holds in addition to the tables. The numbers depend on these files,
_NEEDED = ("domain.json", MANIFEST, MEASUREMENTS, "privacy.json", "subtables.npz")
# There where errors of the counts were learned.
COUNT_ERRORS = "errors.npz"
# and with these they are all that no document of the caller may be called.
OWN_FILES = ("README.md", "csvw-metadata.json", *_NEEDED)
# Schema 1 recorded the name of the method alone, schema 2 records the method whole.
KIND, SCHEMA = "release", 2
_NAME_ALONE = "options not recorded: the release was saved by margrave 0.1"
_KEYS = ("margrave", "schema", "version", "created", "method", "solution", "tables", "files", "checksum")
# What the file system and the list of files agree on: a name, or a name in a folder, none of them hidden.
_PATH = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)?[A-Za-z0-9_-][A-Za-z0-9._-]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_AGAIN = "get the release again"


@dataclass(frozen=True)
class TableEntry:
    """One table of the workload.

    Attributes
    ----------
    attributes
        Names of its attributes, in domain order.
    file
        Its Parquet file, relative to the folder.
    csv
        The same as CSV, if there is one.
    weight
        Its weight in the workload.
    cells
        How many cells it has.
    """

    attributes: Names
    file: str
    csv: str | None
    weight: float
    cells: int


@dataclass(frozen=True)
class FileEntry:
    """How a file was written: its size and its SHA-256 checksum."""

    bytes: int
    sha256: str


def checksum(file: Path) -> FileEntry:
    """Return the size and the SHA-256 checksum of a file."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileEntry(stream.tell(), digest)


@dataclass(frozen=True)
class Manifest:
    """What the folder of a release says about itself.

    Attributes
    ----------
    version
        The margrave that wrote it.
    created
        When, in UTC.
    method
        How the tables were made, in the dictionary form of a method.
    solution
        What the non-negative solver reported, as plain values; None for the other methods.
    tables
        The tables of the workload, in its order.
    files
        All other files, by relative path.
    """

    version: str
    created: str
    method: Mapping[str, Any]
    solution: Mapping[str, Any] | None
    tables: tuple[TableEntry, ...]
    files: Mapping[str, FileEntry]

    def needs(self, name: str) -> bool:
        """Tell whether numbers, or what is promised about them, depend on a file; others are documents for readers."""
        return name in (*_NEEDED, COUNT_ERRORS) or name.startswith(f"{TABLES}/")

    def to_json(self) -> str:
        """Return the text of the manifest."""
        values = (KIND, SCHEMA, self.version, self.created, self.method, self.solution)
        document: dict[str, Any] = dict(zip(_KEYS, values, strict=False))
        document["tables"] = [_without_none(vars(table)) for table in self.tables]
        document["files"] = {name: vars(self.files[name]) for name in sorted(self.files)}
        document["checksum"] = _checksum(document)
        return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def damage(what: str) -> DamageError:
    """Return the error for a file that is missing or is not what was saved, with the remedy that always helps."""
    return DamageError(what, remedy=_AGAIN)


def remedied(error: DamageError, remedy: str | None) -> DamageError:
    """Return the same damage with a better remedy, if there is one.

    Parameters
    ----------
    error
        An error of `damage`.
    remedy
        What to do, in words; None if nothing better is known.
    """
    if remedy is None or error.remedy != _AGAIN:
        return error
    return DamageError(error.problem, remedy=remedy)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder, or say why it is not one of a release."""
    if (folder / MEASUREMENTS).is_file() and not os.path.lexists(folder / MANIFEST):
        raise damage(f"{folder / MANIFEST} is missing")
    document = read_document(folder / MANIFEST)
    if document.get("margrave") != KIND:
        raise StoreError(
            f"{folder} holds {document.get('margrave')!r}, not a release", remedy="give the folder of a release"
        )
    schema = document.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise StoreError(f"{folder / MANIFEST} has schema {schema!r}", remedy="a version is a whole number from 1")
    if schema > SCHEMA:
        raise StoreError(f"{folder} has schema {schema}, this margrave reads up to {SCHEMA}", remedy="upgrade it")
    try:
        if document.get("checksum") != _checksum({key: document[key] for key in document if key != "checksum"}):
            raise ValueError("its checksum is wrong")
        return _parsed(document)
    except MargraveError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise damage(f"{folder / MANIFEST} is damaged ({error})") from error


def read_document(file: Path) -> dict[str, Any]:
    """Return the JSON object of a file, within the limits of ``files``."""
    try:
        if not file.is_file() or file.is_symlink():
            raise StoreError(f"{file.parent} has no {file.name}", remedy="give the folder of a release")
        return parse_object(read_text(file))
    except DomainError as error:
        raise damage(f"{file} is damaged: {error.problem}") from error
    except OSError as error:
        raise StoreError(f"{file} cannot be read ({error.strerror})", remedy="give the folder of a release") from error


def _parsed(document: Mapping[str, Any]) -> Manifest:
    """Return the manifest of a document; KeyError, TypeError and ValueError say what is wrong with it."""
    if set(document) != set(_KEYS):
        raise ValueError(f"its keys are not {', '.join(_KEYS)}")
    tables = tuple(_table(entry) for entry in _list(document["tables"]))
    files = {_path(name): _file(entry) for name, entry in _mapping(document["files"]).items()}
    needed = [name for table in tables for name in (table.file, table.csv) if name is not None]
    for name in needed:
        if name not in files:
            raise ValueError(f"its list of files lacks {name}")
    if len(set(needed)) != len(needed) or MANIFEST in files:
        raise ValueError("it names a file twice")
    solution = document["solution"]
    return Manifest(
        version=_text(document["version"]),
        created=_text(document["created"]),
        method=_method(document),
        solution=None if solution is None else _mapping(solution),
        tables=tables,
        files=files,
    )


def _method(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the dictionary form of the method; its options are for `margrave.methods` to read."""
    if document["schema"] == 1:
        return {"name": _text(document["method"]), "options": {}, "note": _NAME_ALONE}
    method = _mapping(document["method"])
    _text(method["name"])
    return method


def _table(entry: object) -> TableEntry:
    values = _mapping(entry)
    csv = values.get("csv")
    return TableEntry(
        attributes=tuple(_text(name) for name in _list(values["attributes"])),
        file=_path(values["file"]),
        csv=None if csv is None else _path(csv),
        weight=_positive(values["weight"]),
        cells=_whole(values["cells"]),
    )


def _file(entry: object) -> FileEntry:
    values = _mapping(entry)
    digest = _text(values["sha256"])
    if not _DIGEST.fullmatch(digest):
        raise ValueError("a checksum is not 64 hexadecimal digits")
    return FileEntry(_whole(values["bytes"]), digest)


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("an entry is not a JSON object")
    return value


def _list(value: object) -> Sequence[Any]:
    if not isinstance(value, list):
        raise TypeError("an entry is not a JSON list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("an entry is not text")
    return value


def _path(value: object) -> str:
    if not _PATH.fullmatch(_text(value)):
        raise ValueError(f"{value!r} is not the name of a file in the folder")
    return _text(value)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a number of bytes or cells is not a whole number")
    return value


def _positive(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError("a weight is not a positive number")
    return float(value)


def _without_none(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value is not None}


def _checksum(document: Mapping[str, Any]) -> str:
    """Return the checksum of a document, which does not depend on spaces or on the order of its keys."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
