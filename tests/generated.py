"""A made-up data set, and how to write one into a folder as the experiments read it."""

import csv
import gzip
import json

import numpy as np

SIZES = {"age": 6, "sex": 2, "region": 5, "work": 4, "income": 7}
ROWS = 3000


def rows_of(seed=7):
    """Rows with dependence, and cells that stay empty: age drives work, work drives income."""
    draw = np.random.default_rng(seed)
    age = draw.integers(0, 6, ROWS)
    work = np.clip(age // 2 + draw.integers(0, 2, ROWS), 0, 3)
    income = np.clip(2 * work + draw.integers(0, 2, ROWS) - (age == 5), 0, 6)
    region = np.minimum(draw.geometric(0.5, ROWS) - 1, 4)
    return np.column_stack([age, draw.integers(0, 2, ROWS), region, work, income])


def write_dataset(folder, name, sizes, rows):
    """Write the two files of a data set."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-domain.json").write_text(json.dumps(sizes))
    with gzip.open(folder / f"{name}.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(sizes)
        writer.writerows(np.asarray(rows).tolist())
