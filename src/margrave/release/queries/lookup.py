"""Finding a table in a release: by the method, by maximum likelihood, and why one of them has no error bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from margrave.algebra.kernels import Floats
from margrave.algebra.lattice import AttributeSet
from margrave.domain import Domain
from margrave.errors import DomainError, ReleaseError
from margrave.measurements.entries import read_only, spoken
from margrave.methods.method import Method
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.linear import maximum_likelihood
from margrave.release.uncertainty import Mask, direct_noise, query_covariance, unmeasured
from margrave.workload import Workload

_MOST_NAMED = 3


@dataclass(frozen=True, eq=False)
class Lookup:
    """The tables of a release, as they are looked up.

    Attributes
    ----------
    workload
        Which tables were asked for.
    method
        How they were made.
    estimates
        The estimated residuals of the workload's closure.
    marginals
        The tables of the closure in one buffer.
    adaptive
        Whether what was measured depends on earlier noise.
    """

    workload: Workload
    method: Method
    estimates: Estimates
    marginals: Floats
    adaptive: bool

    @property
    def domain(self) -> Domain:
        """The domain of the tables."""
        return self.workload.domain

    def place(self, names: Sequence[str]) -> int:
        """Return the number of the table over these attributes if a table of the workload contains them all."""
        try:
            positions = self.domain.positions(names)
        except DomainError as error:
            raise ReleaseError(str(error)) from error
        if len(positions) != len(names):
            raise ReleaseError(f"the table {spoken(names)} names an attribute twice; name each once")
        if positions in self.estimates.layout.places:
            return self.estimates.layout.places[positions]
        nearest = [spoken(self.domain.names(members)) for members in self._nearest(positions)]
        hint = f"; tables that cover some of it: {', '.join(nearest)}" if nearest else ""
        raise ReleaseError(
            f"no table of this release covers {spoken(names)}{hint}; put it into the workload and reconstruct again"
        )

    def values(self, place: int) -> Floats:
        """Return the counts of a table by the method, axes in domain order; a view of the buffer where there is one."""
        layout = self.estimates.layout
        positions = layout.sets[place]
        if self.method.agree or positions in self._wanted:
            return layout.view(self.marginals, place)
        inside = set(positions)
        source = next(members for members in self.workload.positions if inside <= set(members))
        summed = tuple(axis for axis, member in enumerate(source) if member not in inside)
        return np.asarray(layout.view(self.marginals, layout.places[source]).sum(axis=summed))

    def unbiased(self, place: int) -> Floats:
        """Return the maximum-likelihood counts of a table, axes in domain order; a view of the buffer of them all."""
        return self.estimates.layout.view(self._unbiased, place)

    def missing(self, place: int, query: Sequence[Mask]) -> tuple[str, ...]:
        """Return the residuals that a query over a table needs and that were never measured, in words."""
        parts = unmeasured(self.estimates, place, query)
        return tuple(spoken(self.domain.names(self.estimates.layout.sets[part])) for part in parts)

    def covariance(self, place: int, one: Sequence[Mask], other: Sequence[Mask]) -> float | None:
        """Return the covariance of two queries over a table, None where it is not known."""
        covariance = query_covariance(self.estimates, place, one, other)
        return None if self.adaptive or np.isnan(covariance) else covariance

    def direct_noise(self, place: int, query: Sequence[Mask]) -> float | None:
        """Return the parameter of the one discrete Gaussian that a query's estimate is off by; None if it is not."""
        return direct_noise(self.estimates, place, query)

    def note(self, missing: Sequence[str], variance: float | None) -> str:
        """Return why there is no interval, in a sentence; nothing where there is one."""
        if missing:
            named = ", ".join([*missing[:_MOST_NAMED], *(["…"] if len(missing) > _MOST_NAMED else [])])
            return f"no interval: the measurements do not determine these counts (never measured: {named})"
        if self.adaptive:
            return "no interval: what was measured was chosen after seeing earlier noise (adaptive measurements)"
        return "no interval: the noise is not Gaussian with a single variance" if variance is None else ""

    @cached_property
    def _unbiased(self) -> Floats:
        """The maximum-likelihood tables of the closure, computed in one pass, when the first is asked for."""
        return self.marginals if self.method.unbiased else read_only(maximum_likelihood(self.estimates))

    @cached_property
    def _wanted(self) -> frozenset[AttributeSet]:
        return frozenset(self.workload.positions)

    def _nearest(self, positions: AttributeSet) -> list[AttributeSet]:
        """Return the tables of the workload that share most attributes with a table."""
        wanted = set(positions)
        near = [members for members in self.workload.positions if wanted & set(members)]
        # A stable sort: among tables that share as much, those that come first.
        return sorted(near, key=lambda members: -len(wanted & set(members)))[:_MOST_NAMED]
