"""Where the real tables are: MARGRAVE_DATASETS, or a folder beside the project; tests skip where there is none."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("MARGRAVE_DATASETS", Path(__file__).parents[2] / "shared" / "datasets"))


def need_dataset(name):
    """Return the paths of a table and its domain, or skip."""
    table, domain = FOLDER / f"{name}.csv.gz", FOLDER / f"{name}-domain.json"
    if not (table.exists() and domain.exists()):
        pytest.skip(f"the data set {name} is not in {FOLDER}; set MARGRAVE_DATASETS to the folder that has it")
    return table, domain
