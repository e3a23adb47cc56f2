"""Push-down: the engine counts tables that hold all others, and the others are sums of these.

The engine codes every row once, in a subquery, and groups the codes: several tables in one query where it knows
GROUPING SETS, else one GROUP BY for each table. Public numbers decide which tables it counts, and whether counting
there or fetching the rows is less work: the tables, their cells, the columns, the engine, and the number of rows if the
caller states one. The table itself is never asked, because its number of rows is private.

An invalid value is an error in any row, even in dropped rows and in rows of a person that are not kept, just as when
rows are fetched. Rows with such a value are never filtered out, so that it appears in the groups. Where rows of persons
are chosen, one query checks all rows first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from math import prod
from operator import or_
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from margrave.data.counting.engine_codes import FETCH, ColumnType, Key, is_comparable, is_text
from margrave.data.counting.fetch import read_attributes
from margrave.data.counting.tally import Wide, cover, sum_wide
from margrave.data.engines.engine import COUNT, Engine, require_columns, require_ids
from margrave.data.persons import PERSON, ROW, Choice, missing_id
from margrave.domain.values import OUTSIDE

if TYPE_CHECKING:
    from margrave.algebra.kernels import Integers
    from margrave.algebra.layout import Layout
    from margrave.domain.domain import Domain

# Computed columns have a prefix, so that they do not clash with those of the table.
_CODE, _FOUND = "margrave_code_{}", "margrave_found_{}"
_TEXT, _LABEL, _LABEL_CODE = "margrave_text_{}", "margrave_label_{}", "margrave_label_code_{}"
# The number of rows for which the choice between both ways is made where the caller states none.
_NOMINAL_ROWS = 10**6
# The numbers of rows for which tables are chosen where the caller states none.
_UNSTATED_ROWS = (10**4, 10**5, 10**6, 10**7)
# Limits to try for the cells of a wide table; with 1, every table is counted by itself.
_LIMITS = (1, 2**8, 2**10, 2**12, 2**14, 2**16)
# More cells may not fit in the memory of a server, or take longer to send than the rows of most tables.
_MOST_CELLS = 10**7
# The buffers of a cluster's worker take eight bytes a cell: 1 GB.
_MOST_MAPPED_CELLS = 2**27


def choose(engine: Engine, layout: Layout, rows: int | None = None) -> tuple[bool, str]:
    """Return whether the engine should count if it can, and why, by public numbers alone.

    Parameters
    ----------
    engine
        Where the table is; nothing is asked of it.
    layout
        The tables to count.
    rows
        About how many rows the table has, if the caller states it.
    """
    outer = layout.sets[layout.outer :]
    cells = sum(prod(layout.sizes[k] for k in members) for members in outer)
    if not engine.remote:
        return False, "the rows are in this process"
    most = _MOST_MAPPED_CELLS if engine.maps else _MOST_CELLS
    if cells > most:
        return False, f"the tables have {cells:,} cells, more than {most:,}"
    if engine.maps:
        return True, f"its workers read the table once, for {len(outer):,} tables of {cells:,} cells"
    columns = len({k for members in outer for k in members})
    pushed = min(_seconds(engine, layout, tables, _assumed(rows)) for tables in _covers(layout))
    fetched = engine.costs.query + _assumed(rows) * max(columns, 1) * engine.costs.fetched
    stated = "as stated" if rows is not None else "assumed, because none is stated"
    reason = (
        f"for {len(outer):,} tables of {columns:,} columns and {_assumed(rows):,} rows ({stated}), counting there is "
        f"expected to take {pushed:.2g} s, fetching {fetched:.2g} s"
    )
    return pushed <= fetched, reason


def covering(engine: Engine, layout: Layout, rows: int | None = None) -> tuple[Wide, ...]:
    """Return tables that hold all others, and that are the least work for the engine to count, by public numbers alone.

    Parameters
    ----------
    engine
        Where the table is; nothing is asked of it.
    layout
        The tables to count.
    rows
        About how many rows the table has, if the caller states it.
    """
    covers, stated = _covers(layout), _UNSTATED_ROWS if rows is None else (rows,)
    seconds = np.array([[_seconds(engine, layout, tables, number) for number in stated] for tables in covers])
    # Where no number is stated, the tables that are at worst the smallest multiple of the least work.
    return covers[int(np.argmin((seconds / seconds.min(axis=0)).max(axis=1)))]


def _covers(layout: Layout) -> list[tuple[Wide, ...]]:
    """Return the tables to choose from: covers by ever larger ones."""
    return [cover(layout.sizes, layout.sets[layout.outer :], most_cells=limit) for limit in _LIMITS]


def _seconds(engine: Engine, layout: Layout, tables: Sequence[Wide], rows: int) -> float:
    """Return in how many seconds the engine is expected to count these tables."""
    costs, columns = engine.costs, len({k for table in tables for k in table.members})
    sent = sum(min(prod(layout.sizes[k] for k in table.members), rows) for table in tables)
    queries = -(-len(tables) // costs.sets)
    work = queries * columns * costs.coded + len(tables) * costs.grouped
    return queries * costs.query + rows * work + sent * costs.sent


def _assumed(rows: int | None) -> int:
    """Return the number of rows that a choice is made for."""
    return _NOMINAL_ROWS if rows is None else rows


class PushDown:
    """The counting of a table by its engine.

    Parameters
    ----------
    engine
        The table.
    domain, layout
        What is declared, and the tables to count.
    tables
        The tables that the engine counts: a cover of the outer ones.
    choice
        Whose row it is, how many rows of one person are kept, and the salt that decides which; None keeps all rows.

    Attributes
    ----------
    refusal
        Why the engine must not count this table, by the types of its columns; empty if it may.
    """

    def __init__(
        self,
        engine: Engine,
        domain: Domain,
        layout: Layout,
        tables: Sequence[Wide],
        choice: Choice | None = None,
    ) -> None:
        privacy_id = None if choice is None else choice.privacy_id
        self._engine, self._layout, self._choice, self._privacy_id = engine, layout, choice, privacy_id
        self._tables = tables
        needed = set(layout.attributes)
        names = {k: domain.attributes[k] for k in read_attributes(domain, needed)}
        require_columns(engine, tuple(names.values()), privacy_id=privacy_id)
        if privacy_id is not None:
            require_ids(engine, privacy_id)
        columns = dict.fromkeys([*names.values(), *([] if privacy_id is None else [privacy_id])])
        self._keys: dict[int, Key] = {}
        self.refusal = (
            "a file of texts has no engine that knows its numbers; leave out counting='push-down' (--counting)"
        )
        if engine.untyped:
            return
        self._frame = engine.lazy()
        try:
            asked = [engine.column(name) for name in columns or engine.names[:1]]
            self._schema = self._frame.select(*asked).collect_schema()
        except ValueError:  # a type that narwhals has no name for, such as numeric(40, 20)
            self.refusal = f"a column is of a type that only its own engine knows; {FETCH}, or convert it"
            return
        self._keys = {
            k: Key(domain[name], self._schema[engine.column(name)], engine.column(name), joins=engine.joins)
            for k, name in names.items()
        }
        self._id_dtype = None if privacy_id is None else self._schema[engine.column(privacy_id)]
        self._drops = [k for k, name in names.items() if domain[name].outside == "drop"]
        refusals = [key.refusal for key in self._keys.values()] + [self._unknown_id()]
        self.refusal = next((refusal for refusal in refusals if refusal), "") or self._folded()

    def count(self, progress: Callable[[int, int], None]) -> Integers:
        """Return the exact counts of every table of a closure, in one buffer. PRIVATE.

        Parameters
        ----------
        progress
            Called with the number of tables that are counted and of all to count.
        """
        rows = self._coded()
        if self._choice is not None:
            self._check(rows)
        rows = self._not_dropped(rows)
        if self._choice is not None:
            rows = self._choosable(rows)
        progress(0, len(self._layout.sets) - self._layout.outer)
        return sum_wide(self._layout, self._tables, self._counted(rows, progress))

    def _counted(self, rows: nw.LazyFrame[Any], progress: Callable[[int, int], None]) -> Iterator[Integers]:
        """Yield the counts of each table."""
        counted = {k for table in self._tables for k in table.members}
        # An attribute that only drops rows is in no table. It is counted to find its errors, unless `_check` has.
        unseen = [k for k, key in self._keys.items() if k not in counted and key.errors and self._choice is None]
        members = [*(table.members for table in self._tables), *((k,) for k in unseen)]
        groups = self._engine.groups(rows, [[_CODE.format(k) for k in one] for one in members], self._choice)
        done = 0
        for place, (one, found) in enumerate(zip(members, groups, strict=True)):
            table = np.zeros([self._layout.sizes[k] for k in one], dtype=np.int64)
            self._count(found, {_CODE.format(k): self._keys[k] for k in one}, table)
            if place < len(self._tables):
                yield table
                done += len(self._tables[place].holds)
                progress(done, len(self._layout.sets) - self._layout.outer)

    def _not_dropped(self, rows: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Return rows without those that are dropped, unless they have a value that is an error."""
        if not self._drops:
            return rows
        kept = ~reduce(or_, [nw.col(_CODE.format(k)) == OUTSIDE for k in self._drops])
        marks = [(k, mark) for k, key in self._keys.items() for mark in key.errors]
        wrong = [nw.col(_CODE.format(k)) == mark for k, mark in marks]
        return rows.filter(reduce(or_, wrong, kept))

    def _unknown_id(self) -> str:
        """Return why the engine cannot choose the rows of persons by these ids; empty if it can."""
        if self._id_dtype is None:
            return ""
        if not self._engine.chooses:
            return f"the engine cannot choose which rows of a person are kept, by privacy_id; {FETCH}"
        dtype = self._id_dtype
        # Engines that choose elsewhere hash the text of an id, and they differ in how they write fractions, dates and
        # the like.
        if is_comparable(dtype) and (self._engine.chooses_here or dtype.is_integer() or is_text(dtype)):
            return ""
        return f"column {self._privacy_id!r} has ids of a type that not every engine compares alike; {FETCH}"

    def _folded(self) -> str:
        """Return which texts the engine may treat as equal although they differ; empty if there are none."""
        texts = [key.name for key in self._keys.values() if key.compares_texts]
        if self._privacy_id is not None and self._id_dtype is not None and is_text(self._id_dtype):
            texts.append(self._privacy_id)
        known = self._engine.bytewise(texts) if texts else frozenset()
        folded = next((name for name in texts if name not in known), None)
        if folded is None:
            return ""
        return (
            f"the engine is not known to compare the texts of column {folded!r} byte for byte, as margrave does; "
            f"{FETCH}"
        )

    def _coded(self) -> nw.LazyFrame[Any]:
        """Return all rows as codes, with their persons."""
        written = {_CODE.format(k): key.sql() for k, key in self._keys.items()}
        codes = {name: sql for name, sql in written.items() if sql is not None}
        if codes and len(codes) == len(written):
            kept = {} if self._privacy_id is None else {PERSON: self._privacy_id}
            coded = self._engine.coded(codes, kept)
            if coded is not None:
                return coded
        frame, columns = self._frame, []
        for k, key in self._keys.items():
            found = None
            if key.joined:
                label, found = _LABEL.format(k), _LABEL_CODE.format(k)
                labels = self._engine.text_table(key.coded_texts, (label, found))
                texts = frame.with_columns(key.text().alias(_TEXT.format(k)))
                frame = texts.join(labels, how="left", left_on=_TEXT.format(k), right_on=label)
            columns.append(key.expression(found).alias(_CODE.format(k)))
        if self._privacy_id is not None:
            columns.append(nw.col(self._engine.column(self._privacy_id)).alias(PERSON))
        # A frame needs at least one column, even if there is nothing to group by.
        return frame.select(*(columns or [nw.col(self._engine.column(self._engine.names[0])).alias(COUNT)]))

    def _choosable(self, rows: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Return rows with their persons, and with the text of their codes, which decides which rows are kept."""
        needed = sorted({k for members in self._layout.sets[self._layout.outer :] for k in members})
        codes = [self._keys[k].settled(_CODE.format(k)).cast(nw.String) for k in needed]
        row = nw.concat_str(codes, separator=",") if codes else nw.lit("")
        person = nw.col(PERSON) if self._engine.chooses_here else nw.col(PERSON).cast(nw.String)
        return rows.select(person, row.alias(ROW), *(_CODE.format(k) for k in needed))

    def _check(self, rows: nw.LazyFrame[Any]) -> None:
        """Refuse a table with a row without an id, or with a value that its attribute does not allow."""
        marks = [(k, mark) for k, key in self._keys.items() for mark in key.errors]
        asked = [nw.col(_CODE.format(k)) == mark for k, mark in marks]
        if self._id_dtype is not None:
            asked.append(_without_id(self._id_dtype))
        found = self._any(rows, asked)
        if self._privacy_id is not None and found[-1]:
            raise missing_id(self._privacy_id)
        for (k, mark), there in zip(marks, found, strict=False):
            if there:
                self._keys[k].codes(pa.array([mark]))

    def _any(self, rows: nw.LazyFrame[Any], conditions: list[nw.Expr]) -> list[bool]:
        """Return which conditions hold for any row."""
        if not conditions:
            return []
        names = [_FOUND.format(place) for place in range(len(conditions))]
        ones = [nw.when(condition).then(nw.lit(1)).otherwise(nw.lit(0)) for condition in conditions]
        flags = rows.select(*(one.max().alias(name) for one, name in zip(ones, names, strict=True)))
        batches = [batch for batch in self._engine.collect(flags) if batch.num_rows]
        return [any(batch.column(name)[0].as_py() for batch in batches) for name in names]

    def _count(self, groups: pa.Table, keys: Mapping[str, Key], table: Integers) -> None:
        """Add the counts of one table to it."""
        counts = groups.column(COUNT).cast(pa.int64()).fill_null(0).to_numpy()
        if not keys:
            table += counts.sum()
            return
        codes = [key.codes(groups.column(name)) for name, key in keys.items()]
        # The codes of dropped rows are negative, and as indices would count from the end.
        kept = np.all([found >= 0 for found in codes], axis=0)
        # Several groups may belong to one cell, as marks are counted with a declared code: add up, do not assign.
        np.add.at(table, tuple(found[kept] for found in codes), counts[kept])


def _without_id(dtype: ColumnType) -> nw.Expr:
    """Return the condition that a row has no id, given the type of ids."""
    person = nw.col(PERSON)
    return person.is_null() | person.is_nan() if dtype.is_float() else person.is_null()
