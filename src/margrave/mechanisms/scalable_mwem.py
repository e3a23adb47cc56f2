r"""Scalable MWEM: measure the tables that the measurements so far answer worst, one a round ([ReM] Alg. 6).

With a share a of the budget ρ the total is measured, and with a share o, zero in the paper, every table of one
attribute. Then, in each of T rounds, the table with the largest error ‖M_γ p − μ̂_γ‖₁ is chosen by the exponential
mechanism, measured with Gaussian noise, and all tables are reconstructed by EMP; half of a round's share
(1 − a − o) ρ/T goes to the choice and half to the measurement.

*Scores are whole numbers.* The reconstruction μ̂ depends on noisy answers alone. It is cut off at ±B and rounded to the
grid 2^−b, and the score is, exactly, in 64-bit integers,

    min(cap, Σ |2^b min(max(counts, 0), B) − 2^b μ̂|).                                                            (1)

One person with at most c rows moves the counts of a table by at most c in sum, so (1), in which nothing stretches a
distance, moves by at most 2^b c: that is its sensitivity, and no rounding is left to account for. Nor is any bound on
the number of rows: counts are cut off before they could wrap around (``data.counting.tally``), a term is at most
2^(b+1) B = 2^54, the sum is capped after every 2^7 terms at cap = 2^61, and so no integer on the way reaches 2^63. (No
table has B = 2^37 rows or an error of cap = 2^45 people; the cuts cost nothing.)

The counts are made once. A round is one pass over all tables (reconstruct a table in a scratch array, compare, forget).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import (
    Floats,
    Index,
    Integers,
    add_facets,
    compiled,
    over_tables,
    spread_facets,
    widest_facets,
)
from margrave.algebra.layout import Layout
from margrave.boundary import MOST_ROWS, measure_marginal
from margrave.data.source import open_source
from margrave.errors import PlanError
from margrave.measurements.measurements import Measurements
from margrave.mechanisms import Keep, Mechanism, Run, checked_request
from margrave.mechanisms.gaussian_marginals import marginal_cost
from margrave.mechanisms.spending import Spending, checked_sampler, spending
from margrave.options import option
from margrave.planning.coefficients import checked_contributions
from margrave.privacy.budget import Budget, Number, exact_number
from margrave.privacy.entropy import Source as EntropySource
from margrave.privacy.entropy import SystemEntropy
from margrave.privacy.selection import select, selection_epsilon

if TYPE_CHECKING:
    from margrave.measurements.provenance import Provenance
    from margrave.privacy.ledger import Ledger
    from margrave.privacy.noise import Sampler
    from margrave.workload import Workload

# Numbers held at once for each cell: counts, estimates, and the tables measured so far.
_ARRAYS = 3
# b, B, the cap, and how many terms are added between two cuts, as in (1). The grid moves the score of a table of a
# million cells by at most 8 people.
GRID_BITS = 16
_UNITS = 2**GRID_BITS
_BOUND = 2 * MOST_ROWS
_CAP = 2**61
_TERMS = 2**7


@compiled
def score_tables(
    first: int,
    last: int,
    index: Index,
    inner: Floats,
    residuals: Floats,
    counts: Integers,
    scores: Integers,
) -> None:
    """Write the scores (1) of the tables first … last − 1.

    ``inner`` holds the reconstructed marginals of the inner tables, ``residuals`` the estimates of all residuals.
    """
    slot = np.empty(index.axes.shape[1], dtype=np.int64)
    facets = np.empty(widest_facets(first, last, index))
    scratch = np.empty(np.max(index.offset[first + 1 : last + 1] - index.offset[first:last]))
    for t in range(first, last):
        start, end = index.offset[t], index.offset[t + 1]
        out = scratch[: end - start]
        spread_facets(t, index, inner, facets, slot)
        add_facets(1.0, residuals[start:end], 1.0, index.axes[t], index.order[t], facets, slot, out)
        table = counts[start:end]
        score = np.int64(0)
        for begin in range(0, out.size, _TERMS):
            terms = np.int64(0)
            estimates, exact = out[begin : begin + _TERMS], table[begin : begin + _TERMS]
            for i in range(estimates.size):
                # Written so that NaN, should there ever be one, is cut off as well; times 2^b is exact.
                estimate = estimates[i] if estimates[i] > -_BOUND else float(-_BOUND)
                estimate = estimate if estimate < _BOUND else float(_BOUND)
                terms += abs(min(max(exact[i], 0), _BOUND) * _UNITS - np.int64(np.rint(estimate * _UNITS)))
            score = min(score + terms, np.int64(_CAP))
        scores[t] = score


@dataclass(frozen=True, kw_only=True)
class ScalableMWEM(Mechanism):
    """Measure, round by round, the tables that are answered worst; the options are those of `scalable_mwem`.

    Parameters
    ----------
    rounds, initial_share, one_way_share, repeat
        As for `scalable_mwem`.
    entropy
        Where the random bits of the choices come from; the operating system by default.
    """

    name = "mwem"
    title = "scalable MWEM"
    staged = True
    summary = "round by round, the table that is answered worst so far (no error bars)"

    rounds: int = option(30, "How many tables to measure.")
    initial_share: Number = option(Fraction(1, 10), "The share of the budget for the total.")
    one_way_share: Number = option(
        Fraction(0), "The share of the budget for all tables of one attribute, before the first round."
    )
    repeat: bool = option(True, "Whether a table may be measured more than once.")
    entropy: EntropySource | None = None

    def prepare(self, workload: Workload, budget: Budget, *, contributions: int) -> ScalableMWEM:
        """Return the mechanism, once its options are checked."""
        self._split(*checked_request(workload, budget), contributions)
        return self

    def notes(self, workload: Workload, budget: Budget, *, contributions: int) -> tuple[str, ...]:
        """Return the noise of a table that is measured; which are measured depends on noisy choices."""
        split = self._split(workload, budget, contributions)
        noise = math.sqrt(split.variance)
        return (
            f"{split.rounds} tables are chosen one by one and measured with noise of standard deviation {noise:,.4g} "
            f"in each cell, the total with {math.sqrt(split.total_variance):,.4g}.",
            "The errors of the tables cannot be predicted: they depend on which tables are chosen.",
        )

    def description(self) -> str:
        """Return the sentence for reports."""
        return (
            f"The total was measured, and in each of {self.rounds} rounds the table with the largest error so far, "
            "chosen by the exponential mechanism, with discrete Gaussian noise."
        )

    def measure(
        self,
        source: object,
        workload: Workload | None,
        budget: Budget | None,
        *,
        contributions: int | None,
        run: Run = Run(),  # noqa: B008 — frozen
    ) -> Measurements:
        """Measure the total and, round by round, the tables that are answered worst; as `scalable_mwem`."""
        asked, charged = checked_request(workload, budget)
        split = self._split(asked, charged, contributions)
        variances = [split.variance, split.total_variance, split.single_variance]
        drawing = checked_sampler(run.sampler, variances, source=self.entropy)
        coins = SystemEntropy() if self.entropy is None else self.entropy
        domain = asked.domain
        table_source = open_source(source, domain, contributions=split.rows, privacy_id=run.privacy_id)
        layout = Layout.of(domain.shape, asked.positions)
        purpose = f"scalable MWEM: {split.rounds} rounds over {asked!r}"
        with spending(
            table_source,
            asked,
            layout,
            charged,
            run=run,
            purpose=purpose,
            arrays=_ARRAYS,
        ) as spent:

            def record(steps: list[tuple[str, Fraction]], cut_short: str | None) -> Provenance:
                return spent.record(self, steps, split.rows, drawing, entropy=coins, adaptive=True, cut_short=cut_short)

            return self._rounds(asked, layout, split, spent, drawing, coins, record, run.progress)

    def _rounds(
        self,
        workload: Workload,
        layout: Layout,
        split: _Split,
        spent: Spending,
        drawing: Sampler,
        coins: EntropySource,
        record: Callable[[list[tuple[str, Fraction]], str | None], Provenance],
        progress: Callable[[int, int], None] | None,
    ) -> Measurements:
        """Measure the total, the tables of one attribute if asked for, and one table a round."""
        domain, rows, rounds = workload.domain, split.rows, split.rounds
        candidates = [layout.places[members] for members in workload.positions]
        estimate = _RunningEstimate(layout)
        steps = [("total", split.first)]

        def measured(cut_short: str | None = None) -> Measurements:
            noisy = Measurements.from_marginals(domain, estimate.measured(workload), discrete=True)
            return noisy.with_provenance(record(steps, cut_short))

        estimate.measure((), spent.counts, split.total_variance, drawing)
        for member in split.single:
            estimate.measure((member,), spent.counts, split.single_variance, drawing)
            steps.append((f"table {domain.attributes[member]}", marginal_cost(split.single_variance, rows)))
        for done in range(rounds):
            spent.stage(partial(measured, f"after {done} of {rounds} rounds"))
            scores = estimate.scores(spent.counts)[candidates].tolist()
            chosen = candidates[select(scores, epsilon=split.epsilon, sensitivity=rows * _UNITS, source=coins)]
            names = " × ".join(domain.names(layout.sets[chosen])) or "total"
            estimate.measure(layout.sets[chosen], spent.counts, split.variance, drawing)
            choice, table = split.each, marginal_cost(split.variance, rows)
            steps += [(f"choice of a table, round {done + 1}", choice), (f"table {names}", table)]
            if not self.repeat:
                candidates.remove(chosen)
            if progress is not None:
                progress(done + 1, rounds)
        return spent.end(measured())

    def _split(self, workload: Workload, budget: Budget, contributions: int | None) -> _Split:
        """Return how the budget is divided, once every option is checked."""
        rows, share = checked_contributions(contributions), _checked_share(self.initial_share)
        rounds = _checked_rounds(self.rounds, len(workload), self.repeat)
        single = sorted({member for members in workload.positions for member in members})
        single_share = _checked_one_way_share(self.one_way_share, share) if single else Fraction(0)
        first, each = budget.rho * share, budget.rho * (1 - share - single_share) / (2 * rounds)
        variance = rows**2 / (2 * each)
        single_variance = rows**2 * len(single) / (2 * budget.rho * single_share) if single_share else variance
        return _Split(
            rows=rows,
            rounds=rounds,
            first=first,
            each=each,
            single=tuple(single) if single_share else (),
            epsilon=selection_epsilon(each),
            variance=variance,
            total_variance=rows**2 / (2 * first),
            single_variance=single_variance,
        )


@dataclass(frozen=True, kw_only=True)
class _Split:
    """How a budget is divided: ρ of the total and of each choice and each table, with the noise that each pays for."""

    rows: int
    rounds: int
    first: Fraction
    each: Fraction
    single: tuple[int, ...]
    epsilon: Fraction
    variance: Fraction
    total_variance: Fraction
    single_variance: Fraction


def scalable_mwem(
    source: object,
    workload: Workload,
    budget: Budget,
    *,
    contributions: int,
    privacy_id: str | None = None,
    ledger: Ledger | None = None,
    sampler: str | Sampler = "margrave",
    keep: Keep | None = None,
    defer_signals: bool = False,
    rounds: int = ScalableMWEM.rounds,
    initial_share: Number = ScalableMWEM.initial_share,
    one_way_share: Number = ScalableMWEM.one_way_share,
    repeat: bool = ScalableMWEM.repeat,
    entropy: EntropySource | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Measurements:
    """Measure the total and, round by round, the tables of a workload that are answered worst; charge the budget.

    The guarantee: ``budget.rho``-zCDP for one person more or less with at most ``contributions`` rows. What is returned
    can be reconstructed by any method.

    Parameters
    ----------
    source
        The private table: a `Data` or what it is made from (a path, a frame, a relation, a URL …), or a `CodedTable`.
    workload
        The tables to choose from.
    budget
        What to spend; all of it is spent.
    contributions
        The most rows that one person has.
    privacy_id, ledger, sampler
        As for `residual_planner`; the sampler draws the noise of the measurements.
    keep
        A function that saves measurements. It is called after every round with all that was measured so far, whose
        provenance says where the run was cut short: measurements like any others, charged in full. At most one round
        is lost.
    defer_signals
        Whether Ctrl-C, SIGTERM and SIGHUP wait, from just before the charge, until the end of a round, and raise
        `KeyboardInterrupt` when ``keep`` has returned; a second Ctrl-C ends at once. In the main thread only; handlers
        are put back.
    rounds
        How many tables to measure.
    initial_share
        The share of the budget for the total, between 0 and 1.
    one_way_share
        The share of the budget for the tables of one attribute, all of them, before the first round; none by default,
        as in the paper. With few rounds some attributes are in no table that is chosen, and nothing is known about
        them: a tenth to a quarter is well spent.
    repeat
        Whether a table may be measured more than once, as in the paper. Then the noise of a large table that was
        measured is often the largest error there is, and the same table is chosen again and again: False is the better
        choice for sparse tables, and what the paper's experiments do.
    entropy
        Where the random bits of the choices come from; the operating system by default.
    progress
        Called after each round with the rounds done and the rounds in all.
    """
    run = Run(
        privacy_id=privacy_id,
        ledger=ledger,
        sampler=sampler,
        keep=keep,
        defer_signals=defer_signals,
        progress=progress,
    )
    chosen = ScalableMWEM(
        rounds=rounds, initial_share=initial_share, one_way_share=one_way_share, repeat=repeat, entropy=entropy
    )
    return chosen.measure(source, workload, budget, contributions=contributions, run=run)


class _RunningEstimate:
    """The EMP reconstruction of all tables from the marginals measured so far."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._values = np.zeros(layout.cells)
        self._precisions = np.zeros(len(layout.sets))
        self._measured: list[tuple[tuple[int, ...], Floats, float]] = []

    def measure(self, members: tuple[int, ...], counts: Integers, variance: Fraction, sampler: Sampler) -> None:
        """Measure one marginal and blend each of its residuals into the estimate by inverse variance."""
        layout, place = self._layout, self._layout.places[members]
        exact = counts[layout.index.offset[place] : layout.index.offset[place + 1]].reshape(layout.shape(place))
        noisy = measure_marginal(exact, variance, sampler).astype(np.float64)
        self._measured.append((members, noisy, float(variance)))
        for axes, residual in transform.decompose_marginal(noisy).items():
            inside = layout.places[tuple(members[axis] for axis in axes)]
            precision = residual.size / (noisy.size * float(variance))
            self._precisions[inside] += precision
            view = layout.view(self._values, inside)
            view += (residual - view) * (precision / self._precisions[inside])

    def scores(self, counts: Integers) -> Integers:
        """Return the score (1) of each table of the closure: its L1 error, in multiples of 2^−b. PRIVATE."""
        layout, tables = self._layout, len(self._layout.sets)
        inner = np.empty(layout.inner_cells)
        transform.raise_inner(layout, self._values, inner)
        scores = np.zeros(tables, dtype=np.int64)

        def task(begin: int, end: int) -> None:
            score_tables(begin, end, layout.index, inner, self._values, counts, scores)

        over_tables(task, 0, tables, layout.index.offset)
        return scores

    def measured(self, workload: Workload) -> list[tuple[tuple[str, ...], Floats, float]]:
        """Return the noisy tables, by name."""
        return [(workload.domain.names(members), noisy, variance) for members, noisy, variance in self._measured]


def _checked_rounds(rounds: object, tables: int, repeat: bool) -> int:
    """Return the number of rounds if that many are possible."""
    if isinstance(rounds, bool) or not isinstance(rounds, Integral) or int(rounds) < 1:
        raise PlanError(f"rounds is {rounds!r}", remedy="give a whole number of at least 1")
    if not repeat and int(rounds) > tables:
        raise PlanError(
            f"{rounds} rounds without repeats need as many tables, the workload has {tables}", remedy="do fewer"
        )
    return int(rounds)


def _checked_share(share: Number) -> Fraction:
    """Return the share of the budget for the total."""
    value = exact_number("initial_share", share)
    if not 0 < value < 1:
        raise PlanError(f"initial_share is {share!r}", remedy="give a number between 0 and 1")
    return value


def _checked_one_way_share(share: Number, initial: Fraction) -> Fraction:
    """Return the share of the budget for the tables of one attribute, if it leaves something for the rounds."""
    value = exact_number("one_way_share", share)
    if not 0 <= value < 1 - initial:
        raise PlanError(
            f"one_way_share is {share!r}",
            remedy="give a number from 0 on that leaves, with initial_share, a part of the budget for the rounds",
        )
    return value
