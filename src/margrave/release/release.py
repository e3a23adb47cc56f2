"""A release: all tables of a workload, by one method of reconstruction, with what their error bars need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from margrave.domain.values import table_label
from margrave.errors import ReleaseError
from margrave.escaping import html_table
from margrave.release.query import PublishedTables, Query, Where, answer, answer_share, read_query
from margrave.release.table import table_chart
from margrave.release.uncertainty import LEVEL, checked_level

if TYPE_CHECKING:
    import altair as alt
    import pyarrow as pa

    from margrave.algebra.kernels import Floats
    from margrave.measurements.measurements import Measurements
    from margrave.measurements.provenance import Provenance
    from margrave.methods.method import Method
    from margrave.reconstruction.estimates import Estimates
    from margrave.reconstruction.nonnegative import Solution
    from margrave.release.count_errors import CountErrors
    from margrave.release.share import Share
    from margrave.release.table import Counts, Table
    from margrave.synthesis.rows import Rows
    from margrave.workload import Workload

# How many tables a notebook lists.
_MOST_SHOWN = 20


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """The tables of a workload, by attribute set; made by `margrave.reconstruct`.

    Attributes
    ----------
    workload
        Which tables were asked for.
    method
        How they were made, an object of `margrave.methods` with its options; ``release.method.name`` is "lnn", "mle",
        "trunc" or "trunc+rescale". A release saved by version 0.1 recorded the name alone (`methods.Unrecorded`).
    estimates
        The estimated residuals with their precisions.
    counts
        The tables of the workload's closure by the method; those of a saved release are read when they are asked for.
    solution
        What the non-negative solver reported; None for other methods.
    provenance
        How the measurements were made, and whether their noise was private; None for numbers from elsewhere.
    measurements
        The noisy measurements that all of it was made from, if they are available.
    errors
        What was learned about the errors of the counts; None where it was not asked for, or cannot be learned.
    """

    workload: Workload
    method: Method
    estimates: Estimates
    counts: Counts
    solution: Solution | None = None
    provenance: Provenance | None = None
    measurements: Measurements | None = None
    errors: CountErrors | None = None

    @property
    def marginals(self) -> Floats:
        """The tables of the workload's closure in one buffer, read-only; shape (estimates.layout.cells,).

        Where tables do not agree (``method.agree``) only those of the workload itself are answers.
        """
        return self.counts.everything()

    def table(self, *names: str, level: float = LEVEL) -> Table:
        """Return the table over these attributes, axes in the order given; the total for no names.

        Any subset of a table of the workload can be asked for. By the methods "mle" and "lnn" all tables agree, so it
        does not matter where it is taken from. By the truncation methods they do not agree, and a table that is not in
        the workload is summed from the first table of the workload, in canonical order, that contains it.

        Parameters
        ----------
        names
            The attributes.
        level
            How often the intervals, of the counts and of the unbiased estimates, cover the truth.
        """
        place = self._published.place(names)
        masks = {name: np.ones(self.workload.domain[name].size, dtype=np.bool_) for name in names}
        return answer(self._published, place, Query(names, masks), checked_level(level))

    def query(self, where: Where = "", *, by: Iterable[str] = (), level: float = LEVEL) -> Table:
        """Return how many meet a condition, in all or by group, with the exact standard error.

        Parameters
        ----------
        where
            A condition, as in ``"age > 64 and sex = 'F'"`` (the language is described in docs/release.md), or labels
            by attribute, as in ``{"sex": "F", "region": ["north", "south"]}``. All are counted if it is empty.
        by
            The attributes to group by: the axes of the answer, with those of their categories that meet the condition.
            Together with those of the condition they must lie in one table of the workload.
        level
            How often the intervals, of the counts and of the unbiased estimates, cover the truth.
        """
        query = read_query(self.workload.domain, where, by)
        return answer(self._published, self._published.place(tuple(query.masks)), query, checked_level(level))

    def share(self, where: Where, *, of: Where = "", by: Iterable[str] = (), level: float = LEVEL) -> Share:
        """Return the share of those who meet a condition among those who meet another, in all or by group.

        The interval is Fieller's, cut to 0 … 1: it holds for any denominator. Where the denominator is estimated within
        z standard errors of zero nothing is known, and it is 0 to 1. The standard error is that of the ratio's linear
        approximation (the delta method), given where the denominator is at least 5 standard errors above zero.

        Parameters
        ----------
        where
            Who is counted; as in `query`.
        of
            Among whom; all by default.
        by
            The attributes to group by, for a share within each group.
        level
            How often the intervals cover the truth.
        """
        return answer_share(self._published, where, of, by=by, level=checked_level(level))

    def tables(self) -> Iterator[Table]:
        """Iterate over the tables of the workload, in canonical order."""
        for names in self.workload:
            yield self.table(*names)

    def plot(self, *names: str, level: float = LEVEL) -> alt.Chart | alt.LayerChart | alt.FacetChart:
        """Return a chart of a table of one to three attributes, by Altair; the extra ``margrave[report]`` has it.

        Bars are the published counts. Lines are intervals, where the release has any: those of the published counts, or
        else those of the unbiased estimates; the subtitle says which.

        Parameters
        ----------
        names
            The attributes: the first on the axis, the second in colours, the third in charts side by side.
        level
            How often intervals cover the truth.
        """
        return table_chart(self.table(*names, level=level))

    def compare(self, other: Release) -> Comparison:
        """Return how far the tables that both releases have are from each other; both are public, and so is this.

        Parameters
        ----------
        other
            Another release, as by another method or of another year.
        """
        return _compare(self, other)

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        csv: bool = False,
        documents: Mapping[str, str] | None = None,
        title: str | None = None,
        progress: Callable[[int, int], None] | None = None,
        workers: object = None,
    ) -> None:
        """Write the release to a folder, as a whole or not at all; `margrave.load` reads it.

        Parameters
        ----------
        folder
            The folder to make; the folder that it goes into must be there.
        overwrite
            Replace a release, or an empty folder, of this name. Anything else is never replaced.
        csv
            Write each table as CSV too, next to its Parquet file.
        documents
            Further texts to put into the folder, by file name, such as a report.
        title
            What the release is called, for the heading of its README.
        progress
            Called with the number of tables written and the number of all tables.
        workers
            Processes that write the tables, each a part of them; as for `margrave.reconstruct`. Workers on other
            machines must see the folder under the same path.
        """
        from margrave.release.store import saving

        saving.save(
            self,
            folder,
            overwrite=overwrite,
            csv=csv,
            documents=documents,
            title=title,
            progress=progress,
            workers=workers,
        )

    def restricted(self, first: int, last: int) -> Release:
        """Return the release of some tables alone, with what is inside them: all that a worker needs to write them.

        Parameters
        ----------
        first, last
            Outer tables of the closure, by their numbers: from ``first`` to ``last`` − 1.
        """
        from margrave.release.table import Counts
        from margrave.workload import Workload

        estimates, whole = self.estimates, self.estimates.layout
        layout, domain, offset = whole.restricted(first, last), self.workload.domain, whole.index.offset

        def cells(values: Floats) -> Floats:
            return np.concatenate([values[: whole.inner_cells], values[offset[first] : offset[last]]])

        tables = np.r_[0 : whole.outer, first:last]
        direct = estimates.direct
        if direct is not None:
            place = layout.places.get(whole.sets[direct[0]])
            direct = None if place is None else (place, direct[1])
        return replace(
            self,
            workload=Workload(domain, [domain.names(whole.sets[table]) for table in range(first, last)]),
            estimates=replace(
                estimates,
                layout=layout,
                values=cells(estimates.values),
                counts=estimates.counts[tables],
                precisions=estimates.precisions[tables],
                variances=None if estimates.variances is None else estimates.variances[tables],
                direct=direct,
            ),
            counts=Counts(layout, cells(self.marginals)),
            solution=None,
            measurements=None,
            errors=None if self.errors is None else self.errors.restricted(tables),
        )

    def synthesize(
        self,
        rows: int | None = None,
        *,
        seed: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Rows:
        """Return synthetic rows whose tables are close to those of the release; costs no budget (docs/rows.md).

        Ctrl-C ends the work early and keeps the best rows so far (``rows.interrupted``).

        Parameters
        ----------
        rows
            How many rows; by default as many as the release counts. The tables are scaled to any other number.
        seed
            A whole number that gives the same rows again; by default a random one, kept in ``rows.seed``.
        progress
            Called with the number of steps done and of all steps.
        """
        from margrave.release.facts import statement
        from margrave.synthesis.rows import synthesize

        self._require_agreement("synthetic rows are")
        options = self.method.options_text()
        origin = {
            "release": f"{len(self.workload):,} tables by the method {self.method.name!r}"
            + (f" ({options})" if options else ""),
            "guarantee": statement(self.provenance),
        }
        layout, domain = self.estimates.layout, self.workload.domain
        return synthesize(layout, self.marginals, domain, rows=rows, seed=seed, origin=origin, progress=progress)

    def integers(self) -> Release:
        """Return the release with whole numbers for counts, all of which agree with each other in every sum.

        They are counted from synthetic rows whose tables are near those of the release (docs/rows.md), and are on the
        whole as near to the truth or nearer. The unbiased estimates and their intervals stay as they are.
        """
        from margrave.methods.nonnegative import NonNegative, whole_tables
        from margrave.release.table import Counts

        self._require_agreement("whole numbers that agree are")
        layout = self.estimates.layout
        known = self.method if isinstance(self.method, NonNegative) else NonNegative()
        counts = Counts(layout, whole_tables(layout, self.marginals))
        return replace(self, method=replace(known, whole_numbers=True), counts=counts)

    def _require_agreement(self, what: str) -> None:
        """Refuse a release whose tables no rows could have: they disagree, or have negative counts."""
        if not (self.method.agree and self.method.nonnegative):
            raise ReleaseError(
                f"{what} made from tables that agree and have no negative counts, and those by {self.method.name!r} "
                "do not",
                remedy="reconstruct with method='lnn' from the same measurements, which costs nothing",
            )

    def __repr__(self) -> str:
        noun = "table" if len(self.workload) == 1 else "tables"
        return f"Release({len(self.workload):,} {noun} by {self.method.name!r})"

    def _repr_html_(self) -> str:
        record, sets = self.provenance, self.workload.sets
        rows = [
            (table_label(names, total="total"), f"{self.workload.domain.cells(names):,}")
            for names in sets[:_MOST_SHOWN]
        ]
        from margrave.release.facts import stated

        privacy = "" if record is None else stated(record)
        said = privacy if record is None or record.private else "NOT PRIVATE"
        more = f"… and {len(sets) - _MOST_SHOWN:,} more tables. " if len(sets) > _MOST_SHOWN else ""
        return html_table(repr(self), ("table", "cells"), rows, f"{more}{said}")

    @cached_property
    def _published(self) -> PublishedTables:
        adaptive = self.provenance is not None and self.provenance.adaptive
        return PublishedTables(self.workload, self.method, self.estimates, self.counts, adaptive, self.errors)


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
        """Return the comparison as a `pyarrow.Table`, one row per table."""
        import pyarrow as pa

        return pa.table(
            {
                "table": [table_label(one.attributes) for one in self.tables],
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


def _compare(release: Release, other: Release) -> Comparison:
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
                f"{table_label(names)} has other categories in the other release",
                remedy="compare releases of one domain",
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


def _has(release: Release, names: tuple[str, ...]) -> bool:
    """Tell whether a table is one of a workload, whatever the order of its attributes."""
    return all(name in release.workload.domain for name in names) and names in release.workload
