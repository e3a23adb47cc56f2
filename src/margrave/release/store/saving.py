"""Save a release: tables, noisy measurements and what describes them, in one folder that is there whole or not at all.

Protocols say here what a release is, so that `margrave.Release` can save itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from margrave.algebra.kernels import Floats, thread_count
from margrave.errors import StoreError
from margrave.measurements.archive import write_archive
from margrave.reconstruction.nonnegative.workers import Actors, connected, partition, prepare_worker, worker_hosts
from margrave.release.store import (
    COUNT_ERRORS,
    KIND,
    MANIFEST,
    MEASUREMENTS,
    TABLES,
    FileEntry,
    Manifest,
    TableEntry,
    checksum,
    read_document,
)
from margrave.release.store.descriptions import as_json, csvw_document, privacy_document, readme
from margrave.release.store.folder import (
    checked_documents,
    checked_target,
    imprint_document,
    list_files,
    new_folder,
    require_outside,
    require_text,
    sync,
)
from margrave.release.store.tables import table_stems, write_csv, write_parquet

if TYPE_CHECKING:
    import pyarrow as pa

    from margrave.algebra.layout import AttributeSet, Layout
    from margrave.measurements.measurements import Measurements
    from margrave.measurements.provenance import Provenance
    from margrave.methods.method import Method
    from margrave.reconstruction.estimates import Estimates
    from margrave.reconstruction.nonnegative import Solution
    from margrave.release.count_errors import CountErrors
    from margrave.workload import Workload

Progress = Callable[[int, int], None]

# Of a share of the tables that is sent to a worker at once: 32 MB of counts, and as much of estimates.
_CELLS_AT_ONCE = 4_000_000
SUBTABLES, SUBTABLES_SCHEMA = "subtables", 1
ERRORS, ERRORS_SCHEMA = "count errors", 1


class SavedTable(Protocol):
    """What is saved of a table."""

    def to_arrow(self) -> pa.Table:
        """Return the table in tidy long form."""
        ...


class Saveable(Protocol):
    """What is saved of a release; `margrave.Release` has all of it."""

    @property
    def workload(self) -> Workload:
        """Which tables were asked for."""
        ...

    @property
    def method(self) -> Method:
        """How they were made."""
        ...

    @property
    def estimates(self) -> Estimates:
        """The estimated residuals."""
        ...

    @property
    def marginals(self) -> Floats:
        """The tables of the closure in one buffer."""
        ...

    @property
    def solution(self) -> Solution | None:
        """What the solver reported."""
        ...

    @property
    def provenance(self) -> Provenance | None:
        """How the measurements were made."""
        ...

    @property
    def measurements(self) -> Measurements | None:
        """The noisy measurements."""
        ...

    @property
    def errors(self) -> CountErrors | None:
        """What was learned about the errors of the counts."""
        ...

    def table(self, *names: str) -> SavedTable:
        """Return one table."""
        ...

    def restricted(self, first: int, last: int) -> Saveable:
        """Return the release of the outer tables from ``first`` to ``last`` − 1 of its closure alone."""
        ...


def save(
    release: Saveable,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    csv: bool = False,
    documents: Mapping[str, str] | None = None,
    title: str | None = None,
    progress: Progress | None = None,
    workers: object = None,
) -> None:
    """Write a release to a folder, as a whole or, on failure, not at all.

    Parameters
    ----------
    release
        The release.
    folder
        The folder to make; the folder that it goes into must be there.
    overwrite
        Replace a release, or an empty folder, of this name. Anything else is never replaced.
    csv
        Write each table as CSV too, next to its Parquet file.
    documents
        Further texts to put into the folder, by file name, such as a report; they get a checksum too.
    title
        What the release is called, for the heading of its README.
    progress
        Called with the number of tables written and the number of all tables.
    workers
        Processes that write the tables, each a part of them; as for ``connected`` of the solver's workers. They must
        see the folder.
    """
    target = require_target(folder, overwrite=overwrite)
    measurements = release.measurements
    if release.workload.domain.unreviewed:
        raise StoreError("the domain is an unreviewed draft, and would be published", remedy="review it first")
    if measurements is None:
        raise StoreError(
            "the release has no measurements, without which no error bar can be checked", remedy="reconstruct it"
        )
    if title is not None:
        require_text(title, "the title")
    texts = checked_documents({**imprint_document(title, {}), **(documents or {})})
    created = datetime.now(UTC).isoformat(timespec="seconds")
    tables = _entries(release.workload, csv=csv)
    with connected(workers) as client, new_folder(target) as draft:
        (draft / TABLES).mkdir()
        measurements.save(draft / MEASUREMENTS)
        _write_subtables(release, draft / "subtables.npz")
        if release.errors is not None:
            _write_errors(release.errors, draft / COUNT_ERRORS)
        for name, text in {**_descriptions(release, tables, created, title, texts), **texts}.items():
            (draft / name).write_text(text, encoding="utf-8", newline="\n")
        files = {name: _settled(draft / name) for name in list_files(draft)}
        if client is None:
            files |= _write_tables(release, draft, tables, progress)
        else:
            files |= _write_divided(release, draft, tables, progress, client)
        manifest = Manifest(
            version=_version(),
            created=created,
            method=release.method.to_dict(),
            solution=_reported(release.solution),
            tables=tables,
            files=files,
        )
        (draft / MANIFEST).write_text(manifest.to_json(), encoding="utf-8", newline="\n")
        sync(draft / MANIFEST)


def require_target(folder: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the full path of a folder to write if a release can go there; for callers who must know early.

    Parameters
    ----------
    folder
        The folder to make.
    overwrite
        Whether a release that is there may be replaced.
    """
    target = checked_target(folder)
    require_outside(target)
    if os.path.lexists(target):
        _check_replaceable(target, overwrite=overwrite)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise StoreError(f"{target.parent} cannot be written to", remedy="name another folder, or request permission")
    return target


