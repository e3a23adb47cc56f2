"""The page and the figures of the comparison beside AIM and MST."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean

from experiments.figures import draw_peer_errors
from experiments.generated import CHOOSING, JUDGING, names
from experiments.journal import read_rows
from experiments.pages import NOT_PRIVATE, markdown_table, shown_number
from experiments.paired import FILE as PAIRED_FILE
from experiments.paired import Trial
from experiments.peer_methods import GENERATED, PEERS, table_place
from experiments.peers import PeerRecord, latest
from experiments.records import DONE
from experiments.summary import Band

PAGE = "peers.md"
# The methods that are compared with all others.
OURS = ("adaptive", "counts", "nonnegative")
GROUPS: dict[str, Callable[[str], bool]] = {
    "public tables": lambda name: name not in GENERATED,
    "generated tables that parameters may be chosen on": lambda name: name in names(CHOOSING),
    "generated tables held out": lambda name: name in names(JUDGING),
}
Means = Mapping[tuple[str, int, float, str], float]


def with_paired(records: Sequence[PeerRecord], folder: Path) -> list[PeerRecord]:
    """Return the rows with the paired trials of the folder, which take the place of rows of the same methods."""
    trials = read_rows(folder / PAIRED_FILE, Trial)
    paired = {trial.method for trial in trials}
    rows = [record for record in records if record.method not in paired]
    return rows + [
        PeerRecord(
            *trial.key,
            DONE,
            l1_order1=trial.l1_order1,
            l1_order2=trial.l1_order2,
            l1_order3=trial.l1_order3,
            processor_seconds=trial.processor_seconds,
        )
        for trial in trials
    ]


def draw_peers(records: Sequence[PeerRecord], folder: Path) -> list[Path]:
    """Write the figures, one for each order of the workload, as PNG and SVG; return the files."""
    files: list[Path] = []
    records = with_paired(records, folder)
    for order in sorted({record.order for record in records}):
        found = error_bands(records, order)
        if found:
            files += draw_peer_errors(found, list(PEERS.values()), order, folder / f"peers-{order}way")
    return files


def write_peers_page(records: Sequence[PeerRecord], folder: Path) -> Path:
    """Write the page of a folder; return the file."""
    page = folder / PAGE
    page.write_text(peers_page(records, folder), encoding="utf-8")
    return page


def error_bands(records: Sequence[PeerRecord], order: int) -> list[Band]:
    """Return mean, least and largest error of the tables of the workload, by table, ε and method."""
    groups: dict[tuple[str, float, str], list[float]] = defaultdict(list)
    for record in latest(records).values():
        if record.status == DONE and record.order == order:
            groups[record.dataset, record.epsilon, record.method].append(record.l1)
    return [
        Band(dataset, 0, epsilon, method, "l1", len(found), fmean(found), min(found), max(found))
        for (dataset, epsilon, method), found in sorted(
            groups.items(), key=lambda item: (table_place(item[0][0]), item[0])
        )
    ]


def mean_errors(records: Sequence[PeerRecord], of: int) -> dict[tuple[str, int, float, str], float]:
    """Return the mean error of the tables of some order, by table, workload, ε and method."""
    groups: dict[tuple[str, int, float, str], list[float]] = defaultdict(list)
    for record in latest(records).values():
        if record.status == DONE and of <= record.order:
            groups[record.dataset, record.order, record.epsilon, record.method].append(record.by_order(of))
    return {key: fmean(found) for key, found in groups.items()}


def peers_page(records: Sequence[PeerRecord], folder: Path) -> str:
    """Return the page; paired trials and figures that are in the folder are shown."""
    records = with_paired(records, folder)
    parts = [
        "# Beside AIM and MST\n",
        f"> **{NOT_PRIVATE}**\n",
        "Mean L1 error / N at equal budget; publishing zeros has an error of one. What the methods are: "
        "[experiments.md](../experiments.md); how sure differences are: [paired.md](paired.md).\n",
    ]
    for order in sorted({record.order for record in records}, reverse=True):
        rows = [record for record in records if record.order == order]
        parts += [f"## All tables of {order} attributes\n"]
        stem = f"peers-{order}way"
        if (folder / f"{stem}.svg").exists():
            parts += [f"![Error against ε]({stem}.svg)\n"]
        means = mean_errors(rows, order)
        for title, within in GROUPS.items():
            inside = {key: value for key, value in means.items() if within(key[0])}
            parts += _ratio_part(inside, title)
        for of in range(order, 0, -1):
            parts += [f"Mean L1 error / N of all tables of {of} attributes:\n", _error_table(mean_errors(rows, of))]
        parts += ["Mean seconds of processor time:\n", _cost_table(rows)]
        parts += _missing_part(rows)
    return "\n".join(parts)


def ratios(means: Means, ours: str, other: str, epsilon: float) -> list[float]:
    """Return error(ours)/error(other) at every table where both ended."""
    return [
        means[dataset, order, epsilon, ours] / value
        for (dataset, order, at, method), value in means.items()
        if at == epsilon and method == other and (dataset, order, epsilon, ours) in means
    ]


def _ratio_part(means: Means, title: str) -> list[str]:
    """Return the table of error(ours)/error(other): the geometric mean over tables, and the largest."""
    epsilons = sorted({key[2] for key in means})
    lines = []
    for ours in OURS:
        for other in PEERS:
            found = [ratios(means, ours, other, epsilon) if other != ours else [] for epsilon in epsilons]
            if any(found):
                shown = [f"**{geometric_mean(one):.2f}** ({max(one):.2f}; {len(one)})" if one else "" for one in found]
                lines.append([PEERS[ours].label, PEERS[other].label, *shown])
    if not lines:
        return []
    told = f"Error of the first ÷ error of the second, {title}: geometric mean (largest; number of tables):\n"
    return [told, markdown_table(["first", "second", *(f"ε = {epsilon:g}" for epsilon in epsilons)], lines)]


def _error_table(means: Means) -> str:
    """Return the table of errors: a line for each table and ε, a column for each method."""
    methods = [key for key in PEERS if any(method == key for *_, method in means)]
    settings = sorted({key[:3] for key in means}, key=lambda key: (table_place(key[0]), key[2]))
    lines = [
        [dataset, f"{epsilon:g}"]
        + [shown_number(means.get((dataset, order, epsilon, method), math.nan)) for method in methods]
        for dataset, order, epsilon in settings
    ]
    return markdown_table(["table", "ε", *(PEERS[method].label for method in methods)], lines)


def _cost_table(records: Sequence[PeerRecord]) -> str:
    """Return the table of processor times, over all ε and trials that ended."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in latest(records).values():
        if record.status == DONE:
            groups[record.dataset, record.method].append(record.processor_seconds)
    methods = [key for key in PEERS if any(method == key for _, method in groups)]
    lines = [
        [name] + [shown_number(fmean(groups[name, method])) if (name, method) in groups else "" for method in methods]
        for name in sorted({name for name, _ in groups}, key=table_place)
    ]
    return markdown_table(["table", *(PEERS[method].label for method in methods)], lines)


def _missing_part(records: Sequence[PeerRecord]) -> list[str]:
    """Return the list of what ended without a result."""
    lines = [
        f"- {record.dataset}, ε = {record.epsilon:g}, trial {record.trial}, {PEERS[record.method].label}: "
        f"{record.status} ({record.note})"
        for record in latest(records).values()
        if record.status != DONE
    ]
    return ["Ended without a result:\n", *lines, ""] if lines else []
