"""Run compiled loops over ranges of tables on a few plain threads.

The loops release the interpreter lock, so threads are all it takes. Ranges are handed out one by one: a core that is
busy with something else takes fewer of them. Which thread runs a range never changes a result.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from threading import Lock

import numpy as np

from margrave.algebra.kernels import Integers

# Below this many cells a second thread costs more than it brings (waking it takes about as long as 50,000 cells).
_CELLS_WORTH_A_THREAD = 65_536
_RANGES_PER_THREAD = 8


def thread_count() -> int:
    """Return how many threads to use: ``MARGRAVE_THREADS`` if set, else the cores this process may run on."""
    asked = os.environ.get("MARGRAVE_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def over_tables(task: Callable[[int, int], None], first: int, last: int, offset: Integers) -> None:
    """Call ``task(begin, end)`` for ranges that make up tables ``first … last − 1``, on all threads.

    Parameters
    ----------
    task
        Works on the tables begin … end − 1 and on nothing that another range writes.
    first, last
        The tables to work on.
    offset
        First cell of each table; tells how much work a table is.
    """
    cells = int(offset[last] - offset[first])
    threads = thread_count()
    if cells < _CELLS_WORTH_A_THREAD or threads == 1 or last - first < 2:
        if last > first:
            task(first, last)
        return
    pieces = min(threads * _RANGES_PER_THREAD, last - first, max(threads, cells // _CELLS_WORTH_A_THREAD))
    targets = offset[first] + np.arange(1, pieces) * (cells / pieces)
    bounds = np.unique(np.concatenate([[first], np.searchsorted(offset[first:last], targets) + first, [last]]))
    ranges = list(pairwise(bounds.tolist()))
    # Not a shared iterator: without an interpreter lock it might hand out a range twice, and tasks may add up.
    taking = Lock()

    def work() -> None:
        while True:
            with taking:
                if not ranges:
                    return
                begin, end = ranges.pop(0)
            task(begin, end)

    helpers: list[Future[None]] = [_pool(threads).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        for helper in helpers:
            helper.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return the pool that serves all calls with this many threads."""
    return ThreadPoolExecutor(max_workers=threads - 1, thread_name_prefix="margrave")
