"""Trials side by side: a few processes that take one task after another and send back rows as they are done.

A row is in the hands of the parent, which alone writes files, before the next begins. Workers leave Ctrl-C to the
parent and do not outlive it. A worker that is killed from outside (no memory left) ends the run with an error that says
so; what was finished is kept.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Generic, TypeVar

from experiments import ExperimentError
from experiments.lifeline import leave_with_parent
from margrave.algebra.kernels import thread_count
from margrave.errors import MargraveError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

Task = TypeVar("Task")
Row = TypeVar("Row")


class WorkerKilledError(ExperimentError):
    """A process was ended from outside."""


def run_tasks(
    work: Callable[[Task], Iterable[Row]], tasks: Sequence[Task], *, jobs: int
) -> Iterator[tuple[Task, Row | None]]:
    """Yield (task, row) for every row as it comes, and (task, None) when a task is done.

    Parameters
    ----------
    work
        Does one task, row by row; a function of a module, with values, that another process can be sent.
    tasks
        What to do; those with much in common next to each other.
    jobs
        How many at once; one task at a time is done in this process, on all threads.
    """
    if jobs == 1:
        for task in tasks:
            for row in work(task):
                yield task, row
            yield task, None
        return
    workers = [_Worker(work, max(1, thread_count() // jobs)) for _ in range(min(jobs, len(tasks)))]
    try:
        yield from _shared(workers, list(tasks))
    finally:
        for worker in workers:
            worker.end()


def run_alone(work: Callable[[Task], Iterable[Row]], task: Task) -> Iterator[Row]:
    """Yield the rows of one task that is done in a process of its own, on all threads."""
    worker = _Worker(work, thread_count())
    try:
        worker.start(task)
        while (row := worker.receive()) is not None:
            yield row
    finally:
        worker.end()


def _shared(workers: list[_Worker[Task, Row]], waiting: list[Task]) -> Iterator[tuple[Task, Row | None]]:
    """Hand out tasks and pass on rows until nothing is left."""
    for worker in workers:
        worker.start(waiting.pop(0))
    busy = {worker.pipe: worker for worker in workers}
    while busy:
        for pipe in wait(list(busy)):
            worker = busy[pipe]  # type: ignore[index]
            row = worker.receive()
            yield worker.task, row
            if row is None:
                if waiting:
                    worker.start(waiting.pop(0))
                else:
                    del busy[worker.pipe]


class _Worker(Generic[Task, Row]):
    """A process that does tasks."""

    task: Task

    def __init__(self, work: Callable[[Task], Iterable[Row]], threads: int) -> None:
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        self._process: SpawnProcess = context.Process(target=serve, args=(work, other, threads))
        self._process.start()
        other.close()

    def start(self, task: Task) -> None:
        """Give the process a task."""
        self.task = task
        self.pipe.send(task)

    def receive(self) -> Row | None:
        """Return the next row of the task, None when it is done; raise what it raised."""
        try:
            kind, value = self.pipe.recv()
        except EOFError:
            self._process.join()
            raise WorkerKilledError(
                f"the process of a trial ({self.task}) was ended from outside, as the system does when memory runs "
                "out; what was finished is kept: run again with fewer --jobs"
            ) from None
        if kind == "error":
            raise value
        row: Row | None = value
        return row

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def serve(work: Callable[[Task], Iterable[Row]], pipe: Connection, threads: int) -> None:
    """Do tasks until the parent goes; the whole life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leave_with_parent()
    os.environ["MARGRAVE_THREADS"] = str(threads)
    while True:
        task = pipe.recv()
        try:
            for row in work(task):
                pipe.send(("row", row))
            pipe.send(("row", None))
        except MargraveError as error:
            pipe.send(("error", error))
        except Exception as error:
            told = f"a trial ({task}) ended with an unexpected {type(error).__name__}: {error}; --jobs 1 shows where"
            pipe.send(("error", ExperimentError(told)))
