r"""Error curves: what is left, in people, of how far a table strays from what is expected, after a noisy measurement.

Reconstruction knows more than what was measured. It expects of a table τ what the tables inside it predict, q people in
a cell, and moves a noisy residual towards that by as much as its noise asks for. If a cell strays from q by about s and
is measured with noise of variance 1/y, what is left is about s/√(1 + s² y): s if the noise is large, the noise itself
if it is small. Over the cells of a table,

    D_τ(y) = Σ_cells s / √(1 + s² y),        y = π_τ/p_τ  the precision of a cell of residual τ.                 (1)

D_τ falls and is convex in y, and so is D_τ². How far cells stray is a model (the constants were chosen on generated
tables, docs/adaptive.md). Of N people, in a cell where q are expected:

    one attribute     s² = (q − N/n)² + q                      what is expected without measuring is N/n,          (2)
    several           s² = κ q² + q     if (1 + κ) q ≥ 1,      a share off by √κ, and who happens to be there      (3)
                      s = 1 for q cells in one, else 0         single people, otherwise

with a few values of κ, each with its probability, by the number of attributes. (Cells where nobody is expected are
found empty without being measured, by non-negativity.) Before anything is measured the expected counts are those of
independent attributes whose shares follow Zipf's law, i^(−a) with a from even (0) to steep (2), each a alike.

Everything here is made of public numbers, or of noisy ones: N may be stated or measured, q come from a model or from
measurements. Law: tests/laws/test_counts_objective.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats, Integers

# Probabilities of κ in (3), for tables of two attributes and of more.
STRAYS: Mapping[int, tuple[tuple[float, float], ...]] = {
    2: ((0.01, 0.4), (0.1, 0.4), (1.0, 0.2)),
    3: ((0.002, 0.5), (0.02, 0.4), (0.2, 0.1)),
}
ZIPF_EXPONENTS = (0.0, 0.5, 1.0, 1.5, 2.0)
# Shares of people and distances s are kept by half octaves: shares from 2^−80 to 1, distances from 2^−8 to 2^48.
_STEPS, _SHARE_BINS = 2, 161
_LEAST_SPREAD, SPREAD_BINS = -8, 113
# log₂ of the precisions y at which curves are kept; beyond, D is the number of its cells times 1/√y.
_GRID_STEP = 0.5
_GRID = np.arange(-84.0, 24.01, _GRID_STEP)
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Curves:
    """D_τ of equation (1) for every table of a closure.

    Attributes
    ----------
    kind
        Shape (tables,); which curve each table has. Tables with the same expectation share one.
    squares
        Shape (curves, grid); log₂ of D² at the precisions of the grid. Between two of them logarithms are taken as
        straight, which they are where noise is all that is left.
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
        # Curves fall, so the place of a slope is found by bisection over the grid, for all tables at once.
        low, high = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), len(_GRID) - 1)
        for _ in range(int(np.ceil(np.log2(len(_GRID))))):
            middle = (low + high) // 2
            steeper = falling[rows, middle] > slopes
            low, high = np.where(steeper, middle, low), np.where(steeper, high, middle)
        upper, lower = falling[rows, low], falling[rows, high]
        part = np.clip((upper - slopes) / np.maximum(upper - lower, 1e-12), 0.0, 1.0)
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
    kinds: dict[tuple[int, ...], int] = {}
    kind = np.array([kinds.setdefault(tuple(sorted(shape)), len(kinds)) for shape in shapes], dtype=np.int64)
    spreads = np.zeros((len(kinds), SPREAD_BINS))
    for shape, row in kinds.items():
        if not shape:
            _add(spreads[row], np.array([rows]), np.ones(1))  # of the total nothing is known beyond its size
        else:
            expected, cells = _zipf_table(shape, rows)
            add_spreads(spreads[row], expected, cells, len(shape), even=rows / shape[0])
    return curves_of(kind, spreads)


def add_spreads(
    spreads: Floats,
    expected: Floats,
    cells: Floats,
    order: int,
    *,
    even: float = 0.0,
    strays: Sequence[tuple[float, float]] | None = None,
) -> None:
    """Add the cells of one table to the histogram of how far they stray, by (2) and (3), in place.

    Parameters
    ----------
    spreads
        Shape (bins,); how many cells stray by about so much.
    expected, cells
        Expected counts q, and how many cells have each.
    order
        The number of attributes of the table, at least one.
    even
        N/n, for a table of one attribute.
    strays
        Pairs of κ and its probability; by default ``STRAYS``.
    """
    if order == 1 and strays is None:
        _add(spreads, np.sqrt((expected - even) ** 2 + expected), cells)
        return
    for kappa, probability in STRAYS[min(order, 3)] if strays is None else strays:
        large = (1 + kappa) * expected >= 1
        spread = np.where(large, np.sqrt(kappa * expected**2 + expected), 1.0)
        _add(spreads, spread, probability * cells * np.where(large, 1.0, expected))


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
    """Return expected counts, and how many cells have each, of independent attributes that follow Zipf's law."""
    shares = np.zeros(_SHARE_BINS)
    shares[0] = 1.0
    for size in shape:
        own = np.zeros(_SHARE_BINS)
        for exponent in ZIPF_EXPONENTS:
            share = np.arange(1, size + 1, dtype=np.float64) ** -exponent
            bins = np.rint(-_STEPS * np.log2(share / share.sum())).astype(np.int64)
            np.add.at(own, np.minimum(bins, _SHARE_BINS - 1), 1 / len(ZIPF_EXPONENTS))
        shares = np.convolve(shares, own)[:_SHARE_BINS]
    expected = 2.0 ** (-np.arange(_SHARE_BINS) / _STEPS)
    # Rounding to half octaves must not change how many people there are.
    return expected * (rows / float(shares @ expected)), shares


def _add(spreads: Floats, spread: Floats, cells: Floats) -> None:
    """Add cells to a histogram of spreads, in place; those below its range count as the least."""
    bins = np.rint(_STEPS * (np.log2(np.maximum(spread, 2.0**_LEAST_SPREAD)) - _LEAST_SPREAD)).astype(np.int64)
    np.add.at(spreads, np.minimum(bins, SPREAD_BINS - 1), cells)
