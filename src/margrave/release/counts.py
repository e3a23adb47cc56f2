"""The counts of a release by its method: every table of a closure in one buffer, read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from threading import Lock

from margrave.algebra.kernels import Floats
from margrave.algebra.layout import Layout
from margrave.measurements.entries import read_only

Read = Callable[[Sequence[int], Floats], None]


class Counts:
    """The counts of every table of a closure.

    Those of a saved release are read when they are first asked for, each once. Threads may share them.

    Parameters
    ----------
    layout
        The closure.
    buffer
        Shape (layout.cells,); the counts that are there already. Write to it no more.
    unread
        Numbers of the tables that are not there yet.
    read
        Reads tables, given by their numbers, into the buffer; raises if it cannot.
    """

    def __init__(
        self, layout: Layout, buffer: Floats, *, unread: Collection[int] = (), read: Read | None = None
    ) -> None:
        self._layout, self._buffer, self._read = layout, buffer, read
        self._unread, self._lock = dict.fromkeys(unread), Lock()

    def table(self, place: int) -> Floats:
        """Return the counts of a table, read-only, axes in domain order."""
        self._require([place])
        return read_only(self._layout.view(self._buffer, place))

    def everything(self) -> Floats:
        """Return the whole buffer, read-only; shape (layout.cells,)."""
        self._require(list(self._unread))
        return read_only(self._buffer)

    def _require(self, places: Sequence[int]) -> None:
        """Read those of the tables that are not there yet."""
        if self._read is None or not self._unread:
            return
        with self._lock:
            missing = [place for place in places if place in self._unread]
            if missing:
                self._read(missing, self._buffer)
            for place in missing:
                del self._unread[place]
