r"""ReM: an estimate of every residual of a workload's closure from all that was measured ([ReM] Alg. 2).

The global problem, a data vector that minimises the sum of all losses, falls apart into one small problem for each
residual ([ReM] Thm. 1). A residual that was never measured is estimated as zero. Measurements with one variance are
combined when they are collected. All others are combined here, by the least sum of losses,

    α̂ = argmin Σ_i L_i(α),        L_i the negative log-likelihood of measurement i (``measurements.likelihood``)     (1)

- Gaussian noise only:  α̂ = (Σ Σ_i⁻¹)⁻¹ Σ Σ_i⁻¹ z_i  ([ReM] Alg. 3, line 1).                                    (2)
- Laplace noise only:  each coordinate is the median of its z_i with weights 1/scale_i. Where half of the weight lies on
  either side of a gap, every point of the gap is optimal, and its midpoint is taken.
- Anything else goes to a general minimiser. It does not see the kinks of Laplace losses. Their sum is piecewise linear
  in each coordinate, with kinks t_1 ≤ … ≤ t_J and slopes s_0 < … < s_J, so write

      α = t_1 − v + Σ_j u_j,   v ≥ 0,  0 ≤ u_j ≤ t_{j+1} − t_j,   Σ_i |α − z_i|/b_i = const − s_0 v + Σ_j s_j u_j.  (3)

  Slopes increase, so filling u_j before u_{j−1} is full never pays, and (3) holds at the optimum. What is left is a
  smooth function with bounds on its variables, for L-BFGS-B.

The second half needs no solver where negative cells are allowed: `maximum_likelihood` (GReM-MLE, [ReM] Alg. 3) sums the
estimates to marginals that explain the measurements best, unbiased where these determine them. From measured marginals
this is EMP, the pseudo-inverse of all measured marginals at once ([ReM] Alg. 4): collecting them
(`Measurements.from_marginals`) has already turned them into residuals.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from margrave.algebra import transform
from margrave.algebra.kernels import Floats, Integers
from margrave.algebra.transform import difference, integrate
from margrave.errors import ConvergenceError, MeasurementError, ReleaseError
from margrave.measurements.entries import Gaussian, Laplace, Loss
from margrave.memory import large_array

if TYPE_CHECKING:
    from margrave.algebra.layout import AttributeSet, Layout
    from margrave.measurements.entries import Observation
    from margrave.measurements.measurements import Measurements

Term = tuple[Floats, Loss]

# A tie of weights is one up to rounding: 0.1 + 0.2 against 0.3.
_TIE = 1e-12
_MOST_STEPS = 20_000
# Stationary: the slope is this small next to the change of slope over a step of the size of the numbers.
_STATIONARY = 1e-6


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
    variances
        Shape (tables,), read-only; the exact variance σ²_τ where discrete noise makes it smaller than 1/π_τ; None where
        it is 1/π_τ. Error bars use it; weights are made of π_τ.
    direct
        Number of the table whose unbiased cells are true counts plus a discrete Gaussian each, and its parameter g²;
        None if there is none.
    """

    layout: Layout
    values: Floats
    counts: Integers
    precisions: Floats
    variances: Floats | None = None
    direct: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        for name in ("values", "counts", "precisions", "variances"):
            if getattr(self, name) is None:
                continue
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
    exact, direct = _exactness(measurements, layout)
    inside = _by_residual(measurements, layout)
    if not inside:
        return Estimates(layout, values, counts, precisions, exact, direct)
    values, precisions = values.copy(), precisions.copy()
    for place, observations in inside.items():
        view = layout.view(values, place)
        terms: list[Term] = [(one.values, one.noise) for one in observations]
        if precisions[place] > 0:
            terms.append((difference(view), Gaussian(1 / precisions[place])))
        name = " × ".join(measurements.domain.names(layout.sets[place])) or "the total"
        view[...] = integrate(combine(terms, f"the residual of {name}"))
        precisions[place] = np.nan
    return Estimates(layout, values, counts, precisions, exact, direct)


