"""Whose row it is: which types the ids of persons may have, and one form for all ids that are equal.

The bound on the rows of a person holds only if everything that looks at ids agrees on which of them are equal. Of two
ids taken for one, each displaces rows of the other; an id taken for two keeps twice as many rows. So ids are brought
into one form first, in which equal ids are the same whole number, text or bytes, and nothing but that form is looked at
afterwards. Types for which this is not known to be possible on every way from the table to here are refused.

- *Whole numbers, truth values, dates, times of day, timestamps*: by their value.
- *Decimals*: by their value; 1.0 and 1.00 are one id, because a column has one scale.
- *Floating-point numbers*: by their value; −0.0 is 0.0, and NaN is missing.
- *Texts* and *bytes*: byte for byte. ``"a"``, ``"A"`` and ``"a "`` are three ids. Where an engine says that it takes
  texts for equal although they differ, they are refused.
- *UUIDs*: by their 16 bytes, or by their text where the engine writes them as texts.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from margrave.errors import DataError

FOLDED = "texts that the engine takes for equal although they differ"
_ALLOWED = (
    "whole numbers, texts that are compared byte for byte, bytes, truth values, dates, times of day without a zone, "
    "timestamps, UUIDs, decimals and floating-point numbers"
)
_A_DAY = 86_400_000  # milliseconds


def refused_ids(name: str, found: str) -> DataError:
    """Return the error that says that a column cannot hold the ids of persons.

    Parameters
    ----------
    name
        The column.
    found
        What it has, such as "ids of type duration[ns]".
    """
    return DataError(
        f"column {name!r} has {found}, so that one person could pass for two, or two for one",
        remedy=f"ids may be {_ALLOWED}; convert the column, for example to texts, by a query or before it is given",
    )


def missing_id(name: str) -> DataError:
    """Return the error that says that a row has no id."""
    return DataError(
        f"column {name!r} has rows without an id, and rows without an id cannot be limited per person",
        remedy="give every row one, or leave such rows out by a query",
    )


def plain_ids(ids: pa.Array, name: str) -> pa.Array:
    """Return ids without dictionaries, runs and views, or raise `DataError` if their type cannot tell persons apart.

    Parameters
    ----------
    ids
        A column of ids.
    name
        The name of the column.
    """
    kind = ids.type
    if pa.types.is_dictionary(kind):
        return plain_ids(ids.dictionary_decode(), name)
    if pa.types.is_run_end_encoded(kind):  # the nulls in it are not counted as such before it is decoded
        return plain_ids(pc.run_end_decode(ids), name)
    if isinstance(kind, pa.UuidType):
        return ids.storage.cast(pa.large_binary())
    if isinstance(kind, pa.BaseExtensionType) or not _is_allowed(kind):
        raise refused_ids(name, f"ids of type {kind}")
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return ids.cast(pa.large_string())
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return ids.cast(pa.large_binary())
    return ids


def canonical_ids(ids: pa.Array, *, untyped: bool = False) -> pa.Array:
    """Return ids of `plain_ids` as whole numbers, texts or bytes that are the same exactly if the ids are equal.

    Parameters
    ----------
    ids
        Ids of one type; those of other batches must have the same.
    untyped
        Whether they are from a file of texts, where an empty text is a missing id.

    Returns
    -------
    array
        ``int64``, ``uint64``, ``large_string`` or ``large_binary``; null where an id is missing.
    """
    kind = ids.type
    if pa.types.is_large_string(kind):
        return pc.if_else(pc.equal(ids, ""), pa.scalar(None, kind), ids) if untyped else ids
    if pa.types.is_large_binary(kind) or pa.types.is_uint64(kind):
        return ids
    if pa.types.is_decimal(kind):
        return ids.view(pa.binary(kind.bit_width // 8)).cast(pa.large_binary())
    if pa.types.is_floating(kind):
        return _bits(ids.cast(pa.float64()))
    if pa.types.is_temporal(kind):
        counted = ids.view(pa.int64() if kind.bit_width == 64 else pa.int32()).cast(pa.int64())
        return _days(counted) if pa.types.is_date64(kind) else counted
    return ids.cast(pa.int64())


def _is_allowed(kind: pa.DataType) -> bool:
    """Return whether two ids of this type are equal in one sense only, and come here as they are."""
    return any(
        test(kind)
        for test in (
            pa.types.is_null,
            pa.types.is_boolean,
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_decimal,
            pa.types.is_date,
            pa.types.is_time,
            pa.types.is_timestamp,
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    )


def _bits(ids: pa.Array) -> pa.Array:
    """Return doubles as whole numbers of the same 64 bits; −0.0 as 0.0, NaN as null."""
    values = ids.fill_null(np.nan).to_numpy(zero_copy_only=False)
    return pa.array((values + 0.0).view(np.int64), mask=np.isnan(values))


def _days(milliseconds: pa.Array) -> pa.Array:
    """Return the days of dates that are stored in milliseconds, which need not be whole days."""
    values = milliseconds.fill_null(0).to_numpy(zero_copy_only=False) // _A_DAY
    return pa.array(values, mask=milliseconds.is_null().to_numpy(zero_copy_only=False))