def unlisted_tables(layout: Layout, wanted: frozenset[AttributeSet]) -> Iterator[int]:
    """Iterate over the tables of a closure that are not in the workload and so have no file of their own."""
    return (table for table, members in enumerate(layout.sets) if members not in wanted)


def _check_replaceable(target: Path, *, overwrite: bool) -> None:
    """Refuse to replace anything except an empty folder, or a release with only its own files in it."""
    if not overwrite:
        raise StoreError(f"{target} already exists", remedy="name another folder, or replace it with overwrite=True")
    if not target.is_dir():
        raise StoreError(f"{target} is a file, which is never replaced", remedy="name a folder")
    present = set(list_files(target))
    if not present:
        return
    if MANIFEST not in present:
        raise StoreError(f"{target} is not a release, and only a release is replaced", remedy="name another folder")
    document = read_document(target / MANIFEST)
    known = document.get("files")
    if document.get("margrave") != KIND or not isinstance(known, dict):
        raise StoreError(f"{target} is not a release, and only a release is replaced", remedy="name another folder")
    for name in sorted(present - {MANIFEST} - set(known)):
        raise StoreError(
            f"{target / name} is not part of the release there and would be lost", remedy="move it elsewhere"
        )


def _entries(workload: Workload, *, csv: bool) -> tuple[TableEntry, ...]:
    """Return, for each table of the workload, where it goes."""
    stems = table_stems(workload.domain, workload.sets)
    return tuple(
        TableEntry(
            attributes=names,
            file=f"{TABLES}/{stem}.parquet",
            csv=f"{TABLES}/{stem}.csv" if csv else None,
            weight=weight,
            cells=workload.domain.cells(names),
        )
        for names, stem, weight in zip(workload.sets, stems, workload.weights.tolist(), strict=True)
    )


def _descriptions(
    release: Saveable, tables: tuple[TableEntry, ...], created: str, title: str | None, documents: Iterable[str]
) -> dict[str, str]:
    """Return the files that describe the release, by name."""
    domain, provenance = release.workload.domain, release.provenance
    heading = title or f"{len(tables):,} cross-tabulations of {', '.join(domain.attributes)}"
    page = readme(
        domain,
        tables,
        release.method,
        provenance,
        date=created[:10],
        title=title,
        documents=documents,
        bounds=None if release.errors is None else release.errors.bounds,
    )
    return {
        "README.md": page,
        "csvw-metadata.json": as_json(csvw_document(domain, tables, heading, errors=release.errors is not None)),
        "domain.json": domain.to_json(),
        "privacy.json": as_json(privacy_document(provenance)),
    }


def _write_subtables(release: Saveable, file: Path) -> None:
    """Write the counts of the tables that lie inside those of the workload, in the order of the closure."""
    layout = release.estimates.layout
    wanted = frozenset(release.workload.positions)
    whole = release.marginals
    inside = [layout.view(whole, table).ravel() for table in unlisted_tables(layout, wanted)]
    counts = np.concatenate([np.empty(0), *inside])
    write_archive(file, {"margrave": SUBTABLES, "schema": SUBTABLES_SCHEMA}, {"counts": counts})


