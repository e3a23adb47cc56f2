"""The kinds of values that an attribute can have, and which one a set of keywords declares.

`Codes`: only the number of values is declared, and the values are the whole numbers below it. `Labels`: the values are
listed, as texts, numbers or booleans. `Bins`: all numbers, divided by cuts into intervals that are closed on the
right. `Groups`: listed values, several of which make one category. A new kind is one more subclass of `Values` and its
line in ``KINDS``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from margrave.domain.values import (
    NO_ORDER,
    RELATIONS,
    Intervals,
    Label,
    ListedNumbers,
    Mask,
    Range,
    Values,
    checked_list,
    checked_text,
    is_number,
)
from margrave.errors import DomainError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from margrave.domain.values import Doubles, WholeNumbers

# Beyond it a whole number need not have a float of its own, and two cuts could become equal.
_LARGEST_WHOLE_CUT = 2**53


@dataclass(frozen=True, init=False)
class Codes(Values):
    """The whole numbers 0 … size − 1, each its own code.

    Parameters
    ----------
    size
        How many there are, at least 1.
    """

    keys = ("size",)
    _size: int

    def __init__(self, size: int) -> None:
        object.__setattr__(self, "_size", checked_size(size))

    @property
    def size(self) -> int:
        """The number of codes; there may be too many to make a list of them."""
        return self._size

    @property
    def categories(self) -> tuple[str, ...]:
        """Each code as text."""
        return tuple(str(code) for code in range(self.size))

    def entry(self) -> dict[str, object]:
        """Return the key ``size``."""
        return {"size": self.size}

    def numbers(self) -> Range:
        """Return how numbers are coded: a whole number below the size is its own code."""
        return Range(self.size)

    def code_named(self, category: str) -> int | None:
        """Return the code with these digits, without a list of all codes."""
        if not (category.isascii() and category.isdecimal() and len(category) <= len(str(self.size))):
            return None
        code = int(category)
        return code if str(code) == category and code < self.size else None

    def code_of(self, value: float) -> int | None:
        """Return the code of this value."""
        return int(value) if is_number(value) and value in range(self.size) else None

    def compare(self, relation: str, number: float, *, missing: int | None) -> Mask:
        """Return which codes are in a relation to a number; the code of missing values is in no range."""
        found = (RELATIONS[relation](code, number) and code != missing for code in range(self.size))
        return np.fromiter(found, dtype=np.bool_, count=self.size)

    def made_up(self, codes: WholeNumbers, within: Doubles) -> NDArray[Any]:
        """Return the codes, which are the values."""
        return codes.astype(np.int64)

    @property
    def free_texts(self) -> Iterable[str]:
        """None: codes are named by numbers."""
        return ()


def checked_size(size: object) -> int:
    """Return the size if it is a whole number of at least 1."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise DomainError(f"the size is {size!r}", remedy="give a whole number of at least 1")
    return int(size)


@dataclass(frozen=True, init=False, eq=False)
class Labels(Values):
    """Values that are declared one by one.

    Parameters
    ----------
    labels
        The values in the order of their codes: texts, finite numbers or booleans, at least one, no two of them
        equal.
    """

    keys = ("labels",)
    labels: tuple[Label, ...]

    def __init__(self, labels: Iterable[Label]) -> None:
        object.__setattr__(self, "labels", _checked_labels(labels))

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """Each label as text."""
        return tuple(str(label) for label in self.labels)

    def entry(self) -> dict[str, object]:
        """Return the key ``labels``."""
        return {"labels": self.labels}

    @cached_property
    def texts(self) -> Mapping[str, int]:
        """The code of each label that is a text."""
        return {label: code for code, label in enumerate(self.labels) if isinstance(label, str)}

    @property
    def truths(self) -> Mapping[bool, int]:
        """The code of each label that is a boolean."""
        return {label: code for code, label in enumerate(self.labels) if isinstance(label, bool)}

    def numbers(self) -> ListedNumbers | None:
        """Return how the labels that are numbers are coded."""
        codes = self._numbers_by_code
        return ListedNumbers({number: code for code, number in codes.items()}) if codes else None

    def code_named(self, category: str) -> int | None:
        """Return the code of the label with this text; where both 1 and "1" are labels, the text is meant."""
        found = self.texts.get(category)
        return super().code_named(category) if found is None else found

    def code_of(self, value: float) -> int | None:
        """Return the code of the label of this value; a number is never a boolean."""
        same = (code for code, label in enumerate(self.labels) if _same(label, value))
        return next(same, None)

    def compare(self, relation: str, number: float, *, missing: int | None) -> Mask:
        """Return which labels are in a relation to a number; all except the missing category must be numbers."""
        numbers = {code: label for code, label in self._numbers_by_code.items() if code != missing}
        if len(numbers) < self.size - (missing is not None and missing < self.size):
            raise DomainError(NO_ORDER.format("its labels"))
        mask = np.zeros(self.size, dtype=np.bool_)
        mask[list(numbers)] = [RELATIONS[relation](label, number) for label in numbers.values()]
        return mask

    def made_up(self, codes: WholeNumbers, within: Doubles) -> NDArray[Any] | None:
        """Return the labels, if they are all numbers or all booleans."""
        kinds = {type(label) for label in self.labels}
        if not (kinds == {bool} or kinds <= {int, float}):
            return None
        values = np.array(self.labels)
        # A whole number beyond 64 bits has no column of its own.
        return values[codes] if values.dtype.kind in "bif" else None

    @property
    def free_texts(self) -> Iterable[str]:
        """The labels that are texts."""
        return self.texts

    @property
    def _numbers_by_code(self) -> dict[int, float]:
        """The label of each code that is a number."""
        return {code: label for code, label in enumerate(self.labels) if is_number(label)}

    # 0, False and 0.0 are equal in Python, but a column of numbers is not one of booleans: types count too.

    def __eq__(self, other: object) -> bool:
        return self._typed == other._typed if isinstance(other, Labels) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._typed)

    @property
    def _typed(self) -> tuple[object, ...]:
        return self.labels, tuple(type(label) for label in self.labels)


