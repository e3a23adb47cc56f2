"""Made-up rows as a value: columns in the words of the domain, a file, and how far their tables are from a release's.

A row describes no person. All that is true of rows is what their tables say, so they carry, wherever they go, what they
are, which release they were made from, and how far their tables are from the tables of that release.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from margrave.errors import ReleaseError, StoreError, import_optional
from margrave.files import replacing
from margrave.memory import require_memory
from margrave.synthesis.fitting import MOST_SWEEPS, count_rows, fit_rows
from margrave.synthesis.made_up_draws import MadeUpDraws
from margrave.synthesis.network import draw_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout
    from margrave.domain.attribute import Attribute
    from margrave.domain.domain import Domain
    from margrave.synthesis.fitting import Codes, Progress

# What every file of rows says about itself; docs/rows.md has the same in more words.
WORDS = (
    "These rows are synthetic: made up so that their tables are near the published tables of the release. No row "
    "describes a person, though one may by chance equal a real one. Making them cost no privacy: the guarantee of the "
    "release covers them. Relations among more attributes than one released table holds come from the model, not from "
    "the data. Standard errors computed from these rows as if they were a sample are wrong: use the tables of the "
    "release, which have their own."
)
_SUFFIXES = {".csv": "CSV", ".parquet": "Parquet", ".arrow": "Arrow", ".feather": "Arrow"}
_MOST_ROWS = 2**31 - 1
# Bytes a row takes for each attribute, and a cell of the tables, while rows are made: the rows, what they want and the
# random order; four copies of the tables and the tables of one attribute, with their weights.
_ROW_BYTES, _ROW_EXTRA, _CELL_BYTES = 4, 40, 52


@dataclass(frozen=True)
class Distance:
    """How far the tables of rows are from those of the release, for all tables of one order.

    Attributes
    ----------
    order
        How many attributes the tables have.
    tables
        How many tables there are.
    mean, largest
        Σ |rows − release| over the cells of a table, as a share of all rows, 0 to 2: on average, and at most.
    """

    order: int
    tables: int
    mean: float
    largest: float


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Made-up rows whose tables are near those of a release; made by `margrave.Release.synthesize`.

    Attributes
    ----------
    domain
        The attributes, one column each: those of the release that are in a table of it.
    codes
        Shape (rows, attributes), read-only; the code of each value.
    seed
        The seed that gives the same rows again, from the same release.
    distances
        How far their tables are from those of the release, by number of attributes.
    interrupted
        Whether the rows are those of an interrupted run: the best so far.
    origin
        Which release they were made from, in words by key.
    """

    domain: Domain
    codes: Codes
    seed: int
    distances: tuple[Distance, ...]
    interrupted: bool = False
    origin: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.codes.flags.writeable = False

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return f"Rows({len(self):,} synthetic rows of {len(self.domain)} attributes)"

    @property
    def metadata(self) -> dict[str, str]:
        """What the rows are, where they come from and how near their tables are, as texts by key."""
        told = {
            "what": WORDS,
            "rows": str(len(self)),
            "seed": str(self.seed),
            "distance": " ".join(self.distance_sentences()),
            **self.origin,
        }
        if self.interrupted:
            told["note"] = "Making these rows was interrupted: they are the best so far, not the best possible."
        return {f"margrave.{key}": text for key, text in told.items()}

    def distance_sentences(self) -> list[str]:
        """Return how far the tables of the rows are from the release's, one sentence per order."""
        return [
            f"Tables of {_attributes(one.order)} differ from the release's by {_percent(one.mean)} of the rows on "
            f"average and by {_percent(one.largest)} at most ({one.tables:,} of them; a row in a wrong cell counts "
            "twice, where it is and where it should be)."
            for one in self.distances
        ]

    def to_arrow(self, *, codes: bool = False) -> pa.Table:
        """Return the rows as a `pyarrow.Table`, one column an attribute, with `metadata` in its schema.

        Labels are as declared. A number from a bin is drawn evenly from it; of the two outer bins, which have no end,
        as much as their neighbour is wide. Missing values are null.

        Parameters
        ----------
        codes
            Write the codes 0 … size − 1 instead.
        """
        import pyarrow as pa

        draws = MadeUpDraws(self.seed)
        columns = []
        for place, attribute in enumerate(self.domain):
            column, within = self.codes[:, place], draws.uniform(len(self))
            columns.append(_whole(column) if codes else _column(attribute, column, within))
        table = pa.Table.from_arrays(columns, names=list(self.domain.attributes))
        return table.replace_schema_metadata(self.metadata)

    def to_pandas(self, *, codes: bool = False) -> pd.DataFrame:
        """Return the rows as a pandas frame, labels as ordered categoricals; see `to_arrow`."""
        import_optional("pandas")
        return self.to_arrow(codes=codes).to_pandas()

    def to_polars(self, *, codes: bool = False) -> pl.DataFrame:
        """Return the rows as a Polars frame; see `to_arrow`."""
        frame: pl.DataFrame = import_optional("polars").from_arrow(self.to_arrow(codes=codes))
        return frame

    def save(self, path: str | os.PathLike[str], *, codes: bool = False, overwrite: bool = False) -> None:
        """Write the rows to a file: CSV, Parquet or Arrow by its suffix; `metadata` goes with them.

        A CSV file cannot hold metadata: it goes into a file next to it, ``rows.csv-metadata.json`` for ``rows.csv``.

        Parameters
        ----------
        path
            The file: .csv, .parquet, .arrow or .feather.
        codes
            Write the codes 0 … size − 1 instead of values.
        overwrite
            Replace a file of this name.
        """
        file = checked_target(path, overwrite=overwrite)
        table = self.to_arrow(codes=codes)
        form = _SUFFIXES[file.suffix.lower()]
        try:
            with replacing(file) as stream:
                if form == "CSV":
                    import pyarrow.csv

                    pyarrow.csv.write_csv(_plain(table), stream)
                elif form == "Parquet":
                    import pyarrow.parquet

                    pyarrow.parquet.write_table(table, stream, compression="zstd")
                else:
                    import pyarrow.feather

                    pyarrow.feather.write_feather(table, stream, compression="zstd")
            if form == "CSV":
                with replacing(_words_file(file)) as stream:
                    document = {"@context": "http://www.w3.org/ns/csvw", "url": file.name, **_named(self.metadata)}
                    stream.write(json.dumps(document, ensure_ascii=False, indent=2).encode() + b"\n")
        except OSError as error:
            raise StoreError(f"{file} cannot be written ({error.strerror})", remedy="name another file") from error


