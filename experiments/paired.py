"""Paired trials: methods on the same tables with the same seeds, and the mean of their differences with its error.

``python -m experiments.paired run FOLDER TABLES EPSILONS METHODS TRIALS FILE`` adds rows to a file, and
``python -m experiments.paired compare BASE FILE`` prints the ratio of each method's mean error to that of BASE, with
the standard error of the mean paired difference. Lists have commas between. Not private: seeds are fixed, truth is
known.

docs/results/paired.csv also has rows of the method "version-0.1": `plan(objective="nonnegative")`, `measure` and
`reconstruct` with the same seeds, run in a checkout of the commit 643904a, the last one before estimator and plans
changed.
"""

from __future__ import annotations

import csv
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

import margrave as mg
from experiments.peer_methods import PEERS, Draw, order_errors, read_table

ORDER, DELTA, FIRST_SEED = 3, 1e-9, 5_000
COLUMNS = ("dataset", "order", "epsilon", "trial", "method", "l1_order1", "l1_order2", "l1_order3", "processor_seconds")


def run(folder: str, tables: str, epsilons: str, methods: str, trials: str, file: str) -> None:
    """Run every method on every table, ε and trial, and add a row for each to the file."""
    path = Path(file)
    begun = path.exists()
    with path.open("a", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        if not begun:
            writer.writerow(COLUMNS)
        for name in tables.split(","):
            dataset = read_table(Path(folder), name, ORDER)
            for epsilon in map(float, epsilons.split(",")):
                budget = mg.Budget.approx(epsilon=epsilon, delta=DELTA)
                for trial in range(int(trials)):
                    for method in methods.split(","):
                        begin = time.process_time()
                        answered = PEERS[method].run(dataset, Draw(budget, seed=FIRST_SEED + trial))
                        took = time.process_time() - begin
                        errors = [
                            f"{error:.6g}" for _, error in sorted(order_errors(dataset, answered.marginals).items())
                        ]
                        writer.writerow([name, ORDER, f"{epsilon:g}", trial, method, *errors, f"{took:.2f}"])
                        out.flush()


def compare(base: str, file: str) -> None:
    """Print, for each table and ε, the mean error of every method over that of one, by order."""
    found: dict[tuple[str, float], dict[tuple[str, int], list[float]]] = defaultdict(dict)
    with Path(file).open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows):
            errors = [float(row[f"l1_order{order}"]) for order in (3, 2, 1)]
            found[row["dataset"], float(row["epsilon"])][row["method"], int(row["trial"])] = errors
    for (name, epsilon), settings in found.items():
        for method in sorted({one for one, _ in settings} - {base}):
            trials = [trial for one, trial in settings if one == method and (base, trial) in settings]
            if not trials:
                continue
            shown = []
            for place in range(3):
                ours, theirs = ([settings[one, trial][place] for trial in trials] for one in (method, base))
                mean = fmean(theirs)
                differences = [(own - other) / mean for own, other in zip(ours, theirs, strict=True)]
                error = stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else float("nan")
                shown.append(f"{fmean(ours) / mean:.3f} ± {error:.3f}")
            told = f"{name}, ε = {epsilon:g}, {method}/{base}, three-, two-, one-way"
            sys.stdout.write(f"{told}: {', '.join(shown)} ({len(trials)} trials)\n")


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    (run if verb == "run" else compare)(*words)
