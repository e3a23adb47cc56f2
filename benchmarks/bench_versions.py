"""The solver and Scalable MWEM beside those of version 0.1, both in one run: processor seconds, in turns.

Version 0.1 is checked out of the history of the repository (the last commit with the dual method) into a temporary
folder, and runs in the same environment in processes of its own. Solvers get the same problem, from a file. Asked of
whole solves, gap and lift within the tolerance: a quarter of the time where there are 14 attributes or more, half of
it else; of everything else at most a tenth more.

`python benchmarks/bench_versions.py NAME …` for some of the public data sets, by default the three small ones;
`mwem NAME` for the rounds of Scalable MWEM. Without the history, or without a data set, a case is left out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

HERE = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("MARGRAVE_DATASETS", HERE.parent / "shared" / "datasets"))
BEFORE = "461396d7fc8a71260219080548121307ab9c4318"
SMALL = ("titanic", "adult-coarse", "nist-taxi")
ASKED = {"titanic": 2, "adult-coarse": 4, "nist-taxi": 2, "salary": 2, "adult": 4}
TURNS = 3


def solve_child(problem: str, scheme: str) -> None:
    """Solve a problem from a file with whatever margrave is on the path, and print what it took."""
    from margrave.algebra import transform
    from margrave.algebra.layout import Layout
    from margrave.reconstruction.nonnegative import reconstruct_nonnegative

    try:
        from margrave.reconstruction.estimates import Estimates
    except ImportError:
        from margrave.reconstruction.losses import Estimates  # type: ignore[import-not-found,no-redef]  # version 0.1
    from itertools import combinations

    stored = np.load(problem)
    small = Layout.of((2, 3, 2, 2), list(combinations(range(4), 3)))
    ones = np.ones(len(small.sets))
    values = transform.center(small, np.cos(np.arange(small.cells)))
    values[0] = 1.0
    tiny = Estimates(small, values, ones.astype(np.int64), ones)
    reconstruct_nonnegative(tiny, max_steps=30, weights=ones, hold=(0,))
    reconstruct_nonnegative(tiny, max_steps=30)
    sizes = tuple(stored["sizes"].tolist())
    layout = Layout.of(sizes, list(combinations(range(len(sizes)), 3)))
    own = f"{scheme}-"
    estimates = Estimates(layout, stored[own + "values"], stored["counts"], stored["precisions"])
    options = {"tolerance": float(stored[own + "tolerance"])}
    if scheme == "auto":
        options |= {"weights": stored["weights"], "hold": tuple(stored["hold"].tolist())}
    clock, processor = time.perf_counter(), time.process_time()
    solution = reconstruct_nonnegative(estimates, **options)
    processor, clock = time.process_time() - processor, time.perf_counter() - clock
    truth, outer = stored["truth"], slice(layout.inner_cells, None)
    error = np.abs(solution.marginals[outer] - truth[outer]).sum() / (len(layout.sets) - layout.outer) / truth[0]
    found = {"processor": processor, "clock": clock, "rounds": solution.steps, "error": float(error)}
    print(json.dumps(found | {"gap": solution.gap, "lift": solution.lift}))


def mechanism_child(name: str) -> None:
    """Run the rounds of Scalable MWEM as the benchmark of that version does, its clock being that of the processor."""
    time.perf_counter = time.process_time
    import bench_mechanisms

    bench_mechanisms.choosing(name)


def write_problem(name: str, file: Path) -> None:
    """Write a problem that both versions can read: estimates at ε = 1, and what the rule "auto" makes of them."""
    sys.path.insert(0, str(HERE / "tests"))
    from bench_nonnegative import public
    from planner import count_tables, read_columns

    from margrave.domain import Domain
    from margrave.reconstruction.prior import automatic

    estimates = public(name)
    layout, domain = estimates.layout, Domain.read(FOLDER / f"{name}-domain.json")
    choice = automatic(estimates)
    np.savez(
        file,
        sizes=np.array(layout.sizes),
        counts=estimates.counts,
        precisions=estimates.precisions,
        weights=choice.weights,
        hold=np.array(choice.hold),
        truth=count_tables(layout, read_columns(FOLDER / f"{name}.csv.gz", domain)),
        **{"paper-values": estimates.values, "paper-tolerance": 1e-4},
        **{"auto-values": choice.estimates.values, "auto-tolerance": choice.tolerance},
    )


def child(root: Path, *arguments: str) -> dict[str, float]:
    """Run a case with the margrave of a checkout, and return what it printed."""
    path = os.pathsep.join(str(root / part) for part in ("src", "benchmarks", "tests"))
    environment = {**os.environ, "PYTHONPATH": path, "MARGRAVE_DATASETS": str(FOLDER)}
    run = [sys.executable, "-P", __file__, "child", *arguments]
    output = subprocess.run(run, check=True, env=environment, stdout=subprocess.PIPE, text=True, cwd=root).stdout
    found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return found


def in_turns(before: Path, *arguments: str) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Run a case with both versions, one after the other, several times."""
    pairs = [(child(before, *arguments), child(HERE, *arguments)) for _ in range(TURNS)]
    return [old for old, _ in pairs], [new for _, new in pairs]


