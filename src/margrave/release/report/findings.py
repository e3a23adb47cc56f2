r"""What a report says in numbers, by the number of attributes of the tables: budget, error, effect of non-negativity.

Everything here is read from what was released. The share of the budget that residual τ took is

    ρ_τ = c² p_τ π_τ / 2,          p_τ = ∏_{k∈τ} (n_k − 1)/n_k,                                                   (1)

for residuals that were measured by themselves. It holds for those of measured marginals too: a marginal γ of variance
σ² is a measurement of precision π_τ = n_τ/(n_γ σ²) of every τ ⊆ γ, and Σ_{τ⊆γ} p_τ n_τ = n_γ, so that its parts (1)
add up to its own cost, c²/2σ². What is left of the whole budget went into choices, or into tables that are not here.

How far the released tables are from the unbiased ones is known; how far either is from the truth is not, and nothing
here claims to know it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.transform import stream_marginals
from margrave.reconstruction.estimates import determined
from margrave.release.uncertainty import LEVEL, cell_variance, quantile

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout
    from margrave.release.release import Release

# Half the width of an interval, in standard errors.
_REACH = quantile(LEVEL)
# The mean of |x| for a standard normal x.
_MEAN_ABSOLUTE = math.sqrt(2 / math.pi)


@dataclass(frozen=True)
class Margins:
    """The 95 % margins of error of a cell over several tables: half the width of its interval.

    Attributes
    ----------
    smallest, median, largest
        Over the tables; within a table all cells have the same.
    """

    smallest: float
    median: float
    largest: float


@dataclass(frozen=True)
class OrderFindings:
    """The tables of one number of attributes.

    Attributes
    ----------
    order
        The number of attributes.
    tables, cells
        How many tables with so many attributes the release answers, and how many cells they have together.
    share
        The share of the budget that residuals of this order took; None where nothing is known about a budget.
    margins
        The margins of error of the unbiased cells; None where no table of this order has any.
    negative
        The share of the unbiased cells that are below zero; None where no table is determined.
    negative_sum
        What those cells add up to in a table, on average over the tables: no more than zero.
    distance
        The mean distance of a released cell from its unbiased estimate.
    noise
        What the noise moves an unbiased cell by, on average; None where there are no margins.
    """

    order: int
    tables: int
    cells: int
    share: float | None
    margins: Margins | None
    negative: float | None
    negative_sum: float | None
    distance: float | None
    noise: float | None


@dataclass(frozen=True)
class Findings:
    """What was found in a release.

    Attributes
    ----------
    orders
        One entry for each number of attributes, from the total up.
    remainder
        The share of the budget that is in no residual of the release; None where nothing is known about a budget.
    undetermined
        How many tables of the workload the measurements do not determine.
    total, unbiased_total
        The number of records by the method of the release, and its unbiased estimate; None where it has none.
    total_margin
        The 95 % margin of the unbiased total, that of its interval; None where it has none.
    """

    orders: tuple[OrderFindings, ...]
    remainder: float | None
    undetermined: int
    total: float
    unbiased_total: float | None
    total_margin: float | None


def find(release: Release) -> Findings:
    """Return what a report says about a release in numbers; its tables are looked at one after the other."""
    layout = release.estimates.layout
    known = determined(release.estimates)
    margins = np.array([_margin(release, table) for table in range(len(layout.sets))])
    comparison = _compare(release)
    shares, remainder = _budget(release)
    orders = []
    for order in range(int(layout.index.order.max()) + 1):
        tables = np.flatnonzero(_answered(release) & (layout.index.order == order))
        share = None if shares is None else float(shares[order])
        orders.append(_summarise(order, share, margins[tables], comparison.taken(tables, known[tables])))
    total = release.table()
    interval = total.interval(LEVEL)
    return Findings(
        orders=tuple(orders),
        remainder=remainder,
        undetermined=sum(not known[layout.places[members]] for members in release.workload.positions),
        total=float(total.values),
        unbiased_total=None if total.estimate is None else float(total.estimate),
        total_margin=None if interval is None else interval.margin,
    )


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Released and unbiased tables side by side: one number for each of them.

    Attributes
    ----------
    cells, negative
        How many cells, and how many of them are negative in the unbiased table.
    negative_sum
        What the negative ones add up to.
    distance
        The sum of the distances of the released cells from the unbiased ones; NaN where they are the same product.
    known
        Whether the measurements determine the table.
    """

    cells: Floats
    negative: Floats
    negative_sum: Floats
    distance: Floats
    known: NDArray[np.bool_]

    def taken(self, tables: NDArray[np.intp], known: NDArray[np.bool_]) -> _Comparison:
        """Return the part about some tables, and mark which of them are determined."""
        return _Comparison(
            self.cells[tables], self.negative[tables], self.negative_sum[tables], self.distance[tables], known
        )


