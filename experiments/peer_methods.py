"""What is compared beside AIM and MST: each method takes a table, a budget and a seed, and returns a workload."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import margrave as mg
from experiments import ExperimentError
from experiments.aim import Names, aim
from experiments.datasets import Dataset, read_dataset
from experiments.generated import CHOOSING, JUDGING, KINDS, generate, names
from experiments.graphical_models import Model
from experiments.mst import mst
from experiments.private_pgm import MbiModel
from margrave.algebra.kernels import Floats
from margrave.algebra.layout import Layout
from margrave.errors import suggestion
from margrave.methods import NonNegative
from margrave.privacy.noise import InsecureSeededSource, Sampler, gaussian_sampler

GENERATED = (*names(CHOOSING), *names(JUDGING))
# What the plan "nonnegative" and the reconstruction were before estimator and plans changed.
BEFORE = "version-0.1"


@dataclass(frozen=True)
class Draw:
    """What a method is given beside the table: the budget, and the seed that noise and choices are drawn from."""

    budget: mg.Budget
    seed: int

    def sampler(self) -> Sampler:
        """Return margrave's sampler on a seeded source: the draws are exact, and not private."""
        return gaussian_sampler(source=InsecureSeededSource(self.seed).spawn(2)[0])

    def insecure_generator(self) -> np.random.Generator:
        """Return a seeded generator of numpy."""
        return np.random.default_rng(self.seed)


@dataclass(frozen=True, eq=False)
class Answered:
    """The tables that a method gives.

    Attributes
    ----------
    marginals
        A buffer of the workload's closure; the tables of the workload in it count.
    rho
        What was spent.
    chosen
        How many tables were chosen, where a method chooses.
    model_mb
        The size of the graphical model, where there is one.
    """

    marginals: Floats
    rho: float
    chosen: int = 0
    model_mb: float = float("nan")


@dataclass(frozen=True)
class Peer:
    """A method of the comparison.

    Attributes
    ----------
    key, label, colour
        What files, figures and tables call it, and its colour.
    run
        Returns the tables.
    confined
        Whether it runs in a process of its own, under limits.
    cap_mb
        The bound on the size of its model; zero if it has none.
    available
        Whether this margrave has it.
    by_default
        Whether it runs where no methods are named.
    """

    key: str
    label: str
    colour: str
    run: Callable[[Dataset, Draw], Answered]
    confined: bool = False
    cap_mb: float = 0.0
    available: Callable[[], bool] = lambda: True
    by_default: bool = True


def _zeros(dataset: Dataset, draw: Draw) -> Answered:
    """Publish zeros: an error of one, whatever the table."""
    return Answered(np.zeros(dataset.layout.cells), 0.0)


def _product(dataset: Dataset, draw: Draw) -> Answered:
    """Measure all one-way tables with the whole budget, and take every attribute for independent of the others."""
    domain, layout = dataset.workload.domain, dataset.layout
    release = _planned(dataset, draw, mg.Workload.all_kway(domain, 1))
    shares = [release.table(name).values for name in domain.attributes]
    total = max(float(shares[0].sum()), 0.0)
    shares = [share / share.sum() if share.sum() > 0 else np.full(len(share), 1 / len(share)) for share in shares]
    marginals = np.zeros(layout.cells)
    for members in dataset.workload.positions:
        table = reduce(np.multiply.outer, [shares[member] for member in members])
        layout.view(marginals, layout.places[members])[...] = total * table
    return Answered(marginals, float(draw.budget.rho))


def _planned(dataset: Dataset, draw: Draw, planned: mg.Workload, wanted: mg.Workload | None = None) -> mg.Release:
    """Measure by the plan for one workload and reconstruct the tables of another."""
    plan = mg.plan(planned, draw.budget, contributions=1, objective="nonnegative")
    measurements = mg.measure(plan, dataset.table, sampler=draw.sampler())
    return mg.reconstruct(measurements, wanted or planned, method=NonNegative(strict=False))


def _nonnegative(dataset: Dataset, draw: Draw) -> Answered:
    """Measure by the plan for non-negative tables, which knows neither N nor ε; the default reconstruction."""
    return Answered(_planned(dataset, draw, dataset.workload).marginals, float(draw.budget.rho))


