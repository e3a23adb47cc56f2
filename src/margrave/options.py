"""Options, declared once: a field of a dataclass says what an option is, what it may be and what it means.

The command line's options, the keys of job files and the tables in docs/cli.md are all made from these fields. An
`Option` reads its value from the command line (`Option.parsed`) and from a job file (`Option.checked`), and writes it
as words of a command line (`Option.words`). A mechanism or a method declares its own options in the same way, and needs
nothing else to be chosen by name:

    @dataclass(frozen=True, kw_only=True)
    class ScalableMWEM(Mechanism):
        rounds: int = option(30, "How many tables to measure.")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from margrave.errors import JobError

Names = tuple[str, ...]
_METADATA = "option"


class OptionKind(Enum):
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
        return isinstance(value, self.types) and (self is OptionKind.FLAG or not isinstance(value, bool))


_TYPES: dict[OptionKind, tuple[type, ...]] = {
    OptionKind.TEXT: (str,),
    OptionKind.WHOLE: (int,),
    OptionKind.WHOLE_OR_TEXT: (int, str),
    OptionKind.NUMBER: (float, int),
    OptionKind.EXACT: (float, int, str),
    OptionKind.FLAG: (bool,),
    OptionKind.TEXTS: (list, str),
    OptionKind.NAMES: (list,),
    OptionKind.TABLES: (list,),
    OptionKind.NUMBERS: (dict,),
}
_KINDS = {
    "bool": OptionKind.FLAG,
    "int": OptionKind.WHOLE,
    "float": OptionKind.NUMBER,
    "Fraction": OptionKind.EXACT,
    "str": OptionKind.TEXT,
}


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
    kind: OptionKind
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

    def parsed(self, given: Any) -> Any:  # noqa: ANN401
        """Return the value from what the command line has for the option; None if it was not given.

        Parameters
        ----------
        given
            A text, a number or a flag, or a list of texts for an option that may be repeated.
        """
        if given is None or given == []:
            return None
        if self.kind is OptionKind.WHOLE_OR_TEXT:
            return int(given) if given.isdecimal() else given
        if self.kind is OptionKind.TEXTS:
            return tuple(given)
        if self.kind is OptionKind.NAMES:
            return tuple(name.strip() for name in given.split(","))
        if self.kind is OptionKind.NUMBERS:
            return numbers_by_table(self.flag, given)
        return named_tables(given) if self.kind is OptionKind.TABLES else given

    def checked(self, value: Any, where: str) -> Any:  # noqa: ANN401
        """Return the value from what a job file has for the option, or raise `JobError` if it is of another kind.

        Parameters
        ----------
        value
            A value of TOML.
        where
            The file, for the message.
        """
        if not self.kind.accepts(value):
            raise JobError(f"{where} has {self.key} = {value!r}", remedy=f"give {self.kind.value}")
        if self.kind is OptionKind.EXACT:
            return str(value)  # 0.1 in a file is a tenth, and not the float next to it
        if self.kind is OptionKind.TABLES:
            for table in value:
                self._require(_is_texts(table), table, where, "write each table as a list of names: ['age', 'sex']")
            return tuple(map(tuple, value))
        if self.kind is OptionKind.NUMBERS:
            self._require(all(map(OptionKind.NUMBER.accepts, value.values())), value, where)
            return {table_names(names): float(number) for names, number in value.items()}
        if self.kind in (OptionKind.TEXTS, OptionKind.NAMES):
            texts = [value] if isinstance(value, str) else value
            self._require(_is_texts(texts), value, where)
            return tuple(texts)
        return value

    def words(self, value: Any) -> list[str]:  # noqa: ANN401
        """Return the words of a command line that give the option this value; none for None."""
        if value is None:
            return []
        if self.kind is OptionKind.FLAG:
            return [self.flag] if value else [f"--no-{self.key}"] if self.negatable else []
        if self.kind is OptionKind.NUMBERS:
            texts: Iterable[str] = [f"{','.join(names)}={number:g}" for names, number in value.items()]
        elif self.kind is OptionKind.TABLES:
            texts = map(",".join, value)
        elif self.kind is OptionKind.TEXTS:
            texts = value
        else:
            texts = [",".join(value) if self.kind is OptionKind.NAMES else str(value)]
        return [word for text in texts for word in (self.flag, text)]

    def _require(self, right: bool, value: object, where: str, remedy: str = "") -> None:
        """Raise `JobError` unless a part of the value is right."""
        if not right:
            raise JobError(f"{where} has {value!r} in {self.key}", remedy=remedy or f"give {self.kind.value}")


def option(
    default: object,
    meaning: str,
    *,
    kind: OptionKind | None = None,
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
        What its value is; by default what the default is, or where that is None what the field is declared to be.
    choices, group, commands, path
        As in `Option`.
    negatable
        As in `Option`; by default a flag that is on by default.
    """
    told = {
        "meaning": meaning,
        "kind": kind,
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
    found = []
    for one in fields(declared):
        if _METADATA in one.metadata:
            told = one.metadata[_METADATA]
            kind = told["kind"] or _KINDS[type(one.default).__name__ if one.default is not None else _plain(one.type)]
            found.append(Option(one.name, default=one.default, **{**told, "kind": kind}))
    return tuple(found)


def _plain(annotation: object) -> str:
    """Return the type of a field without "or None"."""
    return (annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")).removesuffix(" | None")


def table_names(text: str) -> Names:
    """Return the table of a text such as ``age,sex``; no name is the total."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def named_tables(tables: Iterable[str]) -> tuple[Names, ...]:
    """Return the tables of ``--tables age,sex --tables age,region`` as tuples of names."""
    return tuple(map(table_names, tables))


def numbers_by_table(flag: str, given: Iterable[str]) -> dict[Names, float]:
    """Return the numbers of ``--weight income=20 --weight age,sex=5`` by table."""
    found = {}
    for text in given:
        names, mark, number = text.rpartition("=")
        try:
            found[table_names(names)] = float(number)
        except ValueError:
            mark = ""
        if not mark:
            raise JobError(f"{flag} is {text!r}", remedy=f"give a table and a number, as in {flag} age,sex=5")
    return found


def _is_texts(value: object) -> bool:
    """Tell whether a value of TOML is a list of texts."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
