"""Noisy tables made elsewhere, in files: one table a file, with a column for each attribute and a column of counts.

The values of an attribute are written as its categories are (``margrave export`` writes them so): labels, intervals
such as ``(18, 65]``, or codes; with or without the apostrophe that guards them from spreadsheets. Every cell is in the
file exactly once. The variance of the noise is in a column ``variance``, the same in every row, or is given for all
files at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from margrave.domain import Domain
from margrave.errors import MeasurementError, suggestion
from margrave.escaping import guarded

_COUNT, _VARIANCE = "count", "variance"
NoisyTable = tuple[tuple[str, ...], np.ndarray, float]
_Columns = dict[str, list[str | None]]


def read_noisy_tables(
    paths: Iterable[str | os.PathLike[str]], domain: Domain, variance: float | None
) -> list[NoisyTable]:
    """Return names, counts and variance of noisy tables in CSV or Parquet files.

    Parameters
    ----------
    paths
        The files, one a table.
    domain
        The domain of the tables.
    variance
        The variance of the noise of every cell, for files without such a column.
    """
    return [_table(Path(path), domain, variance) for path in paths]


def _table(path: Path, domain: Domain, variance: float | None) -> NoisyTable:
    """Return names, counts and variance of one noisy table."""
    columns = _named(_columns(path), domain)
    if _COUNT not in columns:
        raise MeasurementError(f"{path} has no column 'count'", remedy="give one row a cell with its noisy count")
    names = tuple(name for name in columns if name in domain)
    for name in columns:
        if name not in (*names, _COUNT, _VARIANCE):
            hint = suggestion(name, domain.attributes)
            raise MeasurementError(f"{path} has the column {name!r}, which is not an attribute of the domain{hint}")
    shape = tuple(domain[name].size for name in names)
    cells = _cells(path, domain, names, columns)
    counts = _numbers(path, _COUNT, columns[_COUNT])
    if len(np.unique(cells)) != len(cells) or len(cells) != np.prod(shape, dtype=np.int64):
        raise MeasurementError(
            f"{path} has {len(cells):,} rows for {np.prod(shape, dtype=np.int64):,} cells, or some cell twice",
            remedy="give every cell of the table once, also those with a count of zero",
        )
    values = np.empty(shape)
    values.ravel()[cells] = counts
    return names, values, _one_variance(path, columns, variance)


def _columns(path: Path) -> _Columns:
    """Return the columns of a CSV or Parquet file as texts."""
    import duckdb

    try:
        with duckdb.connect() as connection:
            name = str(path)
            if path.suffix == ".parquet":
                relation = connection.read_parquet(name)
            else:
                relation = connection.read_csv(name, all_varchar=True, header=True)
            table = relation.to_arrow_table()
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise MeasurementError(f"{path} cannot be read ({reason})", remedy="give a CSV or Parquet file") from None
    import pyarrow as pa

    return {name: table.column(name).cast(pa.string()).to_pylist() for name in table.column_names}


def _named(columns: _Columns, domain: Domain) -> _Columns:
    """Return the columns by the names of the domain, also where those are guarded for spreadsheets in the file."""
    spelt = {guarded(name): name for name in domain.attributes}
    named = {spelt.get(name, name): values for name, values in columns.items()}
    return named if len(named) == len(columns) else columns


def _cells(path: Path, domain: Domain, names: Sequence[str], columns: _Columns) -> np.ndarray:
    """Return the number of the cell of each row."""
    cells = np.zeros(len(columns[_COUNT]), dtype=np.int64)
    for name in names:
        codes = _codes(domain[name].categories, columns[name])
        try:
            cells = cells * domain[name].size + np.array([codes[value] for value in columns[name]], dtype=np.int64)
        except KeyError as error:
            some = ", ".join(domain[name].categories[:4])
            raise MeasurementError(
                f"{path} has the value {error.args[0]!r} in column {name!r}",
                remedy=f"write its categories as in the domain: {some}{', …' if len(codes) > 4 else ''}",
            ) from None
    return cells


def _codes(categories: Sequence[str], values: Sequence[str | None]) -> dict[str | None, int]:
    """Return the code of each category as a column spells them: all as they are, or all guarded for spreadsheets."""
    plain: dict[str | None, int] = {category: code for code, category in enumerate(categories)}
    spelt: dict[str | None, int] = {guarded(category): code for code, category in enumerate(categories)}
    # Every category is in the column, and guarding keeps them apart: only one of the two spellings fits.
    return spelt if set(values) <= spelt.keys() else plain


def _numbers(path: Path, name: str, values: Sequence[str | None]) -> np.ndarray:
    """Return a column as numbers."""
    try:
        return np.array([float(value) for value in values])  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise MeasurementError(
            f"{path} has a value in column {name!r} that is not a number", remedy="correct it"
        ) from None


def _one_variance(path: Path, columns: _Columns, variance: float | None) -> float:
    """Return the variance of a table: that of its column, or else the one given for all."""
    if _VARIANCE not in columns:
        if variance is None:
            raise MeasurementError(
                f"{path} has no column 'variance'", remedy="add one, or give variance=… (--variance) for all tables"
            )
        return variance
    found = np.unique(_numbers(path, _VARIANCE, columns[_VARIANCE]))
    if len(found) != 1:
        raise MeasurementError(
            f"{path} has {len(found)} different variances", remedy="all cells of a table have the same"
        )
    return float(found[0])