def _pairs(dataset: Dataset, draw: Draw) -> Answered:
    """Measure by the same plan for all pairs, completed to the tables of the workload."""
    pairs = mg.Workload.all_kway(dataset.workload.domain, 2)
    return Answered(_planned(dataset, draw, pairs, dataset.workload).marginals, float(draw.budget.rho))


def _counts(dataset: Dataset, draw: Draw) -> Answered:
    """Measure the total first, then by the plan for it that expects the least error of counts."""
    measured = mg.residual_planner(
        dataset.table,
        dataset.workload,
        draw.budget,
        contributions=1,
        objective="counts",
        sampler=draw.sampler(),
    )
    release = mg.reconstruct(measured, dataset.workload, method=NonNegative(strict=False))
    return Answered(release.marginals, float(draw.budget.rho))


def _adaptive(dataset: Dataset, draw: Draw) -> Answered:
    """Measure in stages, each planned after the noise of those before."""
    planner: Any = mg.adaptive_planner
    measured = planner(dataset.table, dataset.workload, draw.budget, contributions=1, sampler=draw.sampler())
    release = mg.reconstruct(measured, dataset.workload, method=NonNegative(strict=False))
    return Answered(release.marginals, float(draw.budget.rho))


def _mst(dataset: Dataset, draw: Draw) -> Answered:
    found = mst(_sizes(dataset), _truth(dataset), rho=float(draw.budget.rho), draw=draw.insecure_generator())
    return Answered(_filled(dataset, found.table), found.rho, len(found.chosen))


def _aim(megabytes: float, estimator: type[Model] = Model) -> Callable[[Dataset, Draw], Answered]:
    def run(dataset: Dataset, draw: Draw) -> Answered:
        found = aim(
            _sizes(dataset),
            list(dataset.workload),
            _truth(dataset),
            rho=float(draw.budget.rho),
            draw=draw.insecure_generator(),
            max_megabytes=megabytes,
            estimator=estimator,
        )
        tree, total = found.model.tree, found.model.total
        marginals = _filled(dataset, lambda names: tree.table(names) * total)
        return Answered(marginals, found.rho, len(found.chosen), found.megabytes)

    return run


def _has_counts() -> bool:
    return "total_share" in inspect.signature(mg.residual_planner).parameters


PEERS: dict[str, Peer] = {
    peer.key: peer
    for peer in (
        Peer("zeros", "publish zeros", "#9CA3AF", _zeros),
        Peer("product", "product of one-way tables", "#CC79A7", _product),
        Peer("pairs", "plan for pairs, completed", "#E69F00", _pairs),
        Peer(BEFORE, "margrave, version 0.1", "#56B4E9", _nonnegative, available=lambda: not _has_counts()),
        Peer("nonnegative", "margrave, plan nonnegative", "#F0E442", _nonnegative, available=_has_counts),
        Peer("counts", "margrave, plan for counts", "#0072B2", _counts, available=_has_counts),
        Peer("adaptive", "margrave, adaptive", "#D55E00", _adaptive, available=lambda: hasattr(mg, "adaptive_planner")),
        Peer("mst", "MST", "#6B7280", _mst, confined=True),
        Peer("aim-8", "AIM, 8 MB", "#7FC8A9", _aim(8.0), confined=True, cap_mb=8.0),
        Peer("aim", "AIM, 80 MB", "#009E73", _aim(80.0), confined=True, cap_mb=80.0),
        Peer("aim-mbi", "AIM on mbi, 8 MB", "#332288", _aim(8.0, MbiModel), True, 8.0, by_default=False),
    )
}


def find_peers(keys: tuple[str, ...]) -> tuple[Peer, ...]:
    """Return the methods with these keys, in the order of figures; for none all that this margrave runs by default."""
    for key in keys:
        if key not in PEERS:
            raise ExperimentError(f"no method {key!r}{suggestion(key, PEERS)} (there are {', '.join(PEERS)})")
        if not PEERS[key].available():
            raise ExperimentError(f"method {key!r} needs another version of margrave than this one; leave it out")
    return tuple(
        peer for peer in PEERS.values() if peer.key in keys or (not keys and peer.by_default and peer.available())
    )


