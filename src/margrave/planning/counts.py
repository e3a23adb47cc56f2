r"""The objective "counts": the least expected error of the reconstructed counts, for a stated number of rows.

**Error curves.** The error in people that is left in a table after a noisy measurement.

Reconstruction uses more than the measurement of a table. It expects in a table τ what the tables inside it predict, q
people in a cell, and moves a noisy residual towards that, further the larger its noise is. If a cell strays from q by
about s and is measured with noise of variance 1/y, what is left is about s/√(1 + s² y): s if the noise is large, the
noise itself if it is small. Over the cells of a table,

    D_τ(y) = Σ_cells s / √(1 + s² y),        y = π_τ/p_τ  the precision of a cell of residual τ.                 (1)

D_τ decreases and is convex in y, and so is D_τ². How far cells stray is a model (the constants were chosen on generated
tables, docs/adaptive.md). Of N people, in a cell where q are expected:

    one attribute     s² = (q − N/n)² + q                      what is expected without measuring is N/n,          (2)
    several           s² = p (κ u² + u)    if (1 + κ) p u ≥ 1, a share off by √κ, and who happens to be there      (3)
                      s = 1 for p u cells in one, else 0       single people, otherwise
                      u = q ∏_j (1 − q/q_{+j}) n_j/(n_j − 1)   q_{+j} the sum of q along axis j, p = ∏_j (1 − 1/n_j)

p u is the variance of a cell of a sample whose sums are given: a cell with nearly all the people of its row cannot
stray far, and where all sums are even u is q. There are a few values of κ, each with its probability, by the number of
attributes. κ is a share of what is expected. Where an attribute settles another, as a code the coarser code around it,
that is far too little: all people of a row are in one cell. So a pair may also be *settled to a share θ*: a cell has
all m people of its smallest sum, with chance q/m, or nobody, and strays by

    s² = p (θ (m − q)² + m)   with chance q/m,          s² = p (θ q² + q)   otherwise,     m = min_j q_{+j}.       (4)

θ is one where an attribute follows from the other, whatever their sizes. (Cells where nobody is expected are found
empty without being measured, by non-negativity.) Before anything is measured the expected counts are those of
independent attributes whose shares follow Zipf's law, i^(−a) with a from 0 (even) to 2 (steep), all a equally likely.

Everything here is computed from public or noisy numbers: N is stated or measured, q comes from a model or from
measurements.

**The objective.** With D_τ, what is left of residual τ in people, a table A of the closure errs by about

    L_A = √(Σ_{τ⊆A} D_τ²)                                                                                        (5)

in the sum over its cells: proportional fitting passes the error of a small table on to the large ones unchanged. Tables
of one attribute err by much less than those of three, so errors are averaged over tables of the same number of
attributes k, and relative changes are compared between different k:

    minimise  Σ_k ω_k log E_k      over added precisions x ≥ 0 with  ½ Σ p_τ x_τ ≤ ρ,                            (6)
    E_k = the mean of L_A over the tables of k attributes, each with weight u_A = max w_γ over γ ⊇ A,
    ω_k = Σ_γ w_γ a_(|γ|−k)       over the tables γ of the workload of k attributes or more, a = 1, 1/10, 1/30, …

So tables inside those of the workload count too, less with each attribute that they lack.

*Steps.* The logarithm and the root are concave: each lies below its tangent at E and L of the current plan. So (6) is
at most a constant plus

    Σ_τ v_τ D_τ²,      v_τ = Σ_{A⊇τ} ω_k u_A / (2 E_k L_A Σ u),    equal at the current plan.                    (7)

(7) is a sum of convex functions of one variable each. It is least where all slopes are equal,

    −v_τ dD_τ²/dy / p_τ = λ p_τ / 2,       y = (π_τ + x_τ)/p_τ,     or x_τ = 0 where it is less,                  (8)

and λ is found by bisection. A step never raises (6). The steps end at a point that no small change improves.

*A floor.* A share of the budget is divided as "nonnegative" divides it, so that every residual is measured: each table
has an unbiased estimate with its exact standard error, and tables with more structure than the model expects are not
missed. Law: tests/laws/test_counts_objective.py compares with a general solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra.kernels import Floats, Index, Integers, compiled, subset_tables
from margrave.planning.coefficients import add_subsets, cost_coefficients, largest_weights

if TYPE_CHECKING:
    from margrave.algebra.layout import Layout

# Probabilities of κ in (3), for tables of two attributes and of more.
STRAYS: Mapping[int, tuple[tuple[float, float], ...]] = {
    2: ((0.0, 0.35), (0.01, 0.25), (0.1, 0.25), (1.0, 0.15)),
    3: ((0.0, 0.6), (0.004, 0.2), (0.03, 0.15), (0.3, 0.05)),
}
# The odds that a pair is settled, to each θ of (4) alike, are this times `settling` less one: zero for attributes of up
# to eight values, then growing with the square of the larger one until they are even.
SETTLED, SETTLED_ODDS = (0.3, 1.0), 0.05
_FEW_VALUES, _MOST_SETTLING = 8, 21.0
ZIPF_EXPONENTS = (0.0, 0.5, 1.0, 1.5, 2.0)
# Histograms have bins of half an octave: shares of people from 2^−80 to 1, distances s from 2^−8 to 2^48.
_STEPS, _SHARE_BINS = 2, 161
_LEAST_SPREAD, SPREAD_BINS = -8, 113
# log₂ of the precisions y at which curves are tabulated; above them, D is the number of cells times 1/√y.
_GRID_STEP = 0.5
_GRID = np.arange(-84.0, 24.01, _GRID_STEP)
# Stands for zero under a logarithm.
_TINY = 1e-300
# a of equation (6), by how many attributes a table lacks; a quarter of the last for each further one. And the share of
# the budget that is the floor. Chosen on generated tables (docs/adaptive.md).
LOWER_ORDERS = (1.0, 1 / 10, 1 / 30)
FLOOR = 1 / 64
_MOST_STEPS = 60
_CONVERGED = 1e-5
# Stands for zero in a denominator, and for an error of zero.
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Curves:
    """D_τ of equation (1) for every table of a closure.

    Attributes
    ----------
    kind
        Shape (tables,); which curve each table has. Tables with the same expectation share one.
    squares
        Shape (curves, grid); log₂ of D² at the precisions of the grid. Logarithms are interpolated linearly,
        which is exact where only noise is left.
    slopes
        Shape (curves, grid); log₂ of −dD²/dy there.
    untouched
        Shape (curves,); D² at y = 0, without any measurement.
    occupied
        Shape (curves,); the number of cells that count: D tends to this times 1/√y.
    """

    kind: Integers
    squares: Floats
    slopes: Floats
    untouched: Floats
    occupied: Floats

    def squared_errors(self, precisions: Floats) -> Floats:
        """Return D_τ² at a precision of each table; shape (tables,)."""
        rows = self.kind
        place = (np.log2(np.maximum(precisions, _TINY)) - _GRID[0]) / _GRID_STEP
        whole = np.clip(place.astype(np.int64), 0, len(_GRID) - 2)
        part = np.clip(place - whole, 0.0, 1.0)
        inside = 2.0 ** (self.squares[rows, whole] * (1 - part) + self.squares[rows, whole + 1] * part)
        far = place > len(_GRID) - 1
        inside = np.where(far, self.occupied[rows] ** 2 / np.where(far, precisions, 1.0), inside)
        return np.where(place < 0, self.untouched[rows], inside)

    def precisions_at(self, slopes: Floats) -> Floats:
        """Return where −dD²/dy has fallen to a slope of each table; zero where it is never that steep.

        Parameters
        ----------
        slopes
            Shape (tables,); log₂ of the slopes.
        """
        rows, falling = self.kind, self.slopes
        low = np.empty(len(rows), dtype=np.int64)
        last_steeper(rows, falling, slopes, low)
        upper, lower = falling[rows, low], falling[rows, low + 1]
        part = np.clip((upper - slopes) / np.maximum(upper - lower, _LEAST), 0.0, 1.0)
        found = 2.0 ** (_GRID[low] + _GRID_STEP * part)
        beyond = falling[rows, -1] > slopes
        found = np.where(beyond, self.occupied[rows] * 2.0 ** np.minimum(-slopes / 2, 500.0), found)
        return np.where(falling[rows, 0] > slopes, found, 0.0)


def prior_curves(shapes: Sequence[tuple[int, ...]], rows: float) -> Curves:
    """Return the curves before anything is measured but the number of rows.

    Parameters
    ----------
    shapes
        The sizes of the attributes of each table.
    rows
        N, positive: stated, or measured with noise.
    """
    kinds = {shape: row for row, shape in enumerate(dict.fromkeys(tuple(sorted(shape)) for shape in shapes))}
    kind = np.array([kinds[tuple(sorted(shape))] for shape in shapes], dtype=np.int64)
    return curves_of(kind, prior_spreads(list(kinds), rows))


def prior_spreads(shapes: Sequence[tuple[int, ...]], rows: float) -> Floats:
    """Return the histograms of how far cells stray before anything is measured but the number of rows.

    Parameters
    ----------
    shapes, rows
        As for `prior_curves`.
    """
    spreads = np.zeros((len(shapes), SPREAD_BINS))
    for own, shape in zip(spreads, shapes, strict=True):
        if not shape:
            _add(own, np.array([rows]), np.ones(1))  # only the size of the total is known
        else:
            expected, cells = _zipf_table(shape, rows)
            share = float(np.prod([1 - 1 / size for size in shape]))
            add_spreads(own, expected, cells, len(shape), share=share, even=rows / shape[0])
            if len(shape) == 2:
                _mix_settled(own, shape, rows, share)
    return spreads


def _mix_settled(spreads: Floats, shape: tuple[int, ...], rows: float, share: float) -> None:
    """Let a pair be settled with the probability that it has before anything is measured, in place."""
    odds = SETTLED_ODDS * (settling(shape) - 1)
    if odds == 0:
        return
    (first, some), (second, others) = (_zipf_shares(size) for size in shape)
    expected, most = rows * np.outer(first, second), rows * np.minimum.outer(first, second)
    cells = np.outer(some, others) * (odds / (1 + odds) / len(SETTLED))
    spreads /= 1 + odds
    for theta in SETTLED:
        add_settled(spreads, expected, most, cells, theta, share=share)


def _zipf_shares(size: int) -> tuple[Floats, Floats]:
    """Return shares of people in the values of an attribute that follows Zipf's law, and how many values have each."""
    cells = np.zeros(_SHARE_BINS)
    for exponent in ZIPF_EXPONENTS:
        share = np.arange(1, size + 1, dtype=np.float64) ** -exponent
        np.add.at(cells, _share_bins(share / share.sum()), 1 / len(ZIPF_EXPONENTS))
    some = np.flatnonzero(cells)
    shares, cells = 2.0 ** (-some / _STEPS), cells[some]
    # Scaled so that rounding to half octaves does not change the number of people.
    return shares / float(cells @ shares), cells


