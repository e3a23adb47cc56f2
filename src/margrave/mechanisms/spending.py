"""What every mechanism does before it draws: check the table and the ledger, count, charge; and then say what it did.

The order is fixed. All that a mechanism is given is checked first, and the ledger is asked, before anything is read: a
refusal costs nothing. The table is counted before the charge, so that a table that cannot be read is not paid for. The
charge is on disk before the first sample is drawn, so that a crash can only over-charge.

After the charge a mechanism works in *stages*: pieces of work whose noisy answers are measurements by themselves. After
each of them `Spending` hands all that was measured so far to the function that keeps it. There, and only there, a
signal that came meanwhile ends the run. A mechanism of one stage calls `Spending.end`; one of several stages calls
`Spending.stage` after each but the last. `FirstTotal` is a run of several stages: the total, and what is planned from
noisy values.

Noise cannot be drawn twice for one charge, so what is lost between the charge and the disk is lost for good. From just
before the charge on, SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal or the connection to it is gone) are therefore
only noted. They take effect at the next *safe point*: where all that was measured so far has been saved. A second
Ctrl-C ends the run at once. Handlers are installed only when asked for, only in the main thread, where Python runs
them, and are put back at the end in any case. A signal that the process ignores stays ignored.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from margrave.algebra.kernels import Integers, thread_count
from margrave.algebra.layout import Layout
from margrave.boundary import StagedResiduals, check_range
from margrave.data.redaction import empty_frames, quietly
from margrave.data.source import Source, TableSource, is_source, open_source
from margrave.errors import (
    BudgetRefusedError,
    DataError,
    DomainError,
    LedgerError,
    MeasurementError,
    PlanError,
    expected,
)
from margrave.measurements.provenance import Provenance, Step
from margrave.memory import require_memory
from margrave.planning.coefficients import checked_contributions
from margrave.planning.plans import check_weights, noise_bounds, stage_noise
from margrave.privacy.budget import Budget, PrivacyFilter, exact_number, format_budget
from margrave.privacy.noise import Sampler, described_sampler, described_source, gaussian_sampler

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.domain.domain import Domain
    from margrave.measurements.measurements import Measurements
    from margrave.mechanisms import Keep, Mechanism, Run
    from margrave.privacy.budget import Number
    from margrave.privacy.entropy import Source as EntropySource
    from margrave.privacy.ledger import Ledger
    from margrave.privacy.ledger_file import Detail, Entry
    from margrave.workload import Workload

# By these others end a process: SIGHUP when its terminal goes. Windows has no SIGHUP.
_ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_SIGNALS = (signal.SIGINT, *_ENDINGS)
# Programs that pass a signal on to their children deliver one press of Ctrl-C twice.
_ONE_PRESS_SECONDS = 0.5
_STANDARD_ERROR = 2
_ONCE = Fraction(1)


class Spending:
    """A budget that is charged and not yet spent: what to measure, and what to do with what was measured.

    Attributes
    ----------
    counts
        The exact counts of every table of the closure. PRIVATE.
    entry
        The ledger's record of the charge; None without a ledger.
    """

    def __init__(
        self,
        counts: Integers,
        entry: Entry | None,
        *,
        source: Source,
        budget: Budget,
        keep: Keep | None,
        deferral: Deferral,
    ) -> None:
        self.counts, self.entry = counts, entry
        self._source, self._budget, self._keep, self._deferral = source, budget, keep, deferral

    def record(
        self,
        mechanism: Mechanism,
        steps: Sequence[tuple[str, Fraction]],
        contributions: int,
        sampler: Sampler,
        *,
        entropy: EntropySource | None = None,
        adaptive: bool = False,
        cut_short: str | None = None,
    ) -> Provenance:
        """Return the record of what a mechanism did.

        Parameters
        ----------
        mechanism
            Which; it says what was measured and how the noise was chosen.
        steps
            What it did and what each step cost; together no more than the budget.
        contributions
            The most rows of one person.
        sampler
            What drew the noise; one that is not of margrave is recorded as foreign and not private.
        entropy
            Another source of random bits that was used as well, if any; one that is not private marks the whole.
        adaptive
            Whether what was measured depends on the noise of earlier measurements.
        cut_short
            Where the run ended before it was done, if it did.
        """
        from margrave import __version__

        drawn_by, private = described_sampler(sampler)
        if entropy is not None:
            chosen_by, unforeseeable = described_source(entropy)
            drawn_by, private = f"{drawn_by}; choices: {chosen_by}", private and unforeseeable
        counted, entry, budget = self._source, self.entry, self._budget
        return Provenance(
            mechanism=mechanism.title,
            steps=tuple(Step(purpose, rho) for purpose, rho in steps),
            rho=budget.rho,
            epsilon=budget.epsilon(),
            delta=budget.delta,
            contributions=contributions,
            sampler=drawn_by,
            private=private,
            version=str(__version__),
            # Other sources do not limit the rows of a person, and what a subclass does is not known.
            contributions_bounded=counted.contributions_bounded if type(counted) is TableSource else "declared",
            queried=counted.queried if isinstance(counted, TableSource) else None,
            query=counted.published_query if isinstance(counted, TableSource) else None,
            adaptive=adaptive,
            ledger_entry=None if entry is None else entry.number,
            ledger_hash=None if entry is None else entry.hash,
            cut_short=cut_short,
            description=mechanism.description(),
        )

    def stage(self, measured: Callable[[], Measurements]) -> None:
        """Hand over what is measured so far, and end the run here if a signal is waiting.

        Parameters
        ----------
        measured
            Returns the measurements of all stages so far; its provenance says that the run was cut short.
        """
        if self._keep is not None:
            self._keep(measured())
            self._deferral.kept(whole=False)
        self._deferral.deliver()

    def end(self, measured: Measurements) -> Measurements:
        """Hand over all that was measured, and return it."""
        if self._keep is not None:
            self._keep(measured)
            self._deferral.kept(whole=True)
        return measured


@contextmanager
def spending(
    source: Source,
    workload: Workload,
    layout: Layout,
    budget: Budget,
    *,
    run: Run,
    purpose: str,
    arrays: float = 4,
) -> Iterator[Spending]:
    """Count every table of a closure and charge for it; the block measures, and ends with what it measured.

    Parameters
    ----------
    source
        The private table.
    workload
        What is asked for, over the domain that the mechanism was planned for.
    layout
        The tables to count.
    budget
        What the mechanism will spend.
    run
        The ledger that is charged, what keeps measurements, and whether signals wait for it.
    purpose
        What for.
    arrays
        How many numbers the mechanism holds at once, counts included, for each cell of the closure.
    """
    keep, ledger = run.keep, run.ledger
    if keep is not None and not callable(keep):
        raise PlanError(f"keep is a {type(keep).__name__}", remedy="give a function that saves Measurements")
    if run.defer_signals and keep is None:
        raise PlanError(
            "defer_signals is given and keep is not: signals can wait only for measurements that are kept",
            remedy="give keep=…, a function that saves them",
        )
    counted = _count(source, workload.domain, layout, budget, ledger, arrays)
    with deferred_signals(budget, asked=run.defer_signals) as deferral:
        deferral.deliver()
        entry = None
        if ledger is not None:
            entry = ledger.charge(budget, purpose, **_details(source, workload, budget))
        deferral.charged()
        try:
            yield Spending(counted.counts, entry, source=source, budget=budget, keep=keep, deferral=deferral)
        except BaseException as error:
            empty_frames(error)
            raise


class Stage(NamedTuple):
    """A stage that is planned from the noisy values before it.

    Attributes
    ----------
    plan
        Returns g² of each residual, given the workload, the layout, all measurements so far, what is left of the budget
        and the contributions.
    purpose
        What it measures, with a place for how many residuals that are.
    before
        Where a run that ends before this stage was cut short.
    """

    plan: Callable[[Workload, Layout, Measurements, Fraction, int], Floats]
    purpose: str
    before: str


@dataclass(frozen=True, eq=False)
class FirstTotal:
    """A run that measures the total first and then, in stages, what is planned from noisy values.

    Attributes
    ----------
    workload, budget, contributions
        As for `residual_planner`.
    layout
        The closure of the workload.
    variances
        Shape (tables,); g² of the first measurement, zero but for the total.
    later
        The least and the largest noise that can follow.
    """

    workload: Workload
    budget: Budget
    contributions: int
    layout: Layout
    variances: Floats
    later: tuple[Fraction, Fraction]

    @classmethod
    def of(
        cls, workload: Workload, budget: Budget, contributions: int | None, share: Number, *, factor: Fraction = _ONCE
    ) -> FirstTotal:
        """Return the run, once it is certain that all that follows can be drawn.

        Parameters
        ----------
        workload, budget, contributions
            As for `residual_planner`.
        share
            The share of the budget for the total.
        factor
            By how much the noise of a residual that is measured again can pass that of a plan for everything.
        """
        exact = exact_number("total_share", share)
        if not 0 < exact <= Fraction(1, 2):
            raise PlanError(f"total_share is {share!r}", remedy="give a number above 0, at most one half")
        rows = checked_contributions(contributions)
        check_weights(workload)
        layout = Layout.of(workload.domain.shape, workload.positions)
        precisions = np.zeros(len(layout.sets))
        precisions[layout.places[()]] = float(2 * budget.rho * exact / rows**2)
        least, largest = noise_bounds(workload, layout, budget, rows)
        later = (least, largest * factor)
        check_range(layout, [later[1] if degrees else None for degrees in layout.degrees.tolist()])
        return cls(workload, budget, rows, layout, stage_noise(layout, precisions), later)

    @property
    def noise(self) -> Fraction:
        """g² of the total."""
        return Fraction(float(self.variances[self.layout.places[()]]))

    def measure(
        self, mechanism: Mechanism, source: object, stages: Sequence[Stage], *, run: Run, purpose: str, arrays: float
    ) -> Measurements:
        """Measure the total and every stage, and charge the whole budget before the first of them.

        Parameters
        ----------
        mechanism
            Whose run it is, for the record.
        source
            The private table.
        stages
            What follows the total.
        run
            How to run it.
        purpose
            What the ledger says about the charge.
        arrays
            How many numbers are held at once for each cell of the closure.
        """
        workload, layout, rows = self.workload, self.layout, self.contributions
        domain = workload.domain
        table_source = open_source(source, domain, contributions=rows, privacy_id=run.privacy_id)
        drawing = checked_sampler(run.sampler, [self.noise, *self.later])
        with spending(table_source, workload, layout, self.budget, run=run, purpose=purpose, arrays=arrays) as spent:
            passing = PrivacyFilter(self.budget.rho)
            residuals = StagedResiduals(
                domain, layout, spent.counts, spending=passing, contributions=rows, sampler=drawing
            )

            def measured(cut_short: str | None = None) -> Measurements:
                return residuals.measurements(
                    spent.record(mechanism, passing.steps, rows, drawing, cut_short=cut_short)
                )

            residuals.measure(self.variances, "total")
            for done, stage in enumerate(stages, start=1):
                spent.stage(partial(measured, stage.before))
                if run.progress is not None:
                    run.progress(done, len(stages) + 1)
                noise = stage.plan(workload, layout, residuals.measurements(), passing.left, rows)
                if noise.any():
                    residuals.measure(noise, stage.purpose.format(np.count_nonzero(noise)))
            if run.progress is not None:
                run.progress(len(stages) + 1, len(stages) + 1)
            return spent.end(measured())


def _details(source: Source, workload: Workload, budget: Budget) -> dict[str, Detail]:
    """Return what the ledger keeps about a charge: what was measured, where, and how ε was stated."""
    return {
        "domain": workload.domain.fingerprint,
        "workload": repr(workload),
        "workload_fingerprint": workload.fingerprint,
        **(source.named if isinstance(source, TableSource) else {}),
        "epsilon": budget.epsilon(),
        "delta": budget.delta,
        # The hash of the entry is published with the release; without this anyone could test a guess at the query.
        "salt": secrets.token_hex(16),
    }


@dataclass(frozen=True, eq=False)
class _Counted:
    """Exact counts where they are not shown: some tools print the variables of functions that an error comes through.

    Attributes
    ----------
    counts
        One number for each cell of the closure. PRIVATE.
    """

    counts: Integers = field(repr=False)


def _count(
    source: Source, domain: Domain, layout: Layout, budget: Budget, ledger: Ledger | None, arrays: float
) -> _Counted:
    """Return the exact counts of every table of a closure, once nothing is left to refuse. PRIVATE."""
    budget.epsilon()  # what could not be stated later is refused now
    refuse_draft(domain)
    if layout.sizes != domain.shape:
        raise PlanError("the tables to count are laid out over another domain", remedy="make plans with plan()")
    if checked_source(source).domain != domain:
        raise DataError(
            f"the table is over {source.domain!r} and the plan over {domain!r}",
            remedy="use one domain for both (labels and descriptions count too)",
        )
    refuse_draft(source.domain)  # equal to the other, but one of the two may still be the draft
    if ledger is not None and _checked_ledger(ledger).torn is not None:
        raise LedgerError(str(ledger.torn))
    if ledger is not None and not ledger.check(budget):
        raise BudgetRefusedError(
            f"{format_budget(budget)} is asked for and ledger {str(ledger.path)!r} has no room for it",
            remedy=f"nothing was read or charged: ask for less ({ledger.balance(budget.delta)})",
        )
    if ledger is not None:
        ledger.require_domain(domain.fingerprint)
    _check_memory(domain, layout, arrays)
    return _Counted(_checked_counts(quietly(lambda: source.count(layout), "the private table"), layout))


def refuse_draft(domain: Domain) -> None:
    """Raise `DomainError` for a domain that was drafted from a table and is not reviewed.

    What a draft declares was read from the private table, and measuring with it would publish that as well.
    """
    if domain.unreviewed:
        raise DomainError(
            "the domain is a draft that was read from private data and not yet reviewed",
            remedy="check every attribute of it, "
            'write "reviewed": true in its file, and plan with that; nothing was read or charged',
        )


def _check_memory(domain: Domain, layout: Layout, arrays: float) -> None:
    """Raise `MemoryLimitError` if counts and noisy tables cannot be held: running out after the charge would lose it.

    Held at once are the arrays of the mechanism, and a few copies of the table that each thread works on.
    """
    cells = np.diff(layout.index.offset)
    needed = math.ceil(8 * (arrays * layout.cells + 4 * thread_count() * int(cells.max())))
    places = np.argsort(-cells, kind="stable")[:3].tolist()
    largest = [(" × ".join(domain.names(layout.sets[place])) or "total", 8 * int(cells[place])) for place in places]
    advice = "leave these out (Workload.filter), or ask for tables of fewer attributes"
    require_memory(needed, "counting and measuring", largest, advice=advice)


def checked_source(source: Source) -> Source:
    """Return what counts the private table if it can."""
    if not is_source(source):
        raise DataError(expected("a source of counts", source), remedy="open it with open_source")
    return source


def checked_sampler(
    sampler: str | Sampler, variances: Iterable[Fraction], *, source: EntropySource | None = None
) -> Sampler:
    """Return what draws the noise, once it is known to draw noise of these variances.

    Parameters
    ----------
    sampler
        Its name, or the sampler itself.
    variances
        All that it will be asked for.
    source
        Another source of random bits that will be used as well, if any.
    """
    if source is not None:
        gaussian_sampler(source=source)  # refuses anything but a source of random bits
    drawing = gaussian_sampler(sampler) if isinstance(sampler, str) else sampler
    if not all(hasattr(drawing, name) for name in ("name", "private", "draw", "spawn")):
        raise MeasurementError(
            expected("a sampler", drawing),
            remedy="give 'margrave', 'opendp' or gaussian_sampler(source=…)",
        )
    asked = list(variances)
    # No samples are drawn here, but what cannot be drawn is refused now instead of after the charge.
    for variance in {min(asked), max(asked)}:
        drawing.draw(variance, 0)
    return drawing


def _checked_ledger(ledger: Ledger) -> Ledger:
    """Return the ledger if it is one: a path instead of a ledger must not fail after the table was read."""
    able = all(callable(getattr(ledger, verb, None)) for verb in ("check", "charge", "require_domain"))
    if not able or not hasattr(ledger, "torn"):
        raise LedgerError(expected("a Ledger", ledger), remedy="give Ledger(path, cap=…)")
    return ledger


def _checked_counts(counts: Integers, layout: Layout) -> Integers:
    """Return the counts of a source if they are whole numbers of the right shape; no value is shown or looked at."""
    if not isinstance(counts, np.ndarray) or counts.dtype != np.int64 or counts.shape != (layout.cells,):
        raise DataError(
            f"the source must count into one int64 array of shape ({layout.cells},), one number for each cell of the "
            "closure, and gave something else",
            remedy="nothing was charged",
        )
    return counts


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
        self._amount = format_budget(budget)
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
    """Treat SIGTERM and SIGHUP like Ctrl-C while the block runs, so that it cleans up and its end can be reported."""

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
