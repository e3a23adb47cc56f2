"""One file for the values of a stage: named arrays and a JSON header in a .npz, written as a whole and without pickle.

The header says which kind of thing the file holds and in which version of its schema. Nothing that is read is ever
executed, and zip's checksums find damage.

A file may come from anywhere, so everything in it is checked. Its arrays are not compressed and do not overlap: what
is read takes no more memory than the file has bytes. An array is read only if the zip entry, its own header and the
shape that the caller expects of it agree, and that is known before any memory is taken for it.

Measurements that are paid for are never lost: they are on disk before anything else is done with them. A `KeptFile`
checks, before anything is spent, that they can be written. Its ``save`` is the ``keep`` of a mechanism:

    kept = KeptFile("release.measurements.npz")
    kept.require_room(cells)
    noisy = margrave.measure(plan, source, keep=kept.save, defer_signals=True)
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from margrave.errors import MargraveError, MeasurementError
from margrave.files import MOST_BYTES, parse_object, replacing
from margrave.memory import require_memory

Shape = tuple[int, ...]

# What reading a file of any content may raise; all of it means damage, and none of it may reach the caller.
UNREADABLE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
_HEADER = "header"
# numpy's format 1.0 as numpy writes it for plain numbers; anything else was not written by margrave.
_MAGIC = b"\x93NUMPY\x01\x00"
_OUTLINE = re.compile(
    rb"\{'descr': '([<>|](?:f8|i8|u1))', 'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,18},? ?){0,64}+)\), \} *\n"
)
# The list of members at the end of a zip file: no more than this share of the file, as each member has a header and a
# content too, and no more than this many bytes (180,000 members).
_DIRECTORY_SHARE, _MOST_DIRECTORY_BYTES = 0.4, 2**24
_END, _END_64, _LOCATOR_64 = struct.Struct("<4s8xL4xH"), struct.Struct("<4s36xQ8x"), struct.Struct("<4s16x")
_BLOCK = 2**20
# Arrays that any machine holds.
_SMALL = 2**24
_ENDING = ".measurements.npz"
# The longest name of a file that systems agree on, in bytes.
_LONGEST_NAME = 255
# A number takes eight bytes; the rest is for what describes them.
_BYTES_A_CELL, _BYTES_BESIDE = 8, 10_000_000


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
        Arrays of numbers by name: float64, int64 or uint8.
    """
    file = Path(path)
    text = np.frombuffer(json.dumps(header, ensure_ascii=False).encode(), dtype=np.uint8)
    try:
        with replacing(file) as stream:
            np.savez(stream, allow_pickle=False, **{_HEADER: text, **arrays})
    except OSError as error:
        raise MeasurementError(f"{file} cannot be written ({error.strerror})", remedy="name another file") from error


class ArchiveError(MeasurementError):
    """A file of arrays is damaged, or was not written by margrave."""

    def __init__(self, problem: object = "", *, remedy: str = "save it again") -> None:
        super().__init__(problem, remedy=remedy)