def compare_solvers(name: str, before: Path, folder: Path) -> None:
    """Print how the solvers of both versions do on a data set."""
    file = folder / f"{name}.npz"
    write_problem(name, file)
    for scheme in ("paper", "auto"):
        old, new = in_turns(before, "solve", str(file), scheme)
        seconds = [statistics.median(one["processor"] for one in many) for many in (old, new)]
        line = {
            "name": f"solve {name}, {scheme}, version 0.1 and now",
            "processor_seconds": [round(one, 3) for one in seconds],
            "ratio": round(seconds[0] / seconds[1], 2),
            "asked": ASKED[name],
            "rounds": [old[0]["rounds"], new[0]["rounds"]],
            "error": [round(old[0]["error"], 4), round(new[0]["error"], 4)],
            "gap": [float(f"{one[0]['gap']:.2g}") for one in (old, new)],
            "lift": [float(f"{one[0]['lift']:.2g}") for one in (old, new)],
        }
        print(json.dumps(line), flush=True)


def compare_mechanisms(name: str, before: Path) -> None:
    """Print how long the rounds of Scalable MWEM take in both versions."""
    found = in_turns(before, "mwem", name)
    seconds = [[one["seconds"] for one in many] for many in found]
    least = [min(one) for one in seconds]
    line = {"name": f"scalable MWEM {name}, version 0.1 and now", "processor_seconds": seconds}
    print(json.dumps(line | {"ratio": round(least[0] / least[1], 2)}), flush=True)


def main(arguments: list[str]) -> None:
    """Check version 0.1 out, and compare."""
    mechanisms = arguments[:1] == ["mwem"]
    names = arguments[mechanisms:] or (["adult"] if mechanisms else list(SMALL))
    git = ["git", "-C", str(HERE)]
    if subprocess.run([*git, "cat-file", "-e", f"{BEFORE}^{{commit}}"], capture_output=True).returncode:
        print(json.dumps({"name": "version 0.1", "left_out": "its commit is not in this repository"}))
        return
    with TemporaryDirectory() as folder:
        before = Path(folder, "before")
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(before), BEFORE], check=True)
        try:
            for name in names:
                if not (FOLDER / f"{name}.csv.gz").exists():
                    print(json.dumps({"name": name, "left_out": f"not in {FOLDER.name}; set MARGRAVE_DATASETS"}))
                elif mechanisms:
                    compare_mechanisms(name, before)
                else:
                    compare_solvers(name, before, Path(folder))
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(before)], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        {"solve": solve_child, "mwem": mechanism_child}[sys.argv[2]](*sys.argv[3:])
    else:
        main(sys.argv[1:])
