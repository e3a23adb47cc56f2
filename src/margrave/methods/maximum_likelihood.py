"""GReM-MLE and EMP: the unbiased maximum-likelihood tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from margrave.methods.method import Made, Method, Request, Words

_WORDS = Words(
    counts="unbiased estimates",
    count="unbiased estimate",
    column="the unbiased estimate itself, which may be negative",
    report="",
    registry="GReM-MLE: the unbiased maximum-likelihood tables, which may have negative counts.",
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
        return _WORDS

    def make(self, request: Request) -> Made:
        """Return the maximum-likelihood tables."""
        from margrave.reconstruction.linear import maximum_likelihood

        return Made(maximum_likelihood(request.estimates))
