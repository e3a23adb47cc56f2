"""GReM-MLE: marginals that explain the measurements best, unbiased where these determine them ([ReM] Alg. 3).

From measured marginals this is EMP, the pseudo-inverse of all measured marginals at once ([ReM] Alg. 4): collecting
them (`Measurements.from_marginals`) has already turned them into residuals.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from margrave.algebra import transform
from margrave.algebra.kernels import Floats
from margrave.reconstruction.estimates import Estimates


def maximum_likelihood(estimates: Estimates, *, out: Floats | None = None) -> Floats:
    """Return the marginals of the closure, μ̂_γ = Σ_{τ⊆γ} A_{γ,τ} α̂_τ ([ReM] Alg. 3, line 2).

    Parameters
    ----------
    estimates
        The estimated residuals.
    out
        Shape (layout.cells,), where to write.
    """
    layout = estimates.layout
    # In place on a copy: no second buffer, and no second set of compiled loops for read-only arrays.
    marginals = np.empty(layout.cells) if out is None else layout.checked(out)
    np.copyto(marginals, estimates.values)
    return transform.reconstruct(layout, marginals, out=marginals)


def determined(estimates: Estimates) -> NDArray[np.bool_]:
    """Tell for each table of the closure whether the measurements determine it, shape (tables,).

    They do when every residual inside it was measured, or has no degree of freedom and so is known to be zero. Then the
    table's maximum-likelihood estimate is unbiased; else it is the one with zeros for what is not known.
    """
    index = estimates.layout.index
    known: NDArray[np.bool_] = (estimates.counts > 0) | (estimates.layout.degrees == 0)
    # Level by level: a table is determined when its own residual is known and all its facets are determined.
    for order in range(1, index.axes.shape[1] + 1):
        tables = np.flatnonzero(index.order == order)
        known[tables] &= known[index.facet[tables, :order]].all(axis=1)
    return known