def unbiased_residuals(measurements: Measurements, estimates: Estimates) -> Estimates:
    """Return the unbiased estimate of each residual: its first measurement alone where later ones depend on it.

    Parameters
    ----------
    measurements
        What was measured.
    estimates
        The result of `estimate_residuals` on these measurements, all of them combined. It is returned as it is where
        no residual was measured again because of what came out.
    """
    first, layout = measurements.first, estimates.layout
    if first is None:
        return estimates
    source = measurements.layout
    origins = [source.places.get(attributes) for attributes in layout.sets]
    known = np.array([place is not None for place in origins])
    places = np.array([0 if place is None else place for place in origins])
    precisions = np.where(known, first.precisions[places], 0.0)
    variances = np.where(known, first.variances[places], 0.0)
    values = np.array(estimates.values)
    for attributes, flat in _repeated(measurements, first.values):
        if attributes in layout.places:
            place = layout.places[attributes]
            layout.view(values, place)[...] = flat.reshape(layout.shape(place))
    return Estimates(layout, values, estimates.counts, precisions, variances, estimates.direct)


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
        raise ReleaseError(
            "weights 'paper' need the plain mean of repeated measurements of a residual, and these measurements do not "
            "have it (files of version 0.1 do not)",
            remedy="use weights='auto' or a number, or collect the noisy tables again",
        )
    values, precisions, means = (
        np.array(estimates.values),
        np.array(estimates.precisions),
        dict(_repeated(measurements, measurements.averages)),
    )
    for place in repeated:
        layout.view(values, place)[...] = means[layout.sets[place]].reshape(layout.shape(place))
        precisions[place] = np.nan
    return Estimates(layout, values, estimates.counts, precisions)


def _repeated(measurements: Measurements, joined: Floats) -> Iterator[tuple[AttributeSet, Floats]]:
    """Return the part, flat, of each residual that was measured more than once, of arrays that were joined."""
    source, begin = measurements.layout, 0
    for place in np.flatnonzero(measurements.counts > 1).tolist():
        end = begin + int(source.index.offset[place + 1] - source.index.offset[place])
        yield source.sets[place], joined[begin:end]
        begin = end


def _transferred(measurements: Measurements, layout: Layout) -> tuple[Floats, Integers, Floats]:
    """Return the combined measurements, how often and how precise, in the places of another layout."""
    source = measurements.layout
    if layout.sets == source.sets:
        return measurements.values, measurements.counts, measurements.precisions
    tables = len(layout.sets)
    values, counts, precisions = large_array(layout.cells), np.zeros(tables, dtype=np.int64), np.zeros(tables)
    values[:] = 0.0
    place_of = source.places.get
    pairs = [(to, place_of(attributes)) for to, attributes in enumerate(layout.sets)]
    known = np.array([(to, place) for to, place in pairs if place is not None], dtype=np.int64).reshape(-1, 2)
    targets, origins = known.T
    counts[targets], precisions[targets] = measurements.counts[origins], measurements.precisions[origins]
    begins, ends = layout.index.offset[targets].tolist(), layout.index.offset[targets + 1].tolist()
    for begin, end, start in zip(begins, ends, source.index.offset[origins].tolist(), strict=True):
        values[begin:end] = measurements.values[start : start + end - begin]
    return values, counts, precisions


def _exactness(measurements: Measurements, layout: Layout) -> tuple[Floats | None, tuple[int, float] | None]:
    """Return what is known of discrete noise, in the places of another layout."""
    source, variances, direct = measurements.layout, measurements.variances, measurements.direct
    if variances is not None and layout.sets != source.sets:
        places = [source.places.get(attributes) for attributes in layout.sets]
        variances = np.array([0.0 if place is None else variances[place] for place in places])
    if direct is None or direct[0] not in layout.places:
        return variances, None
    return variances, (layout.places[direct[0]], direct[1])


def _by_residual(measurements: Measurements, layout: Layout) -> dict[int, list[Observation]]:
    """Return the measurements with other noise by the table of the layout they are about."""
    found: defaultdict[int, list[Observation]] = defaultdict(list)
    for one in measurements.others:
        place = layout.places.get(one.positions)
        if place is not None:
            found[place].append(one)
    return dict(found)


def combine(terms: Sequence[Term], name: str) -> Floats:
    """Return the residual that explains all its measurements best, equation (1).

    Parameters
    ----------
    terms
        Observed array in the paper's coordinates and noise of each measurement; all arrays of one shape, not empty.
    name
        What to call the residual in an error.
    """
    gaussian = [(observed, noise) for observed, noise in terms if isinstance(noise, Gaussian)]
    laplace = [(observed, noise.scale) for observed, noise in terms if isinstance(noise, Laplace)]
    if len(gaussian) == len(terms):
        return _precision_weighted_mean(gaussian)
    if len(laplace) == len(terms):
        return weighted_median([observed for observed, _ in laplace], [1 / scale for _, scale in laplace])
    return _minimised(terms, name)


