"""A release: all tables of a workload, by one method of reconstruction, with what their error bars need."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.kernels import Floats
from margrave.algebra.lattice import AttributeSet
from margrave.errors import DomainError, ReleaseError
from margrave.measurements import Provenance
from margrave.reconstruction.linear import determined
from margrave.reconstruction.losses import Estimates
from margrave.reconstruction.nonnegative import Solution
from margrave.release.table import Table
from margrave.release.uncertainty import cell_variance
from margrave.workload import Workload

# The methods whose tables agree with each other: any of them may answer for a table that it contains.
CONSISTENT = ("mle", "lnn")
_MOST_TABLES_NAMED = 3


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """The tables of a workload, by attribute set; made by `margrave.reconstruct`.

    Attributes
    ----------
    workload
        Which tables were asked for.
    method
        How they were made: "mle", "lnn", "trunc" or "trunc+rescale".
    estimates
        The estimated residuals with their precisions.
    marginals
        Shape (estimates.layout.cells,), read-only; the tables of the workload's closure in one buffer. For the
        truncation methods only those of the workload itself are answers.
    solution
        What the non-negative solver reported; None for the other methods.
    provenance
        How the measurements were made, and whether their noise was private; None for numbers from elsewhere.
    """

    workload: Workload
    method: str
    estimates: Estimates
    marginals: Floats
    solution: Solution | None = None
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        view = self.marginals.view()
        view.setflags(write=False)
        object.__setattr__(self, "marginals", view)

    def table(self, *names: str) -> Table:
        """Return the table over these attributes, axes in the order given; the total for no names.

        Any subset of a table of the workload can be asked for. By the methods "mle" and "lnn" all tables agree, so
        that it does not matter where it is taken from; by the truncation methods they do not, and a table that is not
        in the workload is summed from the first table of the workload, in canonical order, that contains it.
        """
        positions = self._positions(names)
        place = self.estimates.layout.places[positions]
        given = dict(zip(self.workload.domain.names(positions), range(len(positions)), strict=True))
        values = self._values(positions).transpose([given[name] for name in names])
        values.setflags(write=False)
        adaptive = self.provenance is not None and self.provenance.adaptive
        variance = math.nan if adaptive else cell_variance(self.estimates, place)
        return Table(
            tuple(names), values, bool(self._determined[place]), None if math.isnan(variance) else float(variance)
        )

    def tables(self) -> Iterator[Table]:
        """Iterate over the tables of the workload, in canonical order."""
        for names in self.workload:
            yield self.table(*names)

    def __repr__(self) -> str:
        noun = "table" if len(self.workload) == 1 else "tables"
        return f"Release({len(self.workload):,} {noun} by {self.method!r})"

    @cached_property
    def _determined(self) -> NDArray[np.bool_]:
        return determined(self.estimates)

    @cached_property
    def _wanted(self) -> frozenset[AttributeSet]:
        return frozenset(self.workload.positions)

    def _values(self, positions: AttributeSet) -> Floats:
        """Return the counts over these attributes, axes in domain order; a view of the buffer where there is one."""
        layout = self.estimates.layout
        if self.method in CONSISTENT or positions in self._wanted:
            return layout.view(self.marginals, layout.places[positions])
        inside = set(positions)
        source = next(members for members in self.workload.positions if inside <= set(members))
        summed = tuple(axis for axis, member in enumerate(source) if member not in inside)
        return np.asarray(layout.view(self.marginals, layout.places[source]).sum(axis=summed))

    def _positions(self, names: tuple[str, ...]) -> AttributeSet:
        """Return the positions of the names if a table of the workload contains them all."""
        try:
            positions = self.workload.domain.positions(names)
        except DomainError as error:
            raise ReleaseError(str(error)) from error
        if len(positions) != len(names):
            raise ReleaseError(f"the table {' × '.join(names)} names an attribute twice; name each once")
        if positions in self.estimates.layout.places:
            return positions
        wanted = set(positions)
        # A stable sort: among tables that share as much, those that come first.
        near = [members for members in self.workload.positions if wanted & set(members)]
        nearest = sorted(near, key=lambda members: -len(wanted & set(members)))[:_MOST_TABLES_NAMED]
        shown = [" × ".join(self.workload.domain.names(members)) for members in nearest]
        hint = f"; tables that cover some of it: {', '.join(shown)}" if shown else ""
        raise ReleaseError(
            f"no table of this release covers {' × '.join(names)}{hint}; put it into the workload and reconstruct again"
        )