def _share_bins(share: Floats) -> Index:
    """Return the bins, half octaves from one down, of shares of people."""
    bins: Index = np.clip(np.rint(-_STEPS * np.log2(share)).astype(np.int64), 0, _SHARE_BINS - 1)
    return bins


def add_spreads(
    spreads: Floats,
    expected: Floats,
    cells: Floats,
    order: int,
    *,
    share: float,
    even: float = 0.0,
    strays: Sequence[tuple[float, float]] | None = None,
) -> None:
    """Add the cells of one table to the histogram of how far they stray, by (2) and (3), in place.

    Parameters
    ----------
    spreads
        Shape (bins,); the histogram: how many cells stray by each distance s.
    expected, cells
        Expected counts q, and how many cells have each.
    order
        The number of attributes of the table, at least one.
    share
        p of equation (3).
    even
        N/n, for a table of one attribute.
    strays
        Pairs of κ and its probability; by default ``STRAYS``.
    """
    if order == 1 and strays is None:
        _add(spreads, np.sqrt((expected - even) ** 2 + expected), cells)
        return
    kappas, probabilities = np.array(STRAYS[min(order, 3)] if strays is None else strays).T[:, :, None]
    large = (1 + kappas) * share * expected >= 1
    spread = np.where(large, np.sqrt(share * (kappas * expected**2 + expected)), 1.0)
    _add(spreads, spread.ravel(), (probabilities * cells * np.where(large, 1.0, share * expected)).ravel())