def is_generated(name: str) -> bool:
    """Tell whether a table is generated, and needs no folder."""
    return any(name in names(kind) for kind in KINDS)


def table_place(name: str) -> tuple[bool, int, str]:
    """Return where pages and figures show a table: public ones first, then the generated ones in their order."""
    return name in GENERATED, GENERATED.index(name) if name in GENERATED else 0, name


def read_table(folder: Path | None, name: str, order: int) -> Dataset:
    """Return a generated table, or one of a folder, with all its true tables of so many attributes."""
    if is_generated(name):
        dataset = _generated(name, order)
    elif folder is None:
        raise ExperimentError(f"{name!r} is not a generated table; name the folder of the others with --data")
    else:
        dataset = read_dataset(folder, name)
    if len(next(iter(dataset.workload))) == order:
        return dataset
    return _counted(dataset.name, dataset.table, dataset.workload.domain, order, dataset.fingerprint)


def _generated(name: str, order: int) -> Dataset:
    return table_of(name, *generate(name), order)


def table_of(name: str, sizes: Mapping[str, int], rows: NDArray[Any], order: int) -> Dataset:
    """Return rows of codes, shape (rows, attributes), as a data set with all its true tables of so many attributes."""
    import hashlib

    domain = mg.Domain.fromdict(sizes)
    table = mg.CodedTable(domain, dict(zip(domain.attributes, rows.T, strict=True)))
    shown = hashlib.sha256(repr(dict(sizes)).encode() + rows.astype("<i8").tobytes()).hexdigest()[:12]
    return _counted(name, table, domain, order, shown)


def _counted(name: str, table: mg.CodedTable, domain: mg.Domain, order: int, fingerprint: str) -> Dataset:
    """Return a data set with its true tables of so many attributes."""
    workload = mg.Workload.all_kway(domain, order)
    layout = Layout.of(domain.shape, workload.positions)
    truth = table.count(layout)
    rows = int(truth[layout.index.offset[layout.places[()]]])
    return Dataset(name, table, workload, layout, truth, rows, fingerprint)


def tiny_table() -> Dataset:
    """Return a table of two rows, on which methods are run once so that no time of the compiler is counted."""
    domain = mg.Domain.fromdict(dict.fromkeys("abcd", 2))
    return _counted("tiny", mg.CodedTable(domain, {name: [0, 1] for name in "abcd"}), domain, 3, "")


def order_errors(dataset: Dataset, marginals: Floats) -> dict[int, float]:
    """Return by order the mean over all tables of ‖μ̂ − μ‖₁/N; smaller tables are sums of those of the workload."""
    layout = dataset.layout
    errors: dict[int, list[float]] = {}
    done = set()
    for members in dataset.workload.positions:
        table = layout.view(marginals, layout.places[members])
        for place in layout.subsets(layout.places[members]):
            inner = layout.sets[place]
            if not inner or place in done:
                continue
            done.add(place)
            gone = tuple(axis for axis, member in enumerate(members) if member not in inner)
            difference = table.sum(axis=gone) - layout.view(dataset.truth, place)  # type: ignore[arg-type]
            errors.setdefault(len(inner), []).append(float(np.abs(difference).sum()) / dataset.rows)
    return {order: float(np.mean(found)) for order, found in sorted(errors.items())}


def _sizes(dataset: Dataset) -> Mapping[str, int]:
    domain = dataset.workload.domain
    return dict(zip(domain.attributes, domain.shape, strict=True))


def _truth(dataset: Dataset) -> Callable[[Names], Floats]:
    """Return a function from the names of a table to its true cells."""
    domain, layout = dataset.workload.domain, dataset.layout
    offset, counts = layout.index.offset, dataset.truth.astype(np.float64)

    def truth(names: Names) -> Floats:
        place = layout.places[domain.positions(names)]
        return counts[offset[place] : offset[place + 1]]

    return truth


def _filled(dataset: Dataset, table: Callable[[Names], Floats]) -> Floats:
    """Return a buffer with the tables of the workload."""
    layout, marginals = dataset.layout, np.zeros(dataset.layout.cells)
    for names_of, members in zip(dataset.workload, dataset.workload.positions, strict=True):
        layout.view(marginals, layout.places[members])[...] = table(names_of)
    return marginals
