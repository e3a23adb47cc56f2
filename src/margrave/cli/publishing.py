"""From measurements to a finished folder: reconstruct, report, save. Costs no budget and may be repeated."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margrave.cli.job import Job
from margrave.cli.screen import Screen, Tick, styled
from margrave.errors import JobError

if TYPE_CHECKING:
    from margrave.measurements import Measurements, Provenance
    from margrave.methods import Method
    from margrave.release.release import Release
    from margrave.workload import Workload

_REPORT = "report.html"


@dataclass(frozen=True)
class Wish:
    """What is to be published, and where.

    Attributes
    ----------
    folder
        The folder to write.
    method
        How to reconstruct.
    overwrite, csv, report, title
        As the options of the command line.
    """

    folder: Path
    method: Method
    overwrite: bool
    csv: bool
    report: bool
    title: str | None

    @classmethod
    def of(cls, job: Job) -> Wish:
        """Return the wish of a job."""
        from margrave.methods import DEFAULT, find

        # After the budget is spent there is always a release, and it says how near to the best it is.
        method = find(job.method or DEFAULT).lenient()
        report = job.report is None or job.report
        try:
            folder = Path(job.need("out")).resolve()
        except (OSError, ValueError) as error:
            raise JobError(f"{job.out!r} is no name for a folder ({error}); name another one") from error
        return cls(folder, method, bool(job.overwrite), bool(job.csv), report, job.title)

    def check(self, workload: Workload, *, beside: int = 0) -> None:
        """Refuse now what could not be made or written later, when the budget is spent.

        Parameters
        ----------
        workload
            The tables wanted.
        beside
            Bytes of measurements that are still to be made, and held while tables are made from them.
        """
        from margrave.release.store.documents import require_text
        from margrave.release.store.saving import require_target

        require_target(self.folder, overwrite=self.overwrite)
        if self.title is not None:
            require_text(self.title, "the title")
        if self.report:
            from margrave.release.report.charts import require_packages

            require_packages()
        self.method.require_memory(workload, beside=beside)

    def options(self) -> list[str]:
        """Return the words of the command line that ask for the same publication again."""
        words = ["--method", self.method.name, "--out", os.path.relpath(self.folder)]
        words += ["--overwrite"] if self.overwrite else []
        words += ["--csv"] if self.csv else []
        words += [] if self.report else ["--no-report"]
        return words if self.title is None else [*words, "--title", self.title]

    def say(self, release: Release, screen: Screen) -> None:
        """Say where to look."""
        shown = os.path.relpath(self.folder)
        noun = "table" if len(release.workload) == 1 else "tables"
        screen.print(styled(f"{len(release.workload):,} {noun}", "bold"), f"in {shown}")
        if self.report:
            screen.print(f"report: {Path(shown) / _REPORT}")
        if release.provenance is not None:
            record = release.provenance
            screen.print(f"privacy: ε = {record.epsilon:.6g} at δ = {record.delta:.3g} (ρ = {float(record.rho):.6g})")
            screen.print(_rows(record))
            if record.cut_short is not None:
                screen.print(f"the run was cut short {record.cut_short}; it is charged in full")
        if release.solution is not None:
            screen.print(
                f"solved in {release.solution.steps} rounds, within {release.solution.gap:.0e} of the best fit"
            )

    def result(self, release: Release) -> dict[str, Any]:
        """Return the same for a program."""
        record, solution = release.provenance, release.solution
        return {
            "folder": os.path.relpath(self.folder),
            "report": os.path.relpath(self.folder / _REPORT) if self.report else None,
            "tables": len(release.workload),
            "method": release.method.name,
            "rho": None if record is None else float(record.rho),
            "epsilon": None if record is None else record.epsilon,
            "delta": None if record is None else record.delta,
            "gap": None if solution is None else solution.gap,
            "rounds": None if solution is None else solution.steps,
        }


def _rows(record: Provenance) -> str:
    """Return what is known about the rows of one person."""
    from margrave.release.rows import of_result

    most = "1 row" if record.contributions == 1 else f"{record.contributions:,} rows"
    if record.contributions_bounded == "enforced":
        return f"rows: at most {most} a person{of_result(record)} were counted; there may be more"
    return f"rows: at most {most} a person{of_result(record)}; not checked, use --privacy-id to enforce it"


def publish(noisy: Measurements, workload: Workload, wish: Wish, begin: Callable[[str], Tick]) -> Release:
    """Reconstruct the tables and write the folder.

    Parameters
    ----------
    noisy
        The measurements.
    workload
        The tables wanted.
    wish
        What to publish and where.
    begin
        Begins a progress bar.
    """
    from margrave.release.reconstruct import reconstruct
    from margrave.release.store.saving import save

    tick = begin("reconstructing")
    released = reconstruct(noisy, workload, method=wish.method, progress=lambda steps, gap: tick(steps, None))
    documents = {}
    if wish.report:
        from margrave.release.report.page import report

        documents[_REPORT] = report(released, title=wish.title)
    save(
        released,
        wish.folder,
        overwrite=wish.overwrite,
        csv=wish.csv,
        title=wish.title,
        documents=documents,
        progress=begin("writing"),
    )
    return released
