"""Which categories of an attribute a comparison means: by label, by number, or by the edges of its bins.

- A text names a category as the published tables write it: a text label, a bin such as ``(17, 34]``, the category of
  missing values. Texts are compared letter by letter.
- A number is equal to a numeric label of the same value, and to a code where only the size was declared.
- ``<``, ``<=``, ``>`` and ``>=`` compare numeric labels by value. Bins can be parted at their edges alone, and as each
  edge lies in the bin below it, only by ``>`` and ``<=``; where the values are whole numbers ``>= 65`` is ``> 64`` and
  ``< 65`` is ``<= 64``. Labels in words have no order here.
- Missing values lie in no range. Neither does what is counted as *other* where it is not a number; where it may be one,
  a range is refused.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TypeGuard

import numpy as np

from margrave.domain import Attribute, Label
from margrave.errors import QueryError, suggestion
from margrave.release.uncertainty import Mask

_MOST_SHOWN = 12
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
RANGES = tuple(_COMPARE)


def among(attribute: Attribute, values: Iterable[object]) -> Mask:
    """Return which categories are one of the values, shape (size,).

    Parameters
    ----------
    attribute
        The attribute.
    values
        Texts, numbers or truth values; each must be one of its categories.
    """
    mask = np.zeros(attribute.size, dtype=np.bool_)
    for value in values:
        mask[_code(attribute, value)] = True
    return mask


def compare(attribute: Attribute, relation: str, value: object) -> Mask:
    """Return which categories stand in a relation to a number, shape (size,).

    Parameters
    ----------
    attribute
        The attribute: with cuts, numeric labels, or only a size.
    relation
        One of < <= > >=.
    value
        A number; for an attribute with cuts one of them.
    """
    if not _is_number(value):
        raise QueryError(f"{attribute.name} {relation} {value!r} compares with no number; write one, without quotes")
    mask = np.zeros(attribute.size, dtype=np.bool_)
    if attribute.cuts is not None:
        first = _bins_below(attribute, relation, value)
        mask[: attribute.declared] = (np.arange(attribute.declared) >= first) == relation.startswith(">")
    else:
        numbers = _numbers(attribute, relation)
        mask[list(numbers)] = [_COMPARE[relation](number, value) for number in numbers.values()]
    return mask


def _code(attribute: Attribute, value: object) -> int:
    """Return the code of the category that a value names."""
    found: int | None = None
    if isinstance(value, str):
        found = _named(attribute, value)
    elif attribute.labels is not None and isinstance(value, int | float):
        found = next((code for code, label in enumerate(attribute.labels) if _same(label, value)), None)
    elif attribute.labels is None and attribute.cuts is None and _is_number(value):
        found = int(value) if value in range(attribute.declared) else None
    if found is None:
        raise QueryError(_unknown(attribute, value))
    return found


def _named(attribute: Attribute, text: str) -> int | None:
    """Return the code of the category with this name; where both 1 and "1" are labels, the text is meant."""
    if attribute.labels is not None and text in attribute.labels:
        return attribute.labels.index(text)
    return attribute.categories.index(text) if text in attribute.categories else None


def _same(label: Label, value: float) -> bool:
    """Tell whether a value is a label: numbers by value, but no number is a truth value."""
    return isinstance(label, bool) == isinstance(value, bool) and label == value


def _is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a number, which a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unknown(attribute: Attribute, value: object) -> str:
    """Return what is wrong with a value that names no category, and which there are."""
    shown = [repr(category) for category in attribute.categories[:_MOST_SHOWN]]
    listing = ", ".join([*shown, "…"] if attribute.size > _MOST_SHOWN else shown)
    if isinstance(value, str):
        hint = suggestion(value, attribute.categories)
    elif attribute.cuts is not None:
        range_by = ">= or < and the first number of a bin" if attribute.whole else "> or <= and an edge"
        hint = f"; name a bin in quotes, or a range by {range_by}"
    else:
        hint = "; write it in quotes" if str(value) in attribute.categories else ""
    return f"no value {value!r} of attribute {attribute.name!r}{hint} (it has {listing})"


def _bins_below(attribute: Attribute, relation: str, value: float) -> int:
    """Return how many bins lie below an edge."""
    edges = attribute.cuts or ()
    stepped = attribute.whole and relation in (">=", "<") and (isinstance(value, int) or value.is_integer())
    edge = value - 1 if stepped else value
    place = bisect_left(edges, edge)
    exact = place < len(edges) and edges[place] == edge
    if exact and (stepped or relation in (">", "<=")):
        return place + 1
    nearest = [edge] if exact else edges[max(place - 1, 0) : place + 1]
    raise QueryError(
        f"{attribute.name} {relation} {value!r} would part a bin of attribute {attribute.name!r}; "
        f"{_allowed_edges(attribute, nearest)}"
    )


def _allowed_edges(attribute: Attribute, nearest: Iterable[float]) -> str:
    """Return at which numbers bins can be parted, and the nearest of them."""
    if attribute.whole:
        first = " and ".join(_spoken(edge + 1) for edge in nearest)
        return f"write >= or < and the first whole number of a bin (nearest: {first})"
    last = " and ".join(_spoken(edge) for edge in nearest)
    return f"write > or <= and one of its edges, each of which lies in the bin below it (nearest: {last})"


def _spoken(number: float) -> str:
    return repr(number).removesuffix(".0")


def _numbers(attribute: Attribute, relation: str) -> dict[int, float]:
    """Return the number of each category that is one, by code; refuse where a range would not be clear."""
    name = attribute.name
    if attribute.other_code is not None:
        category = attribute.categories[attribute.other_code]
        raise QueryError(
            f"{name} {relation} … is not clear: category {category!r} counts values outside the declared ones, which "
            f"may lie on either side; list the categories you mean, as in {name} in (…)"
        )
    values: Iterable[Label] = range(attribute.declared) if attribute.labels is None else attribute.labels
    known = {code: value for code, value in enumerate(values) if code != attribute.missing_code}
    numbers = {code: value for code, value in known.items() if _is_number(value)}
    if len(numbers) < len(known):
        raise QueryError(
            f"{name} {relation} … has no meaning: the labels of attribute {name!r} are not all numbers; list those you "
            f"mean, as in {name} in (…)"
        )
    return numbers