def most_in_cells(expected: Floats) -> Floats:
    """Return the most people that each cell of a table can have: the smallest sum that it is in.

    Parameters
    ----------
    expected
        Expected counts, one axis for each attribute.
    """
    sums = [expected.sum(axis=axis, keepdims=True) for axis in range(expected.ndim)]
    least: Floats = np.minimum.reduce(np.broadcast_arrays(*sums))
    return least


def add_settled(
    spreads: Floats, expected: Floats, most: Floats, cells: Floats | float, theta: float, *, share: float
) -> None:
    """Add the cells of a pair to the histogram of how far they stray if it is settled to a share θ, by (4), in place.

    Parameters
    ----------
    spreads
        Shape (bins,); the histogram: how many cells stray by each distance s.
    expected, most
        q and m of the cells.
    cells
        How many cells have each.
    theta
        The share θ.
    share
        p of equation (3).
    """
    together = np.maximum(most, np.maximum(expected, 1.0))  # one person or more
    chance, cells = expected / together, np.broadcast_to(cells, expected.shape)
    full, some = share * together >= 1, share * expected >= 1
    far = np.sqrt(share * (theta * (together - expected) ** 2 + together))
    near = np.sqrt(share * (theta * expected**2 + expected))
    _add(spreads, far[full], (cells * chance)[full])
    _add(spreads, near[some], (cells * (1 - chance))[some])
    _add(spreads, np.ones(1), np.array([share * float((cells * expected * (1 - chance))[~some].sum())]))


