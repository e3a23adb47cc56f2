"""Whether a folder holds what was saved: the right files, of the right sizes and checksums; and what to do if not.

As long as its measurements are intact, everything else can be rebuilt from them at no privacy cost.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path

from margrave.errors import MargraveError, StoreError
from margrave.measurements import Measurements
from margrave.measurements.archive import UNREADABLE
from margrave.release.store.folder import list_files
from margrave.release.store.manifest import (
    MANIFEST,
    MEASUREMENTS,
    OWN_FILES,
    FileEntry,
    Manifest,
    damage,
    read_manifest,
)


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
        yield name, StoreError(f"{folder / name} is not part of the release", remedy="take it out of the folder")
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


def remedy(folder: Path) -> str | None:
    """Return how to rebuild a damaged release from its measurements; None if they are damaged too."""
    file = folder / MEASUREMENTS
    if not (_is_readable(file) and _is_recorded(folder, file)):
        return None
    return f"margrave reconstruct {file} … rebuilds it at no privacy cost"


def _is_readable(file: Path) -> bool:
    """Tell whether a file holds measurements; their archive has checksums of its own."""
    try:
        if file.is_symlink() or not file.is_file():
            return False
        Measurements.load(file)
    except (MargraveError, *UNREADABLE):
        return False
    return True


def _is_recorded(folder: Path, file: Path) -> bool:
    """Tell whether measurements are those of the manifest; where that cannot be read, nothing speaks against them."""
    try:
        recorded = read_manifest(folder).files
    except StoreError:
        return True
    try:
        return recorded.get(MEASUREMENTS) == checksum(file)
    except OSError:
        return False
