r"""Iterative proportional fitting: scale a table until it has given facets, changing it as little as it can.

A table x of k axes has k facets: its sums along each axis. Fitting multiplies x, axis after axis, by wanted facet over
present facet. Where a table with the wanted facets and no cells outside of x's exists, the limit is the one of least
relative entropy Σ t log(t/x) ([C] Csiszár 1975). From x constant it is the table of **largest entropy**: what the
facets say, and nothing else. For facets p of one axis each (k = 2) that is independence, in one step; for k = 3,

    t[a, b, c] = f[a, b] g[b, c] h[a, c],                                                                        (1)

and fitting one factor is a product of matrices, f = μ_ab / (h gᵀ), and so on: the table itself is written once.
Facets that contradict each other have no such table; then fitting stops after some rounds, near all of them.

Fitting is stopped before its limit, so that the result depends on which axis comes first. Axes are taken in the order
of Σ facet², the least first: a number that does not change when attributes or labels are put in another order, and so
the fitted table does not either, up to rounding. Two facets with the same Σ facet² are taken in the order given.

Laws: tests/laws/test_completion.py compares the limit with a general solver's; tests/laws/test_equivariance.py permutes
attributes and labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from margrave.algebra.kernels import Floats

# Facets are met when they are missed by less than this share of the total; what is left is mended by the solver.
TOLERANCE = 1e-3
MOST_ROUNDS = 50
# The product of three such numbers, and sums of products of two, are finite.
_LARGEST_FACTOR = 1e60


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
    axes = _order(facets)
    allowed = tolerance * float(facets[axes[0]].sum())
    for _ in range(most_rounds):
        missed = 0.0
        for axis in axes:
            wanted, present = facets[axis], table.sum(axis=axis)
            missed = max(missed, float(np.abs(present - wanted).sum()))
            table *= np.expand_dims(ratio(wanted, present), axis)
        if missed <= allowed:
            break
    return table


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
    """Return the table of equation (1), its axes a, b, c in the order of `_order`."""
    a, b, c = _order(facets)
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


def _order(facets: Sequence[Floats]) -> list[int]:
    """Return the axes in the order in which they are fitted: by Σ facet², whatever they are called."""
    concentrations = [float(np.square(facet).sum()) for facet in facets]
    return sorted(range(len(facets)), key=concentrations.__getitem__)


def _turned(table: Floats, row: int, column: int) -> Floats:
    """Return a table of two axes, given in ascending order, with axis ``row`` first; or turn it back."""
    return table if row < column else table.T


def ratio(wanted: Floats, present: Floats) -> Floats:
    """Return wanted/present, zero where nothing is present; bounded, for facets that contradict each other."""
    shape = np.broadcast_shapes(wanted.shape, present.shape)
    with np.errstate(over="ignore"):  # a present sum next to nothing
        quotient = np.divide(wanted, present, out=np.zeros(shape), where=present > 0)
    return np.minimum(quotient, _LARGEST_FACTOR, out=quotient)
