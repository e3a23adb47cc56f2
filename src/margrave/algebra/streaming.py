"""Marginals one after the other, for workloads whose tables do not fit in memory together.

The inner tables of a closure are small: their residuals are held. The residuals of the outer tables, where nearly all
cells are, come in layout order from an iterator (or stand in one long array, for instance a memory map) and leave as
marginals, a batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from margrave.algebra.kernels import Floats
from margrave.algebra.lattice import AttributeSet
from margrave.algebra.layout import Layout
from margrave.algebra.transform import finite_array, raise_inner, raise_outer
from margrave.errors import MeasurementError

# Cells worked on at once: 16 MB, enough to keep the threads busy and little enough to stay in the cache.
BATCH_CELLS = 2_000_000


def stream_marginals(
    layout: Layout, inner: Floats, outer: Floats | Iterable[Floats], *, batch_cells: int = BATCH_CELLS
) -> Iterator[tuple[AttributeSet, Floats]]:
    """Yield the marginals of a closure with their attributes: the inner tables, then the outer ones, in layout order.

    Parameters
    ----------
    layout
        The closure.
    inner
        Shape (layout.inner_cells,); residuals of the inner tables.
    outer
        Residuals of the outer tables: one flat array of all of them (a memory map is read a batch at a time), or one
        array per table, in layout order.
    batch_cells
        How many cells to work on at once. A table with more cells is a batch of its own.

    Yields
    ------
    attributes, marginal
        The marginal is a view that stays valid until the next batch: copy what you keep.
    """
    inner = finite_array(inner)
    if inner.shape != (layout.inner_cells,):
        raise MeasurementError(f"the inner residuals have shape ({layout.inner_cells},), these have {inner.shape}")
    source = _batches(layout, outer, batch_cells)
    marginals = np.empty_like(inner)
    raise_inner(layout, inner, marginals)
    for table in range(layout.outer):
        yield layout.sets[table], layout.view(marginals, table)
    for first, last, batch in source:
        shift = int(layout.index.offset[first])
        raise_outer(layout, marginals, batch, batch, first=first, last=last, shift=shift)
        for table in range(first, last):
            yield layout.sets[table], layout.view(batch, table, shift=shift)


def batch_bytes(layout: Layout, *, batch_cells: int = BATCH_CELLS) -> int:
    """Return how much memory streaming takes: inner residuals, inner marginals and one batch of outer tables."""
    offset = layout.index.offset[layout.outer :]
    largest = int(np.diff(offset).max(initial=0))
    return 8 * (2 * layout.inner_cells + max(largest, min(batch_cells, int(offset[-1] - offset[0]))))


def _batches(layout: Layout, outer: Floats | Iterable[Floats], batch_cells: int) -> Iterator[tuple[int, int, Floats]]:
    """Return an iterator over (first table, last table, their residuals in one buffer that is used again)."""
    if isinstance(outer, np.ndarray):
        length = layout.cells - layout.inner_cells
        if outer.shape != (length,):
            raise MeasurementError(f"the outer residuals have shape ({length},), these have {outer.shape}")
        return _batches_of_array(layout, outer, batch_cells)
    return _batches_of_tables(layout, iter(outer), batch_cells)


def _batches_of_array(layout: Layout, outer: Floats, batch_cells: int) -> Iterator[tuple[int, int, Floats]]:
    """Copy one batch after the other out of a flat array."""
    origin = layout.inner_cells
    for first, last, start, end, buffer in _ranges(layout, batch_cells):
        batch = buffer[: end - start]
        batch[:] = outer[start - origin : end - origin]
        _require_finite(batch)
        yield first, last, batch


def _batches_of_tables(layout: Layout, tables: Iterator[Floats], batch_cells: int) -> Iterator[tuple[int, int, Floats]]:
    """Fill one batch after the other from an iterator of tables."""
    for first, last, start, end, buffer in _ranges(layout, batch_cells):
        for table in range(first, last):
            try:
                values = np.asarray(next(tables), dtype=np.float64)
            except StopIteration:
                missing = len(layout.sets) - table
                raise MeasurementError(f"the outer residuals ended {missing} tables too early") from None
            if values.shape != layout.shape(table):
                raise MeasurementError(
                    f"residual number {table - layout.outer} of the outer tables has shape {values.shape}, "
                    f"not {layout.shape(table)}"
                )
            layout.view(buffer, table, shift=start)[...] = values
        _require_finite(buffer[: end - start])
        yield first, last, buffer[: end - start]
    if next(tables, None) is not None:
        raise MeasurementError(
            f"there are more outer residuals than the {len(layout.sets) - layout.outer} outer tables"
        )


def _ranges(layout: Layout, batch_cells: int) -> Iterator[tuple[int, int, int, int, Floats]]:
    """Cut the outer tables into batches: first and last table, first and last cell, and the buffer for them."""
    offset = layout.index.offset
    buffer = np.empty(0)
    first, count = layout.outer, len(layout.sets)
    while first < count:
        last = int(np.searchsorted(offset, offset[first] + batch_cells, side="right")) - 1
        last = min(max(last, first + 1), count)
        start, end = int(offset[first]), int(offset[last])
        if buffer.size < end - start:
            buffer = np.empty(end - start)
        yield first, last, start, end, buffer
        first = last


def _require_finite(batch: Floats) -> None:
    """Raise `MeasurementError` if the batch holds NaN or infinity (whose sum with anything is not finite either)."""
    if not np.isfinite(batch.sum()) and not np.isfinite(batch).all():
        raise MeasurementError("a residual holds NaN or infinity", remedy="every entry must be a finite number")
