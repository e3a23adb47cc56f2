"""The baselines of the paper: set negative cells to zero, and then perhaps rescale to the estimated total.

Each table is treated by itself, so that afterwards the tables no longer agree with each other: a table that is not in
the workload but lies inside one of its tables has no answer of its own and is summed from the first workload table, in
canonical order, that contains it (`margrave.release`).
"""

from __future__ import annotations

import numpy as np

from margrave.algebra.kernels import Floats
from margrave.algebra.layout import Layout


def truncate(marginals: Floats) -> Floats:
    """Set negative cells to zero, in place ("Trunc")."""
    return np.maximum(marginals, 0.0, out=marginals)


def truncate_and_rescale(layout: Layout, marginals: Floats) -> Floats:
    """Set negative cells to zero, then scale every table to the estimated total, in place ("Trunc+Rescale").

    Parameters
    ----------
    layout
        The closure.
    marginals
        Shape (layout.cells,); marginals that agree with each other. Their total is the table of the empty set.

    Notes
    -----
    Where the total is not above zero no table of non-negative counts has it or comes closer than zero: all cells become
    zero. Where it is, a table adds up to it before truncation, so that it has a positive cell and can be scaled (down:
    truncation only adds). A table that rounding leaves without any stays zero.
    """
    total = float(layout.view(marginals, layout.places[()]))
    if total <= 0:
        marginals[:] = 0.0
        return marginals
    truncate(marginals)
    for _, table in layout.views(marginals):
        mass = float(table.sum())
        if mass > 0:
            table *= total / mass
    return marginals
