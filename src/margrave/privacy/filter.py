r"""The privacy filter: no draw is made that would take the sum of all costs past the budget, whatever came before.

Where the cost of a step, or the number of steps, depends on what earlier steps gave, ordinary composition does not
apply: it adds up costs that are known beforehand. A *filter* does. Before every step it adds the cost of the step,
which may depend on all that was released so far, to the exact sum of the costs before, and refuses the step if that is
more than ρ. Then every possible run costs at most ρ, and the whole is ρ-zCDP (Feldman & Zrnic, arXiv:2008.11193, for
each order of Rényi privacy; Whitehouse, Ramdas, Rogers & Wu, arXiv:2203.05481; docs/guarantee.md has the argument). The
steps are charged to the ledger as one budget, up front; what is left over is lost.

Costs are rounded *up* to multiples of 2⁻⁸⁰ of the budget before they are added: the exact sum of thousands of fractions
has millions of digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from margrave.errors import PlanError

_PARTS = 2**80


class PrivacyFilter:
    """Adds up what steps cost, exactly, and refuses the first step that would pass the budget.

    Parameters
    ----------
    rho
        The budget, positive.
    """

    def __init__(self, rho: Fraction) -> None:
        if not isinstance(rho, Fraction) or rho <= 0:
            raise PlanError(f"the budget of a filter is {rho!r}", remedy="give a positive fraction")
        self._rho, self._part, self._spent = rho, rho / _PARTS, 0
        self._steps: list[tuple[str, Fraction]] = []

    @property
    def left(self) -> Fraction:
        """What is not spent yet, at least zero."""
        return (_PARTS - self._spent) * self._part

    @property
    def steps(self) -> list[tuple[str, Fraction]]:
        """What was done and what each step cost, rounded up; together no more than the budget."""
        return list(self._steps)

    def fits(self, costs: Iterable[Fraction]) -> bool:
        """Tell whether a step with these costs would be allowed."""
        return self._spent + self._counted(costs) <= _PARTS

    def spend(self, purpose: str, costs: Iterable[Fraction]) -> None:
        """Count a step, before it is made; raise `PlanError` and count nothing if it would pass the budget.

        Parameters
        ----------
        purpose
            What the step does, in words.
        costs
            ρ of each draw of the step, none negative.
        """
        counted = self._counted(costs)
        if self._spent + counted > _PARTS:
            raise PlanError(
                f"{purpose} would cost more than what is left of the budget", remedy="it was not done; ask for less"
            )
        self._spent += counted
        self._steps.append((purpose, counted * self._part))

    def _counted(self, costs: Iterable[Fraction]) -> int:
        """Return the sum of costs in parts of the budget, each rounded up."""
        total = 0
        for cost in costs:
            if not isinstance(cost, Fraction) or cost < 0:
                raise PlanError("a cost is not a fraction of at least zero", remedy="give exact costs")
            total += ceil(cost / self._part)
        return total
