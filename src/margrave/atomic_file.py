"""Files that are replaced as a whole or, on failure, left as they were."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


@contextmanager
def replacing(file: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Give a stream to write to; the file is there with all of it when the block ends, and nothing changes if it fails.

    It is written under a name that nobody can foresee, never through a link, and is on disk before it is renamed.

    Parameters
    ----------
    file
        The file to write or replace.
    private
        Whether only this user may read it.
    """
    draft = file.parent / f".margrave-{uuid4().hex}.draft"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(draft, flags, 0o600 if private else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    finally:
        with suppress(OSError):
            draft.unlink()
