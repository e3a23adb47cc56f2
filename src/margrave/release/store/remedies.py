"""What to do about a damaged folder: as long as its measurements are whole, everything else can be made anew."""

from __future__ import annotations

from pathlib import Path

from margrave.errors import MargraveError, StoreError
from margrave.measurements import Measurements
from margrave.measurements.archive import UNREADABLE
from margrave.release.store.manifest import MEASUREMENTS, read_manifest
from margrave.release.store.verification import checksum


def remedy(folder: Path) -> str | None:
    """Return how to make a damaged release anew from its measurements; None if they are damaged too."""
    file = folder / MEASUREMENTS
    if not (_is_readable(file) and _is_recorded(folder, file)):
        return None
    return f"margrave reconstruct {file} … makes it anew at no cost"


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
    return recorded.get(MEASUREMENTS) == checksum(file)
