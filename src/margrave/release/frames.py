"""Tables in tidy long form, one row a cell, for Arrow, pandas and Polars.

The columns of attributes are ordered categories (in Arrow an ordered dictionary, in Polars an Enum); rows run through
the cells with the last attribute fastest. An attribute keeps its name; a column of numbers whose name an attribute
already has gets an underscore after it, as in ``count_``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from margrave.errors import ReleaseError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Axis = tuple[str, tuple[str, ...]]


def arrow_table(
    axes: Sequence[Axis], columns: Mapping[str, NDArray[Any] | float | None], metadata: Mapping[str, str]
) -> pa.Table:
    """Return a table in long form.

    Parameters
    ----------
    axes
        Name and categories of each attribute, in the order of the axes.
    columns
        Numbers by name: an array with these axes, one number for all cells, or None for a column of nulls. NaN is
        written as null.
    metadata
        Words to go with the table, in its schema.
    """
    import pyarrow as pa

    shape = tuple(len(categories) for _, categories in axes)
    arrays = [_labels(shape, axis, categories) for axis, (_, categories) in enumerate(axes)]
    arrays += [_numbers(shape, column) for column in columns.values()]
    attributes = [name for name, _ in axes]
    names = [*attributes, *(_free_name(name, attributes) for name in columns)]
    return pa.Table.from_arrays(arrays, names=names).replace_schema_metadata(dict(metadata) or None)


def pandas_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table in long form as a pandas frame with ordered categoricals; nulls become NaN."""
    _require("pandas")
    return table.to_pandas()


def polars_frame(table: pa.Table, axes: Sequence[Axis]) -> pl.DataFrame:
    """Return a table in long form as a Polars frame, attributes as Enum."""
    polars = _require("polars")
    ordered = [polars.col(name).cast(polars.Enum(list(distinct(categories)))) for name, categories in axes]
    frame: pl.DataFrame = polars.from_arrow(table).with_columns(ordered)
    return frame


def distinct(categories: Sequence[str]) -> tuple[str, ...]:
    """Return the categories of an attribute, told apart by their codes where two of them read the same."""
    seen = set(categories)
    if len(seen) == len(categories):
        return tuple(categories)
    # The labels 1 and "1" are two values with one spelling.
    told: list[str] = []
    taken: set[str] = set()
    for code, category in enumerate(categories):
        name = category if category not in taken else f"{category} (code {code})"
        while name in taken or (name != category and name in seen):
            name += "′"
        told.append(name)
        taken.add(name)
    return tuple(told)


def _labels(shape: tuple[int, ...], axis: int, categories: Sequence[str]) -> pa.DictionaryArray:
    """Return the category of each cell along one axis."""
    import pyarrow as pa

    along = [1] * len(shape)
    along[axis] = shape[axis]
    codes = np.broadcast_to(np.arange(shape[axis], dtype=np.int32).reshape(along), shape).ravel()
    return pa.DictionaryArray.from_arrays(_array(codes), _texts(distinct(categories)), ordered=True)


def _numbers(shape: tuple[int, ...], column: NDArray[Any] | float | None) -> pa.Array:
    """Return one column of numbers, null where there is none."""
    import pyarrow as pa

    if column is None:
        return pa.nulls(math.prod(shape), pa.float64())
    return _array(np.broadcast_to(column, shape).ravel())


def _texts(texts: Sequence[str]) -> pa.Array:
    """Return an array of texts; see `_array`."""
    import pyarrow as pa

    content = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, content)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(content), pa.py_buffer(ends), pa.py_buffer(b"".join(content)))


def _array(values: NDArray[Any]) -> pa.Array:
    """Return a flat array of numbers, NaN as null; ``pyarrow.array`` would import pandas, where there is one."""
    import pyarrow as pa

    kind = {"int32": pa.int32(), "int64": pa.int64(), "float64": pa.float64()}[values.dtype.name]
    missing = np.isnan(values)
    known = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(kind, len(values), [known, pa.py_buffer(np.ascontiguousarray(values))])


def _free_name(name: str, taken: Sequence[str]) -> str:
    """Return the name of a column of numbers, with underscores after it where an attribute is called so."""
    while name in taken:
        name += "_"
    return name


def _require(package: str) -> Any:  # noqa: ANN401
    """Return a package that margrave does not need to be installed, or say how to get it."""
    try:
        return import_module(package)
    except ImportError:
        raise ReleaseError(
            f"{package} is not installed", remedy=f"install it with 'pip install {package}', or use to_arrow() instead"
        ) from None
