r"""The expected error of a published count, by any method, from the measurements alone (Stein's unbiased estimate).

Residual τ was measured as z_τ, with Gaussian noise of covariance σ²_τ C_τ (m_τ degrees of freedom), and published as
r̂_τ(z). Whatever the method, its squared error is estimated without bias by

    S_τ = ‖r̂_τ − z_τ‖² − σ²_τ m_τ + 2 D_τ,      E S_τ = E‖r̂_τ − r_τ‖²,      D_τ = Cov(r̂_τ, noise of z_τ)             (1)

and the covariance, by Stein's lemma a derivative of r̂ along the noise, by moving the measurements a little:

    D_τ ≈ mean of ⟨w_τ, r̂_τ(z + δw) − r̂_τ(z)⟩ / δ       over a few w drawn like the noise (``pretended_noise``).    (2)

Nothing is assumed about the truth, which is what fails when noise is replayed on released tables: these are smoother
than the truth. What is noisy about (1) and (2) is pooled: S_τ over all residuals of an order, each with a share of its
own. Errors of different residuals are orthogonal in every table, so with v_τ = S_τ/m_τ, pooled, a query with the
factors f_τ of ``uncertainty`` (3) errs by

    B = Σ_τ v_τ f_τ        as mean square over queries of its shape: where v = σ², the variance of the estimate.     (3)

**Within a table** large counts err by more than small ones. A count c whose unbiased estimate has variance V errs by

    count_error² = V h(c/√V) + φc (V/(V + φc))² + V g(c/√V),     at least ½ squared, or V where that is less,        (4)

a sum of three parts. The first is the variance of the count itself: the change that one draw of noise makes of it in
(2), squared, is an unbiased estimate of that to first order, far more precise than (1) where a method has removed most
of the noise. h is the mean over all cells of an order with about the same c/√V, made to grow with it. The second is
what the method smooths away: a cell with the mean c varies by φc around what tables of lower order predict, and a
measurement with variance V leaves V/(V + φc) of that. People are whole, so φ is at least 1; where they come in clumps,
as people with a common employer do, it is the size of a clump. By the identity of (1) a cell errs by
(c − x)² − V + 2 Cov(c, x) as mean square, with x the unbiased estimate. φ of an order is the mean of its posterior,
given what that exceeds the first part by, and what tables of the order below leave unseen: noise that hides the pairs
hides clumps in larger tables too. The third part is all else, fitted by ramps with non-negative weights, so that g
grows with the count, and only as far as it stands out of the noise. A count below a quarter of the mean of its table
counts as that much, where φ = 1: a zero among large counts is less certain than one among empty cells.

**Not beyond what contains it.** S cannot tell an error below a tenth of the noise from none, and large tables at small
budgets have noise of thousands. But a true count lies between zero and that of any table line that it is part of, which
is published with a smaller error. With c the count, f the line's, e its error, and n the cells of the line,

    count_error² ≤ m (F + 1 − m),     F = f + e,     m = c + F/4n + 1,                                              (7)

for every line, errors of lines first. For a number between 0 and F + 1 with mean m that is the largest variance there
is (Bhatia and Davis 2000): all people of the line in one of its cells. The mean is assumed not to be far above the
count; a quarter of an even share is added, for lines that are themselves uncertain.

**Never measured.** What was not measured is predicted from what was, and (1) does not know how well. So measured sets
are left out, half of them at a time, and predicted from the others by the same method:

    v_τ m_τ = κ Σ c²,    κ = Σ (‖r̂_τ − z_τ‖² − σ²_τ m_τ) / Σ c²    over the sets of this order that were left out. (5)

The difference is an unbiased estimate of the squared error of the prediction. Mechanisms that choose what to measure
choose what is predicted worst, so (5) is more likely too large than too small.

**Shares** are N/(N + M), with M the rest of the whole. The errors of one residual in two queries are in proportion to
the factors of both, so that with B_N, B_M and B_NM = Σ_τ v_τ f_τ(N, M), where f(N, M) = f(N, D) − f(N, N),

    E e_N e_M = B_NM/√(B_N B_M) · error of N · error of M                                                            (6)

which is exact on average over queries of their shape where errors do not depend on counts. ``share`` has what follows
from it.

**Intervals** reach z count_error to both sides of the count, and a little further, since cells that were pooled are
not all alike; less far where the count is small beside its error: few such cells are off by much, and most by very
little. They reach no further than those of the estimate would. They also contain what lies within 1.27 standard errors
of the unbiased estimate, up to about the width of its own interval: where a large true count was shrunk, the pooled
error is too small for it, but it is above x + 1.27 √V in 10 % of cases only, whatever its size. But no count is larger
than the upper end of anything that it is part of: that is where this ends. Ends are whole numbers, not below
zero. docs/intervals.md has the proof of (1) and coverage as measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.errors import ReleaseError
from margrave.measurements.entries import read_only
from margrave.release.uncertainty import Mask, quantile, query_covariance, query_factors, residual_variance
from margrave.synthesis.made_up_draws import pretended_noise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout
    from margrave.methods.method import Made, Method, Request
    from margrave.reconstruction.estimates import Estimates
    from margrave.workload import Workload

# The step δ of (2), in standard deviations: small enough for a derivative, large enough to rise above the tolerance of
# the solver.
_STEP = 0.3
# Draws, and how many beside reconstructions with sets left out: the cost stays within three reconstructions.
_DRAWS, _DRAWS_BESIDE = 2, 1
# Parts that measured sets are left out in, equation (5).
_FOLDS = 2
# By how many standard deviations of its noise a set that was left out must be off before it counts as the worst.
_SURE = 3.0
# How much pooling: the weight of its order beside a single residual, in degrees of freedom; and the weight of the
# assumption that counts err as unbiased estimates do, beside an order (degrees of freedom) and beside g (cells): the
# fewer cells there are, the more structure noise can hide.
_SET_DEGREES, _ORDER_DEGREES, _ORDER_CELLS = 200.0, 20.0, 100.0
# A function of g must stand out by this many standard deviations.
_SIGNIFICANT = 0.5
# Where h is known, in c/√V; each height counts beside this many cells that err as those of the order do on average.
_KNOTS = np.concatenate([[1e-3], np.geomspace(0.01, 1e4, 24)])
_KNOT_CELLS = 10.0
# Values of φ that are compared; by order what is usual before anything was seen, and the standard deviation of log φ.
# Pairs of the tables that this was chosen on depart from independence with a φ of 1 to 190, 35 in the median.
_CLUMPS = np.geomspace(1.0, 1000.0, 61)
_USUAL_CLUMPS = {1: (1.0, 1.0), 2: (10.0, 1.5)}
# Counts of more standard errors than this stand out by themselves, and say nothing about clumps that do not.
_HIDDEN = 3.0
# A count below this share of the table's mean counts as that much: a zero among large counts is less certain than one
# among empty cells.
_EMPTIEST = 0.25
# By how much of an even share of its line the mean of a count may exceed what is published, equation (7).
_EVEN = 0.25
# Where the ramps that g is made of end, in c/√V.
_RAMPS = np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0])
# Variances below this are set to it: a millionth of a person.
_LEAST_VARIANCE = 1e-12
_LEAST_SHARE = 1e-4
# A true count is a whole number: none is known better than to a half, where noise is larger than that.
_LEAST_ERROR = 0.5
# Copies of the tables that are held while errors are learned: those of `_Pool`, noise, change, and estimates as moved.
_ARRAYS = 6.0
# Cells that are pooled have different errors, so the tails are heavier than those of a normal distribution: how much
# further intervals reach, and how much where part of a table was never measured (chosen as docs/intervals.md says).
HEAVY, HEAVIER = 1.2, 1.8
# Few counts far below their error are off by much, most by very little: their intervals need not reach as far.
_LIGHT = 1.0
# Intervals reach no further than so many times what those of the estimate do; but where a count is expected to err by
# so many standard errors of the estimate, as sums of tables that were cut off at zero do, its method adds to the noise.
_MOST_REACH, _OWN_ERRORS = 0.98, 1.5
# An interval contains what lies within this share of the reach of the unbiased estimate's interval around it, at level
# 0.95 so that one true count in ten is above that; unless the interval becomes wider than so many times the estimate's.
_NEAR, _MOST_WIDTH = 0.65, 1.03
SEED = 1
# How many numbers describe g of an order, and how many h.
CURVE, KNOTS = len(_RAMPS) + 1, len(_KNOTS)


class Reliability(Enum):
    """How far a published count can be relied on, in words; the values are what files say."""

    RELIABLE = "reliable"
    CARE = "use with care"
    UNCERTAIN = "too uncertain to quote"


@dataclass(frozen=True)
class Bounds:
    """Where a count stops being reliable, as agencies draw the line.

    Attributes
    ----------
    reliable, care
        The largest relative error, error/count, of a reliable count and of one to use with care.
    floor
        An error of at most this many people is reliable whatever the count; up to three times as many, use with care.
        Without it no small count, and no zero, could ever be relied on.
    """

    reliable: float = 0.12
    care: float = 0.40
    floor: float = 1.0

    def __post_init__(self) -> None:
        given = tuple(getattr(self, one.name) for one in fields(self))
        if not all(_is_bound(one) for one in given) or given[0] > given[1]:
            raise ReleaseError(
                f"the bounds are {', '.join(map(repr, given))}",
                remedy="give the relative error up to which counts are reliable, that up to which they are to be used "
                "with care, not below the first, and the people within which they are reliable: 0.12, 0.4, 1 are usual",
            )
        for one in fields(self):
            object.__setattr__(self, one.name, float(getattr(self, one.name)))

    def judge(self, counts: Floats, errors: Floats) -> NDArray[np.object_]:
        """Return the `Reliability` of each count, as its text; the shape of ``counts``."""
        reliable = errors <= np.maximum(self.reliable * counts, self.floor)
        care = errors <= np.maximum(self.care * counts, 3 * self.floor)
        words = np.where(care, Reliability.CARE.value, Reliability.UNCERTAIN.value).astype(object)
        words[reliable] = Reliability.RELIABLE.value
        return words


def _is_bound(value: object) -> bool:
    """Tell whether a value is a finite number from zero on, which True is not."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return math.isfinite(value) and float(value) >= 0