def _write_errors(errors: CountErrors, file: Path) -> None:
    """Write what was learned about the errors of the counts, and from which seed."""
    header = {"margrave": ERRORS, "schema": ERRORS_SCHEMA}
    drawn = np.array([errors.seed, errors.draws], dtype=np.int64)
    arrays = {"expected": errors.expected, "curve": errors.curve.ravel(), "drawn": drawn}
    if errors.noise is not None:
        arrays["noise"] = errors.noise
    if errors.spread is not None:
        arrays["spread"] = errors.spread.ravel()
    if errors.clumps is not None:
        arrays["clumps"] = errors.clumps
    write_archive(file, header, {**arrays, "bounds": np.array(astuple(errors.bounds))})


def _write_tables(
    release: Saveable, draft: Path, tables: tuple[TableEntry, ...], progress: Progress | None
) -> dict[str, FileEntry]:
    """Write all tables of the workload, some at a time, and return the entries of their files."""
    private = None if release.provenance is None else release.provenance.private
    note = {"margrave": "table", "method": release.method.name, "private": private}

    def write(entry: TableEntry) -> dict[str, FileEntry]:
        table = release.table(*entry.attributes).to_arrow()
        write_parquet(table, draft / entry.file, note)
        written = {entry.file: _settled(draft / entry.file)}
        if entry.csv is not None:
            write_csv(table, draft / entry.csv)
            written[entry.csv] = _settled(draft / entry.csv)
        return written

    files: dict[str, FileEntry] = {}
    with ThreadPoolExecutor(thread_count(), thread_name_prefix="margrave-save") as pool:
        try:
            for done, written in enumerate(pool.map(write, tables), start=1):
                files |= written
                if progress is not None:
                    progress(done, len(tables))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return files


class _Writer:
    """An object on a worker that writes tables of its part, as the caller would."""

    def write(self, version: str, release: Saveable, draft: str, tables: tuple[TableEntry, ...]) -> dict[str, Any]:
        """Write the tables of a part of a release into the folder that the caller has begun."""
        prepare_worker(version)
        folder = Path(draft)
        if not (folder / MEASUREMENTS).is_file():
            raise StoreError(
                f"a worker does not see the folder {folder}",
                remedy="name one on a file system that all workers share, or save without workers",
            )
        return _write_tables(release, folder, tables, None)

    def close(self) -> None:
        """Do nothing: nothing is held."""


def _write_divided(
    release: Saveable,
    draft: Path,
    tables: tuple[TableEntry, ...],
    progress: Progress | None,
    client: Any,  # noqa: ANN401 - the engine has no types
) -> dict[str, FileEntry]:
    """Have workers write all tables that lie in no other one, some at a time, and return the entries of all files."""
    layout, domain = release.estimates.layout, release.workload.domain
    entries = {layout.places[domain.positions(entry.attributes)]: entry for entry in tables}
    inner = tuple(entry for place, entry in sorted(entries.items()) if place < layout.outer)
    files = _write_tables(release, draft, inner, None)
    actors = Actors(client, _Writer, list(worker_hosts(client)), "tables were written")
    try:
        outer_cells = layout.cells - layout.inner_cells
        parts, done = partition(layout, max(len(actors), -(-outer_cells // _CELLS_AT_ONCE))), len(inner)
        for begin in range(0, len(parts), len(actors)):
            some = parts[begin : begin + len(actors)]
            given = [
                (_version(), release.restricted(*part), str(draft), tuple(entries[place] for place in range(*part)))
                for part in some
            ]
            for written in actors.call("write", given):
                files |= written
            done += sum(last - first for first, last in some)
            if progress is not None:
                progress(done, len(tables))
    finally:
        actors.close()
    return files


def _settled(file: Path) -> FileEntry:
    """Return the entry of a file once it is on disk."""
    sync(file)
    return checksum(file)


def _reported(solution: Solution | None) -> dict[str, Any] | None:
    """Return what the solver reported as plain values."""
    if solution is None:
        return None
    numbers = {name: float(getattr(solution, name)) for name in ("gap", "violation", "lift")}
    return {"status": solution.status.name, "meaning": solution.status.value, "steps": int(solution.steps), **numbers}


def _version() -> str:
    from margrave import __version__

    return __version__
