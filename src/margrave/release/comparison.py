"""Two releases side by side: how far their tables are from each other. Both are public, and so is this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from margrave.errors import ReleaseError
from margrave.measurements.entries import spoken

if TYPE_CHECKING:
    import pyarrow as pa

    from margrave.release.table import Table
    from margrave.workload import Workload


class Comparable(Protocol):
    """What is compared of a release; `margrave.Release` has it all."""

    @property
    def workload(self) -> Workload:
        """Which tables it has."""

    def table(self, *names: str) -> Table:
        """Return the table over these attributes."""


@dataclass(frozen=True)
class TableDifference:
    """How far two releases of one table are from each other.

    Attributes
    ----------
    attributes
        The table.
    cells
        How many cells it has.
    mean, largest
        The mean and the largest distance of two published counts.
    estimates
        The mean distance of two unbiased estimates; None if one of the releases has none.
    std_errors
        The standard error of a cell of the estimate in each of the two; None where there is none.
    """

    attributes: tuple[str, ...]
    cells: int
    mean: float
    largest: float
    estimates: float | None
    std_errors: tuple[float | None, float | None]


@dataclass(frozen=True, repr=False)
class Comparison:
    """The tables that two releases have in common; made by `Release.compare`.

    Attributes
    ----------
    tables
        The common tables, in canonical order.
    only
        How many tables only the first and only the second has.
    """

    tables: tuple[TableDifference, ...]
    only: tuple[int, int]

    def to_arrow(self) -> pa.Table:
        """Return the comparison as a `pyarrow.Table`, one row a table."""
        import pyarrow as pa

        return pa.table(
            {
                "table": [spoken(one.attributes) for one in self.tables],
                "cells": [one.cells for one in self.tables],
                "mean_difference": [one.mean for one in self.tables],
                "largest_difference": [one.largest for one in self.tables],
                "estimate_difference": pa.array([one.estimates for one in self.tables], pa.float64()),
                "std_error": pa.array([one.std_errors[0] for one in self.tables], pa.float64()),
                "other_std_error": pa.array([one.std_errors[1] for one in self.tables], pa.float64()),
            }
        )

    def __repr__(self) -> str:
        mean = np.mean([one.mean for one in self.tables])
        return f"Comparison({len(self.tables):,} tables in both, mean difference of a count {mean:.4g})"


def compare(release: Comparable, other: Comparable) -> Comparison:
    """Return how far the tables that two releases have in common are from each other.

    Parameters
    ----------
    release, other
        Two releases over domains in which the attributes in common have the same categories.
    """
    common = [names for names in release.workload if _has(other, names)]
    if not common:
        raise ReleaseError("the two releases have no table in common", remedy="compare releases of the same attributes")
    found = []
    for names in common:
        one, two = release.table(*names), other.table(*names)
        if one.categories != two.categories:
            raise ReleaseError(
                f"{spoken(names)} has other categories in the other release", remedy="compare releases of one domain"
            )
        distance = np.abs(one.values - two.values)
        both = one.estimate is not None and two.estimate is not None
        estimates = float(np.abs(one.estimate - two.estimate).mean()) if both else None  # type: ignore[operator]
        errors = (one.std_error, two.std_error)
        found.append(
            TableDifference(names, distance.size, float(distance.mean()), float(distance.max()), estimates, errors)
        )
    only = (len(release.workload) - len(common), sum(not _has(release, names) for names in other.workload))
    return Comparison(tuple(found), only)


def _has(release: Comparable, names: tuple[str, ...]) -> bool:
    """Tell whether a table is one of a workload, whatever the order of its attributes."""
    return all(name in release.workload.domain for name in names) and names in release.workload
