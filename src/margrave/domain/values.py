"""What every kind of values has in common: categories, coding, comparing and an entry in the codebook.

An attribute declares a finite set of values. How it does so is its *kind*: labels, bins of numbers or the whole numbers
below a size (``kinds``). All that the rest of margrave asks about a set of values it asks through `Values`, so a new
kind is one subclass and one line in ``kinds``.

Sets of numbers say which label, which bin or which whole number each number of a column is. Numbers are equal by value,
however they are stored: 1, 1.0 and the decimal 1.00. Whole numbers and decimals are compared exactly, at any size;
floating-point numbers as doubles. A label or a cut with a fraction, such as 0.3, stands for the decimal 0.3 where
decimals are compared with it, and for the double next to it where doubles are.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from margrave.errors import DomainError

Label = str | int | float | bool
Mask = NDArray[np.bool_]

# The comparisons by order.
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CodeArray = NDArray[np.int32]
WholeNumbers = NDArray[np.integer[Any]]
Doubles = NDArray[np.float64]

# The marks of values that are not declared or missing; the policies of the attribute turn them into codes.
OUTSIDE, MISSING = -2, -3
# The largest range of numbers whose codes are looked up in a table: 4 MiB of it.
_LARGEST_TABLE = 2**20


class Values(ABC):
    """The declared values of an attribute: a set of categories with the codes 0 … size − 1.

    A kind must have `keys`, `categories` and `entry`, and say how the values of a column are coded: by `texts`,
    `text_rule`, `truths` or `numbers`. Everything else has a default. Kinds are frozen, equal by value and hashable.

    Attributes
    ----------
    keys
        The keys of the kind in a codebook, which are also the keywords of its constructor. The first one declares the
        kind; the others are options.
    holds_every_number
        Whether each number is in the set, so that a value outside of it is never a number.
    """

    keys: ClassVar[tuple[str, ...]]
    holds_every_number: ClassVar[bool] = False

    @property
    @abstractmethod
    def categories(self) -> tuple[str, ...]:
        """The name of each category, in the order of the codes."""

    @property
    def size(self) -> int:
        """The number of categories."""
        return len(self.categories)

    @abstractmethod
    def entry(self) -> dict[str, object]:
        """Return the keys of the codebook that declare these values; options that are off are left out."""

    # Coding: what a value of a column is. Values that none of these know are outside the declared set.

    @property
    def texts(self) -> Mapping[str, int]:
        """The code of each text that is declared by itself; dates and times are declared as texts too."""
        return {}

    @property
    def text_rule(self) -> Callable[[str], int | None] | None:
        """The code of any text that is not in `texts`, if a rule gives it; the rule returns None for other texts."""
        return None

    @property
    def truths(self) -> Mapping[bool, int]:
        """The code of each declared boolean."""
        return {}

    def numbers(self) -> Numbers | None:
        """Return how numbers are coded; None if no number is declared."""
        return None

    # Comparing: what a condition such as ``age >= 65`` means.

    def code_named(self, category: str) -> int | None:
        """Return the code of the category with this name, if there is one."""
        return self.categories.index(category) if category in self.categories else None

    def code_of(self, value: float) -> int | None:
        """Return the code of the category that is exactly this number or boolean, if there is one."""
        return None

    def compare(self, relation: str, number: float, *, missing: int | None) -> Mask:
        """Return which categories are in a relation to a number, shape (size,).

        Parameters
        ----------
        relation
            One of < <= > >=.
        number
            The number on the right-hand side.
        missing
            The code of the category that counts missing values, which are in no range; None if there is none.
        """
        raise DomainError(NO_ORDER.format("its categories"))

    @property
    def equality_hint(self) -> str:
        """What to write instead of ``= number`` where no category is a single number; empty if there is no advice."""
        return ""

    def made_up(self, codes: WholeNumbers, within: Doubles) -> NDArray[Any] | None:
        """Return a value of each category, as a column of numbers or booleans holds it; None if names must do.

        Parameters
        ----------
        codes
            Codes of declared values, any number of them.
        within
            As many numbers from 0 to 1, 1 excluded: which value of a category that has several.
        """
        return None

    # Describing.

    @property
    def free_texts(self) -> Iterable[str]:
        """The names of categories that people chose freely, so that they may contain anything."""
        return self.categories


# Why values without an order cannot be compared, given what has none.
NO_ORDER = "has no meaning: {} are not all numbers; list the categories you mean with in (…)"


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number; a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def checked_text(what: str, value: object) -> str:
    """Return the value if it is text that a file in UTF-8 can hold."""
    if not isinstance(value, str):
        raise DomainError(f"{what} must be text, got {value!r}", remedy="write it in quotes")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DomainError(
            f"{what} contains an unpaired surrogate, {value!r}", remedy="write whole characters only"
        ) from None
    return value


def checked_list(what: str, values: object) -> tuple[object, ...]:
    """Return the items of an ordered collection, with numpy scalars as Python values."""
    # The characters of a text, the keys of a mapping and the order of a set are never what was meant.
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping | set | frozenset):
        raise DomainError(f"{what} must be a list, got {values!r}", remedy="write them in order in [ ]")
    return tuple(value.item() if isinstance(value, np.generic) else value for value in values)


class Numbers(Protocol):
    """The declared numbers of an attribute; any other number gets the code ``OUTSIDE``, NaN gets ``MISSING``."""

    def whole(self, values: WholeNumbers, scale: int = 0) -> CodeArray:
        """Return the codes of the numbers ``values / 10**scale``; the scale is 0 … 18."""

    def real(self, values: Doubles) -> CodeArray:
        """Return the codes of doubles."""

    def exact(self, value: Fraction) -> int:
        """Return the code of one number, however large."""

    def comparisons(self) -> Comparisons:
        """Return the same coding as comparisons that any engine can make."""


class Comparison(NamedTuple):
    """One comparison of a value with a declared number.

    Attributes
    ----------
    relation
        ``"="`` or ``"<="``; or ``"below"``, which a whole number of at least 0 and below the declared one meets.
    number
        The declared number.
    code
        The code of a value that meets the comparison; None if the value itself is the code.
    """

    relation: Literal["=", "<=", "below"]
    number: float
    code: int | None


class Comparisons(NamedTuple):
    """Comparisons in order: the first that a value meets gives its code, and ``rest`` is the code if it meets none."""

    ordered: tuple[Comparison, ...]
    rest: int


class Lookup:
    """Codes of declared whole numbers, for columns of any width.

    Parameters
    ----------
    codes
        The code of each declared whole number.
    """

    def __init__(self, codes: Mapping[int, int]) -> None:
        self._codes = dict(sorted(codes.items()))
        self._by_width: dict[np.dtype[Any], tuple[WholeNumbers, CodeArray, CodeArray | None]] = {}

    def find(self, values: WholeNumbers) -> CodeArray:
        """Return the code of each value, or ``OUTSIDE``."""
        keys, codes, table = self._prepared(values.dtype)
        if not keys.size or not values.size:
            return np.full(values.shape, OUTSIDE, dtype=np.int32)
        if table is None:
            places = np.minimum(np.searchsorted(keys, values), keys.size - 1)
            return np.where(keys[places] == values, codes[places], np.int32(OUTSIDE))
        first, last = keys[0], keys[-1]
        if values.min() >= first and values.max() <= last:
            return table[_distance(values, first)]
        inside = (values >= first) & (values <= last)
        return np.where(inside, table[_distance(np.where(inside, values, first), first)], np.int32(OUTSIDE))

    def _prepared(self, width: np.dtype[Any]) -> tuple[WholeNumbers, CodeArray, CodeArray | None]:
        """Return the declared numbers that columns of a width can hold, their codes, and a table if they lie close."""
        if width not in self._by_width:
            limits = np.iinfo(width)
            held = {key: code for key, code in self._codes.items() if limits.min <= key <= limits.max}
            keys = np.array(list(held), dtype=width)
            codes = np.array(list(held.values()), dtype=np.int32)
            table = None
            if held and int(keys[-1]) - int(keys[0]) < _LARGEST_TABLE:
                table = np.full(int(keys[-1]) - int(keys[0]) + 1, OUTSIDE, dtype=np.int32)
                table[_distance(keys, keys[0])] = codes
            self._by_width[width] = keys, codes, table
        return self._by_width[width]


def _distance(values: WholeNumbers, first: np.integer[Any]) -> NDArray[np.intp]:
    """Return how far each value is above the first: a small number even where the values exceed a signed one."""
    if values.dtype.itemsize < np.dtype(np.intp).itemsize:
        return values.astype(np.intp) - int(first)
    return (values - first).astype(np.intp)


class ListedNumbers:
    """Numbers that are declared one by one.

    Parameters
    ----------
    codes
        The code of each label.
    """

    def __init__(self, codes: Mapping[float, int]) -> None:
        self._labels = dict(codes)
        self._exact = {as_written(label): code for label, code in codes.items()}
        doubles = sorted((float(label), code) for label, code in codes.items() if is_double(label))
        self._doubles = np.array([label for label, _ in doubles], dtype=np.float64)
        self._codes = np.array([code for _, code in doubles], dtype=np.int32)
        self._lookups: dict[int, Lookup] = {}

    def whole(self, values: WholeNumbers, scale: int = 0) -> CodeArray:
        """Return the codes of the numbers ``values / 10**scale``."""
        if scale not in self._lookups:
            scaled = {label * 10**scale: code for label, code in self._exact.items()}
            whole = {int(label): code for label, code in scaled.items() if label.denominator == 1}
            self._lookups[scale] = Lookup(whole)
        return self._lookups[scale].find(values)

    def real(self, values: Doubles) -> CodeArray:
        """Return the codes of doubles."""
        codes = np.full(values.shape, OUTSIDE, dtype=np.int32)
        if self._doubles.size:
            places = np.minimum(np.searchsorted(self._doubles, values), self._doubles.size - 1)
            codes = np.where(self._doubles[places] == values, self._codes[places], codes)
        return _without_nan(codes, values)

    def exact(self, value: Fraction) -> int:
        """Return the code of one number, however large."""
        return self._exact.get(value, OUTSIDE)

    def comparisons(self) -> Comparisons:
        """Return a comparison with each label."""
        return Comparisons(tuple(Comparison("=", label, code) for label, code in self._labels.items()), OUTSIDE)


class Range:
    """The whole numbers 0 … size − 1, each its own code.

    Parameters
    ----------
    size
        How many there are.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def whole(self, values: WholeNumbers, scale: int = 0) -> CodeArray:
        """Return the codes of the numbers ``values / 10**scale``."""
        if scale:
            units, rest = np.divmod(values.astype(np.int64), np.int64(10**scale))
            return np.where(rest == 0, self.whole(units), np.int32(OUTSIDE))
        if values.size and values.min() >= 0 and int(values.max()) < self._size:
            return values.astype(np.int32)
        largest = min(self._size - 1, np.iinfo(values.dtype).max)
        inside = (values >= 0) & (values <= largest)
        return np.where(inside, np.where(inside, values, 0).astype(np.int32), np.int32(OUTSIDE))

    def real(self, values: Doubles) -> CodeArray:
        """Return the codes of doubles."""
        inside = (values >= 0) & (values < self._size) & (values == np.floor(values))
        codes = np.where(inside, values, OUTSIDE)
        return _without_nan(codes.astype(np.int32), values)

    def exact(self, value: Fraction) -> int:
        """Return the code of one number, however large."""
        return int(value) if value.denominator == 1 and 0 <= value < self._size else OUTSIDE

    def comparisons(self) -> Comparisons:
        """Return the one comparison with the size."""
        return Comparisons((Comparison("below", self._size, None),), OUTSIDE)


