"""The public verb of the last stage: measurements and a workload in, a release out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Real

import numpy as np

from margrave.algebra.kernels import Floats
from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.errors import ConvergenceError, ReleaseError, WorkloadError, suggestion
from margrave.measurements import Measurements
from margrave.reconstruction.automatic import Choice, automatic
from margrave.reconstruction.linear import maximum_likelihood
from margrave.reconstruction.losses import Estimates, estimate_residuals, mean_residuals
from margrave.reconstruction.nonnegative import Status, check_options, reconstruct_nonnegative
from margrave.reconstruction.truncation import truncate, truncate_and_rescale
from margrave.release.release import Release
from margrave.workload import Workload

Names = tuple[str, ...]
Weights = str | float | Mapping[Iterable[str], float] | Callable[[Names], float]

METHODS = ("mle", "lnn", "trunc", "trunc+rescale")
_SCHEMES = ("auto", "paper", "noise")
# Copies of the workload's tables that are held at once: the estimates and the tables, and for the solver its own.
_ARRAYS = {"mle": 2.5, "trunc": 2.5, "trunc+rescale": 2.5, "lnn": 6.5}
_MOST_STEPS = 20_000
_TOLERANCE = 1e-4
_DEFAULTS: dict[str, object] = {
    "weights": "auto",
    "eta": None,
    "hold": None,
    "tolerance": None,
    "most_negative": math.inf,
    "max_steps": _MOST_STEPS,
    "strict": None,
    "progress": None,
    "start": None,
}


def reconstruct(
    measurements: Measurements,
    workload: Workload,
    *,
    method: str = "lnn",
    weights: Weights = "auto",
    eta: float | None = None,
    hold: Iterable[Iterable[str]] | None = None,
    tolerance: float | None = None,
    most_negative: float = math.inf,
    max_steps: int = _MOST_STEPS,
    strict: bool | None = None,
    progress: Callable[[int, float], None] | None = None,
    start: Release | None = None,
) -> Release:
    """Return the tables of a workload from noisy measurements: inside, outside or across what was measured.

    Parameters
    ----------
    measurements
        The noisy residuals or marginals.
    workload
        The tables wanted, over the domain of the measurements.
    method
        "lnn" (the default): non-negative tables that agree with each other, nearest to the measurements
        (GReM-LNN). "mle": the unbiased maximum-likelihood tables (GReM-MLE; from marginals EMP), which have negative
        cells. "trunc", "trunc+rescale": the paper's baselines, "mle" with negative cells set to zero, table by table,
        and then scaled to the estimated total.
    weights
        For "lnn": how strongly each residual τ is held to its estimate. "auto" (the default): residuals are first moved
        towards what the smaller tables predict, by as much as their noise asks for, and the total is held
        (docs/weights.md). "paper": k_τ 2^(−|τ|), with k_τ the number of its measurements, the published method, which
        takes their plain mean for the estimate, whatever their noise; all others combine them by inverse variance. A
        number b: b^(−|τ|); "noise": its precision; a mapping from sets of names, or a function of the tuple of names
        in domain order, gives each weight itself (infinity holds the residual). A mapping must name
        every measured residual of the closure.
    eta
        For "lnn": the weight of residuals that were never measured; by default the solver's (see
        ``reconstruction.nonnegative``).
    hold
        For "lnn": attribute sets whose residuals stay exactly at their estimates; [()] holds the total. By default
        none, and with weights "auto" the total, shrunk by its own noise (see ``reconstruction.automatic``).
    tolerance
        For "lnn": when to stop, as relative duality gap; by default 1e-4, and 1e-3 with weights "auto", which leave
        less of a loss for the gap to be relative to.
    most_negative
        For "lnn": the most negative cell that the rounds may leave for the final lift to zero; any, by default, as long
        as the lift weighs little.
    max_steps
        For "lnn": the most rounds.
    strict
        For "lnn": raise `ConvergenceError` when the tolerance was not reached within ``max_steps``; by default so,
        except with weights "auto", which always gives tables. If False, the
        tables are returned as they are, non-negative and in agreement; ``release.solution`` says how near they are.
    progress
        For "lnn": called now and then with the number of rounds and the gap.
    start
        For "lnn": a release of the same workload to start from, which saves rounds and does not change the answer.
    """
    if isinstance(hold, str) or not (hold is None or isinstance(hold, Iterable)):
        raise ReleaseError(f"hold is {hold!r}; give a list of attribute sets, as in [()] for the total or [('age',)]")
    held = None if hold is None else list(hold)
    options = {
        "weights": weights,
        "eta": eta,
        "hold": held or None,
        "tolerance": tolerance,
        "most_negative": most_negative,
        "max_steps": max_steps,
        "strict": strict,
        "progress": progress,
        "start": start,
    }
    # An array is no option, and has no truth value when it is compared.
    used = [name for name, value in options.items() if isinstance(value, np.ndarray) or value != _DEFAULTS[name]]
    _check_request(measurements, workload, method, used)
    check_options(
        eta=eta,
        tolerance=_TOLERANCE if tolerance is None else tolerance,
        most_negative=most_negative,
        max_steps=max_steps,
    )
    require_memory(workload, method)
    layout = Layout.of(workload.domain.shape, workload.positions)
    estimates = estimate_residuals(measurements, layout)
    if method != "lnn":
        marginals = _linear(estimates, method)
        return Release(workload, method, estimates, marginals, None, measurements.provenance, measurements)
    published = isinstance(weights, str) and weights == "paper"
    centres = mean_residuals(measurements, estimates) if published else estimates
    choice = _choice(workload.domain, centres, weights, eta, held)
    solution = reconstruct_nonnegative(
        choice.estimates,
        weights=choice.weights,
        eta=eta,
        hold=choice.hold,
        tolerance=choice.tolerance if tolerance is None else tolerance,
        most_negative=most_negative,
        max_steps=max_steps,
        progress=progress,
        start=None if start is None else _multipliers(layout, start),
    )
    automatically = isinstance(weights, str) and weights == "auto"
    if (not automatically if strict is None else strict) and solution.status is not Status.SOLVED:
        raise ConvergenceError(
            f"the solver {solution.status.value}; it reached a gap of {solution.gap:.2g} in {solution.steps:,} steps "
            "(strict=False returns the tables it has)"
        )
    return Release(workload, method, estimates, solution.marginals, solution, measurements.provenance, measurements)


def require_memory(workload: Workload, method: str, *, beside: int = 0) -> None:
    """Raise `MemoryLimitError` if the machine cannot hold what reconstruction by a method needs.

    `reconstruct` asks it first, and so does whoever must know before anything is spent.

    Parameters
    ----------
    workload
        The tables wanted.
    method
        How they will be made.
    beside
        Bytes that will be held beside them by then and are not held yet, such as measurements that are still to be
        made.
    """
    require_method(method)
    noun = "table" if len(workload) == 1 else "tables"
    purpose = f"reconstruction of {len(workload):,} {noun} by {method!r}"
    workload.require_memory(_ARRAYS[method], purpose, beside=beside)


def require_method(method: object) -> None:
    """Refuse a method that is not there."""
    if method not in METHODS:
        hint = suggestion(method, METHODS) if isinstance(method, str) else ""
        raise ReleaseError(f"no method {method!r}{hint} (there are {', '.join(METHODS)})")


def _check_request(measurements: Measurements, workload: Workload, method: str, options: list[str]) -> None:
    """Refuse a method that is not there, options that it would not read, and a workload over another domain."""
    if not isinstance(measurements, Measurements):
        raise ReleaseError(
            f"a {type(measurements).__name__} holds no measurements; give Measurements, then the Workload"
        )
    if not isinstance(workload, Workload):
        raise ReleaseError(
            f"a {type(workload).__name__} is no workload; give a Workload, as in Workload.all_kway(domain, 3)"
        )
    require_method(method)
    if workload.domain != measurements.domain:
        raise WorkloadError(
            f"the workload is over {workload.domain!r} and the measurements over {measurements.domain!r}; "
            "make both over one domain (labels and descriptions count too)"
        )
    if options and method != "lnn":
        raise ReleaseError(f"method {method!r} has no {' and no '.join(options)}; leave it out, or use method='lnn'")


def _linear(estimates: Estimates, method: str) -> Floats:
    """Return the closure's tables by maximum likelihood, or a truncation of them."""
    marginals = maximum_likelihood(estimates)
    if method == "trunc":
        return truncate(marginals)
    return truncate_and_rescale(estimates.layout, marginals) if method == "trunc+rescale" else marginals


