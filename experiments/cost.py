"""What a step costs: its time, and the most memory that the process held meanwhile."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")

_MEGABYTE = 1e6


@dataclass(frozen=True)
class Cost:
    """Time and memory of a step.

    Attributes
    ----------
    seconds
        How long it took.
    megabytes
        The largest resident size of the process during the step; where the system cannot tell (anywhere but on Linux),
        the largest so far.
    """

    seconds: float
    megabytes: float


def costed(work: Callable[[], Value]) -> tuple[Value, Cost]:
    """Return what ``work`` returns, and what it cost."""
    gc.collect()  # so that no step pays for what those before it left behind
    _forget_peak()
    started = time.perf_counter()
    value = work()
    return value, Cost(time.perf_counter() - started, peak_bytes() / _MEGABYTE)


def peak_bytes() -> int:
    """Return the largest resident size of this process since it was last forgotten, or so far."""
    peak = _status(os.getpid(), "VmHWM")
    if peak is not None:
        return peak
    import resource

    # In kilobytes, except on macOS, which is the system that comes here.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident_bytes(process: int) -> int:
    """Return the resident size of a process now; zero if it has gone."""
    size = _status(process, "VmRSS")
    if size is not None or Path("/proc/self/status").exists():
        return size or 0
    import subprocess

    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True, check=False)
    return int(shown.stdout.strip() or 0) * 1024


def _forget_peak() -> None:
    """Let the system's record of the largest resident size begin anew (Linux; elsewhere it cannot be done)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _status(process: int, name: str) -> int | None:
    """Return a size from what Linux tells about a process, in bytes, or None."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return None if found is None else int(found.split()[1]) * 1024
