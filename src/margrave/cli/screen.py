"""What goes to the screen: text on standard output, progress on a terminal's standard error, JSON for programs.

Commands print names, labels, paths and messages that come from outside. All of it passes a `Screen`, which shows a text
as it is: it has no markup, and what would act on the terminal is written out. No other module prints directly.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from margrave.escaping import visible, visible_json

if TYPE_CHECKING:
    from margrave.release.publication import Tick

# The widest table that is laid out, in characters.
_WIDEST = 1_000
# The narrowest terminal for which words are broken into lines.
_NARROWEST = 30
# How signs are spelled where a terminal has no code for them.
_SPELLED = {
    "≤": "<=",
    "≥": ">=",
    "±": "+/-",
    "×": "x",
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "→": "->",
    "≈": "~",
    "ε": "epsilon",
    "δ": "delta",
    "ρ": "rho",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
    "⁻": "^-",
    "½": "1/2",
    **dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)),
}
_SPELL = "margrave-spelled"


class Screen(Console):
    """A terminal, or what replaces it: lines are not cut, nothing is coloured by guesswork, texts stay texts.

    Every string that is printed, in tables and their titles too, goes through `render_str`: line ends and all else that
    acts without being seen are written out. One call of ``print`` is one line.

    Parameters
    ----------
    stderr
        Whether to print on standard error.
    width
        The width to lay tables out for; that of the terminal by default.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, soft_wrap=True, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 — as the console declares them
        """Return a text as the terminal shows it: its own characters, and no others.

        Parameters
        ----------
        text
            The text.
        **options
            As rich has them; no option makes markup or emoji of a text.
        """
        shown = spelled(visible(text), self.encoding)
        return super().render_str(shown, **{**options, "markup": False, "emoji": False})


def spelled(text: str, encoding: str) -> str:
    """Return a text in which signs that a terminal has no code for are spelled with those that every terminal has.

    Parameters
    ----------
    text
        The text.
    encoding
        That of the terminal; letters that it lacks and that have no spelling here stay as they are.
    """
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(one if _has_code(one, encoding) else _SPELLED.get(one, one) for one in text)
    except LookupError:
        pass
    return text


def can_draw(encoding: str | None) -> bool:
    """Tell whether a terminal has the signs that frames are drawn with."""
    return _has_code("╭", encoding or "ascii")


def spell_errors() -> str:
    """Return the name of a way to write text to a stream that lacks signs: each is spelled, or replaced by "?"."""

    def spell(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        return "".join(_SPELLED.get(sign, "?") for sign in error.object[error.start : error.end]), error.end

    codecs.register_error(_SPELL, spell)
    return _SPELL


def _has_code(sign: str, encoding: str) -> bool:
    try:
        sign.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def console() -> Screen:
    """Return the screen of standard output."""
    return Screen()


def styled(text: str, style: str) -> Text:
    """Return a text in a style, such as "bold red", for a screen to print or for the cell of a table.

    Parameters
    ----------
    text
        The text; it is shown as a `Screen` shows it.
    style
        The style.
    """
    return Text(spelled(visible(text), sys.stdout.encoding or "ascii"), style=style)


def lines(texts: Iterable[str]) -> Text:
    """Return texts as the lines of one cell of a table.

    Parameters
    ----------
    texts
        The texts; each is one line, shown as a `Screen` shows it.
    """
    return Text("\n").join(styled(text, "") for text in texts)


def print_json(value: object) -> None:
    """Print one JSON document; letters that the terminal has no code for are escaped, not lost."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    write_json(json.dumps(value, ensure_ascii=not plain, indent=2, allow_nan=False) + "\n")


def write_json(text: str) -> None:
    """Write JSON text on standard output; what would act on a terminal is an escape of JSON, and reads back the same.

    Parameters
    ----------
    text
        The text of a JSON document.
    """
    sys.stdout.write(visible_json(text))


def print_table(table: Table, screen: Screen | None = None) -> None:
    """Print a table; where it is wider than the terminal, as one block of lines for each row.

    No number is ever cut off. What is not a terminal gets the table as it is, whatever its width.

    Parameters
    ----------
    table
        The table.
    screen
        Where to print it; on standard output by default.
    """
    screen = screen or console()
    if not fits(table, screen):
        _print_blocks(table, screen)
        return
    natural = Measurement.get(screen, screen.options.update(max_width=_WIDEST), table).maximum
    Screen(stderr=screen.stderr, width=max(screen.width, natural)).print(table)


def fits(table: Table, screen: Screen) -> bool:
    """Tell whether a table has room: on a terminal, or where COLUMNS says how wide one is.

    Parameters
    ----------
    table
        The table.
    screen
        Where it is to be printed.
    """
    stated = os.environ.get("COLUMNS", "")
    if not screen.file.isatty() and not (stated.isdecimal() and int(stated)):
        return True
    return Measurement.get(screen, screen.options.update(max_width=_WIDEST), table).maximum <= screen.width


def _print_blocks(table: Table, screen: Screen) -> None:
    """Print each row of a table as lines of a name and a value."""
    if table.title:
        screen.print(table.title)
    names = [str(column.header) for column in table.columns]
    for row in zip(*(column.cells for column in table.columns), strict=True):
        block = Table.grid(padding=(0, 1))
        block.add_column(no_wrap=True)
        block.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            block.add_row(name, cell)
            if screen.width < _NARROWEST:
                # There is no room for a word: lines run on, because a broken label misleads too.
                screen.print(name, cell)
        if screen.width >= _NARROWEST:
            screen.print(block, soft_wrap=False)
        screen.print()


@contextmanager
def progress() -> Iterator[Callable[[str], Tick]]:
    """Show progress bars while the block runs; gives a function that begins a bar and returns how to move it.

    Nothing is shown unless standard error is a terminal.
    """
    with _bars(transient=True) as bars:

        def begin(description: str) -> Tick:
            bar = bars.add_task(visible(description), total=None)

            def tick(done: int, of: int | None) -> None:
                bars.update(bar, completed=done, total=of)

            return tick

        yield begin


@contextmanager
def described_progress() -> Iterator[Callable[[int, int, str], None]]:
    """Show one progress bar while the block runs; gives a function that moves it and says what is being done.

    Nothing is shown unless standard error is a terminal, where the bar stays at the end.
    """
    with _bars(transient=False) as bars:
        bar: TaskID = bars.add_task("starting", total=None)

        def advance(done: int, total: int, what: str) -> None:
            bars.update(bar, completed=done, total=total, description=visible(what))

        yield advance


def _bars(*, transient: bool) -> Progress:
    """Return progress bars on standard error, which are not shown unless it is a terminal."""
    screen = Screen(stderr=True)
    texts = TextColumn("{task.description}", markup=False)
    columns = (texts, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=screen, transient=transient, disable=not screen.is_terminal)
