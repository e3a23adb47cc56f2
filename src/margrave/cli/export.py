"""``margrave export``: a saved release in the forms that others ask for."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from margrave.cli.screen import console, progress


class Form(StrEnum):
    """What to write."""

    CSV = "csv"
    SDMX = "sdmx"
    REGISTRY = "registry"


def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    out: Annotated[Path, typer.Option("--out", help="The new folder (csv) or file (sdmx, registry) to write.")],
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
    from margrave.release.export import export as write_export
    from margrave.release.export import require_form
    from margrave.release.store.loading import load

    require_form(out, form.value, agency, dataflow)
    with progress() as begin:
        write_export(
            load(folder),
            out,
            form=form.value,
            agency=agency,
            dataflow=dataflow,
            period=period,
            name=name,
            curator=curator,
            progress=begin("writing"),
        )
    console().print(f"{form.value}: {out}")
