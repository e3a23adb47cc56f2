"""Labels: values that are declared one by one, as texts, numbers or truth values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from margrave.domain.values.kind import NO_ORDER, RELATIONS, Label, Mask, Values, checked_list, checked_text, is_number
from margrave.domain.values.numbers import ListedNumbers
from margrave.errors import DomainError, QueryError


@dataclass(frozen=True, init=False, eq=False)
class Labels(Values):
    """Values that are declared one by one.

    Parameters
    ----------
    labels
        The values in the order of their codes: texts, finite numbers or truth values, at least one, no two of them
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
        """The code of each label that is a truth value."""
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
        """Return the code of the label of this value; a number is never a truth value."""
        same = (code for code, label in enumerate(self.labels) if _same(label, value))
        return next(same, None)

    def compare(self, relation: str, number: float, *, missing: int | None) -> Mask:
        """Return which labels stand in a relation to a number; all but the missing category must be numbers."""
        numbers = {code: label for code, label in self._numbers_by_code.items() if code != missing}
        if len(numbers) < self.size - (missing is not None and missing < self.size):
            raise QueryError(NO_ORDER.format("its labels"))
        mask = np.zeros(self.size, dtype=np.bool_)
        mask[list(numbers)] = [RELATIONS[relation](label, number) for label in numbers.values()]
        return mask

    @property
    def free_texts(self) -> Iterable[str]:
        """The labels that are texts."""
        return self.texts

    @property
    def _numbers_by_code(self) -> dict[int, float]:
        """The label of each code that is a number."""
        return {code: label for code, label in enumerate(self.labels) if is_number(label)}

    # 0, False and 0.0 are equal in Python, but a column of numbers is not one of truth values: types count too.

    def __eq__(self, other: object) -> bool:
        return self._typed == other._typed if isinstance(other, Labels) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._typed)

    @property
    def _typed(self) -> tuple[object, ...]:
        return self.labels, tuple(type(label) for label in self.labels)


def _same(label: Label, value: float) -> bool:
    """Return whether a label has this value: numbers are equal by value, but no number is a truth value."""
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
