"""Databases are read, and nothing else: the DuckDB inside margrave, and queries of DuckDB and PostgreSQL.

**The DuckDB inside margrave** reads files, and chooses which rows of a person are kept. It sees no variable of the
program, loads nothing from the network, opens no file but those that it is given, and what does not fit in its memory
goes into a folder that only this user can read and that is removed with the connection. No statement can change any of
this.

**A query** is text from a job file. It must not change the database, write a file or read one that was not given. Two
checks ensure it, and neither relies on reading the text here:

- *One SELECT.* The engine's own parser must find exactly one statement, and it must be one that can stand in a FROM
  clause: a SELECT, with or without WITH. This refuses COMMIT, COPY, SET, ATTACH and all that follows a semicolon.
- *No effects.* What runs, functions included, runs where it can change nothing: on PostgreSQL in a READ ONLY
  transaction that is rolled back, on DuckDB in a file opened for reading, without access to other files and with its
  configuration locked.

What the second check does not stop is in docs/guarantee.md: functions of a PostgreSQL server that act outside of its
database, for roles that may call them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from margrave.algebra.kernels import thread_count
from margrave.errors import DataError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_ALLOWED = "a query is one SELECT, with or without WITH; it can read and do nothing else"
# A line break before the parenthesis: the query may end in a comment.
_SUBQUERY = "(\n{}\n)"
_WRAPPED = f"SELECT * FROM {_SUBQUERY} AS margrave_query"
# The types of columns in words, as the catalogue has them; all of an enumeration are "enum" to Ibis.
_TYPE_NAMES = """
    SELECT CASE WHEN typtype = 'e' THEN 'enum' ELSE format_type(kind, modifier) END
    FROM unnest(%s::oid[], %s::int[]) WITH ORDINALITY AS asked(kind, modifier, place)
    JOIN pg_catalog.pg_type ON pg_type.oid = kind ORDER BY place
"""


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def stream(relation: Any, rows: int) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - its class moves between versions
    """Yield the rows of a DuckDB relation in batches of about this size."""
    # What DuckDB 1 calls otherwise.
    reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    yield from reader(rows)


@contextmanager
def connect(path: str = ":memory:", *, files: Sequence[str] = ()) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database, which is closed at the end; a file is opened for reading only.

    Parameters
    ----------
    path
        The file of the database.
    files
        The other files that it may open. It opens them again at every scan, so they have to be named.
    """
    import duckdb

    with TemporaryDirectory(prefix="margrave-") as folder:
        settings: dict[str, Any] = {
            "temp_directory": folder,
            "threads": thread_count(),
            "python_enable_replacements": False,
            "autoinstall_known_extensions": False,
            "preserve_insertion_order": False,
        }
        connection = duckdb.connect(path, read_only=path != ":memory:", config=settings)
        try:
            _lock(connection, [*([] if path == ":memory:" else [path]), *files])
            yield connection
        finally:
            connection.close()


