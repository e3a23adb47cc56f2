"""One trial: measure a benchmark table with seeded noise, reconstruct by each method, compare with the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from experiments.accuracy import accuracy
from experiments.cost import Cost, costed
from experiments.datasets import Dataset, read_dataset
from experiments.methods import METHODS, MWEM, PAPER_PLAN, PRIVATE_PGM, Method, apply_method, make_plan
from experiments.private_pgm import private_pgm
from experiments.records import DONE, FAILED, Record
from experiments.settings import Settings, Trial
from margrave.algebra.kernels import Floats, thread_count
from margrave.errors import MargraveError
from margrave.measurements import Measurements
from margrave.mechanisms.residual_planner import measure
from margrave.mechanisms.scalable_mwem import scalable_mwem
from margrave.privacy.budget import Budget
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler

_NO_COST = Cost(0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Measured:
    """Measurements and what it cost to plan and to make them."""

    measurements: Measurements
    planning: Cost
    measuring: Cost


def run_trial(settings: Settings, trial: Trial) -> Iterator[Record]:
    """Yield one row for each method of a trial, as they are done.

    Parameters
    ----------
    settings
        The run that the trial belongs to.
    trial
        Which one.
    """
    dataset = read_dataset(settings.data, trial.dataset)
    seed = settings.seed_of(trial.dataset, trial.epsilon, trial.rounds, trial.number)
    blank = _blank(settings, trial, dataset, seed)
    measured: dict[str, Measured] = {}
    for key in trial.methods:
        method = METHODS[settings.experiment][key]
        if method.plan not in measured:
            measured[method.plan] = _measured(settings, trial, dataset, method.plan, seed)
        record = _with_costs(replace(blank, method=key), measured[method.plan])
        yield _judged(settings, dataset, method, measured[method.plan].measurements, record)


def warm_up() -> None:
    """Compile what trials run on a tiny table, so that no time of the compiler is counted."""
    from margrave import CodedTable
    from margrave.domain import Domain
    from margrave.workload import Workload

    domain = Domain.fromdict(dict.fromkeys("abcd", 2))
    table, budget = CodedTable(domain, {name: [0, 1] for name in "abcd"}), Budget.zcdp(rho=1)
    workload = Workload.all_kway(domain, 3)
    measurements = measure(make_plan(PAPER_PLAN, workload, budget), table)
    scalable_mwem(table, workload, budget, contributions=1, rounds=2)
    for method in METHODS[MWEM].values():
        if method.key != PRIVATE_PGM:
            apply_method(method, measurements, workload, max_steps=20)


def _measured(settings: Settings, trial: Trial, dataset: Dataset, plan_name: str, seed: int) -> Measured:
    """Measure a data set by a mechanism, with noise from a seed."""
    budget = Budget.approx(epsilon=trial.epsilon, delta=settings.delta)
    noise, choices = InsecureSeededSource(seed).spawn(2)
    sampler = gaussian_sampler(source=noise)
    if settings.experiment == MWEM:
        measurements, measuring = costed(
            lambda: scalable_mwem(
                dataset.table,
                dataset.workload,
                budget,
                contributions=1,
                rounds=trial.rounds,
                repeat=settings.repeat,
                sampler=sampler,
                entropy=choices,
            )
        )
        return Measured(measurements, _NO_COST, measuring)
    planned, planning = costed(lambda: make_plan(plan_name, dataset.workload, budget))
    measurements, measuring = costed(lambda: measure(planned, dataset.table, sampler=sampler))
    return Measured(measurements, planning, measuring)


def _judged(settings: Settings, dataset: Dataset, method: Method, measurements: Measurements, record: Record) -> Record:
    """Return the record of a method with its error and its cost, or with the reason why it has none."""
    try:
        if method.key == PRIVATE_PGM:
            return _judged_pgm(settings, dataset, measurements, record)
        applied, cost = costed(
            lambda: apply_method(method, measurements, dataset.workload, max_steps=settings.max_steps)
        )
    except MargraveError as error:
        return replace(record, status=FAILED, note=str(error))
    record = replace(record, steps=applied.steps, gap=applied.gap)
    return _done(record, dataset, applied.marginals, cost)


def _judged_pgm(settings: Settings, dataset: Dataset, measurements: Measurements, record: Record) -> Record:
    """Return the record of a run of Private-PGM."""
    seconds, gigabytes = settings.limit_seconds, settings.limit_gb
    outcome = private_pgm(measurements, dataset.workload, dataset.layout, limit_seconds=seconds, limit_gb=gigabytes)
    record = replace(record, status=outcome.status, note=outcome.note, limit_seconds=seconds, limit_gb=gigabytes)
    if outcome.marginals is None:
        return replace(record, reconstruct_seconds=outcome.cost.seconds, reconstruct_mb=outcome.cost.megabytes)
    return _done(record, dataset, outcome.marginals, outcome.cost)


def _done(record: Record, dataset: Dataset, marginals: Floats, cost: Cost) -> Record:
    """Return the record with the errors of the tables."""
    found = accuracy(dataset, marginals)
    return replace(
        record,
        status=DONE,
        l1=found.l1,
        l2=found.l2,
        l1_cells=found.l1_cells,
        l2_cells=found.l2_cells,
        reconstruct_seconds=cost.seconds,
        reconstruct_mb=cost.megabytes,
    )


def _blank(settings: Settings, trial: Trial, dataset: Dataset, seed: int) -> Record:
    """Return what all rows of a trial have in common."""
    from margrave import __version__

    return Record(
        experiment=settings.experiment,
        dataset=trial.dataset,
        epsilon=trial.epsilon,
        rounds=trial.rounds,
        trial=trial.number,
        method="",
        status=FAILED,
        delta=settings.delta,
        max_steps=settings.max_steps,
        repeat="yes" if settings.repeat else "no",
        first_seed=settings.seed,
        data=dataset.fingerprint,
        seed=seed,
        jobs=settings.jobs,
        threads=thread_count(),
        version=__version__,
    )


def _with_costs(record: Record, measured: Measured) -> Record:
    """Return the record with the cost of planning and measuring."""
    return replace(
        record,
        plan_seconds=measured.planning.seconds,
        plan_mb=measured.planning.megabytes,
        measure_seconds=measured.measuring.seconds,
        measure_mb=measured.measuring.megabytes,
    )
