"""The non-negative solver and maximum likelihood on real measurements, each case in a process of its own.

Asked: a round at most 2.5 times the time to move 40 bytes a cell (adult-coarse, adult); from ResidualPlanner
measurements at ε = 1 of all three-way tables, the paper's weights, a gap of 1e-4 and a lift of 1e-3: titanic 2 s,
adult-coarse 20 s, nist-taxi 20 s, salary 90 s, adult 150 s, with at most five arrays of the workload's size; a hundred
attributes of ten values, 100 rounds in 300 s and 12 GB; maximum likelihood on titanic 20 ms, on adult 0.5 s.

Data sets are read from MARGRAVE_DATASETS (default: shared/datasets beside the project); what is missing is left out.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np
from timing import best_seconds, copy_seconds, peak_megabytes, report, resident_megabytes

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
FOLDER = Path(os.environ.get("MARGRAVE_DATASETS", Path(__file__).parents[2] / "shared" / "datasets"))
SECONDS = {"titanic": 2, "adult-coarse": 20, "nist-taxi": 20, "salary": 90, "adult": 150}
SCHEMES: dict[str, dict[str, object]] = {"paper": {}, "total held": {"hold": (0,)}, "8^-order": {"weights": 8.0}}


def estimates_of(name: str):  # noqa: ANN201 - the type would need the heavy imports of a case at the top
    """Return ResidualPlanner estimates of a data set at ε = 1."""
    from planner import measured_residuals

    from margrave.reconstruction.estimates import Estimates

    layout, _, residuals, variances = measured_residuals(FOLDER, name, 1.0)
    with np.errstate(divide="ignore"):
        return Estimates(layout, residuals, np.ones(len(layout.sets), dtype=np.int64), 1 / variances)


def compile_all() -> None:
    """Solve a tiny problem, so that no time and memory of the compiler is counted."""
    from margrave.algebra.layout import Layout
    from margrave.reconstruction.estimates import Estimates
    from margrave.reconstruction.nonnegative import reconstruct_nonnegative

    layout = Layout.of((2, 3, 2, 2), list(combinations(range(4), 3)))
    tables = len(layout.sets)
    values = np.linspace(-1, 1, layout.cells)
    reconstruct_nonnegative(Estimates(layout, values, np.ones(tables, dtype=np.int64), np.ones(tables)), max_steps=2)


def solve(name: str) -> None:
    """Time whole solves with three weightings, and the memory of the first."""
    from margrave.reconstruction.nonnegative import reconstruct_nonnegative

    estimates = estimates_of(name)
    array = 8e-6 * estimates.layout.cells
    compile_all()
    gc.collect()
    before = resident_megabytes()
    for scheme, options in SCHEMES.items():
        started = time.perf_counter()
        solution = reconstruct_nonnegative(estimates, **options)  # type: ignore[arg-type]
        report(
            f"solve {name}, {scheme}",
            time.perf_counter() - started,
            SECONDS[name],
            rounds=solution.steps,
            gap=float(f"{solution.gap:.2g}"),
            lift=float(f"{solution.lift:.2g}"),
            # The estimates themselves, and what the solver added at its peak (of all solves so far).
            arrays=round(1 + (peak_megabytes() - before) / array, 2),
        )
        del solution


def rounds(name: str) -> None:
    """Time single rounds against the bytes they must move."""
    from margrave.reconstruction.certificate import Problem
    from margrave.reconstruction.nonnegative import Ascent, solver_weights

    estimates = estimates_of(name)
    layout = estimates.layout
    weights = solver_weights(estimates, weights="paper", eta=None, hold=())
    ascent = Ascent(Problem(layout, estimates.values, weights))
    count = max(5, 100_000_000 // layout.cells)
    seconds = best_seconds(lambda: ascent.run(count)) / count
    # A copy moves 16 bytes a cell, a round 40.
    report(f"round {name}", seconds, 2.5 * copy_seconds(8 * layout.cells), cells=layout.cells)


def likelihood(name: str) -> None:
    """Time maximum likelihood on all three-way tables, measurements to tables."""
    from margrave.reconstruction.linear import maximum_likelihood

    estimates = estimates_of(name)
    seconds = best_seconds(lambda: maximum_likelihood(estimates))
    report(f"mle {name}", seconds, {"titanic": 0.02, "adult": 0.5}[name], cells=estimates.layout.cells)


def hundred() -> None:
    """Run 100 rounds on all three-way tables of a hundred attributes of ten values."""
    from margrave.algebra import transform
    from margrave.algebra.layout import Layout
    from margrave.reconstruction.estimates import Estimates
    from margrave.reconstruction.nonnegative import reconstruct_nonnegative

    compile_all()
    started = time.perf_counter()
    layout = Layout.of((10,) * 100, list(combinations(range(100), 3)))
    # Noise that is large against the cells (ten people each), so that half of them would be negative.
    values = np.random.default_rng(0).normal(scale=50.0, size=layout.cells)
    transform.center(layout, values, out=values)
    values[0] = 10_000.0
    tables = len(layout.sets)
    estimates = Estimates(layout, values, np.ones(tables, dtype=np.int64), np.ones(tables))
    set_up = time.perf_counter() - started
    started = time.perf_counter()
    solution = reconstruct_nonnegative(estimates, max_steps=100)
    seconds = time.perf_counter() - started
    more = {"set_up_seconds": round(set_up, 1), "rounds": solution.steps, "gap": float(f"{solution.gap:.2g}")}
    report("100 rounds of 10^100 3-way", seconds, 300, **more)


CASES = {
    **{f"round {name}": (rounds, name) for name in ("adult-coarse", "adult")},
    **{f"mle {name}": (likelihood, name) for name in ("titanic", "adult")},
    **{f"solve {name}": (solve, name) for name in SECONDS},
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        if sys.argv[1] == "hundred":
            hundred()
        else:
            run, data = CASES[sys.argv[1]]
            run(data)
    else:
        for case, (_, data) in CASES.items():
            if (FOLDER / f"{data}.csv.gz").exists():
                subprocess.run([sys.executable, __file__, case], check=True)
            else:
                print(json.dumps({"name": case, "left_out": f"no {data} in {FOLDER.name}; set MARGRAVE_DATASETS"}))
        subprocess.run([sys.executable, __file__, "hundred"], check=True)
