"""Published tables: the counts of a release in one buffer, and one table of it with its error bars.

Two products side by side. ``values`` is the method's table (by "lnn" non-negative and in agreement with all others);
its errors, if they were learned, are ``count_error``, ``count_low``, ``count_high`` and ``reliability``. ``estimate``
is the unbiased maximum-likelihood table, and ``std_error``, ``ci_low`` and ``ci_high`` belong to it alone.

For Arrow, pandas and Polars a table is in tidy long form, one row per cell. The columns of attributes are ordered
categories (in Arrow an ordered dictionary, in Polars an Enum); rows run through the cells with the last attribute
fastest. An attribute keeps its name; a column of numbers whose name an attribute already has gets an underscore after
it, as in ``count_``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.kernels import Floats
from margrave.domain.values import distinct_categories, table_label
from margrave.errors import ReleaseError, import_optional
from margrave.escaping import html_table, visible
from margrave.measurements.entries import read_only
from margrave.release.count_errors import BOUNDS, Bounds, count_interval
from margrave.release.uncertainty import LEVEL, Interval, discrete_interval, normal_interval

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from margrave.algebra.layout import Layout

# How many cells a notebook shows.
_MOST_SHOWN = 30
# What a chart of one table can show.
_MOST_AXES, _MOST_BARS = 3, 2_000
Read = Callable[[Sequence[int], Floats], None]
Axis = tuple[str, tuple[str, ...]]


class LongForm(ABC):
    """Numbers by category, one row per cell: for frames and for notebooks."""

    attributes: tuple[str, ...]
    categories: tuple[tuple[str, ...], ...]
    note: str
    # How many decimals of a number a notebook shows.
    _decimals: ClassVar[int]

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the numbers in long form as a `pyarrow.Table`."""

    def to_pandas(self) -> pd.DataFrame:
        """Return the same as a pandas frame, attributes as ordered categoricals; see `to_arrow`."""
        import_optional("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return the same as a Polars frame, attributes as Enum; see `to_arrow`."""
        polars = import_optional("polars")
        ordered = [
            polars.col(name).cast(polars.Enum(list(distinct_categories(categories)))) for name, categories in self._axes
        ]
        frame: pl.DataFrame = polars.from_arrow(self.to_arrow()).with_columns(ordered)
        return frame

    def _repr_html_(self) -> str:
        def shown(value: object) -> str:
            if value is None or (isinstance(value, float) and math.isnan(value)):
                return "–"
            return f"{value:,.{self._decimals}f}" if isinstance(value, float) else f"{value}"

        frame = self.to_arrow()
        rows = [tuple(map(shown, row.values())) for row in frame.slice(0, _MOST_SHOWN).to_pylist()]
        more = f"… and {frame.num_rows - _MOST_SHOWN:,} more rows. " if frame.num_rows > _MOST_SHOWN else ""
        return html_table(repr(self), frame.column_names, rows, f"{more}{self.note}")

    @property
    def _axes(self) -> list[Axis]:
        return list(zip(self.attributes, self.categories, strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class Table(LongForm):
    """A cross-tabulation, or the counts that answer a query; made by `margrave.Release`.

    Attributes
    ----------
    attributes
        Names of the attributes, one for each axis, in the order asked for.
    values
        The counts by the method of the release, read-only; one axis per attribute.
    estimate
        The unbiased (maximum-likelihood) table, negative cells and all, read-only. None if the measurements do not
        determine the table: then part of it was filled in without knowledge.
    variance
        The exact variance of each cell of the unbiased (maximum-likelihood) estimate of this table, the same for all
        cells; None if the table is not determined, its noise has no single variance, or the measurements are adaptive.
    categories
        The categories of each axis, as in the domain.
    note
        Why there is no interval, in a sentence; empty where there is one.
    level
        How often the intervals ``ci_low`` … ``ci_high`` cover the truth.
    whole
        Whether ``values`` are whole numbers, by `rounded`.
    direct
        The parameter g² where each cell was measured by itself, so that its estimate is a true count plus one discrete
        Gaussian; intervals are exact then. None for all other tables.
    count_error
        The expected error of each of the ``values``: the root of its mean square, read-only (docs/intervals.md). None
        where errors were not learned.
    noise
        The standard error of the estimate as if what was measured had not been chosen by earlier noise: that by which
        intervals of counts are held; ``std_error`` where there is one. None where the estimate has none.
    bounds
        Where counts stop being reliable.
    smoothed
        Whether the method smooths counts, so that small ones are mostly right; those by "trunc" are cut off at zero.
    largest
        The most that each count can be, by the intervals of what it is part of; None where that is not known.
    """

    attributes: tuple[str, ...]
    values: Floats
    estimate: Floats | None
    variance: float | None
    categories: tuple[tuple[str, ...], ...]
    note: str
    level: float = LEVEL
    whole: bool = False
    direct: float | None = None
    count_error: Floats | None = None
    noise: float | None = None
    bounds: Bounds = BOUNDS
    smoothed: bool = True
    largest: Floats | None = None
    _decimals: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", read_only(self.values))
        for name in ("estimate", "count_error"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, read_only(getattr(self, name)))

    def __reduce__(self) -> tuple[type[Table], tuple[object, ...]]:
        # Rebuilt from its fields: what was computed from them is not kept, and arrays are read-only again.
        return Table, tuple(getattr(self, one.name) for one in fields(self))

    @property
    def determined(self) -> bool:
        """Whether the measurements determine the table; if not, part of it was filled in without knowledge."""
        return self.estimate is not None

    @property
    def std_error(self) -> float | None:
        """The exact standard error of each cell of the estimate, the same for all cells; None as for the variance."""
        return None if self.variance is None else math.sqrt(self.variance)

    @property
    def ci_low(self) -> Floats | None:
        """The lower ends for the reader: rounded up where a whole number lies inside, never below zero."""
        return None if self._interval is None else self._interval.low

    @property
    def ci_high(self) -> Floats | None:
        """The upper ends for the reader: rounded down where a whole number lies inside, never below zero."""
        return None if self._interval is None else self._interval.high

    @property
    def ci_low_raw(self) -> Floats | None:
        """The lower ends as computed."""
        return None if self._interval is None else self._interval.low_raw

    @property
    def ci_high_raw(self) -> Floats | None:
        """The upper ends as computed."""
        return None if self._interval is None else self._interval.high_raw

    @property
    def count_low(self) -> Floats | None:
        """The lower ends of the intervals of the counts, whole numbers; None as for their errors."""
        return None if self._count_ends is None else self._count_ends[0]

    @property
    def count_high(self) -> Floats | None:
        """The upper ends of the intervals of the counts, whole numbers; None as for their errors."""
        return None if self._count_ends is None else self._count_ends[1]

    def reliability(self, bounds: Bounds | None = None) -> NDArray[np.object_] | None:
        """Return "reliable", "use with care" or "too uncertain to quote" for each count; None as for their errors.

        Parameters
        ----------
        bounds
            Where the lines are drawn, by relative error; by default those of the release.
        """
        return None if self.count_error is None else (bounds or self.bounds).judge(self.values, self.count_error)

    def interval(self, level: float) -> Interval | None:
        """Return the interval of the estimate at another level; None where there is none, and ``note`` says why.

        Parameters
        ----------
        level
            How often it covers the truth, above 0 and below 1. It holds for each cell separately.
        """
        if self.estimate is None or self.std_error is None:
            return None
        if self.direct is not None:
            return discrete_interval(self.estimate, self.direct, level)
        return normal_interval(self.estimate, self.std_error, level)

    def rounded(self) -> Table:
        """Return the table with whole numbers for ``values`` that add up to its rounded total.

        The cells with the largest remainders are rounded up, the others down. Only for tables without negative counts.
        Each table is rounded by itself, so tables that agreed need not agree afterwards: publish one kind or the other.
        """
        rounded = round_to_total(self.values)
        # Rounding is an error too: at most one, and with a mean square of at most a quarter.
        error = None if self.count_error is None else np.hypot(self.count_error, np.abs(rounded - self.values))
        return replace(self, values=read_only(rounded), whole=True, count_error=error)

    def to_arrow(self) -> pa.Table:
        """Return the table in long form as a `pyarrow.Table`: attributes, count, estimate, std_error, ci_low, ci_high.

        One row per cell; attributes as ordered dictionaries, numbers that do not exist as nulls. Where errors of the
        counts were learned, count_error, count_low, count_high and reliability follow.
        """
        counts: NDArray[Any] = self.values.astype(np.int64) if self.whole else self.values
        columns: dict[str, NDArray[Any] | float | None] = {
            "count": counts,
            "estimate": self.estimate,
            "std_error": self.std_error,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
        }
        if self.count_error is not None:
            columns |= {"count_error": self.count_error, "count_low": self.count_low, "count_high": self.count_high}
            columns["reliability"] = self.reliability()
        return arrow_table(self._axes, columns, {"level": str(self.level), "note": self.note})

    def __repr__(self) -> str:
        noun = "cell" if self.values.size == 1 else "cells"
        error = self.note if self.std_error is None else f"standard error of the estimate {self.std_error:.4g}"
        return f"Table({visible(table_label(self.attributes))}, {self.values.size:,} {noun}; {error})"

    @cached_property
    def _count_ends(self) -> tuple[Floats, Floats] | None:
        if self.count_error is None:
            return None
        if self._interval is not None and self.estimate is not None and np.array_equal(self.values, self.estimate):
            # The count is the estimate, and has its interval, but for one that would read as certainty.
            return self._interval.low, np.where(self._interval.high < 1, 1.0, self._interval.high)
        return count_interval(
            self.values,
            self.count_error,
            self.estimate,
            self.std_error,
            self.level,
            noise=self.noise,
            smoothed=self.smoothed,
            largest=self.largest,
        )

    @cached_property
    def _interval(self) -> Interval | None:
        return self.interval(self.level)


def round_to_total(counts: Floats) -> Floats:
    """Return whole numbers near the counts of a table that add up to its rounded total.

    Every count is rounded down; then the cells with the largest remainders, the first ones among equals, get one each
    until the sum is the total, rounded half to even. No cell moves by one or more, and whole numbers stay as they are.

    Parameters
    ----------
    counts
        Any shape; no count negative.
    """
    if (counts < 0).any():
        raise ReleaseError(
            "the table has negative counts, and whole numbers are for tables without",
            remedy="reconstruct it with method='lnn'",
        )
    flat = counts.ravel()
    down = np.floor(flat)
    # The exact sum, so that its rounding is the same on every machine.
    lacking = round(math.fsum(flat)) - int(math.fsum(down))
    raised = np.argsort(down - flat, kind="stable")[:lacking]
    down[raised] += 1
    return down.reshape(counts.shape)


class Counts:
    """The counts of every table of a closure.

    Those of a saved release are read when they are first asked for, each once. Threads may share them.

    Parameters
    ----------
    layout
        The closure.
    buffer
        Shape (layout.cells,); the counts that are there already. Write to it no more.
    unread
        Numbers of the tables that are not there yet.
    read
        Reads tables, given by their numbers, into the buffer; raises if it cannot.
    """

    def __init__(
        self, layout: Layout, buffer: Floats, *, unread: Collection[int] = (), read: Read | None = None
    ) -> None:
        self._layout, self._buffer, self._read = layout, buffer, read
        self._unread, self._lock = dict.fromkeys(unread), Lock()

    def table(self, place: int) -> Floats:
        """Return the counts of a table, read-only, axes in domain order."""
        self._require([place])
        return read_only(self._layout.view(self._buffer, place))

    def everything(self) -> Floats:
        """Return the whole buffer, read-only; shape (layout.cells,)."""
        self._require(list(self._unread))
        return read_only(self._buffer)

    def __reduce__(self) -> tuple[type[Counts], tuple[Layout, Floats]]:
        return Counts, (self._layout, self.everything())

    def _require(self, places: Sequence[int]) -> None:
        """Read those of the tables that are not there yet."""
        if self._read is None or not self._unread:
            return
        with self._lock:
            missing = [place for place in places if place in self._unread]
            if missing:
                self._read(missing, self._buffer)
            for place in missing:
                del self._unread[place]


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
        written as null. An array of objects holds texts.
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


def _labels(shape: tuple[int, ...], axis: int, categories: Sequence[str]) -> pa.DictionaryArray:
    """Return the category of each cell along one axis."""
    import pyarrow as pa

    along = [1] * len(shape)
    along[axis] = shape[axis]
    codes = np.broadcast_to(np.arange(shape[axis], dtype=np.int32).reshape(along), shape).ravel()
    return pa.DictionaryArray.from_arrays(_arrow_array(codes), _texts(distinct_categories(categories)), ordered=True)


def _numbers(shape: tuple[int, ...], column: NDArray[Any] | float | None) -> pa.Array:
    """Return one column of numbers, null where there is none."""
    import pyarrow as pa

    if column is None:
        return pa.nulls(math.prod(shape), pa.float64())
    if isinstance(column, np.ndarray) and column.dtype == object:
        words, codes = np.unique(column.ravel().astype(str), return_inverse=True)
        return pa.DictionaryArray.from_arrays(_arrow_array(codes.astype(np.int32)), _texts(words.tolist()))
    return _arrow_array(np.broadcast_to(column, shape).ravel())


def _texts(texts: Sequence[str]) -> pa.Array:
    """Return an array of texts; see `_arrow_array`."""
    import pyarrow as pa

    content = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, content)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(content), pa.py_buffer(ends), pa.py_buffer(b"".join(content)))


def _arrow_array(values: NDArray[Any]) -> pa.Array:
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


def table_chart(table: Table) -> alt.Chart | alt.LayerChart | alt.FacetChart:
    """Return a chart of a table of one to three attributes for a notebook: bars, and intervals where there are any.

    Parameters
    ----------
    table
        The table.
    """
    try:
        import altair as alt
    except ImportError:
        raise ReleaseError(
            "charts need altair, which is not installed", remedy="install the extra: pip install 'margrave[report]'"
        ) from None
    if not 1 <= len(table.attributes) <= _MOST_AXES or table.values.size > _MOST_BARS:
        raise ReleaseError(
            f"a table of {len(table.attributes)} attributes and {table.values.size:,} cells is given to plot",
            remedy=f"choose 1 to {_MOST_AXES} attributes with at most {_MOST_BARS:,} cells",
        )
    low, high = table.count_low, table.count_high
    whose = "of the count"
    if low is None or high is None:
        low, high, whose = table.ci_low, table.ci_high, "of the unbiased estimate"
    cells = list(product(*table.categories))
    rows = [
        {**{f"axis{place}": visible(text) for place, text in enumerate(cell)}, "count": float(count)}
        for cell, count in zip(cells, table.values.ravel().tolist(), strict=True)
    ]
    if low is not None and high is not None:
        for row, lower, upper in zip(rows, low.ravel().tolist(), high.ravel().tolist(), strict=True):
            row.update(low=lower, high=upper)
    lines = f"lines: {table.level:.0%} interval {whose}" if low is not None else visible(table.note)
    titles = [visible(name) for name in table.attributes]
    orders = [[visible(text) for text in categories] for categories in table.categories]
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=alt.X("axis0:N", sort=orders[0], title=titles[0]))
    if len(titles) > 1:
        base = base.encode(xOffset=alt.XOffset("axis1:N", sort=orders[1]))
    bars = base.mark_bar().encode(y=alt.Y("count:Q", title="count"))
    if len(titles) > 1:
        bars = bars.encode(color=alt.Color("axis1:N", sort=orders[1], title=titles[1]))
    chart = bars if low is None else bars + base.mark_rule(color="black").encode(y="low:Q", y2="high:Q")
    heading = alt.TitleParams(" × ".join(titles), subtitle=f"bars: count; {lines}")
    if len(titles) == _MOST_AXES:
        chart = chart.facet(alt.Facet("axis2:N", sort=orders[2], title=titles[2]))
    titled: alt.Chart | alt.LayerChart | alt.FacetChart = chart.properties(title=heading)
    return titled
