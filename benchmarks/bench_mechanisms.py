"""The mechanisms that measure, on real tables at ε = 1, δ = 1e-9, each case in a process of its own.

Asked: measuring adult's plan for all three-way tables (21 million samples) in 20 s on two cores; Scalable MWEM with 30
rounds on all three-way tables, after counting: adult-coarse 10 s, adult 60 s, salary 60 s, nist-taxi 20 s. Counting is
reported beside them.

Data sets are read from MARGRAVE_DATASETS (default: shared/datasets beside the project); cases without data are left
out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from timing import report

from margrave import CodedTable
from margrave.algebra.kernels import Integers
from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.mechanisms.residual_planner import measure
from margrave.mechanisms.scalable_mwem import scalable_mwem
from margrave.planning.plans import plan
from margrave.privacy.budget import Budget
from margrave.workload import Workload

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
FOLDER = Path(os.environ.get("MARGRAVE_DATASETS", Path(__file__).parents[2] / "shared" / "datasets"))
SECONDS = {"adult-coarse": 10, "adult": 60, "salary": 60, "nist-taxi": 20}
ROUNDS = 30
BUDGET = Budget.approx(epsilon=1, delta=1e-9)


class TimedTable(CodedTable):
    """A table that knows how long its last count took."""

    counting = 0.0

    def count(self, layout: Layout) -> Integers:
        """Return the exact counts, and keep the time."""
        started = time.perf_counter()
        counts = super().count(layout)
        self.counting = time.perf_counter() - started
        return counts


def table_of(name: str) -> TimedTable:
    """Return a data set."""
    from planner import read_columns

    domain = Domain.read(FOLDER / f"{name}-domain.json")
    columns = read_columns(FOLDER / f"{name}.csv.gz", domain)
    return TimedTable(domain, dict(zip(domain.attributes, columns, strict=True)))


def compile_all() -> None:
    """Run both mechanisms on a tiny table, so that no time of the compiler is counted."""
    domain = Domain.fromdict(dict.fromkeys("abcd", 2))
    source = CodedTable(domain, {name: [0, 1] for name in "abcd"})
    workload = Workload.all_kway(domain, 3)
    measure(plan(workload, BUDGET, contributions=1, objective="total_variance"), source)
    scalable_mwem(source, workload, BUDGET, contributions=1, rounds=1)


def measuring(name: str) -> None:
    """Time the measurement of all residuals of the three-way plan; planning and counting are told apart."""
    source = table_of(name)
    compile_all()
    started = time.perf_counter()
    made = plan(Workload.all_kway(source.domain, 3), BUDGET, contributions=1, objective="total_variance")
    planning = time.perf_counter() - started
    started = time.perf_counter()
    measure(made, source)
    seconds = time.perf_counter() - started - source.counting
    report(
        f"measure {name}",
        seconds,
        20,
        samples=made.layout.cells,
        planning_seconds=round(planning, 3),
        counting_seconds=round(source.counting, 3),
        million_samples_a_second=round(made.layout.cells / seconds / 1e6, 2),
    )


def choosing(name: str) -> None:
    """Time the rounds of Scalable MWEM."""
    source = table_of(name)
    workload = Workload.all_kway(source.domain, 3)
    compile_all()
    started = time.perf_counter()
    noisy = scalable_mwem(source, workload, BUDGET, contributions=1, rounds=ROUNDS)
    seconds = time.perf_counter() - started - source.counting
    chosen = {step.purpose for step in noisy.provenance.steps[2::2]} if noisy.provenance else set()
    report(
        f"scalable MWEM {name}",
        seconds,
        SECONDS[name],
        rounds=ROUNDS,
        cells=workload.cells,
        counting_seconds=round(source.counting, 3),
        different_tables=len(chosen),
    )


CASES = {
    "measure adult": (measuring, "adult"),
    **{f"scalable MWEM {name}": (choosing, name) for name in SECONDS},
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        run, data = CASES[sys.argv[1]]
        run(data)
    else:
        for case, (_, data) in CASES.items():
            if (FOLDER / f"{data}.csv.gz").exists():
                subprocess.run([sys.executable, __file__, case], check=True)
            else:
                print(json.dumps({"name": case, "left_out": f"no {data} in {FOLDER.name}; set MARGRAVE_DATASETS"}))
