"""Push-down: the engine counts, one GROUP BY for each table that is in no other; smaller tables are sums of these.

One query checks all rows for errors first: also rows that are dropped, and rows of a person that are not kept, just as
when rows are fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from margrave.data.counting.engine_codes import FETCH, Key, Kind, is_comparable, is_text
from margrave.data.counting.fetch import read
from margrave.data.counting.tally import sum_inner
from margrave.data.engines.engine import COUNT, Engine, require_columns, require_ids
from margrave.data.persons import PERSON, ROW, Choice, missing_id
from margrave.domain.values import OUTSIDE

if TYPE_CHECKING:
    from margrave.algebra.kernels import Integers
    from margrave.algebra.layout import Layout
    from margrave.domain.domain import Domain

# Columns get names of ours, so that they never clash with those of the table.
_CODE, _FOUND = "margrave_code_{}", "margrave_found_{}"
# With more queries, or more groups in their results, fetching the rows once is less work.
_MOST_QUERIES = 1000
_MOST_CELLS = 10**7


def pays(engine: Engine, layout: Layout) -> bool:
    """Return, by the engine and public sizes alone, whether the engine should count if it can."""
    outer = layout.sets[layout.outer :]
    cells = sum(prod(layout.sizes[k] for k in members) for members in outer)
    return engine.remote and len(outer) <= _MOST_QUERIES and cells <= _MOST_CELLS


class PushDown:
    """The counting of a table by its engine.

    Parameters
    ----------
    engine
        The table.
    domain, layout
        What is declared, and the tables to count.
    choice
        Whose row it is, how many rows of one person are kept, and the salt that decides which; None: all are.

    Attributes
    ----------
    refusal
        Why the engine must not count this table, by the types of its columns; empty if it may.
    """

    def __init__(self, engine: Engine, domain: Domain, layout: Layout, choice: Choice | None = None) -> None:
        privacy_id = None if choice is None else choice.privacy_id
        self._engine, self._layout, self._choice, self._privacy_id = engine, layout, choice, privacy_id
        needed = {k for members in layout.sets[layout.outer :] for k in members}
        names = {k: domain.attributes[k] for k in read(domain, needed)}
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
            k: Key(domain[name], self._schema[engine.column(name)], engine.column(name)) for k, name in names.items()
        }
        self._id_kind = None if privacy_id is None else self._schema[engine.column(privacy_id)]
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
        layout = self._layout
        rows = self._coded()
        self._check(rows)
        for k in self._drops:
            rows = rows.filter(nw.col(_CODE.format(k)) != OUTSIDE)
        if self._choice is not None:
            rows = self._choosable(rows)
        counts = np.zeros(layout.cells, dtype=np.int64)
        outer = range(layout.outer, len(layout.sets))
        progress(0, len(outer))
        sets = [[_CODE.format(k) for k in layout.sets[place]] for place in outer]
        for done, (place, groups) in enumerate(zip(outer, self._engine.groups(rows, sets, self._choice), strict=True)):
            table = counts[layout.index.offset[place] : layout.index.offset[place + 1]].reshape(layout.shape(place))
            self._count(groups, {_CODE.format(k): self._keys[k] for k in layout.sets[place]}, table)
            progress(done + 1, len(outer))
        sum_inner(layout, counts)
        return counts

    def _unknown_id(self) -> str:
        """Say that the engine cannot choose the rows of persons, or not by ids of this type."""
        if self._id_kind is None:
            return ""
        if not self._engine.chooses:
            return f"the engine cannot choose which rows of a person are kept, by privacy_id; {FETCH}"
        kind = self._id_kind
        # Elsewhere the text of an id is hashed, and of numbers with fractions, dates and the like not every engine
        # writes the same text for the same value.
        if is_comparable(kind) and (self._engine.chooses_here or kind.is_integer() or is_text(kind)):
            return ""
        return f"column {self._privacy_id!r} has ids of a type that not every engine compares alike; {FETCH}"

    def _folded(self) -> str:
        """Say which texts the engine may take for equal although they differ."""
        texts = [key.name for key in self._keys.values() if key.compares_texts]
        if self._privacy_id is not None and self._id_kind is not None and is_text(self._id_kind):
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
        columns = [key.expression().alias(_CODE.format(k)) for k, key in self._keys.items()]
        if self._privacy_id is not None:
            columns.append(nw.col(self._engine.column(self._privacy_id)).alias(PERSON))
        # A frame has at least one column, also where there is nothing to group by.
        return self._frame.select(*(columns or [nw.col(self._engine.column(self._engine.names[0])).alias(COUNT)]))

    def _choosable(self, rows: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Return rows with their persons, and with the text of their codes by which they are chosen."""
        needed = sorted({k for members in self._layout.sets[self._layout.outer :] for k in members})
        codes = [self._keys[k].settled(_CODE.format(k)).cast(nw.String) for k in needed]
        row = nw.concat_str(codes, separator=",") if codes else nw.lit("")
        person = nw.col(PERSON) if self._engine.chooses_here else nw.col(PERSON).cast(nw.String)
        return rows.select(person, row.alias(ROW), *(_CODE.format(k) for k in needed))

    def _check(self, rows: nw.LazyFrame[Any]) -> None:
        """Refuse a table with a row that is nobody's, or with a value that its attribute calls an error."""
        marks = [(k, mark) for k, key in self._keys.items() for mark in key.errors]
        asked = [nw.col(_CODE.format(k)) == mark for k, mark in marks]
        if self._id_kind is not None:
            asked.append(_without_id(self._id_kind))
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
        # What is dropped is below 0, which would count from the end.
        kept = np.all([found >= 0 for found in codes], axis=0)
        # Two groups may be one category: what is declared, and what is counted with it.
        np.add.at(table, tuple(found[kept] for found in codes), counts[kept])


def _without_id(kind: Kind) -> nw.Expr:
    """Whether a row has no id, given the type of ids."""
    person = nw.col(PERSON)
    return person.is_null() | person.is_nan() if kind.is_float() else person.is_null()