BOUNDS = Bounds()


@dataclass(frozen=True, eq=False)
class CountErrors:
    """What was learned about the errors of a release's counts.

    Attributes
    ----------
    expected
        Shape (tables,), read-only; v_τ of equation (3).
    curve
        Shape (orders, `CURVE`), read-only; g of equation (4), by number of attributes.
    seed, draws
        Of the pretended noise: with the same, the same errors are learned from the same measurements.
    bounds
        Where counts of the release stop being reliable.
    spread
        Shape (orders, `KNOTS`), read-only; h of equation (4) by number of attributes. Without it, as by methods whose
        counts are the estimates and in folders of earlier versions, the squared error is B g.
    noise
        Shape (tables,), read-only; σ²_τ of what the counts were made from, infinite where never measured. It differs
        from that of the estimates where these are the first of several measurements. Without it, that of the estimates.
    clumps
        Shape (orders,), read-only; φ of equation (4) by number of attributes. Without it, 1.
    """

    expected: Floats
    curve: Floats
    seed: int
    draws: int
    bounds: Bounds = BOUNDS
    spread: Floats | None = None
    noise: Floats | None = None
    clumps: Floats | None = None

    def __post_init__(self) -> None:
        for name in ("expected", "curve", "spread", "noise", "clumps"):
            values = getattr(self, name)
            object.__setattr__(self, name, None if values is None else read_only(values))

    def of(
        self,
        estimates: Estimates,
        table: int,
        query: Sequence[Mask],
        counts: Floats,
        lines: Iterable[Line] = (),
    ) -> Floats:
        """Return the expected error of each count that a product query over a table gives, equation (4).

        Parameters
        ----------
        estimates
            The residuals as measured.
        table
            Number of the table in the layout of the estimates.
        query
            For each attribute of the table, in domain order, which of its values one count adds up; shape (n_k,).
        counts
            The published counts; any shape.
        lines
            What the counts are parts of, equation (7).
        """
        means = self._means(estimates, dict(query_factors(estimates, table, query, query)))
        squares = self._squares(means, sum(not bool(mask.all()) for mask in query), counts)
        for line in lines if self.draws else ():
            squares = np.minimum(squares, largest_square(counts, line))
        error: Floats = np.sqrt(squares)
        return error

    def of_parts(
        self, estimates: Estimates, table: int, queries: tuple[Sequence[Mask], Sequence[Mask]], part: Floats, line: Line
    ) -> PartErrors:
        """Return what is expected of a count and of the rest of another one that contains it, equation (6).

        Parameters
        ----------
        estimates, table
            As in `of`.
        queries
            What the part counts, and what the whole does.
        part
            The published counts of the part.
        line
            The published counts of the whole, their errors, and the share of its cells that the part has.
        """
        inside, all_of = (dict(query_factors(estimates, table, query, query)) for query in queries)
        both = dict(query_factors(estimates, table, *queries))
        every = all_of | inside | both
        rest = {k: all_of.get(k, 0.0) + inside.get(k, 0.0) - 2 * both.get(k, 0.0) for k in every}
        cross = {k: both.get(k, 0.0) - inside.get(k, 0.0) for k in every}
        one, other = (self._means(estimates, factors) for factors in (inside, rest))
        order = sum(not bool(mask.all()) for mask in queries[0])
        product = math.fsum(float(self.expected[k]) * factor for k, factor in cross.items())
        scale = math.sqrt(max((one.base + one.unknown) * (other.base + other.unknown), 0.0))
        correlation = min(max(product / scale, -1.0), 1.0) if scale > 0 else 0.0
        squares = self._squares(one, order, part), self._squares(other, order, line.counts - part)
        if self.draws:
            other_share = replace(line, share=1 - line.share)
            squares = (
                np.minimum(squares[0], largest_square(part, line)),
                np.minimum(squares[1], largest_square(line.counts - part, other_share)),
            )
        return PartErrors(*squares, correlation * np.sqrt(squares[0] * squares[1]))

    def restricted(self, tables: NDArray[np.intp]) -> CountErrors:
        """Return what was learned about some tables, given their numbers."""
        noise = None if self.noise is None else self.noise[tables]
        return replace(self, expected=self.expected[tables], noise=noise)

    def std_error(self, estimates: Estimates, table: int, query: Sequence[Mask]) -> float:
        """Return √V of a count: the standard error of its estimate if all that was measured had been chosen before.

        Parameters
        ----------
        estimates, table, query
            As in `of`.
        """
        return math.sqrt(self._means(estimates, dict(query_factors(estimates, table, query, query))).variance)

    def noise_of(self, estimates: Estimates, table: int, one: Sequence[Mask], other: Sequence[Mask]) -> Noise:
        """Return the covariance of two counts before they were cut off, and that of their estimates.

        Parameters
        ----------
        estimates, table
            As in `of`.
        one, other
            What the counts add up, as the query of `of`.
        """
        beside = query_covariance(estimates, table, one, other)
        if self.noise is None:
            return Noise(beside, beside)
        factors = query_factors(estimates, table, one, other)
        return Noise(math.fsum(float(self.noise[part]) * factor for part, factor in factors), beside)

    def _means(self, estimates: Estimates, factors: Mapping[int, float]) -> _Means:
        """Return B and V of a count with these factors."""
        base = variance = unknown = even = 0.0
        for part, factor in factors.items():
            share = float(self.expected[part]) * factor
            if part == 0:
                # The factor of the total is the square of the share of all cells that is counted.
                even = max(float(estimates.values[0]), 0.0) * math.sqrt(max(factor, 0.0))
            noise = _noise_of(estimates, part) if self.noise is None else float(self.noise[part])
            if math.isinf(noise):
                unknown += share
            else:
                base += share
                variance += noise * factor
        # The difference of two equal queries may be below zero by rounding.
        return _Means(max(base, 0.0), max(variance, 0.0), max(unknown, 0.0), even)

    def _squares(self, means: _Means, order: int, counts: Floats) -> Floats:
        """Return the expected squared error of each count, equation (4)."""
        raised = np.maximum(counts, _EMPTIEST * means.even)
        relative = raised / (math.sqrt(means.variance) if means.variance > 0 else 1.0)
        own = min(order, len(self.curve) - 1)
        growth: Floats = (_ramps(relative) @ self.curve[own]).reshape(np.shape(relative))
        if self.spread is None:
            squared = means.base * growth
        else:
            clumps = 1.0 if self.clumps is None else float(self.clumps[own])
            smoothed = _smoothed_away(raised, counts, means.variance, clumps)
            squared = means.variance * (_heights(relative, self.spread[own]) + growth) + smoothed
        squared = squared + _unmeasured(means.unknown, raised)
        least = math.sqrt(means.variance) if means.unknown == 0 else math.inf
        squares: Floats = np.maximum(squared, min(least, _LEAST_ERROR) ** 2)
        return squares


