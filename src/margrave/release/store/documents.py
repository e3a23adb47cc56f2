"""Documents of a release: texts for readers that travel in its folder, with a checksum like every other file there.

A document and the manifest with its checksum are two files, and no system replaces two files at once. Both are
written under hidden names before either is renamed, the document first: whoever stops the machine between the two
leaves a release that loads, and a document that `loading.verify` names. Replacing it again repairs it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from margrave.atomic_file import replacing
from margrave.errors import StoreError
from margrave.release.store.folder import require_folder, sync
from margrave.release.store.manifest import KIND, MANIFEST, OWN_FILES, TABLES, FileEntry, read_document, read_manifest


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
            new_manifest.flush()  # what does not fit on the disk shall fail before anything is renamed
    except OSError as error:
        raise StoreError(
            f"{root / name} cannot be written ({error.strerror})", remedy="free some space, or request permission"
        ) from error
    with suppress(OSError):  # some file systems cannot bring a folder to disk, and the document is there
        sync(root)


def checked_documents(documents: Mapping[str, str], *, taken: Iterable[str] = ()) -> dict[str, str]:
    """Return documents if their names are plain and free, and their texts can be written.

    Parameters
    ----------
    documents
        Texts by file name.
    taken
        Names that are in use beside those of a release's own files; case does not count.
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
