"""What a file of another tool says about a column, as the keywords of an attribute.

In every such file a column may carry the key ``margrave``: with an object such as ``{"cuts": [18, 65]}``, whose keys
are those of an attribute in a codebook and override what the file says, or with ``false``, which leaves the column
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from margrave.domain.attribute import Attribute, attribute_keys
from margrave.domain.values.registry import declaring_keys
from margrave.errors import DomainError
from margrave.strict_json import check_keys

HINT = "margrave"
# What missing values are called where a file allows them and does not name them.
MISSING = "missing"
# A longer range of numbers is rarely meant as a list of categories.
_LONGEST_RANGE = 1000
_MOST_SHOWN = 12


@dataclass(frozen=True)
class Column:
    """A column of a file of another tool.

    Parameters
    ----------
    name
        What the column is called in the table.
    declared
        What the file says about it, as keywords of `Attribute`.
    lacks
        Why this is not a finite set of values; empty if it is.
    hint
        The value of the key ``margrave``, if there is one.
    """

    name: str
    declared: Mapping[str, Any] = field(default_factory=dict)
    lacks: str = ""
    hint: object = None


def attributes_of(columns: Iterable[Column]) -> list[Attribute]:
    """Return the attributes that columns declare; refuse columns without a finite set that are not left out."""
    found, lacking = [], []
    for column in columns:
        keywords = _keywords(column)
        if keywords is None:
            continue
        if any(key in keywords for key in declaring_keys()):
            found.append(Attribute.from_entry(keywords))
        else:
            lacking.append(f"{column.name} ({column.lacks})")
    if lacking:
        more = [f"and {len(lacking) - _MOST_SHOWN} more"] if len(lacking) > _MOST_SHOWN else []
        raise DomainError(
            f"these columns do not declare a finite set of values: {', '.join([*lacking[:_MOST_SHOWN], *more])}",
            remedy=f'add to each "{HINT}": {{"cuts": […]}} or {{"labels": […]}}, or "{HINT}": false to leave it out',
        )
    if not found:
        raise DomainError("the file describes no column", remedy="name at least one with its values")
    return found


def _keywords(column: Column) -> dict[str, Any] | None:
    """Return the keywords of the attribute; the hint overrides the file. None for a column to leave out."""
    hint = {} if column.hint is None else column.hint
    if hint is False:
        return None
    if not isinstance(hint, dict):
        raise DomainError(
            f'column {column.name!r} has "{HINT}": {hint!r}', remedy="write an object with its values, or false"
        )
    given = {**hint, "name": column.name}
    check_keys(f'the "{HINT}" of column {column.name!r}', given, attribute_keys(), needed="name")
    values = declaring_keys()
    replaced = values if any(key in hint for key in values) else ()
    declared = {key: value for key, value in column.declared.items() if key not in replaced}
    return {**declared, **given}


def whole_range(lower: object, upper: object) -> tuple[list[int] | None, str]:
    """Return the whole numbers from lower to upper, or None and why they cannot be a list of categories."""
    if not _is_whole(lower) or not _is_whole(upper):
        return None, f"numbers from {lower} to {upper}" if _is_number(lower) and _is_number(upper) else "no values"
    first, last = int(str(lower)), int(str(upper))
    if last < first:
        return None, f"no whole number from {first} to {last}"
    if last - first >= _LONGEST_RANGE:
        return None, f"{last - first + 1:,} whole numbers"
    return list(range(first, last + 1)), ""


def meanings(description: str, codes: Mapping[str, object]) -> str:
    """Return a description with the meaning of each code, unless there are too many of them."""
    if not codes or len(codes) > _MOST_SHOWN:
        return description
    listed = "; ".join(f"{code} = {meaning}" for code, meaning in codes.items())
    return f"{description}: {listed}" if description else listed


def text_of(value: object) -> str:
    """Return a text of a file, or an empty one for a value of another type."""
    return value if isinstance(value, str) else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