@dataclass(frozen=True, eq=False)
class Line:
    """Counts that contain others, as a row of a table contains its cells.

    Attributes
    ----------
    counts, errors
        The published counts and their errors; of a shape that broadcasts to that of the counts that they contain.
    share
        The share of their cells that one of those counts has.
    high
        Upper ends of their intervals, of the same shape, if these are known.
    """

    counts: Floats
    errors: Floats
    share: float
    high: Floats | None = None


def least_high(lines: Sequence[Line], errors: Floats) -> Floats | None:
    """Return the most that each count can be: the least upper end of the lines that it is part of; None without any.

    Parameters
    ----------
    lines
        What the counts are part of.
    errors
        The errors of the counts, for their shape.
    """
    ends = [line.high for line in lines if line.high is not None]
    if not ends:
        return None
    least: Floats = np.full(np.shape(errors), np.inf)
    for high in ends:
        np.minimum(least, high, out=least)
    return read_only(least)


def largest_square(counts: Floats, line: Line) -> Floats:
    """Return the largest mean squared error that counts can have, equation (7)."""
    most = np.maximum(line.counts, 0.0) + line.errors
    mean = np.minimum(np.maximum(counts, 0.0) + _EVEN * most * line.share + 1, most + 1)
    squares: Floats = np.maximum(mean * (most + 1 - mean), mean)
    return squares


