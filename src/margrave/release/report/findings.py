r"""What a report says in numbers, by the number of attributes of the tables: budget, error, effect of non-negativity.

Everything here is read from what was released. The share of the budget that residual τ took is

    ρ_τ = c² p_τ π_τ / 2,          p_τ = ∏_{k∈τ} (n_k − 1)/n_k,                                                   (1)

for residuals that were measured by themselves. It holds for those of measured marginals too: a marginal γ of variance
σ² is a measurement of precision π_τ = n_τ/(n_γ σ²) of every τ ⊆ γ, and Σ_{τ⊆γ} p_τ n_τ = n_γ, so that its parts (1)
add up to its own cost, c²/2σ². Where residuals were measured again because of what came out, π_τ is that of all their
measurements together. What is left of the whole budget went into choices, or into tables that are not here.

How far the released tables are from the unbiased ones is known. How far a count is from the truth is known as an
expectation, where errors of counts were learned: by it cells are reliable or not, and tables have a typical error,

    sum of the expected errors of the cells / sum of their counts.                                                (2)

The page begins with one sentence out of a table, `Headline`: the group whose share is furthest from that of everybody,
among counts that are reliable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations
from operator import add
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.transform import stream_marginals
from margrave.reconstruction.estimates import determined
from margrave.release.count_errors import Reliability
from margrave.release.uncertainty import LEVEL, cell_variance, quantile

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import AttributeSet, Layout
    from margrave.domain.domain import Domain
    from margrave.release.release import Release
    from margrave.release.table import Table

# Half the width of an interval, in standard errors.
_REACH = quantile(LEVEL)
# How many of its own expected errors a count is away from what is to be expected before it is a finding.
_STANDS_OUT = 4.0
# And how many times as many as expected it must be at least.
_MORE = 1.2
# A larger share of a group is nearly all of it.
_NEARLY_ALL = 0.75
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
    reliability
        How many of the published counts are reliable; None where errors of counts were not learned.
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
    reliability: Reliabilities | None = None


@dataclass(frozen=True)
class Reliabilities:
    """How far the published counts of some tables can be relied on.

    Attributes
    ----------
    cells, reliable, care
        How many cells there are, how many are reliable and how many are to be used with care.
    error, count
        The sums of equation (2).
    """

    cells: int
    reliable: int
    care: int
    error: float
    count: float

    @classmethod
    def of(cls, table: Table) -> Reliabilities | None:
        """Return that of a table; None where the errors of its counts are not known."""
        words = table.reliability()
        if words is None or table.count_error is None:
            return None
        reliable, care = (int((words == one.value).sum()) for one in (Reliability.RELIABLE, Reliability.CARE))
        return cls(words.size, reliable, care, float(table.count_error.sum()), float(table.values.sum()))

    def __add__(self, other: Reliabilities) -> Reliabilities:
        return Reliabilities(
            self.cells + other.cells,
            self.reliable + other.reliable,
            self.care + other.care,
            self.error + other.error,
            self.count + other.count,
        )

    @property
    def typical(self) -> float:
        """The typical error in proportion to a count, equation (2); infinite where nothing is counted."""
        return self.error / self.count if self.count > 0 else math.inf


@dataclass(frozen=True)
class Headline:
    """One finding: of a group so many have a value, of everybody so many.

    Attributes
    ----------
    group, group_label
        The attribute and the category that make the group.
    name, label
        The attribute and the category that many, or few, of the group have.
    share, overall
        The share of the group that has it, and the share of everybody, by the published counts.
    count, low, high
        How many there are, and the 95 % interval of that count.
    """

    group: str
    group_label: str
    name: str
    label: str
    share: float
    overall: float
    count: float
    low: float
    high: float


@dataclass(frozen=True)
class Findings:
    """What was found in a release.

    Attributes
    ----------
    orders
        One entry for each number of attributes, from the total up.
    remainder
        The share of the budget that is in no residual of the release; None where nothing is known about a budget.
    again
        The share of the budget that measured residuals of the release again, because of what came out the first time:
        counts are made of all measurements, unbiased estimates of the first. Part of the shares of the orders.
    undetermined
        How many tables of the workload the measurements do not determine.
    total, unbiased_total
        The number of records by the method of the release, and its unbiased estimate; None where it has none.
    total_margin
        The 95 % margin of the unbiased total, that of its interval; None where it has none.
    total_interval
        The 95 % interval of the published total; None where errors of counts were not learned.
    tables
        How far the counts of each table that is answered can be relied on; empty where errors were not learned.
    relative
        The typical error of each table that is answered in proportion to its counts, equation (2); where errors of
        counts were not learned, that of its unbiased estimates. Tables without either are left out.
    larger
        For each pair of attributes the mean of that over the tables of three and more attributes that have both.
    """

    orders: tuple[OrderFindings, ...]
    remainder: float | None
    undetermined: int
    total: float
    unbiased_total: float | None
    total_margin: float | None
    total_interval: tuple[float, float] | None = None
    tables: Mapping[AttributeSet, Reliabilities] = field(default_factory=dict)
    relative: Mapping[AttributeSet, float] = field(default_factory=dict)
    larger: Mapping[AttributeSet, float] = field(default_factory=dict)
    again: float = 0.0


def find(release: Release) -> Findings:
    """Return what a report says about a release in numbers; its tables are looked at one after the other."""
    layout = release.estimates.layout
    known = determined(release.estimates)
    margins = np.array([_margin(release, table) for table in range(len(layout.sets))])
    comparison = _compare(release)
    shares, remainder, again = _budget(release)
    found = _reliabilities(release)
    orders = []
    for order in range(int(layout.index.order.max()) + 1):
        tables = np.flatnonzero(_answered(release) & (layout.index.order == order))
        share = None if shares is None else float(shares[order])
        of_order = [one for members, one in found.items() if len(members) == order]
        summary = _summarise(order, share, margins[tables], comparison.taken(tables, known[tables]))
        orders.append(replace(summary, reliability=_sum(of_order)))
    total = release.table()
    interval = total.interval(LEVEL)
    relative = {members: one.typical for members, one in found.items()} or _relative_margins(release, margins)
    return Findings(
        orders=tuple(orders),
        remainder=remainder,
        again=again,
        undetermined=sum(not known[layout.places[members]] for members in release.workload.positions),
        total=float(total.values),
        unbiased_total=None if total.estimate is None else float(total.estimate),
        total_margin=None if interval is None else interval.margin,
        total_interval=_ends(total),
        tables=found,
        relative=relative,
        larger=_larger(relative),
    )


def _larger(relative: Mapping[AttributeSet, float]) -> dict[AttributeSet, float]:
    """Return the mean error of the tables of three and more attributes that have a pair, for each pair."""
    sums: dict[AttributeSet, list[float]] = {}
    for members, value in relative.items():
        if len(members) > 2:
            for pair in combinations(members, 2):
                sums.setdefault(pair, []).append(value)
    return {pair: float(np.mean(values)) for pair, values in sums.items()}


def _relative_margins(release: Release, margins: Floats) -> dict[AttributeSet, float]:
    """Return the standard error of a cell of the unbiased tables in proportion to the mean cell of each."""
    layout, answered = release.estimates.layout, _answered(release)
    total, cells = float(release.estimates.values[0]), np.diff(layout.index.offset)
    known = np.isfinite(margins) & answered
    if total <= 0:
        return {}
    return {layout.sets[k]: float(margins[k] / _REACH * cells[k] / total) for k in np.flatnonzero(known).tolist()}


def _ends(total: Table) -> tuple[float, float] | None:
    """Return the interval of the published total."""
    if total.count_low is None or total.count_high is None:
        return None
    return float(total.count_low), float(total.count_high)


def _sum(parts: Sequence[Reliabilities]) -> Reliabilities | None:
    """Return that of several tables together; None for no table."""
    return reduce(add, parts) if parts else None


def _reliabilities(release: Release) -> dict[AttributeSet, Reliabilities]:
    """Return how far the counts of each table that is answered can be relied on."""
    if release.errors is None:
        return {}
    domain, answered = release.workload.domain, _answered(release)
    found = {}
    for place, members in enumerate(release.estimates.layout.sets):
        one = Reliabilities.of(release.table(*domain.names(members))) if answered[place] else None
        if one is not None:
            found[members] = one
    return found


def headline(release: Release, pairs: Iterable[AttributeSet]) -> Headline | None:
    """Return the finding that stands out most in some tables of two attributes; None if nothing does.

    Only reliable counts are looked at, in groups that are reliable themselves, and only those that are above what the
    group's size would lead one to expect by a fifth at least, and by more than four times their own expected error. Of
    them the one is chosen whose distance is largest in proportion to the square root of what was expected. Missing and
    other values are not a finding, nor is what nearly everybody in a group has: that is usually a matter of definition.

    Parameters
    ----------
    release
        The release.
    pairs
        Tables of two attributes.
    """
    domain = release.workload.domain
    best: tuple[float, Headline] | None = None
    for members in pairs:
        names = domain.names(members)
        table = release.table(*names)
        words = table.reliability()
        if words is None or table.count_error is None or table.count_low is None or table.count_high is None:
            return None
        reliable = (words == Reliability.RELIABLE.value) & _named(domain, names)
        groups = [np.asarray(release.table(name).reliability() == Reliability.RELIABLE.value) for name in names]
        counts, total = table.values, float(table.values.sum())
        margins = [counts.sum(axis=1, keepdims=True), counts.sum(axis=0, keepdims=True)]
        expected = margins[0] * margins[1] / max(total, 1.0)
        reliable &= groups[0][:, None] & groups[1][None, :]
        reliable &= (counts - expected > _STANDS_OUT * table.count_error) & (expected > 0)
        reliable &= (counts >= _MORE * expected) & (counts <= _NEARLY_ALL * np.minimum(*margins))
        if not reliable.any():
            continue
        score = np.where(reliable, (counts - expected) / np.sqrt(np.maximum(expected, 1e-300)), -math.inf)
        row, column = (int(k) for k in np.unravel_index(int(np.argmax(score)), score.shape))
        if best is None or score[row, column] > best[0]:
            sizes = (float(margins[0][row, 0]), float(margins[1][0, column]))
            ends = (float(counts[row, column]), float(table.count_low[row, column]))
            said = _headline(table, (row, column), sizes, total, (*ends, float(table.count_high[row, column])))
            best = float(score[row, column]), said
    return None if best is None else best[1]


def _headline(
    table: Table, cell: tuple[int, int], sizes: tuple[float, float], total: float, count: tuple[float, float, float]
) -> Headline:
    """Return the sentence of a cell; the smaller of its two groups is the group."""
    group, other = (0, 1) if sizes[0] <= sizes[1] else (1, 0)
    return Headline(
        group=table.attributes[group],
        group_label=table.categories[group][cell[group]],
        name=table.attributes[other],
        label=table.categories[other][cell[other]],
        share=count[0] / sizes[group],
        overall=sizes[other] / total,
        count=count[0],
        low=count[1],
        high=count[2],
    )


def _named(domain: Domain, names: Sequence[str]) -> NDArray[np.bool_]:
    """Tell which cells of a table are of declared values only, neither missing nor other."""
    grids = []
    for name in names:
        attribute = domain[name]
        kept = np.ones(attribute.size, dtype=np.bool_)
        kept[[code for code in (attribute.missing_code, attribute.other_code) if code is not None]] = False
        grids.append(kept)
    return grids[0][:, None] & grids[1][None, :]


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


def _budget(release: Release) -> tuple[Floats | None, float | None, float]:
    """Return the share of the budget that each order took, equation (1), what is left, and what measured again."""
    if release.provenance is None:
        return None, None, 0.0
    layout, first = release.estimates.layout, np.nan_to_num(release.estimates.precisions)
    costs = release.provenance.contributions**2 * _degree_shares(layout) / 2 / float(release.provenance.rho)
    everything = np.nan_to_num(_all_precisions(release))
    shares = np.bincount(layout.index.order, weights=costs * everything).astype(np.float64, copy=False)
    return shares, max(0.0, 1 - float(shares.sum())), float(costs @ (everything - first))


def _all_precisions(release: Release) -> Floats:
    """Return the precision of each residual by all of its measurements; the estimates have that of the first alone."""
    layout, measured, precisions = release.estimates.layout, release.measurements, release.estimates.precisions
    if measured is None or measured.first is None:
        return precisions
    origins = [measured.layout.places.get(members) for members in layout.sets]
    return np.array([0.0 if place is None else measured.precisions[place] for place in origins])


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
