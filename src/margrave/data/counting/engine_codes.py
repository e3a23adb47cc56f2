"""The codes of an attribute, computed by the engine that holds the table, so that only counts are sent.

The engine compares each value with the declared ones, one by one, and returns the code, or a mark for a value that is
missing, undeclared or of another type than declared. The engine groups rows by these codes and never by values: some
engines group different values together. The encoder decides what happens to the marks, as if the rows had been fetched.
A query contains only what is declared, never a value read from the table.
"""

from __future__ import annotations

import math
from datetime import date
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from margrave.data.encoding import DROPPED, Encoder
from margrave.data.read_only import quoted, text
from margrave.domain.values import MISSING, OUTSIDE, CodeArray, Comparison, Comparisons, as_written, is_double
from margrave.errors import DataError

if TYPE_CHECKING:
    from margrave.domain.attribute import Attribute

ColumnType = nw.dtypes.DType | type[nw.dtypes.DType]

# The mark of a value of another kind than the attribute declares.
WRONG = -4
# Each row is compared with one value after the other. Above the first number, joining a table of labels is less work;
# above the second, where labels cannot be joined, fetching the column is.
_MOST_COMPARED, _MOST_VALUES = 40, 1000
# Joined labels are part of the query text, which must not become too long.
_MOST_JOINED = 100_000
# Not every engine compares all values of wider integer types exactly.
_LARGEST_NUMBER = 2**63 - 1
FETCH = "count by counting='fetch' (--counting fetch)"