def weighted_median(observed: Sequence[Floats], weights: Sequence[float]) -> Floats:
    """Return, place by place, the median of some arrays with weights: the midpoint where an interval is optimal."""
    stacked = np.stack(observed)
    order = np.argsort(stacked, axis=0)
    values = np.take_along_axis(stacked, order, axis=0)
    below = np.cumsum(np.asarray(weights)[order], axis=0)
    half = below[-1] / 2
    first = np.argmax(below >= half * (1 - _TIE), axis=0)[None]
    last = np.argmax(below > half * (1 + _TIE), axis=0)[None]
    low, high = np.take_along_axis(values, first, axis=0)[0], np.take_along_axis(values, last, axis=0)[0]
    median: Floats = low + (high - low) / 2
    return median


def _precision_weighted_mean(terms: Sequence[tuple[Floats, Gaussian]]) -> Floats:
    """Return the combination of equation (2)."""
    from scipy.linalg import cho_factor, cho_solve

    shape = terms[0][0].shape
    if len(terms) == 1:
        return terms[0][0]
    matrices = [_precision_matrix(noise, shape) for _, noise in terms]
    right = sum(matrix @ observed.ravel() for matrix, (observed, _) in zip(matrices, terms, strict=True))
    mean: Floats = cho_solve(cho_factor(sum(matrices)), right)
    return mean.reshape(shape)


def _precision_matrix(noise: Gaussian, shape: tuple[int, ...]) -> Floats:
    """Return Σ⁻¹; for one variance (D_τ D_τᵀ)⁻¹/σ², a Kronecker product of (D⁺)ᵀ D⁺ over the axes."""
    if noise.variance is None:
        from scipy.linalg import cho_factor, cho_solve

        inverse: Floats = cho_solve(cho_factor(noise.covariance), np.eye(math.prod(shape)))
        return inverse
    product: Floats = np.full((1, 1), 1 / noise.variance)
    for length in shape:
        rows = np.stack([integrate(row) for row in np.eye(length)])
        product = np.kron(product, rows @ rows.T).astype(np.float64)
    return product


def _minimised(terms: Sequence[Term], name: str) -> Floats:
    """Return the minimiser by a general method, and raise `ConvergenceError` unless it is one."""
    from scipy.optimize import minimize

    shape = terms[0][0].shape
    smooth = [(observed, noise) for observed, noise in terms if not isinstance(noise, Laplace)]
    kinks = _Kinks([(observed, noise.scale) for observed, noise in terms if isinstance(noise, Laplace)], shape)

    def slope(flat: Floats) -> Floats:
        return sum((_gradient(noise, flat, observed, name) for observed, noise in smooth), np.zeros(flat.size))

    def objective(variables: Floats) -> tuple[float, Floats]:
        flat = kinks.point(variables)
        value = sum(float(noise.loss(flat.reshape(shape), observed)) for observed, noise in smooth)
        return value + kinks.cost(variables), kinks.chain(slope(flat))

    start = np.mean([observed.ravel() for observed, _ in terms], axis=0)
    options = {"maxiter": _MOST_STEPS, "maxfun": 2 * _MOST_STEPS, "maxcor": 30, "ftol": 1e-15, "gtol": 0.0}
    with np.errstate(over="ignore", invalid="ignore"):
        found = minimize(
            objective, kinks.variables(start), jac=True, method="L-BFGS-B", bounds=kinks.bounds, options=options
        )
        flat = kinks.point(found.x)
        step = float(np.max(np.abs([flat, *(observed.ravel() for observed, _ in terms)]))) or 1.0
        scale = np.abs(slope(flat + step) - slope(flat)).max() + kinks.steepest
        excess = kinks.excess(flat, slope(flat), step * _STATIONARY)
    if not excess <= _STATIONARY * scale:
        raise ConvergenceError(
            f"the estimate of {name} did not converge in {found.nit} steps",
            remedy="check that the loss of its noise is "
            "convex, bounded below and has the gradient it says, or bring its values closer to 1 by a change of unit",
        )
    return flat.reshape(shape)


def _gradient(noise: Loss, flat: Floats, observed: Floats, name: str) -> Floats:
    """Return the gradient of one loss, flat, if it has the shape of the residual."""
    given = np.asarray(noise.gradient(flat.reshape(observed.shape), observed))
    if np.iscomplexobj(given):
        raise MeasurementError(f"the noise of {name} gives a complex gradient", remedy="it must be real")
    gradient = given.astype(np.float64, copy=False)
    if gradient.shape != observed.shape:
        raise MeasurementError(
            f"the noise of {name} gives a gradient of shape {gradient.shape}",
            remedy=f"it must have that of the residual, {observed.shape}",
        )
    return gradient.ravel()


