"""Rows of a table as codes, a batch at a time, with what each counts for and whose it is."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from margrave.algebra.kernels import Integers
from margrave.data.counting.tally import Codes, code_type
from margrave.data.encoding import DROPPED, Encoder
from margrave.data.persons import canonical_ids, missing_id, plain_ids
from margrave.domain import Domain
from margrave.errors import DataError

# Larger than the number of rows of any table, and small enough that sums of counts fit in 64 bits.
_LARGEST_COUNT = 2**36


@dataclass(frozen=True)
class Rows:
    """Rows that are kept.

    Attributes
    ----------
    codes
        Shape (attributes of the domain, rows).
    weights
        Shape (rows,); what each row counts for, or None for one.
    persons
        Whose row each is, as `canonical_ids` writes it; None without a privacy id.
    """

    codes: Codes
    weights: Integers | None = None
    persons: pa.Array | None = None


class RowCoder:
    """Turns batches of a table into rows of codes.

    Parameters
    ----------
    domain
        The declared domain.
    needed
        Which of its attributes are in a table to count. Those that may drop a row are read as well: a row that is
        dropped is dropped for every table.
    untyped
        Whether all values are texts.
    decimal
        The mark before the fraction of a number that is read from a text.
    counts
        The column that tells what each row counts for, if there is one.
    privacy_id
        The column that tells whose row it is, if there is one.
    """

    def __init__(
        self,
        domain: Domain,
        needed: Collection[int],
        *,
        untyped: bool,
        decimal: str = ".",
        counts: str | None = None,
        privacy_id: str | None = None,
    ) -> None:
        self._domain, self._counts, self._privacy_id, self._untyped = domain, counts, privacy_id, untyped
        self._encoders = {
            k: Encoder(domain[domain.attributes[k]], untyped=untyped, decimal=decimal) for k in read(domain, needed)
        }
        self._type = code_type(domain.shape)
        self._id_type: pa.DataType | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read, each once."""
        beside = [name for name in (self._counts, self._privacy_id) if name is not None]
        return tuple(dict.fromkeys([*(self._domain.attributes[k] for k in self._encoders), *beside]))

    def code(self, batch: pa.RecordBatch, threads: Executor) -> Rows:
        """Return the rows of a batch that are kept; columns are encoded on several threads."""
        weights, persons = self._weights(batch), self._persons(batch)
        codes = np.zeros((len(self._domain), batch.num_rows), dtype=self._type)
        dropped = np.zeros(batch.num_rows, dtype=np.bool_)

        def encode(k: int) -> NDArray[np.bool_] | None:
            found = self._encoders[k].encode(batch.column(self._domain.attributes[k]))
            codes[k] = found  # −1 becomes some other number, and its row goes
            return found == DROPPED if self._domain[self._domain.attributes[k]].outside == "drop" else None

        for gone in threads.map(encode, self._encoders):
            if gone is not None:
                dropped |= gone
        if not dropped.any():
            return Rows(codes, weights, persons)
        kept = ~dropped
        return Rows(
            np.ascontiguousarray(codes[:, kept]),
            None if weights is None else weights[kept],
            None if persons is None else persons.filter(pa.array(kept)),
        )

    def _weights(self, batch: pa.RecordBatch) -> Integers | None:
        """Return what each row counts for."""
        return None if self._counts is None else whole_counts(batch.column(self._counts), self._counts, self._untyped)

    def _persons(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return whose row each is, in the form of `canonical_ids`; every row must have an id."""
        if self._privacy_id is None:
            return None
        persons = plain_ids(batch.column(self._privacy_id), self._privacy_id)
        if len(persons):
            self._check_type(persons.type)
        persons = canonical_ids(persons, untyped=self._untyped)
        if persons.null_count:
            raise missing_id(self._privacy_id)
        return persons

    def _check_type(self, kind: pa.DataType) -> None:
        """Refuse ids of several types: converted from one to another, those of one person may become two."""
        if self._id_type is None:
            self._id_type = kind
        if kind != self._id_type:
            raise DataError(
                f"column {self._privacy_id!r} has ids of one type in some files and of another in others, so that one "
                "person could pass for two",
                remedy="write it with one type in all of them",
            )


def read(domain: Domain, needed: Collection[int]) -> list[int]:
    """Return the attributes to read: those needed, and those that may drop a row."""
    return [k for k, attribute in enumerate(domain) if k in needed or attribute.outside == "drop"]


def whole_counts(column: pa.Array, name: str, untyped: bool) -> Integers:
    """Return a column of counts as whole numbers if all of them are; no value is shown.

    Parameters
    ----------
    column
        The counts, as numbers of any type, or as texts.
    name
        The name of the column.
    untyped
        Whether they may be texts.
    """
    counts = _as_integers(column, untyped)
    if counts is None or column.null_count or (counts.size and not 0 <= int(counts.min()) <= int(counts.max())):
        raise DataError(f"column {name!r} is not made of whole numbers of at least 0", remedy="give one count a row")
    if counts.size and int(counts.max()) > _LARGEST_COUNT:
        raise DataError(
            f"column {name!r} has counts above 2³⁶, more than any table has rows", remedy="check the column"
        )
    return counts


def _as_integers(column: pa.Array, untyped: bool) -> Integers | None:
    """Return the numbers of a column, or None if they are not whole."""
    texts = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if pa.types.is_boolean(column.type) or (texts and not untyped):
        return None
    try:
        numbers: NDArray[Any] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        return None
    return numbers if numbers.dtype == np.int64 else None