def _same(label: Label, value: float) -> bool:
    """Return whether a label has this value: numbers are equal by value, but no number is a boolean."""
    return isinstance(label, bool) == isinstance(value, bool) and label == value


def _checked_labels(labels: object) -> tuple[Label, ...]:
    """Return the labels if there are any and no two of them are equal."""
    seen: dict[Label, Label] = {}
    for given in checked_list("the labels", labels):
        label = _checked_label(given)
        if label in seen:
            raise DomainError(
                f"labels {seen[label]!r} and {label!r} are equal",
                remedy="give each value one label, and to tell 1, 1.0 and True apart write them as texts",
            )
        seen[label] = label
    if not seen:
        raise DomainError("the list of labels is empty", remedy="give at least one label")
    return tuple(seen)


def _checked_label(label: object) -> Label:
    """Return the label if a JSON file can hold it."""
    # By exact type: the member of an enumeration would come back from a file as something else.
    if type(label) is str:
        return checked_text("a label", label)
    if type(label) is int or type(label) is bool or (type(label) is float and math.isfinite(label)):
        return label
    raise DomainError(
        f"the label {label!r} cannot be written to a file", remedy="give texts, finite numbers or booleans"
    )


@dataclass(frozen=True, init=False)
class Bins(Values):
    """All numbers, divided by the cuts a < b < … < z into (−∞, a], (a, b], …, (z, ∞).

    Parameters
    ----------
    cuts
        Strictly increasing finite numbers, at least one.
    whole
        Whether the values are whole numbers, as ages in years are; all cuts are whole then. The bins are named and
        compared by the whole numbers in them, ``18–64`` for (17, 64]; how numbers are coded stays the same.
    """

    keys = ("cuts", "whole")
    holds_every_number = True
    cuts: tuple[float, ...]
    whole: bool

    def __init__(self, cuts: Iterable[float], whole: bool = False) -> None:
        edges = _checked_cuts(cuts)
        object.__setattr__(self, "cuts", edges)
        object.__setattr__(self, "whole", _checked_whole(whole, edges))

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """Each bin as an interval, ``(18, 65]``, or by its whole numbers, ``18–64``."""
        if self.whole:
            return _whole_bins([int(cut) for cut in self.cuts])
        edges = [_written(cut) for cut in self.cuts]
        return f"≤ {edges[0]}", *(f"({a}, {b}]" for a, b in pairwise(edges)), f"> {edges[-1]}"

    def entry(self) -> dict[str, object]:
        """Return the key ``cuts``, and ``whole`` if it is true."""
        return {"cuts": self.cuts, "whole": True} if self.whole else {"cuts": self.cuts}

    def numbers(self) -> Intervals:
        """Return how numbers are coded: by the number of cuts below them."""
        return Intervals(self.cuts)

    def compare(self, relation: str, number: float, *, missing: int | None) -> Mask:
        """Return which bins are in a relation to a number; a number inside a bin is refused.

        Each edge lies in the bin below it, so bins are divided by > and <= an edge alone. Between whole numbers
        ``>= 65`` is ``> 64`` and ``< 65`` is ``<= 64``. A bin that counts missing values too is compared like the
        others.
        """
        first = self._bins_below(relation, number)
        above: Mask = np.arange(self.size) >= first
        return above if relation.startswith(">") else ~above

    def made_up(self, codes: WholeNumbers, within: Doubles) -> NDArray[Any]:
        """Return numbers spread evenly over their bins; see `_ends` for the two that have no end."""
        low, high = (np.array(edges)[codes] for edges in self._ends)
        if self.whole:
            whole: NDArray[np.int64] = np.minimum(low + 1 + np.floor(within * (high - low)), high).astype(np.int64)
            return whole
        real: Doubles = np.clip(high - within * (high - low), np.nextafter(low, high), high)
        return real

    @property
    def _ends(self) -> tuple[list[float], list[float]]:
        """The bins as (low, high]; the outer ones are as wide as their neighbours, and cross zero only if a cut does.

        Amounts and ages are not negative where no cut is, so the first bin begins at zero then.
        """
        first, last = self.cuts[0], self.cuts[-1]
        neighbours = (self.cuts[1] - first, last - self.cuts[-2]) if len(self.cuts) > 1 else (1, 1)
        least = -1 if self.whole else 0
        below = max(first - neighbours[0], least) if first >= 0 else first - neighbours[0]
        return [below, *self.cuts], [*self.cuts, last + neighbours[1]]

    @property
    def equality_hint(self) -> str:
        """How a bin, or a range of bins, is written."""
        by = ">= or < and the first number of a bin" if self.whole else "> or <= and an edge"
        return f"; name a bin in quotes, or a range by {by}"

    @property
    def free_texts(self) -> Iterable[str]:
        """None: bins are named by numbers."""
        return ()

    def _bins_below(self, relation: str, number: float) -> int:
        """Return how many bins lie below an edge."""
        stepped = self.whole and relation in (">=", "<") and (isinstance(number, int) or number.is_integer())
        edge = number - 1 if stepped else number
        place = bisect_left(self.cuts, edge)
        exact = place < len(self.cuts) and self.cuts[place] == edge
        if exact and (stepped or relation in (">", "<=")):
            return place + 1
        nearest = (edge,) if exact else self.cuts[max(place - 1, 0) : place + 1]
        raise DomainError("would split a bin", remedy=f"{self._allowed_edges(nearest)}")

    def _allowed_edges(self, nearest: Iterable[float]) -> str:
        """Return at which numbers bins can be divided, and the nearest of them."""
        if self.whole:
            first = " and ".join(_written(edge + 1) for edge in nearest)
            return f"write >= or < and the first whole number of a bin (nearest: {first})"
        last = " and ".join(_written(edge) for edge in nearest)
        return f"write > or <= and one of its edges, each of which lies in the bin below it (nearest: {last})"


