"""The last stage: measurements and a workload in, a release out, and a finished folder of it.

`reconstruct` makes a release; a `Publication` also reports on it and saves it. Neither costs budget, and both can be
repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from margrave.algebra.layout import Layout
from margrave.errors import MeasurementError, PlanError, ReleaseError, StoreError, expected
from margrave.measurements.measurements import Measurements
from margrave.memory import on_disk
from margrave.methods import DEFAULT, Method, find
from margrave.methods.method import Request
from margrave.reconstruction.estimates import estimate_residuals, unbiased_residuals
from margrave.reconstruction.nonnegative.workers import connected, require_workers, worker_pool
from margrave.release.count_errors import BOUNDS, Bounds, learn_errors, require_memory_to_learn
from margrave.release.facts import Imprint
from margrave.release.release import Release
from margrave.release.table import Counts
from margrave.workload import Workload, require_workload

if TYPE_CHECKING:
    from margrave.reconstruction.nonnegative import State

REPORT = "report.html"
# How much is done, and of how much; None if unknown.
Tick = Callable[[int, int | None], None]


def reconstruct(
    measurements: Measurements,
    workload: Workload,
    *,
    method: str | Method = DEFAULT,
    progress: Callable[[int, float], None] | None = None,
    start: Release | None = None,
    workers: object = None,
    scratch: str | os.PathLike[str] | None = None,
    errors: bool = False,
    bounds: Bounds = BOUNDS,
) -> Release:
    """Return the tables of a workload from noisy measurements: inside, outside or across what was measured.

    Parameters
    ----------
    measurements
        The noisy residuals or marginals.
    workload
        The tables wanted, over the domain of the measurements.
    method
        An object of `margrave.methods`, or the short name of one with its usual options.

        - "lnn" (the default), `NonNegative`: non-negative tables that agree with each other, nearest to the
          measurements (GReM-LNN).
        - "mle", `MaximumLikelihood`: the unbiased maximum-likelihood tables (GReM-MLE; from marginals EMP), which have
          negative cells.
        - "trunc" and "trunc+rescale", `Truncated`: the paper's baselines, "mle" with negative cells set to zero table
          by table, then scaled to the estimated total or not.
    progress
        Called now and then with the number of rounds and the gap; never by methods that have no rounds.
    start
        A release of the same workload to start from, which saves rounds and does not change the answer; for "lnn".
    workers
        What to divide the work among; for "lnn". A number of processes on this machine, the address of the scheduler of
        a Dask cluster (``"tcp://host:8786"``), or a ``distributed.Client``. The tables are the same but for rounding.
        Needs the extra ``margrave[workers]`` (docs/scale.md).
    scratch
        A folder for the large arrays of the solver and of the release, where they do not fit into memory.
    errors
        Whether to learn the error of every published count as well (docs/intervals.md): ``count_error``, ``count_low``
        and ``count_high`` of a table. Costs a few more reconstructions, and no budget.
    bounds
        Where published counts stop being reliable, by their errors.
    """
    chosen = find(method)
    _check_request(measurements, workload)
    _check_workers(chosen, workers)
    chosen.require_memory(workload, workers=workers is not None, scratch=scratch is not None)
    if errors:
        require_memory_to_learn(workload, chosen)
    layout = Layout.of(workload.domain.shape, workload.positions)
    begin = None if start is None else _state(chosen, layout, start)
    with on_disk(scratch), worker_pool(workers) as pool:
        estimates = estimate_residuals(measurements, layout)
        unbiased = unbiased_residuals(measurements, estimates)
        used = unbiased if chosen.unbiased else estimates
        request = Request(measurements, workload, used, progress, begin, pool)
        made = chosen.make(request)
        learned = learn_errors(chosen, request, made, bounds=bounds, beside=unbiased) if errors else None
    counts = Counts(layout, made.marginals)
    return Release(workload, chosen, unbiased, counts, made.solution, measurements.provenance, measurements, learned)


def _check_workers(method: Method, workers: object) -> None:
    """Refuse workers that cannot be, or that would have nothing to do."""
    if workers is not None and not method.restarts:
        raise ReleaseError(f"method {method.name!r} does not use workers", remedy="leave out workers (--workers)")
    require_workers(workers)


def _check_request(measurements: object, workload: object) -> None:
    """Refuse what is not measurements and a workload over the same domain."""
    if not isinstance(measurements, Measurements):
        raise MeasurementError(expected("Measurements", measurements), remedy="give Measurements, then the Workload")
    wanted = require_workload(workload).domain
    if wanted != measurements.domain:
        raise PlanError(
            f"the workload is over {wanted!r} and the measurements over {measurements.domain!r}",
            remedy="make both over one domain (labels and descriptions count too)",
        )


def _state(method: Method, layout: Layout, start: object) -> State:
    """Return where a previous solution of the same workload ended."""
    if not method.restarts:
        raise ReleaseError(f"method {method.name!r} does not use a start", remedy="leave start out")
    if not isinstance(start, Release):
        raise ReleaseError(expected("a Release to start from", start))
    if start.solution is None:
        raise ReleaseError(
            f"the release to start from was made by {start.method.name!r}", remedy="start from one by 'lnn'"
        )
    if start.estimates.layout.sets != layout.sets or start.estimates.layout.sizes != layout.sizes:
        raise ReleaseError("the release to start from has other tables", remedy="start from one of the same workload")
    if start.solution.state is None:
        raise ReleaseError(
            "the release to start from was loaded, or made by workers, and does not record the state of the solver",
            remedy="start from one that was made by reconstruct in this session, without workers",
        )
    return start.solution.state


@dataclass(frozen=True)
class Publication:
    """What to publish, and where.

    Attributes
    ----------
    folder
        The folder to write.
    method
        How to reconstruct: a method of ``margrave.methods`` or its short name.
    overwrite, csv, title
        As for `Release.save`.
    report
        Whether to write ``report.html`` into the folder.
    errors
        Whether to learn the error of every published count; see `reconstruct`.
    bounds
        Where published counts stop being reliable, by their errors.
    imprint
        Who publishes it: ``publisher``, ``licence``, ``contact`` and ``date`` for the report, as texts. The folder
        keeps them, with the title, for reports that are written again.
    workers, scratch
        Processes that divide reconstructing and writing, and a folder for large arrays; see `reconstruct`.
    """

    folder: str | os.PathLike[str]
    method: str | Method = DEFAULT
    overwrite: bool = False
    csv: bool = False
    report: bool = True
    title: str | None = None
    errors: bool = True
    bounds: Bounds = BOUNDS
    imprint: Imprint = field(default_factory=Imprint)
    workers: object = None
    scratch: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", find(self.method))
        try:
            object.__setattr__(self, "folder", Path(self.folder).resolve())
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.folder!r} cannot be a folder ({error})", remedy="choose another name") from error

    @property
    def chosen(self) -> Method:
        """The method, as an object."""
        return find(self.method)

    def check(self, workload: Workload, *, beside: int = 0) -> None:
        """Raise an error now for what could not be made or written later, when the budget is spent.

        Parameters
        ----------
        workload
            The tables wanted.
        beside
            Bytes of measurements that are still to be made, and held while tables are made from them.
        """
        from margrave.release.store.folder import require_text
        from margrave.release.store.saving import require_target

        require_target(self.folder, overwrite=self.overwrite)
        for name, text in {"title": self.title, **self.imprint}.items():
            if text is not None:
                require_text(text, f"the {name}")
        if self.report:
            from margrave.release.report.charts import require_report

            require_report()
        _check_workers(self.chosen, self.workers)
        with on_disk(self.scratch):
            pass  # refuses what is not a folder that can be written to
        divided, scratch = self.workers is not None, self.scratch is not None
        self.chosen.require_memory(workload, beside=beside, workers=divided, scratch=scratch)
        if self.errors:
            require_memory_to_learn(workload, self.chosen, beside=beside)

    def publish(
        self, noisy: Measurements, workload: Workload, *, progress: Callable[[str], Tick] | None = None
    ) -> Release:
        """Reconstruct the tables and write the folder.

        Parameters
        ----------
        noisy
            The measurements.
        workload
            The tables wanted.
        progress
            Called with the name of each stage; returns a function that is called with how much of it is done, and of
            how much (None if unknown).
        """
        begin = progress or (lambda stage: lambda done, total: None)
        tick = begin("reconstructing")
        with connected(self.workers) as client:
            released = reconstruct(
                noisy,
                workload,
                method=self.chosen,
                progress=lambda steps, gap: tick(steps, None),
                workers=client,
                scratch=self.scratch,
                errors=self.errors,
                bounds=self.bounds,
            )
            from margrave.release.store.folder import imprint_document

            documents = imprint_document(self.title, self.imprint)
            if self.report:
                from margrave.release.report import report

                documents[REPORT] = report(released, title=self.title, **self.imprint)
            released.save(
                self.folder,
                overwrite=self.overwrite,
                csv=self.csv,
                title=self.title,
                documents=documents,
                progress=begin("writing"),
                workers=client,
            )
        return released
