"""What a plan promises, in a few lines: predicted errors by the number of attributes, and where the budget goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from margrave.algebra.kernels import Floats, Integers

_HEADINGS = ("attributes", "tables", "cells", "smallest error", "median error", "largest error", "budget")


@dataclass(frozen=True)
class OrderSummary:
    """The tables of one number of attributes.

    Attributes
    ----------
    order
        The number of attributes.
    tables, cells
        How many tables of the workload have so many attributes, and how many cells they have together.
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

    def __str__(self) -> str:
        lines = [_HEADINGS, *(_texts(row) for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
        table = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        rows = "1 row" if self.contributions == 1 else f"at most {self.contributions:,} rows"
        objective = "" if self.objective is None else f", objective {self.objective}"
        # The plan is made for tables without negative counts, whose error depends on the data.
        note = " (errors are those of the unbiased tables)" if self.objective == "nonnegative" else ""
        return "\n".join([f"rho = {self.rho:.6g}, {rows} a person{objective}{note}", *table])


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
