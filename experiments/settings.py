"""What a run of an experiment is asked to do, and the trials that follow from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import ExperimentError
from experiments.datasets import ORIGINS, fingerprint
from experiments.methods import MWEM, PRIVATE_PGM, RESIDUAL_PLANNER, find_methods
from experiments.records import DONE, Key, Record, latest

# The paper's settings.
EPSILONS = (0.1, 0.31, 1.0, 3.16, 10.0)
ROUNDS = (10, 20, 30)
DATASETS = tuple(ORIGINS)
DELTA, TRIALS = 1e-9, 5
# The error of the non-negative tables has settled by then, long before the certificate (docs/solver.md).
MAX_STEPS = 400
LIMIT_SECONDS, LIMIT_GB = 600.0, 20.0


@dataclass(frozen=True)
class Trial:
    """One draw of the noise, and the methods to be tried on it.

    Attributes
    ----------
    dataset, epsilon, rounds, number
        Which trial; rounds is 0 for ResidualPlanner.
    methods
        The keys of the methods.
    """

    dataset: str
    epsilon: float
    rounds: int
    number: int
    methods: tuple[str, ...]

    def __str__(self) -> str:
        rounds = f", {self.rounds} rounds" if self.rounds else ""
        return f"{self.dataset}, ε = {self.epsilon:g}{rounds}, trial {self.number}"


@dataclass(frozen=True)
class Settings:
    """What to run.

    Attributes
    ----------
    experiment
        "residual-planner" or "mwem".
    data
        The folder of the data sets.
    datasets, epsilons, rounds, trials, methods
        What to cross; rounds is (0,) for ResidualPlanner.
    pgm_trials
        In how many of the trials to run Private-PGM as well.
    delta, max_steps, repeat, seed
        Options that change results; a file of results has one value of each.
    limit_seconds, limit_gb
        The limits of one run of Private-PGM.
    jobs
        How many trials to run at once.
    retry
        Whether to run again what ended without a result.
    """

    experiment: str
    data: Path
    datasets: tuple[str, ...] = DATASETS
    epsilons: tuple[float, ...] = EPSILONS
    rounds: tuple[int, ...] = ROUNDS
    trials: int = TRIALS
    methods: tuple[str, ...] = ()
    pgm_trials: int = 1
    delta: float = DELTA
    max_steps: int = MAX_STEPS
    repeat: bool = False
    seed: int = 0
    limit_seconds: float = LIMIT_SECONDS
    limit_gb: float = LIMIT_GB
    jobs: int = 1
    retry: bool = False

    def __post_init__(self) -> None:
        """Check what was given, and fill in the methods."""
        for name in ("datasets", "epsilons", "rounds"):
            if not getattr(self, name):
                raise ExperimentError(f"{name} is empty; name at least one, or leave the option out")
        for name, least in (("trials", 1), ("pgm_trials", 0), ("max_steps", 1), ("jobs", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ExperimentError(f"{name} is {getattr(self, name)}; give a whole number of at least {least}")
        for name in ("limit_seconds", "limit_gb"):
            if not getattr(self, name) > 0:
                raise ExperimentError(f"{name} is {getattr(self, name)}; give a positive number")
        # As files show it, so that a row is found again.
        object.__setattr__(self, "delta", float(f"{self.delta:.6g}"))
        object.__setattr__(self, "epsilons", tuple(float(f"{epsilon:.6g}") for epsilon in self.epsilons))
        found = tuple(find_methods(self.experiment, list(self.methods) or None))
        object.__setattr__(self, "methods", found)
        if self.experiment == RESIDUAL_PLANNER:
            object.__setattr__(self, "rounds", (0,))

    @property
    def uses_pgm(self) -> bool:
        """Whether Private-PGM is to be run at all."""
        return self.experiment == MWEM and PRIVATE_PGM in self.methods and self.pgm_trials > 0

    def seed_of(self, dataset: str, epsilon: float, rounds: int, number: int) -> int:
        """Return the seed of a trial's noise: the same on every machine and whatever else is run."""
        named = f"{self.seed}/{self.experiment}/{dataset}/{epsilon:g}/{rounds}/{number}"
        return int.from_bytes(hashlib.sha256(named.encode()).digest()[:6])


def pending_trials(settings: Settings, records: Sequence[Record]) -> list[Trial]:
    """Return the trials that are still to be run, Private-PGM last and by itself.

    Parameters
    ----------
    settings
        What to run.
    records
        What has been run, by these settings or by others that the file may share.
    """
    check_options(settings, records)
    finished = {key for key, record in latest(records).items() if record.status == DONE or not settings.retry}
    own = [method for method in settings.methods if method != PRIVATE_PGM]
    foreign = [PRIVATE_PGM] if settings.uses_pgm else []
    return [
        trial
        for methods, most in ((own, settings.trials), (foreign, min(settings.trials, settings.pgm_trials)))
        for trial in _crossed(settings, methods, most, finished)
    ]


def _crossed(settings: Settings, methods: list[str], trials: int, finished: set[Key]) -> Iterable[Trial]:
    """Yield the trials of all settings, data set after data set, with the methods that are not finished."""
    for dataset in settings.datasets:
        for rounds in settings.rounds:
            for number in range(trials):
                for epsilon in settings.epsilons:
                    setting = (settings.experiment, dataset, epsilon, rounds, number)
                    missing = tuple(method for method in methods if (*setting, method) not in finished)
                    if missing:
                        yield Trial(dataset, epsilon, rounds, number, missing)


def check_options(settings: Settings, records: Sequence[Record]) -> None:
    """Refuse to mix results of different options in one file."""
    wanted = {
        "delta": settings.delta,
        "max_steps": settings.max_steps,
        "repeat": "yes" if settings.repeat else "no",
        "first_seed": settings.seed,
    }
    for record in records:
        for name, value in wanted.items():
            found = getattr(record, name)
            if found != value:
                option = {"first_seed": "--seed", "max_steps": "--max-steps"}.get(name, f"--{name}")
                raise ExperimentError(
                    f"the folder holds results with {option} {found}, and {option} {value} is asked for; "
                    "name another folder with --out, or ask for the same"
                )


def check_data(settings: Settings, records: Sequence[Record]) -> None:
    """Refuse to mix results of different tables of one name in one file."""
    for name in settings.datasets:
        found = {record.data for record in records if record.dataset == name}
        if found and found != {fingerprint(settings.data, name)}:
            raise ExperimentError(
                f"the folder holds results of another table than the {name!r} that is in {str(settings.data)!r} now; "
                "name another folder with --out, or give the table that they were made with"
            )
