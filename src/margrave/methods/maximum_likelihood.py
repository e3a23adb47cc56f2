"""GReM-MLE and EMP: the unbiased maximum-likelihood tables; and the paper's baselines, which are made from them.

The baselines set negative cells to zero, and then rescale to the estimated total or not. Each table is treated by
itself, so the tables no longer agree with each other. A table that is not in the workload but lies inside one of its
tables has no answer of its own: it is summed from the first workload table, in canonical order, that contains it
(`margrave.release`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from margrave.errors import ReleaseError
from margrave.methods.method import Made, Method, Request, Words

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout

_UNBIASED = Words(
    counts="unbiased estimates",
    count="unbiased estimate",
    column="the unbiased estimate itself, which may be negative",
    report="",
    registry="GReM-MLE: the unbiased maximum-likelihood tables, which may have negative counts.",
)
_TRUNCATED = Words(
    counts="truncated counts",
    count="truncated count",
    column="the unbiased estimate with negative counts set to zero; tables do not agree with each other",
    report="The truncated count is the same with zero in place of what is below zero. Tables truncated one by one do "
    "not agree with each other.",
    registry="Maximum-likelihood tables with negative counts set to zero, table by table.",
)
_RESCALED = Words(
    counts="truncated and rescaled counts",
    count="truncated and rescaled count",
    column="the unbiased estimate with negative counts set to zero, scaled to the estimated total; tables do not agree "
    "with each other",
    report="The truncated count is the same with zero in place of what is below zero, each table then scaled to the "
    "estimated total. Tables truncated one by one do not agree with each other.",
    registry="Maximum-likelihood tables with negative counts set to zero and scaled to the estimated total.",
)


@dataclass(frozen=True)
class MaximumLikelihood(Method):
    """The tables that explain the measurements best ("mle"): unbiased, in agreement, with negative cells.

    [ReM] calls it GReM-MLE, and EMP where marginals were measured. It has no options.
    """

    agree: ClassVar[bool] = True
    unbiased: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The short name, "mle"."""
        return "mle"

    @property
    def words(self) -> Words:
        """What readers are told about its tables."""
        return _UNBIASED

    def make(self, request: Request) -> Made:
        """Return the maximum-likelihood tables."""
        from margrave.reconstruction.estimates import maximum_likelihood

        return Made(maximum_likelihood(request.estimates))


@dataclass(frozen=True)
class Truncated(Method):
    """Maximum-likelihood tables with negative cells set to zero ("trunc"), then rescaled ("trunc+rescale").

    Attributes
    ----------
    rescale
        Whether each table is then scaled to the estimated total.
    """

    rescale: bool = False

    nonnegative: ClassVar[bool] = True
    cuts_off: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.rescale, bool):
            raise ReleaseError(f"rescale is {self.rescale!r}", remedy="give True or False")

    @property
    def name(self) -> str:
        """The short name, "trunc" or "trunc+rescale"."""
        return "trunc+rescale" if self.rescale else "trunc"

    @property
    def words(self) -> Words:
        """What readers are told about its tables."""
        return _RESCALED if self.rescale else _TRUNCATED

    def make(self, request: Request) -> Made:
        """Return the truncated tables."""
        from margrave.reconstruction.estimates import maximum_likelihood

        marginals = maximum_likelihood(request.estimates)
        if self.rescale:
            return Made(truncate_and_rescale(request.estimates.layout, marginals))
        return Made(truncate(marginals))


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
    Where the total is not above zero, no table of non-negative counts has it or comes closer to it than zero: all cells
    become zero. Where it is above zero, every table adds up to it before truncation, so it has a positive cell and can
    be scaled (down: truncation only adds). A table that rounding leaves without a positive cell stays zero.
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