class _Kinks:
    """The variables of equation (3) for the Laplace terms of a residual; without any, α itself.

    Variables stand in rows: v, u_1, …, u_J, each with one entry for each coordinate of the flattened residual.
    """

    def __init__(self, terms: Sequence[tuple[Floats, float]], shape: tuple[int, ...]) -> None:
        size = math.prod(shape)
        observed = np.array([values.ravel() for values, _ in terms]).reshape(len(terms), size)
        order = np.argsort(observed, axis=0)
        weights = np.array([1 / scale for _, scale in terms])[order]
        self.places = np.take_along_axis(observed, order, axis=0)
        self.steepest = float(sum(1 / scale for _, scale in terms))
        # Slope s_j between the kinks j and j + 1, shape (J + 1, size).
        self.slopes = np.concatenate([np.zeros((1, size)), 2 * np.cumsum(weights, axis=0)]) - self.steepest

    @property
    def bounds(self) -> list[tuple[float, float]] | None:
        """The bounds of the variables, or None where there are none."""
        if not len(self.places):
            return None
        most = np.full(self.slopes.shape, np.inf)
        most[1:-1] = np.diff(self.places, axis=0)
        return [(0.0, limit) for limit in most.ravel().tolist()]

    def variables(self, flat: Floats) -> Floats:
        """Return the variables that make up a point."""
        if not len(self.places):
            return flat
        ends = np.concatenate([self.places[1:], np.full((1, flat.size), np.inf)])
        filled = np.clip(flat, self.places, ends) - self.places
        return np.concatenate([np.maximum(self.places[:1] - flat, 0.0), filled]).ravel()

    def point(self, variables: Floats) -> Floats:
        """Return the point that variables make up."""
        if not len(self.places):
            return variables
        rows = variables.reshape(self.slopes.shape)
        point: Floats = self.places[0] - rows[0] + rows[1:].sum(axis=0)
        return point

    def cost(self, variables: Floats) -> float:
        """Return what the variables cost: the Laplace losses up to a constant."""
        return float((self._signed * variables.reshape(self.slopes.shape)).sum()) if len(self.places) else 0.0

    def chain(self, slope: Floats) -> Floats:
        """Return the gradient by the variables from that of the smooth losses by the point."""
        if not len(self.places):
            return slope
        signs = np.where(np.arange(len(self.slopes)) == 0, -1.0, 1.0)[:, None]
        return (signs * slope + self._signed).ravel()

    def excess(self, flat: Floats, slope: Floats, near: float) -> float:
        """Return how far the smooth slope is from being balanced by the kinks; a kink within ``near`` is met."""
        left = np.sum(self.places < flat - near, axis=0)[None]
        right = np.sum(self.places <= flat + near, axis=0)[None]
        low, high = (np.take_along_axis(self.slopes, chosen, axis=0)[0] for chosen in (left, right))
        return float(np.maximum(np.maximum(-slope - high, low + slope), 0.0).max())

    @property
    def _signed(self) -> Floats:
        # v runs downwards, so that it costs −s_0.
        return np.concatenate([-self.slopes[:1], self.slopes[1:]])


def maximum_likelihood(estimates: Estimates, *, out: Floats | None = None) -> Floats:
    """Return the marginals of the closure, μ̂_γ = Σ_{τ⊆γ} A_{γ,τ} α̂_τ ([ReM] Alg. 3, line 2).

    Parameters
    ----------
    estimates
        The estimated residuals.
    out
        Shape (layout.cells,), where to write.
    """
    layout = estimates.layout
    # In place on a copy: no second buffer, and no second set of compiled loops for read-only arrays.
    marginals = np.empty(layout.cells) if out is None else layout.checked(out)
    np.copyto(marginals, estimates.values)
    return transform.reconstruct(layout, marginals, out=marginals)


def determined(estimates: Estimates) -> NDArray[np.bool_]:
    """Tell for each table of the closure whether the measurements determine it, shape (tables,).

    They do when every residual inside it was measured, or has no degree of freedom and so is known to be zero. Then the
    table's maximum-likelihood estimate is unbiased; else it is the one with zeros for what is not known.
    """
    index = estimates.layout.index
    known: NDArray[np.bool_] = (estimates.counts > 0) | (estimates.layout.degrees == 0)
    # Level by level: a table is determined when its own residual is known and all its facets are determined.
    for order in range(1, index.axes.shape[1] + 1):
        tables = np.flatnonzero(index.order == order)
        known[tables] &= known[index.facet[tables, :order]].all(axis=1)
    return known