class Intervals:
    """All numbers, divided by cuts into bins that are closed on the right: the code is the number of cuts below.

    Parameters
    ----------
    cuts
        Strictly increasing.
    """

    def __init__(self, cuts: Sequence[float]) -> None:
        self._cuts = tuple(cuts)
        self._exact = [as_written(cut) for cut in cuts]
        self._doubles = np.array(cuts, dtype=np.float64)

    def whole(self, values: WholeNumbers, scale: int = 0) -> CodeArray:
        """Return the codes of the numbers ``values / 10**scale``."""
        # A cut is below a whole number exactly if its floor is, which compares whole numbers with whole numbers.
        floors = [math.floor(cut * 10**scale) for cut in self._exact]
        limits = np.iinfo(values.dtype)
        always = bisect_left(floors, limits.min)
        edges = np.array([edge for edge in floors[always:] if edge < limits.max], dtype=values.dtype)
        span = int(values.max()) - int(values.min()) if values.size else 0
        if not 0 < span < min(_LARGEST_TABLE, values.size):
            return (np.searchsorted(edges, values) + always).astype(np.int32)
        # Few different numbers: each is placed once. The sum cannot pass the largest of them, whatever its parts do.
        every = values.min() + np.arange(span + 1).astype(values.dtype)
        table: CodeArray = (np.searchsorted(edges, every) + always).astype(np.int32)
        return table[_distance(values, values.min())]

    def real(self, values: Doubles) -> CodeArray:
        """Return the codes of doubles."""
        return _without_nan(np.searchsorted(self._doubles, values).astype(np.int32), values)

    def exact(self, value: Fraction) -> int:
        """Return the code of one number, however large."""
        return bisect_left(self._exact, value)

    def comparisons(self) -> Comparisons:
        """Return a comparison with each cut, upwards."""
        ordered = tuple(Comparison("<=", cut, code) for code, cut in enumerate(self._cuts))
        return Comparisons(ordered, len(ordered))


