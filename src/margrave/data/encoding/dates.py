"""Codes of dates and times, which a domain declares as texts in the form of ISO 8601.

A column of dates is compared with the labels of the form ``2024-02-29``. A column of timestamps without a time zone is
compared with the labels of the forms ``2024-02-29`` (midnight), ``2024-02-29T23:59:59`` and ``2024-02-29 23:59:59.5``,
up to nine places of a second; one with a time zone with the labels that end in ``Z`` or in an offset such as
``+01:00``, and both are compared as moments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave.domain.values import CodeArray, Lookup
from margrave.errors import DataError

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1)
_DAY = 86_400
_BILLION = 10**9
# How many of a column's units a second has.
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": _BILLION}


class Moments:
    """The labels of an attribute that are dates or moments.

    Parameters
    ----------
    name
        The name of the attribute.
    texts
        The code of each label that is a text.
    """

    def __init__(self, name: str, texts: Mapping[str, int]) -> None:
        self._name = name
        self._dates = {text: code for text, code in texts.items() if _day(text) is not None}
        self._times = {text: code for text, code in texts.items() if _moment(text) is not None}
        self._lookups: dict[tuple[str, bool], Lookup] = {}

    def known(self, *, dates: bool, zoned: bool = False) -> bool:
        """Return whether any label is a date, or a moment with or without a time zone."""
        return bool(self._dates) if dates else bool(self._labels(zoned))

    def dates(self, days: NDArray[np.integer[Any]]) -> CodeArray:
        """Return the codes of dates, given as days since 1970."""
        if ("day", False) not in self._lookups:
            self._lookups["day", False] = Lookup({_day(text) or 0: code for text, code in self._dates.items()})
        return self._lookups["day", False].find(days)

    def times(self, values: NDArray[np.int64], unit: str, *, zoned: bool) -> CodeArray:
        """Return the codes of moments, given as seconds, milliseconds, … since 1970.

        Parameters
        ----------
        values
            The moments.
        unit
            ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.
        zoned
            Whether they are moments of a time zone, counted in UTC, or times on a clock.
        """
        if (unit, zoned) not in self._lookups:
            moments = {}
            for nanoseconds, code in self._labels(zoned).items():
                counted, rest = divmod(nanoseconds * _UNITS[unit], _BILLION)
                if not rest:
                    moments[counted] = code
            self._lookups[unit, zoned] = Lookup(moments)
        return self._lookups[unit, zoned].find(values)

    def _labels(self, zoned: bool) -> dict[int, int]:
        """Return the code of each declared moment, in nanoseconds since 1970."""
        codes: dict[int, int] = {}
        for text, code in self._times.items():
            moment = _moment(text)
            if moment is None or moment[1] is not zoned:
                continue
            if moment[0] in codes:
                raise DataError(
                    f"attribute {self._name!r} has two labels for one moment, one of them {text!r}, and its column "
                    "holds moments",
                    remedy="keep one of the two",
                )
            codes[moment[0]] = code
        return codes


def _day(text: str) -> int | None:
    """Return the days since 1970 of a date, or None if the text is not a date."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return (date.fromisoformat(text) - _EPOCH.date()).days
    except ValueError:
        return None


def _moment(text: str) -> tuple[int, bool] | None:
    """Return the nanoseconds since 1970 of a moment, and whether it has a time zone; None for any other text."""
    found = _TIME.fullmatch(text)
    day = _day(text) if found is None else _day(found[1])
    if day is None:
        return None
    if found is None:
        return day * _DAY * _BILLION, False
    try:
        clock = datetime.fromisoformat(f"1970-01-01T{found[2]}")
        offset = datetime.fromisoformat(f"1970-01-01T00:00:00{found[4] or 'Z'}").utcoffset() or timedelta(0)
    except ValueError:
        return None
    seconds = day * _DAY + (clock - _EPOCH) // timedelta(seconds=1) - offset // timedelta(seconds=1)
    return seconds * _BILLION + int((found[3] or "").ljust(9, "0")), found[4] is not None
