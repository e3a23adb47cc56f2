"""``margrave reconstruct``: noisy tables from elsewhere, or kept measurements, made into a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from margrave.cli import options as o
from margrave.cli.job import Job
from margrave.cli.publishing import Wish, publish
from margrave.cli.screen import console, print_json, progress


def reconstruct(
    files: Annotated[
        list[Path],
        typer.Argument(help="A .npz file of measurements, the folder of a release, or noisy tables (CSV, Parquet)."),
    ],
    job: o.JobFile = None,
    variance: Annotated[
        float | None, typer.Option("--variance", help="The variance of the noise, for files without such a column.")
    ] = None,
    domain: o.DomainFile = None,
    kway: o.KWay = None,
    up_to: o.UpTo = None,
    tables: o.Tables = None,
    max_cells: o.MaxCells = None,
    method: o.Method = None,
    out: o.Out = None,
    overwrite: o.Overwrite = None,
    csv: o.Csv = None,
    report: o.Report = None,
    title: o.Title = None,
    json: o.AsJson = False,
) -> None:
    """Make consistent, non-negative tables from noisy ones. Costs no budget.

    Example:  margrave reconstruct age-sex.csv region.csv --variance 25 --domain domain.json --tables age,sex
    --tables region --out release
    """
    from margrave.cli.foreign import read_measurements

    given = {**locals(), "tables": o.named_tables(tables)}
    left = ("job", "files", "variance", "json", "read_measurements")
    asked = Job.of(job, {name: value for name, value in given.items() if name not in left})
    wish = Wish.of(asked)
    # Measurements that margrave saved carry their domain; tables from elsewhere do not.
    declared = None if asked.domain is None else asked.read_domain()
    noisy = read_measurements(files, declared, variance)
    workload = asked.workload(noisy.domain)
    wish.check(workload)
    with progress() as begin:
        released = publish(noisy, workload, wish, begin)
    if json:
        print_json(wish.result(released))
    else:
        wish.say(released, console())