def _choice(
    domain: Domain, estimates: Estimates, weights: Weights, eta: float | None, sets: list[Iterable[str]] | None
) -> Choice:
    """Return what the solver is to be near to, with which weights and holds."""
    held = None if sets is None else _held(domain, estimates.layout, sets)
    given = _weights(domain, estimates, weights)
    if isinstance(given, str) and given == "auto":
        return automatic(estimates, hold=held, eta=eta)
    return Choice(estimates, given, held or (), _TOLERANCE)


def _weights(domain: Domain, estimates: Estimates, weights: Weights) -> str | float | Floats:
    """Return the weights as the solver takes them: a scheme, a base, or one number a table of the layout."""
    if isinstance(weights, str):
        if weights not in _SCHEMES:
            hint = suggestion(weights, _SCHEMES)
            raise ReleaseError(f"no weights {weights!r}{hint} (there are {', '.join(_SCHEMES)}, or give a number)")
        return weights
    if isinstance(weights, Mapping):
        return _mapped_weights(domain, estimates, weights)
    if callable(weights):
        names = [domain.names(members) for members in estimates.layout.sets]
        return np.array([_weight(one, weights(one)) for one in names], dtype=np.float64)
    return _base(weights)


def _base(weights: object) -> float:
    """Return the base b of the weights b^(−|τ|)."""
    if isinstance(weights, bool) or not isinstance(weights, Real) or not 0 < float(weights) < np.inf:
        raise ReleaseError(
            f"weights is {weights!r}; give 'auto', 'paper', 'noise', a positive number b for b^(−|τ|), a mapping or a "
            "function"
        )
    return float(weights)


