"""What every mechanism does before it draws: check the table and the ledger, count, charge; and then say what it did.

The order is fixed. All that a mechanism is given is checked first, and the ledger is asked, before anything is read: a
refusal costs nothing. The table is counted before the charge, so that a table that cannot be read is not paid for. The
charge is on disk before the first sample is drawn, so that a crash can only over-charge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from margrave.algebra.kernels import Integers
from margrave.algebra.layout import Layout
from margrave.algebra.threads import thread_count
from margrave.data.failures import quietly
from margrave.data.source import TableSource, is_source
from margrave.data.table import Source
from margrave.domain import Domain
from margrave.errors import BudgetRefusedError, DataError, DomainError, LedgerError, NoiseError, PlanError
from margrave.measurements import Provenance, Step
from margrave.memory import require_memory
from margrave.privacy.budget import Budget
from margrave.privacy.entropy import Source as EntropySource
from margrave.privacy.ledger import Ledger
from margrave.privacy.noise import Sampler, gaussian_sampler


def count_and_charge(
    source: Source, domain: Domain, layout: Layout, budget: Budget, *, ledger: Ledger | None, purpose: str
) -> Integers:
    """Return the exact counts of every table of a closure, once they are paid for. PRIVATE.

    Parameters
    ----------
    source
        The private table.
    domain
        The domain that the mechanism was planned for.
    layout
        The tables to count.
    budget
        What the mechanism will spend.
    ledger
        Where it is charged; nowhere if None.
    purpose
        What for.
    """
    budget.epsilon()  # what cannot be stated in the end is refused now
    refuse_draft(domain)
    if layout.sizes != domain.shape:
        raise PlanError("the tables to count are laid out over another domain; make plans with plan()")
    if checked_source(source).domain != domain:
        raise DataError(
            f"the table is over {source.domain!r} and the plan over {domain!r}; "
            "use one domain for both (labels and descriptions count too)"
        )
    refuse_draft(source.domain)  # equal to the other, but one of the two may still be the draft
    if ledger is not None and _checked_ledger(ledger).torn is not None:
        raise LedgerError(str(ledger.torn))
    if ledger is not None and not ledger.check(budget):
        raise BudgetRefusedError(
            f"{budget!r} is asked for and {ledger!r} has no room for it; nothing was read or charged: ask for less"
        )
    _check_memory(domain, layout)
    counts = _checked_counts(quietly(lambda: source.count(layout), "the private table"), layout)
    if ledger is not None:
        ledger.charge(budget, purpose)
    return counts


def refuse_draft(domain: Domain) -> None:
    """Raise `DomainError` for a domain that was drafted from a table and that nobody has reviewed.

    What a draft declares was read from the private table: whoever measures with it publishes that as well.
    """
    if domain.unreviewed:
        raise DomainError(
            "the domain is a draft that was read from private data and not yet reviewed; check every attribute of it, "
            'write "reviewed": true in its file, and plan with that; nothing was read or charged'
        )


def _check_memory(domain: Domain, layout: Layout) -> None:
    """Raise `MemoryLimitError` if counts and noisy tables cannot be held: running out after the charge would lose it.

    Held at once are the counts, the noisy residuals and one more copy of all of them, and a few copies of the table
    that each thread works on.
    """
    cells = np.diff(layout.index.offset)
    needed = 8 * (3 * layout.cells + 4 * thread_count() * int(cells.max()))
    places = np.argsort(-cells, kind="stable")[:3].tolist()
    largest = [(" × ".join(domain.names(layout.sets[place])) or "total", 8 * int(cells[place])) for place in places]
    advice = "leave these out (Workload.filter), or ask for tables of fewer attributes"
    require_memory(needed, "counting and measuring", largest, advice=advice)


def checked_source(source: Source) -> Source:
    """Return what counts the private table if it can."""
    if not is_source(source):
        raise DataError(f"a {type(source).__name__} is no source of counts; open it by open_source")
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
        Another source of random bits that will be used beside it, if any.
    """
    if source is not None:
        gaussian_sampler(source=source)  # refuses what is no source of random bits
    drawing = gaussian_sampler(sampler) if isinstance(sampler, str) else sampler
    if not all(hasattr(drawing, name) for name in ("name", "private", "draw", "spawn")):
        raise NoiseError(
            f"a {type(drawing).__name__} is no sampler; give 'margrave', 'opendp' or gaussian_sampler(source=…)"
        )
    asked = list(variances)
    # No samples are drawn here, but what cannot be drawn is refused now instead of after the charge.
    for variance in {min(asked), max(asked)}:
        drawing.draw(variance, 0)
    return drawing


def provenance(
    mechanism: str,
    steps: Sequence[tuple[str, Fraction]],
    budget: Budget,
    contributions: int,
    sampler: Sampler,
    *,
    counted: Source,
    source: EntropySource | None = None,
    adaptive: bool = False,
) -> Provenance:
    """Return the record of what a mechanism did.

    Parameters
    ----------
    mechanism
        Its name.
    steps
        What it did and what each step cost; together no more than the budget.
    budget
        What was charged.
    contributions
        The most rows of one person.
    sampler
        What drew the noise.
    counted
        What counted the private table; it knows whether rows of a person were bounded or the caller's word was taken.
    source
        Another source of random bits that was used beside it, if any; one that is not private marks the whole.
    adaptive
        Whether what was measured depends on the noise of earlier measurements.
    """
    from margrave import __version__

    beside = "" if source is None else f"; choices: {source.name}"
    return Provenance(
        mechanism=mechanism,
        steps=tuple(Step(purpose, rho) for purpose, rho in steps),
        rho=budget.rho,
        epsilon=budget.epsilon(),
        delta=budget.delta,
        contributions=contributions,
        sampler=sampler.name + beside,
        # Only a plain True counts: whatever else a sampler of somebody's own says is no promise.
        private=sampler.private is True and (source is None or source.private is True),
        version=str(__version__),
        # Of anything else that counts nobody knows whether it kept its word.
        contributions_bounded=counted.contributions_bounded if isinstance(counted, TableSource) else "declared",
        adaptive=adaptive,
    )


def _checked_ledger(ledger: Ledger) -> Ledger:
    """Return the ledger if it is one: a path in its place must not end in an error after the table was read."""
    able = all(callable(getattr(ledger, verb, None)) for verb in ("check", "charge"))
    if not able or not hasattr(ledger, "torn"):
        raise LedgerError(f"a {type(ledger).__name__} is no ledger; give Ledger(path, cap=…)")
    return ledger


def _checked_counts(counts: Integers, layout: Layout) -> Integers:
    """Return the counts of a source if they are whole numbers of the right shape; no value is shown or looked at."""
    if not isinstance(counts, np.ndarray) or counts.dtype != np.int64 or counts.shape != (layout.cells,):
        raise DataError(
            f"the source must count into one int64 array of shape ({layout.cells},), one number for each cell of the "
            "closure, and gave something else; nothing was charged"
        )
    return counts
