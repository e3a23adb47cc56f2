"""``margrave ledger``: what was spent on a data set, and what is left; begin a ledger, and repair one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from margrave.cli.job import Job, budget_of
from margrave.cli.options import AsJson, takes
from margrave.cli.screen import console, lines, print_json, print_table

if TYPE_CHECKING:
    from margrave.privacy.ledger import Balance
    from margrave.privacy.ledger_file import Entry

_DETAILS = ("title", "address", "table", "workload", "release")
_SHOWN_HASH = 12

File = Annotated[Path, typer.Argument(help="The ledger.")]
ShownDelta = Annotated[
    float | None,
    typer.Option("--delta", help="Where ε is stated; by default as in the last charge.", show_default=False),
]


class _ShownByDefault(TyperGroup):
    """The commands of the ledger; words that name none of them are for ``show``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Put ``show`` before words that begin with no command."""
        if args[:1] not in [[word] for word in (*self.commands, "-h", "--help")]:
            args = ["show", *args]
        return super().parse_args(ctx, args)


ledger = typer.Typer(
    name="ledger",
    cls=_ShownByDefault,
    help="Show what was spent on a data set, and what is left: `margrave ledger FILE`. Begin a ledger, or repair one.",
)


@ledger.command()
def show(file: File, delta: ShownDelta = None, json: AsJson = False) -> None:
    """Show what was spent on a data set, and what is left. `margrave ledger FILE` does the same.

    Example:  margrave ledger people.ledger
    """
    from margrave.privacy.ledger import Ledger

    record = Ledger(file)
    entries, balance = record.entries(), record.balance(delta)
    if json:
        print_json(_plain(file, entries, balance, record.torn))
        return
    screen = console()
    table = Table(title=f"{file}", title_justify="left")
    for name in ("", "time", "ρ", "purpose", "what", "hash"):
        table.add_column(name, justify="right" if name in ("", "ρ") else "left")
    for one in entries:
        what = lines(f"{name}: {one.details[name]}" for name in _DETAILS if name in one.details)
        table.add_row(str(one.number), one.time, f"{float(one.rho):.6g}", one.purpose, what, one.hash[:_SHOWN_HASH])
    print_table(table)
    _print_balance(balance)
    if record.torn is not None:
        screen.print(record.torn)


@ledger.command()
@takes("create")
def create(asked: Job, file: File) -> None:
    """Begin a ledger with a cap for the life of the data set, before anything is spent.

    Example:  margrave ledger create people.ledger --cap-epsilon 2 --delta 1e-9
    """
    from margrave.privacy.ledger import Ledger

    begun = Ledger.create(file, budget_of(asked.cap_epsilon, asked.cap_rho, asked.delta, "cap-"))
    console().print(f"A new ledger is begun: {file}")
    _print_balance(begun.balance(asked.delta))


@ledger.command()
def repair(
    file: File,
    rho: Annotated[
        float | None,
        typer.Option("--rho", help="What to book if the torn line does not say: the charge that was being made."),
    ] = None,
) -> None:
    """Book the torn last line of a ledger as spent, so that charges are possible again.

    Example:  margrave ledger repair people.ledger
    """
    from margrave.privacy.budget import format_rho
    from margrave.privacy.ledger import Ledger

    record = Ledger(file)
    booked = record.repair(rho)
    console().print(f"Booked {format_rho(booked.rho)} as entry {booked.number}; the ledger is complete again.")
    _print_balance(record.balance())


def _print_balance(balance: Balance) -> None:
    """Print cap, spending and remainder, each as ρ and as ε of that ρ."""
    from margrave.privacy.budget import format_rho, shown_epsilon

    screen = console()
    for word, rho in (("cap", balance.cap), ("spent", balance.spent), ("left", balance.left)):
        epsilon = f"ε = {shown_epsilon(balance.epsilon(rho))} at δ = {balance.delta:g}"
        screen.print(f"{word:>6}: {format_rho(rho)}, by itself {epsilon}")
    screen.print(
        "ρ adds up from charge to charge. These ε do not add up: two charges of ε = 1 are less than ε = 2 together."
    )


def _plain(file: Path, entries: tuple[Entry, ...], balance: Balance, torn: str | None) -> dict[str, Any]:
    """Return a ledger as JSON can hold it."""
    listed = [
        {
            "number": one.number,
            "time": one.time,
            "rho": str(one.rho),
            "purpose": one.purpose,
            "details": dict(one.details),
            "hash": one.hash,
        }
        for one in entries
    ]
    amounts = {"cap": balance.cap, "spent": balance.spent, "remaining": balance.left}
    return {
        "ledger": str(file),
        **{name: str(amount) for name, amount in amounts.items()},
        **{f"{name}_rho": float(amount) for name, amount in amounts.items()},
        **{f"{name}_epsilon": balance.epsilon(amount) for name, amount in amounts.items()},
        "delta": balance.delta,
        "epsilons": "each of its own rho at delta; they do not add up",
        "torn": torn,
        "entries": listed,
    }