def _mapped_weights(domain: Domain, estimates: Estimates, weights: Mapping[Iterable[str], float]) -> Floats:
    """Return the weight of each table from a mapping that names every measured one."""
    layout = estimates.layout
    found = np.full(len(layout.sets), np.nan)
    for names, weight in weights.items():
        place = _place(domain, layout, names, "a weight is given for")
        found[place] = _weight(domain.names(layout.sets[place]), weight)
    missing = np.flatnonzero(np.isnan(found) & (estimates.counts > 0))
    if missing.size:
        spoken = " × ".join(domain.names(layout.sets[missing[0]])) or "the total"
        raise ReleaseError(f"no weight for the residual of {spoken}; give one for every measured residual")
    # What stays NaN was never measured, and has the weight eta.
    return found


def _weight(names: Names, weight: object) -> float:
    """Return the weight of a residual as a float if it is positive; it may be infinite."""
    if isinstance(weight, bool) or not isinstance(weight, Real) or not float(weight) > 0:
        spoken = " × ".join(names) or "the total"
        raise ReleaseError(f"the weight of {spoken} is {weight!r}; give a positive number, or infinity to hold it")
    return float(weight)


def _held(domain: Domain, layout: Layout, sets: Iterable[Iterable[str]]) -> tuple[int, ...]:
    """Return the tables of the layout whose residuals are held."""
    return tuple(sorted({_place(domain, layout, names, "hold names") for names in sets}))


def _place(domain: Domain, layout: Layout, names: Iterable[str], what: str) -> int:
    """Return the number of the table over these attributes."""
    if isinstance(names, str):
        raise ReleaseError(f"{what} the text {names!r}; write ({names!r},) for the set of one attribute")
    # What is no list of names is the domain's to refuse.
    given = tuple(names) if isinstance(names, Iterable) else names
    positions = domain.positions(given)
    if len(positions) != len(tuple(given)):
        raise ReleaseError(f"{what} {' × '.join(given)}, with an attribute twice; name each once")
    if positions not in layout.places:
        spoken = " × ".join(domain.names(positions))
        raise ReleaseError(f"{what} {spoken}, which no table of the workload contains; leave it out")
    return layout.places[positions]


def _multipliers(layout: Layout, start: Release) -> Floats:
    """Return where a previous solution of the same workload ended."""
    if start.solution is None:
        raise ReleaseError(f"the release to start from was made by {start.method!r}; start from one by 'lnn'")
    if start.estimates.layout.sets != layout.sets or start.estimates.layout.sizes != layout.sizes:
        raise ReleaseError("the release to start from has other tables; start from one of the same workload")
    multipliers: Floats = start.solution.multipliers
    return multipliers
