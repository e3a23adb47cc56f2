"""Signals while a budget is being spent: what is paid for is first measured and kept, and then the run ends.

Noise cannot be drawn twice for one charge, so what is lost between the charge and the disk is lost for good. From
just before the charge on, SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal or the connection to it is gone) are
therefore only noted. They take effect at the next *safe point*: where all that was measured so far has been saved. A
second Ctrl-C ends the run at once.

Handlers are installed only when asked for, only in the main thread, where Python runs them, and are put back at the end
in any case. A signal that the process ignores stays ignored.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from margrave.privacy.budget import Budget, spoken_budget

# By these others end a process: SIGHUP when its terminal goes. Windows has no SIGHUP.
_ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_SIGNALS = (signal.SIGINT, *_ENDINGS)
# Programs that pass a signal on to their children deliver one press of Ctrl-C twice.
_ONE_PRESS_SECONDS = 0.5
_STANDARD_ERROR = 2


class Interrupted(KeyboardInterrupt):
    """A run was ended by a signal after its budget was charged; the message says what became of it."""


class Deferral:
    """What is known about signals while one budget is spent; made by `deferred_signals`.

    Parameters
    ----------
    budget
        What is spent.
    """

    def __init__(self, budget: Budget) -> None:
        self._amount = spoken_budget(budget)
        self._waiting: int | None = None
        self._since = 0.0
        self._charged = False
        self._kept = "nothing"

    def charged(self) -> None:
        """Note that the charge is on disk: from here on there is something to lose."""
        self._charged = True

    def kept(self, *, whole: bool) -> None:
        """Note that what was measured so far is kept.

        Parameters
        ----------
        whole
            Whether that is all that the budget pays for.
        """
        self._kept = "all" if whole else "some"

    def deliver(self) -> None:
        """End the run here if a signal is waiting; called where everything measured so far is kept."""
        if self._waiting is None:
            return
        if not self._charged:
            raise Interrupted("interrupted; nothing was charged")
        part = "all that was measured is kept" if self._kept == "all" else "what was measured before it ended is kept"
        raise Interrupted(f"interrupted; {self._amount} is charged in full, and {part}")

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; end the run at once if it is a second Ctrl-C."""
        del frame
        if self._waiting is None:
            self._waiting, self._since = number, time.monotonic()
            name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
            _say(
                f"{name} received while {self._amount} is being spent: the run continues to "
                "the end of this stage, keeps what it has measured, and ends there. A second Ctrl-C ends it at once "
                "and loses what is not kept by then."
            )
        elif number == signal.SIGINT and time.monotonic() - self._since >= _ONE_PRESS_SECONDS:
            raise Interrupted(f"ended at once; {self._loss()}")

    def _loss(self) -> str:
        """Return what is lost by ending now."""
        if not self._charged:
            return f"{self._amount} was about to be charged: the ledger tells whether it was; nothing was measured"
        lost = {
            "nothing": "is charged and nothing that it paid for is kept: it is lost",
            "some": "is charged in full; what was measured since the last stage was kept is lost",
            "all": "is charged, and all that was measured is kept",
        }
        return f"{self._amount} {lost[self._kept]}"


@contextmanager
def deferred_signals(budget: Budget, *, asked: bool) -> Iterator[Deferral]:
    """Defer SIGINT, SIGTERM and SIGHUP while the block runs; at its end, with the former handlers back, end the run.

    Parameters
    ----------
    budget
        What is spent in the block, for the messages.
    asked
        Whether to do it at all; outside the main thread nothing is done either way.
    """
    deferral = Deferral(budget)
    former: list[tuple[int, signal.Handlers | object]] = []
    try:
        if asked and threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                # None: installed by another language, and could not be put back.
                if handler is not None and handler != signal.SIG_IGN:
                    former.append((number, handler))
                    signal.signal(number, deferral.receive)
        yield deferral
    finally:
        _restore(former)
    # With the handlers back in place: a signal came before that and is waiting, or takes its usual course.
    deferral.deliver()


@contextmanager
def terminable() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C while the block runs, so that it tidies up and can be spoken about."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    former: list[tuple[int, signal.Handlers | object]] = []
    try:
        if threading.current_thread() is threading.main_thread():
            for ending in _ENDINGS:
                handler = signal.getsignal(ending)
                if handler == signal.SIG_DFL:
                    former.append((ending, handler))
                    signal.signal(ending, end)
        yield
    finally:
        _restore(former)


def _restore(former: list[tuple[int, signal.Handlers | object]]) -> None:
    """Put handlers back, the last one first, even if one of them is called meanwhile and raises."""
    if not former:
        return
    number, handler = former[-1]
    try:
        signal.signal(number, handler)  # type: ignore[arg-type]
    finally:
        _restore(former[:-1])


def _say(text: str) -> None:
    """Write a line to standard error, past its buffers: a handler may run in the middle of another write."""
    with suppress(OSError):
        # On a terminal a progress bar may stand on the line.
        before = "\n" if os.isatty(_STANDARD_ERROR) else ""
        os.write(_STANDARD_ERROR, f"{before}{text}\n".encode())
