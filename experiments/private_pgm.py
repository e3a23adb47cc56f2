r"""Private-PGM, the reconstruction that the paper compares with: the package mbi, in a process under limits.

mbi fits a graphical model to noisy tables by least squares. What it is given are the maximum-likelihood tables on the
measured sets, with the noise of their own measurement. That is the same problem: the tables y_i = μ̂_i + e_i that were
measured leave residues e that are orthogonal, with weights 1/σ²_i, to every family of consistent tables, so

    Σ_i ‖μ_i − y_i‖²/σ²_i = Σ_i ‖μ_i − μ̂_i‖²/σ²_i + constant        for all consistent μ,                          (1)

and the total of μ̂ is the best unbiased one, which mbi would compute as well.
"""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from experiments import ExperimentError
from experiments.clique_trees import CliqueTree, Factor
from experiments.cost import Cost, resident_bytes
from experiments.graphical_models import Model as OwnModel
from experiments.graphical_models import estimated_total
from experiments.lifeline import leave_with_parent
from experiments.records import DONE, FAILED, MEMORY_LIMIT, TIME_LIMIT
from margrave.algebra.kernels import Floats
from margrave.algebra.layout import Layout
from margrave.measurements import Measurements
from margrave.release.publication import reconstruct
from margrave.release.release import Release
from margrave.workload import Workload

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

Names = tuple[str, ...]
_ITERATIONS = 1000
_LOOK_EVERY = 0.2


class Model(Protocol):
    """A graphical model of mbi, as far as it is used here."""

    domain: Any
    potentials: Any
    total: float


