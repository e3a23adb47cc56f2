"""The values of Arrow columns as arrays: what is missing has some value in them, and is masked by the caller."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from margrave.domain.values.numbers import CodeArray, Numbers

_MOST_PLACES = 18


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
