"""Processes that do not outlive the one that started them, however that ended."""

from __future__ import annotations

import os
from multiprocessing import parent_process
from threading import Thread


def leave_with_parent() -> None:
    """End this process, at once and whatever it is doing, when its parent ends."""
    parent = parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