@dataclass(frozen=True, eq=False)
class Problem:
    """What Private-PGM is given: sizes, noisy tables with their standard deviations, the total, and what is wanted."""

    sizes: dict[str, int]
    measured: list[tuple[Names, Floats, float]]
    total: float
    wanted: list[Names]


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a run of Private-PGM ended.

    Attributes
    ----------
    status
        "done", "time limit", "memory limit" or "failed".
    marginals
        A buffer of the workload's closure with the tables of the workload in it; None if it is not done.
    cost
        Time, and the largest resident size of its process.
    note
        Why there is no result.
    """

    status: str
    marginals: Floats | None
    cost: Cost
    note: str = ""


def require_mbi() -> None:
    """Raise `ExperimentError` if the package mbi is not installed."""
    if find_spec("mbi") is None:
        raise ExperimentError(
            "Private-PGM needs the package mbi, which is not installed; install margrave[pgm], or leave Private-PGM "
            "out with --pgm-trials 0"
        )


def problem_of(measurements: Measurements, workload: Workload) -> Problem:
    """Return the problem (1) for measurements of marginals."""
    domain, layout = workload.domain, measurements.layout
    if 1 in domain.shape:
        raise ExperimentError("Private-PGM is not given attributes of one value; take them out of the data set")
    known = [place for place in range(layout.outer, len(layout.sets)) if measurements.precisions[place] > 0]
    sets = [domain.names(layout.sets[place]) for place in known]
    fitted = reconstruct(measurements, Workload(domain, sets), method="mle")
    places = fitted.estimates.layout.places
    measured = [
        (names, _flat(fitted, places[domain.positions(names)]), float(measurements.precisions[place]) ** -0.5)
        for names, place in zip(sets, known, strict=True)
    ]
    sizes = dict(zip(domain.attributes, domain.shape, strict=True))
    # mbi's own bound: a model of fewer than one row is none.
    total = max(1.0, float(_flat(fitted, places[()])[0]))
    return Problem(sizes, measured, total, list(workload))


def _flat(release: Release, place: int) -> Floats:
    """Return the cells of one table of a release."""
    offset = release.estimates.layout.index.offset
    return release.marginals[offset[place] : offset[place + 1]]


def private_pgm(
    measurements: Measurements, workload: Workload, layout: Layout, *, limit_seconds: float, limit_gb: float
) -> Outcome:
    """Return the tables of a workload by Private-PGM, or why there are none.

    Parameters
    ----------
    measurements
        Noisy marginals.
    workload
        The tables wanted.
    layout
        The closure of the workload, which the result is a buffer of.
    limit_seconds, limit_gb
        When to give up: so much time, or so many gigabytes of resident memory.
    """
    require_mbi()
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=fit_in_process, args=(sender, problem_of(measurements, workload)))
    process.start()
    sender.close()
    try:
        status, note, tables, cost = _watched(process, receiver, limit_seconds, limit_gb * 1e9)
    finally:
        process.kill()
        process.join()
    if tables is None:
        return Outcome(status, None, cost, note)
    marginals = np.zeros(layout.cells)
    for members, table in zip(workload.positions, tables, strict=True):
        layout.view(marginals, layout.places[members])[...] = table
    return Outcome(status, marginals, cost)


def _watched(
    process: SpawnProcess, receiver: Connection, limit_seconds: float, limit_bytes: float
) -> tuple[str, str, list[Floats] | None, Cost]:
    """Wait for the tables, within limits; return status, note, tables and cost."""
    started, peak = time.monotonic(), 0
    while True:
        arrived = receiver.poll(_LOOK_EVERY)
        seconds = time.monotonic() - started
        peak = max(peak, resident_bytes(process.pid or 0))
        cost = Cost(seconds, peak / 1e6)
        if arrived:
            try:
                status, note, tables = receiver.recv()
            except EOFError:
                process.join()
                return FAILED, f"its process ended with exit code {process.exitcode}", None, cost
            return status, note, tables, cost
        if peak > limit_bytes:
            return MEMORY_LIMIT, f"more than {limit_bytes / 1e9:g} GB", None, cost
        if seconds > limit_seconds:
            return TIME_LIMIT, f"more than {limit_seconds:g} s", None, cost


def fit_in_process(sender: Connection, problem: Problem) -> None:
    """Fit and send (status, note, tables); the whole life of the process."""
    leave_with_parent()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        sender.send((DONE, "", fit(problem)))
    except Exception as error:
        sender.send((*how_it_failed(error), None))


def how_it_failed(error: Exception) -> tuple[str, str]:
    """Return status and note of a fit that raised: memory that was refused is the memory limit of the machine."""
    told = str(error)
    if isinstance(error, MemoryError):
        return MEMORY_LIMIT, "out of memory"
    # JAX has no class for it, and says so at the end of a long text.
    place = told.lower().rfind("out of memory")
    if place >= 0:
        return MEMORY_LIMIT, told[place:][:300].lower()
    return FAILED, f"{type(error).__name__}: {told}"[:300]


def fit(problem: Problem) -> list[Floats]:
    """Return the wanted tables of the graphical model that mbi fits to a problem."""
    model = fitted_model(problem)
    tree = clique_tree_of(model)
    return [tree.table(names) * float(model.total) for names in problem.wanted]


def fitted_model(problem: Problem) -> Model:
    """Return the graphical model that mbi fits to a problem."""
    jax, mbi = _packages()
    domain = mbi.Domain(tuple(problem.sizes), tuple(problem.sizes.values()))
    measured = [mbi.LinearMeasurement(values, names, stddev=deviation) for names, values, deviation in problem.measured]
    model: Model = mbi.estimation.MirrorDescent().estimate(
        domain, measured, known_total=problem.total, iters=_ITERATIONS
    )
    # JAX computes behind one's back, and reading what failed there ends the process; waiting for it raises.
    jax.block_until_ready(model.potentials)
    return model


@dataclass(eq=False)
class MbiModel(OwnModel):
    """A graphical model that mbi fits: its estimator and its steps, the tables of the fitted model as we compute them.

    mbi compiles programs for each new set of cliques. Stopping rule and limits are those of our own steps.
    """

    _estimated: Model | None = None

    def fit(self, *, steps: int, tolerance: float | None = None) -> None:
        """Take up to so many steps of mbi from where the potentials are."""
        require_mbi()
        jax, mbi = _packages()
        domain = mbi.Domain(tuple(self.sizes), tuple(self.sizes.values()))
        measured = list(self.measured.values())
        self._estimated = mbi.estimation.MirrorDescent().estimate(
            domain,
            [mbi.LinearMeasurement(one.values, one.names, stddev=float(one.variance) ** 0.5) for one in measured],
            known_total=estimated_total(measured),
            iters=steps,
            tol=tolerance,
            warm_start=self._estimated,
        )
        potentials = jax.block_until_ready(self._estimated.potentials)
        # mbi keeps potentials of the largest sets alone.
        self.potentials = {one.names: np.zeros(len(one.values)) for one in measured}
        self.potentials |= {names: np.asarray(potentials[names].datavector()) for names in potentials.cliques}
        super().fit(steps=0)


def _packages() -> tuple[Any, Any]:
    """Return JAX, in double precision, and mbi; by name, because neither is there when margrave is type-checked."""
    jax = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jax, import_module("mbi")


def clique_tree_of(model: Model) -> CliqueTree:
    """Return the junction tree of a model of mbi with the tables of its cliques."""
    mbi = import_module("mbi")
    graph, _ = mbi.junction_tree.make_junction_tree(model.domain, model.potentials.cliques)
    expanded = model.potentials.expand(list(graph.nodes))
    tables = mbi.marginal_oracles.message_passing_shafer_shenoy(expanded, 1.0, graph)
    import_module("jax").block_until_ready(tables)
    order: list[Names] = []
    parents: list[int | None] = []
    for root in graph.nodes:
        waiting: list[tuple[Names, int | None]] = [(root, None)] if root not in order else []
        while waiting:
            clique, parent = waiting.pop()
            waiting += [(other, len(order)) for other in graph.neighbors(clique) if other not in order]
            order.append(clique)
            parents.append(parent)
    factors = [Factor(names, np.asarray(tables[names].datavector(flatten=False))) for names in order]
    return CliqueTree(tuple(factors), tuple(parents))
