"""Write files of every kind that this version writes into a folder, with the numbers that every later one must find.

    make keep        # writes tests/kept/<major>.<minor>, once for each version, when it is released

The people are made up and the noise is drawn from the system, so that the records are those of private runs.
`tests/test_kept_files.py` reads what is here.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import margrave as mg

KEPT = Path(__file__).parent / "kept"
# What a table of a release says of its cells, beside the counts.
COLUMNS = ("estimate", "std_error", "count_error", "count_low", "count_high")
BUDGET = mg.Budget.approx(epsilon=1.0, delta=1e-9)
DOMAIN = mg.Domain(
    [
        mg.Attribute("age", cuts=(17, 64), whole=True, description="age in years"),
        mg.Attribute("sex", labels=("F", "M"), missing="not stated"),
        mg.Attribute("régio/n", groups={"nord, est": ["n", "e"], 'so"uth': ["s"], "=1+1": ["1"]}, other="“west”\nland"),
        mg.Attribute("one", size=1),
        mg.Attribute("temperature", cuts=(-0.5, 36.6), outside="drop"),
    ],
    description="a survey of {nobody}",
)
WORKLOAD = mg.Workload(DOMAIN, [("age", "sex"), ("age", "régio/n"), ("sex", "one"), ("temperature",)])


def people() -> pa.Table:
    """Return made-up rows, one to three for each person."""
    draw, rows = np.random.default_rng(0), 600
    return pa.table(
        {
            "person": np.sort(draw.integers(0, 300, rows)),
            "age": draw.integers(0, 90, rows),
            "sex": pa.array(draw.choice(["F", "M"], rows), mask=draw.random(rows) < 0.1),
            "régio/n": draw.choice(["n", "e", "s", "1", "x"], rows),
            "one": np.zeros(rows, dtype=np.int64),
            "temperature": draw.normal(30, 10, rows),
        }
    )


def measured(folder: Path) -> dict[str, mg.Measurements]:
    """Return measurements by every mechanism, and some that others made; charge a ledger in the folder."""
    rows = people()
    ledger = mg.Ledger(folder / "survey.ledger", cap=mg.Budget.approx(epsilon=9, delta=1e-9))
    shared: dict[str, Any] = {"contributions": 2, "privacy_id": "person", "ledger": ledger}
    cells = np.array([[90, 110, 3], [150, -4, 0], [130, 125, 8]])
    return {
        "planned": mg.residual_planner(rows, WORKLOAD, BUDGET, **shared),
        "adaptive": mg.adaptive_planner(rows, WORKLOAD, BUDGET, **shared),
        "marginals": mg.gaussian_marginals(rows, WORKLOAD, BUDGET, **shared),
        "mwem": mg.scalable_mwem(rows, WORKLOAD, BUDGET, rounds=3, **shared),
        "foreign": mg.Measurements.from_marginals(
            DOMAIN, [(("age", "sex"), cells, 25.0), (("sex",), [370, 231, 9], 4.0)]
        ),
        "laplace": mg.Measurements.from_residuals(
            DOMAIN,
            [
                ((), 611, mg.Laplace(3.0)),
                (("age",), [2.5, -7.0], mg.Laplace(2.0)),
                (("sex",), [40.0, -1.5], mg.Gaussian(9.0)),
                (("age", "sex"), [[3.0, 0.5], [-1.0, 8.0]], mg.Gaussian(covariance=np.eye(4) + 0.5)),
            ],
        ),
    }


def released(noisy: dict[str, mg.Measurements]) -> dict[str, mg.Release]:
    """Return releases by every method, with and without learned errors."""
    inside = mg.Workload(DOMAIN, [("age", "sex"), ("sex",)])
    return {
        "planned-lnn": mg.reconstruct(noisy["planned"], WORKLOAD, errors=True),
        "adaptive-lnn": mg.reconstruct(noisy["adaptive"], WORKLOAD, errors=True),
        "adaptive-whole": mg.reconstruct(noisy["adaptive"], WORKLOAD).integers(),
        "marginals-mle": mg.reconstruct(noisy["marginals"], WORKLOAD, method="mle"),
        "mwem-paper": mg.reconstruct(noisy["mwem"], WORKLOAD, method=mg.methods.NonNegative(weights="paper")),
        "foreign-trunc": mg.reconstruct(noisy["foreign"], inside, method="trunc+rescale"),
        "laplace-mle": mg.reconstruct(noisy["laplace"], inside, method="mle"),
    }


def numbers(release: mg.Release) -> dict[str, Any]:
    """Return the method of a release and the numbers of all its tables."""
    tables = {}
    for names in release.workload.closure:
        table = release.table(*names)
        frame = table.to_arrow()
        found = {name: frame.column(name).to_pylist() for name in COLUMNS if name in frame.column_names}
        tables[" × ".join(names)] = {"names": list(names), "count": table.values.ravel().tolist(), **found}
    return {"method": release.method.to_dict(), "tables": tables}


def keep(folder: Path) -> None:
    """Write the files into a folder, which must not exist."""
    folder.mkdir(parents=True)
    DOMAIN.write(folder / "domain.json")
    noisy = measured(folder)
    expected: dict[str, Any] = {"written by": version("margrave"), "measurements": {}, "releases": {}}
    for name, one in noisy.items():
        one.save(folder / f"{name}.npz")
        rho = None if one.provenance is None else str(one.provenance.rho)
        expected["measurements"][name] = {"rho": rho, "sets": [list(names) for names in one.sets]}
    for name, release in released(noisy).items():
        release.save(folder / name, csv=name == "planned-lnn", title="Nobody, by age")
        expected["releases"][name] = numbers(release)
    ledger = mg.Ledger(folder / "survey.ledger")
    expected["ledger"] = {"spent": str(ledger.spent), "cap": str(ledger.cap), "entries": len(ledger.entries())}
    text = json.dumps(expected, ensure_ascii=False)
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Write the files of this version; those of an unreleased one may be written again with --again."""
    folder = KEPT / ".".join(version("margrave").split(".")[:2])
    if folder.exists() and "--again" not in sys.argv[1:]:
        sys.exit(
            f"{folder} exists, and what a released version wrote stays; before the release: make keep ARGS=--again"
        )
    shutil.rmtree(folder, ignore_errors=True)
    keep(folder)


if __name__ == "__main__":
    main()
