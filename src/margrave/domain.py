"""Attributes and domains: the columns of a table, the values each may take, and the file that declares them.

A domain is declared by a person and never read from the data: which values are possible is public, the table
is not. An attribute knows its values as codes 0 … size − 1, and may say what the codes mean: by labels, or by
cuts that part the numbers into bins. The *codebook* is the JSON file of a domain:

    {"margrave": "domain", "schema": 1, "description": "a survey", "attributes": [
        {"name": "age", "cuts": [18, 65], "description": "age in years"},
        {"name": "sex", "labels": ["F", "M"]},
        {"name": "region", "size": 17}]}

The sizes alone, ``{"age": 3, "sex": 2, "region": 17}``, as the package mbi writes them, are read as well.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from margrave.codebook import check_keys, parse_object, read_text
from margrave.errors import DomainError, suggestion

Label = str | int | float | bool

_SCHEMA = 1
_CODEBOOK_KEYS = ("margrave", "schema", "description", "attributes")
_ATTRIBUTE_KEYS = ("name", "size", "labels", "cuts", "description")
_MOST_NAMES_SHOWN = 12
# Beyond it a whole number need not have a float of its own, and two cuts could fall together.
_LARGEST_WHOLE_CUT = 2**53
_json = partial(json.dumps, ensure_ascii=False)


@dataclass(frozen=True, init=False, eq=False)
class Attribute:
    """A column and its declared finite set of values.

    Parameters
    ----------
    name
        What the column is called; not empty.
    size
        How many values there are, at least 1; may be left out when ``labels`` or ``cuts`` are given.
    labels
        The values in the order of their codes: texts, finite numbers or truth values, no two of them equal.
    cuts
        Strictly increasing finite numbers a < b < … < z that part all numbers into one bin more, closed on
        the right and open at the ends: (−∞, a], (a, b], …, (z, ∞). Labels and cuts exclude each other.
    description
        Words for the reader of the codebook.
    """

    name: str
    size: int
    labels: tuple[Label, ...] | None
    cuts: tuple[float, ...] | None
    description: str

    def __init__(
        self,
        name: str,
        *,
        size: int | None = None,
        labels: Iterable[Label] | None = None,
        cuts: Iterable[float] | None = None,
        description: str = "",
    ) -> None:
        if not _text("the name of an attribute", name):
            raise DomainError("the name of an attribute is empty; give it at least one character")
        if labels is not None and cuts is not None:
            raise DomainError(f"attribute {name!r} has both labels and cuts; keep one of them")
        values = None if labels is None else _checked_labels(name, labels)
        edges = None if cuts is None else _checked_cuts(name, cuts)
        implied = len(values) if values is not None else len(edges) + 1 if edges is not None else None
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "size", _checked_size(name, size, implied))
        object.__setattr__(self, "labels", values)
        object.__setattr__(self, "cuts", edges)
        object.__setattr__(self, "description", _text(f"the description of attribute {name!r}", description))

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """What each code means to people: its label, an interval such as ``(18, 65]``, or the code itself."""
        if self.labels is not None:
            return tuple(str(label) for label in self.labels)
        if self.cuts is not None:
            edges = [repr(cut).removesuffix(".0") for cut in self.cuts]
            return f"≤ {edges[0]}", *(f"({a}, {b}]" for a, b in pairwise(edges)), f"> {edges[-1]}"
        return tuple(str(code) for code in range(self.size))

    @property
    def _value(self) -> tuple[object, ...]:
        # 0, False and 0.0 are equal in Python, yet a column of numbers is not one of truth values: types count too.
        kinds = None if self.labels is None else tuple(type(label) for label in self.labels)
        return self.name, self.size, self.labels, kinds, self.cuts, self.description

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Attribute) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, init=False, repr=False)
class Domain:
    """The attributes of a table, in order, each known by its name.

    Parameters
    ----------
    attributes
        The attributes; their order is the order of the axes of every table. No two share a name.
    description
        Words for the reader of the codebook.
    """

    _members: tuple[Attribute, ...]
    description: str

    def __init__(self, attributes: Iterable[Attribute], description: str = "") -> None:
        members = tuple(attributes)
        seen: set[str] = set()
        for member in members:
            if not isinstance(member, Attribute):
                raise DomainError(f"a domain holds Attribute values, got {member!r}; try Domain.fromdict")
            if member.name in seen:
                raise DomainError(f"attribute {member.name!r} is given twice; give each a name of its own")
            seen.add(member.name)
        object.__setattr__(self, "_members", members)
        object.__setattr__(self, "description", _text("the description of a domain", description))

    @classmethod
    def fromdict(cls, sizes: Mapping[str, int | Iterable[Label]]) -> Domain:
        """Make a domain from each attribute's size or list of labels: ``{"age": 85, "sex": ["F", "M"]}``."""
        return cls(
            Attribute(name, labels=value) if isinstance(value, Iterable) else Attribute(name, size=value)
            for name, value in sizes.items()
        )

    @classmethod
    def from_json(cls, text: str) -> Domain:
        """Make a domain from the text of a codebook, or from mbi's sizes."""
        document = parse_object(text.removeprefix("\ufeff"))
        # An attribute may well be called margrave, but then it has a size or a list there.
        if document.get("margrave") == "domain":
            return cls(_codebook_attributes(document), document.get("description", ""))
        if not document:
            raise DomainError('the JSON object names no attribute; name at least one, as in {"age": 85}')
        return cls.fromdict(document)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Domain:
        """Read a codebook, or mbi's sizes, from a file in UTF-8."""
        text = read_text(Path(path))
        try:
            return cls.from_json(text)
        except DomainError as error:
            raise DomainError(f"{os.fspath(path)}: {error}") from error

    def to_json(self) -> str:
        """Return the text of the codebook, one attribute a line."""
        lines = ",\n    ".join(_json(_codebook_entry(member)) for member in self)
        head = f'"margrave": "domain",\n  "schema": {_SCHEMA},\n  "description": {_json(self.description)}'
        return f'{{\n  {head},\n  "attributes": [\n    {lines}\n  ]\n}}\n'

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the codebook to a file, which is replaced as a whole or, on failure, left as it was."""
        file = Path(path)
        temporary = file.parent / f".{file.name}.{os.getpid()}.tmp"
        try:
            temporary.write_text(self.to_json(), encoding="utf-8", newline="\n")
            temporary.replace(file)
        except OSError as error:
            raise DomainError(f"{file} cannot be written ({error.strerror}); name another file") from error
        finally:
            with suppress(OSError):
                temporary.unlink()

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes, in order."""
        return tuple(member.name for member in self._members)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the attributes, in order."""
        return tuple(member.size for member in self._members)

    def positions(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return where the named attributes stand in the domain: ascending, each once."""
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise DomainError(f"attributes are a list of names, got {names!r}; write ({names!r},) for one")
        return tuple(sorted({self._position(name) for name in names}))

    def names(self, positions: Iterable[int]) -> tuple[str, ...]:
        """Return the names of the attributes at these positions, in the order given."""
        chosen = tuple(positions)
        for position in chosen:
            if not 0 <= position < len(self):
                raise DomainError(f"no attribute at position {position}; they run from 0 to {len(self) - 1}")
        return tuple(self.attributes[position] for position in chosen)

    def project(self, names: Iterable[str]) -> Domain:
        """Return the domain of the named attributes alone, in the order of this domain."""
        return Domain((self._members[position] for position in self.positions(names)), self.description)

    def cells(self, names: Iterable[str]) -> int:
        """Return the number of cells of the marginal on the named attributes; 1 for the total, ()."""
        return math.prod(self.shape[position] for position in self.positions(names))

    def __getitem__(self, name: str) -> Attribute:
        return self._members[self._position(name)]

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._position_of

    def __repr__(self) -> str:
        shown = [f"{member.name}: {member.size}" for member in self]
        if len(shown) > _MOST_NAMES_SHOWN:
            return f"Domain({shown[0]}, …, {shown[-1]}; {len(shown)} attributes)"
        return f"Domain({', '.join(shown)})"

    @cached_property
    def _position_of(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.attributes)}

    def _position(self, name: object) -> int:
        """Return where the named attribute stands, or say which names there are."""
        if isinstance(name, str) and name in self._position_of:
            return self._position_of[name]
        hint = suggestion(name, self.attributes) if isinstance(name, str) else "; give its name"
        more = ["…"] if len(self) > _MOST_NAMES_SHOWN else []
        listing = ", ".join([*self.attributes[:_MOST_NAMES_SHOWN], *more]) or "none"
        raise DomainError(f"no attribute {name!r} in the domain{hint} (it has {listing})")


