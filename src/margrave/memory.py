"""How much memory is left; a refusal, before any work is done, of work that needs more; and arrays on disk.

Large arrays come from `large_array`. Within `on_disk` they are files of a folder, mapped into memory: the operating
system keeps in memory what it has room for. The files have no name from the moment that they are made, so that nothing
of them is left, however the process ends.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from margrave.errors import MemoryLimitError, StoreError

# Leaves room for the interpreter, the libraries and what else runs on the machine.
_USABLE_SHARE = 0.9
# Threads and compiled code take this much address space, most of which they never use.
_MAPPED_LATER = 300_000_000


def available_bytes() -> int:
    """Return the memory that this process may still take: the least of what machine, container and limits leave."""
    return min(_machine_bytes(), _container_bytes(), _limit_bytes())


def require_memory(needed: int, purpose: str, largest: Sequence[tuple[str, int]], *, advice: str) -> None:
    """Raise `MemoryLimitError` if ``needed`` bytes are more than the machine can give.

    Parameters
    ----------
    needed
        Bytes that the work will take.
    purpose
        What they are for, as the object of "… needs".
    largest
        The largest tables as (name, bytes), named in the message; there may be none.
    advice
        What the user can do, as a sentence without its full stop.
    """
    usable = int(available_bytes() * _USABLE_SHARE)
    if needed <= usable:
        return
    tables = ", ".join(f"{name} ({_readable(size)})" for name, size in largest)
    named = f"the largest tables are {tables}; " if largest else ""
    raise MemoryLimitError(
        f"{purpose} needs {_readable(needed)} of memory and {_readable(usable)} can be used", remedy=f"{named}{advice}"
    )


def require_addresses(needed: int, purpose: str, *, advice: str) -> None:
    """Raise `MemoryLimitError` if a limit on the address space (``ulimit -v``) is below ``needed`` bytes.

    For libraries that reserve far more addresses than they will ever use: only this limit counts them.

    Parameters
    ----------
    needed
        Bytes of addresses, those of the rest of the process included.
    purpose
        What they are for, as the object of "… needs".
    advice
        What the user can do, as a sentence without its full stop.
    """
    limit = _address_limit()
    if limit < needed:
        raise MemoryLimitError(
            f"{purpose} needs {_readable(needed)} of address space, and the limit of this process (ulimit -v) is "
            f"{_readable(limit)}",
            remedy=advice,
        )


_FOLDER: ContextVar[Path | None] = ContextVar("folder of large arrays", default=None)


@contextmanager
def on_disk(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Keep large arrays that are made within this context in files of a folder; None keeps them in memory."""
    if folder is None:
        yield
        return
    path = Path(folder)
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        raise StoreError(f"{path} is not a folder that can be written to", remedy="name one for large arrays")
    token = _FOLDER.set(path)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def large_array(cells: int) -> NDArray[np.float64]:
    """Return an uninitialised array of this many numbers: in memory, or within `on_disk` in a file without a name."""
    folder, size = _FOLDER.get(), 8 * cells
    if folder is None or size == 0:
        return np.empty(cells)
    free = shutil.disk_usage(folder).free
    if size > free * _USABLE_SHARE:
        raise MemoryLimitError(
            f"an array of {_readable(size)} does not fit into {folder}, where {_readable(free)} are free",
            remedy="name a folder on a larger disk",
        )
    with tempfile.TemporaryFile(dir=folder) as file:
        # Room is taken at once: a disk that is full later would end the process.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype=np.float64)


def _readable(size: int) -> str:
    """Return a number of bytes in the unit a person would use."""
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} TB" if value < 1e6 else f"{value:.1e} TB"


def _machine_bytes() -> int:
    """Return the memory that the operating system calls available (Linux), or all there is."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _container_bytes() -> int:
    """Return what the control group (version 2) of this process leaves, or more than any machine has."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text().strip()
        return int(limit) - int((folder / "memory.current").read_text()) if limit != "max" else 2**62
    except (OSError, ValueError):
        return 2**62


def _limit_bytes() -> int:
    """Return what an address-space limit (``ulimit -v``) leaves for arrays, or more than any machine has."""
    limit = _address_limit()
    return limit if limit == 2**62 else max(limit - _mapped_bytes() - _MAPPED_LATER, 0)


def _address_limit() -> int:
    """Return the address-space limit of this process, or more than any machine has."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return 2**62
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 2**62 if limit == resource.RLIM_INFINITY else limit


def _mapped_bytes() -> int:
    """Return the address space that this process has taken already (Linux), or nothing."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
