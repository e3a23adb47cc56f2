r"""The boundary: the only place where exact counts and noise meet. What comes out is noisy; what goes in never does.

A residual is measured in integers (the noise: ``privacy.noise``; the cost: ``planning.coefficients``).
From the counts v of the table on τ,

    w = H v + ξ,      H = ⊗_{k∈τ} (n_k I − 11ᵀ) = n_τ C_τ,      ξ independent discrete Gaussians, parameter g²,      (1)
    z = C_τ w / n_τ,                                            post-processing, in floating point.                (2)

H v is exact: n_k v less the sum along axis k, axis after axis, in 64-bit integers. One person with at most c rows moves
H v by at most c √∏ n_k(n_k − 1) in length, so (1) costs ρ = c² ∏ n_k(n_k − 1) / 2g², and (2) nothing. Should a sum in
(1) leave the range of 64 bits it wraps around, and a wrapped sum is still a function of the sum: the guarantee does not
depend on the range, only the usefulness does. It is checked against a public bound on the number of rows.

A marginal is measured as v + ξ with ρ = c² / 2σ²: one person moves v by at most c.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats, Integers, thread_count
from margrave.errors import MeasurementError

if TYPE_CHECKING:
    from margrave.algebra.layout import Layout
    from margrave.privacy.noise import Sampler

# No table has more rows than this; public, so that a refusal says nothing about the table.
MOST_ROWS = 2**36
_RANGE = 2**62


def measure_residuals(layout: Layout, counts: Integers, noise: Sequence[Fraction | None], sampler: Sampler) -> Floats:
    """Return noisy residuals of a closure as centred arrays, by (1) and (2).

    Parameters
    ----------
    layout
        The closure.
    counts
        Shape (layout.cells,); the exact counts of every table. PRIVATE.
    noise
        g² of each table's residual; None where it is not measured, which gives zeros.
    sampler
        What draws the noise; each table has a sampler spawned for it alone, whatever the thread.
    """
    check_range(layout, noise)
    noisy = np.zeros(layout.cells)
    offset = layout.index.offset

    samplers = sampler.spawn(len(layout.sets))

    def one(table: int) -> None:
        variance = noise[table]
        if variance is None:
            return
        start, end = int(offset[table]), int(offset[table + 1])
        exact = integer_residual(counts[start:end].reshape(layout.shape(table)))
        exact += _drawn(samplers[table], variance, end - start).reshape(exact.shape)
        noisy[start:end] = exact.ravel() / float(end - start)

    # The largest first, so that no thread is left with a large one at the end.
    by_size = np.argsort(-np.diff(offset), kind="stable").tolist()
    with ThreadPoolExecutor(thread_count()) as pool:
        try:
            for _ in pool.map(one, by_size):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)  # ending the run at once must not wait for the other tables
            raise
    return transform.center(layout, noisy, out=noisy)


def integer_residual(counts: Integers) -> Integers:
    """Return H v of equation (1), exactly, in 64-bit integers; shape of the table."""
    residual = counts.astype(np.int64)
    for axis, size in enumerate(counts.shape):
        total = residual.sum(axis=axis, keepdims=True)
        residual *= size
        residual -= total
    return residual


def measure_marginal(counts: Integers, variance: Fraction, sampler: Sampler) -> Integers:
    """Return a table of counts with independent discrete Gaussian noise of this variance on each cell."""
    return counts + _drawn(sampler, variance, counts.size).reshape(counts.shape)


def _drawn(sampler: Sampler, variance: Fraction, count: int) -> Integers:
    """Return noise if it is whole numbers, as many as asked for: floating point would void the guarantee."""
    noise = sampler.draw(variance, count)
    if not isinstance(noise, np.ndarray) or noise.dtype != np.int64 or noise.shape != (count,):
        raise MeasurementError(
            f"sampler {sampler.name!r} did not give {count:,} whole numbers (int64)", remedy="use another"
        )
    return noise


def check_range(layout: Layout, noise: Sequence[Fraction | None]) -> None:
    """Raise `MeasurementError`, from public numbers alone, if a residual could leave the range of 64 bits.

    |H v| is at most n_τ times the number of rows.
    """
    cells = np.diff(layout.index.offset)
    for table in np.flatnonzero(cells > _RANGE // MOST_ROWS).tolist():
        if noise[table] is not None:
            raise MeasurementError(
                f"a table of {len(layout.sets[table])} attributes has {int(cells[table]):,} cells",
                remedy=f"at most {_RANGE // MOST_ROWS:,} can be measured exactly; ask for tables of fewer attributes",
            )
