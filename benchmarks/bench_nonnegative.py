"""The non-negative solver and maximum likelihood, by size and by width, each case in a process of its own.

Asked, from ResidualPlanner measurements at ε = 1 of all three-way tables, to a gap of 1e-4 and a lift of 1e-3 (weights
"auto": ten times that): public tables in a quarter of the time of the dual method that this solver replaced where there
are 14 attributes or more, in half of it else, with at most six arrays of the workload's size; generated tables of 35
attributes and 42 million cells in 60 s; 10 to 60 attributes at equal cells in numbers of rounds within a factor of two;
a hundred attributes of ten values (162 million cells) in 600 s and 20 GB. Maximum likelihood on titanic 20 ms, on adult
0.5 s.

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
from timing import best_seconds, peak_megabytes, report, resident_megabytes

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
FOLDER = Path(os.environ.get("MARGRAVE_DATASETS", Path(__file__).parents[2] / "shared" / "datasets"))
# Seconds of the dual method on a quiet machine of two cores, and how many times faster this one is to be.
DUAL_SECONDS = {"titanic": 0.54, "adult-coarse": 4.6, "nist-taxi": 9.3, "salary": 39.0, "adult": 84.0}
ASKED = {"titanic": 2, "adult-coarse": 4, "nist-taxi": 2, "salary": 2, "adult": 4}
SCHEMES: dict[str, dict[str, object]] = {
    "paper": {},
    "total held": {"hold": (0,)},
    "8^-order": {"weights": 8.0},
    "auto": {},
}
# Attributes and values: about a million cells of all three-way tables each.
WIDTHS = {10: 20, 15: 13, 20: 10, 30: 6, 40: 5, 60: 3}
# Values, and numbers of attributes: more cells the wider.
EQUAL_VALUES = {5: (10, 20, 40), 10: (10, 20, 30), 20: (10, 15, 20)}


def measured(layout, truth, seed: int = 0):  # noqa: ANN001, ANN201 - the types would need the heavy imports at the top
    """Return estimates of the residuals of true tables as ResidualPlanner would measure them at ε = 1."""
    from planner import planned_variances, zcdp_of

    from margrave.algebra import transform
    from margrave.reconstruction.estimates import Estimates

    variances = planned_variances(layout, zcdp_of(1.0))
    values = np.random.default_rng(seed).normal(size=layout.cells)
    values *= np.repeat(np.sqrt(variances), np.diff(layout.index.offset))
    values += truth
    transform.center(layout, values, out=values)
    with np.errstate(divide="ignore"):
        return Estimates(layout, values, np.ones(len(layout.sets), dtype=np.int64), 1 / variances)


def public(name: str):  # noqa: ANN201
    """Return estimates of a data set."""
    from planner import count_tables, read_columns

    from margrave.algebra.layout import Layout
    from margrave.domain import Domain

    domain = Domain.read(FOLDER / f"{name}-domain.json")
    layout = Layout.of(domain.shape, list(combinations(range(len(domain)), 3)))
    return measured(layout, count_tables(layout, read_columns(FOLDER / f"{name}.csv.gz", domain)))


def generated(sizes: tuple[int, ...], rows: int):  # noqa: ANN201
    """Return estimates of a made-up table: rows of eight kinds, each with tables of one attribute of its own."""
    from planner import count_tables

    from margrave.algebra.layout import Layout

    draw = np.random.default_rng(len(sizes))
    kinds = draw.choice(8, size=rows, p=draw.dirichlet(np.ones(8)))
    columns = []
    for size in sizes:
        shares = np.cumsum(draw.dirichlet(np.full(size, 0.3), size=8), axis=1)[kinds]
        columns.append(np.minimum((draw.random(rows)[:, None] > shares).sum(axis=1), size - 1))
    layout = Layout.of(sizes, list(combinations(range(len(sizes)), 3)))
    return measured(layout, count_tables(layout, columns))


def solve(label: str, estimates, scheme: str, limit: float) -> None:  # noqa: ANN001
    """Time one whole solve, with its rounds and its memory in arrays of the workload's size."""
    from margrave.reconstruction.nonnegative import reconstruct_nonnegative
    from margrave.reconstruction.prior import automatic

    options, tolerance, more = SCHEMES[scheme], 1e-4, {}
    if scheme == "auto":
        began = time.process_time()
        choice = automatic(estimates)
        more = {"processor_seconds_of_rule": round(time.process_time() - began, 2)}
        estimates, tolerance = choice.estimates, choice.tolerance
        options = {"weights": choice.weights, "hold": choice.hold}
    array = 8e-6 * estimates.layout.cells
    gc.collect()
    before = resident_megabytes()
    started, processor = time.perf_counter(), time.process_time()
    solution = reconstruct_nonnegative(estimates, tolerance=tolerance, **options)  # type: ignore[arg-type]
    report(
        f"solve {label}, {scheme}",
        time.perf_counter() - started,
        limit,
        processor_seconds=round(time.process_time() - processor, 2),
        cells=estimates.layout.cells,
        rounds=solution.steps,
        gap=float(f"{solution.gap:.2g}"),
        lift=float(f"{solution.lift:.2g}"),
        # The estimates themselves, and what the solver added at its peak (of all solves so far).
        arrays=round(1 + (peak_megabytes() - before) / array, 2),
        **more,
    )