def settling(shape: Sequence[int]) -> float:
    """Return by how much likelier it is that a pair is settled than for attributes of few values.

    Attributes of many values are often codes, of places, jobs or days, that others follow from.

    Parameters
    ----------
    shape
        The sizes of the two attributes.
    """
    return min(max(max(shape) / _FEW_VALUES, 1.0) ** 2, _MOST_SETTLING)


def curves_of(kind: Integers, spreads: Floats) -> Curves:
    """Return the curves of histograms of spreads.

    Parameters
    ----------
    kind
        Shape (tables,); the histogram of each table.
    spreads
        Shape (curves, bins); as made by `add_spreads`.
    """
    spread = 2.0 ** (_LEAST_SPREAD + np.arange(SPREAD_BINS) / _STEPS)
    remaining = 1 / np.sqrt(1 + np.outer(spread**2, 2.0**_GRID))
    errors = spreads @ (spread[:, None] * remaining)
    falls = spreads @ (0.5 * (spread[:, None] * remaining) ** 3)
    squares, slopes = (np.log2(np.maximum(one, _TINY)) for one in (errors**2, 2 * errors * falls))
    return Curves(kind, squares, slopes, (spreads @ spread) ** 2, spreads.sum(axis=1))


def _zipf_table(shape: tuple[int, ...], rows: float) -> tuple[Floats, Floats]:
    """Return expected counts, and how many cells have each, of independent attributes that follow Zipf's law.

    For one attribute q itself, for several u of equation (3).
    """
    bins_of, people = np.zeros(_SHARE_BINS), rows
    bins_of[0] = 1.0
    for size in shape:
        own, mean = np.zeros(_SHARE_BINS), 0.0
        for exponent in ZIPF_EXPONENTS:
            share = np.arange(1, size + 1, dtype=np.float64) ** -exponent
            share /= share.sum()
            if len(shape) > 1 and size > 1:
                share *= (1 - share) / (1 - 1 / size)
            np.add.at(own, _share_bins(share), 1 / len(ZIPF_EXPONENTS))
            mean += float(share.sum()) / len(ZIPF_EXPONENTS)
        bins_of, people = np.convolve(bins_of, own)[:_SHARE_BINS], people * mean
    expected = 2.0 ** (-np.arange(_SHARE_BINS) / _STEPS)
    # Scaled so that rounding to half octaves does not change the number of people.
    return expected * (people / float(bins_of @ expected)), bins_of