def _lock(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    """Let a database open these files and no others, and let no statement change that."""
    names = [os.path.abspath(file) for file in files]  # noqa: PTH100 - links stay as they are named
    # A name with an asterisk or a bracket is asked for in its escaped form, a pattern that matches this file alone.
    paths = ", ".join(text(name) for name in dict.fromkeys([*names, *map(escape, names)]))
    for setting in (f"allowed_paths = [{paths}]", "enable_external_access = false", "lock_configuration = true"):
        connection.execute(f"SET {setting}")


def duckdb_select(query: str) -> duckdb.Statement:
    """Return the only statement of a query to DuckDB; raise `DataError` if there are others or if it is not a SELECT.

    Parameters
    ----------
    query
        The text.
    """
    import duckdb

    statements = duckdb.extract_statements(query)
    if len(statements) != 1:
        raise DataError(f"the query has {len(statements):,} statements", remedy=f"{_ALLOWED}")
    kind = statements[0].type
    if kind == duckdb.StatementType.MULTI:
        raise DataError(
            "the query has a PIVOT without a list of values, which DuckDB runs as several statements",
            remedy="list them, as in PIVOT … ON column IN (…)",
        )
    if kind != duckdb.StatementType.SELECT:
        raise DataError(f"the query is a {kind.name} statement", remedy=f"{_ALLOWED}")
    return statements[0]


# SQLSTATE, what the driver or the server say, what it means, what to do.
_CONNECTION_FAULTS = (
    (
        "",
        r"no password supplied",
        "it asks for a password, and none was given",
        "set PGPASSWORD, or put the password into the file ~/.pgpass or into a service file (docs/data.md)",
    ),
    (
        "28P01",
        r"password authentication failed",
        "user or password is wrong (28P01)",
        "check the user in the URL, and PGPASSWORD, ~/.pgpass or the service file that the password comes from",
    ),
    (
        "3D000",
        r"database .* does not exist",
        "the server has no such database (3D000)",
        "check the name after the host in the URL, as in postgresql://user@host/database; psql -l lists them",
    ),
    (
        "28000",
        r"role .* does not exist|no pg_hba.conf entry",
        "the server rejects this user (28000)",
        "check the user in the URL, and ask the server's administrator for an entry in pg_hba.conf",
    ),
    (
        "",
        r"could not translate host name|failed to resolve host|name or service not known|nodename nor servname"
        r"|getaddrinfo|temporary failure in name resolution",
        "the host is unknown",
        "check the host in the URL, and that this machine can look names up",
    ),
    (
        "",
        r"connection refused|no such file or directory",
        "no server listens there",
        "check host and port in the URL, and that the server runs",
    ),
    (
        "",
        r"timeout|timed out",
        "the server did not answer in time",
        "check host and port in the URL, and that no firewall blocks it",
    ),
    (
        "",
        r"definition of service .* not found",
        "the service file has no such service",
        "check the name after service=, and PGSERVICEFILE",
    ),
)


def connect_reading(address: str) -> Any:  # noqa: ANN401 - psycopg is an extra
    """Return a connection to PostgreSQL whose transactions are READ ONLY, and that takes one statement at a time.

    The simple protocol takes many, which even a query that is one SELECT could use: when it runs, it may change a
    setting by which the server reads texts, such as standard_conforming_strings, and the same text may then end where
    it did not end before. Results in binary form come by the extended protocol, which takes one.

    Parameters
    ----------
    address
        The URL of the database.
    """
    import psycopg

    class OneStatement(psycopg.Cursor[Any]):
        """A cursor that runs one statement."""

        def execute(self, query: Any, params: Any = None, **options: Any) -> Self:  # noqa: ANN401 - as psycopg has them
            """Run one statement."""
            return super().execute(query, params, **{**options, "binary": True})

    try:
        connection = psycopg.connect(address, cursor_factory=OneStatement)
    except psycopg.OperationalError as error:
        fault = _connection_fault(error)
        if fault is None:
            raise
        problem, remedy = fault
    else:
        connection.read_only = True
        return connection
    raise DataError(f"the PostgreSQL database could not be reached: {problem}", remedy=remedy)


def _connection_fault(error: Any) -> tuple[str, str] | None:  # noqa: ANN401 - psycopg is an extra
    """Return why a connection was refused, and what to do, in words of ours; None if it is not known.

    The driver has no code for most of what goes wrong before a session begins, so its words are looked at too, and
    never shown: they may quote the address.
    """
    said = str(error)
    for code, pattern, problem, remedy in _CONNECTION_FAULTS:
        if code and getattr(error, "sqlstate", None) == code:
            return problem, remedy
        if re.search(pattern, said, re.IGNORECASE):
            return problem, remedy
    return None


def postgres_table(connection: Any, query: str) -> Any:  # noqa: ANN401 - psycopg and Ibis are extras
    """Return the result of a query to PostgreSQL as an Ibis table; raise `DataError` unless the query is one SELECT.

    The server prepares the query by itself, which takes no more than one statement, and then as a subquery, which takes
    nothing but a SELECT that changes nothing. Parentheses are balanced within a statement, so that what is a statement
    by itself cannot end the subquery around it. Preparing runs nothing. What runs later holds the very text.

    Parameters
    ----------
    connection
        A connection of psycopg, made by `connect_reading`, in a transaction.
    query
        The text.
    """
    import ibis

    text = query.strip().rstrip("; \t\r\n")
    _prepare(connection, text)
    try:
        names, kinds, modifiers = _prepare(connection, _WRAPPED.format(text))
    except Exception as error:
        if _is_lost(connection):
            raise
        kind = type(error).__name__
        raise DataError(f"the query is not a SELECT, or it changes something ({kind})", remedy=f"{_ALLOWED}") from None
    backend = _verbatim_backend(marker := f"margrave_{uuid4().hex}", _SUBQUERY.format(text)).from_connection(connection)
    types = connection.execute(_TYPE_NAMES, [kinds, modifiers]).fetchall()
    mapper = backend.compiler.type_mapper
    schema = {name: mapper.from_string(kind) for name, (kind,) in zip(names, types, strict=True)}
    if len(schema) != len(names):
        raise DataError("the query's result has two columns of one name", remedy="give each its own name")
    return backend.sql(f"SELECT * FROM {marker} AS margrave_query", schema=ibis.schema(schema))


def _prepare(connection: Any, query: str) -> tuple[list[str], list[int], list[int]]:  # noqa: ANN401 - psycopg is an extra
    """Have the server parse one statement without running it; return names, types and type modifiers of its columns."""
    from psycopg.errors import error_from_result
    from psycopg.pq import ExecStatus

    server, encoding = connection.pgconn, connection.info.encoding
    for result in (server.prepare(b"", query.encode(encoding)), described := server.describe_prepared(b"")):
        if result.status != ExecStatus.COMMAND_OK:
            raise error_from_result(result, encoding=encoding)
    columns = range(described.nfields)
    names = [(described.fname(place) or b"").decode(encoding) for place in columns]
    return names, [described.ftype(place) for place in columns], [described.fmod(place) for place in columns]


def _is_lost(connection: Any) -> bool:  # noqa: ANN401 - psycopg is an extra
    """Tell whether the connection to the server is gone."""
    from psycopg.pq import ConnStatus

    return bool(connection.pgconn.status != ConnStatus.OK)


def _verbatim_backend(marker: str, subquery: str) -> Any:  # noqa: ANN401 - Ibis is an extra
    """Return the class of a back end that puts a subquery, as it is written, in place of a table of a name of ours.

    Ibis would parse the query by its own grammar and rewrite it; then another text would run than the one that
    the server has checked and that the ledger keeps.
    """
    from ibis.backends.postgres import Backend

    class VerbatimBackend(Backend):  # type: ignore[misc]
        """PostgreSQL with one more table: the result of the query."""

        def compile(self, *arguments: Any, **options: Any) -> str:  # noqa: ANN401 - as Ibis declares them
            """Return an expression as SQL."""
            compiled: str = super().compile(*arguments, **options)
            return compiled.replace(marker, subquery)

    return VerbatimBackend
