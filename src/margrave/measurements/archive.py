"""One file for the values of a stage: named arrays and a JSON header in a .npz, written as a whole and without pickle.

The header says which kind of thing the file holds and in which version of its schema. Nothing that is read is ever
executed, and zip's checksums find damage.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from margrave.atomic_file import replacing
from margrave.errors import MeasurementError

Arrays = dict[str, NDArray[Any]]
_HEADER = "header"


def write_archive(
    path: str | os.PathLike[str], header: Mapping[str, object], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write header and arrays to a file, which is replaced as a whole or, on failure, left as it was.

    Parameters
    ----------
    path
        The file; its name is kept as it is.
    header
        Anything that JSON can hold, with the keys "margrave" (the kind) and "schema" (its version).
    arrays
        Arrays of numbers by name.
    """
    file = Path(path)
    text = np.frombuffer(json.dumps(header, ensure_ascii=False).encode(), dtype=np.uint8)
    try:
        with replacing(file) as stream:
            np.savez(stream, allow_pickle=False, **{_HEADER: text, **arrays})
    except OSError as error:
        raise MeasurementError(f"{file} cannot be written ({error.strerror}); name another file") from error


def read_archive(path: str | os.PathLike[str], kind: str, schema: int) -> tuple[dict[str, Any], Arrays]:
    """Return the header and the arrays of a file.

    Parameters
    ----------
    path
        The file.
    kind
        What it must hold.
    schema
        The newest version of that kind that can be read.
    """
    file = Path(path)
    try:
        with file.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, NpzFile):
                raise MeasurementError(f"{file} holds a single array; give a file that margrave has written")
            arrays: Arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop(_HEADER).tobytes())
    except OSError as error:
        raise MeasurementError(f"{file} cannot be read ({error.strerror}); give the path of a saved file") from error
    except (ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise MeasurementError(f"{file} is damaged or was not written by margrave ({error}); save it again") from error
    _check_header(file, header, kind, schema)
    return header, arrays


def _check_header(file: Path, header: object, kind: str, schema: int) -> None:
    """Raise `MeasurementError` unless the header announces this kind in a schema that can be read."""
    found = header.get("margrave") if isinstance(header, dict) else None
    if not isinstance(header, dict) or found != kind:
        raise MeasurementError(f"{file} holds {found!r}, not {kind!r}; give a file of {kind}")
    version = header.get("schema")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise MeasurementError(f"{file} has schema {version!r}; a version is a whole number from 1")
    if version > schema:
        raise MeasurementError(f"{file} has schema {version}, this margrave reads up to {schema}; upgrade it")
