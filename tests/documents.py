"""Pages of documentation, run as a reader would: Python, shell commands and files, from top to bottom in one folder.

A block is run by its language: ``python`` in one namespace, ``sh`` by bash with the command margrave at hand. A block
of TOML whose first line is ``# name.toml`` becomes that file. What cannot run everywhere is written as ``py``,
``shell`` or ``text``, and is only shown.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(python|sh|toml)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
_NAMED_FILE = re.compile(r"# ([\w.-]+\.toml)\n")


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
    copied = f'if [ "$*" = demo ]; then cp -r "{demo}" margrave-demo; exit; fi\n'
    program.write_text(f'#!/bin/sh\n{copied}exec "{sys.executable}" -m margrave "$@"\n')
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
            _shell(text, page, commands / "folder", monkeypatch)


def _shell(text, page, note, monkeypatch):
    """Run the lines of a block by bash, which ends at the first that fails, and stay in the folder it ends in."""
    script = f'set -euo pipefail\n{text}\npwd > "{note}"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, f"{page.name}:\n{text}\n{done.stdout}\n{done.stderr}"
    monkeypatch.chdir(note.read_text().strip())
