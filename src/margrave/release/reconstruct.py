"""The public verb of the last stage: measurements and a workload in, a release out."""

from __future__ import annotations

import os
from collections.abc import Callable

from margrave.algebra.layout import Layout
from margrave.errors import ReleaseError, WorkloadError
from margrave.measurements import Measurements
from margrave.memory import on_disk
from margrave.methods import DEFAULT, find
from margrave.methods.method import Method, Request
from margrave.reconstruction.estimates import estimate_residuals
from margrave.reconstruction.nonnegative import State
from margrave.reconstruction.nonnegative.workers import opened
from margrave.release.counts import Counts
from margrave.release.release import Release
from margrave.workload import Workload


def reconstruct(
    measurements: Measurements,
    workload: Workload,
    *,
    method: str | Method = DEFAULT,
    progress: Callable[[int, float], None] | None = None,
    start: Release | None = None,
    workers: object = None,
    scratch: str | os.PathLike[str] | None = None,
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
        Who shares the work; for "lnn". A number of processes on this machine, the address of the scheduler of a Dask
        cluster (``"tcp://host:8786"``), or a ``distributed.Client``. The tables are the same but for rounding. Needs
        the extra ``margrave[workers]`` (docs/scale.md).
    scratch
        A folder for the large arrays of the solver and of the release, where they do not fit into memory.
    """
    chosen = find(method)
    _check_request(measurements, workload)
    if workers is not None and not chosen.restarts:
        raise ReleaseError(f"method {chosen.name!r} has no work to divide", remedy="leave workers out")
    chosen.require_memory(workload, workers=workers is not None, scratch=scratch is not None)
    layout = Layout.of(workload.domain.shape, workload.positions)
    begin = None if start is None else _state(chosen, layout, start)
    with on_disk(scratch), opened(workers) as hire:
        estimates = estimate_residuals(measurements, layout)
        made = chosen.make(Request(measurements, workload, estimates, progress, begin, hire))
    counts = Counts(layout, made.marginals)
    return Release(workload, chosen, estimates, counts, made.solution, measurements.provenance, measurements)


def _check_request(measurements: object, workload: object) -> None:
    """Refuse what is not measurements and a workload over the same domain."""
    if not isinstance(measurements, Measurements):
        raise ReleaseError(
            f"expected Measurements, got a {type(measurements).__name__}", remedy="give Measurements, then the Workload"
        )
    if not isinstance(workload, Workload):
        raise ReleaseError(
            f"expected a Workload, got a {type(workload).__name__}",
            remedy="give one, as in Workload.all_kway(domain, 3)",
        )
    if workload.domain != measurements.domain:
        raise WorkloadError(
            f"the workload is over {workload.domain!r} and the measurements over {measurements.domain!r}",
            remedy="make both over one domain (labels and descriptions count too)",
        )


def _state(method: Method, layout: Layout, start: object) -> State:
    """Return where a previous solution of the same workload ended."""
    if not method.restarts:
        raise ReleaseError(f"method {method.name!r} starts from nothing", remedy="leave start out")
    if not isinstance(start, Release):
        raise ReleaseError(f"expected a Release to start from, got a {type(start).__name__}")
    if start.solution is None:
        raise ReleaseError(
            f"the release to start from was made by {start.method.name!r}", remedy="start from one by 'lnn'"
        )
    if start.estimates.layout.sets != layout.sets or start.estimates.layout.sizes != layout.sizes:
        raise ReleaseError("the release to start from has other tables", remedy="start from one of the same workload")
    if start.solution.state is None:
        raise ReleaseError(
            "the release to start from was loaded, or made by workers, and does not know where its rounds ended",
            remedy="start from one that was made by reconstruct in this session, without workers",
        )
    return start.solution.state
