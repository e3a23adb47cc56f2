"""``margrave plan``: what a budget buys, before any data is opened."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from margrave.cli.job import Job
from margrave.cli.options import AsJson, named_tables, takes
from margrave.cli.screen import console, print_json
from margrave.errors import PlanError

if TYPE_CHECKING:
    from margrave.mechanisms import Mechanism
    from margrave.planning.expectation import Expectation
    from margrave.privacy.budget import Budget
    from margrave.workload import Workload

_UNBIASED = "Errors are standard errors of the unbiased estimates; the non-negative tables are nearer on the whole."
_Margins = dict[tuple[str, ...], float]


@takes("plan", job=True)
def plan(
    asked: Job,
    margin: Annotated[
        list[str] | None, typer.Option("--margin", help="Also show the 95 % margin of this table, as age,sex.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what a budget buys: the error of every table. The data is never opened.

    Example:  margrave plan --domain domain.json --kway 3 --epsilon 1 --delta 1e-9 --contributions 1 --rows 50000
    """
    workload, budget, rows = asked.workload(asked.read_domain()), asked.budget(), asked.need("contributions")
    mechanism = asked.measuring()
    method = asked.reconstructing()
    expected = mechanism.predict(workload, budget, contributions=rows)
    notes = list(mechanism.notes(workload, budget, contributions=rows))
    objective = getattr(expected or mechanism, "objective", method.objective)
    if asked.method is not None and objective != method.objective:
        notes.append(
            f"The plan is made for objective {objective}; for method {method.name} --objective {method.objective} is "
            "usually better."
        )
    if margin and expected is None:
        stated = "give --rows, or " if hasattr(mechanism, "rows") else ""
        raise PlanError(f"the errors of {mechanism.title} cannot be predicted", remedy=f"{stated}leave out --margin")
    margins = {} if expected is None else {one: expected.margin_of_error(*one) for one in named_tables(margin)}
    if json:
        print_json(_plain(workload, budget, rows, mechanism, expected, margins))
        return
    screen = console()
    screen.print(f"{workload!r}")
    screen.print(f"budget: ε = {budget.epsilon():.6g} at δ = {float(budget.delta):.3g}")
    for line in () if expected is None else str(expected.summary()).splitlines():
        screen.print(line)
    for names, value in margins.items():
        noun = "people" if rows == 1 else "rows"
        screen.print(f"{' × '.join(names)}: ± {value:,.1f} {noun} (95 %)")
    for note in (*notes, *(() if expected is None else (_UNBIASED,))):
        screen.print(note)
    if workload.domain.unreviewed:
        screen.print("The domain is a draft: nothing is measured with it before it is reviewed.")


def _plain(
    workload: Workload,
    budget: Budget,
    contributions: int,
    mechanism: Mechanism,
    expected: Expectation | None,
    margins: _Margins,
) -> dict[str, Any]:
    """Return what is to be expected as JSON can hold it."""
    objective = getattr(mechanism, "objective", None)
    return {
        "tables": len(workload),
        "cells": workload.cells,
        "rho": float(budget.rho),
        "epsilon": budget.epsilon(),
        "delta": float(budget.delta),
        "contributions": contributions,
        "mechanism": mechanism.name,
        "objective": objective,
        "errors_are": None if expected is None else "standard errors of the unbiased estimates",
        "orders": [] if expected is None else [asdict(row) for row in expected.summary().rows],
        "margins": [{"attributes": list(names), "margin": value} for names, value in margins.items()],
    }