class Key:
    """How an engine computes the codes of one attribute.

    Parameters
    ----------
    attribute
        The declared attribute.
    dtype
        The type of the column.
    column
        The name of the column in the engine.
    joins
        Whether the engine can join a table of labels.
    """

    def __init__(self, attribute: Attribute, dtype: ColumnType, column: str, *, joins: bool = False) -> None:
        self._attribute, self._dtype, self._named, self._joins = attribute, dtype, column, joins
        self._encoder = Encoder(attribute)
        self._wrong = _wrong_type(self._encoder, dtype)

    @property
    def name(self) -> str:
        """The name of the attribute, and of its column in the table."""
        return self._attribute.name

    @property
    def refusal(self) -> str:
        """Why the engine must not compute the codes; empty if it may."""
        name = self._attribute.name
        if not is_comparable(self._dtype):
            return f"column {name!r} is of a type that engines do not compare as margrave does; {FETCH}, or convert it"
        if self.compares_texts and self._attribute.values.text_rule is not None:
            return f"attribute {name!r} declares texts by a rule that engines do not know; {FETCH}"
        most = _MOST_JOINED if self.joined else _MOST_VALUES
        if self.compared > most:
            return f"attribute {name!r} has more than {most:,} values to compare each row with; {FETCH}"
        return ""

    @property
    def compares_texts(self) -> bool:
        """Whether texts are compared, which not every engine does byte for byte."""
        return self._wrong is None and is_text(self._dtype)

    @property
    def errors(self) -> tuple[int, ...]:
        """The marks that are errors if any row has them."""
        return tuple(mark for mark, settled in self.marks.items() if isinstance(settled, str))

    @property
    def compared(self) -> int:
        """How many declared values each row is compared with."""
        return len(self._comparisons().ordered) if self._dtype.is_numeric() else len(self._values())

    @property
    def joined(self) -> bool:
        """Whether the engine joins a table of labels instead of comparing each row with one label after the other."""
        return self._joins and self.compares_texts and self.compared > _MOST_COMPARED

    @property
    def coded_texts(self) -> dict[str, int]:
        """The code of each declared text, for a table to join."""
        return dict(self._values())

    @property
    def marks(self) -> dict[int, int | str]:
        """What each mark means: the code that its rows are counted with, or the text of an error."""
        return {mark: self._settled_mark(mark) for mark in (WRONG, OUTSIDE, MISSING)}

    def text(self) -> nw.Expr:
        """Return the text of each row, to be joined with a table of labels."""
        return self._column()

    def expression(self, found: str | None = None) -> nw.Expr:
        """Return the code of each row, or its mark.

        Parameters
        ----------
        found
            The column of codes from the joined table of labels, null where the text is not declared; None if no table
            was joined.
        """
        absent = nw.when(self._missing()).then(_number(MISSING))
        if self._wrong is not None:
            return nw.coalesce(absent, _number(WRONG))
        return nw.coalesce(absent, *(self._arms() if found is None else [nw.col(found), _number(OUTSIDE)]))

    def sql(self) -> str | None:
        """Return the code of each row, or its mark, as PostgreSQL writes it; None where `expression` has to be used.

        The same comparisons as those of `expression`: to have them made there takes longer than to count a small table.
        """
        if self.joined or not (self._dtype == nw.String or self._dtype.is_integer()):
            return None
        column = quoted(self._named)
        arms, rest = [f"WHEN {column} IS NULL THEN {MISSING}"], str(OUTSIDE)
        if self._wrong is not None:
            rest = str(WRONG)
        elif self._dtype == nw.String:
            arms += [f"WHEN {column} = {text(value)} THEN {code}" for value, code in self._values()]
        else:
            comparisons, last = self._comparisons()
            met = [(_whole(one, self._dtype), column if one.code is None else str(one.code)) for one in comparisons]
            arms += [
                f"WHEN {_between(column, *ends, self._dtype)} THEN {code}" for ends, code in met if ends[0] <= ends[1]
            ]
            rest = str(last)
        return f"CASE {' '.join(arms)} ELSE {rest} END"

    def settled(self, name: str) -> nw.Expr:
        """Return the code that a row is counted with, from the column of this name that `expression` made.

        Dropped rows and errors have no such code. Remove them first.
        """
        found = nw.col(name)
        for mark, code in ((OUTSIDE, self._attribute.other_code), (MISSING, self._attribute.missing_code)):
            if code is not None:
                found = nw.when(found == mark).then(_number(code)).otherwise(found)
        return found

    def codes(self, column: pa.Array | pa.ChunkedArray) -> CodeArray:
        """Return the codes for the codes and marks that the engine returned, as the encoder would give them."""
        found = column.cast(pa.int64()).fill_null(self._attribute.size).to_numpy()
        marks = [OUTSIDE, MISSING, *([] if self._wrong is None else [WRONG])]
        if not (((found >= 0) & (found < self._attribute.declared)) | np.isin(found, marks)).all():
            raise DataError(
                f"the engine gave codes for column {self._attribute.name!r} that its attribute does not have",
                remedy=FETCH,
            )
        if self._wrong is not None and (found == WRONG).any():
            raise DataError(self._wrong)
        return self._encoder.settle(found.astype(np.int32))

    def _settled_mark(self, mark: int) -> int | str:
        """Return the code that rows with a mark are counted with, or the text of the error."""
        if mark == WRONG:
            return DROPPED if self._wrong is None else self._wrong
        try:
            return int(self._encoder.settle(np.array([mark], dtype=np.int32))[0])
        except DataError as error:
            return str(error)

    def _column(self) -> nw.Expr:
        """Return the column, in a type whose values compare as the encoder does."""
        column = nw.col(self._named)
        if is_text(self._dtype):
            return column if self._dtype == nw.String else column.cast(nw.String)
        # Adding 0.0 turns −0.0 into 0.0: not every engine treats the two as equal.
        return column.cast(nw.Float64) + 0.0 if self._dtype.is_float() else column

    def _missing(self) -> nw.Expr:
        """Whether a value is missing."""
        column = nw.col(self._named)
        return column.is_null() | column.is_nan() if self._dtype.is_float() else column.is_null()

    def _arms(self) -> list[nw.Expr]:
        """Return a column for each declared value: its code, null in rows with other values; the last is never null."""
        if self._dtype.is_numeric():
            return self._number_arms()
        column = self._column()
        return [*(_when(column, value, code) for value, code in self._values()), _number(OUTSIDE)]

    def _comparisons(self) -> Comparisons:
        """Return the comparisons that give the code of a number."""
        numbers = self._attribute.values.numbers()
        return Comparisons((), OUTSIDE) if numbers is None else numbers.comparisons()

    def _number_arms(self) -> list[nw.Expr]:
        """Return one column for each comparison: its code, null in rows where it does not hold."""
        comparisons, rest = self._comparisons()
        column = self._column()
        arms: list[nw.Expr] = []
        for comparison in comparisons:
            condition = _condition(column, comparison, self._dtype)
            if condition is False:
                continue
            code = column if comparison.code is None else _number(comparison.code)
            if condition is True:
                return [*arms, code]
            arms.append(nw.when(condition).then(code).cast(nw.Int64))
        return [*arms, _number(rest)]

    def _values(self) -> list[tuple[Any, int]]:
        """Return the declared texts, dates or booleans that a column of this type can hold, with their codes."""
        values = self._attribute.values
        if self._dtype == nw.Boolean:
            return list(values.truths.items())
        if self._dtype == nw.Date:
            return [(day, code) for day, code in ((_day(text), code) for text, code in values.texts.items()) if day]
        return list(values.texts.items())