def as_written(number: float) -> Fraction:
    """Return the decimal that a number is written as: 3/10 for 0.3, whose double is a little less."""
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def is_double(number: float) -> bool:
    """Return whether a double has exactly this value."""
    try:
        return float(number) == number
    except OverflowError:
        return False


def _without_nan(codes: CodeArray, values: Doubles) -> CodeArray:
    """Return the codes with ``MISSING`` where the value is not a number."""
    missing = np.isnan(values)
    return np.where(missing, np.int32(MISSING), codes) if missing.any() else codes


def distinct_categories(categories: Sequence[str]) -> tuple[str, ...]:
    """Return the categories of an attribute, told apart by their codes where two of them read the same."""
    seen = set(categories)
    if len(seen) == len(categories):
        return tuple(categories)
    # The labels 1 and "1" are two values with one spelling.
    told: list[str] = []
    taken: set[str] = set()
    for code, category in enumerate(categories):
        name = category if category not in taken else f"{category} (code {code})"
        while name in taken or (name != category and name in seen):
            name += "′"
        told.append(name)
        taken.add(name)
    return tuple(told)


def table_label(names: Iterable[object], *, total: str = "the total") -> str:
    """Return the label of the table over these attributes, as in ``age × sex``.

    Parameters
    ----------
    names
        The attributes, in the order of the label.
    total
        What the table of no attributes is called.
    """
    return " × ".join(map(str, names)) or total
