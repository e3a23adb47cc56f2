"""What every benchmark needs: the best of several runs, the copy that sets the limit, peak memory, one JSON line."""

from __future__ import annotations

import itertools
import json
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from margrave.algebra.kernels import thread_count


def best_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Return the shortest time of several runs, after one that warms up compilation and caches."""
    work()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def copy_seconds(size: int) -> float:
    """Return the time to copy so many bytes with numpy on the threads that margrave would use."""
    source, target = np.ones(size // 8), np.zeros(size // 8)
    threads = thread_count()
    bounds = np.linspace(0, len(source), threads + 1).astype(int)
    parts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
    with ThreadPoolExecutor(threads) as pool:
        return best_seconds(lambda: list(pool.map(lambda p: np.copyto(target[p], source[p]), parts)), 9)


def peak_megabytes() -> float:
    """Return the largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def resident_megabytes() -> float:
    """Return the resident size of this process now, where the system tells (Linux), else its largest so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_megabytes()
    return pages * resource.getpagesize() / 1e6


def report(name: str, seconds: float, limit_seconds: float, **more: object) -> None:
    """Print one result as a JSON object on a line of its own."""
    line = {
        "name": name,
        "seconds": round(seconds, 5),
        "peak_mb": round(peak_megabytes(), 1),
        "limit_seconds": round(limit_seconds, 5),
        "ratio": round(seconds / limit_seconds, 2),
    }
    print(json.dumps(line | more), flush=True)
