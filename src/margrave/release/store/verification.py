"""What a folder must pass before anything in it is believed: the right files, of the right sizes and checksums."""

from __future__ import annotations

import hashlib
import math
import stat
import zipfile
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from margrave.errors import StoreError
from margrave.release.store.folder import list_files
from margrave.release.store.manifest import MANIFEST, FileEntry, Manifest


def checksum(file: Path) -> FileEntry:
    """Return the size and the SHA-256 checksum of a file."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileEntry(stream.tell(), digest)


def check_listing(folder: Path, manifest: Manifest) -> None:
    """Refuse a folder that lacks a file, or has one that its manifest does not know, or one of another size."""
    present = {name for name in list_files(folder) if name != MANIFEST}
    for name in sorted(manifest.files.keys() - present):
        raise StoreError(f"{folder / name} is missing; get the release again")
    for name in sorted(present - manifest.files.keys()):
        raise StoreError(f"{folder / name} is not part of the release; take it out of the folder")
    for name, entry in manifest.files.items():
        found = (folder / name).lstat()
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{folder / name} is a link or a device, not a file; get the release again")
        if found.st_size != entry.bytes:
            raise StoreError(
                f"{folder / name} is damaged: {found.st_size:,} bytes, not {entry.bytes:,}; get the release again"
            )


def check_content(folder: Path, name: str, entry: FileEntry) -> None:
    """Refuse a file whose content is not what was written."""
    if checksum(folder / name) != entry:
        raise StoreError(f"{folder / name} is damaged: its checksum is wrong; get the release again")


def check_archive(file: Path) -> None:
    """Refuse an archive of arrays that would take more memory than it has bytes: compressed, or of false shapes."""
    size = file.stat().st_size
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED or member.file_size > size:
                raise StoreError(f"{file} is damaged: {member.filename!r} is compressed; get the release again")
            with archive.open(member) as stream:
                if _array_bytes(stream) != member.file_size:
                    raise StoreError(f"{file} is damaged: {member.filename!r} has a false shape; get the release again")


def _array_bytes(stream: IO[bytes]) -> int:
    """Return how many bytes an array with its header takes, by what the header says."""
    version = npy.read_magic(stream)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    return stream.tell() + math.prod(shape) * np.dtype(dtype).itemsize