def is_text(dtype: ColumnType) -> bool:
    """Return whether a column of this type holds texts, or categories that have names."""
    return isinstance(dtype, nw.Categorical | nw.Enum) or dtype in (nw.String, nw.Categorical, nw.Enum)


def is_comparable(dtype: ColumnType) -> bool:
    """Return whether engines compare values of this type as margrave does; for texts see `Engine.bytewise`."""
    return _probe(dtype) is not None


def _wrong_type(encoder: Encoder, dtype: ColumnType) -> str | None:
    """Return the encoder's error for a column of this type; None if the attribute declares such values."""
    probe = _probe(dtype)
    try:
        encoder.classify(pa.array([], pa.string()) if probe is None else probe)
    except DataError as error:
        return str(error)
    return None


def _probe(dtype: ColumnType) -> pa.Array | None:
    """Return a column of this type with one value; None for types that engines do not compare as margrave does."""
    if is_text(dtype):
        return pa.array([""])
    if dtype == nw.Boolean:
        return pa.array([False])
    if dtype == nw.Date:
        return pa.array([date(1970, 1, 1)])
    if dtype.is_float():
        return pa.array([0.0])
    return pa.array([0]) if dtype.is_integer() and _limits(dtype)[1] <= _LARGEST_NUMBER else None


def _number(code: int) -> nw.Expr:
    return nw.lit(code, nw.Int64)


def _when(column: nw.Expr, value: Any, code: int) -> nw.Expr:  # noqa: ANN401 - of the type of the column
    """Return the code where the column has this value, and null elsewhere."""
    equal = (column if value else ~column) if isinstance(value, bool) else column == value
    return nw.when(equal).then(_number(code))


def _condition(column: nw.Expr, comparison: Comparison, dtype: ColumnType) -> nw.Expr | bool:
    """Return the condition for a comparison to hold, on a column of numbers of this type.

    True if it holds for every number of the type, False if it holds for none.
    """
    if dtype.is_integer():
        (low, high), (least, largest) = _whole(comparison, dtype), _limits(dtype)
        if low > high:
            return False
        if low == high:
            return column == low
        edges = [*([column >= low] if low > least else []), *([column <= high] if high < largest else [])]
        return reduce(and_, edges) if edges else True
    if comparison.relation == "=":
        return column == float(comparison.number) if is_double(comparison.number) else False
    if comparison.relation == "<=":
        return column <= float(comparison.number)
    return (column >= 0) & (column <= comparison.number - 1) & (column == column.floor())


def _whole(comparison: Comparison, dtype: ColumnType) -> tuple[int, int]:
    """Return the least and the largest number of a type of whole numbers for which a comparison holds.

    The least is above the largest if it holds for none. Edges are whole numbers too, so that the engine rounds nothing.
    """
    least, largest = _limits(dtype)
    if comparison.relation == "below":
        return max(least, 0), min(largest, int(comparison.number) - 1)
    edge = math.floor(as_written(comparison.number))
    if comparison.relation == "<=":
        return least, min(largest, edge)
    return (edge, edge) if as_written(comparison.number) == edge and least <= edge <= largest else (1, 0)


def _between(column: str, low: int, high: int, dtype: ColumnType) -> str:
    """Return the condition that a column of whole numbers is between two of its type, as SQL writes it."""
    if low == high:
        return f"{column} = {low}"
    least, largest = _limits(dtype)
    edges = [*([f"{column} >= {low}"] if low > least else []), *([f"{column} <= {high}"] if high < largest else [])]
    return " AND ".join(edges) or "true"


def _limits(dtype: ColumnType) -> tuple[int, int]:
    """Return the smallest and the largest number of a type of whole numbers."""
    bits = int("".join(character for character in str(dtype) if character.isdigit()) or 64)
    return (0, 2**bits - 1) if str(dtype).startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _day(label: str) -> date | None:
    """Return the date that a label states in ISO format; None if it is not one."""
    try:
        found = date.fromisoformat(label)
    except ValueError:
        return None
    return found if found.isoformat() == label else None
