"""From declared options (``margrave.options``) to the parameters of a command.

A command is a function of a `Job` and of what it alone needs. `takes` puts one parameter for each option in the place
of the job, so that an option is declared once, as a field of `Job`, of a mechanism or of a method:

    @takes("report")
    def report(asked: Job, folder: Annotated[Path, typer.Argument(…)]) -> None: …
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from margrave.job import Job, all_options, mechanism_options, mechanism_summary, method_options
from margrave.options import Option, OptionKind, options_of

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
_JOB = Annotated[Path | None, typer.Option("--job", help="A TOML file with options; those given here override it.")]
_TYPES: dict[OptionKind, Any] = {
    OptionKind.TEXT: str,
    OptionKind.WHOLE: int,
    OptionKind.WHOLE_OR_TEXT: str,
    OptionKind.NUMBER: float,
    OptionKind.EXACT: str,
    OptionKind.FLAG: bool,
    OptionKind.TEXTS: list[str],
    OptionKind.NAMES: str,
    OptionKind.TABLES: list[str],
    OptionKind.NUMBERS: list[str],
}
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
Command = Callable[..., None]


def takes(command: str, *, job: bool = False, required: Iterable[str] = ()) -> Callable[[Command], Command]:
    """Give a function the options that `Job` declares for a command, in place of its first parameter.

    Parameters
    ----------
    command
        The name of the command.
    job
        Whether it takes ``--job`` too.
    required
        Options that must be given.
    """

    def decorate(function: Command) -> Command:
        declared = [one for one in options_of(Job) if command in one.commands]
        return _taking(function, declared, job=job, required=tuple(required))

    return decorate


def complete(command: Command) -> Command:
    """Return a command with the options of all mechanisms and methods added, if it takes ``--mechanism``, ``--method``.

    Mechanisms are imported for this, which takes time: it is done for the command that runs, and not for a list of
    commands.

    Parameters
    ----------
    command
        What `takes` returned.
    """
    function, declared, settings = getattr(command, "declared", (None, (), {}))
    if function is None:
        return command
    names = {one.name for one in declared}
    added: list[Option] = []
    if "mechanism" in names:
        declared = [replace(one, meaning=mechanism_summary()) if one.name == "mechanism" else one for one in declared]
        added += mechanism_options().values()
    if {"method", "out"} <= names:
        added += method_options().values()
    return _taking(function, [*declared, *added], **settings) if added else command


def _taking(function: Command, declared: list[Option], *, job: bool, required: tuple[str, ...]) -> Command:
    """Return a function of options that calls a function of a job."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    @wraps(function)
    def call(**given: Any) -> None:  # noqa: ANN401
        options = {one.name: one.parsed(given.pop(one.name)) for one in declared}
        file = given.pop("job", None)
        return function(Job.of(file, options), **given)

    parameters = [_parameter(one, required=one.name in required) for one in declared]
    data = [one for one in parameters if one.name == "data"]
    options = [one for one in parameters if one.name != "data"]
    file = [inspect.Parameter("job", _KEYWORD, default=None, annotation=_JOB)] if job else []
    arguments = [one.replace(kind=_KEYWORD) for one in own]
    first, last = _split_arguments(arguments)
    call.__signature__ = inspect.Signature([*data, *first, *file, *options, *last])  # type: ignore[attr-defined]
    call.__annotations__ = {}
    call.declared = (function, declared, {"job": job, "required": required})  # type: ignore[attr-defined]
    return call


def _split_arguments(own: list[inspect.Parameter]) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """Return the positional arguments of a command, and its other parameters."""
    first = [one for one in own if isinstance(one.annotation.__metadata__[0], typer.models.ArgumentInfo)]
    return first, [one for one in own if one not in first]


def _parameter(one: Option, *, required: bool) -> inspect.Parameter:
    """Return the parameter of an option."""
    kind = _TYPES[one.kind]
    if one.name == "data":
        information: Any = typer.Argument(metavar="DATA", help=one.meaning)
    else:
        flag = f"{one.flag}/--no-{one.key}" if one.negatable else one.flag
        panel = one.group or None
        information = typer.Option(flag, help=one.meaning, rich_help_panel=panel, show_default=False)
    if required:
        return inspect.Parameter(one.name, _KEYWORD, annotation=Annotated[kind, information])
    return inspect.Parameter(one.name, _KEYWORD, default=None, annotation=Annotated[kind | None, information])


# ``trim=True (--trim)``, ``delimiter (--delimiter)`` and ``null='?' (--null '?')``.
_BOTH = re.compile(r"\b([a-z][a-z_]*)(?:=(?:'[^']*'|[^\s;,()]+))? \((--([a-z][a-z-]*)(?: (?:'[^']*'|[^\s')]+))?)\)")
# ``overwrite=True`` and ``method='lnn'``, without the option in parentheses.
_PYTHON = re.compile(r"\b([a-z][a-z_]*)=(True|'([^'\s]*)')(?![\w(])")
# ``total_share``, alone in a sentence: not quoted, and no part of a call, a path or another name. A name without an
# underscore may be a plain word, except where a message begins with it, as in ``rounds is 0``.
_NAME = re.compile(r"(?<![^\s(])([a-z]+(?:_[a-z]+)+)(?![^\s,;:)])|^([a-z]+)(?= is )")


def in_words_of_options(message: str) -> str:
    """Return a message that speaks of arguments in the words of options: ``--overwrite`` for ``overwrite=True``.

    Names of arguments become names of options where they cannot be plain words: ``--total-share`` for ``total_share``.

    Parameters
    ----------
    message
        What an error says; where it gives both, as in ``trim=True (--trim)``, only the option stays.
    """
    known = {one.name for one in all_options()}

    def of_both(match: re.Match[str]) -> str:
        key = match[1].replace("_", "-")
        return match[2] if match[3] in (key, f"no-{key}") else match[0]

    def of_python(match: re.Match[str]) -> str:
        if match[1] not in known:
            return match[0]
        flag = f"--{match[1].replace('_', '-')}"
        return flag if match[2] == "True" else f"{flag} {match[3]}"

    def of_name(match: re.Match[str]) -> str:
        return f"--{match[0].replace('_', '-')}" if match[0] in known else match[0]

    said, listed, names = _PYTHON.sub(of_python, _BOTH.sub(of_both, message)).partition("(it has ")
    # What follows "it has" are names of attributes and columns, which may be called anything.
    return f"{_NAME.sub(of_name, said)}{listed}{names}"
