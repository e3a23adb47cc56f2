r"""The paper's coordinates of a residual, α_τ = D_τ μ_τ, and the way between them and centred arrays.

D_(k) takes successive differences along one axis, (D v)_i = v_i − v_{i+1}, and D_τ does so along every axis of τ, so
α_τ has one entry less than the table along each axis. No matrix is formed: D is a difference of slices and its
pseudo-inverse is a reversed running sum, centred:

    D⁺ a = C w,     w_i = a_i + a_{i+1} + … + a_{n−1},  w_n = 0.                                                (1)

Proof: D w = a and D C = D, so D D⁺ = I; and D⁺ D v = C(v − v_n) = C v is symmetric. Integers stay integers under D.
Centred arrays hold the same information in a friendlier basis: r = D⁺ α, α = D r, and ‖r‖² = αᵀ (D Dᵀ)⁻¹ α.

A_{γ,τ} takes a residual to its share of a marginal, A⁺_{γ,τ} takes a marginal to the residual ([ReM] Prop. 1, Lemma 1):

    A_{γ,τ} α  = broadcast(D_τ⁺ α) · n_τ/n_γ,        A⁺_{γ,τ} μ = D_τ (sum of μ over the axes γ∖τ).             (2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margrave.algebra import kernels
from margrave.algebra.kernels import Floats, over_tables
from margrave.errors import MeasurementError

if TYPE_CHECKING:
    from margrave.algebra.layout import Layout

Number = TypeVar("Number", bound=np.generic)
Axes = tuple[int, ...]


def difference(table: NDArray[Number]) -> NDArray[Number]:
    """Return D_τ v: successive differences along every axis, each axis one shorter; the type of number is kept."""
    array = np.asarray(table)
    for axis in range(array.ndim):
        array = np.diff(array, axis=axis) * array.dtype.type(-1)
    return array


def integrate(differences: Floats) -> Floats:
    """Return D_τ⁺ α: the centred array with these differences, each axis one longer, by equation (1)."""
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


def residual_of_marginal(marginal: NDArray[Number], kept: Axes) -> NDArray[Number]:
    """Return A⁺_{γ,τ} μ: the residual over the ``kept`` axes of a marginal, in the paper's coordinates.

    Parameters
    ----------
    marginal
        One axis per attribute of γ; integers give an exact result.
    kept
        The axes that make up τ, ascending.
    """
    array = np.asarray(marginal)
    _check_axes(kept, array.ndim)
    summed = tuple(axis for axis in range(array.ndim) if axis not in kept)
    return difference(array.sum(axis=summed, dtype=array.dtype))


def share_of_marginal(differences: Floats, kept: Axes, shape: tuple[int, ...]) -> Floats:
    """Return A_{γ,τ} α: what a residual, in the paper's coordinates, contributes to a marginal of this shape.

    Parameters
    ----------
    differences
        The residual; shape (n_k − 1 for each kept axis).
    kept
        The axes of the marginal that make up τ, ascending.
    shape
        Shape of the marginal.
    """
    _check_axes(kept, len(shape))
    array = np.asarray(differences, dtype=np.float64)
    expected = tuple(shape[axis] - 1 for axis in kept)
    if array.shape != expected:
        raise MeasurementError(
            f"the differences over axes {kept} of a table {shape} have shape {expected}, not {array.shape}"
        )
    aligned = tuple(size if axis in kept else 1 for axis, size in enumerate(shape))
    repeats = np.prod([size for axis, size in enumerate(shape) if axis not in kept], dtype=np.float64)
    return np.broadcast_to(integrate(array).reshape(aligned) / repeats, shape).copy()


def _check_axes(kept: Axes, count: int) -> None:
    """Raise `MeasurementError` unless the axes are ascending and exist."""
    if list(kept) != sorted(set(kept)) or any(axis < 0 or axis >= count for axis in kept):
        raise MeasurementError(f"axes {kept} must be ascending and below {count}, the number of axes of the table")
