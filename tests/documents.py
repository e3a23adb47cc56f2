"""Pages of documentation, run as a reader would: Python, shell commands and files, from top to bottom in one folder.

A block is run by its language: ``python`` in one namespace, ``sh`` line by line, lines that are one plain command of
margrave within this process and others by bash with the command margrave at hand. A block of TOML whose first line is
``# name.toml`` becomes that file. What cannot run everywhere is written as ``py``, ``shell`` or ``text``, and is only
shown.
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
_BLOCK = re.compile(r"^```(python|sh|toml)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
_NAMED_FILE = re.compile(r"# ([\w.-]+\.toml)\n")
# A command of margrave without what only a shell understands: words, texts in '…' or "…", and "$NAME" by itself.
_PLAIN = re.compile(r"""margrave( ([\w./=,@:-]+|'[^'\n]*'|"[^"$`\\\n]*"|"\$[A-Z]+"))*""")


def pages():
    """Return all pages of docs/ that have something to run."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in found if runnable(page)]


def runnable(page):
    """Return the blocks of a page that are run or written, as pairs of language and text."""
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(language, text) for language, text in blocks if language != "toml" or _NAMED_FILE.match(text)]


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
    for language, text in runnable(page):
        if language == "python":
            exec(compile(text, str(page), "exec"), namespace)
        elif language == "toml":
            Path(_NAMED_FILE.match(text).group(1)).write_text(text, encoding="utf-8")
        else:
            for line in text.splitlines():
                _line(line, page, commands / "folder", monkeypatch, demo)


def _line(line, page, note, monkeypatch, demo):
    """Run one line of a block, and stay in the folder it ends in."""
    if line == "margrave demo":
        shutil.copytree(demo, "margrave-demo")
    elif _PLAIN.fullmatch(line):
        done = command(*map(os.path.expandvars, shlex.split(line)[1:]))
        assert done.returncode == 0, f"{page.name}:\n{line}\n{done.stdout}\n{done.stderr}"
    else:
        script = f'set -euo pipefail\n{line}\npwd > "{note}"\n'
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, f"{page.name}:\n{line}\n{done.stdout}\n{done.stderr}"
        monkeypatch.chdir(note.read_text().strip())