@dataclass(frozen=True)
class _Means:
    """B of a count, split into what was measured (``base``) and what was not, V, and the count if all were even."""

    base: float
    variance: float
    unknown: float
    even: float


@dataclass(frozen=True, eq=False)
class CutOff:
    """Sums T of cells that were cut off at zero, beside the sums X of unbiased estimates of them.

    With e = T − true = (T − X) + (X − true), Stein's lemma gives the mean of a product of two errors,

        E e_1 e_2 = E (T_1 − X_1)(T_2 − X_2) + Cov(Z_1, Z_2) (k_1 + k_2) − Cov(X_1, X_2),                           (8)

    Z the sums of what was cut off, and k the mean of ∂c/∂z over the cells of a sum: all of them have the same
    covariance with the other sum. For a method that cuts off and does nothing else that is exact, with k the share of
    cells that are left. After one measurement Z = X. After several Z combines all by inverse variance and X is the
    first alone, so that Cov(Z, X) = Var Z; the variances are taken as they were chosen.

    Attributes
    ----------
    counts, estimate
        T and X; of one shape.
    kept
        k, of the same shape.
    cells
        How many cells each sum has.
    """

    counts: Floats
    estimate: Floats
    kept: Floats
    cells: int

    def rest(self, part: CutOff) -> CutOff:
        """Return the sums of all cells that are not in a part of these."""
        cells = max(self.cells - part.cells, 1)
        kept = (self.cells * self.kept - part.cells * part.kept) / cells
        return CutOff(self.counts - part.counts, self.estimate - part.estimate, kept, cells)

    def products(self, other: CutOff, noise: Noise) -> Floats:
        """Return (8) without the mean: an unbiased estimate of the product of two errors."""
        away = (self.counts - self.estimate) * (other.counts - other.estimate)
        products: Floats = away + noise.cut_off * (self.kept + other.kept) - noise.estimates
        return products

    def squares(self, noise: Noise) -> Floats:
        """Return the expected squared error of each sum, (8).

        Where nothing is left of a sum (8) is as uncertain as the noise: the mean over such sums counts. Of a single
        cell that is left T = kz, so that Z is known. Sums of several cells err by no less than what they were cut from,
        and single cells by half of its standard error, since any count below that may have been cut off or scaled down.
        """
        squares = self.products(self, noise)
        empty = self.counts <= 0
        if self.cells == 1:
            lost = np.divide(1 - self.kept, self.kept, out=np.zeros(np.shape(self.kept)), where=self.kept > 0)
            squares = np.where(empty, squares, np.square(lost * self.counts) + noise.cut_off * (2 * self.kept - 1))
        if empty.any():
            squares = np.where(empty, squares[empty].mean(), squares)
        found: Floats = np.maximum(squares, noise.cut_off if self.cells > 1 else noise.cut_off / 4)
        return found

    def parts(self, part: CutOff, variances: tuple[Noise, Noise], covariance: Noise) -> PartErrors:
        """Return what is expected of a part and of the rest of these sums, given V of both and their covariance."""
        rest = self.rest(part)
        squares = part.squares(variances[0]), rest.squares(variances[1])
        most = np.sqrt(squares[0] * squares[1])
        return PartErrors(*squares, np.clip(part.products(rest, covariance), -most, most))


@dataclass(frozen=True)
class Noise:
    """A variance or covariance: of what sums were cut off from, and of the estimates that are published beside them."""

    cut_off: float
    estimates: float


@dataclass(frozen=True, eq=False)
class PartErrors:
    """Expected squares of the errors of a part and of the rest of its whole, and their expected product, by group."""

    part: Floats
    rest: Floats
    product: Floats

    @property
    def whole(self) -> Floats:
        """The expected squared error of the whole: part and rest together."""
        return self.part + 2 * self.product + self.rest

    @property
    def shared(self) -> Floats:
        """The expected product of the errors of part and whole."""
        return self.part + self.product


