"""PRIVATE: how a CSV file seems to be written, from a look at its rows; for a draft, which a person reviews.

Nothing else guesses. What is found here is proposed as options of the command line, and has to be given to whatever
reads the file afterwards.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from margrave.data.engines.files import files_of, open_text
from margrave.data.kinds import SourceKind, is_separated, kind_of

if TYPE_CHECKING:
    from margrave.data.source import Data

# Texts of a column of texts that mean "no answer". Words such as "none" and "unknown" may be answers.
NULLS = ("?", "??", "NA", "N/A", "#N/A", "#NV", "NaN", "NULL", "null", "\\N", "-", "--", ".", "..", "…")
_ROWS = 2_000
_NEARLY_ALL = 0.95
_NUMBER = re.compile(r"-?[0-9]+([.,][0-9]+)?([eE][+-]?[0-9]+)?")
# So many rows for each value must have been seen before a column is said to determine another.
_ROWS_A_PAIR = 10


def detect(data: Data) -> dict[str, Any]:
    """Return options of `Data` that a CSV file seems to need and that were not given: ``trim`` and ``header``.

    Parameters
    ----------
    data
        The table; nothing is found for what is not a CSV file.
    """
    if not is_csv(data):
        return {}
    written = data.text_format
    file = files_of(str(data.source))[0]
    try:
        with open_text(file, written.encoding) as lines:
            rows = [row for row in islice(csv.reader(lines, delimiter=written.delimiter_of(file)), _ROWS) if row]
    except (UnicodeError, csv.Error):
        return {}  # reading the file reports what is wrong with it
    found: dict[str, Any] = {}
    if written.trim is None and _has_blanks(rows[1:] or rows):
        found["trim"] = True
    if written.trim or "trim" in found:
        rows = [[field.strip(" \t") for field in row] for row in rows]
    if written.header is None and written.names is None and _has_no_header(rows, written.null):
        found["header"] = False
    return found


def is_csv(data: Data) -> bool:
    """Tell whether a table is a CSV file, so that how it is written can be said."""
    return kind_of(data.source) is SourceKind.FILE and is_separated(str(data.source), data.delimiter)


def marks_of_missing(columns: Iterable[Collection[str]]) -> tuple[str, ...]:
    """Return which texts seem to say that a value is missing.

    Parameters
    ----------
    columns
        The different texts of each column of texts.
    """
    seen = {mark for texts in columns if len(texts) > 1 for mark in NULLS if mark in texts}
    return tuple(mark for mark in NULLS if mark in seen)


def with_proposals(data: Data, found: Mapping[str, Any]) -> Data:
    """Return the description of a table with the options that were found."""
    return replace(data, **found) if found else data


def _has_blanks(rows: Sequence[list[str]]) -> bool:
    """Tell whether in some column nearly all fields that are not empty have a blank at an edge."""
    for column in zip(*_alike(rows), strict=True):
        filled = [field for field in column if field.strip(" \t")]
        if filled and sum(field != field.strip(" \t") for field in filled) >= _NEARLY_ALL * len(filled):
            return True
    return False


def _has_no_header(rows: Sequence[list[str]], null: Sequence[str]) -> bool:
    """Tell whether the first row looks like the others.

    It does if it has a number in every column of numbers, and in most other columns a text that comes again.
    """
    alike = _alike(rows)
    if len(alike) < 3:
        return False
    numeric = again = texts = 0
    nothing = {*NULLS, *null, ""}
    for first, *others in zip(*alike, strict=True):
        filled = [field for field in others if field not in nothing]
        if not filled or first in nothing:
            continue
        if sum(_NUMBER.fullmatch(field) is not None for field in filled) >= _NEARLY_ALL * len(filled):
            numeric += 1
            if not _NUMBER.fullmatch(first):
                return False
        else:
            texts += 1
            again += first in filled
    return numeric + texts > 0 and 2 * again >= texts and (again > 0 or texts == 0)


def _alike(rows: Sequence[list[str]]) -> list[list[str]]:
    """Return the rows that are as long as the first one."""
    return [row for row in rows if len(row) == len(rows[0])]


def determined(rows: pa.Table, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return pairs of columns of which the first determines the second, as far as some rows tell.

    Parameters
    ----------
    rows
        The rows.
    names
        Columns of few values.
    """
    if not rows.num_rows:
        return ()
    codes = [_codes(rows.column(name)) for name in names]
    sizes = [int(column.max(initial=0)) + 1 for column in codes]
    found = []
    for one, first in enumerate(codes):
        for other, second in enumerate(codes):
            # A constant is determined by anything, and of few rows anything may be.
            told = one != other and 1 < sizes[other] <= sizes[one] and rows.num_rows >= _ROWS_A_PAIR * sizes[one]
            if told and np.count_nonzero(np.bincount(first * sizes[other] + second)) == sizes[one]:
                found.append((names[one], names[other]))
    return tuple(found)


def _codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return a number for each value, from 0 up, in the order in which they come; a missing value has one too."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    codes: NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
