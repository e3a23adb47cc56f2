"""What goes to the screen: text on standard output, progress on a terminal's standard error, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

# How much is done, and of how much; None where nobody knows.
_WIDEST = 1_000
Tick = Callable[[int, int | None], None]


def console() -> Console:
    """Return the console of standard output: lines are not cut, and nothing is coloured by guesswork."""
    return Console(soft_wrap=True, highlight=False)


def print_json(value: object) -> None:
    """Print one JSON document; letters that the terminal has no code for are escaped, not lost."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    sys.stdout.write(json.dumps(value, ensure_ascii=not plain, indent=2, allow_nan=False) + "\n")


def print_table(table: Table) -> None:
    """Print a table; where it is wider than the terminal its lines run on, because a number cut off misleads."""
    screen = console()
    natural = Measurement.get(screen, screen.options.update(max_width=_WIDEST), table).maximum
    Console(soft_wrap=True, highlight=False, width=max(screen.width, natural)).print(table)


@contextmanager
def progress() -> Iterator[Callable[[str], Tick]]:
    """Show progress bars while the block runs; gives a function that begins a bar and returns how to move it.

    Nothing is shown unless standard error is a terminal.
    """
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:

        def begin(description: str) -> Tick:
            bar = bars.add_task(description, total=None)

            def tick(done: int, of: int | None) -> None:
                bars.update(bar, completed=done, total=of)

            return tick

        yield begin
