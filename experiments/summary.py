r"""The numbers that a run comes to: errors by setting, averages of ratios as the paper quotes them, costs.

A *setting* is a data set, a number of rounds and an ε. The paper's "factor by which A lowers the error of B" is the
average, over settings and trials, of error(B)/error(A) on the same measurements. Beside it stands the average over
settings of the ratio of mean errors, and the least of these, which tells whether A wins everywhere.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from experiments.datasets import ORIGINS
from experiments.methods import METHODS, OURS, PRIVATE_PGM
from experiments.records import DONE, FAILED, MEMORY_LIMIT, TIME_LIMIT, Key, Record, latest

METRICS = ("l1", "l2", "l1_cells", "l2_cells")
# What the paper quotes for its GReM-LNN ([ReM] sec. 5): the other method, by experiment and rounds.
QUOTED = {
    ("residual-planner", 0): {"mle": 44.0, "trunc": 17.6, "trunc+rescale": 3.2},
    ("mwem", 30): {"mle": 12.3, "trunc+rescale": 1.1},
}
# [ReM] table 2: in how many of 25 trials Private-PGM was completed, took over 24 hours, took over 20 GB.
QUOTED_PGM = {
    ("titanic", 10): (25, 0, 0),
    ("titanic", 20): (25, 0, 0),
    ("titanic", 30): (25, 0, 0),
    ("adult", 10): (0, 25, 0),
    ("adult", 20): (14, 8, 3),
    ("adult", 30): (0, 0, 25),
    ("salary", 10): (11, 14, 0),
    ("salary", 20): (0, 0, 25),
    ("salary", 30): (0, 0, 25),
    ("nist-taxi", 10): (0, 0, 25),
    ("nist-taxi", 20): (0, 0, 25),
    ("nist-taxi", 30): (0, 0, 25),
}
Setting = tuple[str, int, float]
Ordered = TypeVar("Ordered", tuple[str, int], Setting)


@dataclass(frozen=True)
class Band:
    """The error of a method at a setting over all trials.

    Attributes
    ----------
    dataset, rounds, epsilon, method, metric
        Which error.
    trials
        How many trials there are.
    mean, least, most
        Their mean, minimum and maximum.
    """

    dataset: str
    rounds: int
    epsilon: float
    method: str
    metric: str
    trials: int
    mean: float
    least: float
    most: float


@dataclass(frozen=True)
class Ratio:
    """How many times larger the error of one method is than that of another, on the same measurements or budget.

    Attributes
    ----------
    rounds, metric, other, method
        error(other) / error(method).
    average
        Over all settings and trials, as the paper quotes it.
    of_means
        The average over settings of the ratio of mean errors.
    least
        The least of these.
    settings
        How many settings there are.
    quoted
        What the paper quotes for its own method; NaN if nothing.
    """

    rounds: int
    metric: str
    other: str
    method: str
    average: float
    of_means: float
    least: float
    settings: int
    quoted: float


@dataclass(frozen=True)
class Spent:
    """What a method costs on a data set: mean seconds, and the largest memory of any trial in megabytes."""

    dataset: str
    rounds: int
    method: str
    plan_seconds: float
    measure_seconds: float
    reconstruct_seconds: float
    plan_mb: float
    measure_mb: float
    reconstruct_mb: float


@dataclass(frozen=True)
class Completion:
    """In how many trials Private-PGM ran within its limits, and how its error compares with ours there.

    Attributes
    ----------
    dataset, rounds
        The setting, over all ε.
    trials, completed, over_time, over_memory, failed
        How the trials ended.
    seconds
        The mean time of those that were completed.
    error, ours
        Mean L1 error of Private-PGM and of margrave on the trials that Private-PGM completed.
    quoted
        How many of 25 trials the paper completed; −1 where it says nothing.
    """

    dataset: str
    rounds: int
    trials: int
    completed: int
    over_time: int
    over_memory: int
    failed: int
    seconds: float
    error: float
    ours: float
    quoted: int


def done_records(records: Iterable[Record], experiment: str) -> list[Record]:
    """Return the last row of each trial and method of an experiment that has a result."""
    return [record for record in latest(records).values() if record.experiment == experiment and record.status == DONE]


def bands(records: Sequence[Record], experiment: str, metric: str = "l1") -> list[Band]:
    """Return the error of each method at each setting, methods in the order of figures."""
    errors: dict[tuple[Setting, str], list[float]] = defaultdict(list)
    for record in done_records(records, experiment):
        errors[(record.dataset, record.rounds, record.epsilon), record.method].append(getattr(record, metric))
    return [
        Band(*setting, method, metric, len(found), fmean(found), min(found), max(found))
        for setting in _ordered({setting for setting, _ in errors})
        for method in METHODS[experiment]
        if (found := errors.get((setting, method)))
    ]


def ratios(records: Sequence[Record], experiment: str, methods: Sequence[str], metric: str = "l1") -> list[Ratio]:
    """Return error(other)/error(method) for every other method, for each of the methods and each number of rounds."""
    done = done_records(records, experiment)
    return [
        ratio
        for rounds in sorted({record.rounds for record in done})
        for method in methods
        for other in METHODS[experiment]
        if other != method
        and (ratio := _ratio([one for one in done if one.rounds == rounds], experiment, other, method, metric))
    ]


def _ratio(done: list[Record], experiment: str, other: str, method: str, metric: str) -> Ratio | None:
    """Return the ratio of two methods on the trials that both have finished, or None if there are none."""
    found: dict[str, dict[tuple[str, float, int], float]] = {other: {}, method: {}}
    for record in done:
        if record.method in found:
            found[record.method][record.dataset, record.epsilon, record.trial] = getattr(record, metric)
    both = [trial for trial in found[method] if trial in found[other] and found[method][trial] > 0]
    if not both:
        return None
    means: dict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
    for trial in both:
        means[trial[:2]].append((found[other][trial], found[method][trial]))
    of_means = [sum(a for a, _ in pairs) / sum(b for _, b in pairs) for pairs in means.values()]
    rounds = done[0].rounds
    return Ratio(
        rounds=rounds,
        metric=metric,
        other=other,
        method=method,
        average=fmean(found[other][trial] / found[method][trial] for trial in both),
        of_means=fmean(of_means),
        least=min(of_means),
        settings=len(of_means),
        quoted=QUOTED.get((experiment, rounds), {}).get(other, math.nan) if metric == "l1" else math.nan,
    )


def spent(records: Sequence[Record], experiment: str) -> list[Spent]:
    """Return what each method costs on each data set, methods in the order of figures."""
    groups: dict[tuple[str, int], dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in done_records(records, experiment):
        groups[record.dataset, record.rounds][record.method].append(record)
    return [
        _spent(groups[setting][method])
        for setting in _ordered(groups)
        for method in METHODS[experiment]
        if method in groups[setting]
    ]


def _spent(records: list[Record]) -> Spent:
    """Return the cost of one method on one data set."""
    first = records[0]
    return Spent(
        dataset=first.dataset,
        rounds=first.rounds,
        method=first.method,
        plan_seconds=fmean(record.plan_seconds for record in records),
        measure_seconds=fmean(record.measure_seconds for record in records),
        reconstruct_seconds=fmean(record.reconstruct_seconds for record in records),
        plan_mb=max(record.plan_mb for record in records),
        measure_mb=max(record.measure_mb for record in records),
        reconstruct_mb=max(record.reconstruct_mb for record in records),
    )


def completions(records: Sequence[Record]) -> list[Completion]:
    """Return how the runs of Private-PGM ended, by data set and number of rounds."""
    rows = latest(records)
    groups: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in rows.values():
        if record.method == PRIVATE_PGM:
            groups[record.dataset, record.rounds].append(record)
    return [_completion(setting, groups[setting], rows) for setting in _ordered(groups)]


def _completion(setting: tuple[str, int], runs: list[Record], rows: Mapping[Key, Record]) -> Completion:
    """Return how the runs at one setting ended."""
    ended = Counter(record.status for record in runs)
    completed = [record for record in runs if record.status == DONE]
    ours = [rows.get((*record.key[:-1], OURS)) for record in completed]
    judged = [record.l1 for record in ours if record is not None and record.status == DONE]
    return Completion(
        *setting,
        trials=len(runs),
        completed=len(completed),
        over_time=ended[TIME_LIMIT],
        over_memory=ended[MEMORY_LIMIT],
        failed=ended[FAILED],
        seconds=_mean(record.reconstruct_seconds for record in completed),
        error=_mean(record.l1 for record in completed),
        ours=_mean(judged) if len(judged) == len(completed) else math.nan,
        quoted=QUOTED_PGM[setting][0] if setting in QUOTED_PGM else -1,
    )


def _ordered(settings: Iterable[Ordered]) -> list[Ordered]:
    """Return settings, whatever their order, by data set as in the paper, then by rounds and ε."""
    known = list(ORIGINS)
    return sorted(settings, key=lambda one: (known.index(one[0]) if one[0] in known else len(known), *one))


def _mean(values: Iterable[float]) -> float:
    """Return the mean, NaN of nothing."""
    found = list(values)
    return fmean(found) if found else math.nan
