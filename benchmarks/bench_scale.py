"""The non-negative solver and the writing of tables divided among processes, and arrays on disk.

Asked: results equal to those of one process to rounding; a worker holds its share of three arrays and of the facets and
nothing else of that size; a round exchanges the inner tables only; 150 attributes of ten values (551 million cells),
which do not fit into the memory of this machine with the estimates and the measurements, are solved on disk.

Times depend on how many cores there are: processes that share two cores are no faster than two threads.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import numpy as np
from bench_nonnegative import compile_all, generated
from timing import report

ATTRIBUTES, VALUES = 50, 10
WRITTEN_ATTRIBUTES, RULE_ATTRIBUTES = 25, 30
PROCESSES = (1, 2, 4)
# Far below the default, so that rounds outweigh what is sent at the beginning and at the end.
TOLERANCE = 1e-8


def usage() -> tuple[float, float]:
    """Return the processor seconds and the peak memory, in MB, of the process that this runs in (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    # A process that was started by a large one has had that one's size for a moment, and getrusage remembers it.
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return time.process_time(), peak / 1e3


def workers() -> None:
    """Solve one problem in this process and then with 1, 2 and 4 others."""
    from distributed import Client

    from margrave.reconstruction.nonnegative import reconstruct_nonnegative
    from margrave.reconstruction.nonnegative.workers import _local_client, memory_of_part, partition, worker_pool

    compile_all()
    estimates = generated((VALUES,) * ATTRIBUTES, 20_000)
    layout = estimates.layout
    label = f"{ATTRIBUTES} attributes of {VALUES}"
    started, processor = time.perf_counter(), time.process_time()
    alone = reconstruct_nonnegative(estimates, tolerance=TOLERANCE)
    seconds = time.perf_counter() - started
    report(
        f"{label}, alone",
        seconds,
        seconds,
        processor_seconds=round(time.process_time() - processor, 2),
        cells=layout.cells,
        rounds=alone.steps,
    )
    small = generated((3,) * 6, 30)
    for count in PROCESSES:
        with _local_client(count) as client, worker_pool(client) as pool:
            assert isinstance(client, Client)
            reconstruct_nonnegative(small, workers=pool)  # loads the kernels
            before = client.run(usage)
            started, processor = time.perf_counter(), time.process_time()
            solution = reconstruct_nonnegative(estimates, tolerance=TOLERANCE, workers=pool)
            taken, own = time.perf_counter() - started, time.process_time() - processor
            after = client.run(usage)
        parts = [layout.restricted(first, last) for first, last in partition(layout, count)]
        report(
            f"{label}, {count} workers",
            taken,
            seconds,
            processor_seconds=round(own, 2),
            processor_seconds_of_workers=[round(after[one][0] - before[one][0], 2) for one in after],
            worker_mb=[round(after[one][1] - before[one][1]) for one in after],
            worker_mb_on_paper=[round(memory_of_part(one.index, one.outer, one.facet_cells) / 1e6) for one in parts],
            exchanged_mb_a_round=round(16e-6 * layout.inner_cells * count, 2),
            rounds=solution.steps,
            gap=float(f"{solution.gap:.2g}"),
            difference=float(np.abs(solution.marginals - alone.marginals).max() / alone.marginals[0]),
        )


def rule() -> None:
    """Apply the rule behind weights "auto" in this process and then with 1, 2 and 4 others."""
    from margrave.reconstruction.nonnegative.workers import _local_client, worker_pool
    from margrave.reconstruction.prior import automatic

    compile_all()
    estimates = generated((VALUES,) * RULE_ATTRIBUTES, 20_000)
    label = f"rule, {RULE_ATTRIBUTES} attributes of {VALUES}"
    started, processor = time.perf_counter(), time.process_time()
    alone = automatic(estimates)
    seconds, own = time.perf_counter() - started, time.process_time() - processor
    report(f"{label}, alone", seconds, seconds, processor_seconds=round(own, 2), cells=estimates.layout.cells)
    small = generated((3,) * 6, 30)
    for count in PROCESSES:
        with _local_client(count) as client, worker_pool(client) as pool:
            automatic(small, workers=pool)  # loads the kernels
            before = client.run(usage)
            started, processor = time.perf_counter(), time.process_time()
            choice = automatic(estimates, workers=pool)
            taken, own = time.perf_counter() - started, time.process_time() - processor
            after = client.run(usage)
        report(
            f"{label}, {count} workers",
            taken,
            seconds,
            processor_seconds=round(own, 2),
            processor_seconds_of_workers=[round(after[one][0] - before[one][0], 2) for one in after],
            worker_mb=[round(after[one][1] - before[one][1]) for one in after],
            difference=float(
                np.abs(choice.estimates.values - alone.estimates.values).max() / alone.estimates.values[0]
            ),
        )


def writing() -> None:
    """Write the tables of a release from this process and then from 1, 2 and 4 others."""
    import margrave as mg
    from margrave.reconstruction.nonnegative.workers import _local_client

    domain = mg.Domain([mg.Attribute(f"question{k}", size=VALUES) for k in range(WRITTEN_ATTRIBUTES)])
    workload, draw = mg.Workload.all_kway(domain, 3), np.random.default_rng(0)
    noisy = mg.Measurements.from_marginals(
        domain, [(names, draw.normal(20, 15, (VALUES,) * 3), 225.0) for names in workload]
    )
    release = mg.reconstruct(noisy, workload, method="mle")
    label = f"writing {len(workload):,} tables of {VALUES**3:,} cells"
    with tempfile.TemporaryDirectory() as folder:
        release.save(Path(folder, "first"))
        started, processor = time.perf_counter(), time.process_time()
        release.save(Path(folder, "alone"))
        seconds = time.perf_counter() - started
        report(f"{label}, alone", seconds, seconds, processor_seconds=round(time.process_time() - processor, 2))
        for count in PROCESSES:
            with _local_client(count) as client:
                release.save(Path(folder, f"first by {count}"), workers=client)
                before = client.run(usage)
                started, processor = time.perf_counter(), time.process_time()
                release.save(Path(folder, f"by {count}"), workers=client)
                taken, own = time.perf_counter() - started, time.process_time() - processor
                after = client.run(usage)
            report(
                f"{label}, {count} workers",
                taken,
                seconds,
                processor_seconds=round(own, 2),
                processor_seconds_of_workers=[round(after[one][0] - before[one][0], 2) for one in after],
            )


def on_the_way(attributes: int):  # noqa: ANN201 - the types would need the heavy imports at the top
    """Return estimates of a made-up table of attributes that go in pairs, with no array of their size in memory."""
    from planner import planned_variances, zcdp_of

    from margrave.algebra import transform
    from margrave.algebra.layout import Layout
    from margrave.memory import large_array
    from margrave.reconstruction.estimates import Estimates

    draw, rows = np.random.default_rng(attributes), 5_000
    columns = [draw.choice(VALUES, size=rows, p=draw.dirichlet(np.full(VALUES, 0.5))) for _ in range(attributes)]
    for even in range(0, attributes - 1, 2):
        same = draw.random(rows) < 0.5
        columns[even + 1][same] = columns[even][same]
    layout = Layout.of((VALUES,) * attributes, list(combinations(range(attributes), 3)))
    deviations = np.sqrt(planned_variances(layout, zcdp_of(1.0)))
    values, offset = large_array(layout.cells), layout.index.offset.tolist()
    for table, members in enumerate(layout.sets):
        codes = np.zeros(rows, dtype=np.int64)
        for attribute in members:
            codes = codes * VALUES + columns[attribute]
        counts = np.bincount(codes, minlength=VALUES ** len(members))
        values[offset[table] : offset[table + 1]] = counts + deviations[table] * draw.normal(size=counts.size)
    transform.center(layout, values, out=values)
    return Estimates(layout, values, np.ones(len(layout.sets), dtype=np.int64), 1 / deviations**2)


def scratch(attributes: int, folder: str | None) -> None:
    """Solve with the estimates and all arrays of the solver in files without a name."""
    from margrave.memory import on_disk
    from margrave.reconstruction.nonnegative import reconstruct_nonnegative

    compile_all()
    with tempfile.TemporaryDirectory(dir=folder) as room, on_disk(room):
        estimates = on_the_way(attributes)
        print(f"{estimates.layout.cells:,} cells counted", file=sys.stderr)
        started, processor = time.perf_counter(), time.process_time()
        solution = reconstruct_nonnegative(
            estimates, progress=lambda steps, gap: print(f"{steps} rounds, gap {gap:.2g}", file=sys.stderr)
        )
        report(
            f"{attributes} attributes of {VALUES} on disk",
            time.perf_counter() - started,
            3600,
            processor_seconds=round(time.process_time() - processor, 2),
            tables=len(estimates.layout.sets),
            cells=estimates.layout.cells,
            rounds=solution.steps,
            gap=float(f"{solution.gap:.2g}"),
            lift=float(f"{solution.lift:.2g}"),
        )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        scratch(int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
    elif len(sys.argv) > 1:
        {"workers": workers, "rule": rule, "writing": writing}[sys.argv[1]]()
    else:
        for case in (["workers"], ["rule"], ["writing"], ["scratch", "50"]):
            subprocess.run([sys.executable, __file__, *case], check=True)
