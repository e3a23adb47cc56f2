"""The command ``margrave``: its options, its errors and its exit codes, all at one place.

Exit codes: 0 success, 2 wrong input, 3 budget refused, 130 interrupted, 1 anything else. An error is one line on
standard error; ``--debug`` shows where it came from.
"""

from __future__ import annotations

import sys
from functools import cache
from shutil import get_terminal_size
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from margrave.cli.custodian import domain, evaluate, ledger, validate
from margrave.cli.demo import demo
from margrave.cli.options import complete, in_words_of_options
from margrave.cli.release import plan, reconstruct, release
from margrave.cli.saved import export, query, report, synthesize
from margrave.cli.screen import Screen, can_draw, spell_errors, spelled, styled
from margrave.errors import BudgetRefusedError, InterruptionError, MargraveError
from margrave.escaping import without_passwords

_INTERRUPTED = 130
# A narrower terminal gets its help as plain text.
_NARROW, _NARROWEST = 70, 30
_FUNCTIONS = (demo, domain, validate, plan, release, reconstruct, query, report, export, synthesize, evaluate)
_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


class _Command(TyperCommand):
    """One command; its help is in letters that the terminal has."""

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401
        """Return the help as text."""
        return spelled(super().get_help(ctx), sys.stdout.encoding or "ascii")


class _Commands(TyperGroup):
    """The commands; one that runs has the options of all mechanisms and methods, which take time to import."""

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401
        """Return the help as text, in letters that the terminal has."""
        return spelled(super().get_help(ctx), sys.stdout.encoding or "ascii")

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:  # noqa: ANN401
        """Return the command that the first word names, complete."""
        name, command, rest = super().resolve_command(ctx, args)
        function = next((one for one in _FUNCTIONS if one.__name__ == name), None)
        if function is None:
            return name, command, rest
        alone = typer.Typer(add_completion=False, context_settings=_SETTINGS, rich_markup_mode=app.rich_markup_mode)
        alone.command(name, cls=_Command)(complete(function))
        return name, typer.main.get_command(alone), rest


class _Program(typer.Typer):
    """A program whose commands are put together once, not for every line that it runs."""

    def __call__(self, *words: Any, **options: Any) -> Any:  # noqa: ANN401
        """Run a line."""
        return _put_together(self, self.rich_markup_mode)(*words, **options)


@cache
def _put_together(program: typer.Typer, markup: object) -> Any:  # noqa: ANN401
    """Return the commands of a program with help in its markup, which `main` changes for a narrow terminal."""
    return typer.main.get_command(program)


app = _Program(
    name="margrave",
    cls=_Commands,
    help="Release cross-tabulations of a private table under differential privacy.",
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="On an error, show the traceback.")] = False,
) -> None:
    """Release cross-tabulations of a private table under differential privacy."""
    if version:
        import margrave

        typer.echo(f"margrave {margrave.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for command in _FUNCTIONS:
    app.command()(command)
app.add_typer(ledger)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    Parameters
    ----------
    arguments
        The words after ``margrave``; those of the process by default.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no ε shows something in its place; this must not fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=spell_errors())
    width = get_terminal_size().columns
    if width < _NARROW or not can_draw(sys.stdout.encoding):
        # Panels would cut the names of options off.
        app.rich_markup_mode = None
        _SETTINGS["terminal_width"] = max(width - 1, _NARROWEST)
    words = sys.argv[1:] if arguments is None else arguments
    sys.exit(run(words))


def run(words: list[str], commands: typer.Typer | None = None) -> int:
    """Run a command line and return its exit code; errors have been shown.

    Parameters
    ----------
    words
        The words after the name of the program.
    commands
        What they choose from; the commands of margrave by default.
    """
    try:
        # People put it last; it belongs to the command line as a whole.
        outcome = (app if commands is None else commands)(
            [word for word in words if word != "--debug"], standalone_mode=False
        )
        if outcome == _INTERRUPTED:  # typer turns Ctrl-C into this code and says nothing
            raise KeyboardInterrupt
        return outcome if isinstance(outcome, int) else 0
    except BudgetRefusedError as error:
        return _report(error, str(error), 3, words)
    except InterruptionError as error:
        return _report(error, str(error), _INTERRUPTED, words)
    except (MargraveError, TyperException) as error:
        # Messages are written for Python too; here they are read by somebody who types options.
        own = isinstance(error, MargraveError)
        message = in_words_of_options(str(error)) if own else " ".join(error.format_message().split())  # type: ignore[union-attr]
        return _report(error, message, 2, words)
    except (KeyboardInterrupt, typer.Abort) as error:
        return _report(error, "interrupted", _INTERRUPTED, words)
    except Exception as error:
        message = f"unexpected {type(error).__name__}; run again with --debug to see where"
        return _report(error, message, 1, words)


def _report(error: BaseException, message: str, code: int, words: list[str]) -> int:
    """Show an error, as one line or with its trace, and return the exit code."""
    screen = Screen(stderr=True)
    if "--debug" in words:
        import traceback

        for line in "".join(traceback.format_exception(error)).split("\n"):
            screen.print(without_passwords(line))
    screen.print(styled("error:", "bold red"), without_passwords(message))
    return code
