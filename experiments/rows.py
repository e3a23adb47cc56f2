r"""Rows beside the rows of MST and AIM: their tables, two scores of the field, and what a classifier learns from them.

    python -m experiments.rows --data FOLDER --out rows.csv titanic adult-coarse

All methods get the same table and the same (ε, δ). Rows of MST and AIM come from their graphical models as mbi's
``synthetic_data`` makes them: clique by clique, each attribute in proportion to its conditional table, rounded instead
of drawn. The columns of the file:

    one, two, three    mean over all tables of so many attributes of ‖rows − truth‖₁/N
    nist               1000 · (1 − three/2), the k-marginal score of NIST's contests for k = 3
    sdmetrics          the overall score of SDMetrics' quality report (columns and pairs), where it is installed
    learned            accuracy on real rows that were held out, of a classifier trained on the rows (scikit-learn,
                       where it is installed; the attribute to learn is the last of the domain and has two values),
                       and ``learned_from_real`` of one that was trained on the real rows
    seconds            processor time, of the release and its rows together
    megabytes          the largest resident size of the process that makes them, with the true tables it is given
    status             "done", or why there are no rows: "time limit" (900 s of processor time, see ``--limit``),
                       "memory limit" or "failed"

The extra ``rows`` installs what is needed; with the constraints that is SDMetrics 0.25. The scores of docs/rows.md are
of scikit-learn 1.9.1 and sdmetrics 0.32.0, which wants an older pandas than the constraints have, in an environment of
their own (``pip install -e ".[rows]"`` without the constraints). docs/rows.md says how the two differ.

One fifth of the real rows is held out before anything is measured, so that N is four fifths of the table's.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

import margrave as mg
from experiments.clique_trees import CliqueTree
from experiments.confined import confined
from experiments.datasets import read_columns
from experiments.records import DONE
from margrave.algebra.kernels import Floats
from margrave.algebra.layout import Layout
from margrave.methods import NonNegative
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler
from margrave.synthesis.fitting import Codes, count_rows
from margrave.synthesis.made_up_draws import MadeUpDraws
from margrave.synthesis.network import draw_column

DELTA = 1e-9
ORDER = 3
AIM_MEGABYTES = 80.0
LIMIT_SECONDS, LIMIT_GB = 900.0, 16.0
# SDMetrics looks at every pair of columns in turn; more rows change its score by less than a thousandth.
_SCORED_ROWS = 20_000


@dataclass(frozen=True)
class RowsRecord:
    """One method on one table; the fields are the columns of the file, as the module says."""

    dataset: str
    epsilon: float
    trial: int
    method: str
    rows: int
    one: float
    two: float
    three: float
    release: float
    nist: float
    sdmetrics: float
    learned: float
    learned_from_real: float
    seconds: float
    megabytes: float = math.nan
    status: str = DONE


@dataclass(frozen=True, eq=False)
class Trial:
    """What a method is given: real rows to measure, the tables wanted, the budget and a seed."""

    domain: mg.Domain
    codes: Codes
    layout: Layout
    truth: Floats
    budget: mg.Budget
    seed: int

    @property
    def sizes(self) -> dict[str, int]:
        """The number of values of each attribute."""
        return dict(zip(self.domain.attributes, self.domain.shape, strict=True))

    def true_table(self, names: Sequence[str]) -> Floats:
        """Return the true cells of a table."""
        return self.layout.view(self.truth, self.layout.places[self.domain.positions(names)]).ravel()


def margrave_rows(trial: Trial) -> tuple[Codes, float]:
    """Return the rows of a release of all tables (adaptive planner), and the error of its own tables."""
    workload = mg.Workload.all_kway(trial.domain, ORDER)
    table = mg.CodedTable(trial.domain, dict(zip(trial.domain.attributes, trial.codes.T, strict=True)))
    sampler = gaussian_sampler(source=InsecureSeededSource(trial.seed).spawn(2)[0])
    noisy = mg.adaptive_planner(table, workload, trial.budget, contributions=1, sampler=sampler)
    release = mg.reconstruct(noisy, workload, method=NonNegative(strict=False))
    return release.synthesize(seed=trial.seed).codes, errors(trial, release.marginals)[ORDER]


def mst_rows(trial: Trial) -> tuple[Codes, float]:
    """Return the rows of MST."""
    from experiments.mst import mst

    draw = np.random.default_rng(trial.seed)
    found = mst(trial.sizes, trial.true_table, rho=float(trial.budget.rho), draw=draw)
    draws, count = MadeUpDraws(trial.seed), round(found.model.total)
    merged = tree_rows(found.model.tree, found.model.sizes, count, draws)
    codes = np.zeros_like(merged)
    for place, name in enumerate(trial.domain.attributes):
        shares = np.ascontiguousarray(found.spread[name].T)
        context = merged[:, place].astype(np.int64)
        draw_column(codes, place, context, shares, shares.sum(axis=0), draws.order(count), draws.uniform(len(shares)))
    return codes, math.nan


def aim_rows(trial: Trial) -> tuple[Codes, float]:
    """Return the rows of AIM, whose model may take 80 MB."""
    from experiments.aim import aim

    workload = list(mg.Workload.all_kway(trial.domain, ORDER))
    draw = np.random.default_rng(trial.seed)
    rho = float(trial.budget.rho)
    found = aim(trial.sizes, workload, trial.true_table, rho=rho, draw=draw, max_megabytes=AIM_MEGABYTES)
    return tree_rows(found.model.tree, trial.sizes, round(found.model.total), MadeUpDraws(trial.seed)), math.nan


METHODS: dict[str, Callable[[Trial], tuple[Codes, float]]] = {
    "margrave": margrave_rows,
    "mst": mst_rows,
    "aim": aim_rows,
}


def tree_rows(tree: CliqueTree, sizes: Mapping[str, int], rows: int, draws: MadeUpDraws) -> Codes:
    """Return rows of a graphical model: clique by clique from the roots, attribute by attribute, rounded.

    Parameters
    ----------
    tree
        The model.
    sizes
        The number of values of each attribute, in the order of the columns.
    rows
        How many.
    draws
        Which rows of a context get which value.
    """
    places = {name: place for place, name in enumerate(sizes)}
    codes = np.zeros((rows, len(sizes)), dtype=np.int32)
    done: list[str] = []
    for clique in tree.tables:
        for name in clique.names:
            if name in done:
                continue
            known = tuple(other for other in clique.names if other in done)
            shares = np.ascontiguousarray(clique.sum_to({*known, name}).axes(known, (name,)))
            context = np.zeros(rows, dtype=np.int64)
            for other in known:
                context = context * sizes[other] + codes[:, places[other]]
            usual = np.maximum(shares.sum(axis=0), 1e-300)
            uniform = draws.uniform(len(shares))
            draw_column(codes, places[name], context, np.maximum(shares, 0), usual, draws.order(rows), uniform)
            done.append(name)
    return codes


def errors(trial: Trial, marginals: Floats) -> dict[int, float]:
    """Return by order the mean over all tables of ‖μ̂ − μ‖₁/N."""
    offset, order = trial.layout.index.offset, trial.layout.index.order
    away = np.add.reduceat(np.abs(marginals - trial.truth), offset[:-1]) / len(trial.codes)
    return {size: float(away[order == size].mean()) for size in range(1, ORDER + 1)}


def run_rows(
    folder: Path, name: str, epsilon: float, trial: int, method: str, *, limit_seconds: float = LIMIT_SECONDS
) -> RowsRecord:
    """Return what one method gives for one table; made in a process of its own, so that it has its own memory."""
    given = (folder, name, epsilon, trial, method)
    found = confined(make_rows, *given, limit_seconds=limit_seconds, limit_gb=LIMIT_GB)
    if found.value is None:
        empty = {field.name: math.nan for field in fields(RowsRecord) if field.type == "float"}
        told = {"seconds": found.processor_seconds, "megabytes": found.megabytes, "status": found.status}
        known = {"dataset": name, "epsilon": epsilon, "trial": trial, "method": method, "rows": 0}
        return RowsRecord(**{**empty, **known, **told})  # type: ignore[arg-type]
    codes, release, seconds = found.value
    asked, held = read_trial(folder, name, epsilon, trial)
    by_order = errors(asked, count_rows(asked.layout, codes))
    return RowsRecord(
        dataset=name,
        epsilon=epsilon,
        trial=trial,
        method=method,
        rows=len(codes),
        one=by_order[1],
        two=by_order[2],
        three=by_order[3],
        release=release,
        nist=1000 * (1 - by_order[3] / 2),
        sdmetrics=sdmetrics_score(asked.domain, asked.codes, codes),
        learned=accuracy_of(asked.domain, codes, held),
        learned_from_real=accuracy_of(asked.domain, asked.codes, held),
        seconds=seconds,
        megabytes=found.megabytes,
    )


def make_rows(folder: Path, name: str, epsilon: float, trial: int, method: str) -> tuple[Codes, float, float]:
    """Return the rows of a method, the error of its release where it has one, and the processor time they took."""
    given, _ = read_trial(folder, name, epsilon, trial)
    begin = time.process_time()
    codes, release = METHODS[method](given)
    return codes, release, time.process_time() - begin


def read_trial(folder: Path, name: str, epsilon: float, trial: int) -> tuple[Trial, Codes]:
    """Return what a method is given in a trial, and the real rows that are held out."""
    domain, real = read_columns(folder, name)
    seed = 1_000 * trial + round(10 * epsilon)
    order = np.random.default_rng(seed).permutation(len(real))
    held, kept = real[order[: len(real) // 5]], np.ascontiguousarray(real[order[len(real) // 5 :]])
    layout = Layout.of(domain.shape, mg.Workload.all_kway(domain, ORDER).positions)
    budget = mg.Budget.approx(epsilon=epsilon, delta=DELTA)
    return Trial(domain, kept, layout, count_rows(layout, kept), budget, seed), held


def sdmetrics_score(domain: mg.Domain, real: Codes, rows: Codes) -> float:
    """Return the overall score of SDMetrics' quality report; NaN where it is not installed."""
    try:
        from sdmetrics.reports.single_table import QualityReport  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return math.nan
    import pandas as pd

    def frame(codes: Codes) -> pd.DataFrame:
        chosen = np.random.default_rng(0).permutation(len(codes))[:_SCORED_ROWS]
        return pd.DataFrame(codes[chosen].astype(str), columns=list(domain.attributes))

    report = QualityReport()
    columns = {name: {"sdtype": "categorical"} for name in domain.attributes}
    report.generate(frame(real), frame(rows), {"columns": columns}, verbose=False)
    return float(report.get_score())