class Archive:
    """A file of arrays that is open for reading; made by `open_archive`.

    Attributes
    ----------
    file
        Its path.
    header
        Its JSON header.
    """

    def __init__(self, file: Path, archive: zipfile.ZipFile, kind: str, schema: int) -> None:
        self.file, self._zip = file, archive
        self._members = _checked_members(file, archive)
        content = self.array(_HEADER, (min(self.length(_HEADER), MOST_BYTES + 1),), np.dtype(np.uint8))
        with _damage_named(file):
            self.header: dict[str, Any] = parse_object(content.tobytes().decode())
        _check_header(file, self.header, kind, schema)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def length(self, name: str) -> int:
        """Return how many numbers an array says that it has, without reading it."""
        with self._stream(name) as stream:
            return math.prod(_outline(stream)[2])

    def array(self, name: str, shape: Shape, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array of the file, if it has the shape and the type that it must have.

        Parameters
        ----------
        name
            Its name.
        shape
            The shape that follows from the rest of the file.
        dtype
            float64, int64 or uint8.
        """
        with self._stream(name) as stream:
            found, fortran, own_shape = _outline(stream)
            if own_shape != shape or found.newbyteorder("=") != dtype:
                raise ArchiveError(
                    f"{self.file} is damaged: its {name!r} has shape {_shown(own_shape)} of {found.name}, not "
                    f"{_shown(shape)} of {dtype.name}"
                )
            begin, count = stream.tell(), math.prod(shape)
            if begin + count * dtype.itemsize != self._members[name].file_size:
                raise ValueError(f"{name!r} has a wrong size")
            if count * dtype.itemsize > _SMALL:
                require_memory(count * dtype.itemsize, f"{name!r} of {self.file}", [], advice="use a larger machine")
            array = np.empty(count, dtype=found)
            _fill(array, stream)
            native = array.astype(dtype, copy=False)
            return native.reshape(shape[::-1]).T if fortran else native.reshape(shape)

    @contextmanager
    def _stream(self, name: str) -> Iterator[IO[bytes]]:
        """Open a member of the file."""
        if name not in self._members:
            raise ArchiveError(f"{self.file} is damaged: it lacks {name!r}")
        with _damage_named(self.file), self._zip.open(self._members[name]) as stream:
            yield stream


@contextmanager
def open_archive(path: str | os.PathLike[str], kind: str, schema: int) -> Iterator[Archive]:
    """Open a file of arrays, and read its header.

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
        stream: BinaryIO = file.open("rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise MeasurementError(f"{file} cannot be read ({reason})", remedy="give the path of a saved file") from error
    with stream:
        with _damage_named(file):
            _check_directory(file, stream)
            archive = zipfile.ZipFile(stream)
        yield Archive(file, archive, kind, schema)


def _check_directory(file: Path, stream: BinaryIO) -> None:
    """Refuse what is not a zip file, and one whose list of members alone would take much memory."""
    outline = os.fstat(stream.fileno())
    if not stat.S_ISREG(outline.st_mode):
        raise MeasurementError(f"{file} is not a regular file", remedy="give the path of a saved file")
    if stream.read(len(_MAGIC)) == _MAGIC:
        raise MeasurementError(f"{file} holds a single array", remedy="give a file that margrave has written")
    tail = min(outline.st_size, _END_64.size + _LOCATOR_64.size + _END.size)
    stream.seek(-tail, os.SEEK_END)
    content = stream.read(tail).rjust(_END_64.size + _LOCATOR_64.size + _END.size, b"\0")
    mark, size, comment = _END.unpack_from(content, _END_64.size + _LOCATOR_64.size)
    if mark != b"PK\x05\x06" or comment != 0:
        raise ValueError("it does not end as a zip file does")
    if _LOCATOR_64.unpack_from(content, _END_64.size)[0] == b"PK\x06\x07":
        _, size = _END_64.unpack_from(content)
    if size > min(_DIRECTORY_SHARE * outline.st_size, _MOST_DIRECTORY_BYTES):
        raise ValueError(f"it lists its members in {size:,} bytes, more than it can have")
    stream.seek(0)


def _checked_members(file: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name, if they are not compressed and do not take more than the file has."""
    assert archive.fp is not None
    size = os.fstat(archive.fp.fileno()).st_size
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        with _damage_named(file):
            if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
                raise ValueError(f"{name!r} is compressed, as margrave never writes it")
            if name in members:
                raise ValueError(f"{name!r} appears twice")
        members[name] = member
    with _damage_named(file):
        if sum(member.file_size for member in members.values()) > size:
            raise ValueError("its arrays are larger than the file")
    return members


def _outline(stream: IO[bytes]) -> tuple[np.dtype[Any], bool, Shape]:
    """Return type, order and shape of an array from its header; the stream is then at its first number."""
    start = stream.read(len(_MAGIC) + 2)
    if len(start) != len(_MAGIC) + 2 or not start.startswith(_MAGIC):
        raise ValueError("a member is not an array in numpy's format 1.0")
    found = _OUTLINE.fullmatch(stream.read(int.from_bytes(start[len(_MAGIC) :], "little")))
    if found is None:
        raise ValueError("an array says nothing about its shape, or is not of plain numbers")
    shape = tuple(int(number) for number in found[3].replace(b",", b" ").split())
    return np.dtype(found[1].decode()), found[2] == b"True", shape


def _fill(array: NDArray[Any], stream: IO[bytes]) -> None:
    """Fill a flat array from a stream, a block at a time; the checksum is looked at behind the last one."""
    content = array.view(np.uint8)
    for begin in range(0, len(content), _BLOCK):
        block = stream.read(min(_BLOCK, len(content) - begin))
        if len(block) != min(_BLOCK, len(content) - begin):
            raise EOFError("an array ends too early")
        content[begin : begin + len(block)] = np.frombuffer(block, dtype=np.uint8)
    stream.read(1)


@contextmanager
def _damage_named(file: Path) -> Iterator[None]:
    """Turn what is raised about the content of a file into an error with its name."""
    try:
        yield
    except ArchiveError:
        raise
    except (MargraveError, *UNREADABLE) as error:
        reason = str(error) or type(error).__name__
        raise ArchiveError(f"{file} is damaged or was not written by margrave ({reason})") from error


def _shown(shape: Shape) -> str:
    """Return a shape for a message."""
    text = str(shape)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _check_header(file: Path, header: Mapping[str, Any], kind: str, schema: int) -> None:
    """Raise `MeasurementError` unless the header announces this kind in a schema that can be read."""
    found = header.get("margrave")
    if found != kind:
        raise MeasurementError(f"{file} holds {found!r}, not {kind!r}", remedy=f"give a file of {kind}")
    version = header.get("schema")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise MeasurementError(f"{file} has schema {version!r}", remedy="a version is a whole number from 1")
    if version > schema:
        raise MeasurementError(f"{file} has schema {version}, this margrave reads up to {schema}", remedy="upgrade it")


class Savable(Protocol):
    """What can be kept in a file, as `Measurements` can."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file."""
        ...


class KeptFile:
    """A file for measurements that are paid for, until the release made from them is finished.

    Parameters
    ----------
    target
        The file to write.

    Attributes
    ----------
    target
        The file to write.
    path
        Where the measurements are; None as long as there are none.
    """

    def __init__(self, target: str | os.PathLike[str]) -> None:
        self.target = Path(target)
        self.path: Path | None = None

    @classmethod
    def beside(cls, folder: str | os.PathLike[str]) -> KeptFile:
        """Return the file next to the folder of a release that does not exist yet."""
        return cls(Path(folder).parent / f"{Path(folder).name}{_ENDING}")

    def require_room(self, cells: int) -> None:
        """Raise `MeasurementError`, before anything is spent, if the measurements could not be written.

        Parameters
        ----------
        cells
            How many numbers will be measured at most.
        """
        file = self.target
        if os.path.lexists(file):
            raise MeasurementError(
                f"{file} exists: the measurements of a run that did not finish",
                remedy=f"they are paid for. Make the release "
                f"from them (margrave reconstruct {file} …), or remove the file to spend again",
            )
        if len(os.fsencode(file.name)) > _LONGEST_NAME:
            raise MeasurementError(f"the name {file.name[:40]}… is too long for a file", remedy="choose a shorter one")
        try:
            file.touch(exist_ok=False)
            free = shutil.disk_usage(file.parent).free
        except OSError as error:
            raise MeasurementError(
                f"{file} cannot be written ({error.strerror})", remedy="choose another folder"
            ) from error
        finally:
            with suppress(OSError):
                file.unlink()
        needed = _BYTES_A_CELL * cells + _BYTES_BESIDE
        if free < needed:
            raise MeasurementError(
                f"the disk of {file.parent} has {free / 1e6:,.0f} MB left and the measurements alone may take "
                f"{needed / 1e6:,.0f} MB",
                remedy="free some space, or choose a folder elsewhere",
            )

    def save(self, noisy: Savable) -> None:
        """Save measurements in place of earlier ones; if need be in the folder for temporary files."""
        try:
            noisy.save(self.target)
        except MargraveError:
            self.target = Path(mkdtemp(prefix="margrave-")) / f"kept{_ENDING}"
            noisy.save(self.target)
        self.path = self.target

    def remove(self) -> None:
        """Remove the file, once the release made from it is finished."""
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink()