def compile_all() -> None:
    """Solve tiny problems, so that no time and memory of the compiler is counted."""
    from margrave.reconstruction.nonnegative import reconstruct_nonnegative
    from margrave.reconstruction.nonnegative.outer import LocalParts
    from margrave.reconstruction.nonnegative.problem import Problem
    from margrave.reconstruction.nonnegative.repair import lift
    from margrave.reconstruction.prior import automatic

    estimates = generated((2, 3, 2, 2), 30)
    layout = estimates.layout
    reconstruct_nonnegative(estimates, hold=(0,))
    automatic(estimates)
    problem = Problem(layout, estimates.values, np.ones(len(layout.sets)))
    lift(problem, LocalParts(problem), -np.ones(layout.inner_cells), 1.0)


def size(name: str) -> None:
    """Solve a public data set with all weightings."""
    compile_all()
    estimates = public(name)
    for scheme in SCHEMES:
        solve(name, estimates, scheme, DUAL_SECONDS[name] / ASKED[name])


def width() -> None:
    """Solve workloads of ever more attributes, at equal cells and of equally many values.

    The limit is that rounds stay within a factor of two.
    """
    compile_all()
    for values, widths in EQUAL_VALUES.items():
        for attributes in widths:
            solve(f"{attributes} attributes of {values}", generated((values,) * attributes, 20_000), "paper", 10)
    for scheme in ("paper", "auto"):
        for attributes, values in WIDTHS.items():
            solve(f"{attributes} attributes of {values}", generated((values,) * attributes, 20_000), scheme, 10)


def census() -> None:
    """Solve 35 attributes of 3 to 34 values, 42 million cells."""
    compile_all()
    sizes = tuple(np.random.default_rng(35).integers(3, 35, size=35).tolist())
    estimates = generated(sizes, 170_000)
    for scheme in ("paper", "auto"):
        solve("35 attributes of 3 to 34", estimates, scheme, 60)


def starts() -> None:
    """Solve again with noise added to the estimates, from nothing and from the solution."""
    from dataclasses import replace

    from margrave.algebra import transform
    from margrave.reconstruction.nonnegative import reconstruct_nonnegative

    compile_all()
    cases = {"20 attributes of 10": generated((10,) * 20, 20_000), "30 attributes of 5": generated((5,) * 30, 20_000)}
    if (FOLDER / "titanic.csv.gz").exists():
        cases["titanic"] = public("titanic")
    for label, estimates in cases.items():
        layout, solved = estimates.layout, reconstruct_nonnegative(estimates)
        noise = np.random.default_rng(1).normal(size=layout.cells)
        noise *= np.repeat(1 / np.sqrt(estimates.precisions), np.diff(layout.index.offset))
        transform.center(layout, noise, out=noise)
        for part in (0.0, 0.01, 0.1, 0.3, 1.0):
            moved = replace(estimates, values=estimates.values + part * noise)
            cold = reconstruct_nonnegative(moved)
            started = time.perf_counter()
            warm = reconstruct_nonnegative(moved, start=solved.state)
            seconds = time.perf_counter() - started
            report(
                f"start {label}, noise {part:g}", seconds, seconds, rounds=warm.steps, rounds_from_nothing=cold.steps
            )


