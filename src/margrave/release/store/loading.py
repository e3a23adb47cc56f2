"""Load a release: every file is checked against the manifest, and what it says against the others, before its use.

Tables are read when they are asked for: a request for one of a thousand does not wait for the others.

Documents (the pages for readers, a report, whatever the publisher added) are not needed for the numbers: a release
whose report was lost is still a release. What is wrong with them is said by `verify`, and refused if asked for. As long
as its measurements are intact, everything else can be rebuilt from them at no privacy cost.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from margrave.algebra.kernels import Floats, thread_count
from margrave.algebra.layout import Layout
from margrave.domain.domain import Domain
from margrave.domain.values import table_label
from margrave.errors import DamageError, MargraveError, MemoryLimitError, ReleaseError, StoreError
from margrave.measurements.archive import UNREADABLE, Archive, ArchiveError, open_archive
from margrave.measurements.measurements import Measurements
from margrave.memory import require_memory
from margrave.methods import Method, names, read
from margrave.reconstruction.estimates import estimate_residuals, unbiased_residuals
from margrave.reconstruction.nonnegative import Solution, Status
from margrave.release.count_errors import CURVE, KNOTS, Bounds, CountErrors
from margrave.release.release import Release
from margrave.release.store import (
    COUNT_ERRORS,
    MANIFEST,
    MEASUREMENTS,
    OWN_FILES,
    FileEntry,
    Manifest,
    checksum,
    damage,
    read_document,
    read_manifest,
    remedied,
)
from margrave.release.store.descriptions import check_privacy
from margrave.release.store.folder import list_files, require_folder
from margrave.release.store.saving import ERRORS, ERRORS_SCHEMA, SUBTABLES, SUBTABLES_SCHEMA, unlisted_tables
from margrave.release.store.tables import read_counts
from margrave.release.table import Counts
from margrave.workload import Workload

Progress = Callable[[int, int], None]

_SUBTABLES_FILE = "subtables.npz"


def load(folder: str | os.PathLike[str], *, strict: bool = False, progress: Progress | None = None) -> Release:
    """Return the release of a folder, once it is known to be what was saved.

    All tables, estimates and standard errors are those of the release that was saved. Nothing in the folder is
    executed, and its sizes are checked before memory is taken. What the solver can start from is not saved.

    The files of a table are read when the table is first asked for, and their checksums are compared then: damage to
    them is a `DamageError` at that moment. All other files are checked at once. `verify`, and ``strict``, read
    everything.

    Parameters
    ----------
    folder
        A folder that `Release.save` has written. It must stay as it is while the release is in use.
    strict
        Read and check everything now, documents included, on which no number depends: README.md, csvw-metadata.json,
        a report.
    progress
        Called, whenever tables are read, with the number of tables read so far and the number of all tables.
    """
    root = require_folder(folder)
    with _remedies(root):
        release = _load(root, read_manifest(root), strict=strict, progress=progress)
    if strict:
        release.counts.everything()
    return release


@contextmanager
def _remedies(root: Path) -> Iterator[None]:
    """Turn whatever is raised about a folder into an error in words that says what to do."""
    try:
        yield
    except DamageError as error:
        raise remedied(error, remedy(root)) from error
    except ArchiveError as error:
        raise remedied(damage(error.problem), remedy(root)) from error
    except MargraveError:
        raise
    except UNREADABLE as error:
        reason = str(error) or type(error).__name__
        raise remedied(damage(f"{str(root)!r} cannot be loaded ({reason})"), remedy(root)) from error


def _load(root: Path, manifest: Manifest, *, strict: bool, progress: Progress | None) -> Release:
    """Return the release that a folder holds by its manifest, its tables to be read."""
    method = _method(root, manifest)
    for name, fault in listing_faults(root, manifest):
        if strict or manifest.needs(name):
            raise fault
    own = {name for entry in manifest.tables for name in (entry.file, entry.csv)}
    for name, entry in manifest.files.items():
        if name not in own and (strict or manifest.needs(name)):
            check_content(root, name, entry)
    workload = _workload(root, manifest)
    with open_archive(root / _SUBTABLES_FILE, SUBTABLES, SUBTABLES_SCHEMA) as archive:
        layout = _layout(archive, workload)
        _require_memory(root, layout, workload)
        buffer = _subtables(archive, layout, workload)
    measurements = _measurements(root, workload.domain)
    privacy = read_document(root / "privacy.json")
    check_privacy(privacy, measurements.provenance, str(root / "privacy.json"))
    files = _TableFiles(root, manifest, layout, workload, negative=not method.nonnegative, progress=progress)
    return Release(
        workload,
        method,
        unbiased_residuals(measurements, estimate_residuals(measurements, layout)),
        Counts(layout, buffer, unread=files.numbers, read=files.read),
        solution=_solution(root, manifest),
        provenance=measurements.provenance,
        measurements=measurements,
        errors=_errors(root, layout) if COUNT_ERRORS in manifest.files else None,
    )


def _errors(root: Path, layout: Layout) -> CountErrors:
    """Return what was learned about the errors of the counts."""
    orders = int(layout.index.order.max()) + 1
    with open_archive(root / COUNT_ERRORS, ERRORS, ERRORS_SCHEMA) as archive:
        expected = archive.array("expected", (len(layout.sets),), np.dtype(np.float64))
        curve = archive.array("curve", (orders * CURVE,), np.dtype(np.float64)).reshape(orders, CURVE)
        seed, draws = archive.array("drawn", (2,), np.dtype(np.int64)).tolist()
        # Files of earlier versions have no bounds, no spread, no noise and no clumps.
        bounds = archive.array("bounds", (3,), np.dtype(np.float64)).tolist() if "bounds" in archive else ()
        spread = noise = clumps = None
        if "spread" in archive:
            spread = archive.array("spread", (orders * KNOTS,), np.dtype(np.float64)).reshape(orders, KNOTS)
        if "noise" in archive:
            noise = archive.array("noise", (len(layout.sets),), np.dtype(np.float64))
        if "clumps" in archive:
            clumps = archive.array("clumps", (orders,), np.dtype(np.float64))
    for numbers in (expected, curve, spread, clumps):
        if numbers is not None and not (np.isfinite(numbers).all() and (numbers >= 0).all()):
            raise damage(f"{root / COUNT_ERRORS} is damaged: an error is negative or no finite number")
    # A variance may be infinite: that of a set that was never measured.
    if noise is not None and not (noise >= 0).all():
        raise damage(f"{root / COUNT_ERRORS} is damaged: a variance is negative or no number")
    try:
        return CountErrors(expected, curve, seed, draws, Bounds(*bounds), spread, noise, clumps)
    except ReleaseError as error:
        raise damage(f"{root / COUNT_ERRORS} is damaged: {error.problem}") from error


def _method(root: Path, manifest: Manifest) -> Method:
    """Return the method that the manifest records."""
    if manifest.method["name"] not in names():
        made, known = manifest.method["name"], ", ".join(names())
        raise StoreError(f"{root} was made by the method {made!r}, this margrave knows {known}", remedy="upgrade it")
    try:
        return read(manifest.method)
    except ReleaseError as error:
        raise damage(f"{root} is damaged: its manifest does not record a method ({error})") from error


def _workload(root: Path, manifest: Manifest) -> Workload:
    """Return the workload of the manifest over the domain of domain.json."""
    domain = Domain.read(root / "domain.json")
    sets = [entry.attributes for entry in manifest.tables]
    workload = Workload(domain, sets, weights=[entry.weight for entry in manifest.tables])
    if workload.sets != tuple(sets):
        raise damage(f"{root} is damaged: its manifest does not list each table once")
    for entry in manifest.tables:
        if entry.cells != domain.cells(entry.attributes):
            raise damage(f"{root / entry.file} is damaged: domain.json has other sizes")
    return workload


def _require_memory(root: Path, layout: Layout, workload: Workload) -> None:
    """Refuse a release that the machine cannot hold: the counts, the estimates and the measurements."""
    needed = 16 * layout.cells + (root / MEASUREMENTS).stat().st_size
    named = [(table_label(names, total="total"), 8 * workload.domain.cells(names)) for names in workload.largest(3)]
    require_memory(needed, f"the release in {root}", named, advice="read single tables from its Parquet files")


def _measurements(root: Path, domain: Domain) -> Measurements:
    """Return the measurements, which must be over the domain of domain.json."""
    measurements = Measurements.load(root / MEASUREMENTS)
    if measurements.domain != domain:
        raise StoreError(f"{root} is damaged: measurements.npz and domain.json differ", remedy="get the release again")
    return measurements


def _layout(archive: Archive, workload: Workload) -> Layout:
    """Return the closure of the workload, in which every table has a file of its own or a count in the archive.

    So no manifest makes anybody list more tables than the folder has numbers.
    """
    most = len(workload) + archive.length("counts")
    try:
        return Layout.of(workload.domain.shape, workload.positions, most_tables=most)
    except MemoryLimitError as error:
        raise damage(f"{archive.file} is damaged: it does not hold a count for every table inside others") from error


def _subtables(archive: Archive, layout: Layout, workload: Workload) -> Floats:
    """Return a buffer of the closure with the counts of the tables that have no file of their own."""
    inside = list(unlisted_tables(layout, frozenset(workload.positions)))
    cells = sum(math.prod(layout.shape(table)) for table in inside)
    counts = archive.array("counts", (cells,), np.dtype(np.float64))
    if not np.isfinite(counts).all():
        raise damage(f"{archive.file} is damaged: a count is NaN or infinite")
    marginals = np.zeros(layout.cells)
    begin = 0
    for table in inside:
        view = layout.view(marginals, table)
        view[...] = counts[begin : begin + view.size].reshape(view.shape)
        begin += view.size
    return marginals


class _TableFiles:
    """The files of the tables of a release, which are checked and read when they are asked for.

    Attributes
    ----------
    numbers
        For each table of the closure that has files of its own, by its number there, its number in the manifest.
    """

    def __init__(
        self,
        root: Path,
        manifest: Manifest,
        layout: Layout,
        workload: Workload,
        *,
        negative: bool,
        progress: Progress | None,
    ) -> None:
        self.numbers = {layout.places[members]: number for number, members in enumerate(workload.positions)}
        self._root, self._manifest, self._layout, self._domain = root, manifest, layout, workload.domain
        self._negative, self._progress, self._done = negative, progress, 0

    def read(self, places: Sequence[int], buffer: Floats) -> None:
        """Check and read tables, some at a time, into the buffer of the closure."""
        with _remedies(self._root), ThreadPoolExecutor(thread_count(), thread_name_prefix="margrave-load") as pool:
            try:
                for _ in pool.map(partial(self._read_one, buffer), places):
                    self._done += 1
                    if self._progress is not None:
                        self._progress(self._done, len(self.numbers))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _read_one(self, buffer: Floats, place: int) -> None:
        """Check and read one table."""
        entry = self._manifest.tables[self.numbers[place]]
        for name in (entry.file, entry.csv):
            if name is not None:
                check_content(self._root, name, self._manifest.files[name])
        counts = read_counts(self._root / entry.file, self._domain, entry.attributes, negative=self._negative)
        self._layout.view(buffer, place)[...] = counts


def _solution(root: Path, manifest: Manifest) -> Solution | None:
    """Return what the solver reported, without its tables (the release has them) and its state (not saved)."""
    if manifest.solution is None:
        return None
    reported: Mapping[str, Any] = manifest.solution
    try:
        status = Status[reported["status"]]
        gap, violation, lift = (float(reported[name]) for name in ("gap", "violation", "lift"))
        return Solution(np.empty(0), None, status, gap, int(reported["steps"]), violation, lift)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise damage(f"{root} is damaged: its solution is not a report of the solver ({error})") from error


def listing_faults(folder: Path, manifest: Manifest) -> Iterator[tuple[str, StoreError]]:
    """Iterate over the files that a folder lacks, has too many, or has in another size, each with what is wrong."""
    present = {name for name in list_files(folder) if name != MANIFEST}
    listed = manifest.files.keys()
    for name in sorted((listed | set(OWN_FILES)) - present - {MANIFEST}):
        yield name, damage(f"{folder / name} is missing")
    for name in sorted(present - listed):
        yield name, StoreError(f"{folder / name} is not part of the release", remedy="take it out of the folder")
    for name in (name for name in listed if name in present):
        found = (folder / name).lstat()
        if not stat.S_ISREG(found.st_mode):
            yield name, damage(f"{folder / name} is a link or a device, not a file")
        elif found.st_size != manifest.files[name].bytes:
            sizes = f"{found.st_size:,} bytes, not {manifest.files[name].bytes:,}"
            yield name, damage(f"{folder / name} is damaged: {sizes}")


def check_content(folder: Path, name: str, entry: FileEntry) -> None:
    """Refuse a file whose content is not what was written."""
    try:
        found = checksum(folder / name)
    except OSError as error:
        raise damage(f"{folder / name} cannot be read ({error.strerror})") from error
    if found != entry:
        raise damage(f"{folder / name} is damaged: its checksum is wrong")


def remedy(folder: Path) -> str | None:
    """Return how to rebuild a damaged release from its measurements; None if they are damaged too."""
    file = folder / MEASUREMENTS
    if not (_is_readable(file) and _is_recorded(folder, file)):
        return None
    return f"margrave reconstruct {file} … rebuilds it at no privacy cost"


def _is_readable(file: Path) -> bool:
    """Tell whether a file holds measurements; their archive has checksums of its own."""
    try:
        if file.is_symlink() or not file.is_file():
            return False
        Measurements.load(file)
    except (MargraveError, *UNREADABLE):
        return False
    return True


def _is_recorded(folder: Path, file: Path) -> bool:
    """Tell whether measurements are those of the manifest; where that cannot be read, nothing speaks against them."""
    try:
        recorded = read_manifest(folder).files
    except StoreError:
        return True
    try:
        return recorded.get(MEASUREMENTS) == checksum(file)
    except OSError:
        return False


def verify(folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return all that is wrong with a folder, one sentence each; nothing if it is what was saved, documents included.

    `load` stops at the first fault that concerns the numbers asked for, and looks at documents only if asked.

    Parameters
    ----------
    folder
        A folder that `Release.save` has written.
    """
    root = require_folder(folder)
    faults: list[MargraveError] = []
    try:
        manifest = read_manifest(root)
        found = _faults(root, manifest)
        faults += found.values()
        if not any(manifest.needs(name) for name in found):
            load(root).counts.everything()
    except MargraveError as error:
        faults.append(error)
    except UNREADABLE as error:
        faults.append(damage(f"{root} cannot be read ({error})"))
    better = remedy(root) if faults else None
    return tuple(str(remedied(fault, better) if isinstance(fault, DamageError) else fault) for fault in faults)


def _faults(root: Path, manifest: Manifest) -> dict[str, StoreError]:
    """Return what is wrong with the files of a folder, by name."""
    faults = dict(listing_faults(root, manifest))
    for name, entry in manifest.files.items():
        if name not in faults:
            try:
                check_content(root, name, entry)
            except StoreError as error:
                faults[name] = error
    return faults
