"""A table in memory whose values are codes already: the simplest source of exact counts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margrave.algebra.kernels import Integers
from margrave.algebra.layout import Layout
from margrave.data.counting.tally import Codes, code_type, count_closure
from margrave.domain import Domain
from margrave.errors import DataError

_LARGEST_SIZE = 2**16


class CodedTable:
    """Rows held in memory as codes 0 … size − 1 of a declared domain.

    Parameters
    ----------
    domain
        The declared domain.
    columns
        The codes of every attribute of the domain, by name, all of one length.
    """

    def __init__(self, domain: Domain, columns: Mapping[str, ArrayLike]) -> None:
        codes = [_codes_of(domain, name, columns) for name in domain.attributes]
        if len({len(column) for column in codes}) > 1:
            raise DataError("the columns have different lengths", remedy="give one code a row in each")
        self.domain = domain
        stacked = _stacked(codes, domain)
        if stacked is None:
            raise DataError("the table does not fit in memory", remedy="use a machine with more")
        self._codes = stacked

    def count(self, layout: Layout) -> Integers:
        """Return the exact counts of every table of a closure over the domain, in one buffer."""
        return count_closure(layout, self._codes)

    def __repr__(self) -> str:
        # The number of rows is private too.
        return f"CodedTable({len(self.domain)} attributes)"


def _codes_of(domain: Domain, name: str, columns: Mapping[str, ArrayLike]) -> NDArray[np.uint16]:
    """Return the codes of one attribute, checked against its size; no value is shown."""
    if name not in columns:
        raise DataError(f"there is no column {name!r}", remedy="give the codes of every attribute of the domain")
    codes, size = _array(columns[name]), domain[name].size
    if size > _LARGEST_SIZE:
        raise DataError(
            f"attribute {name!r} has {size:,} values", remedy=f"at most {_LARGEST_SIZE:,} can be counted in memory"
        )
    if codes is not None and codes.size == 0:
        return np.empty(0, dtype=np.uint16)  # an empty list has no type, and an empty table fits every domain
    if codes is None or codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise DataError(f"column {name!r} is not a list of whole numbers", remedy="give one code a row")
    if codes.size and (int(codes.min()) < 0 or int(codes.max()) >= size):
        raise DataError(f"column {name!r} has codes outside 0 … {size - 1}", remedy="encode it by the declared domain")
    return codes.astype(np.uint16)


def _array(column: ArrayLike) -> NDArray[np.generic] | None:
    """Return the column as an array, or None.

    The text of an error may contain the number of rows or a value, so it is not shown.
    """
    try:
        return np.asarray(column)
    except Exception:
        return None


def _stacked(codes: list[NDArray[np.uint16]], domain: Domain) -> Codes | None:
    """Return the columns as one array, or None if there is no room: numpy's error would tell the number of rows."""
    try:
        return np.array(codes, dtype=code_type(domain.shape)).reshape(len(codes), -1 if codes else 0)
    except MemoryError:
        return None
