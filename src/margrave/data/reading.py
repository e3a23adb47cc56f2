"""Read a step ahead: one thread waits for the next batch of rows while the others count the last one."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")

_AHEAD = 2
_SECONDS = 0.1


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator that a thread of its own runs, at most two of them ahead; pass on its failures."""
    waiting: Queue[tuple[bool, object]] = Queue(_AHEAD)
    stop = Event()

    def put(last: bool, item: object) -> None:
        while not stop.is_set():
            try:
                waiting.put((last, item), timeout=_SECONDS)
                break
            except Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(False, item)
                if stop.is_set():
                    break
            put(True, None)
        except BaseException as error:  # whatever it is, it belongs to the thread that waits
            put(True, error)

    thread = Thread(target=work, name="margrave reader", daemon=True)
    thread.start()
    try:
        yield from _taken(waiting)
    finally:
        stop.set()
        thread.join()


def _taken(waiting: Queue[tuple[bool, object]]) -> Iterator[T]:
    """Yield what the thread has read, up to the end or the failure that it met."""
    while True:
        try:
            last, item = waiting.get(timeout=_SECONDS)
        except Empty:
            continue
        if isinstance(item, BaseException):
            raise item
        if last:
            return
        yield item  # type: ignore[misc]
