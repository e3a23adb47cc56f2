"""PRIVATE: values become codes here, and nowhere else, so that a table gives the same counts wherever it is stored.

What a column is compared with depends on its type:

- *texts* (also categories of a frame, enumerations): declared texts, see `margrave.data.encoding.texts`;
- *dates* and *timestamps*: declared texts in the form of ISO 8601, see `margrave.data.encoding.dates`;
- *numbers* of every width, decimals too: declared numbers, see `margrave.domain.values`;
- *truth values*: declared truth values.

Null and NaN are missing. A column of a type that the attribute does not declare is an error, unless all of it is
missing. The policies of the attribute decide what happens to undeclared and missing values. No message contains a value
or a number of rows.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from margrave.data.encoding.dates import Moments
from margrave.data.encoding.texts import Texts, read_texts
from margrave.domain import Attribute
from margrave.domain.values import MISSING, OUTSIDE, CodeArray, Numbers
from margrave.errors import DataError

# The code of a row that is left out of every table.
DROPPED = -1
_LARGEST_SIZE = 2**31 - 1
_A_DAY = 86_400_000  # milliseconds
_MOST_PLACES = 18


class Encoder:
    """Turns the values of a column into the codes of an attribute.

    Parameters
    ----------
    attribute
        What is declared.
    untyped
        Whether the column comes from a file without types, so that numbers and truth values are read from texts.
    decimal
        The mark before the fraction of a number that is read.
    """

    def __init__(self, attribute: Attribute, *, untyped: bool = False, decimal: str = ".") -> None:
        if attribute.size > _LARGEST_SIZE:
            raise DataError(
                f"attribute {attribute.name!r} has {attribute.size:,} values",
                remedy=f"at most {_LARGEST_SIZE:,} can be encoded",
            )
        values = attribute.values
        self._attribute, self._untyped, self._decimal = attribute, untyped, decimal
        self._texts, self._moments = Texts(values.texts, values.text_rule), Moments(attribute.name, values.texts)
        self._numbers, self._truths = values.numbers(), values.truths

    def encode(self, column: pa.Array | pa.ChunkedArray) -> CodeArray:
        """Return the code of each row; ``DROPPED`` for a row to be left out of every table."""
        return self.settle(self.classify(column))

    def settle(self, codes: CodeArray) -> CodeArray:
        """Return the codes of `classify` after the policies of the attribute; they are changed in place."""
        if not codes.size:
            return codes
        if codes.max() >= self._attribute.declared:
            raise self._no_such_code()
        if codes.min() < 0:
            outside, missing = codes == OUTSIDE, codes == MISSING
            if not ((codes >= 0) | outside | missing).all():
                raise self._no_such_code()
            self._settle_outside(codes, outside)
            self._settle_missing(codes, missing)
        return codes

    def _no_such_code(self) -> DataError:
        """Return the error for a kind of values that is wrongly implemented."""
        kind = type(self._attribute.values).__name__
        return DataError(
            f"the values of attribute {self._attribute.name!r} give codes that the attribute does not have",
            remedy=f"correct the class {kind}",
        )

    def _settle_outside(self, codes: CodeArray, outside: NDArray[np.bool_]) -> None:
        """Apply the policy of the attribute to values outside the declared set."""
        attribute = self._attribute
        if attribute.other_code is not None:
            codes[outside] = attribute.other_code
        elif attribute.outside == "drop":
            codes[outside] = DROPPED
        elif outside.any():
            raise DataError(
                f"column {attribute.name!r} has values that its attribute does not declare",
                remedy="declare them, or give the "
                'attribute an "other" category or "outside": "drop" (margrave validate shows how a table fits)',
            )

    def _settle_missing(self, codes: CodeArray, missing: NDArray[np.bool_]) -> None:
        """Count the missing values in their category, if there is one."""
        if self._attribute.missing_code is not None:
            codes[missing] = self._attribute.missing_code
        elif missing.any():
            raise DataError(
                f"column {self._attribute.name!r} has missing values and its attribute no category for them",
                remedy='give it one, as in "missing": "unknown"',
            )

    def classify(self, column: pa.Array | pa.ChunkedArray) -> CodeArray:
        """Return the code of each row before the policies: ``OUTSIDE`` or ``MISSING`` for what is not declared."""
        if isinstance(column, pa.ChunkedArray):
            parts = [self.classify(chunk) for chunk in column.chunks]
            return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
        if column.null_count == len(column):
            return np.full(len(column), MISSING, dtype=np.int32)
        if pa.types.is_dictionary(column.type):
            # A category that no row has is not a value of the table.
            found: CodeArray = self.classify(column.dictionary)[filled(column.indices)]
        else:
            found = self._of_kind(column)
        if column.null_count:
            found[column.is_null().to_numpy(zero_copy_only=False)] = MISSING
        return found

    def _of_kind(self, column: pa.Array) -> CodeArray:
        """Return the codes of a column by its type; missing values get any code."""
        kind = column.type
        if isinstance(kind, pa.BaseExtensionType):
            truth = isinstance(kind, pa.Bool8Type)
            return self._truth_values(pc.not_equal(column.storage, 0)) if truth else self._of_kind(column.storage)
        if pa.types.is_run_end_encoded(kind):
            return self.classify(pc.run_end_decode(column))
        if pa.types.is_boolean(kind):
            return self._truth_values(column)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return self._number_values(column)
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return self._moment_values(column)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return self._text_values(column)
        raise self._wrong_kind("values of another kind")

    def _text_values(self, column: pa.Array) -> CodeArray:
        if self._untyped:
            return read_texts(column, self._texts, self._numbers, self._truths, self._decimal)
        if not self._texts.declared:
            raise self._wrong_kind("texts")
        return self._texts.find(column)

    def _truth_values(self, column: pa.Array) -> CodeArray:
        if not self._truths:
            raise self._wrong_kind("truth values")
        codes = [self._truths.get(truth, OUTSIDE) for truth in (False, True)]
        found: CodeArray = np.array(codes, dtype=np.int32)[filled(column.cast(pa.uint8()))]
        return found

    def _number_values(self, column: pa.Array) -> CodeArray:
        if self._numbers is not None:
            return number_codes(column, self._numbers)
        # Where all values are missing, a frame may have made a column of NaN, whatever its type should be.
        if pa.types.is_floating(column.type) and np.isnan(filled(column)[column.is_valid()]).all():
            return np.full(len(column), MISSING, dtype=np.int32)
        raise self._wrong_kind("numbers")

    def _moment_values(self, column: pa.Array) -> CodeArray:
        kind = column.type
        dates, zoned = pa.types.is_date(kind), pa.types.is_timestamp(kind) and kind.tz is not None
        if not self._moments.known(dates=dates, zoned=zoned):
            raise self._wrong_kind("dates" if dates else "times with a zone" if zoned else "times without a zone")
        if pa.types.is_date32(kind):
            return self._moments.dates(buffer_of(column, np.int32))
        values = buffer_of(column, np.int64)
        return self._moments.dates(values // _A_DAY) if dates else self._moments.times(values, kind.unit, zoned=zoned)

    def _wrong_kind(self, found: str) -> DataError:
        """Return the error for a column of a type that the attribute does not declare."""
        attribute = self._attribute
        wanted = [("texts", self._texts.declared), ("numbers", self._numbers), ("truth values", self._truths)]
        declared = " or ".join(kind for kind, present in wanted if present)
        # Dates are declared as texts of a certain form.
        form = ", none of them of that form" if found.startswith(("dates", "times")) and self._texts.declared else ""
        return DataError(
            f"column {attribute.name!r} holds {found} and its attribute declares {declared}{form}",
            remedy="declare what the column holds, or convert the column",
        )


def buffer_of(column: pa.Array, dtype: DTypeLike) -> NDArray[Any]:
    """Return the values of a column of fixed width without copying them."""
    width = np.dtype(dtype).itemsize
    return np.frombuffer(column.buffers()[1], dtype=dtype, count=len(column), offset=column.offset * width)


def filled(column: pa.Array) -> NDArray[Any]:
    """Return the values of a column with 0 where one is missing."""
    values: NDArray[Any] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return values


def number_codes(column: pa.Array, numbers: Numbers) -> CodeArray:
    """Return the codes of a column of whole numbers, floating-point numbers or decimals."""
    if pa.types.is_decimal(column.type):
        return _decimal_codes(column, numbers)
    values = buffer_of(column, column.type.to_pandas_dtype())
    return numbers.whole(values) if values.dtype.kind in "iu" else numbers.real(values.astype(np.float64))


def _decimal_codes(column: pa.Array, numbers: Numbers) -> CodeArray:
    """Return the codes of decimals: as whole numbers of their last place, and where these are too large one by one."""
    values, fits = _last_places(column)
    if not 0 <= column.type.scale <= _MOST_PLACES:
        fits[:] = False
    codes = np.zeros(len(column), dtype=np.int32)
    if fits.any():
        codes[fits] = numbers.whole(values[fits], column.type.scale)
    if not fits.all():
        large = column.filter(pa.array(~fits)).cast(pa.decimal256(76, column.type.scale)).dictionary_encode()
        each = [0 if value is None else numbers.exact(Fraction(value)) for value in large.dictionary.to_pylist()]
        codes[~fits] = np.array(each or [0], dtype=np.int32)[filled(large.indices)]
    return codes


def _last_places(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return decimals as whole numbers of their last place, and which of them 64 bits can hold."""
    width = column.type.bit_width // 8
    if width <= np.dtype(np.int64).itemsize:
        values = buffer_of(column, f"<i{width}").astype(np.int64)
        return values, np.ones(len(column), dtype=np.bool_)
    words = np.frombuffer(column.buffers()[1], dtype="<i8").reshape(-1, width // 8)
    words = words[column.offset : column.offset + len(column)]
    values = words[:, 0].astype(np.int64)
    # All further words of a number that fits repeat its sign.
    return values, np.all(words[:, 1:] == (values >> 63)[:, None], axis=1)
