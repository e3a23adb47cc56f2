"""PRIVATE: which table is meant (`Data`, which reads nothing by itself), and its exact counts (`TableSource`)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from margrave.data.kinds import (
    JSON,
    PARQUET,
    SourceKind,
    TextFormat,
    format_of,
    is_foreign,
    is_separated,
    kind_of,
    wrong_ending,
)
from margrave.data.redaction import quietly, shown, split_url, without_credentials
from margrave.domain.domain import Domain
from margrave.errors import DataError, suggestion

if TYPE_CHECKING:
    from margrave.algebra.kernels import Integers
    from margrave.algebra.layout import Layout
    from margrave.data.engines.engine import Engine
    from margrave.data.persons import Choice

Counting = Literal["auto", "fetch", "push-down"]
COUNTINGS: tuple[Counting, ...] = ("auto", "fetch", "push-down")


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """A private table, wherever it is kept; nothing is opened before it is counted.

    Parameters
    ----------
    source
        A path (CSV, TSV, JSON, Parquet, plain or compressed, patterns such as ``survey/*.parquet``, or a ``.duckdb``
        file), a ``postgresql://`` URL, a frame of pandas, Polars or PySpark, Arrow data, a DuckDB relation or an Ibis
        table.
    table
        Which table of a database, its schema before a dot; a URL may also name it in its path.
    query
        In its place, one SELECT in the SQL of the database, which reads and does nothing else. ``privacy_id`` and
        ``contributions`` are about the rows of its result. It is a public declaration, like the domain: do not derive
        it from the data.
    privacy_id
        The column that identifies the person of each row. Of each person at most ``contributions`` rows are kept,
        chosen by a fresh secret, the same for all tables. Without it this is declared by the caller and not checked.
    counts
        The column that tells how often each row is there, for counts that were computed elsewhere.
    counting
        "fetch" (read all rows and count them here), "push-down" (have the engine count), or "auto": push-down where the
        rows are elsewhere and that is expected to be faster, by public numbers alone.
    delimiter
        The character between the fields of a CSV file, "tab" for a tab; None: a comma, in TSV files a tab. With it
        files that end in ``.txt`` or ``.dat`` are read as CSV too.
    encoding
        How the characters of a CSV file are stored, such as "windows-1252", "latin-1" or "utf-16"; None: UTF-8.
    decimal
        The mark before the fraction of numbers in a CSV file: "." or ",".
    trim
        Whether blanks at the edges of the fields of a CSV file are left out, as after the commas of ``39, Private``.
    null
        The texts in a CSV file that say that a value is missing, such as "?" or "NA"; an empty field always does.
    header
        Whether the first row of a CSV file has the names of its columns; None: yes, unless ``names`` are given.
    names
        The names of the columns of a CSV file without a header, in order; by default column1, column2 …
    rows
        About how many rows the table has, if that may be said: with "auto" it helps to choose the faster way. The table
        is never asked for it.
    progress
        Called with the number of tables that are counted and of all to count.
    notify
        Called with a sentence that says how the table is counted and why; None: the logger "margrave" gets it.
    publish_query
        Whether the record of the release quotes the query. It always says that there was one; the ledger always has
        the text.
    """

    source: object
    _: KW_ONLY
    table: str | None = None
    query: str | None = None
    privacy_id: str | None = None
    counts: str | None = None
    counting: Counting = "auto"
    delimiter: str | None = None
    encoding: str | None = None
    decimal: Literal[".", ","] = "."
    trim: bool | None = None
    null: str | Sequence[str] = ()
    header: bool | None = None
    names: Sequence[str] | None = None
    rows: int | None = None
    progress: Callable[[int, int], None] | None = None
    notify: Callable[[str], None] | None = None
    publish_query: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, before anything is opened."""
        kind = kind_of(self.source)
        for word in ("table", "query", "privacy_id", "counts"):
            value = getattr(self, word)
            if value is not None and (not isinstance(value, str) or not value):
                raise DataError(f"{word} is a {type(value).__name__} or empty", remedy="give it as text")
        self._check_table(kind)
        self._check_publication()
        self._check_text_format(kind)
        if self.counts is not None and self.privacy_id is not None:
            raise DataError(
                "counts that were computed elsewhere have no rows of persons",
                remedy="leave out privacy_id (--privacy-id) or counts (--counts)",
            )
        if self.counting not in COUNTINGS:
            hint = suggestion(self.counting, COUNTINGS) if isinstance(self.counting, str) else ""
            raise DataError(f"no counting {self.counting!r}{hint} (counting, --counting, is {', '.join(COUNTINGS)})")
        if self.counts is not None and self.counting == "push-down":
            raise DataError(
                "counts that were computed elsewhere are fetched", remedy="leave out counting='push-down' (--counting)"
            )
        if self.rows is not None and (isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 0):
            raise DataError(
                f"rows (--rows) is {self.rows!r}", remedy="give a whole number of at least 0, or leave it out"
            )
        if self.progress is not None and not callable(self.progress):
            raise DataError(f"progress is a {type(self.progress).__name__}", remedy="give a function of two numbers")
        if self.notify is not None and not callable(self.notify):
            raise DataError(f"notify is a {type(self.notify).__name__}", remedy="give a function of a text")

    def _check_table(self, kind: SourceKind) -> None:
        """Refuse a table where there are none to choose from, and a database without one."""
        named = [self.table, self.query]
        if kind is SourceKind.POSTGRES_URL:
            named.append(split_url(os.fspath(self.source))[1])  # type: ignore[call-overload]
        given = sum(value is not None for value in named)
        if kind not in (SourceKind.POSTGRES_URL, SourceKind.DUCKDB_FILE):
            if given:
                raise self._foreign(kind) or DataError(
                    f"a {kind} is one table", remedy="leave out table (--table) and query (--query)"
                )
        elif given != 1:
            raise DataError(
                f"a {kind} has many tables", remedy="name one of them by table=… (--table), or give a query=… (--query)"
            )

    def _check_publication(self) -> None:
        """Refuse to publish a query that is not there."""
        if not isinstance(self.publish_query, bool):
            raise DataError(f"publish_query is a {type(self.publish_query).__name__}", remedy="give True or False")
        if self.publish_query and self.query is None:
            raise DataError(
                "publish_query (--publish-query) is given without a query",
                remedy="give query=… (--query), or leave it out",
            )

    def _check_text_format(self, kind: SourceKind) -> None:
        """Refuse words on the text of a CSV file where there is none."""
        given = self.text_format.given
        if given and not (kind is SourceKind.FILE and is_separated(str(self.source), self.delimiter)):
            unknown = kind is SourceKind.FILE and format_of(str(self.source)) not in (*JSON, *PARQUET)
            raise (
                wrong_ending(str(self.source))
                if unknown
                else DataError(f"{given} is for CSV files, and this is another kind of table", remedy="leave it out")
            )

    def _foreign(self, kind: SourceKind) -> DataError | None:
        """Return the error for a file that another program has to open, if it is one."""
        return wrong_ending(str(self.source)) if kind is SourceKind.FILE and is_foreign(str(self.source)) else None

    @property
    def text_format(self) -> TextFormat:
        """How the text in a CSV file is written."""
        return TextFormat(
            self.delimiter,
            self.encoding,
            self.decimal,
            self.trim,
            self.null,  # type: ignore[arg-type] # it makes tuples of them
            self.header,
            self.names,  # type: ignore[arg-type]
        )

    @contextmanager
    def opened(self) -> Iterator[Engine]:
        """Open the table for reading, and close what was opened at the end."""
        with ExitStack() as stack:
            yield _engine(self, stack)

    def __repr__(self) -> str:
        # Neither the address with its password nor any row.
        return f"Data({kind_of(self.source)})"


def described(source: object) -> Data:
    """Return the description of a private table: a `Data` as it is, or one made from a path, a frame or a URL."""
    return source if isinstance(source, Data) else Data(source)


def _engine(data: Data, stack: ExitStack) -> Engine:
    """Return the engine for a table; libraries are loaded here, each when it is needed."""
    from margrave.data.engines import databases, engine, files, spark

    source: Any = data.source
    kind = kind_of(source)
    if kind is SourceKind.FILE:
        return files.open_file(str(os.fspath(source)), stack, data.text_format)
    if kind is SourceKind.DUCKDB_FILE:
        return files.open_database(str(os.fspath(source)), data.table, data.query, stack)
    if kind is SourceKind.POSTGRES_URL:
        return databases.open_url(str(source), data.table, data.query, stack)
    if kind is SourceKind.DUCKDB_RELATION:
        return engine.DuckEngine(source, stack)
    if kind is SourceKind.IBIS:
        return databases.open_ibis(source, stack)
    if kind is SourceKind.SPARK:
        return spark.SparkEngine(source, stack)
    return _arrow_engine(source, kind, stack)


def _arrow_engine(source: object, kind: SourceKind, stack: ExitStack) -> Engine:
    """Return the engine for Arrow data and for frames."""
    import pyarrow as pa

    from margrave.data.engines import engine

    if kind in (SourceKind.ARROW_DATASET, SourceKind.ARROW_READER):
        return engine.ArrowEngine(source, stack)
    if kind is SourceKind.ARROW_STREAM:
        return engine.ArrowEngine(pa.RecordBatchReader.from_stream(source), stack)
    return engine.FrameEngine(pa.Table.from_batches([source]) if kind is SourceKind.ARROW_BATCH else source, stack)


class Source(Protocol):
    """Anything that can count a private table; the boundary asks only for counts."""

    domain: Domain

    def count(self, layout: Layout) -> Integers:
        """Return the exact counts of every table of a closure over the domain, in one buffer."""


class TableSource:
    """Counts a private table by a declared domain; nothing is opened before it is asked to count.

    Parameters
    ----------
    data
        Which table.
    domain
        The declared domain.
    contributions
        The most rows of one person.

    Attributes
    ----------
    domain
        The declared domain.
    """

    def __init__(self, data: Data, domain: Domain, *, contributions: int) -> None:
        self.domain = domain
        self._data, self._contributions = data, contributions

    @property
    def contributions(self) -> int:
        """The maximum number of rows per person."""
        return self._contributions

    @property
    def contributions_bounded(self) -> str:
        """Whether rows of persons are limited by an id ("enforced"), or only declared by the caller ("declared")."""
        return "declared" if self._data.privacy_id is None else "enforced"

    @property
    def queried(self) -> bool:
        """Whether a query was given, so that the rows are those of its result."""
        return self._data.query is not None

    @property
    def published_query(self) -> str | None:
        """The text of the query where it may be published."""
        return self._data.query if self._data.publish_query else None

    @property
    def named(self) -> dict[str, str]:
        """Which table it is, for the ledger: its address without credentials, and the table or the whole query.

        The address of a frame, which has none, is the words for what it is.
        """
        asked = {"table": self._data.table, "query": self._data.query}
        return {"address": _address(self._data.source), **{key: text for key, text in asked.items() if text}}

    def count(self, layout: Layout) -> Integers:
        """Return the exact counts of every table of a closure over the domain, in one buffer."""
        return quietly(lambda: self._count(layout), f"the {kind_of(self._data.source)}")

    def __repr__(self) -> str:
        return f"TableSource({self._data!r})"

    def _count(self, layout: Layout) -> Integers:
        from margrave.data.counting.fetch import fetch_counts
        from margrave.data.counting.pushdown import choose
        from margrave.data.persons import Choice, draw_salt

        data = self._data
        tables = len(layout.sets) - layout.outer
        progress = data.progress or (lambda done, tables: None)
        with data.opened() as engine:
            push, reason = choose(engine, layout, data.rows) if data.counting == "auto" else (False, "")
            push = push or data.counting == "push-down"
            # One salt for all tables of a run, and another for every run.
            choice = None if data.privacy_id is None else Choice(data.privacy_id, self.contributions, draw_salt())
            if data.counting == "auto" and engine.remote and data.counts is None:
                self._notify(f"{'the engine counts' if push else 'rows are fetched'}: {reason}")
            if push and data.counts is None:
                pushed = self._push(engine, layout, choice, progress)
                if pushed is not None:
                    return pushed
            progress(0, tables)
            counts = fetch_counts(engine, self.domain, layout, counts=data.counts, choice=choice)
        progress(tables, tables)
        return counts

    def _push(
        self, engine: Engine, layout: Layout, choice: Choice | None, progress: Callable[[int, int], None]
    ) -> Integers | None:
        """Have the engine count; None where it must not and counting is left to us."""
        from margrave.data.counting.pushdown import PushDown, covering

        if engine.maps:
            counts = self._map(engine, layout, choice, progress)
            if counts is not None:
                return counts
        tables = covering(engine, layout, self._data.rows)
        pushing = PushDown(engine, self.domain, layout, tables, choice)
        if not pushing.refusal:
            return pushing.count(progress)
        if self._data.counting == "push-down":
            raise DataError(pushing.refusal)
        self._notify(f"rows are fetched instead: {pushing.refusal}")
        return None

    def _map(
        self, engine: Engine, layout: Layout, choice: Choice | None, progress: Callable[[int, int], None]
    ) -> Integers | None:
        """Have the workers of a cluster count in one pass; None if they cannot."""
        from importlib.metadata import version

        from margrave.data.counting.executors import OnePass

        tables, needed = len(layout.sets) - layout.outer, version("margrave")
        progress(0, tables)
        counts = OnePass(engine, self.domain, layout, choice).count(needed)
        if counts is None:
            self._notify(
                f"the workers of the cluster do not have margrave {needed}: the engine counts by GROUP BY instead, "
                f"which is slower; install margrave {needed} and pyarrow on the workers to count in one pass"
            )
            return None
        progress(tables, tables)
        return counts

    def _notify(self, message: str) -> None:
        """Tell how the table is counted, in words that contain public numbers only."""
        if self._data.notify is not None:
            self._data.notify(message)
        else:
            logging.getLogger("margrave").info(message)


def is_source(data: object) -> bool:
    """Return whether something counts by itself, as a CodedTable does."""
    # A frame with a column of that name has a ``domain`` too.
    return callable(getattr(data, "count", None)) and isinstance(getattr(data, "domain", None), Domain)


def open_source(data: object, domain: Domain, *, contributions: int, privacy_id: str | None = None) -> Source:
    """Return what counts a private table by a domain; nothing is read yet.

    Parameters
    ----------
    data
        A `Data`, anything that a `Data` is made from, or something that counts by itself.
    domain
        The declared domain.
    contributions
        The most rows of one person; enforced where there is a privacy id.
    privacy_id
        The column that identifies the person of each row.
    """
    if is_source(data):
        if privacy_id is not None:
            raise DataError(
                f"a {type(data).__name__} has only codes and no column of ids", remedy="leave out privacy_id"
            )
        if isinstance(data, TableSource) and data.contributions != contributions:
            raise DataError(
                f"the table was opened for {data.contributions} rows of one person and is to be measured for "
                f"{contributions}",
                remedy="open it for as many, or give the Data that it was opened from",
            )
        return data  # type: ignore[return-value]
    described = data if isinstance(data, Data) else Data(data, privacy_id=privacy_id)
    if privacy_id is not None and described.privacy_id != privacy_id:
        if described.privacy_id is not None:
            raise DataError("two different values of privacy_id are given", remedy="give it once")
        described = _with_id(described, privacy_id)
    if described.counts is not None and described.counts in domain:
        raise DataError(f"column {described.counts!r} is an attribute of the domain and cannot hold the counts too")
    return TableSource(described, domain, contributions=contributions)


def _address(source: object) -> str:
    """Return where a table is, without a word that could be a password."""
    kind = kind_of(source)
    if not isinstance(source, str | os.PathLike):
        return str(kind)
    name = os.fspath(source)
    if kind is SourceKind.POSTGRES_URL:
        return without_credentials(name)
    path = os.path.abspath(name)  # noqa: PTH100 — it may be a pattern
    return path if shown(path) == repr(path) else shown(path)


def _with_id(data: Data, privacy_id: str) -> Data:
    """Return the description with a privacy id."""
    return replace(data, privacy_id=privacy_id)
