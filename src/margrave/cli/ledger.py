"""``margrave ledger``: what was spent on a data set, and what is left."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from margrave.cli.options import AsJson
from margrave.cli.screen import console, print_json, print_table


def ledger(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    json: AsJson = False,
) -> None:
    """Show what was spent on a data set, and what is left.

    Example:  margrave ledger people.ledger
    """
    from margrave.privacy.budget import spoken_rho
    from margrave.privacy.ledger import Ledger

    record = Ledger(file)
    entries = record.entries()
    if json:
        listed = [{"time": str(one.time), "rho": str(one.rho), "purpose": one.purpose} for one in entries]
        amounts = {"cap": record.cap, "spent": record.spent, "remaining": record.remaining}
        exact = {name: str(amount) for name, amount in amounts.items()}
        decimal = {f"{name}_rho": float(amount) for name, amount in amounts.items()}
        print_json({"ledger": str(file), **exact, **decimal, "torn": record.torn, "entries": listed})
        return
    screen = console()
    table = Table(title=f"{file}", title_justify="left")
    for name in ("time", "ρ", "purpose"):
        table.add_column(name, justify="right" if name == "ρ" else "left")
    for one in entries:
        table.add_row(str(one.time), f"{float(one.rho):.6g}", one.purpose)
    print_table(table)
    for word, amount in (("cap", record.cap), ("spent", record.spent), ("left", record.remaining)):
        screen.print(f"{word:>6}: {spoken_rho(amount)}{_as_epsilon(amount)}")
    screen.print("ρ adds up from charge to charge; ε does not, so two charges of ε = 1 are less than ε = 2 together.")
    if record.torn is not None:
        screen.print(record.torn)


def _as_epsilon(rho: Fraction) -> str:
    """Return what an amount means as ε at the usual δ."""
    from margrave.privacy.budget import Budget

    return f", that is ε = {Budget.zcdp(rho=rho).epsilon():.4g} at δ = 1e-9" if rho > 0 else ""
