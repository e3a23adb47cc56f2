"""The folder of a release, which is there as a whole or not at all, and the documents in it.

A folder is written under a hidden name next to its place, brought to disk, and renamed. A process that is killed leaves
at most a hidden folder ``.name.….draft``, which means nothing and may be deleted. A folder that is replaced is first
renamed to ``.name.….former``; if the machine stops just then, it is complete under that name.

Documents are texts for readers that travel in the folder, with a checksum like every other file there. A document and
the manifest with its checksum are two files, and no system replaces two files at once. Both are written under hidden
names before either is renamed, the document first: a machine that stops between the two leaves a release that loads,
and a document that `loading.verify` names. Replacing it again repairs it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from margrave.errors import MargraveError, StoreError
from margrave.files import replacing
from margrave.release.store import (
    KIND,
    MANIFEST,
    OWN_FILES,
    TABLES,
    FileEntry,
    checksum,
    damage,
    read_document,
    read_manifest,
)

if TYPE_CHECKING:
    from margrave.release.facts import Imprint

# A hidden name repeats so much of the name it stands for: enough to recognise, short enough for any file system.
_SHOWN = 40
# The document that keeps what a release is called and who publishes it.
IMPRINT = "imprint.json"


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a hidden folder to write to, and rename it to the target at the end; a failure leaves nothing.

    Parameters
    ----------
    target
        Where the folder goes. What already exists is replaced; check first that it may be (`checked_target`).
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
            remedy="nothing was left there; free some space, or name another folder",
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
    """Return the path of a folder that is there; the error for another names what an interruption has left of it.

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


def replace_document(folder: str | os.PathLike[str], name: str, text: str) -> None:
    """Put a document into the folder of a release, in place of what it has under that name, and record its checksum.

    Parameters
    ----------
    folder
        A folder that `Release.save` has written. Nothing but the document and the manifest is looked at or changed.
    name
        The file name, such as ``report.html``; no file of the release itself.
    text
        What to write, in UTF-8.
    """
    root = require_folder(folder)
    manifest = read_manifest(root)
    others = [other for other in manifest.files if other != name]
    content = checked_documents({name: text}, taken=others)[name].encode()
    entry = FileEntry(len(content), hashlib.sha256(content).hexdigest())
    record = replace(manifest, files={**manifest.files, name: entry}).to_json().encode()
    try:
        with replacing(root / MANIFEST) as new_manifest, replacing(root / name) as new_document:
            new_document.write(content)
            new_manifest.write(record)
            new_manifest.flush()  # what does not fit on the disk must fail before anything is renamed
    except OSError as error:
        raise StoreError(
            f"{root / name} cannot be written ({error.strerror})", remedy="free some space, or request permission"
        ) from error
    with suppress(OSError):  # some file systems cannot bring a folder to disk, and the document is there
        sync(root)


def imprint_document(title: str | None, imprint: Imprint) -> dict[str, str]:
    """Return the document that keeps what a release is called and who publishes it; none if nothing is given.

    Parameters
    ----------
    title, imprint
        As for the report.
    """
    given = {name: text for name, text in {"title": title, **imprint}.items() if text is not None}
    return {IMPRINT: json.dumps(given, indent=2, ensure_ascii=False) + "\n"} if given else {}


def read_imprint(folder: str | os.PathLike[str]) -> tuple[str | None, Imprint]:
    """Return what a release is called and who publishes it, as its folder records it; None for what it does not.

    Parameters
    ----------
    folder
        A folder that `Release.save` has written.
    """
    root = require_folder(folder)
    entry = read_manifest(root).files.get(IMPRINT)
    if entry is None:
        return None, {}
    found = read_document(root / IMPRINT)
    if checksum(root / IMPRINT) != entry or not all(isinstance(text, str) for text in found.values()):
        raise damage(f"{root / IMPRINT} is damaged: it is not the texts that were written")
    publisher, licence, contact, date = (found.get(name) for name in ("publisher", "licence", "contact", "date"))
    return found.get("title"), {"publisher": publisher, "licence": licence, "contact": contact, "date": date}


def checked_documents(documents: Mapping[str, str], *, taken: Iterable[str] = ()) -> dict[str, str]:
    """Return documents if their names are plain and free, and their texts can be written.

    Parameters
    ----------
    documents
        Texts by file name.
    taken
        Names that are in use in addition to those of a release's own files; case does not count.
    """
    used = {name.casefold() for name in (*OWN_FILES, TABLES, *taken)}
    for name, text in documents.items():
        plain = name.isascii() and name.replace(".", "").replace("-", "").replace("_", "").isalnum()
        if not plain or name.startswith(".") or name.casefold() in used:
            raise StoreError(
                f"a document cannot be called {name!r}",
                remedy=f"use ASCII letters, digits, '-', '_' and '.', and no name that "
                f"the release has itself ({', '.join(OWN_FILES)})",
            )
        require_text(text, f"the document {name!r}")
        used.add(name.casefold())
    return dict(documents)


def require_text(text: object, what: str) -> None:
    """Refuse what a file in UTF-8 cannot hold: anything but text, and text with an unpaired surrogate.

    Parameters
    ----------
    text
        What should be a text.
    what
        What it is called in the error.
    """
    try:
        if isinstance(text, str):
            text.encode()
            return
    except UnicodeEncodeError:
        pass
    raise StoreError(
        f"{what} must be text that can be written as UTF-8", remedy="it is something else, or has an unpaired surrogate"
    )


def require_outside(path: str | os.PathLike[str]) -> None:
    """Refuse a path inside the folder of a release, where a file more, or another content, would be damage.

    Parameters
    ----------
    path
        A file or folder that somebody wants to write.
    """
    with suppress(OSError, ValueError):
        parent = Path(os.path.realpath(Path(path).parent))
        for folder in (parent, *parent.parents):
            if is_release(folder):
                raise StoreError(
                    f"{os.fspath(path)!r} lies in the release {folder}, which holds what was saved and nothing else",
                    remedy=f"write it elsewhere (margrave report {folder} renews the release's own report)",
                )


def is_release(folder: Path) -> bool:
    """Tell whether a folder says that it is a release; it may be damaged."""
    if not (folder / MANIFEST).is_file():
        return False
    try:
        return read_document(folder / MANIFEST).get("margrave") == KIND
    except StoreError:
        return False
