"""``margrave release``: from a private table to a finished publication in one command."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from margrave.cli import options as o
from margrave.cli.job import Job
from margrave.cli.keeping import Keeper, kept_file, require_room
from margrave.cli.publishing import Wish, publish
from margrave.cli.screen import Tick, console, print_json, progress
from margrave.errors import InterruptionError, MargraveError

if TYPE_CHECKING:
    from margrave.data.source import Data
    from margrave.measurements import Measurements
    from margrave.planning.plans import Plan
    from margrave.privacy.ledger import Ledger
    from margrave.release.release import Release


def release(
    data: o.DataArgument = None,
    job: o.JobFile = None,
    table: o.TableOption = None,
    query: o.QueryOption = None,
    publish_query: o.PublishQuery = None,
    privacy_id: o.PrivacyId = None,
    counts: o.Counts = None,
    counting: o.Counting = None,
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = None,
    decimal: o.Decimal = None,
    domain: o.DomainFile = None,
    kway: o.KWay = None,
    up_to: o.UpTo = None,
    tables: o.Tables = None,
    max_cells: o.MaxCells = None,
    epsilon: o.Epsilon = None,
    delta: o.Delta = None,
    rho: o.Rho = None,
    contributions: o.Contributions = None,
    objective: o.Objective = None,
    ledger: o.LedgerFile = None,
    cap_epsilon: o.CapEpsilon = None,
    cap_rho: o.CapRho = None,
    ledger_any_domain: o.LedgerAnyDomain = None,
    method: o.Method = None,
    out: o.Out = None,
    overwrite: o.Overwrite = None,
    csv: o.Csv = None,
    report: o.Report = None,
    title: o.Title = None,
    json: o.AsJson = False,
) -> None:
    """Plan, measure, reconstruct and publish: a private table in, a folder of tables with a report out.

    Example:  margrave release people.csv --domain domain.json --kway 3 --epsilon 1 --delta 1e-9
    --contributions 1 --ledger people.ledger --cap-epsilon 2 --out release
    """
    given = {**locals(), "tables": o.named_tables(tables)}
    asked = Job.of(given.pop("job"), {name: value for name, value in given.items() if name != "json"})
    run(asked, json=json)


def run(job: Job, *, json: bool = False) -> None:
    """Do a job. All that can be refused is refused before the table is read; what was paid for is never lost.

    Parameters
    ----------
    job
        What to do.
    json
        Whether to say the result as JSON.
    """
    wish = Wish.of(job)
    domain = job.read_domain()
    planned = job.plan(job.workload(domain))
    source = job.source()
    kept = kept_file(wish.folder)
    wish.check(planned.workload, beside=8 * planned.layout.cells)
    require_room(kept, planned.layout.cells)
    ledger = job.open_ledger()
    begun = ledger is not None and ledger.is_new
    if ledger is not None and begun and not json:
        console().print(_beginning(ledger, planned.budget.delta))
    keeper = Keeper(kept, [*job.workload_options(), *wish.options()])
    with progress() as begin:
        released = _released(planned, source, ledger, wish, keeper, begin)
    if keeper.file is not None:
        with suppress(OSError):
            keeper.file.unlink()
    if json:
        print_json({**wish.result(released), "ledger": None if ledger is None else _entry(ledger, released, begun)})
        return
    wish.say(released, console())
    if ledger is None:
        console().print("No ledger was named: nobody adds up what is spent on this table. Next time give --ledger.")
    else:
        console().print(f"ledger: {ledger.balance(planned.budget.delta)}")


def _released(
    planned: Plan, source: Data, ledger: Ledger | None, wish: Wish, keeper: Keeper, begin: Callable[[str], Tick]
) -> Release:
    """Measure the table and publish; whatever happens after the charge, the message says how to go on."""
    from margrave.mechanisms.interruption import terminable

    try:
        noisy = _measure(planned, source, ledger, keeper, begin("counting"))
        with terminable():
            return publish(noisy, planned.workload, wish, begin)
    except MargraveError as error:
        if keeper.file is None:
            raise
        raise type(error)(f"{error}{keeper.continuation()}") from error
    except KeyboardInterrupt as error:
        said = str(error) or _interrupted(planned, charged=keeper.file is not None)
        raise InterruptionError(f"{said}{keeper.continuation()}") from None


def _measure(planned: Plan, source: Data, ledger: Ledger | None, keeper: Keeper, tick: Tick) -> Measurements:
    """Measure the table of a job by its plan; signals wait until what was paid for is on disk."""
    from margrave.mechanisms.residual_planner import measure

    described = replace(source, progress=tick)
    return measure(planned, described, ledger=ledger, keep=keeper.save, defer_signals=True)


def _interrupted(planned: Plan, *, charged: bool) -> str:
    """Return what a run that was interrupted has cost."""
    from margrave.privacy.budget import spoken_budget

    return f"interrupted; {spoken_budget(planned.budget)} is charged" if charged else "interrupted; nothing was charged"


def _beginning(ledger: Ledger, delta: float) -> str:
    """Return the sentence for a ledger that is not there yet: one that was moved would start again at zero."""
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
