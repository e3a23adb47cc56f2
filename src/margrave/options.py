"""Options, declared once: a field of a dataclass says what an option is, what it may be and what it means.

The command line's options, the keys of job files and the tables in docs/cli.md are all made from these fields. A
mechanism or a method declares its own options in the same way, and needs nothing else to be chosen by name:

    @dataclass(frozen=True, kw_only=True)
    class ScalableMWEM(Mechanism):
        rounds: int = option(30, "How many tables to measure.")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from fractions import Fraction
from typing import Any

_METADATA = "option"


class Kind(Enum):
    """What the value of an option is, in words."""

    TEXT = "a text"
    WHOLE = "a whole number"
    WHOLE_OR_TEXT = "a whole number or a text"
    NUMBER = "a number"
    EXACT = 'a number, or one as text, such as "1/10"'
    FLAG = "true or false"
    TEXTS = "a text or a list of texts"
    NAMES = "a list of names"
    TABLES = "a list of lists of names"
    NUMBERS = 'a number for each table, such as {income = 20, "age,sex" = 5}'

    @property
    def types(self) -> tuple[type, ...]:
        """The types of its values in a TOML file."""
        return _TYPES[self]

    def accepts(self, value: object) -> bool:
        """Tell whether a value of a TOML file is of this kind."""
        # True is an int in Python, and not a number to people.
        return isinstance(value, self.types) and (self is Kind.FLAG or not isinstance(value, bool))


_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.TEXT: (str,),
    Kind.WHOLE: (int,),
    Kind.WHOLE_OR_TEXT: (int, str),
    Kind.NUMBER: (float, int),
    Kind.EXACT: (float, int, str),
    Kind.FLAG: (bool,),
    Kind.TEXTS: (list, str),
    Kind.NAMES: (list,),
    Kind.TABLES: (list,),
    Kind.NUMBERS: (dict,),
}
_KINDS = {bool: Kind.FLAG, int: Kind.WHOLE, float: Kind.NUMBER, Fraction: Kind.EXACT, str: Kind.TEXT}


@dataclass(frozen=True)
class Option:
    """One option, wherever it is given.

    Attributes
    ----------
    name
        The name of the field.
    meaning
        What it means, in a line.
    kind
        What its value is.
    default
        The value if none is given.
    choices
        What it may be; empty if anything of its kind.
    group
        The heading under which the command line lists it.
    commands
        The commands that take it; empty for the options of a mechanism or a method.
    path
        Whether it names a file or folder: in a job file, relative to that file.
    negatable
        Whether ``--no-…`` turns a flag off on the command line.
    """

    name: str
    meaning: str
    kind: Kind
    default: object
    choices: tuple[str, ...] = ()
    group: str = ""
    commands: tuple[str, ...] = ()
    path: bool = False
    negatable: bool = False

    @property
    def key(self) -> str:
        """Its key in a job file."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{self.key}"


def option(
    default: object,
    meaning: str,
    *,
    kind: Kind | None = None,
    choices: Sequence[str] = (),
    group: str = "",
    commands: Sequence[str] = (),
    path: bool = False,
    negatable: bool | None = None,
) -> Any:  # noqa: ANN401 — as dataclasses.field has it
    """Declare a field of a dataclass as an option.

    Parameters
    ----------
    default
        The value if none is given.
    meaning
        What it means, in a line.
    kind
        What its value is; by default what the default is.
    choices, group, commands, path
        As in `Option`.
    negatable
        As in `Option`; by default a flag that is on by default.
    """
    known = _KINDS[type(default)] if kind is None else kind
    told = {
        "meaning": meaning,
        "kind": known,
        "choices": tuple(choices),
        "group": group,
        "commands": tuple(commands),
        "path": path,
        "negatable": default is True if negatable is None else negatable,
    }
    return field(default=default, metadata={_METADATA: told})


def options_of(declared: type) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in its order; its other fields are for Python alone.

    Parameters
    ----------
    declared
        The dataclass.
    """
    return tuple(
        Option(one.name, default=one.default, **one.metadata[_METADATA])
        for one in fields(declared)
        if _METADATA in one.metadata
    )
