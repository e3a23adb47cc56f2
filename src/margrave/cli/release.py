"""``margrave release``: from a private table to a finished publication in one command."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from margrave.cli import options as o
from margrave.cli.job import Job
from margrave.cli.keeping import keep, kept_file, require_room
from margrave.cli.publishing import Wish, publish
from margrave.cli.screen import Tick, console, print_json, progress
from margrave.errors import InterruptionError, MargraveError

if TYPE_CHECKING:
    from margrave.data.source import Data
    from margrave.measurements import Measurements
    from margrave.planning.plan import Plan
    from margrave.privacy.ledger import Ledger


def release(
    data: o.DataArgument = None,
    job: o.JobFile = None,
    table: o.TableOption = None,
    query: o.QueryOption = None,
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
    wish.check(planned.workload)
    require_room(kept, planned.layout.cells)
    ledger = job.open_ledger()
    with progress() as begin:
        noisy = _measure(planned, source, ledger, begin("counting"))
        kept = keep(noisy, kept)
        try:
            released = publish(noisy, planned.workload, wish, begin)
        except MargraveError as error:
            kept_at = (
                f"the measurements are paid for and kept in {kept}: margrave reconstruct {kept} … goes on from them"
            )
            raise type(error)(f"{error}; {kept_at}") from error
        except KeyboardInterrupt:
            raise InterruptionError(f"interrupted; the measurements are paid for and kept in {kept}") from None
    with suppress(OSError):
        kept.unlink()
    if json:
        print_json(wish.result(released))
        return
    wish.say(released, console())
    if ledger is None:
        console().print("No ledger was named: nobody adds up what is spent on this table. Next time give --ledger.")


def _measure(planned: Plan, source: Data, ledger: Ledger | None, tick: Tick) -> Measurements:
    """Measure the table of a job by its plan."""
    from margrave.mechanisms.residual_planner import measure

    return measure(planned, replace(source, progress=tick), ledger=ledger)