def accuracy_of(domain: mg.Domain, rows: Codes, held: Codes) -> float:
    """Return how often a classifier trained on rows is right about real ones; NaN where there is nothing to learn."""
    if domain.shape[-1] != 2 or len(np.unique(rows[:, -1])) < 2:
        return math.nan
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return math.nan
    classifier = HistGradientBoostingClassifier(max_iter=100, random_state=0)
    classifier.fit(rows[:, :-1], rows[:, -1])
    return float(classifier.score(held[:, :-1], held[:, -1]))


def page(records: Sequence[RowsRecord]) -> str:
    """Return the records as a table in Markdown."""
    head = [field.name for field in fields(RowsRecord) if field.name != "trial"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for record in records:
        values = [getattr(record, name) for name in head]
        lines.append(f"| {' | '.join(_shown(value) for value in values)} |")
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return "–" if math.isnan(value) else f"{value:.4g}"


def main(words: Sequence[str] | None = None) -> None:
    """Run what is asked for; each record is written as soon as it is there, and records that are there stay."""
    parser = argparse.ArgumentParser(prog="python -m experiments.rows", description=__doc__.split("\n")[0])
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to add to")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="the most processor seconds for one method")
    asked = parser.parse_args(words)
    done = read_records(asked.out)
    keys = {(one.dataset, one.epsilon, one.trial, one.method) for one in done}
    for name in asked.datasets:
        for epsilon in asked.epsilons:
            for trial in range(asked.trials):
                for method in asked.methods:
                    if (name, epsilon, trial, method) not in keys:
                        record = run_rows(asked.data, name, epsilon, trial, method, limit_seconds=asked.limit)
                        write_record(asked.out, record)


def write_record(file: Path, record: RowsRecord) -> None:
    """Add a record to a file, with a header if it is new."""
    fresh = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(RowsRecord)])
        if fresh:
            writer.writeheader()
        writer.writerow({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in asdict(record).items()})


def read_records(file: Path) -> list[RowsRecord]:
    """Return the records of a file; none if it is not there."""
    if not file.exists():
        return []
    kinds = {"dataset": str, "method": str, "trial": int, "rows": int, "status": str}
    with file.open(encoding="utf-8", newline="") as stream:
        return [
            RowsRecord(**{key: kinds.get(key, float)(value) for key, value in row.items()})
            for row in csv.DictReader(stream)
        ]


if __name__ == "__main__":
    main()
