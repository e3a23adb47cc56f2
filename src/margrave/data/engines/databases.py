"""Tables in databases: Ibis tables, and PostgreSQL by a URL.

PostgreSQL is read in one transaction that sees one state of the database (REPEATABLE READ) and is rolled back at the
end, so that nothing is left there. It chooses the rows of persons and counts them in one query for all tables.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import narwhals as nw
import numpy as np
import pyarrow as pa

from margrave.data.engines.engine import (
    BATCH_ROWS,
    COUNT,
    Costs,
    DuckEngine,
    Engine,
    coded_columns,
    grouping_sets,
    split_sets,
    values_sql,
)
from margrave.data.persons import FOLDED, ROW, Choice, Dialect, chosen_sql
from margrave.data.read_only import connect_reading, postgres_table, quoted
from margrave.data.redaction import split_url
from margrave.errors import DataError, suggestion

# Of a value that the compiled part of psycopg fetches (`Costs.fetched`), with some room for a network.
_COMPILED_FETCH = 3e-7
# Back ends of Ibis that run inside this process: fetching their rows costs only time.
_IN_PROCESS = ("polars", "datafusion", "sqlite", "chdb")
# The tables that a user may see, as they are named here; names are not rows.
_MOST_TABLES = 50
_TABLES = """
    SELECT CASE table_schema WHEN 'public' THEN table_name ELSE table_schema || '.' || table_name END::text
    FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1
"""
# Which of some columns are text (25) or varchar (1043), of a collation that treats no two texts as equal. No row is
# read: the columns of an outer join with nothing have their types all the same.
_BYTEWISE = """
    SELECT {tests} FROM (SELECT 1) AS one
    LEFT JOIN LATERAL (SELECT * FROM ({query}) AS asked LIMIT 0) AS q({names}) ON true
"""
_IS_BYTEWISE = """
    pg_typeof({name})::oid IN (25, 1043)
    AND (SELECT collisdeterministic FROM pg_collation WHERE oid = pg_collation_for({name})::regcollation)
"""
# The type of the only column of a query (of a domain the type below; 3500, anyenum, for enumerations) and its name;
# and, where it has texts, whether its collation treats no two of them as equal. No row is read, as above.
_ONE_COLUMN = "(SELECT 1) AS one LEFT JOIN LATERAL (SELECT * FROM ({query}) AS asked LIMIT 0) AS q(id) ON true"
_ID_TYPE = f"""
    SELECT CASE typtype WHEN 'e' THEN 3500 WHEN 'd' THEN typbasetype ELSE oid END::bigint, typname
    FROM pg_type WHERE oid = (SELECT pg_typeof(q.id) FROM {_ONE_COLUMN})
"""
_ID_COLLATION = f"""
    SELECT collisdeterministic FROM pg_collation
    WHERE oid = (SELECT pg_collation_for(q.id)::regcollation FROM {_ONE_COLUMN})
"""
# text, varchar; bool, bytea, int8, int2, int4, float4, float8, date, time, timestamp, timestamptz, numeric, uuid, enum.
_POSTGRES_TEXTS = frozenset({25, 1043})
_POSTGRES_IDS = _POSTGRES_TEXTS | {16, 17, 20, 21, 23, 700, 701, 1082, 1083, 1114, 1184, 1700, 2950, 3500}
_FOLDING = ("bpchar", "char", "citext")
# The name of the rows of codes in a query.
_CODED = "margrave_coded"
# Groups as bytes: a block of this many of them is one value, which has to be shorter than a gigabyte.
_BLOCK, _NULL = 2**16, -9
_PACKED = """
    SELECT string_agg(bytes, ''::bytea) FROM (
        SELECT {bytes} AS bytes, (row_number() OVER () - 1) / {block} AS block FROM ({groups}) AS margrave_groups
    ) AS margrave_packed GROUP BY block
