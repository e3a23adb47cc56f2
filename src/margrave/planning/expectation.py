"""What to expect before any data is opened: the errors of the unbiased tables, and where the budget goes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from margrave.errors import PlanError
from margrave.escaping import html_table

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats, Integers
    from margrave.algebra.layout import Layout
    from margrave.privacy.budget import Budget
    from margrave.workload import Workload

_HEADINGS = ("attributes", "tables", "cells", "smallest error", "median error", "largest error", "budget")


class Expectation(ABC):
    """The errors that measuring a workload promises, whatever the data.

    Attributes
    ----------
    workload
        The tables wanted.
    budget
        What may be spent.
    contributions
        The most rows that one person has.
    layout
        The closure of the workload.
    """

    workload: Workload
    budget: Budget
    contributions: int
    layout: Layout

    @property
    @abstractmethod
    def cell_variances(self) -> Floats:
        """The variance of a cell of each table of the closure under maximum likelihood; shape (tables,)."""

    @abstractmethod
    def _spent(self) -> Floats:
        """Return what is spent on the tables of each number of attributes, from 0 up; only proportions count."""

    def _objective(self) -> str | None:
        """Return what is minimised, if anything."""
        return None

    @property
    def rho(self) -> Fraction:
        """The zCDP cost ρ that is charged: the whole budget."""
        return self.budget.rho

    def standard_error(self, *names: str) -> float:
        """Return the standard error of every cell of a table under maximum likelihood; no name means the total.

        The table is one of the workload or lies inside one. This is the exact standard error of its unbiased estimate,
        the one that a release states.
        """
        return math.sqrt(self.cell_variances[place_of(self.workload, self.layout, names)])

    def margin_of_error(self, *names: str, level: float = 0.95) -> float:
        """Return half the width of the confidence interval of every cell of a table, at the given level.

        The interval of a count that is measured by itself, such as the total of a plan, ends at whole numbers: half its
        width differs from this by less than one.
        """
        return normal_quantile(level) * self.standard_error(*names)

    def predictions(self) -> Floats:
        """Return the standard error of a cell of each table of the workload, in its order; shape (len(workload),)."""
        places = np.fromiter(map(self.layout.places.__getitem__, self.workload.positions), np.int64)
        return np.sqrt(self.cell_variances[places])

    def _repr_html_(self) -> str:
        summary = self.summary()
        caption = f"{type(self).__name__}: {str(summary).splitlines()[0]}"
        note = "Errors are standard errors of a cell of the unbiased tables. No data was opened."
        return html_table(caption, _HEADINGS, [_texts(row) for row in summary.rows], note)

    def median_errors(self) -> list[float]:
        """Return the median standard error of a cell by number of attributes, over all tables of the closure."""
        order, errors = self.layout.index.order, np.sqrt(self.cell_variances)
        return [float(np.median(errors[order == k])) for k in range(int(order.max()) + 1)]

    def summary(self) -> Summary:
        """Return predicted errors and shares of the budget by number of attributes; as text, a table to print."""
        positions = self.workload.positions
        order = np.fromiter((len(members) for members in positions), np.int64, len(positions))
        cells = [math.prod(self.workload.domain.shape[k] for k in members) for members in positions]
        spent = self._spent()
        rows = summarise_orders(order, cells, self.predictions(), spent / spent.sum())
        return Summary(rows, float(self.rho), self.contributions, self._objective())


def place_of(workload: Workload, layout: Layout, names: Iterable[str]) -> int:
    """Return the number of the named table in the closure of a workload."""
    # Anything but a list of names is left to the domain to refuse.
    given = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else names
    members = workload.domain.positions(given)
    if len(members) != len(tuple(given)):
        raise PlanError(f"the table {' × '.join(given)} names an attribute twice", remedy="name each once")
    if members not in layout.places:
        label = " × ".join(workload.domain.names(members))
        raise PlanError(
            f"the table {label} is in no table of the workload ({workload!r})", remedy="plan for a workload that has it"
        )
    return layout.places[members]


def normal_quantile(level: float) -> float:
    """Return z with P(|Z| ≤ z) = level for a standard normal Z."""
    if not is_number(level) or not 1e-9 <= level < 1:
        raise PlanError(f"level is {level!r}", remedy="give a number between 0 and 1, such as 0.95")
    # From the lower tail, where 1 − level is exact.
    return -NormalDist().inv_cdf((1 - float(level)) / 2)


def is_number(value: object) -> bool:
    """Tell whether the value is a real number, which True is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass(frozen=True)
class OrderSummary:
    """The tables of one number of attributes.

    Attributes
    ----------
    order
        The number of attributes.
    tables, cells
        How many tables of the workload have this number of attributes, and how many cells they have together.
    smallest, median, largest
        Predicted standard errors of a cell of these tables; None where the workload has no such table.
    share
        The share of the budget that goes to measuring residuals of this order, which larger tables need too.
    """

    order: int
    tables: int
    cells: int
    smallest: float | None
    median: float | None
    largest: float | None
    share: float


@dataclass(frozen=True)
class Summary:
    """A plan in a few lines; as text, a table to print.

    Attributes
    ----------
    rows
        One for each number of attributes, from the total up.
    rho
        The zCDP budget ρ, as a float.
    contributions
        The most rows that one person has.
    objective
        What the plan minimises; None where nothing is minimised.
    """

    rows: tuple[OrderSummary, ...]
    rho: float
    contributions: int
    objective: str | None

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The table as texts, its headings first."""
        return (_HEADINGS, *(_texts(row) for row in self.rows))

    def __str__(self) -> str:
        lines = self.texts
        widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
        table = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([self.heading, *table])

    @property
    def heading(self) -> str:
        """The budget, the rows of a person and the objective, in one line."""
        rows = "1 row" if self.contributions == 1 else f"at most {self.contributions:,} rows"
        objective = "" if self.objective is None else f", objective {self.objective}"
        # The plan is made for tables without negative counts, whose error depends on the data.
        note = " (errors are those of the unbiased tables)" if self.objective in ("nonnegative", "counts") else ""
        return f"rho = {self.rho:.6g}, {rows} per person{objective}{note}"


def summarise_orders(order: Integers, cells: Sequence[int], errors: Floats, shares: Floats) -> tuple[OrderSummary, ...]:
    """Return one row for each number of attributes.

    Parameters
    ----------
    order, cells, errors
        For each table of the workload: number of attributes, number of cells, predicted standard error.
    shares
        For each order from 0 up: the share of the budget that its residuals take.
    """
    counts = np.array(cells, dtype=object)
    return tuple(
        _summarise_order(k, counts[order == k].tolist(), errors[order == k], share)
        for k, share in enumerate(shares.tolist())
    )


def _summarise_order(order: int, cells: list[int], errors: Floats, share: float) -> OrderSummary:
    if not cells:
        return OrderSummary(order, 0, 0, None, None, None, share)
    smallest, median, largest = float(errors.min()), float(np.median(errors)), float(errors.max())
    return OrderSummary(order, len(cells), sum(cells), smallest, median, largest, share)


def _texts(row: OrderSummary) -> tuple[str, ...]:
    errors = ("–" if error is None else f"{error:,.4g}" for error in (row.smallest, row.median, row.largest))
    return f"{row.order}", f"{row.tables:,}", f"{row.cells:,}", *errors, f"{row.share:.1%}"