def _written(number: float) -> str:
    """Return a number as it stands in the name of a bin."""
    return repr(number).removesuffix(".0")


def _whole_bins(cuts: list[int]) -> tuple[str, ...]:
    """Return the names of bins of whole numbers: ``≤ 17``, ``18–64``, ``65``, ``≥ 66``."""
    inner = (str(b) if b == a + 1 else f"{a + 1}–{b}" for a, b in pairwise(cuts))
    return f"≤ {cuts[0]}", *inner, f"≥ {cuts[-1] + 1}"


def _checked_cuts(cuts: object) -> tuple[float, ...]:
    """Return the cuts if there are any and they are finite numbers in strictly increasing order."""
    edges = tuple(_checked_cut(cut) for cut in checked_list("the cuts", cuts))
    if not edges:
        raise DomainError("the list of cuts is empty", remedy="give at least one number to cut at")
    for a, b in pairwise(edges):
        if not a < b:
            raise DomainError(f"the cut {b!r} comes after {a!r}", remedy="sort the cuts, each once")
    return edges


def _checked_cut(cut: object) -> float:
    """Return the cut if it is a finite number that a float holds exactly."""
    if isinstance(cut, float) and math.isfinite(cut):
        return cut + 0.0  # −0.0 becomes 0.0
    if isinstance(cut, int) and not isinstance(cut, bool) and abs(cut) <= _LARGEST_WHOLE_CUT:
        return cut
    raise DomainError(f"the cut {cut!r} is not allowed", remedy="give finite numbers, whole ones within ±2⁵³")


def _checked_whole(whole: object, cuts: tuple[float, ...]) -> bool:
    """Return whether the values are whole numbers, if bins with these cuts allow it."""
    if not isinstance(whole, bool):
        raise DomainError(f"whole is {whole!r}", remedy="write true or false")
    if whole and any(cut != int(cut) for cut in cuts):
        raise DomainError("whole is for cuts at whole numbers, and not all of these are", remedy="leave it out")
    return whole


