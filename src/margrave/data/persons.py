"""PRIVATE: whose row it is, and which rows of a person are kept, by one rule for every engine.

**Whose row.** The bound on the rows of a person holds only if everything that looks at ids agrees on which of them are
equal. If two ids are treated as one, each displaces rows of the other; if one id is treated as two, it keeps twice the
rows. So ids are brought into one form first, in which equal ids are the same whole number, text or bytes, and nothing
but that form is looked at afterwards. Types for which this is not known to be possible on every way from the table to
here are refused.

- *Whole numbers, booleans, dates, times of day, timestamps*: by their value.
- *Decimals*: by their value; 1.0 and 1.00 are one id, because a column has one scale.
- *Floating-point numbers*: by their value; −0.0 is 0.0, and NaN is missing.
- *Texts* and *bytes*: byte for byte. ``"a"``, ``"A"`` and ``"a "`` are three ids. Where an engine says that it treats
  different texts as equal, they are refused.
- *UUIDs*: by their 16 bytes, or by their text where the engine writes them as texts.

**Which rows.** After dropping, a row is the codes of its attributes. Let s be a salt, the same for a whole run. Rows
of a person p with equal codes r are numbered n = 1, 2, …, and every row gets the key

    (h(s, p, r, n), r).                                                          (1)

Of each person the ``most`` rows with the smallest keys are kept. Rows of one person with equal keys have equal codes:
which of them is kept makes no difference to any count, so (1) is a total order of what is counted. Therefore, for every
s and *every* function h, what is kept of a person depends on the rows of that person alone, and one person more or less
changes the counts of each table by at most ``most`` in L1. Nothing is assumed about h; two keys may collide. That h is
SHA-256, and s 32 bytes of the operating system, only makes the choice uniform, and keeps whoever writes the table from
controlling it. See docs/guarantee.md.

h is applied to the text ``s:length(p):p:r:n`` with the codes of r between commas. s has 64 hexadecimal digits, the
length tells where p ends, and the rest are whole numbers: no two (p, r, n) have the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from margrave.data.read_only import quoted
from margrave.errors import DataError
from margrave.privacy.entropy import SystemEntropy

if TYPE_CHECKING:
    import duckdb

FOLDED = "texts that the engine treats as equal although they differ"
_ALLOWED = (
    "whole numbers, texts that are compared byte for byte, bytes, booleans, dates, times of day without a zone, "
    "timestamps, UUIDs, decimals and floating-point numbers"
)
_A_DAY = 86_400_000  # milliseconds

# The columns of rows to choose from: whose row it is, and the codes of the row as a text.
PERSON, ROW = "margrave_person", "margrave_row"
RANK = "margrave_rank"
_ROWS, _BATCH, _KEPT, _SALT_WORDS = "margrave_rows", "margrave_batch", "margrave_kept", 4


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


@dataclass(frozen=True)
class Choice:
    """How many rows of each person are kept, and the salt that decides which.

    Parameters
    ----------
    privacy_id
        The column that identifies the person of each row.
    most
        How many rows of one person are kept.
    salt
        Drawn for one run; neither stored nor shown.
    """

    privacy_id: str
    most: int
    salt: bytes = field(repr=False)


def draw_salt() -> bytes:
    """Return 32 bytes of the operating system."""
    return SystemEntropy().words(_SALT_WORDS).tobytes()


@dataclass(frozen=True)
class Dialect:
    """How an engine writes the parts of the rule; each is a form with ``{}`` for what it is applied to.

    Parameters
    ----------
    digest
        SHA-256 of a text.
    exact
        A column, such that two values are equal exactly if they are the same.
    person
        An id as a text.
    """

    digest: str = "sha256({})"
    exact: str = "{}"
    person: str = "{}"


def chosen_sql(source: str, columns: Sequence[str], row: Sequence[str], most: int, salt: str, dialect: Dialect) -> str:
    """Return the query for the rows that are kept.

    Parameters
    ----------
    source
        The rows, as SQL has them after FROM; a column ``PERSON`` identifies the person.
    columns
        Which columns are kept; the rank is kept too, so that there is one.
    row
        The columns that are the codes of a row, or that tell them.
    most
        How many rows of one person are kept.
    salt
        The salt as SQL has it: a text of 64 hexadecimal digits, or an expression for it.
    dialect
        How the engine writes the rest.
    """
    person = dialect.exact.format(PERSON)
    codes = [dialect.exact.format(name) for name in row]
    text = dialect.person.format(PERSON)
    written = f"concat_ws(',', {', '.join(row)})" if row else "''"
    key = dialect.digest.format(
        f"concat({salt}, ':', length({text}), ':', {text}, ':', {written}, ':', margrave_ordinal)"
    )
    # Some engines number rows only in some order; among equal rows any will do.
    equal, order = ", ".join([person, *codes]), ", ".join(codes or [person])
    numbered = f"SELECT *, row_number() OVER (PARTITION BY {equal} ORDER BY {order}) AS margrave_ordinal FROM {source}"
    rank = f"row_number() OVER (PARTITION BY {person} ORDER BY {', '.join([key, *codes])})"
    ranked = f"SELECT *, {rank} AS {RANK} FROM ({numbered}) AS margrave_numbered"
    return f"SELECT {', '.join([*columns, RANK])} FROM ({ranked}) AS margrave_ranked WHERE {RANK} <= {most}"


def keep_rows(
    connection: duckdb.DuckDBPyConnection,
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[str],
    row: Sequence[str],
    choice: Choice,
) -> duckdb.DuckDBPyRelation:
    """Return a relation with the rows that are kept, chosen by the DuckDB inside margrave.

    Parameters
    ----------
    connection
        A database of margrave's own, where the rows are held.
    batches
        All rows, with a column ``PERSON`` of canonical ids.
    columns, row
        Which columns are kept, and which are the codes of a row.
    choice
        How many rows of each person are kept, and the salt.
    """
    kind = None
    for batch in batches:
        if not batch.num_rows:
            continue
        connection.register(_BATCH, pa.Table.from_batches([batch]))
        verb = f"CREATE TEMP TABLE {_ROWS} AS" if kind is None else f"INSERT INTO {_ROWS} BY NAME"
        connection.execute(f"{verb} SELECT * FROM {_BATCH}")
        connection.unregister(_BATCH)
        kind = batch.schema.field(PERSON).type
    if kind is None:
        return connection.sql(f"SELECT {', '.join(f'0 AS {quoted(name)}' for name in [*columns, RANK])} WHERE false")
    # Bytes have no text; their hexadecimal digits are as good.
    dialect = Dialect(person="hex({})" if pa.types.is_large_binary(kind) else "CAST({} AS VARCHAR)")
    query = chosen_sql(_ROWS, columns, row, choice.most, f"'{choice.salt.hex()}'", dialect)
    connection.execute(f"CREATE TEMP TABLE {_KEPT} AS {query}")
    connection.execute(f"DROP TABLE {_ROWS}")
    return connection.table(_KEPT)