def _smoothed_away(raised: Floats, counts: Floats, variance: float, clumps: float | Floats) -> Floats:
    """Return the second part of equation (4): what counts vary by, as far as a measurement does not show it.

    Parameters
    ----------
    raised, counts
        The counts as (4) has them, and as they are published.
    variance
        V.
    clumps
        φ: people come in groups of about so many; several to be tried, of a shape that broadcasts with counts.
    """
    own = np.maximum(raised, 0.0) + (clumps - 1) * np.maximum(counts, 0.0)
    parts: Floats = own * np.square(variance / np.maximum(variance + own, _LEAST_VARIANCE))
    return parts


def _heights(relative: Floats, heights: Floats) -> Floats:
    """Return h of counts in standard errors: by lines through its logarithms, given its heights at the knots."""
    logarithms = np.log(np.maximum(relative, _KNOTS[0]))
    found: Floats = np.exp(np.interp(logarithms, np.log(_KNOTS), np.log(np.maximum(heights, _LEAST_VARIANCE))))
    return found


def _unmeasured(mean: float, counts: Floats) -> Floats | float:
    """Return the squared error of each count that comes from what was never measured; their mean is given.

    A cell departs from what was predicted by a share of itself, or of one person.
    """
    if mean <= 0:
        return 0.0
    squares = np.square(counts + 1)
    parts: Floats = squares * (mean / float(squares.mean()))
    return parts


def learn_errors(
    method: Method,
    request: Request,
    made: Made,
    *,
    seed: int = SEED,
    bounds: Bounds = BOUNDS,
    beside: Estimates | None = None,
) -> CountErrors | None:
    """Return what can be learned about the errors of tables that were made; None where noise has no single variance.

    Parameters
    ----------
    method
        How the tables were made.
    request
        What they were made from.
    made
        The tables.
    seed
        Of the pretended noise.
    bounds
        Where counts stop being reliable.
    beside
        The unbiased estimates that are published beside the counts; by default those that these were made from.
    """
    estimates = request.estimates
    layout = estimates.layout
    variances = _noise(estimates)
    if np.isnan(variances).any() or not method.reads_estimates(estimates):
        return None
    orders = int(layout.index.order.max()) + 1
    known = np.isfinite(variances)
    guessed = variances
    if not known.all():
        squares = _sums(layout, np.square(made.marginals))
        guessed = _guessed(method, request, variances) * squares / np.maximum(layout.degrees, 1.0)
    # Of counts that are cut off at zero `CutOff` knows the errors, given unbiased estimates of all of them.
    estimated = known.all() and (beside is None or bool(np.isfinite(_noise(beside)).all()))
    if method.unbiased or (method.cuts_off and estimated):
        curve = np.tile(np.eye(1, CURVE), (orders, 1))
        return CountErrors(np.where(known, variances, guessed), curve, seed, 0, bounds, noise=variances)
    measured = np.where(known, variances, 0.0)
    draws = _DRAWS if known.all() else _DRAWS_BESIDE
    before = _published(method, request.workload, layout, made.marginals)
    pool = _Pool.of(estimates, before, measured, draws)
    moved_request = replace(request, progress=None, start=None if made.solution is None else made.solution.state)
    for noise in pretended_noise(layout, measured, seed=seed, draws=draws):
        moved = replace(estimates, values=estimates.values + _STEP * noise)
        again = method.make(replace(moved_request, estimates=moved))
        after = _published(method, request.workload, layout, again.marginals)
        pool.add(noise, (after - before) / (_STEP * draws))
    pooled = pool.expected()
    spread = pool.spread(pooled)
    clumps = pool.clumps(spread)
    expected = np.where(known, pooled, guessed)
    return CountErrors(expected, pool.curve(spread, clumps), seed, draws, bounds, spread, variances, clumps)


def _published(method: Method, workload: Workload, layout: Layout, marginals: Floats) -> Floats:
    """Return the tables as they are published: where they do not agree, those inside others are sums of the first."""
    if method.agree:
        return marginals
    tables, found = np.array(marginals), set(workload.positions)
    for place, members in enumerate(layout.sets):
        if members not in found:
            whole = next(one for one in workload.positions if set(members) <= set(one))
            axes = tuple(axis for axis, member in enumerate(whole) if member not in members)
            layout.view(tables, place)[...] = layout.view(marginals, layout.places[whole]).sum(axis=axes)
    return tables


def require_memory_to_learn(workload: Workload, method: Method, *, beside: int = 0) -> None:
    """Raise `MemoryLimitError` if the machine cannot hold what learning errors needs beside the tables themselves.

    Parameters
    ----------
    workload
        The tables wanted.
    method
        How they are made.
    beside
        As in `Method.require_memory`.
    """
    workload.require_memory(
        method.arrays + _ARRAYS,
        "learning the errors of the counts",
        beside=beside,
        first="publish counts without errors (--no-errors, errors=False)",
    )


def _noise(estimates: Estimates) -> Floats:
    """Return σ²_τ of each residual: infinite where never measured, NaN where there is no single one."""
    layout = estimates.layout
    return np.array([_noise_of(estimates, part) for part in range(len(layout.sets))])


def _noise_of(estimates: Estimates, part: int) -> float:
    """Return σ²_τ of one residual: infinite where never measured, NaN where there is no single one."""
    if estimates.counts[part] == 0 and estimates.layout.degrees[part] > 0:
        return math.inf
    return residual_variance(estimates, part)


