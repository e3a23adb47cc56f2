"""PRIVATE: how far the tables of a release are from the truth, for the custodian of the private table alone.

It counts the private table exactly and compares. What comes out was never protected by noise: it is marked PRIVATE, it
is never written into the folder of a release, and no mechanism reads it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from margrave.algebra.layout import Layout
from margrave.data.source import Data, is_source, open_source
from margrave.domain.values import table_label
from margrave.errors import ReleaseError, StoreError, expected
from margrave.escaping import visible
from margrave.files import replacing
from margrave.release.release import Release
from margrave.release.store.folder import require_outside

if TYPE_CHECKING:
    import altair as alt

    from margrave.algebra.kernels import Floats
    from margrave.domain.domain import Domain
    from margrave.release.table import Table

WARNING = "PRIVATE: made from the exact counts, for the custodian's eyes only, not for publication."
# How many of the worst cells are kept.
_MOST_CELLS = 20
CHOICE = (
    "To choose a release, or the settings of one, by these errors is outside the guarantee: the choice would depend on "
    "the exact counts and no budget pays for it. Try settings on tables that are public or made up."
)


@dataclass(frozen=True, repr=False)
class TableErrors:
    """How far a table, or all tables of a number of attributes, are from the truth: PRIVATE.

    Attributes
    ----------
    attributes
        The table; for several tables their number of attributes in words.
    cells
        How many cells there are.
    count_error, estimate_error
        The mean distance of a cell from the truth, of the published counts and of the unbiased estimates; None where
        there are no estimates.
    worst
        The largest distance of a published count.
    coverage
        The share of cells whose interval, that of the estimate, has the truth in it; None where there are no intervals.
    count_coverage
        The same for the intervals of the published counts, in releases that have them.
    """

    attributes: str
    cells: int
    count_error: float
    estimate_error: float | None
    worst: float
    coverage: float | None
    count_coverage: float | None = None


@dataclass(frozen=True, repr=False)
class CellError:
    """A published count that is far from the truth: PRIVATE.

    Attributes
    ----------
    table, categories
        The table, and the category of each of its attributes.
    count, truth
        The published count and the exact one.
    """

    table: str
    categories: tuple[str, ...]
    count: float
    truth: float

    @property
    def error(self) -> float:
        """How far the count is from the truth."""
        return abs(self.count - self.truth)


@dataclass(frozen=True, repr=False)
class Evaluation:
    """How far a release is from the truth: PRIVATE.

    Attributes
    ----------
    orders
        By number of attributes.
    tables
        By table, the one with the largest mean error of its counts first.
    level
        How often intervals cover the truth.
    rows
        How many rows the domain counts in the private table.
    cells
        The counts that are furthest from the truth, the worst first.
    """

    orders: tuple[TableErrors, ...]
    tables: tuple[TableErrors, ...]
    level: float
    rows: int
    cells: tuple[CellError, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold; PRIVATE like the evaluation itself."""
        plain = {"orders": [asdict(one) for one in self.orders], "tables": [asdict(one) for one in self.tables]}
        cells = [{**asdict(one), "error": one.error} for one in self.cells]
        return {"warning": WARNING, "choice": CHOICE, "level": self.level, "rows": self.rows, **plain, "worst": cells}

    def plot(self) -> alt.Chart:
        """Return a chart of the mean error of every table by its number of cells: PRIVATE like the evaluation itself.

        Needs the extra ``margrave[report]``.
        """
        from margrave.release.report.charts import require_packages

        require_packages("charts")
        import altair as alt

        rows = [
            {"table": visible(one.attributes), "cells": one.cells, "error": error, "of": word, "largest": one.worst}
            for one in self.tables
            for word, error in (("published counts", one.count_error), ("unbiased estimates", one.estimate_error))
            if error is not None
        ]
        title = alt.TitleParams("PRIVATE: how far a release is from the truth", subtitle=CHOICE.partition(":")[0])
        chart: alt.Chart = (
            alt.Chart(alt.InlineData(values=rows), title=title)
            .mark_point(filled=True)
            .encode(
                x=alt.X("cells:Q", scale=alt.Scale(type="log"), title="cells of the table"),
                y=alt.Y("error:Q", title="mean error of a cell"),
                color=alt.Color("of:N", title=None),
                shape=alt.Shape("of:N", title=None),
                tooltip=["table:N", "of:N", "cells:Q", "error:Q", "largest:Q"],
            )
        )
        return chart

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write the evaluation as JSON to a file that only this user can read; never inside a release.

        Parameters
        ----------
        file
            The file; one that exists is not replaced.
        """
        require_outside(file)
        path = Path(file)
        if os.path.lexists(path):
            raise StoreError(f"{path} already exists", remedy="choose another name")
        try:
            with replacing(path) as stream:
                stream.write((json.dumps(self.to_dict(), indent=2) + "\n").encode())
            path.chmod(0o600)
        except OSError as error:
            raise StoreError(f"{path} cannot be written ({error.strerror})", remedy="choose another file") from error

    def __repr__(self) -> str:
        return "Evaluation(PRIVATE)"


def evaluate(release: Release, source: object, *, level: float = 0.95) -> Evaluation:
    """Return how far the tables of a release are from the exact counts: PRIVATE, for the custodian of the table only.

    All rows are counted, also those that a limit on the rows of a person left out of the release. Nothing is charged,
    because nothing of it may be published; to choose a release by it is outside the guarantee.

    Parameters
    ----------
    release
        The release; its tables are those of its workload.
    source
        The private table: a `Data` or what it is made from, or a `CodedTable`.
    level
        How often the intervals of the estimates cover the truth.
    """
    if not isinstance(release, Release):
        raise ReleaseError(expected("a Release", release), remedy="load one with load(folder)")
    workload = release.workload
    layout = Layout.of(workload.domain.shape, workload.positions)
    workload.require_memory(4, "exact counts of all tables")
    exact = _counts(source, workload.domain, layout)
    worst: list[CellError] = []
    tables, by_order = [], [_Sums() for _ in range(len(workload.positions[-1]) + 1)]
    for names, members in zip(workload.sets, workload.positions, strict=True):
        table = release.table(*names, level=level)
        sums = _Sums()
        truth = layout.view(exact, layout.places[members])
        sums.add(table, truth)
        worst = sorted([*worst, *_worst_cells(table, truth)], key=lambda one: -one.error)[:_MOST_CELLS]
        tables.append(sums.errors(table_label(names, total="total")))
        by_order[len(names)].join(sums)
    words = [f"{order} attribute{'' if order == 1 else 's'}" for order in range(len(by_order))]
    orders = [sums.errors(word) for word, sums in zip(words, by_order, strict=True) if sums.cells]
    worst_first = sorted(tables, key=lambda one: -one.count_error)
    rows = round(float(layout.view(exact, layout.places[()])))
    return Evaluation(tuple(orders), tuple(worst_first), level, rows, tuple(worst))


def _worst_cells(table: Table, truth: Floats) -> list[CellError]:
    """Return the cells of a table that are furthest from the truth."""
    distance = np.abs(table.values - truth).ravel()
    found = []
    for place in np.argsort(-distance, kind="stable")[:_MOST_CELLS].tolist():
        codes = np.unravel_index(place, truth.shape)
        labels = tuple(categories[int(code)] for categories, code in zip(table.categories, codes, strict=True))
        name = table_label(table.attributes, total="total")
        found.append(CellError(name, labels, float(table.values[codes]), float(truth[codes])))
    return found


def _counts(source: object, domain: Domain, layout: Layout) -> Floats:
    """Return the exact counts of all rows."""
    if not is_source(source):
        described = source if isinstance(source, Data) else Data(source)
        # The choice among the rows of a person is part of the mechanism; the truth is the whole table.
        source = replace(described, privacy_id=None)
    counted = open_source(source, domain, contributions=getattr(source, "contributions", 1))
    return counted.count(layout).astype(np.float64)


@dataclass
class _Sums:
    """Sums over the cells of tables."""

    cells: int = 0
    count: float = 0.0
    estimate: float = 0.0
    estimated: int = 0
    worst: float = 0.0
    covered: int = 0
    intervals: int = 0
    count_covered: int = 0
    count_intervals: int = 0

    def add(self, table: Table, truth: Floats) -> None:
        """Add the cells of a table."""
        distance = np.abs(table.values - truth)
        self.cells += truth.size
        self.count += float(distance.sum())
        self.worst = max(self.worst, float(distance.max(initial=0.0)))
        if table.estimate is not None:
            self.estimated += truth.size
            self.estimate += float(np.abs(table.estimate - truth).sum())
        if table.ci_low_raw is not None and table.ci_high_raw is not None:
            self.intervals += truth.size
            self.covered += int(((table.ci_low_raw <= truth) & (truth <= table.ci_high_raw)).sum())
        low, high = getattr(table, "count_low", None), getattr(table, "count_high", None)
        if low is not None and high is not None:
            self.count_intervals += truth.size
            self.count_covered += int(((low <= truth) & (truth <= high)).sum())

    def join(self, other: _Sums) -> None:
        """Add the cells of another sum."""
        worst = max(self.worst, other.worst)
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.worst = worst

    def errors(self, name: str) -> TableErrors:
        """Return means and shares."""
        return TableErrors(
            name,
            self.cells,
            self.count / self.cells,
            self.estimate / self.estimated if self.estimated else None,
            self.worst,
            self.covered / self.intervals if self.intervals else None,
            self.count_covered / self.count_intervals if self.count_intervals else None,
        )
