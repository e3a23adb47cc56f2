"""The mechanisms: what is measured, in which order, and what each step is charged.

A mechanism is an object with a name and options that measures a workload of a private table within a budget. A new one
is one module with a subclass of `Mechanism`, and one line in ``MECHANISMS``; the module is imported when its mechanism
is asked for. The command line, job files, reports and docs/cli.md take its options and sentences from the class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from margrave.algebra.layout import Layout
from margrave.errors import PlanError, suggestion
from margrave.privacy.budget import Budget, require_budget
from margrave.workload import Workload, require_workload

if TYPE_CHECKING:
    from margrave.measurements.measurements import Measurements
    from margrave.planning.expectation import Expectation
    from margrave.privacy.ledger import Ledger
    from margrave.privacy.noise import Sampler

# Name, module and class.
MECHANISMS = {
    "adaptive": "margrave.mechanisms.adaptive_planner.AdaptivePlanner",
    "planner": "margrave.mechanisms.residual_planner.ResidualPlanner",
    "marginals": "margrave.mechanisms.gaussian_marginals.GaussianMarginals",
    "mwem": "margrave.mechanisms.scalable_mwem.ScalableMWEM",
}
# What the command line uses where none is named: the one of least error; the other where a plan is asked for by its
# objective or by margins of error, which have to be known before anything is measured.
DEFAULT, DEFAULT_FOR_PLANS = "adaptive", "planner"
# Saves measurements.
Keep = Callable[["Measurements"], None]


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a mechanism is run: nothing here changes what it measures.

    Attributes
    ----------
    privacy_id
        The column that identifies the person of each row. At most ``contributions`` rows of each person are then
        counted. Without it the bound is not checked.
    ledger
        The spending record of the table. It refuses, before anything is drawn, what would pass its cap.
    sampler
        "margrave" (exact noise from the system's entropy), "opendp", ``gaussian_sampler(source=…)``, or a sampler of
        your own, which is recorded as foreign and not private.
    keep
        A function that saves measurements. It is called after every stage with all that was measured so far.
    defer_signals
        Whether Ctrl-C, SIGTERM and SIGHUP wait, from just before the charge, until ``keep`` has returned.
    progress
        Called with the number of stages done and of all stages, by mechanisms that have several.
    """

    privacy_id: str | None = None
    ledger: Ledger | None = None
    sampler: str | Sampler = "margrave"
    keep: Keep | None = None
    defer_signals: bool = False
    progress: Callable[[int, int], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """A way to measure a workload; its fields are its options (``margrave.options``).

    Attributes
    ----------
    name
        Its short name, for ``--mechanism`` and job files.
    title
        Its name in reports and in the provenance of measurements.
    summary
        What it does, in one line for ``--help``.
    staged
        Whether it measures in several stages, and calls ``Run.progress`` after each.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    staged: ClassVar[bool] = False

    @abstractmethod
    def measure(
        self,
        source: object,
        workload: Workload | None,
        budget: Budget | None,
        *,
        contributions: int | None,
        run: Run = Run(),  # noqa: B008 — frozen
    ) -> Measurements:
        """Measure a private table and charge what that costs.

        Parameters
        ----------
        source
            The private table: a `Data` or what it is made from (a path, a frame, a relation, a URL …), or a
            `CodedTable`.
        workload
            The tables wanted.
        budget
            What to spend.
        contributions
            The most rows that one person has.
        run
            How to run it.
        """

    @abstractmethod
    def description(self) -> str:
        """Return what was measured and how the noise was chosen, as a sentence for reports."""

    def cells(self, workload: Workload) -> int:
        """Return the most numbers that measurements of a workload hold: what must fit in memory and on the disk."""
        # Residuals of all tables inside the workload, and the plain means of those measured more than once.
        return 2 * Layout.of(workload.domain.shape, workload.positions).cells

    def prepare(self, workload: Workload, budget: Budget, *, contributions: int) -> Mechanism:
        """Return the mechanism with all that can be decided before any data is opened; refuse what cannot be measured.

        Parameters
        ----------
        workload, budget, contributions
            As for `measure`, which is to be called with the same.
        """
        self.predict(workload, budget, contributions=contributions)
        return self

    def predict(self, workload: Workload, budget: Budget, *, contributions: int) -> Expectation | None:
        """Return the errors to expect, before any data is opened; None where they depend on the data.

        Parameters
        ----------
        workload, budget, contributions
            As for `measure`.
        """
        del workload, budget, contributions
        return None

    def notes(self, workload: Workload, budget: Budget, *, contributions: int) -> tuple[str, ...]:
        """Return further sentences about what will be measured, before any data is opened.

        Parameters
        ----------
        workload, budget, contributions
            As for `measure`.
        """
        del workload, budget, contributions
        return ()


def mechanism_class(name: str) -> type[Mechanism]:
    """Return the mechanism of a name.

    Parameters
    ----------
    name
        One of ``MECHANISMS``.
    """
    if name not in MECHANISMS:
        hint = suggestion(name, MECHANISMS) if isinstance(name, str) else ""
        raise PlanError(f"no mechanism {name!r}{hint} (there are {', '.join(MECHANISMS)})")
    module, _, own = MECHANISMS[name].rpartition(".")
    found: Any = getattr(import_module(module), own)
    return found  # type: ignore[no-any-return]


def checked_request(workload: object, budget: object) -> tuple[Workload, Budget]:
    """Return a workload and a budget if they are what they should be."""
    return require_workload(workload), require_budget(budget)
