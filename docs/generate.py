"""Write docs/cli.md, the help of every command; ``make docs`` runs it, and a test checks that the page is current."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from margrave.cli.app import app

PAGE = Path(__file__).parent / "cli.md"


def page() -> str:
    """Return the page: the help of margrave itself and of each of its commands, as a terminal shows it."""
    names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    sections = ["# The command line\n\nWritten by `make docs`.\n", section([])]
    return "\n".join([*sections, *(section([name]) for name in names)])


def section(words: list[str]) -> str:
    """Return the heading and help of one command."""
    settings = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-c", "from margrave.cli.app import main; main()", *words, "--help"]
    shown = subprocess.run(command, env=settings, capture_output=True, text=True, check=True).stdout
    lines = [line.rstrip() for line in shown.replace("-c ", "margrave ", 1).splitlines()]
    return f"## {' '.join(['margrave', *words])}\n\n```text\n" + "\n".join(lines).strip("\n") + "\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
