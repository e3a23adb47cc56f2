"""Write the notebook of every example from its script; a test checks that they are in step.

Run it after a change: ``python examples/notebooks.py``.
"""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat

FOLDER = Path(__file__).parent
SCRIPTS = [FOLDER / f"{name}.py" for name in ("statistics_office", "engineer", "researcher")]


def notebook(script: Path) -> str:
    """Return the text of the notebook of a script, the same every time: without outputs, cells numbered."""
    made = jupytext.reads(script.read_text(encoding="utf-8"), fmt="py:percent")
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {}
    made.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    made.nbformat, made.nbformat_minor = 4, 5
    nbformat.validate(made)
    return str(nbformat.writes(made)) + "\n"


if __name__ == "__main__":
    for one in SCRIPTS:
        one.with_suffix(".ipynb").write_text(notebook(one), encoding="utf-8")