@dataclass(eq=False)
class _Pool:
    """Sums of equations (1) and (4) over the draws.

    ``residuals`` are ‖r̂ − z‖² and then S_τ of each table; ``cells`` (c − x)² and then what a cell errs by, less V;
    ``changes`` the squares of what a draw changes, in units of V, and how many cells they are of, by order and knot.
    """

    layout: Layout
    variances: Floats
    counts: Floats
    residuals: Floats
    cells: Floats
    determined: NDArray[np.bool_]
    total: float
    draws: int
    changes: Floats

    @classmethod
    def of(cls, estimates: Estimates, marginals: Floats, variances: Floats, draws: int = 1) -> _Pool:
        from margrave.reconstruction.estimates import determined, maximum_likelihood

        layout = estimates.layout
        away = transform.center(layout, marginals) - estimates.values
        residuals = _sums(layout, np.square(away, out=away)) - variances * layout.degrees
        cells = maximum_likelihood(estimates)
        cells -= marginals
        return cls(
            layout,
            variances,
            marginals,
            residuals,
            np.square(cells, out=cells),
            determined(estimates),
            max(float(estimates.values[0]), 0.0),
            draws,
            np.zeros((2, int(layout.index.order.max()) + 1, KNOTS)),
        )

    def add(self, noise: Floats, change: Floats) -> None:
        """Add a draw and the change that it made, as a share of all draws."""
        layout = self.layout
        self.residuals += 2 * _sums(layout, noise * transform.center(layout, change))
        for table, attributes in enumerate(layout.sets):
            variance = self._means(table, self.variances)[1]
            if variance > 0:
                near = _nearest_knot(self._relative(table, variance))
                squares = np.square(layout.view(change, table).ravel()) * (self.draws / variance)
                self.changes[0, len(attributes)] += np.bincount(near, squares, KNOTS)
                self.changes[1, len(attributes)] += np.bincount(near, minlength=KNOTS) / self.draws
        change *= transform.reconstruct(layout, noise)
        change *= 2
        self.cells += change

    def expected(self) -> Floats:
        """Return v_τ, pooled: of each order, and of each residual beside its order."""
        order, degrees = self.layout.index.order, self.layout.degrees
        # Where noise is far below one person, the tolerance of the solver leaves more than the noise.
        noise = np.maximum(self.variances, _LEAST_VARIANCE) * degrees * (self.variances > 0)
        share = np.zeros(len(noise))
        for k in range(int(order.max()) + 1):
            own = (order == k) & (noise > 0)
            if not own.any():
                continue
            raw, weight = self.residuals[own] / noise[own], degrees[own]
            usual = (raw @ weight + _ORDER_DEGREES) / (weight.sum() + _ORDER_DEGREES)
            usual = max(float(usual), _LEAST_SHARE)
            share[own] = np.maximum((raw * weight + usual * _SET_DEGREES) / (weight + _SET_DEGREES), usual / 4)
        return share * np.maximum(self.variances, _LEAST_VARIANCE) * (self.variances > 0)

    def spread(self, expected: Floats) -> Floats:
        """Return the heights of h at the knots, by order: pooled, and never falling."""
        from scipy.optimize import isotonic_regression

        layout = self.layout
        usual, seen = np.zeros(len(self.changes[0])), np.zeros(len(self.changes[0]))
        for table, attributes in enumerate(layout.sets):
            mean, variance = self._means(table, expected)
            if variance > 0:
                cells = math.prod(layout.shape(table))
                usual[len(attributes)] += cells * mean / variance
                seen[len(attributes)] += cells
        heights: Floats = np.zeros(self.changes[0].shape)
        for k, (squares, cells) in enumerate(zip(*self.changes, strict=True)):
            # A count far below its noise is cut off or shrunk, one far above has the noise of its order.
            share = min(usual[k] / seen[k], 1.0) if seen[k] > 0 else 1.0
            supposed = share * np.square(_KNOTS) / (1 + np.square(_KNOTS))
            found = (cells > 0) if cells.any() else np.ones(KNOTS, dtype=np.bool_)
            weight = cells[found] + _KNOT_CELLS
            means = (squares[found] + _KNOT_CELLS * supposed[found]) / weight
            growing = isotonic_regression(means, weights=weight).x
            heights[k] = np.interp(np.arange(KNOTS), np.flatnonzero(found), growing)
        return heights

    def clumps(self, spread: Floats) -> Floats:
        """Return φ by order: its posterior mean, given what cells err by beyond the first part of equation (4).

        In units of V what a cell seems to err by has a variance of about 2, from the square of its noise alone. What is
        usual for tables of three attributes and more is what tables of the order below leave unseen, for a count of
        their mean: where pairs are known, little; where they drown in noise, all that pairs depart by.
        """
        layout, orders = self.layout, len(spread)
        tried = _CLUMPS[:, None]
        fit, unseen, cells = np.zeros((orders, len(_CLUMPS))), np.zeros((orders, len(_CLUMPS))), np.zeros(orders)
        for table, attributes in enumerate(layout.sets):
            _, variance = self._means(table, self.variances)
            if not (attributes and self.determined[table] and variance > 0):
                continue
            k, (begin, end) = len(attributes), layout.index.offset[table : table + 2]
            relative = self._relative(table, variance)
            near = _nearest_knot(relative)
            seen = np.bincount(near, minlength=KNOTS)
            kinds = np.flatnonzero(seen * (_KNOTS <= _HIDDEN))
            left = np.bincount(near, self.cells[begin:end] / variance - 1 - _heights(relative, spread[k]), KNOTS)[kinds]
            raised, counts = (
                np.bincount(near, values, KNOTS)[kinds] / seen[kinds]
                for values in (relative * math.sqrt(variance), self.counts[begin:end])
            )
            supposed = _smoothed_away(raised, counts, variance, tried) / variance
            free = layout.degrees[table] / (end - begin)
            fit[k] += free * (supposed @ left - np.square(supposed) @ seen[kinds] / 2) / 2
            mean = np.array([max(self.total, 1.0) / (end - begin)])
            unseen[k] += (end - begin) * (_smoothed_away(mean, mean, variance, tried) / mean)[:, 0]
            cells[k] += end - begin
        found, usual = np.ones(orders), 1.0
        for k in range(1, orders):
            centre, deviation = _USUAL_CLUMPS.get(k, (usual, 1.0))
            weights = fit[k] - np.square(np.log(_CLUMPS / centre) / deviation) / 2
            weights = np.exp(weights - weights.max())
            weights /= weights.sum()
            found[k] = weights @ _CLUMPS
            usual = 1 + float(weights @ unseen[k]) / max(cells[k], 1.0)
        return found

    def curve(self, spread: Floats, clumps: Floats) -> Floats:
        """Return the weights of the ramps of g, by order: what cells err by beyond the other parts of equation (4).

        In units of V what a cell seems to err by has a variance of about 2, from the square of its noise alone. Every
        ramp must stand out of that.
        """
        layout = self.layout
        orders = len(spread)
        squares, products = np.zeros((orders, CURVE, CURVE)), np.zeros((orders, CURVE))
        usual, left, seen = np.zeros((orders, CURVE)), np.zeros(orders), np.zeros(orders)
        for table, attributes in enumerate(layout.sets):
            _, variance = self._means(table, self.variances)
            if not (self.determined[table] and variance > 0):
                continue
            k, (begin, end) = len(attributes), layout.index.offset[table : table + 2]
            relative = self._relative(table, variance)
            rows = _ramps(relative)
            raised, counts = relative * math.sqrt(variance), self.counts[begin:end]
            known = _heights(relative, spread[k])
            known = known + _smoothed_away(raised, counts, variance, float(clumps[k])) / variance
            squares[k] += rows.T @ rows
            products[k] += rows.T @ (self.cells[begin:end] / variance - 1 - known)
            usual[k] += rows.sum(axis=0)
            left[k] += np.sum(1 - known)
            seen[k] += len(rows)
        fitted = np.zeros((orders, CURVE))
        for k in np.flatnonzero(seen).tolist():
            threshold = _SIGNIFICANT * np.sqrt(2 * np.diag(squares[k]))
            row = usual[k] / seen[k]
            squares[k] += _ORDER_CELLS * np.outer(row, row)
            products[k] += _ORDER_CELLS * row * max(left[k] / seen[k], 0.0) - threshold
            fitted[k] = _fitted(squares[k], products[k])
        return fitted

    def _relative(self, table: int, variance: float) -> Floats:
        """Return the counts of a table in standard errors; a zero among large counts as one that is not quite empty."""
        begin, end = self.layout.index.offset[table : table + 2]
        raised: Floats = np.maximum(self.counts[begin:end], _EMPTIEST * self.total / (end - begin))
        return raised / math.sqrt(variance)

    def _means(self, table: int, expected: Floats) -> tuple[float, float]:
        """Return B and V of a cell of a table."""
        parts, factors, variance = self._factors[table]
        return float(expected[parts] @ factors), variance

    @cached_property
    def _factors(self) -> list[tuple[NDArray[np.intp], Floats, float]]:
        """By table: the residuals inside it, their factors in a cell, and V of a cell."""
        layout, found = self.layout, []
        sizes = np.diff(layout.index.offset)
        weights = layout.degrees * sizes
        variances = np.maximum(self.variances, _LEAST_VARIANCE) * (self.variances > 0)
        for table, cells in enumerate(sizes.tolist()):
            parts = np.fromiter(layout.subsets(table), dtype=np.intp)
            factors = weights[parts] / float(cells) ** 2
            found.append((parts, factors, float(variances[parts] @ factors)))
        return found


