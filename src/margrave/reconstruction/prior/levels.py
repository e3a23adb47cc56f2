r"""Level by level: every residual of a closure, measured well, badly or not at all, given what the others predict.

One estimate for all residuals, from the total to the largest tables. For a set τ whose facets have been estimated,

    predicted    q = the most even table with these facets (``fitting``)                                            (1)
    estimated    r_τ = residual of the posterior mean of its cells, given q and the measurement (``departures``)   (2)
    settled      all tables up to this order by a few rounds of the non-negative solver, which makes them agree      (3)

and the settled tables predict the next order. A measurement counts in (2) by what it knows: with σ² → ∞ the residual is
that of q, as if nothing had been measured. After the largest tables have settled, all orders are estimated once more,
predicted from the settled tables: there small tables have what the large ones know, because counts are not negative.

**Pairs through a third attribute.** For two attributes (1) is independence. Where both depend on a third one, much more
is known: independence given c,

    q_ab = Σ_c v_c q_ab(c),     q_ab(c) = Σ_c μ_ac μ_bc / μ_c,                                                      (4)
    v_c ∝ min(I_ac, I_bc)² exp(−‖z_ab − C q_ab(c)‖² / 2s²),

fitted to the tables of a and b. I is the mutual information; an attribute counts that tells much about both, and whose
prediction is near the measurement z_ab, as far as its noise lets one see: s² is the larger of its variance and of how
far a degree of freedom of the nearest prediction is off. Pairs are estimated and settled twice, with (4) the second
time.

**Single attributes** are best known when the pairs have settled: their own measurement, and what non-negative pairs
say. In thousands of cells of larger tables the noise that is left is cut off at zero, which would pull people out of
the large cells of single attributes. So these stay, nearly, as the pairs left them, but for one thing.

**Rare values together.** Counts near zero cannot be too low, so that each comes out too high on average, the pairs make
that worse, and people are missing where there are many. But the measurement knows how many people the rare values of
an attribute have *together*: z_S, with one noise for all of them, where t_S is settled. So with shares a_i of belonging
to the rare ones (1 for counts below two standard errors s, 0 from six on),

    t_S → t_S + (max(z_S, 0) − t_S) ℓ²/(ℓ² + s_S²),     t_S = Σ a_i t_i,     z_S = Σ a_i z_i, its variance s_S²,    (5)
    ℓ = 6 Σ a_i s (φ(x_i) − x_i Φ(−x_i)),     x_i = t_i/s,

in proportion to a_i t_i, and what is gained or lost is shared by the others. ℓ is what counts t_i would be too high by
if their noise were cut off at zero; six times that, since these have been raised already. Where no count is near zero
nothing changes.

**Weights.** The residuals are near to what they were before, so the solver has little to decide; it gives way where the
estimates are least certain: w_τ = 2^(−|τ|) / √e_τ with e_τ the expected squared error of a cell of (2), for single
attributes thirty times that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats, Index, Integers, over_tables
from margrave.algebra.layout import Layout
from margrave.reconstruction.nonnegative import Problem, Splitting
from margrave.reconstruction.nonnegative.splitting import lay_out
from margrave.reconstruction.nonnegative.workers import WorkerPool, prepare_worker
from margrave.reconstruction.prior.cells import (
    MOST_THROUGH,
    estimate_tables,
    mutual_information,
    predict_pairs,
    predict_tables,
    single_cells,
    weigh_tables,
)
from margrave.reconstruction.prior.departures import (
    MEANS,
    SHAPE,
    evidence_grid,
    grid,
    learned_prior,
    learned_prior_of_cells,
    may_be_quiet,
    quiet_frequency,
    quiet_shares,
    unmeasured_spreads,
)

# Rounds of (3): tables are settled, not solved.
_ROUNDS = 30
# Errors further than this factor from their median count as if they were that far: weights that differ by more would
# only slow the solver.
_LARGEST_FACTOR = 1e4


Ranges = Sequence[tuple[int, int]]

# How much more the tables of single attributes count than by their expected error, beside tables of three and more:
# what the pairs made of them is better than what cutting off thousands of noisy cells does to them.
_SINGLES = 30.0
# Which values are rare, in standard errors: all below the first, none above the second. How much more rare counts are
# too high, taken together, than counts as large as they are would be by cutting off noise at zero.
_RARE, _FREQUENT = 2.0, 6.0
_RAISED = 6.0


class Levels:
    """The residuals of a closure while they are estimated.

    Parameters
    ----------
    layout
        The closure.
    measured
        Shape (layout.cells,); the residuals as measured, zero where they were not.
    variances
        Shape (tables,); σ² of each residual: infinite where it was never measured, zero where it stays as it is.
    total
        The number of people, positive.
    workers
        The workers that estimate the largest tables, if all tables that are inside no other one are of the same order,
        at least three; by default this process does.
    """

    def __init__(
        self, layout: Layout, measured: Floats, variances: Floats, total: float, *, workers: WorkerPool | None = None
    ) -> None:
        self._layout, self._measured, self._variances, self._total = layout, measured, variances, total
        self._given = np.zeros(len(layout.sets), dtype=np.int64)
        self._inner = np.zeros(max(layout.inner_cells, 1))
        self._inner[0] = total
        self.residuals = np.array(measured)
        self.residuals[0] = total
        self.errors = np.zeros(len(layout.sets))
        self._largest = int(layout.index.order.max())
        self._local = _Tables(
            layout.index, layout.degrees, variances, measured, self._given, self.residuals, self.errors
        )
        # Pairs are predicted from each other, and tables of smaller orders settle before the largest are estimated.
        alike = self._largest >= 3 and bool((layout.index.order[layout.outer :] == self._largest).all())
        self._workers = workers if alike else None
        self._remote: _RemoteTables | None = None

    def run(self) -> None:
        """Estimate all residuals; ``residuals`` and ``errors`` (mean squared error of a cell) have the result."""
        if self._workers is None:
            self._run()
            return
        self._remote = _RemoteTables(self._workers, self._layout, self._local)
        try:
            self._run()
        finally:
            self._remote.close()
            self._workers.free()

    def _run(self) -> None:
        """Estimate all residuals, here and by workers."""
        largest = self._largest
        for order in range(1, largest + 1):
            self._estimate(order)
            if order == 2:
                self._chain(self._settle(order))
                self._estimate(order)
            if order < largest:
                self._settle(order)
        if largest > 1:
            singles = self._singles()
            self._settle_all()
            for order in range(1, largest + 1):
                self._estimate(order)
            self.residuals[: len(singles)] = singles

    def _singles(self) -> Floats:
        """Return total and residuals of single attributes as the settled tables of pairs have them, and keep them."""
        layout = self._layout
        places = np.flatnonzero(layout.index.order <= 1)
        last = int(places[-1])
        if last >= layout.outer or last != len(places) - 1:
            return self.residuals[:0].copy()
        singles = self._inner[: layout.index.offset[last + 1]].copy()
        for place in places.tolist():
            if layout.index.order[place] == 1 and self._variances[place] > 0:
                table = singles[layout.index.offset[place] : layout.index.offset[place + 1]]
                table *= self._total / max(float(table.sum()), 1e-300)
                begin = int(layout.index.offset[place])
                measured = self._measured[begin : begin + table.size] + self._total / table.size
                hold_rare_values(table, measured, float(self._variances[place]))
                table -= table.mean()
            else:
                begin, end = layout.index.offset[place], layout.index.offset[place + 1]
                singles[begin:end] = self.residuals[begin:end]
        self.residuals[: len(singles)] = singles
        return singles

    def weights(self) -> Floats:
        """Return w_τ for the solver, shape (tables,)."""
        return _weights(self._layout, self.errors)

    def _ranges(self, order: int) -> Iterator[tuple[int, int]]:
        """Yield where the tables of an order are: those inside larger tables, and those that are not."""
        places = np.flatnonzero(self._layout.index.order == order)
        outer = int(np.searchsorted(places, self._layout.outer))
        for part in (places[:outer], places[outer:]):
            if part.size:
                yield int(part[0]), int(part[-1]) + 1

    def _estimate(self, order: int) -> None:
        """Estimate the residuals of an order by (1) and (2), given the inner tables."""
        parts, tables = list(self._ranges(order)), self._tables_of(order)
        counted = tables.predict(parts, self._inner)
        prior = self._prior_of_singles(parts) if order == 1 else learned_prior(order, counted)
        tables.estimate(parts, prior, self._quiet(tables, parts, prior, order))
        for first, last in parts:
            self._given[first:last] = 0

    def _tables_of(self, order: int) -> _Tables | _RemoteTables:
        """Return the tables of an order, here or divided among workers."""
        return self._remote if self._remote is not None and order == self._largest else self._local

    def _prior_of_singles(self, parts: Sequence[tuple[int, int]]) -> Floats:
        """Return π of the tables of one attribute, from each of their cells."""
        layout, found = self._layout, []
        for first, last in parts:
            start, end = int(layout.index.offset[first]), int(layout.index.offset[last])
            rows, counts = np.ones((end - start, MEANS.size)), np.zeros(end - start)
            kinds = np.zeros(end - start, dtype=np.int64)
            single_cells(
                first,
                last,
                layout.index,
                layout.degrees,
                self._variances,
                self._measured,
                self.residuals,
                start,
                rows,
                counts,
                kinds,
            )
            found.append((rows, counts, kinds))
        rows, counts, kinds = (np.concatenate(part) for part in zip(*found, strict=True))
        return learned_prior_of_cells(1, rows, counts, kinds)

    def _quiet(self, tables: _Tables | _RemoteTables, parts: Ranges, prior: Floats, order: int) -> Floats:
        """Return the probability of each table that it is as predicted, for the tables of an order."""
        layout, quiet = self._layout, np.zeros(len(self._layout.sets))
        if not may_be_quiet(order):
            return quiet
        evidence = tables.weigh(parts, evidence_grid(prior))
        own = np.flatnonzero(layout.index.order == order)
        told = own[(self._variances[own] > 0) & (self._variances[own] < np.inf) & (layout.degrees[own] > 0)]
        # A table that was not measured has no evidence either way, as one whose noise drowns it.
        quiet[own] = quiet_shares(quiet_frequency(order, evidence[told]), evidence[own])
        return quiet

    def _settle(self, order: int) -> tuple[Layout, Floats]:
        """Settle the tables of an order and all inside them (3); return them, and keep those that predict others."""
        layout = self._layout
        part = Layout.of(
            layout.sizes, [layout.sets[t] for first, last in self._ranges(order) for t in range(first, last)]
        )
        places = [layout.places[attributes] for attributes in part.sets]
        residuals = np.empty(part.cells)
        for table, place in enumerate(places):
            part.view(residuals, table)[...] = layout.view(self.residuals, place)
        rounds = _rounds(part, residuals, self.errors[places])
        marginals = transform.reconstruct(part, rounds.residuals(np.empty(part.cells), np.empty(part.facet_cells)))
        np.maximum(marginals, 0.0, out=marginals)
        for table, place in enumerate(places):
            if place < layout.outer:
                layout.view(self._inner, place)[...] = part.view(marginals, table)
        return part, marginals

    def _settle_all(self) -> None:
        """Settle the whole closure (3), and keep the tables that predict others, and the pairs of (4)."""
        layout = self._layout
        rounds = _rounds(layout, self.residuals, self.errors, workers=self._workers)
        if self._workers is not None:
            self._inner = rounds.inner
            self._workers.free()  # the room is needed for what comes next
            np.maximum(self._inner, 0.0, out=self._inner)
            self._chain((layout, self._inner))
            return
        settled = rounds.residuals(np.empty(layout.cells), np.empty(layout.facet_cells))
        self._inner = settled[: max(layout.inner_cells, 1)].copy()
        transform.raise_inner(layout, self._inner, self._inner)
        np.maximum(self._inner, 0.0, out=self._inner)
        if any(last > layout.outer for _, last in self._ranges(2)):
            transform.reconstruct(layout, settled, out=settled)
            self._chain((layout, np.maximum(settled, 0.0, out=settled)))
        elif layout.outer:
            self._chain((layout, self._inner))

    def _chain(self, settled: tuple[Layout, Floats]) -> None:
        """Put (4) in place of the prediction of every pair whose members both depend on a third attribute.

        Parameters
        ----------
        settled
            A closure with all pairs, and a buffer that holds its tables up to the pairs.
        """
        layout, (part, tables) = self._layout, settled
        own = np.flatnonzero(part.index.order == 2)
        places = np.array([layout.places[part.sets[table]] for table in own.tolist()])
        pairs = np.array([part.sets[table] for table in own.tolist()])
        sizes = np.array(part.sizes)
        singles, starts = np.zeros(len(sizes), dtype=np.int64), np.full((len(sizes), len(sizes)), -1)
        for table in np.flatnonzero(part.index.order == 1).tolist():
            singles[part.sets[table]] = part.index.offset[table]
        starts[tuple(pairs.T)] = starts[tuple(pairs[:, ::-1].T)] = part.index.offset[own]
        # A pair that was never measured is a prediction itself, and says nothing about others.
        known = pairs[self._variances[places] < np.inf]
        dependence = mutual_information(known, sizes, starts, tables)

        def task(begin: int, end: int) -> None:
            predict_pairs(
                pairs[begin:end],
                places[begin:end],
                sizes,
                singles,
                starts,
                tables,
                dependence,
                layout.index.offset,
                self._variances,
                self._measured,
                self._given,
                self.residuals,
            )

        # Through an attribute of s values, a pair takes s times its cells; and all attributes are looked at.
        work = part.index.offset[own + 1] - part.index.offset[own]
        work = np.concatenate([[0], np.cumsum(work * int(sizes.mean()) * MOST_THROUGH + len(sizes))])
        over_tables(task, 0, len(pairs), work)


class _Tables:
    """Tables while they are estimated, in this process: the loops of ``cells`` over ranges of them.

    Parameters
    ----------
    index, degrees
        Of the layout.
    variances, measured, given, residuals, errors
        As in `Levels`; the last two are written to.
    """

    def __init__(
        self,
        index: Index,
        degrees: Floats,
        variances: Floats,
        measured: Floats,
        given: Integers,
        residuals: Floats,
        errors: Floats,
    ) -> None:
        self._index, self._degrees, self.variances, self.measured = index, degrees, variances, measured
        self._given, self.residuals, self.errors = given, residuals, errors

    def predict(self, parts: Ranges, inner: Floats) -> Floats:
        """Put predictions in the place of residuals, and return their departures, counted on the grid."""
        counted, lock = np.zeros(SHAPE), Lock()
        known = (self.variances, self.measured, self._given, self.residuals)

        def task(begin: int, end: int) -> None:
            seen = np.zeros(SHAPE)
            predict_tables(begin, end, self._index, self._degrees, inner, *known, seen)
            with lock:
                np.add(counted, seen, out=counted)

        self._run(task, parts)
        return counted

    def weigh(self, parts: Ranges, likelier: Floats) -> Floats:
        """Return how much likelier each table is than as predicted; shape (tables,), zero outside the ranges."""
        evidence = np.zeros(len(self._index.order))
        known = (self.variances, self.measured, self.residuals)

        def task(begin: int, end: int) -> None:
            weigh_tables(begin, end, self._index, self._degrees, *known, likelier, evidence)

        self._run(task, parts)
        return evidence

    def estimate(self, parts: Ranges, prior: Floats, quiet: Floats) -> None:
        """Put the estimates in the place of predictions, and their expected errors."""
        places, spreads = grid(), unmeasured_spreads(prior)

        def task(begin: int, end: int) -> None:
            estimate_tables(
                begin,
                end,
                self._index,
                self._degrees,
                self.variances,
                self.measured,
                prior,
                spreads,
                *places,
                quiet,
                self.residuals,
                self.errors,
            )

        self._run(task, parts)

    def _run(self, task: Callable[[int, int], None], parts: Ranges) -> None:
        """Run a loop over ranges of tables, on all threads."""
        for first, last in parts:
            over_tables(task, first, last, self._index.offset)


class _RemoteTables:
    """The largest tables while they are estimated by workers, each of which has a part of them.

    Parameters
    ----------
    workers
        The workers.
    layout
        The closure.
    local
        The same tables in this process, which receive the estimates.
    """

    def __init__(self, workers: WorkerPool, layout: Layout, local: _Tables) -> None:
        self._local = local
        self._actors = workers.table_actors(_TablesActor, layout, "tables were estimated")
        try:
            openings: list[tuple[object, ...]] = [
                (version, sharing, own.index, own.outer, own.degrees, variances)
                for (version, sharing, own), variances in zip(
                    self._actors.opening_arguments(), self._actors.per_part(local.variances), strict=True
                )
            ]
            self._actors.call("open", openings)
            self._actors.send(local.measured[layout.inner_cells :])
        except BaseException:
            self.close()
            raise

    def predict(self, _parts: Ranges, inner: Floats) -> Floats:
        """As `_Tables.predict`, for all outer tables."""
        found: Floats = sum(self._actors.call("predict", [(inner,)] * len(self._actors)))
        return found

    def weigh(self, _parts: Ranges, likelier: Floats) -> Floats:
        """As `_Tables.weigh`, for all outer tables."""
        found = self._actors.call("weigh", [(likelier,)] * len(self._actors))
        return np.concatenate([np.zeros(self._actors.layout.outer), *found])

    def estimate(self, _parts: Ranges, prior: Floats, quiet: Floats) -> None:
        """As `_Tables.estimate`, for all outer tables; the estimates are fetched."""
        layout, local = self._actors.layout, self._local
        found = self._actors.call("estimate", [(prior, own) for own in self._actors.per_part(quiet)])
        local.errors[layout.outer :] = np.concatenate(found)
        self._actors.fetch(local.residuals[layout.inner_cells :], "read")

    def close(self) -> None:
        """Free the tables that the workers hold."""
        self._actors.close()


class _TablesActor:
    """A part of the outer tables on a worker, filled piece by piece and then estimated."""

    def open(self, version: str, sharing: int, index: Index, outer: int, degrees: Floats, variances: Floats) -> None:
        """Make room for tables whose measured residuals come later."""
        cells, tables = int(index.offset[-1]), len(index.order)
        prepare_worker(version, sharing * 2 * 8 * cells, sharing)
        index = Index(*(np.array(one) for one in index))
        self._outer, self._first, self._parts = outer, int(index.offset[outer]), [(outer, tables)]
        self._local = _Tables(
            index,
            np.array(degrees),
            np.array(variances),
            np.zeros(cells),
            np.zeros(tables, dtype=np.int64),
            np.zeros(cells),
            np.zeros(tables),
        )

    def fill(self, begin: int, cells: Floats) -> None:
        """Receive measured residuals."""
        start = self._first + begin
        self._local.measured[start : start + cells.size] = cells

    def predict(self, inner: Floats) -> Floats:
        """Predict the part."""
        return self._local.predict(self._parts, np.array(inner))

    def weigh(self, likelier: Floats) -> Floats:
        """Return the evidence of the part."""
        return self._local.weigh(self._parts, np.array(likelier))[self._outer :]

    def estimate(self, prior: Floats, quiet: Floats) -> Floats:
        """Estimate the part, and return the expected errors."""
        self._local.estimate(self._parts, np.array(prior), np.array(quiet))
        return self._local.errors[self._outer :]

    def read(self, begin: int, end: int) -> Floats:
        """Return the residuals of the cells begin … end − 1 of the part."""
        return self._local.residuals[self._first + begin : self._first + end]

    def close(self) -> None:
        """Release all arrays, if there are any."""
        self.__dict__.clear()


def _rounds(layout: Layout, residuals: Floats, errors: Floats, *, workers: WorkerPool | None = None) -> Splitting:
    """Return the solver after some rounds, the total held."""
    weights = _weights(layout, errors)
    weights[0] = np.inf
    weights[layout.degrees == 0] = np.inf
    problem = Problem(layout, residuals, weights)
    if workers is None:
        rounds = Splitting(problem)
    else:
        parts = workers.divide(problem)
        lay_out(problem, parts)
        rounds = Splitting(problem, parts=parts)
    rounds.run(_ROUNDS)
    return rounds


def hold_rare_values(table: Floats, measured: Floats, variance: float) -> None:
    """Move rare values of one attribute, together, towards what was measured of their sum (5), in place.

    Parameters
    ----------
    table
        The settled counts; not negative.
    measured
        The counts as measured, of the same sum.
    variance
        σ² of the residual, positive; infinite where it was never measured, which changes nothing.
    """
    from scipy.special import ndtr

    cells, total = table.size, float(table.sum())
    deviation = math.sqrt(variance * (cells - 1) / cells)
    if cells < 2 or total <= 0 or math.isinf(deviation):
        return
    relative = table / deviation
    rare = np.clip((_FREQUENT - relative) / (_FREQUENT - _RARE), 0.0, 1.0)
    inside, outside = rare * table, 1 - rare
    settled, others = float(inside.sum()), float(outside.sum())
    if settled <= 0 or others <= 0:
        return
    density = np.exp(-0.5 * np.square(relative)) / math.sqrt(2 * math.pi)
    lifted = _RAISED * deviation * float(rare @ (density - relative * ndtr(-relative)))
    noise = variance * float(rare @ rare - rare.sum() ** 2 / cells)
    share = lifted**2 / (lifted**2 + noise) if lifted > 0 else 0.0
    # At most twice as many: a sum of counts that are all about zero cannot be shared out by them.
    change = min(share * (max(float(rare @ measured), 0.0) - settled), settled)
    table += change * (inside / settled - outside / others)
    np.maximum(table, 0.0, out=table)
    table *= total / float(table.sum())


def _weights(layout: Layout, errors: Floats) -> Floats:
    """Return 2^(−|τ|) / √e_τ, in units of the median error; one for what is known exactly."""
    known = errors > 0
    relative = np.ones(len(errors))
    if known.any():
        relative[known] = np.clip(errors[known] / np.median(errors[known]), 1 / _LARGEST_FACTOR, _LARGEST_FACTOR)
    weights: Floats = np.ldexp(1 / np.sqrt(relative), -layout.index.order)
    if layout.index.order.max() > 2:
        weights[layout.index.order == 1] *= _SINGLES
    return weights
