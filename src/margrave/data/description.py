"""Which private table is meant and how it is to be counted: a description that reads nothing by itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from margrave.data.engines.formats import TextFormat, is_foreign, is_separated, wrong_ending
from margrave.data.opening import DATABASE, PATH, URL, kind_of
from margrave.errors import DataError, suggestion

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
        The column that tells whose row it is. Of each person at most ``contributions`` rows are kept, chosen by a
        fresh secret, the same for all tables. Without it the caller's word is taken that nobody has more.
    counts
        The column that tells how often each row is there, for counts that were computed elsewhere.
    counting
        "fetch" (read all rows and count them here), "push-down" (have the engine count, one query a table), or "auto":
        push-down where the rows are elsewhere and the tables are few and small enough.
    delimiter
        The character between the fields of a CSV file, "tab" for a tab; None: a comma, in TSV files a tab. With it
        files that end in ``.txt`` or ``.dat`` are read as CSV too.
    encoding
        How the characters of a CSV file are stored, such as "windows-1252", "latin-1" or "utf-16"; None: UTF-8.
    decimal
        The mark before the fraction of numbers in a CSV file: "." or ",".
    progress
        Called with the number of tables that are counted and of all to count.
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
    progress: Callable[[int, int], None] | None = None
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
        if self.progress is not None and not callable(self.progress):
            raise DataError(f"progress is a {type(self.progress).__name__}", remedy="give a function of two numbers")

    def _check_table(self, kind: str) -> None:
        """Refuse a table where there are none to choose from, and a database without one."""
        named = [self.table, self.query]
        if kind == URL:
            from margrave.data.redaction import split_url

            named.append(split_url(os.fspath(self.source))[1])  # type: ignore[call-overload]
        given = sum(value is not None for value in named)
        if kind not in (URL, DATABASE):
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

    def _check_text_format(self, kind: str) -> None:
        """Refuse words on the text of a CSV file where there is none."""
        given = self.text_format.given
        if given and not (kind == PATH and is_separated(str(self.source), self.delimiter)):
            raise self._foreign(kind) or DataError(
                f"{given} is for CSV files, and this is another kind of table", remedy="leave it out"
            )

    def _foreign(self, kind: str) -> DataError | None:
        """Return the error for a file that another program has to open, if it is one."""
        return wrong_ending(str(self.source)) if kind == PATH and is_foreign(str(self.source)) else None

    @property
    def text_format(self) -> TextFormat:
        """How the text in a CSV file is written."""
        return TextFormat(self.delimiter, self.encoding, self.decimal)

    def __repr__(self) -> str:
        # Neither the address with its password nor any row.
        return f"Data({kind_of(self.source)})"


def described(source: object) -> Data:
    """Return the description of a private table: a `Data` as it is, or one made from a path, a frame or a URL."""
    return source if isinstance(source, Data) else Data(source)
