"""Pages of documentation, run as a reader would: Python, shell commands and files, from top to bottom in one folder.

A block is run by its language: ``python`` in one namespace, ``sh`` line by line, lines that are one plain command of
margrave within this process and others by bash with the command margrave at hand. A block of TOML whose first line is
``# name.toml`` becomes that file. What cannot run everywhere is written as ``py``, ``shell`` or ``text``, and is only
shown.

A block of ``text`` that follows ``sh`` with nothing between them is what the commands print: its lines must be among
theirs, in this order. A line that is ``…`` says that lines are left out. If the first line is `NOISY`, numbers and the
width of columns may differ.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from command_line import command

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(python|sh|toml)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", flags=re.MULTILINE | re.DOTALL)
NOISY = "(noise is drawn anew: your numbers differ)"
_NAMED_FILE = re.compile(r"# ([\w.-]+\.toml)\n")
# A command of margrave without what only a shell understands: words, texts in '…' or "…", and "$NAME" by itself.
_PLAIN = re.compile(r"""margrave( ([\w./=,@:-]+|'[^'\n]*'|"[^"$`\\\n]*"|"\$[A-Z]+"))*""")


def pages():
    """Return all pages of docs/ that have something to run."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in found if runnable(page)]


def runnable(page):
    """Return the blocks of a page that are run or written: language, text, and what it prints, if that is shown."""
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [block for block in blocks if block[0] != "toml" or _NAMED_FILE.match(block[1])]


def run(page, folder, monkeypatch, demo):
    """Run a page in a folder; the command ``margrave demo`` copies the folder ``demo``, which it made before."""
    monkeypatch.chdir(folder)
    # The engines of pages are those of this process: `margrave` is this very package.
    commands = folder / ".commands"
    commands.mkdir()
    program = commands / "margrave"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m margrave "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "100")
    namespace = {"__name__": "__page__"}
    for language, text, printed in runnable(page):
        if language == "python":
            exec(compile(text, str(page), "exec"), namespace)
        elif language == "toml":
            Path(_NAMED_FILE.match(text).group(1)).write_text(text, encoding="utf-8")
        else:
            # A line that ends in a backslash goes on in the next one.
            lines = re.sub(r" \\\n +", " ", text).splitlines()
            output = "".join(_line(line, page, commands / "folder", monkeypatch, demo) for line in lines)
            require_printed(printed, output, page.name)


def _line(line, page, note, monkeypatch, demo):
    """Run one line of a block, stay in the folder it ends in, and return what it printed."""
    if line == "margrave demo":
        shutil.copytree(demo, "margrave-demo")
        return ""
    plain = _PLAIN.fullmatch(line)
    if plain:
        done = command(*map(os.path.expandvars, shlex.split(line)[1:]), together=True)
    else:
        script = f'set -euo pipefail\n{line}\npwd > "{note}"\n'
        done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{page.name}:\n{line}\n{done.stdout}"
    if not plain:
        monkeypatch.chdir(note.read_text().strip())
    return done.stdout


def require_printed(shown, output, name):
    """Check that the lines that a page shows are among those that were printed, in this order."""
    lines = [line.rstrip() for line in shown.splitlines()]
    noisy = lines[:1] == [NOISY]
    form = _without_numbers if noisy else str
    left = iter([form(line.rstrip()) for line in output.splitlines()])
    for line in lines[noisy:]:
        assert line == "…" or form(line) in left, f"{name} shows {line!r}, which is not printed there:\n{output}"


def _without_numbers(line):
    """Return a line of a table with # for each number, and columns of no width."""
    return re.sub(r"[-−]?\d[\d,.]*(?:e-\d+)?", "#", re.sub(r"[─━]+", "─", " ".join(line.split())))