def varying_counts(expected: Floats) -> Floats:
    """Return u of equation (3) for the cells of a table of expected counts.

    Parameters
    ----------
    expected
        q, one axis for each attribute.
    """
    varying = expected.copy()
    for axis, size in enumerate(expected.shape):
        sums = expected.sum(axis=axis, keepdims=True)
        part = np.divide(expected, sums, out=np.zeros_like(expected), where=sums > 0)
        varying *= (1 - part) * (size / max(size - 1, 1))
    return varying


def _add(spreads: Floats, spread: Floats, cells: Floats) -> None:
    """Add cells to a histogram of spreads, in place; those outside its range go to the first or last bin."""
    least, most = 2.0**_LEAST_SPREAD, 2.0 ** (_LEAST_SPREAD + (SPREAD_BINS - 1) / _STEPS)
    inside = np.clip(spread, least, most)
    lower = np.minimum((_STEPS * (np.log2(inside) - _LEAST_SPREAD)).astype(np.int64), SPREAD_BINS - 2)
    below, above = (2.0 ** (_LEAST_SPREAD + (lower + step) / _STEPS) for step in (0, 1))
    # Cells are divided between two bins so that neither their number nor the sum of their spreads changes.
    share = np.clip((inside - below) / (above - below), 0.0, 1.0)
    spreads += np.bincount(lower, cells * (1 - share), minlength=SPREAD_BINS)
    spreads += np.bincount(lower + 1, cells * share, minlength=SPREAD_BINS)


@dataclass(frozen=True, eq=False)
class Importance:
    """How much each table and each number of attributes counts in (6).

    Attributes
    ----------
    tables
        Shape (tables,); u_A divided by the sum over the tables of as many attributes.
    orders
        Shape (most attributes + 1,); ω_k, zero for the total and where there is nothing to measure.
    """

    tables: Floats
    orders: Floats

    @classmethod
    def of(cls, layout: Layout, weights: Floats) -> Importance:
        """Return the importance of the tables and orders of a workload.

        Parameters
        ----------
        layout
            The closure of the workload.
        weights
            Shape (tables,); w_γ of each table, zero for sets outside the workload.
        """
        order, largest = layout.index.order, largest_weights(layout, weights)
        asked = np.bincount(order, weights)
        below = np.array([*LOWER_ORDERS, *(LOWER_ORDERS[-1] * 0.25 ** np.arange(1, len(asked) + 1))])
        orders = np.array([asked[k:] @ below[: len(asked) - k] for k in range(len(asked))])
        largest[layout.degrees == 0] = 0.0
        sums = np.bincount(order, largest)
        orders[sums == 0] = 0.0
        if len(orders) > 1:  # the total counts as part of every table, and by itself only if it is the only table
            orders[0] = 0.0
        return cls(largest / np.where(sums > 0, sums, 1.0)[order], orders / max(orders.max(), _LEAST))


def expected_errors(layout: Layout, curves: Curves, precisions: Floats) -> Floats:
    """Return L_A of equation (5) for each table of the closure; shape (tables,).

    Parameters
    ----------
    layout
        The closure.
    curves
        What is left of each residual.
    precisions
        Shape (tables,); π_τ, how precisely each residual is measured.
    """
    squares = np.empty(len(layout.sets))
    add_subsets(layout.index, curves.squared_errors(_by_cell(layout, precisions)), squares)
    return np.sqrt(squares)


def objective(layout: Layout, curves: Curves, precisions: Floats, importance: Importance) -> float:
    """Return the value of (6) for residuals measured with these precisions."""
    errors = expected_errors(layout, curves, precisions)
    means = np.bincount(layout.index.order, importance.tables * errors)
    return float(sum(share * np.log(max(mean, _LEAST)) for share, mean in zip(importance.orders, means, strict=True)))