@dataclass(frozen=True, init=False)
class Groups(Values):
    """Values that are declared one by one and counted in groups, as countries by continent.

    Parameters
    ----------
    groups
        The values of each category, by its name: texts, finite numbers or booleans. No value is in two groups.
    """

    keys = ("groups",)
    groups: tuple[tuple[str, Labels], ...]

    def __init__(self, groups: Mapping[str, Iterable[Label]]) -> None:
        object.__setattr__(self, "groups", _checked_groups(groups))

    @property
    def categories(self) -> tuple[str, ...]:
        """The name of each group."""
        return tuple(name for name, _ in self.groups)

    def entry(self) -> dict[str, object]:
        """Return the key ``groups``."""
        return {"groups": {name: members.labels for name, members in self.groups}}

    @cached_property
    def texts(self) -> Mapping[str, int]:
        """The code of the group of each text."""
        return {text: code for code, (_, members) in enumerate(self.groups) for text in members.texts}

    @property
    def truths(self) -> Mapping[bool, int]:
        """The code of the group of each boolean."""
        return {truth: code for code, (_, members) in enumerate(self.groups) for truth in members.truths}

    def numbers(self) -> ListedNumbers | None:
        """Return how the numbers in the groups are coded."""
        codes = {
            label: code for code, (_, members) in enumerate(self.groups) for label in members.labels if is_number(label)
        }
        return ListedNumbers(codes) if codes else None

    @property
    def equality_hint(self) -> str:
        """How a group is written."""
        return "; name a group in quotes"


def _checked_groups(groups: object) -> tuple[tuple[str, Labels], ...]:
    """Return the groups if each has a name and values, and no value is in two of them."""
    if not isinstance(groups, Mapping):
        raise DomainError(
            f"the groups must be lists of values by name, got {groups!r}",
            remedy='write them as {"Europe": ["France", "Italy"], "Asia": ["Japan"]}',
        )
    found = tuple((checked_text("the name of a group", name), Labels(labels)) for name, labels in groups.items())
    if not found:
        raise DomainError("there are no groups", remedy="give at least one")
    owners: dict[Label, str] = {}
    for name, members in found:
        for label in members.labels:
            if label in owners:
                raise DomainError(
                    f"the value {label!r} is in the groups {owners[label]!r} and {name!r}", remedy="keep it in one"
                )
            owners[label] = name
    return found


# Each kind is one line here, in the order in which its keys stand in a codebook.
KINDS: tuple[type[Values], ...] = (
    Codes,
    Labels,
    Bins,
    Groups,
)


def value_keys() -> tuple[str, ...]:
    """Return the keys of all kinds of values in a codebook, in their order."""
    return tuple(key for kind in KINDS for key in kind.keys)


def declaring_keys() -> tuple[str, ...]:
    """Return the keys that each declare a kind of values by themselves."""
    return tuple(kind.keys[0] for kind in KINDS)


def declare(name: str, given: Mapping[str, object]) -> Values:
    """Return the values that keywords declare.

    Parameters
    ----------
    name
        The name of the attribute, for messages.
    given
        Keys of a codebook. A declaring key with None counts as left out. A size may be given with another kind, and
        must agree with it then.
    """
    kind = _declared_kind(name, given)
    try:
        values = kind(**{key: given[key] for key in kind.keys if key in given})
        size = None if given.get("size") is None else checked_size(given["size"])
    except DomainError as error:
        raise DomainError(f"attribute {name!r}: {error}") from error
    if size is not None and size != values.size:
        raise DomainError(f"attribute {name!r} has size {size} but {values.size} values", remedy="leave the size out")
    return values


def _declared_kind(name: str, given: Mapping[str, object]) -> type[Values]:
    """Return the one kind that is declared; options of other kinds are refused."""
    declared = [kind for kind in KINDS if given.get(kind.keys[0]) is not None]
    chosen = [kind for kind in declared if kind is not Codes] or declared
    if not chosen:
        raise DomainError(f"attribute {name!r} has neither {' nor '.join(declaring_keys())}", remedy="give one of them")
    if len(chosen) > 1:
        both = " and ".join(kind.keys[0] for kind in chosen)
        raise DomainError(f"attribute {name!r} has both {both}", remedy="keep one of them")
    for kind in KINDS:
        for option in kind.keys[1:]:
            if kind is not chosen[0] and given.get(option, False) is not False:
                raise DomainError(
                    f"attribute {name!r} has {option}, which is for {kind.keys[0]}", remedy="leave it out"
                )
    return chosen[0]
