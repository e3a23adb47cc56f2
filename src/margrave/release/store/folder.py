"""Folders that are there as a whole or not at all.

A folder is written under a hidden name beside its place, brought to disk, and renamed. A process that is killed leaves
at most a hidden folder ``.name.….draft``, which means nothing and may be deleted. A folder that is replaced is first
renamed to ``.name.….former``; if the machine stops just then, it is complete under that name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from margrave.errors import MargraveError, StoreError

# A hidden name repeats so much of the name it stands for: enough to recognise, short enough for any file system.
_SHOWN = 40


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a hidden folder to write to, and rename it to the target in the end; nothing is left of a failure.

    Parameters
    ----------
    target
        Where the folder goes. What is there already is replaced: see that it may be, before (`checked_target`).
    """
    draft = _hidden(target, "draft")
    try:
        try:
            draft.mkdir()
            yield draft
            _sync_folders(draft)
            _publish(draft, target)
        except MargraveError as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            raise
    except (OSError, MemoryError) as error:
        raise StoreError(
            f"{target} cannot be written ({_reason(error)})",
            remedy="nothing was left there, make room or name another folder",
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def checked_target(folder: str | os.PathLike[str]) -> Path:
    """Return the full path of a folder to write, links resolved, if the folder that it goes into is there."""
    try:
        path = Path(os.path.realpath(folder))
        ready = path.parent.is_dir() and path != path.parent
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{os.fspath(folder)!r} cannot be written to ({_reason(error)})", remedy="name another one"
        ) from error
    if not ready:
        raise StoreError(
            f"{path.parent} is not a folder, so {path.name!r} cannot be written there",
            remedy="create it, or name another one",
        )
    return path


def require_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a folder that is there; what an interrupted replacement has left of one that is not, is named.

    Parameters
    ----------
    folder
        The folder of a release.
    """
    path = Path(folder)
    if path.is_dir():
        return path
    kept = interrupted(path)
    if kept is None:
        raise StoreError(f"there is no folder {path}", remedy="give the folder of a release")
    raise StoreError(
        f"there is no folder {path}, but an interrupted replacement has left the release that was there as {kept}",
        remedy="rename it back, or save again",
    )


def list_files(folder: Path) -> Iterator[str]:
    """Iterate over all files of a folder and of those inside it, as relative paths with ``/``; without hidden names."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(place)
        links = [name for name in folders if (inside / name).is_symlink()]
        for name in sorted([*files, *links]):
            if not name.startswith("."):
                yield (inside / name).relative_to(folder).as_posix()


def interrupted(folder: Path) -> Path | None:
    """Return the folder that an interrupted replacement has left under a hidden name, if there is one."""
    with suppress(OSError, ValueError):
        mark = f".{folder.name[:_SHOWN]}."
        kept = [path for path in folder.parent.iterdir() if path.name.startswith(mark) and path.suffix == ".former"]
        return kept[0] if kept else None
    return None


def sync(path: Path) -> None:
    """Wait until a file, or the list of files of a folder, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _publish(draft: Path, target: Path) -> None:
    """Rename the draft to the target, in place of what is there."""
    if not os.path.lexists(target):
        draft.replace(target)
    else:
        former = _hidden(target, "former")
        target.replace(former)
        try:
            draft.replace(target)
        except BaseException:
            former.replace(target)
            raise
        shutil.rmtree(former, ignore_errors=True)
    with suppress(OSError):  # some file systems cannot bring a folder to disk, and the release is there
        sync(target.parent)


def _sync_folders(folder: Path) -> None:
    """Bring the lists of files of a folder and the folders inside to disk."""
    with suppress(OSError):
        for place, _, _ in os.walk(folder):
            sync(Path(place))


def _hidden(target: Path, purpose: str) -> Path:
    return target.with_name(f".{target.name[:_SHOWN]}.{uuid4().hex}.{purpose}")


def _reason(error: OSError | MemoryError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "out of memory"


def _raise(error: OSError) -> None:
    raise error
