"""``margrave reconstruct``: a release from noisy tables made elsewhere, or from measurements that were kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from margrave.cli.job import Job
from margrave.cli.options import AsJson, takes
from margrave.cli.release import result, say
from margrave.cli.screen import console, print_json, progress
from margrave.errors import JobError


@takes("reconstruct", job=True)
def reconstruct(
    asked: Job,
    files: Annotated[
        list[Path],
        typer.Argument(help="A .npz file of measurements, the folder of a release, or noisy tables (CSV, Parquet)."),
    ],
    variance: Annotated[
        float | None, typer.Option("--variance", help="The variance of the noise, for files without such a column.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Make consistent, non-negative tables from noisy ones. Costs no budget.

    Example:  margrave reconstruct age-sex.csv region.csv --variance 25 --domain domain.json --tables age,sex
    --tables region --out release
    """
    from margrave.measurements import Measurements

    publication = asked.publication()
    if any(path.suffix == ".npz" or path.is_dir() for path in files):
        if len(files) > 1:
            raise JobError(
                "an .npz file or a folder is given with other files", remedy="give it alone, or give tables only"
            )
        noisy = Measurements.load(files[0])
    elif asked.domain is None:
        raise JobError("noisy tables need their domain", remedy="give its file with --domain")
    else:
        noisy = Measurements.read_tables(files, asked.read_domain(), variance=variance)
    workload = asked.workload(noisy.domain)
    publication.check(workload)
    with progress() as begin:
        released = publication.publish(noisy, workload, progress=begin)
    if json:
        print_json(result(publication, released))
    else:
        say(publication, released, console())
