"""Write docs/cli.md: the keys of job files and the help of every command.

``make docs`` runs this, and a test checks that the page is current.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

import typer

from margrave.cli.app import app, main
from margrave.job import all_options

PAGE = Path(__file__).parent / "cli.md"
_INTRODUCTION = """# The command line

Written by `make docs`. Exit codes: 0 success, 2 wrong input, 3 budget refused, 130 interrupted, 1 anything else.
From the moment that `release` charges the budget, Ctrl-C, SIGTERM and SIGHUP wait until what was paid for is on disk;
the message then names the command that continues. A second Ctrl-C ends at once, and says what is lost.
`margrave --install-completion` sets up the shell. `MARGRAVE_THREADS` limits the threads.

Names, labels and paths are shown as texts: what would act on a terminal is written out, as in `\\x1b` and `\\u202e`;
`--json` escapes it as JSON does, so that programs read exactly the same text.

## Job files

All options of `plan`, `release` and `reconstruct` can be written in a TOML file that is reviewed and kept. A key is the
name of the option, paths are relative to the file, and options on the command line override it. `margrave release --job
job.toml` does this one:

```toml
data = "people.parquet"
domain = "domain.json"
kway = 3                      # or up-to = 3, or tables = [["age", "sex"], ["region"]]
epsilon = 1.0
delta = 1e-9
contributions = 1
ledger = "people.ledger"
cap-epsilon = 2.0             # creates the ledger; for the life of the data set
out = "release"
title = "Survey of 2026"
```
"""


def page() -> str:
    """Return the page: the help of margrave itself and of each of its commands, as a terminal shows it."""
    words = [[name] for name in names_of(app)]
    for group in app.registered_groups:
        words += [[group.name or group.typer_instance.info.name]]
        words += [[*words[-1], name] for name in names_of(group.typer_instance)]
    return "\n".join([_INTRODUCTION, keys(), section([]), *(section(one) for one in words)])


def keys() -> str:
    """Return the table of all keys of job files: those of a job, of mechanisms and of methods."""
    lines = ["| key | value | meaning |", "|---|---|---|"]
    for one in all_options():
        if not one.commands or {"plan", "release", "reconstruct"} & set(one.commands):
            meaning = one.meaning.replace("|", "\\|")
            lines.append(f"| `{one.key}` | {one.kind.value} | {meaning} |")
    return "\n".join([*lines, ""])


def names_of(commands: typer.Typer) -> list[str]:
    """Return the names of the commands of a group."""
    return [one.name or one.callback.__name__ for one in commands.registered_commands if one.callback]


def section(words: list[str]) -> str:
    """Return the heading and help of one command."""
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}),
        mock.patch.object(sys, "argv", ["margrave"]),
        mock.patch.dict(sys.modules, {"__main__": ModuleType("__main__")}),
        contextlib.redirect_stdout(shown),
        contextlib.suppress(SystemExit),
    ):
        main([*words, "--help"])
    lines = [line.rstrip() for line in shown.buffer.getvalue().decode("utf-8").splitlines()]
    return f"## {' '.join(['margrave', *words])}\n\n```text\n" + "\n".join(lines).strip("\n") + "\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
