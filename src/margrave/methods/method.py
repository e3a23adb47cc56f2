"""What a reconstruction method is: an object with its options, what it promises, what it needs and what is said of it.

A method is a frozen dataclass. Its fields are its options (``margrave.options``), checked when it is made. Everything
that other rooms ask about a method (the verb, the store, the report, the command line) is asked of the object; nobody
compares names.

To add a method: write a module with a subclass of `Method`, and add one line to the registry in ``methods/__init__``.

Nothing compiled is imported here or in the modules of methods before tables are made, so that the command line can list
methods and their options at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from margrave.errors import ReleaseError, suggestion

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.measurements.measurements import Measurements
    from margrave.reconstruction.estimates import Estimates
    from margrave.reconstruction.nonnegative import Solution, State
    from margrave.reconstruction.nonnegative.workers import WorkerPool
    from margrave.workload import Workload

Plain = dict[str, Any]

INFINITY = "infinity"
# More text than this in a dictionary form is not a method that margrave wrote.
_MOST_TEXT = 10_000
_LONGEST_SHOWN = 200
# Where a table is, what it is called and what a round knows about it: more than its cells where values are two.
_BYTES_PER_TABLE = 600


class UnrecordableError(Exception):
    """An option has no plain form; the text says why. It never leaves this room."""


@dataclass(frozen=True)
class Words:
    """What readers are told about the tables of a method.

    Attributes
    ----------
    counts, count
        What its tables are called in the middle of a sentence, and one number of them.
    column
        What the column ``count`` of a saved table holds; for the README of a release.
    report
        What the number next to the unbiased estimate is; for the report. Empty where it is that estimate.
    registry
        How the tables were made; for the registry of deployments.
    """

    counts: str
    count: str
    column: str
    report: str
    registry: str


@dataclass(frozen=True, eq=False)
class Request:
    """What a method makes tables from.

    Attributes
    ----------
    measurements
        What was measured.
    workload
        The tables wanted.
    estimates
        The estimated residuals of the workload's closure.
    progress
        Called now and then with the number of rounds and the gap, by methods that have rounds.
    start
        Where an earlier solution of the same workload ended, for methods that can start from there.
    workers
        The workers that hold the outer tables of a problem, for methods whose work can be divided; None without.
    """

    measurements: Measurements
    workload: Workload
    estimates: Estimates
    progress: Callable[[int, float], None] | None = None
    start: State | None = None
    workers: WorkerPool | None = None


@dataclass(frozen=True, eq=False)
class Made:
    """What a method made: the tables of the closure in one buffer, and what the solver reported, if one was used."""

    marginals: Floats
    solution: Solution | None = None


@dataclass(frozen=True)
class Method(ABC):
    """A way to make tables from noisy measurements.

    A subclass is a frozen dataclass whose fields are its options. It checks them in ``__post_init__`` and raises
    `ReleaseError` for one that is not allowed.

    Attributes
    ----------
    arrays
        How many copies of the workload's tables are held at once while tables are made.
    agree
        Whether its tables agree with each other: the same sums, whichever table they are taken from.
    nonnegative
        Whether no cell of its tables is negative.
    unbiased
        Whether its tables are the unbiased estimates themselves.
    cuts_off
        Whether its tables are the unbiased estimates with negative cells set to zero, perhaps scaled, each by itself:
        then the errors of its counts are known without learning.
    restarts
        Whether it has rounds: it can start from the solution of an earlier release (`Request.start`), and its work can
        be divided (`Request.workers`).
    objective
        What `margrave.plan` should minimise for tables made this way.
    """

    arrays: ClassVar[float] = 2.5
    agree: ClassVar[bool] = False
    nonnegative: ClassVar[bool] = False
    unbiased: ClassVar[bool] = False
    cuts_off: ClassVar[bool] = False
    restarts: ClassVar[bool] = False
    objective: ClassVar[str] = "total_variance"

    @property
    @abstractmethod
    def name(self) -> str:
        """Its short name, as in ``reconstruct(…, method="lnn")``."""

    @property
    @abstractmethod
    def words(self) -> Words:
        """What readers are told about its tables."""

    @abstractmethod
    def make(self, request: Request) -> Made:
        """Return the tables of the workload's closure."""

    def reads_estimates(self, estimates: Estimates) -> bool:
        """Tell whether tables are made from these estimates alone, so that they move when the estimates do."""
        return True

    def arrays_for(self, workload: Workload, *, workers: bool = False, scratch: bool = False) -> float:
        """Return how many copies of the workload's tables are held in memory at once, the measurements not counted.

        Parameters
        ----------
        workload
            The tables wanted.
        workers
            Whether others hold what can be divided.
        scratch
            Whether large arrays are on disk.
        """
        return self.arrays

    def require_memory(
        self, workload: Workload, *, beside: int = 0, workers: bool = False, scratch: bool = False
    ) -> None:
        """Raise `MemoryLimitError` if the machine cannot hold what this method needs for a workload.

        `margrave.reconstruct` asks this before it starts, and the command line asks it before anything is spent.

        Parameters
        ----------
        workload
            The tables wanted.
        beside
            Bytes that will be held as well by then and are not held yet, such as measurements still to be made.
        workers, scratch
            As for `arrays_for`.
        """
        noun = "table" if len(workload) == 1 else "tables"
        arrays = self.arrays_for(workload, workers=workers, scratch=scratch)
        purpose = f"reconstruction of {len(workload):,} {noun} by {self.name!r}"
        workload.require_memory(arrays, purpose, beside=beside + _BYTES_PER_TABLE * len(workload))

    def lenient(self) -> Self:
        """Return the method with options that always give tables, for use after a budget is spent."""
        return self

    def options_text(self) -> str:
        """Return the options that differ from their defaults, for a record of the release."""
        changed = [
            f"{one.name}={_shown(getattr(self, one.name))}" for one in fields(self) if _is_changed(self, one.name)
        ]
        return ", ".join(changed) or "the defaults"

    def to_dict(self) -> Plain:
        """Return the method as plain values that JSON can hold: its name and all its options.

        An option that has no such form is left out, and a ``note`` says so in words.
        """
        options, notes = {}, []
        for one in fields(self):
            value = getattr(self, one.name)
            try:
                options[one.name] = self._to_plain(one.name, value)
            except UnrecordableError as error:
                notes.append(str(error))
        document: Plain = {"name": self.name, "options": options}
        return {**document, "note": "; ".join(notes)} if notes else document

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """Return the method with options in their plain form; an option that is not given has its default."""
        known = [one.name for one in fields(cls)]
        for given in options:
            if given not in known:
                named = f"its options are {', '.join(known)}" if known else "it has no options"
                raise ReleaseError(
                    f"{cls.__name__} has no option {given!r}{suggestion(given, known)} ({named})", remedy="leave it out"
                )
        return cls(**{given: cls._from_plain(given, value) for given, value in options.items()})

    @classmethod
    def _to_plain(cls, name: str, value: object) -> object:
        """Return one option as a plain value; raise `UnrecordableError` with a reason if it has no plain form."""
        if isinstance(value, float) and math.isinf(value):
            return INFINITY
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise UnrecordableError(f"{name} is a {type(value).__name__}, which cannot be recorded")

    @classmethod
    def _from_plain(cls, name: str, value: object) -> object:
        """Return one option from its plain value; what it may be is checked when the method is made."""
        if isinstance(value, str) and len(value) > _MOST_TEXT:
            raise ReleaseError(
                f"{name} is a text of {len(value):,} characters", remedy=f"at most {_MOST_TEXT:,} are read"
            )
        return math.inf if value == INFINITY else value

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Unrecorded(Method):
    """The method of a saved release whose options are not all known; it says how tables were made and makes none.

    Attributes
    ----------
    like
        A method of the same name: what it promises and what is said of it hold here too. Its options do not.
    note
        What was not recorded, and why.
    known
        The options that were recorded, as (name, plain value) pairs.
    """

    like: Method
    note: str
    known: tuple[tuple[str, object], ...] = ()

    def __post_init__(self) -> None:
        # What a method promises is a constant of its class, and here a constant of another class.
        for trait in ("arrays", "agree", "nonnegative", "unbiased", "cuts_off", "objective"):
            object.__setattr__(self, trait, getattr(self.like, trait))

    @property
    def name(self) -> str:
        """The short name of the method."""
        return self.like.name

    @property
    def words(self) -> Words:
        """What readers are told about its tables."""
        return self.like.words

    def make(self, request: Request) -> Made:
        """Refuse: the options are not known."""
        raise ReleaseError(
            f"not all options of this {self.name!r} are recorded ({self.note})",
            remedy=f"give the method itself, such as method={self.name!r} for its defaults",
        )

    def options_text(self) -> str:
        """Return what is known, and what is not."""
        return "; ".join([*(f"{name}={_shown(value)}" for name, value in self.known), self.note])

    def to_dict(self) -> Plain:
        """Return the form that it was read from."""
        return {"name": self.name, "options": dict(self.known), "note": self.note}


def _is_changed(method: Method, name: str) -> bool:
    """Tell whether an option differs from its default."""
    default = next(one.default for one in fields(method) if one.name == name)
    return default is MISSING or getattr(method, name) != default


def _shown(value: object) -> str:
    """Return an option in a few words."""
    if callable(value):
        return "a function"
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
