"""PRIVATE: how many rows persons have, for the eyes of the custodian who chooses ``contributions``; exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from margrave.data.profile import plain_values

# Limits for which it is told what they would cost.
CONTRIBUTIONS = (1, 2, 3, 5, 10)
# So many counts are held before those of the same person are added up.
_MOST_COUNTS = 2**21


@dataclass(frozen=True, repr=False)
class PersonFit:
    """How many rows the persons of a table have.

    Parameters
    ----------
    rows
        How many rows there are, those that the domain drops left out.
    most
        The most rows of one person.
    nobody
        How many rows have no id.
    lost
        For some limits on the rows of a person, the share of rows that it would leave out.
    """

    rows: int
    most: int
    nobody: int
    lost: dict[int, float]

    @property
    def problem(self) -> str:
        """Why rows cannot be bounded by this id; empty if they can."""
        return "rows without an id: give every row one, or leave such rows out by a query" if self.nobody else ""


class Persons:
    """Counts the rows of each person.

    Parameters
    ----------
    untyped
        Whether ids are texts, so that an empty one is none.
    """

    def __init__(self, *, untyped: bool) -> None:
        self._untyped = untyped
        self._parts: list[pa.Table] = []
        self._nobody = 0

    def add(self, ids: pa.Array) -> None:
        """Count some more rows."""
        known = plain_values(ids).drop_null()
        if pa.types.is_floating(known.type):
            known = known.filter(pc.invert(pc.is_nan(known)))
        if self._untyped:
            known = known.filter(pc.not_equal(known, ""))
        self._nobody += len(ids) - len(known)
        if len(known):
            counted = pa.table({"id": known, "rows": pa.repeat(np.int64(1), len(known))})
            self._parts.append(_summed([counted]))
        if sum(part.num_rows for part in self._parts) > _MOST_COUNTS and len(self._parts) > 1:
            self._parts = [_summed(self._parts)]

    def fit(self) -> PersonFit:
        """Return how many rows persons have, now that all were counted."""
        counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        if self._parts:
            counts = _summed(self._parts).column("rows").to_numpy()
        rows = int(counts.sum())
        lost = {most: float((counts - most).clip(min=0).sum() / rows) if rows else 0.0 for most in CONTRIBUTIONS}
        return PersonFit(rows + self._nobody, int(counts.max(initial=0)), self._nobody, lost)


def _summed(parts: list[pa.Table]) -> pa.Table:
    """Return the rows of each person in several tables together."""
    together = pa.concat_tables(parts, promote_options="permissive")
    return together.group_by("id").aggregate([("rows", "sum")]).rename_columns({"id": "id", "rows_sum": "rows"})
