"""Time and memory of every step against the number of attributes and of cells, on made-up rows.

Each size is run in a process of its own, so that the memory of one does not count for another. What would not fit into
the memory of the machine is left out, with the reason in the file of results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from experiments import ExperimentError
from experiments.cost import Cost, costed
from experiments.datasets import ORDER
from experiments.journal import Journal
from experiments.records import DONE, MEMORY_LIMIT
from experiments.trials import warm_up
from experiments.workers import WorkerKilledError, run_alone
from margrave import CodedTable
from margrave.algebra.kernels import thread_count
from margrave.domain import Domain
from margrave.errors import MemoryLimitError
from margrave.mechanisms.residual_planner import measure
from margrave.methods import NonNegative
from margrave.planning.plans import plan
from margrave.privacy.budget import Budget
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler
from margrave.release.publication import reconstruct
from margrave.release.release import Release
from margrave.workload import Workload

# The first series: so many values, and the number of attributes varies. The second: the other way round.
VALUES, FIXED_ATTRIBUTES = 10, 20
ROWS, ROUNDS = 20_000, 20
STEPS = ("plan", "measure", "mle", "lnn")
FILE = "scaling.csv"
_NOT_TRIED = "not tried, as the step before it did not fit into memory"


@dataclass(frozen=True)
class Size:
    """A domain of equal attributes: how many, with how many values each; and how many rows there are."""

    attributes: int
    values: int
    rows: int = ROWS
    rounds: int = ROUNDS

    def __str__(self) -> str:
        return f"{self.attributes} attributes of {self.values} values"


@dataclass(frozen=True)
class Scaling:
    """One step at one size.

    Attributes
    ----------
    attributes, values, tables, cells
        The size: all tables of three attributes.
    step
        "plan", "measure" (counting included), "mle" or "lnn" (a fixed number of rounds).
    status
        "done" or "memory limit".
    seconds, megabytes
        Time, and the largest resident size of the process.
    rounds
        Rounds of the non-negative solver; 0 for other steps.
    rows, threads, version
        How it was run.
    note
        Why there is no result.
    """

    attributes: int
    values: int
    tables: int
    cells: int
    step: str
    status: str = DONE
    seconds: float = math.nan
    megabytes: float = math.nan
    rounds: int = 0
    rows: int = 0
    threads: int = 1
    version: str = ""
    note: str = ""


def sizes(attributes: tuple[int, ...], *, values: int, other_values: tuple[int, ...], rows: int) -> list[Size]:
    """Return both series of sizes, the small ones first."""
    for name, given, least in (("attributes", attributes, ORDER), ("values", (values, *other_values), 1)):
        if not given or min(given) < least:
            raise ExperimentError(f"{name} is {', '.join(map(str, given))}; give numbers of at least {least}")
    if rows < 1:
        raise ExperimentError(f"rows is {rows}; give a whole number of at least 1")
    wanted = [(number, values) for number in attributes] + [(FIXED_ATTRIBUTES, number) for number in other_values]
    by_cells = sorted(dict.fromkeys(wanted), key=lambda size: math.comb(size[0], ORDER) * size[1] ** ORDER)
    return [Size(number, each, rows) for number, each in by_cells]


def run_scaling(
    wanted: list[Size], folder: Path, *, progress: Callable[[int, int, str], None] | None = None
) -> list[Scaling]:
    """Run the sizes that are not in the folder yet, and return all rows of its file.

    Parameters
    ----------
    wanted
        The sizes.
    folder
        Where ``scaling.csv`` is kept.
    progress
        Called with the sizes done, the sizes in all, and the size that was done last.
    """
    with Journal(folder / FILE, Scaling) as journal:
        _check_rows(wanted, journal.rows)
        finished = {(row.attributes, row.values, row.step) for row in journal.rows}
        pending = [size for size in wanted if (size.attributes, size.values, STEPS[-1]) not in finished]
        for done, size in enumerate(pending, start=1):
            for row in _rows_of(size):
                if (row.attributes, row.values, row.step) not in finished:
                    journal.append(row)
            if progress is not None:
                progress(done, len(pending), str(size))
        return journal.rows


def _check_rows(wanted: list[Size], kept: list[Scaling]) -> None:
    """Refuse to mix tables of different numbers of rows in one file."""
    other = {row.rows for row in kept} - {size.rows for size in wanted}
    if wanted and other:
        raise ExperimentError(
            f"the folder holds results with --rows {min(other)}, and --rows {wanted[0].rows} is asked for; "
            "name another folder with --out, or ask for the same"
        )


def _rows_of(size: Size) -> Iterator[Scaling]:
    """Yield the rows of one size; where the system ended the process, the steps that are missing say so."""
    left = list(STEPS)
    try:
        for row in run_alone(scale, size):
            left.remove(row.step)
            yield row
    except WorkerKilledError as error:
        for step in left:
            yield replace(_blank(size, step), status=MEMORY_LIMIT, note=str(error))


def scale(size: Size) -> Iterator[Scaling]:
    """Yield what each step costs at one size; where one does not fit into memory, none after it is tried."""
    warm_up()
    done = 0
    try:
        for step, cost in _costs(size):
            done += 1
            rounds = size.rounds if step == "lnn" else 0
            yield replace(_blank(size, step), seconds=cost.seconds, megabytes=cost.megabytes, rounds=rounds)
    except (MemoryLimitError, MemoryError) as error:
        reason = str(error) or "out of memory"
        for step in STEPS[done:]:
            yield replace(_blank(size, step), status=MEMORY_LIMIT, note=reason)
            reason = _NOT_TRIED


def _costs(size: Size) -> Iterator[tuple[str, Cost]]:
    """Yield each step with its cost."""
    workload = Workload.all_kway(_domain(size), ORDER)
    planned, cost = costed(lambda: plan(workload, Budget.zcdp(rho=1), contributions=1, objective="total_variance"))
    yield "plan", cost
    table, sampler = made_up(size), gaussian_sampler(source=InsecureSeededSource(0))
    measurements, cost = costed(partial(measure, planned, table, sampler=sampler))
    yield "measure", cost
    del planned
    _, cost = costed(lambda: _forgotten(reconstruct(measurements, workload, method="mle")))
    yield "mle", cost
    _, cost = costed(
        lambda: _forgotten(
            reconstruct(
                measurements,
                workload,
                method=NonNegative(weights="paper", max_steps=size.rounds, tolerance=1e-12, strict=False),
            )
        )
    )
    yield "lnn", cost


def _forgotten(release: Release) -> None:
    """Keep nothing of a release: the next step must not pay for its memory."""


def made_up(size: Size) -> CodedTable:
    """Return rows that are the same everywhere, uniform and independent: times do not depend on what they are."""
    domain, source = _domain(size), InsecureSeededSource(1)
    return CodedTable(
        domain, {name: (source.words(size.rows) % size.values).astype(np.int64) for name in domain.attributes}
    )


def _domain(size: Size) -> Domain:
    """Return the domain of a size."""
    return Domain.fromdict({f"a{number}": size.values for number in range(size.attributes)})


def _blank(size: Size, step: str) -> Scaling:
    """Return a row without a result."""
    from margrave import __version__

    tables = math.comb(size.attributes, ORDER)
    return Scaling(
        attributes=size.attributes,
        values=size.values,
        tables=tables,
        cells=tables * size.values**ORDER,
        step=step,
        rows=size.rows,
        threads=thread_count(),
        version=__version__,
    )
