"""An attribute: a column, the finite set of values it may take, and what happens to a value that is not in the set.

An attribute knows its values as codes 0 … size − 1. First come the codes of the declared values, whose kind
`margrave.domain.values` describes. Then come, where they are asked for, one code for all *other* values and one for
*missing* values.

Conditions are compared with the categories as follows.

- A text names a category as the published tables write it: a text label, a bin such as ``(17, 34]``, the category of
  missing values. Texts are compared letter by letter.
- A number is equal to a numeric label of the same value, and to a code where only the size was declared.
- ``<``, ``<=``, ``>`` and ``>=`` compare numbers as the kind of the values says.
- Missing values lie in no range. Neither do *other* values where they cannot be numbers; where they can, a range is
  refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from margrave.domain.kinds import Bins, Labels, declare, value_keys
from margrave.domain.values import Label, Mask, Values, checked_text, is_number
from margrave.errors import DomainError, suggestion

Outside = Literal["error", "drop"]

_OUTSIDE = ("error", "drop")
_POLICIES = ("missing", "other", "outside")
_MOST_SHOWN = 12


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Attribute:
    """A column and its declared finite set of values.

    Parameters
    ----------
    name
        What the column is called; not empty.
    values
        The declared values as an object, such as ``Labels(["F", "M"])``; or leave it out and declare them by one of the
        keywords ``size``, ``labels``, ``cuts`` and ``groups``.
    size
        How many values are declared, at least 1; may be left out when ``labels`` or ``cuts`` are given. Without them
        the values are the whole numbers 0 … size − 1.
    labels
        The values in the order of their codes: texts, finite numbers or booleans, no two of them equal.
    cuts
        Strictly increasing finite numbers a < b < … < z that divide all numbers into one bin more, closed on
        the right and open at the ends: (−∞, a], (a, b], …, (z, ∞). Labels and cuts exclude each other.
    whole
        With ``cuts``, all of them whole: the values are whole numbers, as ages in years are. Bins are then named and
        compared by the whole numbers in them, ``18–64`` for (17, 64]; how numbers are binned stays the same.
    groups
        Values that are counted together, by the name of their category, as in ``{"Europe": ["France", "Italy"]}``.
    missing
        The category that counts missing values (null, NaN): the name of a declared one, or else one more after all
        others. None: a missing value is an error.
    other
        The category that counts values outside the declared set: the name of a declared one, or else one more after
        those. None: ``outside`` says what happens to such a value.
    outside
        ``"error"``: a value outside the declared set is an error; ``"drop"``: its row is left out of every table.
    description
        Words for the reader of the codebook.

    Attributes
    ----------
    size
        How many categories there are, including those for other and for missing values.
    declared
        How many of them are declared values; they come first.
    draft
        The warning of the draft that the attribute was read from, until a person has reviewed it; empty otherwise. A
        domain of such attributes is a draft. Attributes are equal whatever it says.
    """

    name: str
    values: Values
    missing: str | None
    other: str | None
    outside: Outside
    description: str
    size: int
    declared: int
    draft: str = field(default="")

    def __init__(
        self,
        name: str,
        *,
        values: Values | None = None,
        size: int | None = None,
        labels: Iterable[Label] | None = None,
        cuts: Iterable[float] | None = None,
        whole: bool = False,
        groups: Mapping[str, Iterable[Label]] | None = None,
        missing: str | None = None,
        other: str | None = None,
        outside: Outside = "error",
        description: str = "",
    ) -> None:
        keywords = {"size": size, "labels": labels, "cuts": cuts, "whole": whole, "groups": groups}
        object.__setattr__(self, "name", _checked_name(name))
        object.__setattr__(self, "values", _checked_values(name, values, keywords))
        object.__setattr__(self, "declared", self.values.size)
        object.__setattr__(self, "missing", _checked_category(f"the missing category of attribute {name!r}", missing))
        object.__setattr__(self, "other", _checked_category(f"the other category of attribute {name!r}", other))
        object.__setattr__(self, "outside", _checked_outside(name, outside, other))
        object.__setattr__(self, "description", checked_text(f"the description of attribute {name!r}", description))
        object.__setattr__(self, "size", self.declared + len(self._added))

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Attribute:
        """Make an attribute from its entry in a codebook.

        Parameters
        ----------
        entry
            Some of `attribute_keys`, with the name among them.
        """
        keys = value_keys()
        declared = {key: value for key, value in entry.items() if key in keys}
        words = {key: value for key, value in entry.items() if key not in keys}
        return cls(**words, values=declare(_checked_name(entry["name"]), declared))

    def entry(self) -> dict[str, object]:
        """Return the entry of the attribute in a codebook, without keys that have their default."""
        policies = (self.missing, self.other, None if self.outside == "error" else self.outside)
        words = dict(zip(_POLICIES, policies, strict=True)) | {"description": self.description or None}
        given = {key: value for key, value in words.items() if value is not None}
        return {"name": self.name, **self.values.entry(), **given}

    @property
    def labels(self) -> tuple[Label, ...] | None:
        """The declared labels, if the values are labels."""
        return self.values.labels if isinstance(self.values, Labels) else None

    @property
    def cuts(self) -> tuple[float, ...] | None:
        """The declared cuts, if the values are bins."""
        return self.values.cuts if isinstance(self.values, Bins) else None

    @property
    def whole(self) -> bool:
        """Whether the values are bins of whole numbers."""
        return isinstance(self.values, Bins) and self.values.whole

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """What each code means to people: its label, an interval such as ``(18, 65]``, or the code itself."""
        return *self.values.categories, *self._added

    @property
    def other_code(self) -> int | None:
        """The code of values outside the declared set, if they have one."""
        return None if self.other is None else self.code_named(self.other)

    @property
    def missing_code(self) -> int | None:
        """The code of missing values, if they have one."""
        return None if self.missing is None else self.code_named(self.missing)

    def code_named(self, category: str) -> int | None:
        """Return the code of the category with this name, if there is one."""
        code = self.values.code_named(category)
        if code is None and category in self._added:
            return self.declared + self._added.index(category)
        return code

    def among(self, values: Iterable[object]) -> Mask:
        """Return which categories are one of the values, shape (size,).

        Parameters
        ----------
        values
            Texts, numbers or booleans; each must be one of the categories.
        """
        mask = np.zeros(self.size, dtype=np.bool_)
        for value in values:
            mask[self._code_of(value)] = True
        return mask

    def compare(self, relation: str, value: object) -> Mask:
        """Return which categories are in a relation to a number, shape (size,).

        Parameters
        ----------
        relation
            One of < <= > >=.
        value
            A number; where the values are bins, one at which a bin begins or ends.
        """
        comparison = f"{self.name} {relation} {value!r}"
        if not is_number(value):
            raise DomainError(f"{comparison} does not compare with a number", remedy="write one, without quotes")
        if self.other is not None and not self.values.holds_every_number:
            raise DomainError(
                f"{comparison} is not clear: category {self.other!r} counts values outside the declared ones, which "
                f"may lie on either side",
                remedy=f"list the categories you mean, as in {self.name} in (…)",
            )
        mask = np.zeros(self.size, dtype=np.bool_)
        try:
            mask[: self.declared] = self.values.compare(relation, value, missing=self.missing_code)
        except DomainError as error:
            raise DomainError(f"{comparison} {error}") from error
        return mask

    def with_draft(self, draft: str) -> Attribute:
        """Return the same attribute with the warning of a draft, or with none."""
        if draft == self.draft:
            return self
        marked = copy(self)
        object.__setattr__(marked, "draft", draft)
        return marked

    @cached_property
    def _added(self) -> tuple[str, ...]:
        """The categories that are not declared, in the order of their codes."""
        asked = dict.fromkeys(name for name in (self.other, self.missing) if name is not None)
        return tuple(name for name in asked if self.values.code_named(name) is None)

    def _code_of(self, value: object) -> int:
        """Return the code of the category that a value names."""
        found: int | None = None
        if isinstance(value, str):
            found = self.code_named(value)
        elif isinstance(value, int | float):
            found = self.values.code_of(value)
        if found is None:
            raise DomainError(self._unknown(value))
        return found

    def _unknown(self, value: object) -> str:
        """Return what is wrong with a value that is not a category, and which categories there are."""
        shown = [repr(category) for category in self.categories[:_MOST_SHOWN]]
        listing = ", ".join([*shown, "…"] if self.size > _MOST_SHOWN else shown)
        if isinstance(value, str):
            hint = suggestion(value, self.categories)
        else:
            quoted = "; write it in quotes" if self.code_named(str(value)) is not None else ""
            hint = self.values.equality_hint or quoted
        return f"no value {value!r} of attribute {self.name!r}{hint} (it has {listing})"

    @property
    def _value(self) -> tuple[object, ...]:
        return self.name, self.values, self.missing, self.other, self.outside, self.description

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Attribute) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        _, *given = self.entry().items()
        return f"Attribute({', '.join([repr(self.name), *(f'{key}={value!r}' for key, value in given)])})"


def attribute_keys() -> tuple[str, ...]:
    """Return the keys of an attribute in a codebook, in the order in which they are written."""
    return "name", *value_keys(), *_POLICIES, "description"


def _checked_name(name: object) -> str:
    """Return the name of an attribute if it is text and not empty."""
    if not checked_text("the name of an attribute", name):
        raise DomainError("the name of an attribute is empty", remedy="give it at least one character")
    return str(name)


def _checked_values(name: str, values: object, keywords: Mapping[str, object]) -> Values:
    """Return the values that are given, as an object or by keywords, if it is one of the two."""
    if values is None:
        return declare(name, keywords)
    if not isinstance(values, Values):
        raise DomainError(
            f"attribute {name!r}: expected values such as Labels(['F', 'M']), got {values!r}",
            remedy="or give labels, cuts or a size",
        )
    for key, value in keywords.items():
        if value is not None and value is not False:
            raise DomainError(f"attribute {name!r} has both values and {key}", remedy="keep one of them")
    return values


def _checked_category(what: str, category: object) -> str | None:
    """Return the name of a category, or None."""
    return None if category is None else checked_text(what, category)


def _checked_outside(name: str, outside: object, other: str | None) -> Outside:
    """Return what happens to values outside the declared set, if it is one thing."""
    if outside not in _OUTSIDE:
        raise DomainError(f"attribute {name!r} has outside {outside!r}", remedy="write 'error' or 'drop'")
    if outside == "drop" and other is not None:
        raise DomainError(f"attribute {name!r} has outside 'drop' and an other category", remedy="keep one of them")
    return "drop" if outside == "drop" else "error"
