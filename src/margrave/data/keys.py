"""What an engine groups by: the columns of a table, brought to few values there, so that only counts cross the wire.

Numbers with cuts become the number of their bin. Values outside the declared set become one public value outside it,
so that no more groups come back than the table has cells. What comes back is encoded like any other column, so that
counts are the same as those of the fetched rows. Nothing of a table is ever written into a query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from functools import reduce
from operator import add
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from margrave.attribute import Attribute
from margrave.data.encoding import Encoder
from margrave.data.numbers import Codes
from margrave.errors import DataError

# Beyond so many declared numbers a column of floats is grouped as it is.
_MOST_FLOATS = 1000


class Key:
    """How one attribute is grouped by and encoded.

    Parameters
    ----------
    attribute
        What is declared.
    kind
        The type of the column.
    """

    def __init__(self, attribute: Attribute, kind: nw.dtypes.DType | type[nw.dtypes.DType]) -> None:
        self._attribute, self._kind = attribute, kind
        self._encoder = Encoder(attribute)
        if attribute.outside == "drop" and not self._can_tell():
            raise DataError(
                f"attribute {attribute.name!r} drops rows, and a column of its type cannot be told to on the engine; "
                "count by counting='fetch', or convert the column in a query"
            )
        if attribute.cuts is not None and not (kind.is_integer() or kind.is_float()) and self._numeric():
            raise DataError(
                f"attribute {attribute.name!r} has cuts, and a column of its type cannot be cut exactly on the engine; "
                "count by counting='fetch', or convert the column to double precision in a query"
            )

    @property
    def kept(self) -> nw.Expr | None:
        """The rows that this attribute does not drop; None if it drops none."""
        inside = self._inside()
        return inside | self._missing() if self._attribute.outside == "drop" and inside is not None else None

    @property
    def expression(self) -> nw.Expr:
        """What to group by, under the name of the attribute."""
        name, column = self._attribute.name, self._column()
        if self._attribute.cuts is not None and (self._kind.is_integer() or self._kind.is_float()):
            above = [nw.when(column > cut).then(nw.lit(1)).otherwise(nw.lit(0)) for cut in self._edges()]
            return nw.when(~self._missing()).then(_sum(above)).alias(name)
        inside, stranger = self._inside(), self._stranger()
        if inside is None or stranger is None:
            return column.alias(name)
        return nw.when(inside | self._missing()).then(column).otherwise(nw.lit(stranger)).alias(name)

    def encode(self, column: pa.Array) -> Codes:
        """Return the codes of what came back."""
        if self._attribute.cuts is None or not (self._kind.is_integer() or self._kind.is_float()):
            return self._encoder.encode(column)
        bins: Codes = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int32)
        if column.null_count:
            bins[column.is_null().to_numpy(zero_copy_only=False)] = self._encoder.encode(pa.nulls(1, pa.float64()))[0]
        return bins

    def _column(self) -> nw.Expr:
        """Return the column, in a type whose values compare as the encoder does."""
        column = nw.col(self._attribute.name)
        if isinstance(self._kind, nw.Categorical | nw.Enum):
            return column.cast(nw.String)
        # −0.0 becomes 0.0, which not every engine takes for equal.
        return column.cast(nw.Float64) + 0.0 if self._kind.is_float() else column

    def _missing(self) -> nw.Expr:
        """Whether a value is missing."""
        column = nw.col(self._attribute.name)
        return column.is_null() | column.is_nan() if self._kind.is_float() else column.is_null()

    def _edges(self) -> list[float]:
        """Return the cuts; for whole numbers the whole numbers below them, which compares without rounding."""
        cuts = self._attribute.cuts or ()
        return [math.floor(cut) for cut in cuts] if self._kind.is_integer() else [float(cut) for cut in cuts]

    def _numeric(self) -> bool:
        return bool(self._kind.is_numeric())

    def _texts(self) -> bool:
        return isinstance(self._kind, nw.Categorical | nw.Enum) or self._kind == nw.String

    def _can_tell(self) -> bool:
        """Tell whether the engine can say which values are declared: not of a type such as a moment or a decimal."""
        if self._kind.is_float():
            return self._attribute.cuts is not None or self._attribute.declared <= _MOST_FLOATS
        if self._kind.is_integer():  # numbers of more than 63 bits are too long for the lists of some engines
            return all(abs(label) < 2**63 for label in self._attribute.labels or () if isinstance(label, int))
        known = self._texts() or self._kind == nw.Boolean or self._kind == nw.Date
        return known or (self._attribute.cuts is not None and self._numeric())

    def _declared(self) -> list[Any]:
        """Return the declared values that a column of this type can hold: none if it is of the wrong type."""
        labels = self._attribute.labels
        if self._texts():
            return [label for label in labels or () if isinstance(label, str)]
        if self._kind == nw.Boolean:
            return [label for label in labels or () if isinstance(label, bool)]
        if self._kind == nw.Date:
            return [day for label in labels or () if (day := _day(label)) is not None]
        numbers = [label for label in labels or () if isinstance(label, int | float) and not isinstance(label, bool)]
        if self._kind.is_integer():
            low, high = _limits(self._kind)
            return [int(number) for number in numbers if number == math.floor(number) and low <= number <= high]
        return [float(number) for number in numbers if _is_double(number)] if self._kind.is_float() else []

    def _inside(self) -> nw.Expr | None:
        """Whether a value is declared; None if the engine cannot tell, or the encoder must see what is there."""
        attribute, column = self._attribute, self._column()
        if attribute.cuts is not None or not self._can_tell():
            return None
        if attribute.labels is not None:
            declared = self._declared()
            return column.is_in(declared) if declared else None
        if self._kind.is_integer():
            return (column >= 0) & (column < min(attribute.declared, _limits(self._kind)[1] + 1))
        return column.is_in([float(code) for code in range(attribute.declared)]) if self._kind.is_float() else None

    def _stranger(self) -> Any:  # noqa: ANN401 - a value of the type of the column
        """Return a value outside the declared set; None if the type has none, or too few to matter."""
        declared = self._declared()
        if self._texts():
            return _first_free(["other", *(f"other {k}" for k in range(len(declared)))], declared)
        if self._attribute.labels is None:
            declared = [0, self._attribute.declared - 1]
        if self._kind.is_float():
            return max(declared, default=0.0) * 2 + 1.0 if max(declared, default=0.0) < 1e300 else None
        if self._kind.is_integer():
            low, high = _limits(self._kind)
            nearby = [-1, max(declared, default=0) + 1, min(declared, default=0) - 1]
            return _first_free([number for number in nearby if low <= number <= high], declared)
        return None


def _sum(terms: Sequence[nw.Expr]) -> nw.Expr:
    """Return a sum as a balanced tree: a chain of a hundred terms is too deep for some engines."""
    if len(terms) <= 2:
        return reduce(add, terms)
    middle = len(terms) // 2
    return _sum(terms[:middle]) + _sum(terms[middle:])


def _first_free(candidates: Sequence[Any], taken: Sequence[Any]) -> Any:  # noqa: ANN401 - of any type
    """Return the first candidate that is not taken."""
    return next((candidate for candidate in candidates if candidate not in taken), None)


def _limits(kind: nw.dtypes.DType | type[nw.dtypes.DType]) -> tuple[int, int]:
    """Return the smallest and the largest whole number of a type."""
    bits = int("".join(character for character in str(kind) if character.isdigit()) or 64)
    return (0, 2**bits - 1) if str(kind).startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _day(label: object) -> date | None:
    """Return the date that a label is."""
    try:
        found = date.fromisoformat(label) if isinstance(label, str) else None
    except ValueError:
        return None
    return found if found is not None and found.isoformat() == label else None


def _is_double(number: float) -> bool:
    """Return whether a double has exactly this value."""
    try:
        return float(number) == number
    except OverflowError:
        return False
