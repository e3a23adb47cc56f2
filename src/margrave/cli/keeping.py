"""What was paid for is never lost: measurements are on disk before anything else is done with them."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from margrave.errors import JobError, MargraveError

if TYPE_CHECKING:
    from margrave.measurements import Measurements

_ENDING = ".measurements.npz"
# The longest name of a file that systems agree on, in bytes.
_LONGEST_NAME = 255
# Noisy residuals take eight bytes a cell; the rest is for what describes them.
_BYTES_A_CELL, _BYTES_BESIDE = 8, 10_000_000


def kept_file(folder: Path) -> Path:
    """Return where the measurements of a release are kept until it is finished: beside its folder."""
    return folder.parent / f"{folder.name}{_ENDING}"


def require_room(file: Path, cells: int) -> None:
    """Refuse, before anything is spent, where the measurements could not be kept.

    Parameters
    ----------
    file
        Where they are to go.
    cells
        How many cells will be measured.
    """
    if os.path.lexists(file):
        raise JobError(
            f"{file} is there: the measurements of a run that did not end; they are paid for. Make the release from "
            f"them (margrave reconstruct {file} …), or remove the file to spend anew"
        )
    if len(os.fsencode(file.name)) > _LONGEST_NAME:
        raise JobError(f"the name {file.name[:40]}… is too long for a file; name a folder with fewer letters")
    try:
        file.touch(exist_ok=False)
        free = shutil.disk_usage(file.parent).free
    except OSError as error:
        raise JobError(f"{file} cannot be written ({error.strerror}); name another folder") from error
    finally:
        with suppress(OSError):
            file.unlink()
    needed = _BYTES_A_CELL * cells + _BYTES_BESIDE
    if free < needed:
        raise JobError(
            f"the disk of {file.parent} has {free / 1e6:,.0f} MB left and the measurements alone may take "
            f"{needed / 1e6:,.0f} MB; make room, or name a folder elsewhere"
        )


def keep(noisy: Measurements, file: Path) -> Path:
    """Save measurements that are paid for, if need be where temporary files go, and return where they are."""
    try:
        noisy.save(file)
    except MargraveError:
        file = Path(mkdtemp(prefix="margrave-")) / f"kept{_ENDING}"
        noisy.save(file)
    return file


class Keeper:
    """Saves what a mechanism hands over, stage after stage, and knows where it is.

    Parameters
    ----------
    file
        Where the measurements are to go.
    options
        The words of the command line that make the wanted release from them.

    Attributes
    ----------
    file
        Where the measurements are; None as long as there are none.
    """

    def __init__(self, file: Path, options: Sequence[str]) -> None:
        self.file: Path | None = None
        self._target, self._options = file, options

    def save(self, noisy: Measurements) -> None:
        """Save measurements in place of those of the stage before."""
        self.file = self._target = keep(noisy, self._target)

    def continuation(self) -> str:
        """Return where the measurements are and the command that goes on from them; nothing if there are none."""
        if self.file is None:
            return ""
        command = shlex.join(["margrave", "reconstruct", os.path.relpath(self.file), *self._options])
        return f"; the measurements are paid for and kept in {self.file}; to go on from them at no cost: {command}"
