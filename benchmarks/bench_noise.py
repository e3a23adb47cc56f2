"""Draw exact noise, against the time that the system takes for the random bits alone.

Asked: at least 3 million Gaussian samples a second on one core at σ = 1, 10, 10³, 10⁶, 10⁹. The limit is the time of
``os.urandom`` for two words a sample.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
from timing import best_seconds, report

from margrave.privacy.noise import discrete_gaussian, discrete_laplace
from margrave.privacy.staircase import gaussian_staircase

COUNT = 3_000_000
_BLOCK = 1 << 17


def entropy_seconds(count: int) -> float:
    """Return the time to get two words for each of so many samples from the system."""
    return best_seconds(lambda: [os.urandom(_BLOCK) for _ in range(16 * count // _BLOCK)])


def measure(limit: float) -> None:
    """Time one large call at each standard deviation."""
    for deviation in (Fraction(1, 100), Fraction(3, 10), 1, 10, 10**3, 10**6, 10**9, 10**15):
        out = np.empty(COUNT, dtype=np.int64)
        seconds = best_seconds(lambda d=deviation, o=out: discrete_gaussian(Fraction(d) ** 2, COUNT, out=o))
        report(
            f"discrete Gaussian, σ = {deviation}", seconds, limit, million_per_second=round(COUNT / seconds / 1e6, 2)
        )
    for scale in (1, 10**3, 10**9):
        seconds = best_seconds(lambda s=scale: discrete_laplace(s, COUNT))
        report(f"discrete Laplace, scale {scale}", seconds, limit, million_per_second=round(COUNT / seconds / 1e6, 2))


def measure_calls(calls: int = 500) -> None:
    """Time many small calls, each with a variance of its own: what a plan of many residuals does."""

    def work() -> None:
        gaussian_staircase.cache_clear()
        for index in range(calls):
            discrete_gaussian(Fraction(10**9 + index, 7), 1)

    seconds = best_seconds(work)
    report(
        f"{calls} calls for one sample each",
        seconds,
        1e-3 * calls,
        microseconds_per_call=round(1e6 * seconds / calls, 1),
    )


def measure_threads(threads: int = 2) -> None:
    """Time two threads side by side; twice the work in the time of one is the limit."""
    alone = best_seconds(lambda: discrete_gaussian(10**6, COUNT))
    with ThreadPoolExecutor(threads) as pool:
        together = best_seconds(lambda: list(pool.map(lambda _: discrete_gaussian(10**6, COUNT), range(threads))))
    report(f"{threads} threads", together, alone, million_per_second=round(threads * COUNT / together / 1e6, 2))


if __name__ == "__main__":
    measure(entropy_seconds(COUNT))
    measure_calls()
    measure_threads()