@dataclass(frozen=True, eq=False)
class Made:
    """Rows as codes, before they are dressed in the words of a domain.

    Attributes
    ----------
    codes
        Shape (rows, attributes).
    counts
        Shape (layout.cells,); their tables: whole numbers that agree with each other.
    distances
        How far those are from the tables wanted, by order.
    seed
        What gives the same rows again.
    interrupted
        Whether they are the best so far, after Ctrl-C.
    """

    codes: Codes
    counts: Floats
    distances: tuple[Distance, ...]
    seed: int
    interrupted: bool


def make_codes(
    layout: Layout,
    marginals: Floats,
    *,
    rows: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Made:
    """Make rows whose tables are near those of a closure.

    Parameters
    ----------
    layout
        The closure.
    marginals
        Shape (layout.cells,); its tables, which agree with each other and have no negative count.
    rows
        How many rows; by default as many as the tables count, rounded.
    seed
        A whole number that gives the same rows again; by default a random one.
    progress
        Called with the number of attributes visited and of all visits.
    """
    total = float(marginals[0])
    count = checked_rows(rows, total)
    require_memory(
        count * (len(layout.sizes) * _ROW_BYTES + _ROW_EXTRA) + layout.cells * _CELL_BYTES,
        f"making {count:,} rows",
        (),
        advice="ask for fewer rows",
    )
    draws = MadeUpDraws(seed)
    codes = draw_rows(layout, marginals, count, draws)
    wanted = marginals * (count / total if total > 0 else 0.0)
    fit = fit_rows(layout, codes, marginals, sweeps=MOST_SWEEPS, progress=progress)
    counts = count_rows(layout, codes)
    return Made(codes, counts, measured_distances(layout, counts, wanted, count), draws.seed, fit.interrupted)


def synthesize(
    layout: Layout,
    marginals: Floats,
    domain: Domain,
    *,
    rows: int | None = None,
    seed: int | None = None,
    origin: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Rows:
    """Return synthetic rows whose tables are near those of a closure, in the words of its domain.

    Rows have a column for each attribute that is in a table. About the others the release says nothing: a column of
    values that are all equally likely would look like data.

    Parameters
    ----------
    layout, marginals, rows, seed, progress
        As in `make_codes`.
    domain
        The attributes.
    origin
        Which release the tables are of, in words by key.
    """
    kept = [place for place in range(len(domain)) if (place,) in layout.places]
    if not kept:
        raise ReleaseError(
            "the release has the total alone, so rows would have no columns",
            remedy="reconstruct it with tables of at least one attribute",
        )
    made = make_codes(layout, marginals, rows=rows, seed=seed, progress=progress)
    told = {"tables_sha256": hashlib.sha256(marginals.tobytes()).hexdigest(), **(origin or {})}
    lacking = [name for place, name in enumerate(domain.attributes) if place not in kept]
    if lacking:
        told["left_out"] = f"{', '.join(lacking)}: in no table of the release"
    columns = domain if not lacking else domain.project(domain.names(tuple(kept)))
    return Rows(columns, made.codes[:, kept], made.seed, made.distances, made.interrupted, told)


def measured_distances(layout: Layout, counts: Floats, wanted: Floats, rows: int) -> tuple[Distance, ...]:
    """Return how far tables are from those wanted, by order; zero where there are no rows."""
    offset, order = layout.index.offset, layout.index.order
    away = np.add.reduceat(np.abs(counts - wanted), offset[:-1]) / max(rows, 1)
    orders = [number for number in np.unique(order).tolist() if number > 0]
    return tuple(
        Distance(number, int((order == number).sum()), float(of.mean()), float(of.max()))
        for number in orders
        if (of := away[order == number]).size
    )


def checked_rows(rows: object, total: float) -> int:
    """Return how many rows to make, if that is possible for tables that count ``total`` people."""
    if rows is None:
        count = max(round(total), 0) if math.isfinite(total) else -1
    elif isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 0:
        raise ReleaseError(f"rows is {rows!r}", remedy="give a whole number from 0 on, or None for the release's total")
    else:
        count = int(rows)
    if not 0 <= count <= _MOST_ROWS:
        raise ReleaseError(f"{count:,} rows are asked for", remedy=f"at most {_MOST_ROWS:,} can be made")
    if count > 0 and not total > 0:
        raise ReleaseError(
            "the release counts nobody, so there are no rows to make",
            remedy="ask for rows=0, or for rows of another release",
        )
    return count


def checked_target(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the file to write rows to, if its suffix names a form and nothing is there that must stay."""
    file = Path(path)
    if file.suffix.lower() not in _SUFFIXES:
        raise ReleaseError(f"{file} does not say in which form", remedy=f"end its name in {', '.join(_SUFFIXES)}")
    for one in (file, _words_file(file)) if file.suffix.lower() == ".csv" else (file,):
        if one.exists() and not overwrite:
            raise StoreError(f"{one} already exists", remedy="name another file, or replace it with overwrite=True")
    if not file.absolute().parent.is_dir():
        raise StoreError(f"the folder {file.absolute().parent} is not there", remedy="make it first")
    return file


def _words_file(file: Path) -> Path:
    """Return the file next to a CSV file that describes it, named as CSV on the Web does."""
    return file.with_name(f"{file.name}-metadata.json")


def _named(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return metadata under names that a CSVW file may have: its own prefix instead of a dot."""
    return {key.replace("margrave.", "margrave:", 1): text for key, text in metadata.items()}


def _column(attribute: Attribute, codes: Codes, within: Floats) -> pa.Array:
    """Return the values of one attribute: numbers and booleans as such, all else by name; missing ones are null."""
    import pyarrow as pa

    # A category that was added for missing values is what stands after the declared ones and is no other value's.
    lacking = attribute.missing_code
    null = codes == lacking if lacking is not None and lacking >= attribute.declared else np.zeros(len(codes), bool)
    added = attribute.size - attribute.declared - (lacking is not None and lacking >= attribute.declared)
    values = None if added else attribute.values.made_up(np.where(null, 0, codes), within)
    if values is not None:
        return _whole(values, null) if values.dtype.kind == "i" else pa.array(values, mask=null, from_pandas=False)
    names = pa.array(_unmistakable(attribute.categories), pa.string())
    return pa.DictionaryArray.from_arrays(_whole(codes, null), names, ordered=True)


def _whole(values: Any, null: Any = None) -> pa.Array:  # noqa: ANN401 — numpy arrays of any width
    """Return whole numbers as an Arrow column; pyarrow keeps the memory, so it gets its own."""
    import pyarrow as pa

    return pa.array(np.ascontiguousarray(values), mask=null)


def _unmistakable(categories: Sequence[str]) -> list[str]:
    """Return the names of categories, each with its code where two read the same, as the labels 1 and "1" do.

    In a table the first of them keeps its name. Rows may be read again by the domain, which would take that name for
    the other one.
    """
    seen = list(categories)
    return [name if seen.count(name) == 1 else f"{name} (code {code})" for code, name in enumerate(seen)]


def _plain(table: pa.Table) -> pa.Table:
    """Return a table with names instead of dictionaries, as CSV writes them."""
    import pyarrow as pa

    fields = [
        pa.field(one.name, one.type.value_type if pa.types.is_dictionary(one.type) else one.type)
        for one in table.schema
    ]
    return table.cast(pa.schema(fields))


def _attributes(order: int) -> str:
    """Return a number of attributes in words."""
    return "1 attribute" if order == 1 else f"{order} attributes"


def _percent(share: float) -> str:
    """Return a share as per cent, with two digits that count."""
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"