def _text(what: str, value: object) -> str:
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
        return _text(f"a label of attribute {name!r}", label)
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


def _checked_cut(name: str, cut: object) -> float:
    """Return the cut if it is a finite number that a float holds exactly."""
    if isinstance(cut, float) and math.isfinite(cut):
        return cut + 0.0  # −0.0 becomes 0.0
    if isinstance(cut, int) and not isinstance(cut, bool) and abs(cut) <= _LARGEST_WHOLE_CUT:
        return cut
    raise DomainError(f"attribute {name!r} has the cut {cut!r}; give finite numbers, whole ones within ±2⁵³")


def _codebook_attributes(document: Mapping[str, Any]) -> list[Attribute]:
    """Return the attributes of a codebook."""
    schema = document.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise DomainError(f'the codebook has schema {schema!r}; write "schema": {_SCHEMA}')
    if schema > _SCHEMA:
        raise DomainError(f"the codebook has schema {schema}, this margrave reads {_SCHEMA}; upgrade it")
    check_keys("the codebook", document, _CODEBOOK_KEYS, needed="attributes")
    if not isinstance(document["attributes"], list):
        raise DomainError("the attributes of a codebook must be a list; write them in [ ]")
    return [_codebook_attribute(place, entry) for place, entry in enumerate(document["attributes"], start=1)]


def _codebook_attribute(place: int, entry: object) -> Attribute:
    """Return the attribute that one entry of a codebook describes."""
    if not isinstance(entry, dict):
        raise DomainError(f'attribute {place} of the codebook is no object; write {{"name": …, "size": …}}')
    check_keys(f"attribute {place} of the codebook", entry, _ATTRIBUTE_KEYS, needed="name")
    return Attribute(**entry)


def _codebook_entry(member: Attribute) -> dict[str, object]:
    """Return the entry of an attribute in a codebook, without what it leaves open."""
    size = member.size if member.labels is None and member.cuts is None else None
    values = (member.name, size, member.labels, member.cuts, member.description or None)
    return {key: value for key, value in zip(_ATTRIBUTE_KEYS, values, strict=True) if value is not None}
