"""What a folder must pass before anything in it is believed: the right files, of the right sizes and checksums."""

from __future__ import annotations

import hashlib
import math
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from margrave.errors import StoreError
from margrave.release.store.damage import damage
from margrave.release.store.folder import list_files
from margrave.release.store.manifest import MANIFEST, OWN_FILES, FileEntry, Manifest


def checksum(file: Path) -> FileEntry:
    """Return the size and the SHA-256 checksum of a file."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileEntry(stream.tell(), digest)


def listing_faults(folder: Path, manifest: Manifest) -> Iterator[tuple[str, StoreError]]:
    """Iterate over the files that a folder lacks, has too many, or has in another size, each with what is wrong."""
    present = {name for name in list_files(folder) if name != MANIFEST}
    listed = manifest.files.keys()
    for name in sorted((listed | set(OWN_FILES)) - present - {MANIFEST}):
        yield name, damage(f"{folder / name} is missing")
    for name in sorted(present - listed):
        yield name, StoreError(f"{folder / name} is not part of the release; take it out of the folder")
    for name in (name for name in listed if name in present):
        found = (folder / name).lstat()
        if not stat.S_ISREG(found.st_mode):
            yield name, damage(f"{folder / name} is a link or a device, not a file")
        elif found.st_size != manifest.files[name].bytes:
            sizes = f"{found.st_size:,} bytes, not {manifest.files[name].bytes:,}"
            yield name, damage(f"{folder / name} is damaged: {sizes}")


def check_content(folder: Path, name: str, entry: FileEntry) -> None:
    """Refuse a file whose content is not what was written."""
    try:
        found = checksum(folder / name)
    except OSError as error:
        raise damage(f"{folder / name} cannot be read ({error.strerror})") from error
    if found != entry:
        raise damage(f"{folder / name} is damaged: its checksum is wrong")


def check_archive(file: Path) -> None:
    """Refuse an archive of arrays that would take more memory than it has bytes: compressed, or of false shapes."""
    size = file.stat().st_size
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED or member.file_size > size:
                raise damage(f"{file} is damaged: {member.filename!r} is compressed")
            with archive.open(member) as stream:
                if _array_bytes(stream) != member.file_size:
                    raise damage(f"{file} is damaged: {member.filename!r} has a false shape")


def _array_bytes(stream: IO[bytes]) -> int:
    """Return how many bytes an array with its header takes, by what the header says."""
    version = npy.read_magic(stream)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    return stream.tell() + math.prod(shape) * np.dtype(dtype).itemsize
