"""The page of paired trials: ratios of errors with their standard errors, and what is worse than it may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.journal import read_rows
from experiments.pages import NOT_PRIVATE, markdown_table
from experiments.paired import ALLOWED, FILE, Compared, Setting, Trial, compare
from experiments.peer_methods import BEFORE, PEERS, table_place

PAGE = "paired.md"
# The order of tables that is compared, within a workload, and the pairs of methods.
_SHOWN = (("adaptive", BEFORE), ("adaptive", "product"), ("adaptive", "pairs"), ("counts", BEFORE))
_BARS = _SHOWN[:3]


def write_paired_page(folder: Path) -> Path:
    """Write the page of the file ``paired.csv`` of a folder; return the file."""
    page = folder / PAGE
    page.write_text(paired_page(read_rows(folder / FILE, Trial)), encoding="utf-8")
    return page


def paired_page(rows: Sequence[Trial]) -> str:
    """Return the page."""
    parts = [
        "# Paired trials\n",
        f"> **{NOT_PRIVATE}**\n",
        "Ratio of the mean errors of two methods, L1 error / N, on the same trials (the same seeds), ± the standard "
        "error of the mean paired difference. **Bold**: worse by more than 2 % even after two standard errors. How it "
        "is run: [experiments.md](../experiments.md); what it says: [adaptive.md](../adaptive.md).\n",
    ]
    for order in sorted({row.order for row in rows}, reverse=True):
        inside = [row for row in rows if row.order == order]
        parts += [f"## All tables of {order} attributes\n"]
        for ours, base in _SHOWN:
            parts += _table(inside, ours, base, order)
        for of in range(order - 1, 0, -1):
            parts += _table(inside, "adaptive", BEFORE, of)
        parts += [f"Worse by more than 2 % beyond two standard errors, workload of {order} attributes:\n"]
        parts += [*(_missed(inside, order) or ["- none"]), ""]
    return "\n".join(parts)


def _table(rows: Sequence[Trial], ours: str, base: str, of: int) -> list[str]:
    """Return a table of ratios: a line for each data set, a column for each ε."""
    found = {setting: one for setting, one in compare(rows, base) if one.method == ours}
    if not found:
        return []
    epsilons = sorted({setting[2] for setting in found})
    lines = []
    for name in sorted({setting[0] for setting in found}, key=table_place):
        cells = [
            _cell({at[2]: one for at, one in found.items() if at[0] == name}.get(epsilon), of) for epsilon in epsilons
        ]
        trials = sorted({one.trials for at, one in found.items() if at[0] == name})
        lines.append([name, *cells, "–".join(str(number) for number in dict.fromkeys((trials[0], trials[-1])))])
    title = f"{PEERS[ours].label} ÷ {PEERS[base].label}, error of tables of {of} attribute{'s' if of > 1 else ''}:\n"
    return [title, markdown_table(["table", *(f"ε = {epsilon:g}" for epsilon in epsilons), "trials"], lines)]


def _cell(one: Compared | None, of: int) -> str:
    """Return a ratio with its error, which one trial does not have, in bold where it is too large."""
    if one is None:
        return ""
    if one.trials == 1:
        return f"{one.ratios[of]:.3f}"
    shown = f"{one.ratios[of]:.3f} ± {one.errors[of]:.3f}"
    return f"**{shown}**" if one.worse(of, ALLOWED) else shown


def _missed(rows: Sequence[Trial], order: int) -> list[str]:
    """Return a line for each setting at which the adaptive planner is worse than a base by more than it may be."""
    return [
        f"- {name}, ε = {epsilon:g}, ÷ {PEERS[base].label}: {_cell(one, order)} ({one.trials} trials)"
        for (name, _, epsilon), base, one in _beside(rows)
        if one.worse(order, ALLOWED)
    ]


def _beside(rows: Sequence[Trial]) -> Iterator[tuple[Setting, str, Compared]]:
    """Yield every comparison that a bar is about."""
    for ours, base in _BARS:
        for setting, one in compare(rows, base):
            if one.method == ours:
                yield setting, base, one