def orders() -> None:
    """Time a round by the number of axes and their length, on one core, in nanoseconds a cell."""
    from margrave.algebra.layout import Layout
    from margrave.reconstruction.estimates import Estimates
    from margrave.reconstruction.nonnegative import Problem, Splitting

    os.environ["MARGRAVE_THREADS"] = "1"
    for order, values, attributes in ((2, 30, 50), (2, 10, 140), (3, 10, 20), (4, 7, 12), (4, 4, 20), (5, 4, 12)):
        layout = Layout.of((values,) * attributes, list(combinations(range(attributes), order)))
        ones = np.ones(len(layout.sets))
        drawn = np.random.default_rng(0).normal(size=layout.cells)
        estimates = Estimates(layout, drawn, ones.astype(np.int64), ones)
        rounds = Splitting(Problem(layout, estimates.values, ones))
        rounds.run(2)
        least = min(_processor_seconds(rounds) for _ in range(5))
        nanoseconds = 1e9 * least / layout.cells
        share = layout.facet_cells / layout.cells
        report(
            f"round of order {order}, {values} values",
            least,
            least,
            ns_a_cell=round(nanoseconds, 1),
            facets=round(share, 2),
        )


def _processor_seconds(rounds) -> float:  # noqa: ANN001
    """Return the processor time of one round."""
    started = time.process_time()
    rounds.step()
    return time.process_time() - started


def unfinished(name: str) -> None:
    """Compare tables after 50 rounds with solved ones: errors against the truth; the limit is one per cent."""
    from planner import count_tables, read_columns

    from margrave.domain import Domain
    from margrave.reconstruction.nonnegative import reconstruct_nonnegative
    from margrave.reconstruction.prior import automatic

    estimates = public(name)
    layout, domain = estimates.layout, Domain.read(FOLDER / f"{name}-domain.json")
    truth = count_tables(layout, read_columns(FOLDER / f"{name}.csv.gz", domain))
    outer = slice(layout.inner_cells, None)

    def error(tables: np.ndarray) -> float:
        return float(np.abs(tables[outer] - truth[outer]).sum() / (len(layout.sets) - layout.outer) / truth[0])

    choice = automatic(estimates)
    schemes = {
        "paper": (estimates, {"tolerance": 1e-4}),
        "auto": (
            choice.estimates,
            {"weights": choice.weights, "hold": choice.hold, "tolerance": choice.tolerance},
        ),
    }
    for scheme, (centres, options) in schemes.items():
        started = time.perf_counter()
        solved = reconstruct_nonnegative(centres, **options)
        seconds = time.perf_counter() - started
        early = reconstruct_nonnegative(centres, **{**options, "max_steps": 50})
        report(
            f"50 rounds {name}, {scheme}",
            seconds,
            seconds,
            rounds=solved.steps,
            error=round(error(solved.marginals), 4),
            error_after_50=round(error(early.marginals), 4),
            change=f"{error(early.marginals) / error(solved.marginals) - 1:+.2%}",
        )


def hundred() -> None:
    """Solve all three-way tables of a hundred attributes of ten values, to the end."""
    compile_all()
    solve("100 attributes of 10", generated((10,) * 100, 10_000), "paper", 600)


def likelihood(name: str) -> None:
    """Time maximum likelihood on all three-way tables, measurements to tables."""
    from margrave.reconstruction.estimates import maximum_likelihood

    estimates = public(name)
    seconds = best_seconds(lambda: maximum_likelihood(estimates))
    report(f"mle {name}", seconds, {"titanic": 0.02, "adult": 0.5}[name], cells=estimates.layout.cells)


CASES = {
    **{f"mle {name}": (likelihood, name) for name in ("titanic", "adult")},
    **{f"size {name}": (size, name) for name in DUAL_SECONDS},
    **{f"unfinished {name}": (unfinished, name) for name in DUAL_SECONDS},
}
GENERATED = {"width": width, "starts": starts, "orders": orders, "census": census, "hundred": hundred}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        if sys.argv[1] in GENERATED:
            GENERATED[sys.argv[1]]()
        else:
            run, data = CASES[sys.argv[1]]
            run(data)
    else:
        for case, (_, data) in CASES.items():
            if (FOLDER / f"{data}.csv.gz").exists():
                subprocess.run([sys.executable, __file__, case], check=True)
            else:
                print(json.dumps({"name": case, "left_out": f"no {data} in {FOLDER.name}; set MARGRAVE_DATASETS"}))
        for case in GENERATED:
            subprocess.run([sys.executable, __file__, case], check=True)
