"""What every benchmark needs: the best of several runs, the copy that sets the limit, peak memory, one JSON line."""

from __future__ import annotations

import itertools
import json
import os
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


def processor_seconds_of_all() -> float:
    """Return the processor time of this process and of all that it has started and that live, children of children too.

    Where the system does not tell (it does on Linux), that of this process alone.
    """
    own = os.getpid()
    parents, taken = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name of the program, in brackets, may have blanks.
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        process = int(file.parent.name)
        # Parent; user and system time of the process and of the children that it has waited for.
        parents[process], taken[process] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    if own not in taken:
        return time.process_time()

    def below(process: int | None) -> bool:
        while process is not None and process != own:
            process = parents.get(process)
        return process == own

    return sum(seconds for process, seconds in taken.items() if below(process))


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
