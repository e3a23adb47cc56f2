"""PRIVATE: which rows of a person are kept, by one rule for every engine.

After dropping, a row is the codes of its attributes. Let s be a salt, the same for a whole run. The rows of a person p
with equal codes r are numbered n = 1, 2, …, and every row gets the key

    (h(s, p, r, n), r).                                                          (1)

Of each person the ``most`` rows with the smallest keys are kept. Rows of one person with equal keys have equal codes:
which of them is kept makes no difference to any count, so (1) is a total order of what is counted. Therefore, for every
s and *every* function h, what is kept of a person depends on the rows of that person alone, and one person more or less
changes the counts of each table by at most ``most`` in L1. Nothing is assumed about h; two keys may collide. That h is
SHA-256, and s 32 bytes of the operating system, only makes the choice even and takes it out of the hands of whoever
writes the table. See docs/guarantee.md.

h is applied to the text ``s:length(p):p:r:n`` with the codes of r between commas. s has 64 hexadecimal digits, the
length tells where p ends, and the rest are whole numbers: no two (p, r, n) have the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from margrave.data.embedded_duckdb import quoted
from margrave.privacy.entropy import SystemEntropy

if TYPE_CHECKING:
    import duckdb

# The columns of rows to choose from: whose row it is, and the codes of the row as a text.
PERSON, ROW = "margrave_person", "margrave_row"
RANK = "margrave_rank"
_ROWS, _BATCH, _KEPT, _SALT_WORDS = "margrave_rows", "margrave_batch", "margrave_kept", 4


@dataclass(frozen=True)
class Choice:
    """How many rows of each person are kept, and the salt that decides which.

    Parameters
    ----------
    privacy_id
        The column that tells whose row it is.
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
        The rows, as SQL has them after FROM; a column ``PERSON`` tells whose each is.
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
