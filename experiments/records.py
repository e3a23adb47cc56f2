"""One row of results: which trial and method, how near to the truth, at which cost, and all it takes to repeat it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

DONE, TIME_LIMIT, MEMORY_LIMIT, FAILED = "done", "time limit", "memory limit", "failed"
Key = tuple[str, str, float, int, int, str]


@dataclass(frozen=True)
class Record:
    """One method on one trial.

    Attributes
    ----------
    experiment, dataset, epsilon, rounds, trial, method
        Which trial and method; rounds is 0 where there are none. Together they are the key of the row.
    status
        "done", "time limit", "memory limit" or "failed".
    l1, l2, l1_cells, l2_cells
        The errors (``accuracy``).
    plan_seconds, measure_seconds, reconstruct_seconds, plan_mb, measure_mb, reconstruct_mb
        The cost of each step (``cost``).
    steps, gap
        Rounds and relative gap of the non-negative solver, where there is one.
    delta, max_steps, repeat, first_seed
        The options of the run that change results; ``repeat`` is "yes" or "no".
    data
        The fingerprint of the data set (``datasets``).
    seed
        What the noise of this trial was drawn from.
    limit_seconds, limit_gb
        The limits of a method that has some.
    jobs, threads
        How many trials ran at once, and on how many threads each.
    version
        The version of margrave.
    private
        "no": these numbers are made with the true counts and seeded noise.
    note
        Why a trial has no result.
    """

    experiment: str
    dataset: str
    epsilon: float
    rounds: int
    trial: int
    method: str
    status: str
    l1: float = math.nan
    l2: float = math.nan
    l1_cells: float = math.nan
    l2_cells: float = math.nan
    plan_seconds: float = math.nan
    measure_seconds: float = math.nan
    reconstruct_seconds: float = math.nan
    plan_mb: float = math.nan
    measure_mb: float = math.nan
    reconstruct_mb: float = math.nan
    steps: int = 0
    gap: float = math.nan
    delta: float = math.nan
    max_steps: int = 0
    repeat: str = "no"
    first_seed: int = 0
    data: str = ""
    seed: int = 0
    limit_seconds: float = math.nan
    limit_gb: float = math.nan
    jobs: int = 1
    threads: int = 1
    version: str = ""
    private: str = "no"
    note: str = ""

    @property
    def key(self) -> Key:
        """Which trial and method."""
        return self.experiment, self.dataset, self.epsilon, self.rounds, self.trial, self.method


def latest(records: Iterable[Record]) -> dict[Key, Record]:
    """Return the last row of each key: a trial that was run again counts as it ended last."""
    return {record.key: record for record in records}
