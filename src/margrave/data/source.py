"""PRIVATE: from a description of a table to its exact counts, by fetching its rows or by having its engine count."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from margrave.algebra.kernels import Integers
from margrave.algebra.layout import Layout
from margrave.data.description import Data
from margrave.data.opening import URL, kind_of, opened
from margrave.data.redaction import quietly, shown, without_credentials
from margrave.domain import Domain
from margrave.errors import DataError

if TYPE_CHECKING:
    from margrave.data.engines.engine import Engine
    from margrave.data.persons import Choice

__all__ = ["Data", "Source", "TableSource", "is_source", "open_source"]


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
        """The most rows of one person."""
        return self._contributions

    @property
    def contributions_bounded(self) -> str:
        """Whether rows of persons are chosen by an id ("enforced"), or the caller's word is taken ("declared")."""
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
        from margrave.data.counting.pushdown import pays
        from margrave.data.persons import Choice, draw_salt

        data = self._data
        tables = len(layout.sets) - layout.outer
        progress = data.progress or (lambda done, tables: None)
        with opened(data.source, data.table, data.query, data.text_format) as engine:
            push = data.counting == "push-down" or (data.counting == "auto" and pays(engine, layout))
            # One salt for all tables of a run, and another for every run.
            choice = None if data.privacy_id is None else Choice(data.privacy_id, self.contributions, draw_salt())
            pushed = self._push(engine, layout, choice, progress) if push and data.counts is None else None
            if pushed is not None:
                return pushed
            progress(0, tables)
            counts = fetch_counts(
                engine,
                self.domain,
                layout,
                counts=data.counts,
                choice=choice,
            )
        progress(tables, tables)
        return counts

    def _push(
        self, engine: Engine, layout: Layout, choice: Choice | None, progress: Callable[[int, int], None]
    ) -> Integers | None:
        """Have the engine count; None where it must not and counting is left to us."""
        from margrave.data.counting.pushdown import PushDown

        pushing = PushDown(engine, self.domain, layout, choice)
        if not pushing.refusal:
            return pushing.count(progress)
        if self._data.counting == "push-down":
            raise DataError(pushing.refusal)
        return None


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
        The column that tells whose row it is.
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
        return kind
    name = os.fspath(source)
    if kind == URL:
        return without_credentials(name)
    path = os.path.abspath(name)  # noqa: PTH100 — it may be a pattern
    return path if shown(path) == repr(path) else shown(path)


def _with_id(data: Data, privacy_id: str) -> Data:
    """Return the description with a privacy id."""
    return replace(data, privacy_id=privacy_id)
