"""``margrave release``: from a private table to a finished publication in one command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margrave.cli.job import Job
from margrave.cli.options import AsJson, takes
from margrave.cli.screen import Screen, Tick, console, print_json, progress, styled
from margrave.errors import InterruptionError, MargraveError

if TYPE_CHECKING:
    from margrave.measurements import Measurements, Provenance
    from margrave.measurements.safekeeping import KeptFile
    from margrave.mechanisms.mechanism import Mechanism
    from margrave.privacy.budget import Budget
    from margrave.privacy.ledger import Ledger
    from margrave.release.publication import Publication
    from margrave.release.release import Release
    from margrave.workload import Workload


@takes("release", job=True)
def release(asked: Job, json: AsJson = False) -> None:
    """Measure, reconstruct and publish: a private table in, a folder of tables with a report out.

    Example:  margrave release people.csv --domain domain.json --kway 3 --epsilon 1 --delta 1e-9
    --contributions 1 --ledger people.ledger --cap-epsilon 2 --out release
    """
    run(asked, json=json)


def run(job: Job, *, json: bool = False) -> None:
    """Do a job. What can be refused is refused before the table is read; what was paid for is never lost.

    Parameters
    ----------
    job
        What to do.
    json
        Whether to print the result as JSON.
    """
    from margrave.measurements.safekeeping import KeptFile

    publication = job.publication()
    workload, budget = job.workload(job.read_domain()), job.budget()
    mechanism = job.measuring().prepare(workload, budget, contributions=job.need("contributions"))
    job.source()  # refuses a table that cannot be described
    kept, cells = KeptFile.beside(publication.folder), mechanism.cells(workload)
    publication.check(workload, beside=8 * cells)
    kept.require_room(cells)
    ledger = job.open_ledger()
    begun = ledger is not None and ledger.is_new
    if ledger is not None and begun and not json:
        console().print(_beginning(ledger, budget.delta))
    with progress() as begin:
        released = _released(job, mechanism, workload, budget, ledger, publication, kept, begin)
    kept.remove()
    if json:
        entry = None if ledger is None else _entry(ledger, released, begun)
        print_json({**result(publication, released), "ledger": entry})
        return
    say(publication, released, console())
    if ledger is None:
        console().print("No ledger was named: spending on this table is not tracked. Next time give --ledger.")
    else:
        console().print(f"ledger: {ledger.balance(budget.delta)}")


def _released(
    job: Job,
    mechanism: Mechanism,
    workload: Workload,
    budget: Budget,
    ledger: Ledger | None,
    publication: Publication,
    kept: KeptFile,
    begin: Callable[[str], Tick],
) -> Release:
    """Measure the table and publish; a message after the charge always says how to continue."""
    from margrave.mechanisms.interruption import terminable

    try:
        noisy = _measured(job, mechanism, workload, budget, ledger, kept, begin)
        with terminable():
            return publication.publish(noisy, workload, progress=begin)
    except MargraveError as error:
        if kept.path is None:
            raise
        raise type(error)(f"{error}{_continuation(job, kept)}") from error
    except KeyboardInterrupt as error:
        said = str(error) or _interrupted(budget, charged=kept.path is not None)
        raise InterruptionError(f"{said}{_continuation(job, kept)}") from None


def _measured(
    job: Job,
    mechanism: Mechanism,
    workload: Workload,
    budget: Budget,
    ledger: Ledger | None,
    kept: KeptFile,
    begin: Callable[[str], Tick],
) -> Measurements:
    """Measure the table of a job; signals wait until what was paid for is on disk."""
    from margrave.mechanisms.mechanism import Run

    source = replace(job.source(), progress=begin("counting"))
    stages = begin("measuring") if mechanism.staged else None
    run = Run(ledger=ledger, keep=kept.save, defer_signals=True, progress=stages)
    return mechanism.measure(source, workload, budget, contributions=job.need("contributions"), run=run)


def _continuation(job: Job, kept: KeptFile) -> str:
    """Return where the measurements are and the command that continues from them; nothing if there are none."""
    if kept.path is None:
        return ""
    command = shlex.join(["margrave", "reconstruct", os.path.relpath(kept.path), *job.reconstruct_words()])
    return f"; the measurements are paid for and kept in {kept.path}; to continue from them at no cost: {command}"


def _interrupted(budget: Budget, *, charged: bool) -> str:
    """Return what a run that was interrupted has cost."""
    from margrave.privacy.budget import spoken_budget

    return f"interrupted; {spoken_budget(budget)} is charged" if charged else "interrupted; nothing was charged"


def _beginning(ledger: Ledger, delta: float) -> str:
    """Return the sentence for a ledger that does not exist yet: one that was moved would start again at zero."""
    from margrave.privacy.budget import Budget, spoken_budget

    return (
        f"ledger: a new ledger is begun, {ledger.path}, with the cap "
        f"{spoken_budget(Budget.zcdp(rho=ledger.cap, delta=delta))}. If this table has a ledger elsewhere, stop now "
        "(Ctrl-C) and name that file."
    )


def _entry(ledger: Ledger, released: Release, begun: bool) -> dict[str, Any]:
    """Return the charge of a release for a program."""
    record = released.provenance
    number, digest = (None, None) if record is None else (record.ledger_entry, record.ledger_hash)
    return {"file": str(ledger.path), "begun": begun, "entry": number, "hash": digest}


def say(publication: Publication, released: Release, screen: Screen) -> None:
    """Print where to look, and what was promised.

    Parameters
    ----------
    publication
        What was published.
    released
        The release.
    screen
        Where to print.
    """
    from margrave.release.publication import REPORT

    shown = os.path.relpath(publication.folder)
    noun = "table" if len(released.workload) == 1 else "tables"
    screen.print(styled(f"{len(released.workload):,} {noun}", "bold"), f"in {shown}")
    if publication.report:
        screen.print(f"report: {Path(shown) / REPORT}")
    if released.provenance is not None:
        _say_privacy(released.provenance, screen)
    if released.solution is not None:
        screen.print(released.solution.nearness(f"{released.solution.gap:.0e}"))


def result(publication: Publication, released: Release) -> dict[str, Any]:
    """Return what `say` prints, for a program.

    Parameters
    ----------
    publication
        What was published.
    released
        The release.
    """
    from margrave.release.publication import REPORT

    record, solution = released.provenance, released.solution
    return {
        "folder": os.path.relpath(publication.folder),
        "report": os.path.relpath(Path(publication.folder) / REPORT) if publication.report else None,
        "tables": len(released.workload),
        "mechanism": None if record is None else record.mechanism,
        "method": released.method.name,
        "rho": None if record is None else float(record.rho),
        "epsilon": None if record is None else record.epsilon,
        "delta": None if record is None else record.delta,
        "gap": None if solution is None else solution.gap,
        "rounds": None if solution is None else solution.steps,
    }


def _say_privacy(record: Provenance, screen: Screen) -> None:
    """Say what is promised to whom; that nothing is, where the noise was not private."""
    from margrave.release import facts

    if not record.private:
        screen.print(styled(facts.NOT_PRIVATE.word, "bold"), facts.NOT_PRIVATE.reason)
        return
    screen.print(f"privacy: {facts.stated(record)} (ρ = {facts.stated_rho(record)})")
    enforce = "; use --privacy-id to enforce it" if record.contributions_bounded == "declared" else ""
    screen.print(f"rows: {facts.row_limit(record)}{enforce}")
    if record.cut_short is not None:
        screen.print(facts.cut_short(record))
