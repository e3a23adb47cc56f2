"""``margrave ledger``: what was spent on a data set, and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from margrave.cli.options import AsJson
from margrave.cli.screen import console, print_json


def ledger(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    json: AsJson = False,
) -> None:
    """Show what was spent on a data set, and what is left.

    Example:  margrave ledger people.ledger
    """
    from margrave.privacy.ledger import Ledger

    record = Ledger(file)
    entries = record.entries()
    if json:
        listed = [{"time": str(one.time), "rho": str(one.rho), "purpose": one.purpose} for one in entries]
        amounts = {"cap": str(record.cap), "spent": str(record.spent), "remaining": str(record.remaining)}
        print_json({"ledger": str(file), **amounts, "torn": record.torn, "entries": listed})
        return
    screen = console()
    table = Table(title=f"{file}", title_justify="left")
    for name in ("time", "ρ", "purpose"):
        table.add_column(name, justify="right" if name == "ρ" else "left")
    for one in entries:
        table.add_row(str(one.time), f"{float(one.rho):.6g}", one.purpose)
    screen.print(table)
    screen.print(
        f"spent ρ = {float(record.spent):.6g} of {float(record.cap):.6g}; {float(record.remaining):.6g} is left"
    )
    if record.torn is not None:
        screen.print(record.torn, markup=False)
