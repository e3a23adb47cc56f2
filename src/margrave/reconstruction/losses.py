"""ReM, first half: an estimate of every residual of a workload's closure from all that was measured ([ReM] Alg. 2).

The global problem, a data vector that minimises the sum of all losses, falls apart into one small problem for each
residual ([ReM] Thm. 1). Measurements with one variance have been combined when they were collected; the others are
combined here, in ``combination``. A residual that was never measured is estimated as zero: nothing is known about it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from margrave.algebra.differences import difference, integrate
from margrave.algebra.kernels import Floats, Integers
from margrave.algebra.lattice import AttributeSet
from margrave.algebra.layout import Layout
from margrave.errors import ReconstructionError
from margrave.measurements import Gaussian, Measurements, Observation
from margrave.reconstruction.combination import Term, combine


@dataclass(frozen=True, eq=False)
class Estimates:
    """The residuals of a closure, and how well each is known.

    Attributes
    ----------
    layout
        The closure of the workload.
    values
        Shape (layout.cells,), read-only; centred residuals, zero where never measured.
    counts
        Shape (tables,), int64, read-only; how often each residual was measured, k_τ.
    precisions
        Shape (tables,), read-only; π_τ = 1/σ²_τ of the estimate (its covariance is σ²_τ C_τ); zero where never
        measured, NaN where its noise has no single variance.
    """

    layout: Layout
    values: Floats
    counts: Integers
    precisions: Floats

    def __post_init__(self) -> None:
        for name in ("values", "counts", "precisions"):
            view = getattr(self, name).view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)


def estimate_residuals(measurements: Measurements, layout: Layout) -> Estimates:
    """Return the estimate of each residual of a closure, the minimiser of its losses.

    Parameters
    ----------
    measurements
        What was measured, over the domain of the layout.
    layout
        The closure of the workload. Measured residuals outside of it do not matter: residuals are orthogonal.
    """
    values, counts, precisions = _transferred(measurements, layout)
    inside = _by_residual(measurements, layout)
    if not inside:
        return Estimates(layout, values, counts, precisions)
    values, precisions = values.copy(), precisions.copy()
    for place, observations in inside.items():
        view = layout.view(values, place)
        terms: list[Term] = [(one.values, one.noise) for one in observations]
        if precisions[place] > 0:
            terms.append((difference(view), Gaussian(1 / precisions[place])))
        name = " × ".join(measurements.domain.names(layout.sets[place])) or "the total"
        view[...] = integrate(combine(terms, f"the residual of {name}"))
        precisions[place] = np.nan
    return Estimates(layout, values, counts, precisions)


def mean_residuals(measurements: Measurements, estimates: Estimates) -> Estimates:
    r"""Return the plain mean of the measurements of each residual: the centres of the published non-negative method.

    [ReM] sec. 4.3 minimises Σ_τ Σ_i 2^(−|τ|) ‖r_τ − z_{τ,i}‖² over i = 1 … k_τ, with the same weight for every
    measurement of a residual, whatever its noise. Up to a constant that is Σ_τ k_τ 2^(−|τ|) ‖r_τ − z̄_τ‖² with the
    plain mean z̄_τ. Law: tests/laws/test_published_objective.py minimises the sum over all measurements.

    Parameters
    ----------
    measurements
        What was measured.
    estimates
        The result of `estimate_residuals` on these measurements. Residuals that were measured once stay as they are;
        where one was measured more often the precision becomes NaN, since the variance of the plain mean is not kept.
    """
    layout, repeated = estimates.layout, np.flatnonzero(estimates.counts > 1).tolist()
    if not repeated:
        return estimates
    if measurements.averages is None:
        raise ReconstructionError(
            "weights 'paper' need the plain mean of repeated measurements of a residual, and these measurements do not "
            "have it (files of version 0.1 do not); use weights='auto' or a number, or collect the noisy tables again"
        )
    values, precisions, means = np.array(estimates.values), np.array(estimates.precisions), dict(_means(measurements))
    for place in repeated:
        layout.view(values, place)[...] = means[layout.sets[place]].reshape(layout.shape(place))
        precisions[place] = np.nan
    return Estimates(layout, values, estimates.counts, precisions)


def _means(measurements: Measurements) -> Iterator[tuple[AttributeSet, Floats]]:
    """Return the plain mean, flat, of each residual that was measured more than once."""
    if measurements.averages is None:
        return
    source, begin = measurements.layout, 0
    for place in np.flatnonzero(measurements.counts > 1).tolist():
        end = begin + int(source.index.offset[place + 1] - source.index.offset[place])
        yield source.sets[place], measurements.averages[begin:end]
        begin = end


def _transferred(measurements: Measurements, layout: Layout) -> tuple[Floats, Integers, Floats]:
    """Return the combined measurements, how often and how precise, in the places of another layout."""
    source = measurements.layout
    if layout.sets == source.sets:
        return measurements.values, measurements.counts, measurements.precisions
    tables = len(layout.sets)
    values, counts, precisions = np.zeros(layout.cells), np.zeros(tables, dtype=np.int64), np.zeros(tables)
    place_of = source.places.get
    pairs = [(to, place_of(attributes)) for to, attributes in enumerate(layout.sets)]
    known = np.array([(to, place) for to, place in pairs if place is not None], dtype=np.int64).reshape(-1, 2)
    targets, origins = known.T
    counts[targets], precisions[targets] = measurements.counts[origins], measurements.precisions[origins]
    begins, ends = layout.index.offset[targets].tolist(), layout.index.offset[targets + 1].tolist()
    for begin, end, start in zip(begins, ends, source.index.offset[origins].tolist(), strict=True):
        values[begin:end] = measurements.values[start : start + end - begin]
    return values, counts, precisions


def _by_residual(measurements: Measurements, layout: Layout) -> dict[int, list[Observation]]:
    """Return the measurements with other noise by the table of the layout they are about."""
    found: defaultdict[int, list[Observation]] = defaultdict(list)
    for one in measurements.others:
        place = layout.places.get(one.positions)
        if place is not None:
            found[place].append(one)
    return dict(found)
