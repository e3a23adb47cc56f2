r"""Iterative proportional fitting: scale a table until it has given facets, changing it as little as it can.

A table x of k axes has k facets: its sums along each axis. Fitting multiplies x, axis after axis, by wanted facet over
present facet. Where a table with the wanted facets and no cells outside of x's exists, the limit is the one of least
relative entropy Σ t log(t/x) ([C] Csiszár 1975). From x constant it is the table of **largest entropy**: what the
facets say, and nothing else. For facets p of one axis each (k = 2) that is independence, in one step; for k = 3,

    t[a, b, c] = f[a, b] g[b, c] h[a, c],                                                                        (1)

and fitting one factor is a product of matrices, f = μ_ab / (h gᵀ), and so on: the table itself is written once.
Facets that contradict each other have no such table; then fitting stops after some rounds, near all of them.

Fitting is stopped before its limit, so the result depends on which axis comes first. Axes are taken in the order of
Σ facet², the least first. That number does not change when attributes or labels are put in another order, so the fitted
table does not either, up to rounding. Two facets with the same Σ facet² are taken in the order given.

`fit_facets` is the one loop. It is compiled and works on flat tables, so that ``departures`` can call it for thousands
of tables in parallel; `fit_proportionally` calls it for one array. `most_even` takes the shortcuts for k ≤ 3.

Laws: tests/laws/test_fitting.py compares the limit with a general solver's; tests/laws/test_equivariance.py permutes
attributes and labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from margrave.algebra.kernels import Floats, Integers, compiled

# Facets are met when they are missed by less than this share of the total; the solver repairs what is left.
TOLERANCE = 1e-3
MOST_ROUNDS = 50
# The product of three such numbers, and sums of products of two, are finite.
LARGEST_FACTOR = 1e60


def fit_proportionally(
    table: Floats, facets: Sequence[Floats], *, tolerance: float = TOLERANCE, most_rounds: int = MOST_ROUNDS
) -> Floats:
    """Scale a table, in place, until its sum along each axis j is ``facets[j]``; return it.

    Parameters
    ----------
    table
        Non-negative, with at least one axis. A cell that is zero stays zero.
    facets
        One non-negative array for each axis, of the table's shape without that axis; all of one total.
    tolerance
        When to stop: the facets are missed, in sum of absolute differences, by this share of their total at most.
    most_rounds
        When to stop at the latest; a round fits every axis once.
    """
    axes = np.array(table.shape, dtype=np.int64)
    buffer = np.concatenate([facet.ravel() for facet in facets])
    starts = np.cumsum([0, *(facet.size for facet in facets[:-1])])
    contiguous = np.ascontiguousarray(table)
    fit_facets(contiguous.reshape(-1), axes, buffer, starts, tolerance, most_rounds)
    if contiguous is not table:
        table[...] = contiguous
    return table


@compiled
def fit_facets(
    table: Floats, axes: Integers, facets: Floats, starts: Integers, tolerance: float, most_rounds: int
) -> None:
    """Scale a flat table of shape ``axes``, in place, to the facets that begin at ``starts`` of a buffer.

    Rounds end as in `fit_proportionally`; with a tolerance of zero all are done, unless the facets are met exactly.
    """
    order = axes.size
    outer = np.ones(order, dtype=np.int64)
    concentrations = np.zeros(order)
    total = 0.0
    for j in range(order):
        if j > 0:
            outer[j] = outer[j - 1] * axes[j - 1]
        for i in range(starts[j], starts[j] + table.size // axes[j]):
            concentrations[j] += facets[i] * facets[i]
            if j == 0:
                total += facets[i]
    sequence = np.argsort(concentrations, kind="mergesort")
    for _ in range(most_rounds):
        missed = 0.0
        for j in sequence:
            inner = table.size // (outer[j] * axes[j])
            wanted = facets[starts[j] : starts[j] + outer[j] * inner].reshape(outer[j], inner)
            missed = max(missed, scale_sums(table.reshape(outer[j], axes[j], inner), wanted))
        if missed <= tolerance * total:
            break


@compiled
def scale_sums(table: Floats, wanted: Floats) -> float:
    """Scale a table of shape (outer, length, inner) to given sums along its middle axis, in place.

    Returns by how much the sums were missed before.
    """
    outer, length, inner = table.shape
    missed = 0.0
    factor = np.empty(inner)
    for o in range(outer):
        factor[:] = 0.0
        for i in range(length):
            for c in range(inner):
                factor[c] += table[o, i, c]
        for c in range(inner):
            present = factor[c]
            missed += abs(present - wanted[o, c])
            factor[c] = min(wanted[o, c] / present, LARGEST_FACTOR) if present > 0.0 else 0.0
        for i in range(length):
            for c in range(inner):
                table[o, i, c] *= factor[c]
    return missed


def most_even(facets: Sequence[Floats], *, tolerance: float = TOLERANCE, most_rounds: int = MOST_ROUNDS) -> Floats:
    """Return the table of largest entropy with these facets, one for each of at least two axes; they share one total.

    Parameters
    ----------
    facets
        ``facets[j]`` is the wanted sum along axis j.
    tolerance, most_rounds
        When to stop, as in `fit_proportionally`.
    """
    if len(facets) == 2:
        second, first = facets
        return np.multiply.outer(first, ratio(second, np.asarray(second.sum())))
    if len(facets) == 3:
        return _three_factors(facets, tolerance, most_rounds)
    shape = (facets[1].shape[0], *facets[0].shape)
    return fit_proportionally(np.ones(shape), facets, tolerance=tolerance, most_rounds=most_rounds)


def _three_factors(facets: Sequence[Floats], tolerance: float, most_rounds: int) -> Floats:
    """Return the table of equation (1), its axes a, b, c in the order in which `fit_facets` takes them."""
    a, b, c = sorted(range(3), key=[float(np.square(facet).sum()) for facet in facets].__getitem__)
    bc, ac, ab = _turned(facets[a], b, c), _turned(facets[b], a, c), _turned(facets[c], a, b)
    allowed = tolerance * float(ab.sum())
    g, h = bc / bc.max(initial=1.0), np.ones_like(ac)
    for _ in range(most_rounds):
        f = ratio(ab, h @ g.T)
        g = ratio(bc, f.T @ h)
        present = f @ g
        missed = float(np.abs(present * h - ac).sum())
        h = ratio(ac, present)
        if missed <= allowed:
            break
    table: Floats = np.expand_dims(_turned(f, a, b), c) * np.expand_dims(_turned(g, b, c), a)
    table *= np.expand_dims(_turned(h, a, c), b)
    return table


def _turned(table: Floats, row: int, column: int) -> Floats:
    """Return a table of two axes, given in ascending order, with axis ``row`` first; or turn it back."""
    return table if row < column else table.T


def ratio(wanted: Floats, present: Floats) -> Floats:
    """Return wanted/present, zero where nothing is present; bounded, for facets that contradict each other."""
    shape = np.broadcast_shapes(wanted.shape, present.shape)
    with np.errstate(over="ignore"):  # a present sum that is almost zero
        quotient = np.divide(wanted, present, out=np.zeros(shape), where=present > 0)
    return np.minimum(quotient, LARGEST_FACTOR, out=quotient)
