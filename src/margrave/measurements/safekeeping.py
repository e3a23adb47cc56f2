"""Measurements that are paid for are never lost: they are on disk before anything else is done with them.

A `KeptFile` checks, before anything is spent, that the measurements can be written. Its ``save`` is the ``keep`` of a
mechanism:

    kept = KeptFile("release.measurements.npz")
    kept.require_room(cells)
    noisy = margrave.measure(plan, source, keep=kept.save, defer_signals=True)
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from margrave.errors import MargraveError, MeasurementError

if TYPE_CHECKING:
    from margrave.measurements.measurements import Measurements

_ENDING = ".measurements.npz"
# The longest name of a file that systems agree on, in bytes.
_LONGEST_NAME = 255
# A number takes eight bytes; the rest is for what describes them.
_BYTES_A_CELL, _BYTES_BESIDE = 8, 10_000_000


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
        """Return the file beside the folder of a release that is still to be made."""
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

    def save(self, noisy: Measurements) -> None:
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
