"""Paired trials: methods on the same tables with the same seeds, and the mean of their differences with its error.

    python -m experiments.paired run FILE --tables titanic,binary-1 --epsilons 0.1,1,10 --methods adaptive,pairs
    python -m experiments.paired compare FILE --base version-0.1

``run`` adds to a file what is not in it yet, and ``compare`` prints the ratio of each method's mean error to that of a
base, with the standard error of the mean paired difference. Not private: seeds are fixed, truth is known.

The method "version-0.1" is `plan(objective="nonnegative")`, `measure` and `reconstruct` of the commit 643904a, the last
one before estimator and plans changed. It runs with that commit's ``src`` in place of ours:

    PYTHONPATH=OLD/src:. python -m experiments.paired run FILE --methods version-0.1 …

``python -m experiments.paired page FOLDER`` writes the page of the file ``paired.csv`` of a folder.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import margrave as mg
from experiments.datasets import Dataset
from experiments.journal import Journal, read_rows
from experiments.peer_methods import BEFORE, Draw, find_peers, order_errors, read_table, tiny_table

FILE = "paired.csv"
DELTA, FIRST_SEED = 1e-9, 5_000
# An error may be above that of a base by so much, beyond two standard errors.
ALLOWED = 0.02
Setting = tuple[str, int, float]
Key = tuple[str, int, float, int, str]


@dataclass(frozen=True)
class Trial:
    """One method on one trial.

    Attributes
    ----------
    dataset, order, epsilon, trial, method
        The key of the row; the workload is all tables of ``order`` attributes, the seed `FIRST_SEED` and the trial.
    l1_order1, l1_order2, l1_order3
        Mean over all tables of one, two and three attributes of ‖μ̂ − μ‖₁/N; NaN above the order of the workload.
    processor_seconds
        What the run took.
    """

    dataset: str
    order: int
    epsilon: float
    trial: int
    method: str
    l1_order1: float
    l1_order2: float
    l1_order3: float
    processor_seconds: float

    @property
    def key(self) -> Key:
        """Which trial and method."""
        return self.dataset, self.order, self.epsilon, self.trial, self.method


@dataclass(frozen=True)
class Compared:
    """A method beside a base at one setting, by the order of the tables compared.

    Attributes
    ----------
    method
        The method.
    ratios
        By order, the mean error over that of the base.
    errors
        By order, the standard error of the mean paired difference, over the mean error of the base; NaN for one trial.
    trials
        How many trials both have.
    """

    method: str
    ratios: dict[int, float]
    errors: dict[int, float]
    trials: int

    def worse(self, order: int, allowed: float = ALLOWED) -> bool:
        """Tell whether the error is above the base's by more than is allowed, beyond two standard errors."""
        return self.ratios[order] - 2 * self.errors[order] > 1 + allowed


def run(
    file: Path,
    tables: Sequence[str],
    epsilons: Sequence[float],
    methods: Sequence[str],
    *,
    trials: int = 5,
    order: int = 3,
    data: Path | None = None,
) -> None:
    """Run every method on every table, ε and trial that the file does not have, and add a row for each."""
    peers = find_peers(tuple(methods))
    for peer in peers:  # so that no row has the time of the compiler
        peer.run(tiny_table(), Draw(mg.Budget.zcdp(rho=1), 0))
    with Journal(file, Trial) as journal:
        done = {row.key for row in journal.rows}
        for name in tables:
            dataset: Dataset | None = None
            for epsilon, trial, peer in product(epsilons, range(trials), peers):
                key = (name, order, epsilon, trial, peer.key)
                if key in done:
                    continue
                dataset = dataset or read_table(data, name, order)
                draw = Draw(mg.Budget.approx(epsilon=epsilon, delta=DELTA), FIRST_SEED + trial)
                begin = time.process_time()
                answered = peer.run(dataset, draw)
                took = time.process_time() - begin
                journal.append(_row(key, order_errors(dataset, answered.marginals), took))


def _row(key: Key, errors: Mapping[int, float], took: float) -> Trial:
    """Return the row of a trial from its errors by order."""
    first, second, third = (errors.get(order, math.nan) for order in (1, 2, 3))
    return Trial(*key, l1_order1=first, l1_order2=second, l1_order3=third, processor_seconds=took)


def compare(rows: Sequence[Trial], base: str) -> Iterator[tuple[Setting, Compared]]:
    """Yield, for each table, workload and ε, every other method beside the base, on the trials that both have."""
    found: dict[Setting, dict[str, dict[int, Trial]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[row.dataset, row.order, row.epsilon][row.method][row.trial] = row
    for setting, methods in found.items():
        for method in sorted(set(methods) - {base}):
            both = sorted(set(methods[method]) & set(methods.get(base, {})))
            if both:
                pairs = [(methods[method][trial], methods[base][trial]) for trial in both]
                yield setting, _compared(method, pairs, setting[1])


def _compared(method: str, pairs: Sequence[tuple[Trial, Trial]], order: int) -> Compared:
    """Return a method beside a base on the same trials."""
    ratios, errors = {}, {}
    for of in range(order, 0, -1):
        ours, theirs = ([getattr(pair[side], f"l1_order{of}") for pair in pairs] for side in (0, 1))
        mean = fmean(theirs)
        differences = [(own - other) / mean for own, other in zip(ours, theirs, strict=True)]
        ratios[of] = fmean(ours) / mean
        errors[of] = stdev(differences) / len(pairs) ** 0.5 if len(pairs) > 1 else math.nan
    return Compared(method, ratios, errors, len(pairs))


def told(rows: Sequence[Trial], base: str) -> Iterator[str]:
    """Yield a line for each comparison with a base."""
    for (name, order, epsilon), one in compare(rows, base):
        shown = ", ".join(f"{of}-way {ratio:.3f} ± {one.errors[of]:.3f}" for of, ratio in one.ratios.items())
        mark = " WORSE" if one.worse(order) else ""
        workload = f"all {order}-way tables"
        yield f"{name}, {workload}, ε = {epsilon:g}, {one.method}/{base}: {shown} ({one.trials} trials){mark}"


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.paired")
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run", help="add trials to a file")
    running.add_argument("file", type=Path)
    running.add_argument("--data", type=Path, help="folder of the tables that are not generated")
    running.add_argument("--tables", required=True, help="names, with commas")
    running.add_argument("--epsilons", default="0.1,1,10", help="with commas")
    running.add_argument("--methods", default="product,pairs,counts,adaptive", help="with commas")
    running.add_argument("--trials", type=int, default=5)
    running.add_argument("--order", type=int, default=3, choices=(2, 3), help="all tables of so many attributes")
    comparing = verbs.add_parser("compare", help="print ratios to the errors of a base")
    comparing.add_argument("file", type=Path)
    comparing.add_argument("--base", default=BEFORE)
    paging = verbs.add_parser("page", help="write the page of a folder's paired.csv")
    paging.add_argument("folder", type=Path)
    given = parser.parse_args(words)
    if given.verb == "page":
        from experiments.paired_page import write_paired_page

        sys.stdout.write(f"{write_paired_page(given.folder)}\n")
        return
    if given.verb == "compare":
        sys.stdout.writelines(f"{line}\n" for line in told(read_rows(given.file, Trial), given.base))
        return
    run(
        given.file,
        given.tables.split(","),
        [float(epsilon) for epsilon in given.epsilons.split(",")],
        given.methods.split(","),
        trials=given.trials,
        order=given.order,
        data=given.data,
    )


if __name__ == "__main__":
    main()
