"""All 166,751 marginals of up to three of a hundred attributes of ten values (1.6e8 cells), one after the other.

Asked: at most 6 s on two cores, set-up included, and 2 GB. The limit is the time to copy as many bytes; published for
the same job: 154 s.
"""

from __future__ import annotations

import time
from itertools import combinations, cycle, islice

import numpy as np
from timing import copy_seconds, report

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.algebra.transform import stream_marginals


def main() -> None:
    """Stream the tables from a small stock of residuals, so that memory holds no more than it must."""
    generator = np.random.default_rng(0)
    small = Layout.of((10,) * 3, [(0, 1, 2)])
    stock = [
        small.view(transform.center(small, generator.normal(size=small.cells)), len(small.sets) - 1) for _ in range(64)
    ]
    started = time.perf_counter()
    layout = Layout.of((10,) * 100, list(combinations(range(100), 3)))
    set_up = time.perf_counter() - started
    inner = generator.normal(size=layout.inner_cells)
    count, checksum = 0, 0.0
    started = time.perf_counter()
    for _, marginal in stream_marginals(layout, inner, islice(cycle(stock), len(layout.sets) - layout.outer)):
        count += 1
        checksum += marginal.flat[0]
    streamed = time.perf_counter() - started
    # Half a gigabyte is copied and the time scaled, so that the limit does not set the peak of memory.
    limit = copy_seconds(400_000_000) * (8 * layout.cells / 400_000_000)
    seconds = set_up + streamed
    report("stream 10^100 up to 3-way", seconds, limit, marginals=count, set_up_seconds=round(set_up, 3))


if __name__ == "__main__":
    main()
