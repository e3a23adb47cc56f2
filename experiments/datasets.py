"""Public benchmark tables with their true marginals, read from a folder that the user names.

A data set NAME is two files: ``NAME.csv.gz`` (or ``NAME.csv``), whole-number codes 0, 1, … with a header of attribute
names, and ``NAME-domain.json``, the sizes ``{"age": 85, "sex": 2}`` or a codebook.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import ExperimentError
from margrave import CodedTable
from margrave.algebra.kernels import Integers
from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.errors import suggestion
from margrave.workload import Workload

# The paper's data sets, in its order, and where such data come from.
ORIGINS = {
    "titanic": "the passenger list of the Titanic, 1,304 people with 9 attributes (OpenML and Kaggle, 'Titanic')",
    "adult": "the census income data 'Adult' of the UCI Machine Learning Repository, 48,842 people with 14 attributes",
    "salary": "the state employees' salaries used by DPBench and HDMM, 135,727 people with 9 attributes",
    "nist-taxi": "the Chicago taxi trips of NIST's SDNist package, about 225,000 trips with 10 attributes",
}
# All experiments are about all tables of three attributes, as in the paper.
ORDER = 3


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A benchmark table and all its true marginals of three attributes.

    Attributes
    ----------
    name
        What it is called.
    table
        Its rows.
    workload
        All tables of three attributes.
    layout
        The closure of the workload.
    truth
        Shape (layout.cells,); the true counts.
    rows
        How many rows there are, N.
    fingerprint
        What tells it from another of the same name.
    """

    name: str
    table: CodedTable
    workload: Workload
    layout: Layout
    truth: Integers
    rows: int
    fingerprint: str


def require_datasets(folder: Path, names: Sequence[str]) -> None:
    """Raise `ExperimentError` if a file of these data sets is missing: what is expected, and where it comes from."""
    missing = [file for name in names for file in _missing(folder, name)]
    if not missing:
        return
    known = {*ORIGINS, *(path.name.removesuffix("-domain.json") for path in folder.glob("*-domain.json"))}
    for name in names:
        if name not in known and (hint := suggestion(name, sorted(known))):
            raise ExperimentError(f"no data set {name!r} in the folder {str(folder)!r}{hint}")
    origins = "; ".join(f"{name}: {origin}" for name, origin in ORIGINS.items() if name in names)
    raise ExperimentError(
        f"the folder {str(folder)!r} has no {' and no '.join(missing)}; a data set NAME is NAME.csv.gz (whole-number "
        "codes 0, 1, … with a header of attribute names) and NAME-domain.json (the number of values of each attribute, "
        'as in {"age": 85, "sex": 2}); the data are public and not part of margrave: download them, encode them, and '
        f"name their folder with --data{' (' + origins + ')' if origins else ''}"
    )


def fingerprint(folder: Path, name: str) -> str:
    """Return twelve hexadecimal digits that tell the files of a data set, however compressed, from others."""
    path = _table_file(folder, name)
    opened = gzip.open if path.suffix == ".gz" else open
    found = hashlib.sha256((folder / f"{name}-domain.json").read_bytes())
    try:
        with opened(path, "rb") as file:
            found.update(file.read())
    except (OSError, EOFError) as error:
        raise ExperimentError(f"{path} cannot be read ({error}); get it again") from error
    return found.hexdigest()[:12]


@lru_cache(maxsize=1)
def read_dataset(folder: Path, name: str) -> Dataset:
    """Return a data set with its true marginals; the last one is kept, since trials of one come in a row."""
    require_datasets(folder, [name])
    domain = Domain.read(folder / f"{name}-domain.json")
    if len(domain) < ORDER:
        raise ExperimentError(
            f"the data set {name!r} has {len(domain)} attributes; the experiments need at least {ORDER}"
        )
    columns = _columns(_table_file(folder, name), domain)
    table, workload = CodedTable(domain, columns), Workload.all_kway(domain, ORDER)
    layout = Layout.of(domain.shape, workload.positions)
    truth = table.count(layout)
    rows = int(truth[layout.index.offset[layout.places[()]]])
    return Dataset(name, table, workload, layout, truth, rows, fingerprint(folder, name))


def read_columns(folder: Path, name: str) -> tuple[Domain, NDArray[np.int32]]:
    """Return the domain of a data set and its rows as codes, shape (rows, attributes)."""
    require_datasets(folder, [name])
    domain = Domain.read(folder / f"{name}-domain.json")
    columns = _columns(_table_file(folder, name), domain)
    return domain, np.column_stack([columns[attribute] for attribute in domain.attributes]).astype(np.int32)


def _columns(path: Path, domain: Domain) -> dict[str, Integers]:
    """Return the codes of each attribute."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            header = next(csv.reader(file), [])
            codes = np.loadtxt(file, dtype=np.int64, delimiter=",", ndmin=2)
    except (OSError, EOFError, ValueError) as error:
        raise ExperimentError(
            f"{path} is not a CSV file of whole numbers with a header ({error}); encode the values 0, 1, …"
        ) from error
    lost = [name for name in domain.attributes if name not in header]
    if lost:
        raise ExperimentError(f"{path} has no column {lost[0]!r}, which the domain names; give both files alike")
    if not codes.size:
        raise ExperimentError(f"{path} has no rows; an experiment needs some")
    return {name: codes[:, header.index(name)] for name in domain.attributes}


def _table_file(folder: Path, name: str) -> Path:
    """Return the file of the rows, compressed or not."""
    plain = folder / f"{name}.csv"
    return plain if plain.exists() else folder / f"{name}.csv.gz"


def _missing(folder: Path, name: str) -> list[str]:
    """Return the names of the files of a data set that are not there."""
    files = [_table_file(folder, name), folder / f"{name}-domain.json"]
    return [file.name for file in files if not file.is_file()]