"""
# Memory for the hash tables of a query, until the end of the transaction: with the 4 MB that servers have by default
# they go to disk, which takes twice the time. A server that allows more keeps what it has.
_MEMORY = "SELECT set_config('work_mem', '64MB', true) WHERE pg_size_bytes(current_setting('work_mem')) < 67108864"
# Which version of PostgreSQL was the first with sha256, and how the rule is written there.
_FIRST_WITH_SHA = 110_000
_POSTGRES = Dialect(digest="sha256(convert_to({}, 'UTF8'))", exact='{} COLLATE "C"')


def open_ibis(table: Any, stack: ExitStack) -> Engine:  # noqa: ANN401 - Ibis is an extra
    """Open an Ibis table, on any back end."""
    uuids = {name: table[name].cast("string") for name, kind in table.schema().items() if kind.is_uuid()}
    plain, backend = table.mutate(**uuids) if uuids else table, table.get_backend()
    if backend.name == "duckdb":
        return IbisDuckEngine(_relation(plain, backend), stack)
    return PostgresEngine(plain, stack) if backend.name == "postgres" else IbisEngine(plain, stack)


def _relation(table: Any, backend: Any) -> Any:  # noqa: ANN401 - Ibis is an extra
    """Return an Ibis table on DuckDB as a relation of DuckDB: Ibis 12 calls a method that DuckDB 2 no longer has."""
    _hand_over(table)
    return backend.con.sql(backend.compile(table))


def _hand_over(table: Any) -> None:  # noqa: ANN401 - Ibis is an extra
    """Ask for no rows where Ibis holds tables in memory, so that it hands them over to the back end."""
    from ibis.expr.operations import InMemoryTable

    if table.op().find(InMemoryTable):
        table.limit(0).to_pyarrow()


class IbisDuckEngine(DuckEngine):
    """An Ibis table on DuckDB."""

    # The connection belongs to the caller, who may use it meanwhile.
    threaded = False


class IbisEngine(Engine):
    """An Ibis table, on a back end whose text comparison is not known."""

    # A connection may belong to the thread that made it, as that of SQLite does.
    threaded = False
    # Not every back end has SHA-256, or compares all texts byte for byte.
    chooses = False
    chooses_here = False
    costs = Costs(fetched=1e-6, coded=3e-7, grouped=3e-7, sent=1e-5, query=0.5)

    def __init__(self, table: Any, stack: ExitStack) -> None:  # noqa: ANN401 - Ibis is an extra
        self._table, self._backend = table, table.get_backend()
        self.remote = self._backend.name not in _IN_PROCESS
        super().__init__(table.columns, stack)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of some columns, once."""
        yield from self._batches(self._table.select(*columns))

    def lazy(self) -> nw.LazyFrame[Any]:
        """Return the table as a lazy frame."""
        frame: nw.LazyFrame[Any] = nw.from_native(self._table).lazy()
        return frame

    def bytewise(self, columns: Sequence[str]) -> frozenset[str]:
        """Return those of some columns of texts that are known to be compared byte for byte: none."""
        return frozenset()

    def collect(self, frame: nw.LazyFrame[Any]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a frame that was made from `lazy`."""
        yield from self._batches(nw.to_native(frame))

    def _batches(self, table: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - Ibis is an extra
        """Yield the rows of an Ibis table."""
        yield from table.to_pyarrow_batches(chunk_size=BATCH_ROWS)

    def id_fault(self, column: str) -> str:
        """Return what keeps a column from telling persons apart, by its type."""
        kind = self._table.schema()[column]
        known = (kind.is_boolean(), kind.is_integer(), kind.is_floating(), kind.is_decimal(), kind.is_string())
        more = (kind.is_binary(), kind.is_date(), kind.is_timestamp())
        return "" if any((*known, *more)) else f"ids of type {kind}"


class PostgresEngine(IbisEngine):
    """An Ibis table on PostgreSQL.

    How fast rows are fetched depends on psycopg: its compiled part (``psycopg[binary]`` or ``psycopg[c]``) takes a
    fraction of the time of its Python.
    """

    costs = Costs(fetched=2e-6, coded=1.5e-7, grouped=1.7e-7, sent=1.5e-6, query=0.06, sets=32)
    joins = True

    def __init__(self, table: Any, stack: ExitStack) -> None:  # noqa: ANN401 - Ibis is an extra
        from psycopg import pq

        connection = table.get_backend().con
        stack.enter_context(_one_state(connection))
        if pq.__impl__ != "python":
            self.costs = replace(self.costs, fetched=_COMPILED_FETCH)
        self.chooses = connection.info.server_version >= _FIRST_WITH_SHA
        self._codes: str | None = None
        super().__init__(table, stack)

    def bytewise(self, columns: Sequence[str]) -> frozenset[str]:
        """Return those of some columns whose type and collation compare texts byte for byte, by the catalogue."""
        chosen = self._table.select(*columns)
        _hand_over(chosen)
        places = [f"c{place}" for place in range(len(columns))]
        tests = ", ".join(_IS_BYTEWISE.format(name=f"q.{place}") for place in places)
        query = _BYTEWISE.format(tests=tests, query=self._backend.compile(chosen), names=", ".join(places))
        answers = self._backend.con.execute(query).fetchone()
        return frozenset(name for name, answer in zip(columns, answers, strict=True) if answer is True)

    def _batches(self, table: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - Ibis is an extra
        """Yield the rows of an Ibis table."""
        _hand_over(table)
        yield from self._read(self._with_codes(self._backend.compile(table)), table.schema().to_pyarrow())

    def _read(self, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query."""
        rows = _cursor_rows(self._backend.con, query, schema)
        self._stack.callback(rows.close)  # a cursor that is left half-way has to go before its transaction
        yield from rows

    def id_fault(self, column: str) -> str:
        """Return what keeps a column from telling persons apart, by the catalogue."""
        chosen = self._table.select(column)
        _hand_over(chosen)
        query = self._backend.compile(chosen)
        kind, name = self._backend.con.execute(_ID_TYPE.format(query=query)).fetchone()
        if kind not in _POSTGRES_IDS:
            return FOLDED if name in _FOLDING else f"ids of type {name}"
        if kind not in _POSTGRES_TEXTS:
            return ""
        return "" if self._backend.con.execute(_ID_COLLATION.format(query=query)).fetchone() == (True,) else FOLDED

    def coded(self, codes: Mapping[str, str], kept: Mapping[str, str]) -> nw.LazyFrame[Any]:
        """Return rows of codes: a name, which stands for the query for them wherever it is asked for.

        Ibis need not read and write that query, which would take longer than to count a small table.
        """
        import ibis

        _hand_over(self._table)
        columns = [f"{sql} AS {name}" for name, sql in codes.items()]
        columns += [f"{quoted(column)} AS {name}" for name, column in kept.items()]
        self._codes = f"SELECT {', '.join(columns)} FROM ({self._backend.compile(self._table)}) AS margrave_table"
        schema = {**dict.fromkeys(codes, "int64"), **{name: self._table.schema()[one] for name, one in kept.items()}}
        named = self._backend.sql(f"SELECT * FROM {_CODED}", schema=ibis.schema(schema))
        frame: nw.LazyFrame[Any] = nw.from_native(named).lazy()
        return frame

    def _with_codes(self, query: str) -> str:
        """Return a query with the rows of codes that it may ask for."""
        return query if self._codes is None else f"WITH {_CODED} AS ({self._codes}) SELECT * FROM ({query}) AS asked"

    def text_table(self, codes: Mapping[str, int], names: tuple[str, str]) -> nw.LazyFrame[Any]:
        """Return a table of labels and their codes; of values, because a READ ONLY transaction creates no table."""
        import ibis

        schema = ibis.schema({names[0]: "string", names[1]: "int64"})
        frame: nw.LazyFrame[Any] = nw.from_native(self._backend.sql(values_sql(codes, names), schema=schema)).lazy()
        return frame

    def groups(
        self, frame: nw.LazyFrame[Any], sets: Sequence[Sequence[str]], choice: Choice | None = None
    ) -> Iterator[pa.Table]:
        """Yield the groups of each set, several sets a query; where rows are chosen, all sets in one query."""
        rows = nw.to_native(frame)
        _hand_over(self._table)
        source, parameters = f"({self._with_codes(self._backend.compile(rows))}) AS margrave_rows", None
        most = self.costs.sets
        if choice is not None:
            # As a parameter: a query that fails is logged by many servers, and the salt is not in it. A setting of the
            # transaction would not do, because the query of a job can change it from row to row.
            source, parameters, most = source.replace("%", "%%"), [choice.salt.hex()], len(sets)
            columns = coded_columns(frame)
            kept = chosen_sql(source, columns, [ROW], choice.most, "%s::text", _POSTGRES)
            source = f"({kept}) AS margrave_kept"
        self._backend.con.execute(_MEMORY)
        for begin in range(0, len(sets), max(most, 1)):
            some = sets[begin : begin + most]
            names = list(dict.fromkeys(name for group in some for name in group))
            yield from split_sets(self._groups(grouping_sets(source, names, some), names, parameters), names, some)

    def _groups(self, query: str, names: Sequence[str], parameters: Sequence[str] | None) -> pa.Table:
        """Return codes and counts of a query; as bytes of many groups at once, since to send values takes longer."""
        from psycopg import Cursor

        codes = [f"int4send(coalesce({name}::int4, {_NULL}))" for name in names]
        packed = _PACKED.format(bytes=" || ".join([*codes, f"int8send({COUNT})"]), groups=query, block=_BLOCK)
        kind = np.dtype([*((name, ">i4") for name in names), (COUNT, ">i8")])
        # Not by a cursor on the server, whose queries are planned for their first rows and run on one processor. Not by
        # the connection's own kind of cursor either, which may write parameters into the query.
        with Cursor(self._backend.con) as cursor:
            cursor.execute(packed, parameters, binary=True)
            parts = [np.frombuffer(block, dtype=kind) for (block,) in cursor]
        found = np.concatenate(parts) if parts else np.empty(0, dtype=kind)
        columns = {name: pa.array(found[name].astype(np.int64), mask=found[name] == _NULL) for name in names}
        return pa.table({**columns, COUNT: found[COUNT].astype(np.int64)})


def _cursor_rows(
    connection: Any,  # noqa: ANN401 - psycopg is an extra
    query: str,
    schema: pa.Schema,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of a query, a batch at a time, by a cursor on the server."""
    with connection.cursor(name=f"margrave_{uuid4().hex}") as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield pa.RecordBatch.from_struct_array(pa.array(rows, type=pa.struct(list(schema))))


@contextmanager
def _one_state(connection: Any) -> Iterator[None]:  # noqa: ANN401 - psycopg is an extra
    """Read one state of a PostgreSQL database, and leave nothing in it."""
    from psycopg import IsolationLevel
    from psycopg.pq import TransactionStatus

    level = connection.isolation_level
    # Inside a transaction of the caller's own it is for the caller to say what is seen.
    if connection.info.transaction_status == TransactionStatus.IDLE:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
    try:
        with connection.transaction(force_rollback=True):
            yield
    finally:
        if not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE:
            connection.isolation_level = level


def open_url(url: str, table: str | None, query: str | None, stack: ExitStack) -> Engine:
    """Open a table, or the result of a query, of a PostgreSQL database, in a READ ONLY transaction.

    Parameters
    ----------
    url
        Where the database is: ``postgresql://user:password@host:port/database``, with all that libpq understands.
    table
        The name of the table, with its schema before a dot where there is one.
    query
        One SELECT in its place.
    stack
        Where what has to be closed is put.
    """
    try:
        import ibis
        import psycopg  # noqa: F401 - the connection needs it
    except ImportError:
        raise DataError("a postgresql:// URL needs more packages", remedy="pip install 'margrave[postgres]'") from None
    address, named = split_url(url)
    connection = stack.enter_context(connect_reading(address))
    stack.enter_context(_one_state(connection))
    if query is not None:
        return open_ibis(postgres_table(connection, query), stack)
    backend = ibis.postgres.from_connection(connection)
    path, _, name = (table or named or "").rpartition(".")
    catalog, _, schema = path.rpartition(".")
    if catalog not in ("", connection.info.dbname):
        raise DataError(
            f"table {table or named!r} is in another database than the one that is connected",
            remedy="name the table as schema.table, and its database in the URL",
        )
    try:
        found = backend.table(name, database=schema or None)
    except ibis.common.exceptions.TableNotFound:
        pass  # the names of its tables are asked for outside the handler: what it says has no place in ours
    else:
        return open_ibis(found, stack)
    names = [one for (one,) in connection.execute(_TABLES).fetchall()]
    asked = f"{schema}.{name}" if schema else name
    listed = ", ".join([*names[:_MOST_TABLES], *(["…"] if len(names) > _MOST_TABLES else [])]) or "none"
    raise DataError(
        f"the PostgreSQL database has no table {asked!r}{suggestion(asked, names)} (this user may see {listed})",
        remedy="name one of them, with its schema before a dot, as in survey.people",
    )
