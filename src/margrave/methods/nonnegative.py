"""GReM-LNN: the tables without negative cells that agree with each other and are nearest to the measurements.

The object checks its options and turns names of attributes into places of the layout; ``reconstruction.nonnegative`` is
the solver, and ``reconstruction.prior`` the rule behind weights "auto".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, ClassVar, Self, TypeGuard

import numpy as np

from margrave.algebra.layout import by_size
from margrave.domain.values import table_label
from margrave.errors import ConvergenceError, ReleaseError, suggestion
from margrave.methods.method import Made, Method, Request, UnrecordableError, Words
from margrave.options import OptionKind, option

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout
    from margrave.domain.domain import Domain
    from margrave.reconstruction.estimates import Estimates
    from margrave.reconstruction.nonnegative.workers import WorkerPool
    from margrave.reconstruction.prior import Choice
    from margrave.workload import Workload

Names = tuple[str, ...]
Pairs = tuple[tuple[Names, float], ...]
Weights = str | float | Mapping[Iterable[str], float] | Pairs | Callable[[Names], float]

_SCHEMES = ("auto", "paper", "noise")
_TOLERANCE = 1e-4
# Arrays of the workload's size, at the peak. The solver: the estimates, for "paper" their plain means, the state of its
# rounds, and the tables. The rule behind "auto": the estimates, what it makes of them, the state of its rounds, their
# residuals. Each has two buffers of facets besides. With workers the solver has the estimates and the tables here. All
# that the solver has can be on disk; of the rule what it makes, and residuals on the way, stay in memory.
_SOLVER_ARRAYS, _RULE_ARRAYS, _FACET_BUFFERS = 3.0, 4.0, 2.0
_SOLVER_WITH_WORKERS, _RULE_WITH_SCRATCH = 2.0, 3.0
# What the rule needs however small the tables are: its counts of departures by class and place on a grid.
_RULE_BYTES = 5_200_000
# The inner tables, which are not tables of the workload, and what is small.
_INNER_TABLES = 1.05
# A recorded method with more sets than this was not written by margrave.
_MOST_SETS = 1_000_000
_WORDS = Words(
    counts="non-negative counts",
    count="non-negative count",
    column="non-negative counts that agree with each other in every sum",
    report="The non-negative count is found from the same noisy measurements so that all tables agree with each other, "
    "no cell is below zero, and noise is smoothed. It is closer to the truth overall, but it is not unbiased.",
    registry="GReM-LNN: tables found from the measurements so that no count is negative, all agree in every sum, and "
    "noise is smoothed.",
)
_WHOLE_WORDS = Words(
    counts="whole counts",
    count="whole count",
    column="whole numbers that agree with each other in every sum, counted from synthetic rows",
    report="The whole count is counted from synthetic rows whose tables are close to the non-negative ones: all tables "
    "agree with each other and hold whole numbers. It is closer to the truth overall, but it is not unbiased.",
    registry="GReM-LNN, then tables counted from synthetic rows that are close to them: whole numbers, none negative, "
    "and all agree in every sum.",
)
# The same measurements give the same whole numbers.
_WHOLE_SEED = 0


@dataclass(frozen=True)
class NonNegative(Method):
    """Non-negative tables that agree with each other, nearest to the measurements ("lnn", the default method).

    Attributes
    ----------
    weights
        How strongly each residual τ is held to its estimate.

        - "auto" (the default): residuals are first moved towards what the smaller tables predict, by as much as their
          noise asks for, and the total is held (docs/weights.md).
        - "paper": k_τ 2^(−|τ|), with k_τ the number of its measurements. This is the published method. It takes the
          plain mean of several measurements as the estimate, whatever their noise; all others combine them by inverse
          variance.
        - "noise": the precision of the estimate.
        - A number b, or its text: b^(−|τ|).
        - A mapping from sets of names to weights; infinity holds the residual. It must name every measured residual of
          the closure. It is kept as (names, weight) pairs.
        - A function of the tuple of names, in domain order. A function cannot be recorded in a saved release.
    hold
        Attribute sets whose residuals stay exactly at their estimates; [()] holds the total. By default none, and with
        weights "auto" the total, shrunk by its own noise (see ``reconstruction.prior``).
    eta
        The weight of residuals that were never measured; by default the solver's (``reconstruction.nonnegative``).
    tolerance
        When to stop, as relative duality gap. By default 1e-4, and 1e-3 with weights "auto", which leave less of a loss
        for the gap to be relative to.
    most_negative
        The most negative cell that the rounds may leave for the final lift to zero; by default any, as long as the lift
        weighs little.
    max_steps
        The most rounds.
    strict
        Raise `ConvergenceError` if the tolerance was not reached within ``max_steps``. By default True, except with
        weights "auto", which always give tables. If False, the tables are returned as they are, non-negative and in
        agreement; ``release.solution`` says how near to the best they are.
    whole_numbers
        Count all tables from synthetic rows that are near them (docs/rows.md): whole numbers that agree with each
        other.
    """

    weights: Weights = option(
        "auto", "auto, paper, noise, or a number b for the weights b^(-order).", kind=OptionKind.TEXT
    )
    hold: Iterable[Iterable[str]] | None = option(
        None,
        "Attribute sets whose measurements are kept as they are, such as age,sex; '' for the total.",
        kind=OptionKind.TABLES,
    )
    eta: float | None = option(None, "The weight of what was never measured.")
    tolerance: float | None = option(None, "The relative duality gap at which to stop.")
    most_negative: float = math.inf
    max_steps: int = option(20_000, "The most rounds of the solver.")
    strict: bool | None = None
    whole_numbers: bool = option(False, "Whole numbers that agree with each other, counted from synthetic rows.")

    agree: ClassVar[bool] = True
    nonnegative: ClassVar[bool] = True
    restarts: ClassVar[bool] = True
    objective: ClassVar[str] = "counts"

    def __post_init__(self) -> None:
        if self.eta is not None and not (_is_number(self.eta) and self.eta > 0):
            raise ReleaseError(f"eta is {self.eta!r}", remedy="give a positive number, or None for the default")
        if self.tolerance is not None and not (_is_number(self.tolerance) and self.tolerance > 0):
            raise ReleaseError(f"tolerance is {self.tolerance!r}", remedy="give a positive number, such as 1e-4")
        if not (_is_number(self.most_negative) and self.most_negative >= 0):
            raise ReleaseError(
                f"most_negative is {self.most_negative!r}",
                remedy="give a number from 0 on: how far below zero a cell may be",
            )
        if not _is_whole(self.max_steps) or self.max_steps < 1:
            raise ReleaseError(f"max_steps is {self.max_steps!r}", remedy="give a whole number of at least 1")
        if not (self.strict is None or isinstance(self.strict, bool)):
            raise ReleaseError(f"strict is {self.strict!r}", remedy="give True, False, or None for the default")
        if not isinstance(self.whole_numbers, bool):
            raise ReleaseError(f"whole_numbers is {self.whole_numbers!r}", remedy="give True or False")
        for name, value in (
            ("weights", _checked_weights(self.weights)),
            ("hold", _checked_holds(self.hold)),
            ("eta", None if self.eta is None else float(self.eta)),
            ("tolerance", None if self.tolerance is None else float(self.tolerance)),
            ("most_negative", float(self.most_negative)),
            ("max_steps", int(self.max_steps)),
        ):
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """The short name, "lnn"."""
        return "lnn"

    @property
    def words(self) -> Words:
        """What readers are told about its tables."""
        return _WHOLE_WORDS if self.whole_numbers else _WORDS

    def arrays_for(self, workload: Workload, *, workers: bool = False, scratch: bool = False) -> float:
        """Return how many copies of the workload's tables are held in memory at once, the measurements not counted.

        Facets, one sum along each axis of each table, are counted with them.
        """
        automatic = self.weights == "auto"
        means = 1.0 if self.weights == "paper" else 0.0
        if scratch:
            return _RULE_WITH_SCRATCH if automatic else means
        if workers and not automatic:
            return _SOLVER_WITH_WORKERS + means
        arrays = _RULE_ARRAYS if automatic else _SOLVER_ARRAYS + means
        constant = _RULE_BYTES / max(workload.bytes, 1) if automatic else 0.0
        return _INNER_TABLES * (arrays + _FACET_BUFFERS * _facet_share(workload)) + constant

    def lenient(self) -> Self:
        """Return the method with ``strict`` off: it always gives tables, which say how near to the best they are."""
        return replace(self, strict=False)

    def reads_estimates(self, estimates: Estimates) -> bool:
        """Tell whether no plain mean of repeated measurements is taken, which weights "paper" do."""
        return self.weights != "paper" or bool((estimates.counts <= 1).all())

    def make(self, request: Request) -> Made:
        """Return the nearest non-negative tables, and what the solver reported."""
        from margrave.reconstruction.estimates import mean_residuals
        from margrave.reconstruction.nonnegative import Status, reconstruct_nonnegative

        centres = request.estimates
        if self.weights == "paper":
            centres = mean_residuals(request.measurements, centres)
        choice = self._choice(request.workload.domain, centres, request.workers)
        solution = reconstruct_nonnegative(
            choice.estimates,
            weights=choice.weights,
            eta=self.eta,
            hold=choice.hold,
            tolerance=choice.tolerance if self.tolerance is None else self.tolerance,
            most_negative=self.most_negative,
            max_steps=self.max_steps,
            progress=request.progress,
            start=request.start,
            workers=request.workers,
        )
        strict = self.weights != "auto" if self.strict is None else self.strict
        if strict and solution.status is not Status.SOLVED:
            raise ConvergenceError(
                f"the solver {solution.status.value}",
                remedy=f"it reached a gap of {solution.gap:.2g} in {solution.steps:,} "
                "steps (strict=False returns the tables it has)",
            )
        if self.whole_numbers:
            return Made(whole_tables(request.estimates.layout, solution.marginals), solution)
        return Made(solution.marginals, solution)

    def _choice(self, domain: Domain, estimates: Estimates, workers: WorkerPool | None) -> Choice:
        """Return what the solver should be near to, with which weights and holds."""
        from margrave.reconstruction.prior import Choice, automatic

        held = None if self.hold is None else _places(domain, estimates.layout, self.hold)
        if self.weights == "auto":
            return automatic(estimates, hold=held, eta=self.eta, workers=workers)
        return Choice(estimates, self._solver_weights(domain, estimates), held or (), _TOLERANCE)

    def _solver_weights(self, domain: Domain, estimates: Estimates) -> str | float | Floats:
        """Return the weights as the solver takes them: a scheme, a base, or one number a table of the layout."""
        weights = self.weights
        if isinstance(weights, str | float):
            return weights
        if isinstance(weights, tuple):
            return _weights_from_pairs(domain, estimates, weights)
        sets = [domain.names(members) for members in estimates.layout.sets]
        return np.array([_checked_weight(one, weights(one)) for one in sets], dtype=np.float64)  # type: ignore[operator]

    @classmethod
    def _to_plain(cls, name: str, value: object) -> object:
        """Return one option as a plain value; sets are lists of names."""
        if isinstance(value, tuple) and name == "hold":
            return [list(names) for names in value]
        if isinstance(value, tuple) and name == "weights":
            plain = super()._to_plain
            return [{"attributes": list(names), "weight": plain(name, weight)} for names, weight in value]
        if callable(value):
            raise UnrecordableError(f"{name} was a function, which cannot be recorded")
        return super()._to_plain(name, value)

    @classmethod
    def _from_plain(cls, name: str, value: object) -> object:
        """Return one option from its plain value."""
        if not isinstance(value, list):
            # JSON has no form for what the constructor takes in addition to lists.
            if isinstance(value, Mapping):
                raise ReleaseError(f"{name} is recorded as a JSON object, which it never is")
            return super()._from_plain(name, value)
        if len(value) > _MOST_SETS:
            raise ReleaseError(
                f"{name} is recorded with {len(value):,} sets", remedy=f"at most {_MOST_SETS:,} are read"
            )
        if name != "weights":
            return value
        pairs = []
        for entry in value:
            if not isinstance(entry, dict) or set(entry) != {"attributes", "weight"}:
                raise ReleaseError("a weight is recorded as attributes and weight", remedy="this one is not")
            pairs.append((entry["attributes"], super()._from_plain(name, entry["weight"])))
        return tuple(pairs)


def _facet_share(workload: Workload) -> float:
    """Return the cells of all facets of the tables over the cells of the tables: Σ n_γ/n_k over Σ n_γ."""
    sizes = np.array(workload.domain.shape, dtype=np.float64)
    cells = facets = 0.0
    for members in by_size(workload.positions).values():
        axes = sizes[members]
        own = axes.prod(axis=1)
        cells += float(own.sum())
        facets += float((own[:, None] / axes).sum())
    return facets / cells if cells else 0.0


def whole_tables(layout: Layout, marginals: Floats) -> Floats:
    """Return whole numbers near the tables of a closure that agree with each other, counted from synthetic rows.

    Parameters
    ----------
    layout
        The closure.
    marginals
        Shape (layout.cells,); its tables, which agree with each other and have no negative count.
    """
    from margrave.synthesis.rows import make_codes

    return make_codes(layout, marginals, seed=_WHOLE_SEED).counts


def _is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a real number, which True is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    """Tell whether a value is a whole number, which True is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_numeral(text: str) -> bool:
    """Tell whether a text from the command line is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _checked_weights(weights: object) -> Weights:
    """Return weights in the form they are kept: a scheme, a float, pairs, or a function."""
    if isinstance(weights, str) and not _is_numeral(weights):
        if weights not in _SCHEMES:
            raise ReleaseError(
                f"no weights {weights!r}{suggestion(weights, _SCHEMES)} (the names are {', '.join(_SCHEMES)}",
                remedy="a number is taken too)",
            )
        return weights
    if isinstance(weights, Mapping):
        return _checked_pairs(weights.items())
    if isinstance(weights, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in weights):
        return _checked_pairs(weights)
    if callable(weights):
        return weights
    if not (_is_number(weights) or isinstance(weights, str)) or not 0 < float(weights) < math.inf:
        raise ReleaseError(
            f"weights is {weights!r}",
            remedy="give 'auto', 'paper', 'noise', a positive number b for b^(−|τ|), a mapping or a function",
        )
    return float(weights)


def _checked_pairs(pairs: Iterable[tuple[object, object]]) -> Pairs:
    """Return the weights of sets if each set is named once and each weight is positive."""
    found: dict[frozenset[str], tuple[Names, float]] = {}
    for given, weight in pairs:
        names = _checked_set(given, "a weight is given for")
        if frozenset(names) in found:
            raise ReleaseError(f"a weight is given twice for {table_label(names)}", remedy="give one")
        found[frozenset(names)] = (names, _checked_weight(names, weight))
    return tuple(found.values())


def _checked_weight(names: Names, weight: object) -> float:
    """Return the weight of a residual as a float if it is positive; it may be infinite."""
    if not _is_number(weight) or not float(weight) > 0:
        raise ReleaseError(
            f"the weight of {table_label(names)} is {weight!r}", remedy="give a positive number, or infinity to hold it"
        )
    return float(weight)


def _checked_holds(hold: object) -> tuple[Names, ...] | None:
    """Return the sets to hold as tuples of names."""
    if hold is None:
        return None
    if isinstance(hold, str) or not isinstance(hold, Iterable):
        raise ReleaseError(
            f"hold is {hold!r}", remedy="give a list of attribute sets, as in [()] for the total or [('age',)]"
        )
    return tuple(_checked_set(names, "hold names") for names in hold)


def _checked_set(given: object, what: str) -> Names:
    """Return a set of attributes as a tuple of names, in the order given; a Python set in that of the alphabet."""
    if isinstance(given, str):
        raise ReleaseError(f"{what} the text {given!r}", remedy=f"write ({given!r},) for the set of one attribute")
    names = tuple(given) if isinstance(given, Iterable) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ReleaseError(f"{what} {given!r}", remedy="give a set of attribute names, as in ('age', 'sex')")
    if len(set(names)) != len(names):
        raise ReleaseError(f"{what} {table_label(names)}, with an attribute twice", remedy="name each once")
    return tuple(sorted(names)) if isinstance(given, set | frozenset) else names


def _places(domain: Domain, layout: Layout, sets: Iterable[Iterable[str]]) -> tuple[int, ...]:
    """Return the tables of the layout over these sets, each once, in ascending order."""
    return tuple(sorted({_place(domain, layout, tuple(names), "hold names") for names in sets}))


def _place(domain: Domain, layout: Layout, names: Names, what: str) -> int:
    """Return the number of the table over these attributes."""
    positions = domain.positions(names)
    if positions not in layout.places:
        raise ReleaseError(
            f"{what} {table_label(domain.names(positions))}, which no table of the workload contains",
            remedy="leave it out",
        )
    return layout.places[positions]


def _weights_from_pairs(domain: Domain, estimates: Estimates, pairs: Pairs) -> Floats:
    """Return the weight of each table from pairs that name every measured one; NaN, for eta, where none is given."""
    layout = estimates.layout
    found = np.full(len(layout.sets), np.nan)
    for names, weight in pairs:
        found[_place(domain, layout, names, "a weight is given for")] = weight
    missing = np.flatnonzero(np.isnan(found) & (estimates.counts > 0))
    if missing.size:
        label = table_label(domain.names(layout.sets[missing[0]]))
        raise ReleaseError(f"no weight for the residual of {label}", remedy="give one for every measured residual")
    return found
