r"""Marginals to residuals and back, for one table or for a whole workload in one flat buffer.

Notation: γ, τ are sets of attributes; n_k is the size of attribute k and n_γ = ∏_{k∈γ} n_k; C_k subtracts the mean
along axis k, and C_τ does so along every axis of τ. A residual r_τ is a table over τ whose sums along every axis are
zero. With `broadcast` repeating a table along the axes that it lacks,

    decompose      r_τ = C_τ (sum of μ_γ over the axes γ∖τ)                       [ReM] Lemma 1, A⁺_{γ,τ}     (1)
    reconstruct    μ_γ = Σ_{τ⊆γ} broadcast(r_τ) · n_τ/n_γ                         [ReM] Prop. 1, A_{γ,τ}      (2)

Neither is computed as it stands. Order the axes of γ. Every proper subset τ ⊊ γ has a first missing axis j, so it lies
in the facet γ∖j and holds all axes before j. The tables inside facet γ∖j that hold all axes before j together make
C_{<j} μ_{γ∖j}, the facet's own marginal centred along those axes. Therefore

    μ_γ = r_γ + Σ_j broadcast(C_{<j} μ_{γ∖j}) / n_j                                                           (3)
    r_γ = μ_γ − Σ_j broadcast(C_{<j} s_j) / n_j,      s_j = sum of μ_γ along axis j                           (4)

(3) builds all marginals of a closure from the empty set upwards; each table costs one pass over its cells plus work on
its facets, which are smaller by a factor n_j. So a whole workload costs O(|γ| n_γ) a table, not O(2^|γ| |γ| n_γ).

The map S from residuals to the tables of a workload (with weight a_γ on table γ) has an adjoint that runs (3)
backwards, from the largest sets down, and the two meet in a diagonal (residuals of different sets are orthogonal):

    (Sᵀ λ)_τ = C_τ Σ_{γ⊇τ} a_γ (n_τ/n_γ) (sum of λ_γ over γ∖τ),   Sᵀ S r = h_τ r_τ,  h_τ = Σ_{γ⊇τ} a_γ n_τ/n_γ    (5)

Hence ``decompose`` = Sᵀ / h: on tables that agree with each other it returns their residuals, on tables that do not it
returns those of the weighted least-squares fit (which is what EMP computes). Laws: tests/laws/test_transform.py.

`stream_marginals` is (2) for workloads whose tables do not fit in memory together. The inner tables of a closure are
small: their residuals are held. The residuals of the outer tables, where nearly all cells are, come in layout order
from an iterator, or stand in one long array, and leave as marginals, a batch at a time.

**The paper's coordinates** of a residual are α_τ = D_τ μ_τ. D_(k) takes successive differences along one axis,
(D v)_i = v_i − v_{i+1}, and D_τ does so along every axis of τ, so α_τ has one entry less than the table along each
axis. No matrix is formed: D is a difference of slices and its pseudo-inverse is a reversed running sum, centred:

    D⁺ a = C w,     w_i = a_i + a_{i+1} + … + a_{n−1},  w_n = 0.                                              (6)

Proof: D w = a and D C = D, so D D⁺ = I; and D⁺ D v = C(v − v_n) = C v is symmetric. Integers stay integers under D.
Centred arrays hold the same information in a friendlier basis: r = D⁺ α, α = D r, and ‖r‖² = αᵀ (D Dᵀ)⁻¹ α.
Laws: tests/laws/test_differences.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margrave.algebra import kernels
from margrave.algebra.kernels import Floats, Integers, over_tables
from margrave.algebra.layout import AttributeSet, Layout
from margrave.errors import MeasurementError

Axes = tuple[int, ...]
Number = TypeVar("Number", bound=np.generic)
# Cells worked on at once: 16 MB, enough to keep the threads busy and little enough to stay in the cache.
BATCH_CELLS = 2_000_000


def reconstruct(layout: Layout, residuals: Floats, *, out: Floats | None = None) -> Floats:
    """Return the marginals of a closure from its residuals, equation (3).

    Parameters
    ----------
    layout
        The closure.
    residuals
        Shape (layout.cells,); each table sums to zero along every axis (not checked; see `center`).
    out
        Where to write; may be ``residuals`` itself.
    """
    residuals = layout.checked(residuals)
    marginals = np.empty_like(residuals) if out is None else layout.checked(out)
    raise_inner(layout, residuals, marginals)
    raise_outer(layout, marginals, residuals, marginals)
    return marginals


def adjoint(
    layout: Layout,
    tables: Floats,
    *,
    weights: Floats | None = None,
    factors: Floats | None = None,
    out: Floats | None = None,
    facets: Floats | None = None,
) -> Floats:
    """Return Sᵀ λ of equation (5), each residual times a factor of its own if wanted.

    Parameters
    ----------
    layout
        The closure.
    tables
        Shape (layout.cells,); one table λ_γ for each set of the closure.
    weights
        Shape (number of tables,); weight a_γ of each table, by default one for all. A weight of zero leaves a table
        out, whatever it holds.
    factors
        Shape (number of tables,); what to multiply each residual of the result with, by default one.
    out
        Where to write; may be ``tables`` itself.
    facets
        Shape (layout.facet_cells,); where to work, for callers that count their memory. Its contents are lost.
    """
    weights = np.ones(len(layout.sets)) if weights is None else one_per_table(layout, weights)
    factors = np.ones(len(layout.sets)) if factors is None else one_per_table(layout, factors)
    return _lower(layout, tables, weights, factors, out, facets)


def decompose(layout: Layout, tables: Floats, *, weights: Floats | None = None, out: Floats | None = None) -> Floats:
    """Return the residuals of a closure from (some of) its tables, in the least-squares sense where they disagree.

    Parameters
    ----------
    layout
        The closure.
    tables
        Shape (layout.cells,); the tables. What stands where the weight is zero does not matter.
    weights
        Shape (number of tables,); weight a_γ ≥ 0 of each table. By default one for every outer table and zero for the
        others: tables that agree have nothing to add below the largest ones. A residual that no weighted table
        contains is zero.
    out
        Where to write; may be ``tables`` itself.
    """
    weights = outer_weights(layout) if weights is None else one_per_table(layout, weights)
    spectrum = tables_spectrum(layout, weights)
    inverse = np.divide(1.0, spectrum, out=np.zeros_like(spectrum), where=spectrum > 0)
    return _lower(layout, tables, weights, inverse, out, None)


def _lower(
    layout: Layout, tables: Floats, weights: Floats, factors: Floats, out: Floats | None, facets: Floats | None
) -> Floats:
    """Return factor_τ · (Sᵀ λ)_τ: equation (4) for the outer tables, then downwards through the inner ones."""
    tables = layout.checked(tables)
    residuals = np.empty_like(tables) if out is None else layout.checked(out)
    facets = np.empty(layout.facet_cells) if facets is None else facets

    def outer(begin: int, end: int) -> None:
        kernels.lower_tables(begin, end, layout.index, tables, weights, factors, facets, residuals)

    over_tables(outer, layout.outer, len(layout.sets), layout.index.offset)
    residuals[: layout.inner_cells] = tables[: layout.inner_cells]
    lower_inner(layout, facets, residuals, weights=weights, factors=factors)
    return residuals


def center(layout: Layout, tables: Floats, *, out: Floats | None = None) -> Floats:
    """Return each table of a closure with its mean along every axis taken away: the nearest residuals."""
    tables = layout.checked(tables)
    centered = np.empty_like(tables) if out is None else layout.checked(out)
    facets = np.empty(layout.facet_cells)
    ones = np.ones(len(layout.sets))

    def task(begin: int, end: int) -> None:
        kernels.lower_tables(begin, end, layout.index, tables, ones, ones, facets, centered)

    over_tables(task, 0, len(layout.sets), layout.index.offset)
    return centered


def outer_weights(layout: Layout) -> Floats:
    """Return weight one for every outer table and zero for the inner ones."""
    return (np.arange(len(layout.sets)) >= layout.outer).astype(np.float64)


def tables_spectrum(layout: Layout, weights: Floats) -> Floats:
    """Return h_τ = Σ_{γ⊇τ} a_γ n_τ/n_γ for each set of the closure: the eigenvalues of Sᵀ S, equation (5).

    Parameters
    ----------
    layout
        The closure.
    weights
        Shape (number of tables,); a_γ for each table, zero for sets outside the workload.
    """
    spectrum = np.zeros(len(layout.sets))
    kernels.accumulate_spectrum(0, len(layout.sets), layout.index, one_per_table(layout, weights), spectrum)
    return spectrum


def containing_tables(layout: Layout, repeats: Integers) -> Integers:
    """Return Σ_{γ⊇τ} b_γ for each set of the closure: how many of the counted tables contain it.

    Parameters
    ----------
    layout
        The closure.
    repeats
        Shape (number of tables,), int64; how often each table is counted, b_γ.
    """
    counts = np.zeros(len(layout.sets), dtype=np.int64)
    kernels.accumulate_counts(0, len(layout.sets), layout.index, repeats, counts)
    return counts


def one_per_table(layout: Layout, values: Floats) -> Floats:
    """Return the values as float64, or raise `MeasurementError` if there is not one for each table of the closure."""
    if np.iscomplexobj(values):
        raise MeasurementError("the array of one number per table holds complex numbers", remedy="give real ones")
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.shape != (len(layout.sets),):
        raise MeasurementError(f"one number per table has shape ({len(layout.sets)},), this array has {array.shape}")
    return array


def raise_inner(layout: Layout, residuals: Floats, marginals: Floats) -> None:
    """Write the marginals of the inner tables, level by level; both buffers hold at least the inner tables."""

    def task(begin: int, end: int) -> None:
        kernels.raise_tables(begin, end, layout.index, marginals, residuals, marginals, 0)

    for first, last in zip(layout.levels[:-1], layout.levels[1:], strict=True):
        over_tables(task, first, last, layout.index.offset)


def raise_outer(
    layout: Layout,
    inner: Floats,
    residuals: Floats,
    marginals: Floats,
    *,
    first: int | None = None,
    last: int | None = None,
    shift: int = 0,
) -> None:
    """Write the marginals of the outer tables first … last − 1 (all, by default), given those of the inner tables.

    ``residuals`` and ``marginals`` begin at cell ``shift`` of the closure.
    """

    def task(begin: int, end: int) -> None:
        kernels.raise_tables(begin, end, layout.index, inner, residuals, marginals, shift)

    begin = layout.outer if first is None else first
    over_tables(task, begin, len(layout.sets) if last is None else last, layout.index.offset)


def lower_inner(layout: Layout, facets: Floats, tables: Floats, *, weights: Floats, factors: Floats) -> None:
    """Run the adjoint through the inner tables, largest first, once the outer ones have filled their facets.

    ``tables`` holds λ of the inner tables and receives factor_τ · (Sᵀ λ)_τ.
    """
    ones = np.ones(len(layout.sets))

    def task(begin: int, end: int) -> None:
        kernels.gather_facets(begin, end, layout.index, weights, facets, tables)
        kernels.lower_tables(begin, end, layout.index, tables, ones, factors, facets, tables)

    for first, last in reversed(list(zip(layout.levels[:-1], layout.levels[1:], strict=True))):
        over_tables(task, first, last, layout.index.offset)


def decompose_marginal(marginal: Floats) -> dict[Axes, Floats]:
    """Return the residuals of one marginal, by the tuple of axes that they keep.

    Parameters
    ----------
    marginal
        An array with one axis per attribute.
    """
    marginal = finite_array(marginal)
    layout = _single(marginal.shape)
    tables = np.zeros(layout.cells)
    tables[layout.inner_cells :] = marginal.ravel()
    return dict(layout.views(decompose(layout, tables, out=tables)))


def reconstruct_marginal(residuals: dict[Axes, Floats], shape: tuple[int, ...]) -> Floats:
    """Return the marginal of the given shape from its residuals; those that are not given are zero.

    The factor n_τ/n_γ of equation (2) is a product over the axes that τ lacks, so the sum is taken one axis at a time:
    what lacks the axis is divided by its length and repeated along it, and added to what has it. Nothing is compiled
    for this: it is for single tables, as queries ask for them.

    Parameters
    ----------
    residuals
        Centred arrays by the tuple of axes that they keep.
    shape
        Shape of the marginal.
    """
    # By the axes that are still to come: arrays over all axes so far and those.
    tables = {axes: _checked_residual(axes, residual, shape) for axes, residual in residuals.items()}
    for axis, length in enumerate(shape):
        raised: dict[Axes, Floats] = {}
        for axes, table in tables.items():
            if axes[:1] == (axis,):
                rest, part = axes[1:], table
            else:
                rest, part = axes, np.expand_dims(table, axis) / length
            raised[rest] = raised[rest] + part if rest in raised else part
        tables = raised
    return np.array(np.broadcast_to(tables.get((), np.zeros(())), shape))


def _checked_residual(axes: Axes, residual: Floats, shape: tuple[int, ...]) -> Floats:
    """Return a residual of a table of this shape if its own shape follows from the axes it keeps."""
    if axes != tuple(sorted(set(axes))) or any(axis not in range(len(shape)) for axis in axes):
        raise MeasurementError(f"a table of {len(shape)} axes has no residual over the axes {axes}")
    values, wanted = finite_array(residual), tuple(shape[axis] for axis in axes)
    if values.shape != wanted:
        raise MeasurementError(f"the residual over the axes {axes} has shape {wanted}, not {values.shape}")
    return values


def finite_array(values: Floats) -> Floats:
    """Return the values as contiguous float64, or raise `MeasurementError` if one of them is not a finite number."""
    array = np.ascontiguousarray(values, dtype=np.float64).reshape(np.shape(values))
    if not np.isfinite(array).all():
        raise MeasurementError("an array holds NaN or infinity", remedy="every entry must be a finite number")
    return array


def _single(shape: tuple[int, ...]) -> Layout:
    """Return the layout of one table of this shape and of everything inside it."""
    return Layout.of(shape, [tuple(range(len(shape)))])


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


def difference(table: NDArray[Number]) -> NDArray[Number]:
    """Return D_τ v: successive differences along every axis, each axis one shorter; the type of number is kept."""
    array = np.asarray(table)
    for axis in range(array.ndim):
        array = np.diff(array, axis=axis) * array.dtype.type(-1)
    return array


def integrate(differences: Floats) -> Floats:
    """Return D_τ⁺ α: the centred array with these differences, each axis one longer, by equation (6)."""
    array = np.asarray(differences, dtype=np.float64)
    for axis in range(array.ndim):
        reversed_sums = np.flip(np.cumsum(np.flip(array, axis), axis=axis), axis)
        padding = [(0, int(i == axis)) for i in range(array.ndim)]
        array = np.pad(reversed_sums, padding)
        array = array - array.mean(axis=axis, keepdims=True)
    return array


def corner(table: Floats) -> Floats:
    """Return the part of a table that its differences fill: all but the last place of each axis, sharing its memory."""
    places: tuple[Any, ...] = (..., *[slice(-1)] * table.ndim)
    part: Floats = table[places]
    return part


def integrate_corners(layout: Layout, tables: Floats) -> None:
    """Integrate all tables of a closure in place: their `corner` holds differences, every other place zero.

    Parameters
    ----------
    layout
        The closure.
    tables
        Shape (layout.cells,), float64, contiguous.
    """

    def task(begin: int, end: int) -> None:
        kernels.integrate_tables(begin, end, layout.index, tables)

    over_tables(task, 0, len(layout.sets), layout.index.offset)