def _compare(release: Release) -> _Comparison:
    """Compare each released table of the closure with its unbiased estimate."""
    estimates, layout = release.estimates, release.estimates.layout
    inner, outer = np.split(estimates.values, [layout.inner_cells])
    rows, counts = [], release.marginals
    for table, (_, unbiased) in enumerate(stream_marginals(layout, inner, outer)):
        below = unbiased[unbiased < 0]
        released = layout.view(counts, table)
        distance = math.nan if release.method.unbiased else float(np.abs(released - unbiased).sum())
        rows.append((unbiased.size, below.size, float(below.sum()), distance))
    cells, negative, negative_sum, distance_sum = np.array(rows, dtype=np.float64).T
    return _Comparison(cells, negative, negative_sum, distance_sum, np.zeros(len(rows), dtype=np.bool_))


def _answered(release: Release) -> NDArray[np.bool_]:
    """Tell which tables of the closure the release answers for: where tables disagree, those of the workload alone."""
    layout = release.estimates.layout
    answered = np.full(len(layout.sets), release.method.agree)
    answered[[layout.places[members] for members in release.workload.positions]] = True
    return answered


def _margin(release: Release, table: int) -> float:
    """Return the 95 % margin of the cells of an unbiased table; NaN where it has none."""
    # What was measured depends on earlier noise: no variance that ignores this is right.
    if release.provenance is not None and release.provenance.adaptive:
        return math.nan
    return _REACH * math.sqrt(cell_variance(release.estimates, table))


def _budget(release: Release) -> tuple[Floats | None, float | None]:
    """Return the share of the budget that each order took, equation (1), and what is left of it."""
    if release.provenance is None:
        return None, None
    layout, precisions = release.estimates.layout, release.estimates.precisions
    costs = release.provenance.contributions**2 * _degree_shares(layout) * np.nan_to_num(precisions) / 2
    shares: Floats = np.bincount(layout.index.order, weights=costs) / float(release.provenance.rho)
    return shares, max(0.0, 1 - float(shares.sum()))


def _degree_shares(layout: Layout) -> Floats:
    """Return p_τ of each residual."""
    shares: Floats = layout.degrees / np.diff(layout.index.offset)
    return shares


def _summarise(order: int, share: float | None, margins: Floats, tables: _Comparison) -> OrderFindings:
    """Return what is said about the tables of one order."""
    exact = margins[np.isfinite(margins)]
    spread = Margins(float(exact.min()), float(np.median(exact)), float(exact.max())) if exact.size else None
    known = tables.known
    compared = known.any() and not np.isnan(tables.distance).any()
    return OrderFindings(
        order=order,
        tables=len(tables.cells),
        cells=int(tables.cells.sum()),
        share=share,
        margins=spread,
        negative=float(tables.negative[known].sum() / tables.cells[known].sum()) if known.any() else None,
        negative_sum=float(tables.negative_sum[known].mean()) if known.any() else None,
        distance=float(tables.distance[known].sum() / tables.cells[known].sum()) if compared else None,
        noise=float(exact.mean()) * _MEAN_ABSOLUTE / _REACH if exact.size else None,
    )
