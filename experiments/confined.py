"""Work in a process of its own, which is ended when it takes too much processor time or memory.

The limit is on processor time, so that a run that shares its machine with others is not ended for their sake; a process
that waits is ended after ten times as long.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar

from experiments.cost import resident_bytes
from experiments.lifeline import leave_with_parent
from experiments.private_pgm import how_it_failed
from experiments.records import DONE, FAILED, MEMORY_LIMIT, TIME_LIMIT

Value = TypeVar("Value")
_LOOK_EVERY = 0.2
_MOST_WAITING = 10


@dataclass(frozen=True, eq=False)
class Confined(Generic[Value]):
    """How the work of a process ended.

    Attributes
    ----------
    status
        "done", "time limit", "memory limit" or "failed".
    value
        What it returned; None if it is not done.
    seconds, processor_seconds
        How long it took, and how much processor time, with starting and importing.
    megabytes
        The largest resident size that was seen.
    note
        Why there is no result.
    """

    status: str
    value: Value | None
    seconds: float
    processor_seconds: float
    megabytes: float
    note: str = ""


def confined(
    work: Callable[..., Value],
    *given: Any,  # noqa: ANN401 (whatever the work takes)
    limit_seconds: float,
    limit_gb: float,
) -> Confined[Value]:
    """Return what a function of a module returns for what is given, or why there is nothing.

    Parameters
    ----------
    work
        A function that another process can import.
    given
        What it is given; sent to the other process.
    limit_seconds
        The most processor time.
    limit_gb
        The most gigabytes of resident memory.
    """
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(sender, work, given))
    process.start()
    sender.close()
    started, peak, used = time.monotonic(), 0, 0.0

    def ended(status: str, value: Value | None, note: str) -> Confined[Value]:
        return Confined(status, value, time.monotonic() - started, used, peak / 1e6, note)

    try:
        while True:
            arrived = receiver.poll(_LOOK_EVERY)
            peak = max(peak, resident_bytes(process.pid or 0))
            used = max(used, processor_seconds(process.pid or 0))
            if arrived:
                try:
                    status, note, value = receiver.recv()
                except EOFError:
                    process.join()
                    return ended(FAILED, None, f"its process ended with exit code {process.exitcode}")
                return ended(status, value, note)
            if peak > limit_gb * 1e9:
                return ended(MEMORY_LIMIT, None, f"more than {limit_gb:g} GB")
            if used > limit_seconds or time.monotonic() - started > _MOST_WAITING * limit_seconds:
                return ended(TIME_LIMIT, None, f"more than {limit_seconds:g} s of processor time")
    finally:
        process.kill()
        process.join()


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has used so far; zero where the system cannot tell, or it has gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve(sender: Connection, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    """Do the work and send (status, note, value); the whole life of the process."""
    leave_with_parent()
    try:
        sender.send((DONE, "", work(*given)))
    except Exception as error:
        sender.send((*how_it_failed(error), None))
