"""Small releases of every kind, and folders that were tampered with by somebody who knows the format."""

import hashlib
import json

import numpy as np

from margrave import CodedTable
from margrave.domain import Attribute, Domain
from margrave.measurements import Laplace, Measurements
from margrave.mechanisms.residual_planner import measure
from margrave.mechanisms.scalable_mwem import scalable_mwem
from margrave.methods import NonNegative
from margrave.planning.plans import plan
from margrave.privacy.budget import Budget
from margrave.release.publication import reconstruct
from margrave.workload import Workload

DOMAIN = Domain(
    [
        Attribute("age", cuts=(17, 64), description="age in years"),
        Attribute("sex", labels=("F", "M")),
        Attribute("régio/n", labels=("nord, est", 'so"uth', "“west”\nland", "=1+1")),
        Attribute("one", size=1),
    ],
    "a survey of {nobody}",
)
WORKLOAD = Workload(DOMAIN, [("age", "sex"), ("age", "régio/n"), ("sex",), ("one", "sex")], weights=[1, 2.5, 1, 0.1])
BUDGET = Budget.approx(epsilon=1, delta=1e-9)


def coded_table(rows=400):
    generator = np.random.default_rng(5)
    return CodedTable(DOMAIN, {member.name: generator.integers(0, member.size, rows) for member in DOMAIN})


def measured(**options):
    return measure(plan(WORKLOAD, BUDGET, contributions=2), coded_table(), **options)


def foreign():
    tables = [(("age", "sex"), np.arange(6.0).reshape(3, 2) - 1, 2.0), (("régio/n",), np.arange(4.0), 1.0)]
    return Measurements.from_marginals(DOMAIN, tables)


def laplace():
    return Measurements.from_residuals(DOMAIN, [((), 30.0, Laplace(1.0)), (("sex",), [2.0], Laplace(2.0))])


def adaptive():
    return scalable_mwem(coded_table(), WORKLOAD, BUDGET, contributions=1, rounds=2)


def made(measurements, method="mle"):
    chosen = NonNegative(strict=False, max_steps=300) if method == "lnn" else method
    return reconstruct(measurements, WORKLOAD, method=chosen)


def same(before, after):
    """Whether two releases say the same about every table of the closure, bit by bit."""
    assert (after.workload, after.method, after.provenance) == (before.workload, before.method, before.provenance)
    for names in before.workload.closure:
        one, other = before.table(*names), after.table(*names)
        assert other.values.tobytes() == one.values.tobytes(), names
        assert (other.variance, other.determined, other.note) == (one.variance, one.determined, one.note)
        assert other.to_arrow().equals(one.to_arrow())
    return True


def reseal(folder):
    """Make the checksums of a folder right again after somebody has changed its files, or its manifest."""
    file = folder / "manifest.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(document.get("files"), dict):
        for name, entry in document["files"].items():
            if (folder / name).is_file() and isinstance(entry, dict):
                content = (folder / name).read_bytes()
                entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    document.pop("checksum", None)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    document["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(json.dumps(document), encoding="utf-8")


def edit(folder, name, change):
    """Change a JSON file of a folder in place, and make all checksums right again."""
    document = json.loads((folder / name).read_text(encoding="utf-8"))
    change(document)
    (folder / name).write_text(json.dumps(document), encoding="utf-8")
    reseal(folder)