def best_precisions(
    layout: Layout, curves: Curves, importance: Importance, *, rho: float, start: Floats, known: Floats | None = None
) -> tuple[Floats, int]:
    """Return the precisions to add that minimise (6), and how many steps it took.

    Parameters
    ----------
    layout
        The closure.
    curves
        What is left of each residual, by its precision.
    importance
        Of tables and of orders in (6).
    rho
        The budget, for one row a person.
    start
        Shape (tables,); added precisions to begin with, within the budget.
    known
        Shape (tables,); π_τ, the precisions measured so far; zero by default.
    """
    there = np.zeros(len(layout.sets)) if known is None else known
    added, value = start, objective(layout, curves, there + start, importance)
    for step in range(1, _MOST_STEPS + 1):
        weights = _majorant(layout, curves, there + added, importance)
        tried = _filled(layout, curves, weights, there, rho)
        new = objective(layout, curves, there + tried, importance)
        if new < value:
            added = tried
        if new > value - _CONVERGED:
            return added, step
        value = new
    return added, _MOST_STEPS


def _majorant(layout: Layout, curves: Curves, precisions: Floats, importance: Importance) -> Floats:
    """Return v_τ of equation (7)."""
    order = layout.index.order
    errors = np.maximum(expected_errors(layout, curves, precisions), _LEAST)
    means = np.bincount(order, importance.tables * errors)
    each = importance.orders[order] * importance.tables / (2 * np.maximum(means, _LEAST)[order] * errors)
    weights = np.zeros(len(each))
    add_to_subsets(layout.index, each, weights)
    return weights


def _filled(layout: Layout, curves: Curves, weights: Floats, known: Floats, rho: float) -> Floats:
    """Return the added precisions of equation (8), which cost ``rho``."""
    cost = cost_coefficients(layout)
    useful = (cost > 0) & (weights > 0)
    safe = np.where(useful, cost, 1.0)
    slopes = np.log2(safe**2 / (2 * np.where(useful, weights, 1.0)))
    there = _by_cell(layout, known)

    def added(level: float) -> Floats:
        # The bisection is over log₂ λ, because λ may be of any size.
        return np.where(useful, np.maximum(curves.precisions_at(slopes + level) - there, 0.0) * safe, 0.0)

    low, high = -400.0, 400.0
    for _ in range(60):
        middle = (low + high) / 2
        if float(cost @ added(middle)) / 2 > rho:
            low = middle
        else:
            high = middle
    # The cost passes ρ between the two, and it is linear in precisions: interpolate to spend exactly ρ.
    more, less = added(low), added(high)
    spent_more, spent_less = float(cost @ more) / 2, float(cost @ less) / 2
    if spent_more <= rho:
        return more * (rho / spent_more) if spent_more > 0 else more
    share = (rho - spent_less) / max(spent_more - spent_less, _LEAST * rho)
    return less + min(max(share, 0.0), 1.0) * (more - less)


def _by_cell(layout: Layout, precisions: Floats) -> Floats:
    """Return y = π_τ/p_τ; zero where there is nothing to measure."""
    cost = cost_coefficients(layout)
    return np.divide(precisions, cost, out=np.zeros_like(cost), where=cost > 0)


@compiled
def last_steeper(rows: Integers, falling: Floats, slopes: Floats, places: Integers) -> None:
    """Find the last place of the grid, except its end, where the curve of a table is steeper than a given slope.

    Parameters
    ----------
    rows
        Shape (tables,); which curve each table has.
    falling
        Shape (curves, grid); the slopes of the curves, which fall.
    slopes
        Shape (tables,); the slopes to look for.
    places
        Shape (tables,); the result, 0 where a curve is nowhere steeper.
    """
    for table in range(len(rows)):
        curve = falling[rows[table]]
        low, high = 0, len(curve) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if curve[middle] > slopes[table]:
                low = middle
            else:
                high = middle
        places[table] = low


@compiled
def add_to_subsets(index: Index, terms: Floats, sums: Floats) -> None:
    """Add the term of every table to all tables inside it, itself included, in place."""
    subsets = np.empty(1 << index.axes.shape[1], dtype=np.int64)
    for table in range(len(terms)):
        subset_tables(table, index, subsets)
        for mask in range(1 << index.order[table]):
            sums[subsets[mask]] += terms[table]
