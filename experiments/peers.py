"""The comparison beside AIM and MST: which trials, how they are run, and the file of results that only grows."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import margrave as mg
from experiments import ExperimentError
from experiments.confined import confined
from experiments.cost import peak_bytes
from experiments.datasets import ORIGINS, Dataset, fingerprint, require_datasets
from experiments.journal import Journal
from experiments.peer_methods import (
    GENERATED,
    PEERS,
    Answered,
    Draw,
    Peer,
    find_peers,
    order_errors,
    read_table,
    tiny_table,
)
from experiments.records import DONE, FAILED
from margrave.errors import MargraveError

FILE = "peers.csv"
EPSILONS, SLOW_EPSILONS = (0.1, 0.31, 1.0, 3.16, 10.0), (0.1, 1.0, 10.0)
DELTA, TRIALS, SLOW_TRIALS = 1e-9, 5, 1
LIMIT_SECONDS, LIMIT_GB = 900.0, 8.0
DATASETS = (*ORIGINS, "adult-coarse", *GENERATED)
Progress = Callable[[int, int, str], None]
Key = tuple[str, int, float, int, str]


@dataclass(frozen=True)
class PeerRecord:
    """One method on one trial.

    Attributes
    ----------
    dataset, order, epsilon, trial, method
        The key of the row; the workload is all tables of ``order`` attributes.
    status
        "done", "time limit", "memory limit" or "failed".
    l1_order1, l1_order2, l1_order3
        Mean over all tables of one, two and three attributes of ‖μ̂ − μ‖₁/N; NaN above the order of the workload.
    seconds, processor_seconds, megabytes
        What the run took; of a whole process, with its start, for methods that run in one of their own.
    rho, rho_spent
        The budget, and what the method spent of it.
    chosen, model_mb, cap_mb
        How many tables were chosen, the size of the graphical model, and its bound.
    rows, attributes, cells
        The size of the table, and the cells of the workload.
    delta, first_seed, seed, data
        What it takes to repeat the row: δ, the option --seed, the seed of the trial, the fingerprint of the table.
    limit_seconds, limit_gb, threads
        The limits of a method that has some (of processor time), and the threads of margrave.
    version
        The version of margrave.
    private
        "no": these numbers are made with the true counts and seeded noise.
    note
        Why a trial has no result.
    """

    dataset: str
    order: int
    epsilon: float
    trial: int
    method: str
    status: str
    l1_order1: float = math.nan
    l1_order2: float = math.nan
    l1_order3: float = math.nan
    seconds: float = math.nan
    processor_seconds: float = math.nan
    megabytes: float = math.nan
    rho: float = math.nan
    rho_spent: float = math.nan
    chosen: int = 0
    model_mb: float = math.nan
    cap_mb: float = 0.0
    rows: int = 0
    attributes: int = 0
    cells: int = 0
    delta: float = math.nan
    first_seed: int = 0
    seed: int = 0
    data: str = ""
    limit_seconds: float = math.nan
    limit_gb: float = math.nan
    threads: int = 1
    version: str = ""
    private: str = "no"
    note: str = ""

    @property
    def key(self) -> Key:
        """Which trial and method."""
        return self.dataset, self.order, self.epsilon, self.trial, self.method

    @property
    def l1(self) -> float:
        """The error of the tables of the workload."""
        return self.by_order(self.order)

    def by_order(self, order: int) -> float:
        """Return the error of the tables of so many attributes."""
        return {1: self.l1_order1, 2: self.l1_order2, 3: self.l1_order3}[order]


@dataclass(frozen=True)
class PeerSettings:
    """What to run.

    Attributes
    ----------
    data
        The folder of tables that are not generated; None if there are none.
    datasets, epsilons, methods
        What to cross; all methods that this margrave has for none.
    trials, slow_trials
        Draws of the noise for margrave's methods, and for AIM and MST.
    order
        The workload: all tables of so many attributes.
    delta, seed
        Options that change results; a file of results has one value of each.
    limit_seconds, limit_gb
        The limits of one run of AIM or MST.
    retry
        Whether to run again what ended without a result.
    """

    data: Path | None
    datasets: tuple[str, ...] = DATASETS
    epsilons: tuple[float, ...] = EPSILONS
    methods: tuple[str, ...] = ()
    trials: int = TRIALS
    slow_trials: int = SLOW_TRIALS
    order: int = 3
    delta: float = DELTA
    seed: int = 0
    limit_seconds: float = LIMIT_SECONDS
    limit_gb: float = LIMIT_GB
    retry: bool = False

    def __post_init__(self) -> None:
        """Check what was given."""
        for name in ("datasets", "epsilons"):
            if not getattr(self, name):
                raise ExperimentError(f"{name} is empty; name at least one, or leave the option out")
        for name, least in (("trials", 1), ("slow_trials", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise ExperimentError(f"{name} is {getattr(self, name)}; give a whole number of at least {least}")
        if self.order not in (2, 3):
            raise ExperimentError(f"order is {self.order}; the workload is all tables of 2 or of 3 attributes")
        for name in ("limit_seconds", "limit_gb"):
            if not getattr(self, name) > 0:
                raise ExperimentError(f"{name} is {getattr(self, name)}; give a positive number")
        # As files show it, so that a row is found again.
        object.__setattr__(self, "delta", float(f"{self.delta:.6g}"))
        object.__setattr__(self, "epsilons", tuple(float(f"{epsilon:.6g}") for epsilon in self.epsilons))
        object.__setattr__(self, "methods", tuple(peer.key for peer in find_peers(self.methods)))

    def seed_of(self, dataset: str, epsilon: float, trial: int) -> int:
        """Return the seed of a trial: the same for all methods and on every machine."""
        named = f"{self.seed}/peers/{dataset}/{self.order}/{epsilon:g}/{trial}"
        return int.from_bytes(hashlib.sha256(named.encode()).digest()[:6])


def latest(records: Sequence[PeerRecord]) -> dict[Key, PeerRecord]:
    """Return the last row of each key: a trial that was run again counts as it ended last."""
    return {record.key: record for record in records}


def pending(settings: PeerSettings, records: Sequence[PeerRecord]) -> list[Key]:
    """Return what is still to be run: table after table, ε after ε, the fast methods first."""
    for record in records:
        for name, value in (("delta", settings.delta), ("first_seed", settings.seed)):
            if getattr(record, name) != value:
                option = "--seed" if name == "first_seed" else "--delta"
                raise ExperimentError(
                    f"the folder holds results with {option} {getattr(record, name)}, and {option} {value} is asked "
                    "for; name another folder with --out, or ask for the same"
                )
    finished = {key for key, record in latest(records).items() if record.status == DONE or not settings.retry}
    return [key for key in _crossed(settings) if key not in finished]


def _crossed(settings: PeerSettings) -> Iterator[Key]:
    """Yield all keys of a run."""
    for dataset in settings.datasets:
        for epsilon in settings.epsilons:
            for method in settings.methods:
                peer = PEERS[method]
                if peer.confined and epsilon not in SLOW_EPSILONS:
                    continue
                for trial in range(settings.slow_trials if peer.confined else settings.trials):
                    yield dataset, settings.order, epsilon, trial, method


def run_peers(settings: PeerSettings, folder: Path, *, progress: Progress | None = None) -> list[PeerRecord]:
    """Run what is not in the folder yet, and return all rows of its file.

    Parameters
    ----------
    settings
        What to run.
    folder
        Where ``peers.csv`` is kept.
    progress
        Called with the runs done, the runs in all, and what was done last.
    """
    foreign = [name for name in settings.datasets if name not in GENERATED]
    if foreign and settings.data is None:
        raise ExperimentError(f"{foreign[0]!r} is not a generated table; name the folder of the others with --data")
    if foreign and settings.data is not None:
        require_datasets(settings.data, foreign)
    with Journal(folder / FILE, PeerRecord) as journal:
        _check_data(settings, journal.rows)
        keys = pending(settings, journal.rows)
        _warm_up({key[4] for key in keys})
        dataset: Dataset | None = None
        for done, key in enumerate(keys, start=1):
            if dataset is None or dataset.name != key[0]:
                dataset = read_table(settings.data, key[0], settings.order)
            journal.append(run_peer(settings, dataset, key))
            if progress is not None:
                progress(done, len(keys), f"{key[0]}, ε = {key[2]:g}, trial {key[3]}, {key[4]}")
        return journal.rows


def _warm_up(methods: set[str]) -> None:
    """Compile what the methods of this process run."""
    for method in sorted(methods):
        if not PEERS[method].confined:
            PEERS[method].run(tiny_table(), Draw(mg.Budget.zcdp(rho=1), 0))


def run_peer(settings: PeerSettings, dataset: Dataset, key: Key) -> PeerRecord:
    """Return the row of one method on one trial."""
    name, order, epsilon, trial, method = key
    peer, seed = PEERS[method], settings.seed_of(name, epsilon, trial)
    budget = mg.Budget.approx(epsilon=epsilon, delta=settings.delta)
    blank = PeerRecord(
        dataset=name,
        order=order,
        epsilon=epsilon,
        trial=trial,
        method=method,
        status=FAILED,
        rho=float(budget.rho),
        cap_mb=peer.cap_mb,
        rows=dataset.rows,
        attributes=len(dataset.workload.domain),
        cells=int(sum(math.prod(dataset.layout.sizes[k] for k in members) for members in dataset.workload.positions)),
        delta=settings.delta,
        first_seed=settings.seed,
        seed=seed,
        data=dataset.fingerprint,
        threads=int(os.environ.get("MARGRAVE_THREADS") or os.cpu_count() or 1),
        version=mg.__version__,
    )
    draw = Draw(budget, seed)
    return _confined(settings, peer, blank) if peer.confined else _here(peer, dataset, draw, blank)


def _here(peer: Peer, dataset: Dataset, draw: Draw, blank: PeerRecord) -> PeerRecord:
    """Run a method of margrave in this process."""
    started, used = time.perf_counter(), time.process_time()
    try:
        answered = peer.run(dataset, draw)
    except MargraveError as error:
        return replace(blank, note=str(error))
    blank = replace(blank, seconds=time.perf_counter() - started, processor_seconds=time.process_time() - used)
    return _judged(replace(blank, megabytes=peak_bytes() / 1e6), answered, order_errors(dataset, answered.marginals))


def _confined(settings: PeerSettings, peer: Peer, blank: PeerRecord) -> PeerRecord:
    """Run AIM or MST in a process of its own."""
    seconds, gigabytes = settings.limit_seconds, settings.limit_gb
    found = confined(answer, settings, blank, limit_seconds=seconds, limit_gb=gigabytes)
    blank = replace(
        blank,
        status=found.status,
        note=found.note,
        seconds=found.seconds,
        processor_seconds=found.processor_seconds,
        megabytes=found.megabytes,
        limit_seconds=seconds,
        limit_gb=gigabytes,
    )
    return blank if found.value is None else _judged(blank, *found.value)


def answer(settings: PeerSettings, blank: PeerRecord) -> tuple[Answered, dict[int, float]]:
    """Run a method on a table that is read anew; return what it found, without its tables, and the errors."""
    dataset = read_table(settings.data, blank.dataset, blank.order)
    draw = Draw(mg.Budget.approx(epsilon=blank.epsilon, delta=blank.delta), blank.seed)
    answered = PEERS[blank.method].run(dataset, draw)
    return replace(answered, marginals=answered.marginals[:0]), order_errors(dataset, answered.marginals)


def _judged(record: PeerRecord, answered: Answered, errors: dict[int, float]) -> PeerRecord:
    """Return the row with its errors."""
    return replace(
        record,
        status=DONE,
        l1_order1=errors[1],
        l1_order2=errors[2],
        l1_order3=errors.get(3, math.nan),
        rho_spent=answered.rho,
        chosen=answered.chosen,
        model_mb=answered.model_mb,
    )


def _check_data(settings: PeerSettings, records: Sequence[PeerRecord]) -> None:
    """Refuse to mix results of different tables of one name in one file."""
    for name in settings.datasets:
        found = {record.data for record in records if record.dataset == name}
        if not found:
            continue
        if name in GENERATED:
            now = read_table(None, name, 2).fingerprint
        else:
            assert settings.data is not None
            now = fingerprint(settings.data, name)
        if found != {now}:
            raise ExperimentError(
                f"the folder holds results of another table than the {name!r} that there is now; "
                "name another folder with --out, or give the table that they were made with"
            )