def _ramps(relative: Floats) -> Floats:
    """Return the functions that g is made of, by cell: one, and ramps from 0 at no count to 1 at some c/√V."""
    flat = np.maximum(relative.reshape(-1, 1), 0.0)
    return np.concatenate([np.ones_like(flat), np.minimum(flat / _RAMPS, 1.0)], axis=1)


def _nearest_knot(relative: Floats) -> NDArray[np.intp]:
    """Return the number of the knot of h that is nearest to each count, by logarithms."""
    between = (np.log(_KNOTS[1:]) + np.log(_KNOTS[:-1])) / 2
    nearest: NDArray[np.intp] = np.searchsorted(between, np.log(np.maximum(relative, _KNOTS[0])))
    return nearest


def _fitted(squares: Floats, products: Floats) -> Floats:
    """Return the non-negative weights of least squares, from sums over cells."""
    from scipy.optimize import nnls

    factor = np.linalg.cholesky(squares + np.diag(1e-9 + 1e-9 * np.diag(squares)))
    weights: Floats = nnls(factor.T, np.linalg.solve(factor, products))[0]
    return weights


def _guessed(method: Method, request: Request, variances: Floats) -> Floats:
    """Return v_τ where nothing was measured, equation (5); where nothing was that could be left out, the prior's."""
    estimates = request.estimates
    layout, order = estimates.layout, estimates.layout.index.order
    away, scale = np.zeros(len(order)), np.zeros(len(order))
    # Sets of two attributes and more: every mechanism measures single ones.
    candidates = np.flatnonzero(np.isfinite(variances) & (order >= 2) & (layout.degrees > 0))
    for fold in range(_FOLDS):
        left_out = candidates[fold::_FOLDS]
        if not left_out.size:
            continue
        hidden = np.zeros(len(order), dtype=np.bool_)
        hidden[left_out] = True
        values = np.where(np.repeat(hidden, np.diff(layout.index.offset)), 0.0, estimates.values)
        reduced = replace(
            estimates,
            values=values,
            counts=np.where(hidden, 0, estimates.counts),
            precisions=np.where(hidden, 0.0, estimates.precisions),
        )
        predicted = method.make(replace(request, estimates=reduced, progress=None, start=None)).marginals
        error = transform.center(layout, predicted) - estimates.values
        squared = _sums(layout, np.square(error, out=error)) - variances * layout.degrees
        away[left_out] = squared[left_out]
        scale[left_out] = _sums(layout, np.square(predicted))[left_out]
    # Sets differ much, so the worst of those left out counts, less what noise alone makes of the worst of many.
    noise = np.where(scale > 0, np.where(np.isfinite(variances), variances, 0.0) * np.sqrt(2 * layout.degrees), 0.0)
    worst = (away - _SURE * noise) / np.maximum(scale, 1.0)
    found = [
        max(
            float(away[order == k].sum() / max(scale[order == k].sum(), 1.0)), float(worst[order == k].max(initial=0.0))
        )
        for k in range(int(order.max()) + 1)
    ]
    known = [k for k in range(len(found)) if scale[order == k].any()]
    if not known:
        return _prior_guess(estimates, variances)
    # An order of which no set was measured is taken to be like the nearest order.
    spread = np.array([max(found[min(known, key=lambda other: abs(other - k))], 0.0) for k in range(len(found))])
    return spread[order]


