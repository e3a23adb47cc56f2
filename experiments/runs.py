"""A run of an experiment: what is missing in the file of results is run, and every row is on disk when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from experiments.datasets import require_datasets
from experiments.journal import Journal
from experiments.private_pgm import require_mbi
from experiments.records import Record
from experiments.settings import Settings, Trial, check_data, pending_trials
from experiments.trials import run_trial, warm_up
from experiments.workers import run_tasks

Progress = Callable[[int, int, str], None]


@dataclass
class _Work:
    """Does the trials of a run; compiles once in each process."""

    settings: Settings
    warm: bool = False

    def __call__(self, trial: Trial) -> Iterator[Record]:
        if not self.warm:
            warm_up()
            self.warm = True
        return run_trial(self.settings, trial)


def results_file(folder: Path, experiment: str) -> Path:
    """Return where the results of an experiment are kept in a folder."""
    return folder / f"{experiment}.csv"


def run_experiment(settings: Settings, folder: Path, *, progress: Progress | None = None) -> list[Record]:
    """Run the trials of an experiment that are not in the folder yet, and return all rows of its file.

    Parameters
    ----------
    settings
        What to run.
    folder
        Where ``residual-planner.csv`` or ``mwem.csv`` is kept.
    progress
        Called with the trials done, the trials in all, and what is next or was done last.
    """
    require_datasets(settings.data, settings.datasets)
    if settings.uses_pgm:
        require_mbi()
    with Journal(results_file(folder, settings.experiment), Record) as journal:
        check_data(settings, journal.rows)
        trials = pending_trials(settings, journal.rows)
        done = 0
        for trial, record in run_tasks(_Work(settings), trials, jobs=settings.jobs):
            if record is not None:
                journal.append(record)
                continue
            done += 1
            if progress is not None:
                progress(done, len(trials), str(trial))
        return journal.rows
