"""The results of a folder as a page for people (Markdown) and as numbers for programs (JSON)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.journal import read_rows
from experiments.methods import METHODS, MWEM, OURS, PAPER, PIPELINE, RESIDUAL_PLANNER
from experiments.records import DONE, FAILED, Record, latest
from experiments.runs import results_file
from experiments.scaling import FILE as SCALING_FILE
from experiments.scaling import STEPS, Scaling
from experiments.summary import METRICS, Band, Ratio, bands, completions, ratios, spent

NOT_PRIVATE = (
    "NOT PRIVATE: these results are computed from the true counts, with noise drawn from recorded seeds. "
    "They are for public benchmark data only; never run this on a table that must stay private."
)
_TITLES = {RESIDUAL_PLANNER: "ResidualPlanner", MWEM: "Scalable MWEM"}


def write_summary(folder: Path) -> list[Path]:
    """Write ``summary.md`` and ``summary.json`` from all results in a folder; return the files.

    Parameters
    ----------
    folder
        Where ``residual-planner.csv``, ``mwem.csv`` and ``scaling.csv`` are, as far as they have been made.
    """
    records = {experiment: read_rows(results_file(folder, experiment), Record) for experiment in METHODS}
    scaling = read_rows(folder / SCALING_FILE, Scaling)
    page, numbers = folder / "summary.md", folder / "summary.json"
    page.write_text(summary_page(records, scaling, folder), encoding="utf-8")
    shown = json.dumps(_plain(summary_numbers(records, scaling)), indent=1, ensure_ascii=False)
    numbers.write_text(shown + "\n", encoding="utf-8")
    return [page, numbers]


def summary_numbers(records: dict[str, list[Record]], scaling: Sequence[Scaling]) -> dict[str, Any]:
    """Return all numbers of the summary."""
    found: dict[str, Any] = {"private": False, "warning": NOT_PRIVATE}
    for experiment, rows in records.items():
        if rows:
            found[experiment] = {
                "errors": [asdict(band) for metric in METRICS for band in bands(rows, experiment, metric)],
                "ratios": [
                    asdict(ratio)
                    for metric in METRICS
                    for ratio in ratios(rows, experiment, _compared(experiment), metric)
                ],
                "costs": [asdict(one) for one in spent(rows, experiment)],
            }
    found["private-pgm"] = [asdict(one) for one in completions(records.get(MWEM, []))]
    found["scaling"] = [asdict(row) for row in scaling]
    return found


def summary_page(records: dict[str, list[Record]], scaling: Sequence[Scaling], folder: Path) -> str:
    """Return the page; figures that are in the folder are shown."""
    parts = ["# Results\n", f"> **{NOT_PRIVATE}**\n"]
    for experiment, rows in records.items():
        if rows:
            parts += _experiment_part(experiment, rows, folder)
    parts += _pgm_part(records.get(MWEM, []))
    parts += _scaling_part(scaling, folder)
    return "\n".join(parts)


def _experiment_part(experiment: str, rows: list[Record], folder: Path) -> list[str]:
    """Return the section of an experiment: averages, figure, errors by setting, costs, what failed."""
    found = bands(rows, experiment)
    parts = [f"## {_TITLES[experiment]}\n", _picture(folder, f"{experiment}-l1", "L1 error against ε")]
    parts += [
        "How many times larger the error of the method in the row is than that of the method in the column: the "
        "average over all settings and trials (in brackets: over settings, of the ratio of mean errors; the least).\n"
    ]
    for rounds in sorted({band.rounds for band in found}):
        for metric, name in (("l1", "L1 error / N"), ("l1_cells", "L1 error / cells, as the paper's code has it")):
            parts += [f"{_rounds(rounds)}{name}:\n", _ratio_table(experiment, rows, rounds, metric)]
    parts += ["Mean L1 error / N (least – most):\n", _band_table(experiment, found)]
    parts += ["Mean seconds, and largest memory of the process in MB:\n", _cost_table(experiment, rows)]
    failed = [row for row in latest(rows).values() if row.status == FAILED]
    lines = [f"- {row.dataset}, ε = {row.epsilon:g}, trial {row.trial}, {row.method}: {row.note}" for row in failed]
    return [*parts, *(["Failed:\n", *lines, ""] if lines else [])]


def _ratio_table(experiment: str, rows: list[Record], rounds: int, metric: str) -> str:
    """Return the table of average ratios at one number of rounds, beside what the paper quotes."""
    compared = _compared(experiment)
    found = [ratio for ratio in ratios(rows, experiment, compared, metric) if ratio.rounds == rounds]
    cells: dict[tuple[str, str], Ratio] = {(ratio.other, ratio.method): ratio for ratio in found}
    methods = [method for method in compared if any(ratio.method == method for ratio in found)]
    lines = []
    for other in METHODS[experiment]:
        if any((other, method) in cells for method in methods):
            quoted = next((ratio.quoted for ratio in found if ratio.other == other), math.nan)
            shown = [_ratio(cells.get((other, method))) for method in methods]
            lines.append([_label(experiment, other), shown_number(quoted), *shown])
    labels = [_label(experiment, method) for method in methods]
    return markdown_table(["error of …", "the paper's LNN, as quoted", *(f"over {label}" for label in labels)], lines)


def _band_table(experiment: str, found: Sequence[Band]) -> str:
    """Return the table of errors: a line for each setting, a column for each method."""
    methods = [key for key in METHODS[experiment] if any(band.method == key for band in found)]
    cells = {(band.dataset, band.rounds, band.epsilon, band.method): band for band in found}
    settings = list(dict.fromkeys(key[:3] for key in cells))
    lines = [
        [dataset, *([str(rounds)] if rounds else []), f"{epsilon:g}"]
        + [_band(cells.get((dataset, rounds, epsilon, method))) for method in methods]
        for dataset, rounds, epsilon in settings
    ]
    head = ["data set", *(["rounds"] if any(band.rounds for band in found) else []), "ε"]
    return markdown_table(head + [_label(experiment, method) for method in methods], lines)


def _cost_table(experiment: str, rows: list[Record]) -> str:
    """Return the table of costs."""
    lines = [
        [
            one.dataset,
            *([str(one.rounds)] if one.rounds else []),
            _label(experiment, one.method),
            *(shown_number(seconds) for seconds in (one.plan_seconds, one.measure_seconds, one.reconstruct_seconds)),
            f"{max(one.plan_mb, one.measure_mb):.0f}",
            f"{one.reconstruct_mb:.0f}",
        ]
        for one in spent(rows, experiment)
    ]
    head = ["data set", *(["rounds"] if experiment == MWEM else []), "method"]
    return markdown_table([*head, "plan s", "measure s", "reconstruct s", "measure MB", "reconstruct MB"], lines)


def _pgm_part(rows: list[Record]) -> list[str]:
    """Return the section about Private-PGM, or nothing."""
    found = completions(rows)
    if not found:
        return []
    lines = [
        [
            one.dataset,
            *(str(n) for n in (one.rounds, one.trials, one.completed, one.over_time, one.over_memory, one.failed)),
            "" if one.quoted < 0 else f"{one.quoted} of 25",
            *(shown_number(value) for value in (one.seconds, one.error, one.ours)),
        ]
        for one in found
    ]
    head = ["data set", "rounds", "trials", "completed", "over time", "over memory", "failed", "the paper's completed"]
    limits = sorted(
        {(row.limit_seconds, row.limit_gb) for row in latest(rows).values() if not math.isnan(row.limit_seconds)}
    )
    stated = " or ".join(f"{seconds:g} s and {size:g} GB" for seconds, size in limits)
    total, completed = sum(one.trials for one in found), sum(one.completed for one in found)
    return [
        "## Private-PGM within limits\n",
        f"Limits a trial: {stated} (the paper: 24 hours and 20 GB, 100 of 300 trials completed). Completed here: "
        f"{completed} of {total}. Errors are mean L1 / N on the trials that Private-PGM completed.\n",
        markdown_table([*head, "its seconds", "its error", "margrave's error"], lines),
    ]


def _scaling_part(rows: Sequence[Scaling], folder: Path) -> list[str]:
    """Return the section about scaling, or nothing."""
    if not rows:
        return []
    steps = {(row.attributes, row.values, row.step): row for row in rows}
    sizes = sorted({(row.cells, row.attributes, row.values) for row in rows})
    lines = [
        [str(attributes), str(values), f"{cells:,}"]
        + [_step(steps.get((attributes, values, step))) for step in STEPS]
        + [_largest(steps.get((attributes, values, step)) for step in STEPS)]
        for cells, attributes, values in sizes
    ]
    left_out = [f"- {row.attributes} × {row.values}, {row.step}: {row.note}" for row in rows if row.status != DONE]
    return [
        "## Scaling\n",
        _picture(folder, "scaling", "Time and memory by size"),
        "Seconds; for the non-negative solver, of one round:\n",
        markdown_table(["attributes", "values", "cells", *STEPS, "largest memory, GB"], lines),
        *(["Left out:\n", *left_out, ""] if left_out else []),
    ]


def _compared(experiment: str) -> list[str]:
    """Return the methods that others are compared with."""
    return [method for method in (PAPER, OURS, PIPELINE) if method in METHODS[experiment]]


def _label(experiment: str, method: str) -> str:
    return METHODS[experiment][method].label


def _picture(folder: Path, stem: str, text: str) -> str:
    return f"![{text}]({stem}.svg)\n" if (folder / f"{stem}.svg").exists() else ""


def _rounds(rounds: int) -> str:
    return f"{rounds} rounds, " if rounds else ""


def _step(row: Scaling | None) -> str:
    if row is None or row.status != DONE:
        return "–"
    return shown_number(row.seconds / max(row.rounds, 1))


def _largest(rows: Iterable[Scaling | None]) -> str:
    sizes = [row.megabytes for row in rows if row is not None and row.status == DONE]
    return f"{max(sizes) / 1000:.2f}" if sizes else "–"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f"**{shown_number(ratio.average)}** ({shown_number(ratio.of_means)}; {shown_number(ratio.least)})"


def _band(band: Band | None) -> str:
    return "" if band is None else f"{shown_number(band.mean)} ({shown_number(band.least)} – {shown_number(band.most)})"


def shown_number(value: float) -> str:
    """Return a number with three digits, nothing for NaN."""
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def markdown_table(head: list[str], lines: list[list[str]]) -> str:
    """Return a table in Markdown; numbers to the right."""
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines]) + "\n"


def _plain(value: Any) -> Any:  # noqa: ANN401 (whatever JSON can hold)
    """Return the value with None in place of NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