def _prior_guess(estimates: Estimates, variances: Floats) -> Floats:
    """Return how far the prior expects tables to depart from what smaller ones predict, relative to their squares."""
    from margrave.reconstruction.prior.levels import Levels

    layout = estimates.layout
    noise = variances.copy()
    noise[0] = 0.0
    levels = Levels(layout, estimates.values, noise, max(float(estimates.values[0]), 1.0))
    levels.run()
    squares = _sums(layout, np.square(transform.reconstruct(layout, levels.residuals)))
    return levels.errors * np.diff(layout.index.offset) / np.maximum(squares, 1.0)


def count_interval(
    counts: Floats,
    errors: Floats,
    estimate: Floats | None,
    std_error: float | None,
    level: float,
    *,
    noise: float | None = None,
    smoothed: bool = True,
    largest: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return the ends of the interval of each published count: whole numbers, not below zero, around the count.

    Parameters
    ----------
    counts, errors
        The counts, and their expected errors; of one shape.
    estimate, std_error
        The unbiased estimates and their standard error; None where there are none.
    level
        How often the interval covers the true count.
    noise
        The standard error that the estimate would have if all that was measured had not been chosen by earlier noise;
        by default its own.
    smoothed
        Whether small counts are mostly right, so that intervals need not reach as far.
    largest
        The most that the counts can be, which intervals contain of what is near the estimates; by default anything.
    """
    z = quantile(level)
    noise = std_error if noise is None else noise
    std_error = noise if std_error is None else std_error
    if estimate is None:
        reach = HEAVIER * z * errors
    else:
        large = np.minimum(np.divide(np.maximum(counts, 0.0), errors, out=np.ones_like(errors), where=errors > 0), 1.0)
        light = _LIGHT if smoothed else HEAVY
        reach = (light + (HEAVY - light) * large) * z * errors
    if noise is not None:
        # Not further than the noise itself would ask for, unless a method adds errors of its own to the noise.
        usual = errors <= _OWN_ERRORS * noise
        most = noise if smoothed else np.maximum(errors, noise)
        reach = np.where(usual, np.minimum(reach, _MOST_REACH * z * most), reach)
    below, above = reach, reach
    if estimate is not None and std_error is not None:
        below, above = _towards(estimate - counts, reach, _NEAR * z * std_error, 2 * _MOST_WIDTH * z * std_error)
        if largest is not None:
            above = np.minimum(above, np.maximum(largest - counts, reach))
    low, high = counts - below, counts + above
    # A true count is a whole number: ends move inwards, though not past the count itself.
    low = np.maximum(np.minimum(np.ceil(low), np.floor(counts)), 0.0) + 0.0
    high = np.maximum(np.maximum(np.floor(high), np.ceil(counts)), 0.0)
    # Noise leaves nothing certain: zero is never "0 to 0".
    high = np.where((errors > 0) & (high < 1), 1.0, high)
    return read_only(np.asarray(low)), read_only(np.asarray(high))


def _towards(away: Floats, reach: Floats, near: float, most: float) -> tuple[Floats, Floats]:
    """Return how far intervals reach below and above counts so that they contain what is near the estimates.

    The side of the estimate comes first, as long as the interval is not wider than ``most``; the count's reach stays.

    Parameters
    ----------
    away
        Estimates less counts.
    reach
        How far the intervals of the counts reach by themselves.
    near, most
        How far from an estimate is near, and how wide intervals may become.
    """
    room = np.maximum(most - 2 * reach, 0.0)
    further = np.clip(np.abs(away) + near - reach, 0.0, room)
    other = np.clip(near - np.abs(away) - reach, 0.0, room - further)
    up = away > 0
    below: Floats = reach + np.where(up, other, further)
    above: Floats = reach + np.where(up, further, other)
    return below, above


def _sums(layout: Layout, cells: Floats) -> Floats:
    """Return the sum of each table of a buffer."""
    sums: Floats = np.add.reduceat(cells, layout.index.offset[:-1])
    return sums
