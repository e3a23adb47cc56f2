"""``margrave export``: a saved release in the forms that others ask for."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from margrave.atomic_file import replacing
from margrave.cli.screen import Tick, console, progress
from margrave.errors import JobError

if TYPE_CHECKING:
    from margrave.release.release import Release


class Form(StrEnum):
    """What to write."""

    CSV = "csv"
    SDMX = "sdmx"
    REGISTRY = "registry"


def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    out: Annotated[Path, typer.Option("--out", help="The folder (csv) or file (sdmx, registry) to write; not there.")],
    form: Annotated[
        Form,
        typer.Option("--form", help="csv: one file a table; sdmx: SDMX-CSV 2.0; registry: a draft entry (YAML)."),
    ] = Form.CSV,
    agency: Annotated[str | None, typer.Option("--agency", help="For sdmx: the agency's identifier.")] = None,
    dataflow: Annotated[str | None, typer.Option("--dataflow", help="For sdmx: the dataflow's identifier.")] = None,
    period: Annotated[str | None, typer.Option("--period", help="For sdmx: the time period, as 2026.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="For registry: what the publication is called.")] = None,
    curator: Annotated[str | None, typer.Option("--curator", help="For registry: who publishes it.")] = None,
) -> None:
    """Write a saved release as CSV, as SDMX-CSV, or as a draft entry for the registry of deployments.

    Example:  margrave export release --form sdmx --agency STAT --dataflow TOWN --out release.csv
    """
    from margrave.release.store.documents import require_outside
    from margrave.release.store.loading import load

    if os.path.lexists(out):
        raise JobError(f"{out} is there already; name another one with --out")
    if form is Form.SDMX and (agency is None or dataflow is None):
        raise JobError("sdmx needs --agency and --dataflow, the identifiers that the tables go by")
    require_outside(out)
    release = load(folder)
    with progress() as begin:
        if form is Form.CSV:
            _write_csv(release, out, begin("writing"))
        elif form is Form.SDMX:
            from margrave.release.sdmx import write_sdmx

            write_sdmx(
                release, out, agency=str(agency), dataflow=str(dataflow), time_period=period, progress=begin("writing")
            )
        else:
            _write_entry(release, out, name, curator)
    console().print(f"{form.value}: {out}")


def _write_csv(release: Release, folder: Path, tick: Tick) -> None:
    """Write each table to a CSV file of its own, in a folder that is there as a whole in the end."""
    from margrave.release.store.folder import checked_target, new_folder
    from margrave.release.store.names import table_stems
    from margrave.release.store.tables import write_csv

    stems = table_stems(release.workload.domain, release.workload.sets)
    with new_folder(checked_target(folder)) as draft:
        for done, (stem, table) in enumerate(zip(stems, release.tables(), strict=True), start=1):
            write_csv(table.to_arrow(), draft / f"{stem}.csv")
            tick(done, len(stems))


def _write_entry(release: Release, file: Path, name: str | None, curator: str | None) -> None:
    """Write the draft of a registry entry."""
    from margrave.release.registry import registry_entry

    text = registry_entry(release, name=name, curator=curator)
    try:
        with replacing(file) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise JobError(f"{file} cannot be written ({error.strerror}); name another file") from error
