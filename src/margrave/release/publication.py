"""Publishing: from measurements to a finished folder (reconstruct, report, save). Costs no budget, can be repeated."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from margrave.errors import StoreError
from margrave.methods import DEFAULT, Method, find

if TYPE_CHECKING:
    from margrave.measurements import Measurements
    from margrave.release.release import Release
    from margrave.workload import Workload

REPORT = "report.html"
Tick = Callable[[int, int | None], None]


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
    """

    folder: str | os.PathLike[str]
    method: str | Method = DEFAULT
    overwrite: bool = False
    csv: bool = False
    report: bool = True
    title: str | None = None

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
        if self.title is not None:
            require_text(self.title, "the title")
        if self.report:
            from margrave.release.report.charts import require_packages

            require_packages()
        self.chosen.require_memory(workload, beside=beside)

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
        from margrave.release.reconstruct import reconstruct

        begin = progress or (lambda stage: lambda done, total: None)
        tick = begin("reconstructing")
        released = reconstruct(noisy, workload, method=self.chosen, progress=lambda steps, gap: tick(steps, None))
        documents = {}
        if self.report:
            from margrave.release.report.page import report

            documents[REPORT] = report(released, title=self.title)
        released.save(
            self.folder,
            overwrite=self.overwrite,
            csv=self.csv,
            title=self.title,
            documents=documents,
            progress=begin("writing"),
        )
        return released
