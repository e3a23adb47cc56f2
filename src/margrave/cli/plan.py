"""``margrave plan``: what a budget buys, before any data is opened."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from margrave.cli import options as o
from margrave.cli.job import Job
from margrave.cli.screen import console, print_json

if TYPE_CHECKING:
    from margrave.planning.plans import Plan

_UNBIASED = "Errors are standard errors of the unbiased estimates; the non-negative tables are nearer on the whole."


def plan(
    job: o.JobFile = None,
    domain: o.DomainFile = None,
    kway: o.KWay = None,
    up_to: o.UpTo = None,
    tables: o.Tables = None,
    max_cells: o.MaxCells = None,
    epsilon: o.Epsilon = None,
    delta: o.Delta = None,
    rho: o.Rho = None,
    contributions: o.Contributions = None,
    objective: o.Objective = None,
    method: o.Method = None,
    margin: Annotated[
        list[str] | None, typer.Option("--margin", help="Also show the 95 % margin of this table, as age,sex.")
    ] = None,
    json: o.AsJson = False,
) -> None:
    """Show what a budget buys: the error of every table. The data is never opened.

    Example:  margrave plan --domain domain.json --kway 3 --epsilon 1 --delta 1e-9 --contributions 1
    """
    given = {
        "domain": domain,
        "kway": kway,
        "up_to": up_to,
        "tables": o.named_tables(tables),
        "max_cells": max_cells,
        "epsilon": epsilon,
        "delta": delta,
        "rho": rho,
        "contributions": contributions,
        "objective": objective,
        "method": method,
    }
    asked = Job.of(job, given)
    planned = asked.plan(asked.workload(asked.read_domain()))
    margins = {names: planned.margin_of_error(*names) for names in o.named_tables(margin) or ()}
    if json:
        print_json(_plain(planned, margins))
        return
    screen = console()
    screen.print(f"{planned.workload!r}")
    spent = f"ε = {planned.budget.epsilon():.6g} at δ = {float(planned.budget.delta):.3g}"
    screen.print(f"budget: {spent}")
    for line in str(planned.summary()).splitlines():
        screen.print(line)
    for names, value in margins.items():
        noun = "people" if planned.contributions == 1 else "rows"
        screen.print(f"{' × '.join(names)}: ± {value:,.1f} {noun} (95 %)")
    screen.print(_UNBIASED)
    if planned.workload.domain.unreviewed:
        screen.print("The domain is a draft: nothing is measured with it before it is reviewed.")


def _plain(planned: Plan, margins: dict[tuple[str, ...], float]) -> dict[str, Any]:
    """Return the plan as JSON can hold it."""
    summary = planned.summary()
    return {
        "tables": len(planned.workload),
        "cells": planned.workload.cells,
        "rho": float(planned.rho),
        "epsilon": planned.budget.epsilon(),
        "delta": float(planned.budget.delta),
        "contributions": planned.contributions,
        "objective": planned.objective,
        "errors_are": "standard errors of the unbiased estimates",
        "orders": [asdict(row) for row in summary.rows],
        "margins": [{"attributes": list(names), "margin": value} for names, value in margins.items()],
    }
