"""A release in the forms that others ask for: CSV files, SDMX-CSV, a draft entry for the registry of deployments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from margrave.errors import ReleaseError, StoreError, suggestion
from margrave.files import replacing
from margrave.release.export.registry import registry_entry
from margrave.release.export.sdmx import write_sdmx
from margrave.release.store.folder import checked_target, new_folder, require_outside
from margrave.release.store.tables import table_stems, write_csv
from margrave.workload import Workload

if TYPE_CHECKING:
    from margrave.release.release import Release

FORMS = ("csv", "sdmx", "registry")
Progress = Callable[[int, int], None]


def export(
    release: Release,
    path: str | os.PathLike[str],
    *,
    form: str = "csv",
    agency: str | None = None,
    dataflow: str | None = None,
    period: str | None = None,
    name: str | None = None,
    curator: str | None = None,
    tables: Iterable[Iterable[str]] | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a release in a form for others; nothing that exists is replaced.

    Parameters
    ----------
    release
        The release.
    path
        The folder (csv) or the file (sdmx, registry) to write.
    form
        "csv": one file per table. "sdmx": SDMX-CSV 2.0. "registry": a draft entry for the registry of deployments, as
        YAML.
    agency, dataflow, period
        For sdmx: the identifiers of the agency and the dataflow, and the time period, such as "2026".
    name, curator
        For registry: what the publication is called, and who publishes it.
    tables
        For csv and sdmx: the tables to write, as in ``[("age", "sex"), ("region",)]``, each inside a table of the
        workload; by default those of the workload.
    progress
        Called with the number of tables written and of all tables.
    """
    require_form(path, form, agency, dataflow)
    target = Path(path)
    chosen = None if tables is None else [tuple(names) for names in tables]
    if chosen is not None and form == "registry":
        raise ReleaseError("an entry of the registry is about all tables", remedy="leave out tables (--tables)")
    if form == "csv":
        _write_tables(release, target, chosen, progress)
    elif form == "sdmx":
        named = {"agency": str(agency), "dataflow": str(dataflow), "time_period": period}
        write_sdmx(release, target, **named, tables=chosen, progress=progress)  # type: ignore[arg-type]
    else:
        _write_entry(release, target, name, curator)


def require_form(path: str | os.PathLike[str], form: str, agency: str | None, dataflow: str | None) -> None:
    """Raise `ReleaseError` for an export that cannot be written, before the release is read.

    Parameters
    ----------
    path, form, agency, dataflow
        As for `export`.
    """
    if form not in FORMS:
        raise ReleaseError(f"no form {form!r}{suggestion(str(form), FORMS)} (there are {', '.join(FORMS)})")
    if os.path.lexists(path):
        raise StoreError(f"{path} already exists", remedy="choose another name")
    if form == "sdmx" and (agency is None or dataflow is None):
        raise ReleaseError("sdmx needs agency (--agency) and dataflow (--dataflow), the identifiers of the tables")
    require_outside(path)


def _write_tables(
    release: Release, folder: Path, chosen: Sequence[tuple[str, ...]] | None, progress: Progress | None
) -> None:
    """Write each table to a CSV file of its own, in a folder that appears as a whole at the end."""
    sets = release.workload.sets if chosen is None else Workload(release.workload.domain, chosen).sets
    for names in sets if chosen is not None else ():
        release.table(*names)  # refuses one that the release does not have, before anything is written
    stems = table_stems(release.workload.domain, sets)
    with new_folder(checked_target(folder)) as draft:
        for done, (stem, names) in enumerate(zip(stems, sets, strict=True), start=1):
            write_csv(release.table(*names).to_arrow(), draft / f"{stem}.csv")
            if progress is not None:
                progress(done, len(stems))


def _write_entry(release: Release, file: Path, name: str | None, curator: str | None) -> None:
    """Write the draft of a registry entry."""
    text = registry_entry(release, name=name, curator=curator)
    try:
        with replacing(file) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise StoreError(f"{file} cannot be written ({error.strerror})", remedy="choose another file") from error
