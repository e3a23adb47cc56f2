"""One published table: its counts, and what is known about their error."""

from __future__ import annotations

from dataclasses import dataclass

from margrave.algebra.kernels import Floats


@dataclass(frozen=True, eq=False)
class Table:
    """A cross-tabulation.

    Attributes
    ----------
    attributes
        Names of the attributes, one for each axis, in the order asked for.
    values
        The counts by the method of the release, read-only; one axis per attribute.
    determined
        Whether the measurements determine the table; if not, part of it was filled in without knowledge.
    variance
        The exact variance of each cell of the unbiased (maximum-likelihood) estimate of this table, the same for all
        cells; None if the table is not determined, or its noise has no single variance.
    """

    attributes: tuple[str, ...]
    values: Floats
    determined: bool
    variance: float | None
