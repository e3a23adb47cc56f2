"""An attribute: a column, the finite set of values it may take, and what is done with a value that is not one of them.

An attribute knows its values as codes 0 … size − 1. First come the codes of the values that are declared, by labels,
by cuts that part the numbers into bins, or by their number alone; then, where they are asked for, one for all *other*
values and one for *missing* values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from margrave.errors import DomainError

Label = str | int | float | bool
Outside = Literal["error", "drop"]

OUTSIDE = ("error", "drop")
# The keys of an attribute in a codebook, in the order they are written in.
KEYS = ("name", "size", "labels", "cuts", "whole", "missing", "other", "outside", "description")
# Beyond it a whole number need not have a float of its own, and two cuts could fall together.
_LARGEST_WHOLE_CUT = 2**53


@dataclass(frozen=True, init=False, eq=False)
class Attribute:
    """A column and its declared finite set of values.

    Parameters
    ----------
    name
        What the column is called; not empty.
    size
        How many values are declared, at least 1; may be left out when ``labels`` or ``cuts`` are given. Without them
        the values are the whole numbers 0 … size − 1.
    labels
        The values in the order of their codes: texts, finite numbers or truth values, no two of them equal.
    cuts
        Strictly increasing finite numbers a < b < … < z that part all numbers into one bin more, closed on
        the right and open at the ends: (−∞, a], (a, b], …, (z, ∞). Labels and cuts exclude each other.
    whole
        With ``cuts``, all of them whole: the values are whole numbers, as ages in years are. Bins are then named and
        asked for by the whole numbers in them, ``18–64`` for (17, 64]; how numbers are binned stays the same.
    missing
        The category that missing values (null, NaN) are counted in: the name of a declared one, or else one more after
        all others. None: a missing value is an error.
    other
        The category that values outside the declared set are counted in: the name of a declared one, or else one more
        after those. None: ``outside`` says what happens to such a value.
    outside
        ``"error"``: a value outside the declared set is an error; ``"drop"``: its row is left out of every table.
    description
        Words for the reader of the codebook.

    Attributes
    ----------
    size
        How many categories there are, those for other and for missing values included.
    declared
        How many of them are declared by labels, cuts or a size; they come first.
    draft
        The warning of the draft that the attribute was read from, until a person has reviewed it; empty otherwise. A
        domain of such attributes is a draft. Attributes are equal whatever it says.
    """

    name: str
    size: int
    labels: tuple[Label, ...] | None
    cuts: tuple[float, ...] | None
    whole: bool
    missing: str | None
    other: str | None
    outside: Outside
    description: str
    declared: int
    draft: str = field(default="", repr=False)

    def __init__(
        self,
        name: str,
        *,
        size: int | None = None,
        labels: Iterable[Label] | None = None,
        cuts: Iterable[float] | None = None,
        whole: bool = False,
        missing: str | None = None,
        other: str | None = None,
        outside: Outside = "error",
        description: str = "",
    ) -> None:
        if not checked_text("the name of an attribute", name):
            raise DomainError("the name of an attribute is empty; give it at least one character")
        if labels is not None and cuts is not None:
            raise DomainError(f"attribute {name!r} has both labels and cuts; keep one of them")
        values = None if labels is None else _checked_labels(name, labels)
        edges = None if cuts is None else _checked_cuts(name, cuts)
        implied = len(values) if values is not None else len(edges) + 1 if edges is not None else None
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "labels", values)
        object.__setattr__(self, "cuts", edges)
        object.__setattr__(self, "whole", _checked_whole(name, whole, edges))
        object.__setattr__(self, "declared", _checked_size(name, size, implied))
        object.__setattr__(self, "missing", _checked_category(f"the missing category of attribute {name!r}", missing))
        object.__setattr__(self, "other", _checked_category(f"the other category of attribute {name!r}", other))
        object.__setattr__(self, "outside", _checked_outside(name, outside, other))
        object.__setattr__(self, "description", checked_text(f"the description of attribute {name!r}", description))
        object.__setattr__(self, "size", self.declared + len(self._added))

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """What each code means to people: its label, an interval such as ``(18, 65]``, or the code itself."""
        return *self._declared_categories, *self._added

    @property
    def other_code(self) -> int | None:
        """The code of values outside the declared set, if they have one."""
        return None if self.other is None else self._code(self.other)

    @property
    def missing_code(self) -> int | None:
        """The code of missing values, if they have one."""
        return None if self.missing is None else self._code(self.missing)

    @cached_property
    def _declared_categories(self) -> tuple[str, ...]:
        if self.labels is not None:
            return tuple(str(label) for label in self.labels)
        if self.cuts is not None:
            if self.whole:
                return _whole_bins([int(cut) for cut in self.cuts])
            edges = [repr(cut).removesuffix(".0") for cut in self.cuts]
            return f"≤ {edges[0]}", *(f"({a}, {b}]" for a, b in pairwise(edges)), f"> {edges[-1]}"
        return tuple(str(code) for code in range(self.declared))

    @cached_property
    def _added(self) -> tuple[str, ...]:
        """The categories that are not declared, in the order of their codes."""
        asked = dict.fromkeys(name for name in (self.other, self.missing) if name is not None)
        return tuple(name for name in asked if self._declared_code(name) is None)

    def _code(self, category: str) -> int:
        """Return the code of the category for other or for missing values."""
        code = self._declared_code(category)
        return self.declared + self._added.index(category) if code is None else code

    def _declared_code(self, category: str) -> int | None:
        """Return the code of a declared category by its name, if there is one."""
        if self.labels is None and self.cuts is None:
            # There may be too many categories to make a list of them.
            digits = category.isascii() and category.isdecimal() and len(category) <= len(str(self.declared))
            return (
                int(category) if digits and str(int(category)) == category and int(category) < self.declared else None
            )
        # Where both "1" and 1 are labels, the text is meant.
        named = self.labels if self.labels is not None and category in self.labels else self._declared_categories
        return named.index(category) if category in named else None

    def with_draft(self, draft: str) -> Attribute:
        """Return the same attribute with the warning of a draft, or with none."""
        if draft == self.draft:
            return self
        marked = copy(self)
        object.__setattr__(marked, "draft", draft)
        return marked

    @property
    def _value(self) -> tuple[object, ...]:
        # 0, False and 0.0 are equal in Python, yet a column of numbers is not one of truth values: types count too.
        kinds = None if self.labels is None else tuple(type(label) for label in self.labels)
        policies = self.missing, self.other, self.outside
        return self.name, self.declared, self.labels, kinds, self.cuts, self.whole, policies, self.description

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Attribute) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)


def checked_text(what: str, value: object) -> str:
    """Return the value if it is text that a file in UTF-8 can hold."""
    if not isinstance(value, str):
        raise DomainError(f"{what} must be text, got {value!r}; write it in quotes")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DomainError(f"{what} holds half a character, {value!r}; write whole ones only") from None
    return value


def _listed(what: str, values: object) -> tuple[object, ...]:
    """Return the values of an ordered collection, numpy's scalars as Python's."""
    # The characters of a text, the keys of a mapping and the order of a set are never what was meant.
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping | set | frozenset):
        raise DomainError(f"{what} must be a list, got {values!r}; write them in order in [ ]")
    return tuple(value.item() if isinstance(value, np.generic) else value for value in values)


def _checked_size(name: str, size: object, implied: int | None) -> int:
    """Return the size given or else implied by labels or cuts, which must agree when both are there."""
    if size is None and implied is None:
        raise DomainError(f"attribute {name!r} has neither size nor labels nor cuts; give one of them")
    given = implied if size is None else size
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 1:
        raise DomainError(f"attribute {name!r} has size {given!r}; give a whole number of at least 1")
    if implied is not None and given != implied:
        raise DomainError(f"attribute {name!r} has size {given} but {implied} values; leave the size out")
    return int(given)


def _checked_category(what: str, category: object) -> str | None:
    """Return the name of a category, or None."""
    return None if category is None else checked_text(what, category)


def _checked_outside(name: str, outside: object, other: str | None) -> Outside:
    """Return what is done with values outside the declared set, if it is one thing."""
    if outside not in OUTSIDE:
        raise DomainError(f"attribute {name!r} has outside {outside!r}; write 'error' or 'drop'")
    if outside == "drop" and other is not None:
        raise DomainError(f"attribute {name!r} has outside 'drop' and an other category; keep one of them")
    return "drop" if outside == "drop" else "error"


def _checked_labels(name: str, labels: object) -> tuple[Label, ...]:
    """Return the labels if no two of them are equal."""
    seen: dict[Label, Label] = {}
    for given in _listed(f"the labels of attribute {name!r}", labels):
        label = _checked_label(name, given)
        if label in seen:
            raise DomainError(
                f"labels {seen[label]!r} and {label!r} of attribute {name!r} are equal; give each value one "
                "label, and where 1, 1.0 and True are to differ write them as texts"
            )
        seen[label] = label
    return tuple(seen)


def _checked_label(name: str, label: object) -> Label:
    """Return the label if a JSON file can hold it."""
    # By exact type: the member of an enumeration would come back from a file as something else.
    if type(label) is str:
        return checked_text(f"a label of attribute {name!r}", label)
    if type(label) is int or type(label) is bool or (type(label) is float and math.isfinite(label)):
        return label
    raise DomainError(f"attribute {name!r} has the label {label!r}; give texts, finite numbers or booleans")


def _checked_cuts(name: str, cuts: object) -> tuple[float, ...]:
    """Return the cuts if there are any and they are finite numbers in strictly increasing order."""
    edges = tuple(_checked_cut(name, cut) for cut in _listed(f"the cuts of attribute {name!r}", cuts))
    if not edges:
        raise DomainError(f"attribute {name!r} has an empty list of cuts; give at least one number to cut at")
    for a, b in pairwise(edges):
        if not a < b:
            raise DomainError(f"attribute {name!r} has the cut {b!r} after {a!r}; sort them, each once")
    return edges


def _checked_whole(name: str, whole: object, cuts: tuple[float, ...] | None) -> bool:
    """Return whether the values are whole numbers, if that can be said of bins with these cuts."""
    if not isinstance(whole, bool):
        raise DomainError(f"attribute {name!r} has whole {whole!r}; write true or false")
    if whole and (cuts is None or any(cut != int(cut) for cut in cuts)):
        raise DomainError(f"attribute {name!r} is said to be whole, which is for cuts at whole numbers; leave it out")
    return whole


def _whole_bins(cuts: list[int]) -> tuple[str, ...]:
    """Return the names of bins of whole numbers: ``≤ 17``, ``18–64``, ``65``, ``≥ 66``."""
    inner = (str(b) if b == a + 1 else f"{a + 1}–{b}" for a, b in pairwise(cuts))
    return f"≤ {cuts[0]}", *inner, f"≥ {cuts[-1] + 1}"


def _checked_cut(name: str, cut: object) -> float:
    """Return the cut if it is a finite number that a float holds exactly."""
    if isinstance(cut, float) and math.isfinite(cut):
        return cut + 0.0  # −0.0 becomes 0.0
    if isinstance(cut, int) and not isinstance(cut, bool) and abs(cut) <= _LARGEST_WHOLE_CUT:
        return cut
    raise DomainError(f"attribute {name!r} has the cut {cut!r}; give finite numbers, whole ones within ±2⁵³")
