"""All that is wrong with the folder of a release, for those who keep it."""

from __future__ import annotations

import os
from pathlib import Path

from margrave.errors import DamageError, MargraveError, StoreError
from margrave.measurements.archive import UNREADABLE
from margrave.release.store.folder import require_folder
from margrave.release.store.loading import load
from margrave.release.store.manifest import Manifest, damage, read_manifest, remedied
from margrave.release.store.verification import check_content, listing_faults, remedy


def verify(folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return all that is wrong with a folder, one sentence each; nothing if it is what was saved, documents included.

    `load` stops at the first fault that concerns the numbers asked for, and looks at documents only if asked.

    Parameters
    ----------
    folder
        A folder that `Release.save` has written.
    """
    root = require_folder(folder)
    faults: list[MargraveError] = []
    try:
        manifest = read_manifest(root)
        found = _faults(root, manifest)
        faults += found.values()
        if not any(manifest.needs(name) for name in found):
            load(root).counts.everything()
    except MargraveError as error:
        faults.append(error)
    except UNREADABLE as error:
        faults.append(damage(f"{root} cannot be read ({error})"))
    better = remedy(root) if faults else None
    return tuple(str(remedied(fault, better) if isinstance(fault, DamageError) else fault) for fault in faults)


def _faults(root: Path, manifest: Manifest) -> dict[str, StoreError]:
    """Return what is wrong with the files of a folder, by name."""
    faults = dict(listing_faults(root, manifest))
    for name, entry in manifest.files.items():
        if name not in faults:
            try:
                check_content(root, name, entry)
            except StoreError as error:
                faults[name] = error
    return faults
