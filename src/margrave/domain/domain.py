"""Domains: the attributes of a table, in order, and the file that declares them.

A domain is declared by a person and never read from the data: which values are possible is public, the table
is not. The *codebook* is the JSON file of a domain:

    {"margrave": "domain", "schema": 1, "description": "a survey", "attributes": [
        {"name": "age", "cuts": [18, 65], "description": "age in years"},
        {"name": "sex", "labels": ["F", "M"], "missing": "not told"},
        {"name": "region", "size": 17, "outside": "drop"}]}

The sizes alone, ``{"age": 3, "sex": 2, "region": 17}``, as the package mbi writes them, are read as well, and so are
the files of `margrave.domain.foreign`. A codebook that was drafted from a table begins with the keys ``"draft"`` and
``"reviewed"``: nothing is measured with it before a person has checked it and written ``"reviewed": true``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margrave.domain.attribute import Attribute, attribute_keys
from margrave.domain.values import Label, checked_text
from margrave.errors import DomainError, suggestion
from margrave.escaping import html_table, visible
from margrave.files import MOST_BYTES_BY_HAND, check_keys, parse_object, read_text, replacing

if TYPE_CHECKING:
    import mbi

_SCHEMA = 1
_CODEBOOK_KEYS = ("draft", "reviewed", "margrave", "schema", "description", "attributes")
_MOST_NAMES_SHOWN = 12
_MOST_CATEGORIES_SHOWN, _MOST_ROWS_SHOWN = 8, 50
_NOT_REVIEWED = "a draft that was not marked as reviewed"
_YAML_ENDINGS = (".yaml", ".yml")
_json = partial(json.dumps, ensure_ascii=False)


@dataclass(frozen=True, init=False, repr=False)
class Domain:
    """The attributes of a table, in order, each known by its name.

    Parameters
    ----------
    attributes
        The attributes; their order is the order of the axes of every table. No two share a name.
    description
        Words for the reader of the codebook.
    draft
        The warning on a domain that was drafted from a table; empty if it was not. Domains are equal whatever it says.
        Attributes of an unreviewed draft keep its warning, so that every domain made of them is a draft as well.
    reviewed
        Whether a person has checked the draft.
    """

    _members: tuple[Attribute, ...]
    description: str
    draft: str = field(compare=False)
    reviewed: bool = field(compare=False)

    def __init__(
        self, attributes: Iterable[Attribute], description: str = "", *, draft: str = "", reviewed: bool = False
    ) -> None:
        members = tuple(attributes)
        seen: set[str] = set()
        for member in members:
            if not isinstance(member, Attribute):
                raise DomainError(f"a domain holds Attribute values, got {member!r}", remedy="try Domain.fromdict")
            if member.name in seen:
                raise DomainError(f"attribute {member.name!r} is given twice", remedy="give each its own name")
            seen.add(member.name)
        if not isinstance(reviewed, bool):
            raise DomainError(f"reviewed is {reviewed!r}", remedy="write true or false")
        warning = checked_text("the draft's warning of a domain", draft)
        warning = warning or next((member.draft for member in members if member.draft), "")
        mark = "" if reviewed else warning
        object.__setattr__(self, "_members", tuple(member.with_draft(mark) for member in members))
        object.__setattr__(self, "description", checked_text("the description of a domain", description))
        object.__setattr__(self, "draft", warning)
        object.__setattr__(self, "reviewed", reviewed)

    @classmethod
    def fromdict(cls, sizes: Mapping[str, int | Iterable[Label]]) -> Domain:
        """Make a domain from each attribute's size or list of labels: ``{"age": 85, "sex": ["F", "M"]}``."""
        return cls(
            Attribute(name, labels=value) if isinstance(value, Iterable) else Attribute(name, size=value)
            for name, value in sizes.items()
        )

    @classmethod
    def from_mbi(cls, domain: mbi.Domain) -> Domain:
        """Make a domain from one of the package mbi: its labels where it has some that can be labels, or its sizes."""
        labels = domain.labels_config or {}
        return cls.fromdict({name: labels.get(name, size) for name, size in domain.config.items()})

    def to_mbi(self) -> mbi.Domain:
        """Return the domain for the package mbi (extra ``margrave[pgm]``): names, sizes, and categories as labels."""
        try:
            package = import_module("mbi")
        except ImportError as error:
            raise DomainError(
                "the package mbi is not installed", remedy="install it: pip install 'margrave[pgm]'"
            ) from error
        return package.Domain(self.attributes, self.shape, labels=[member.categories for member in self])

    @classmethod
    def from_json(cls, text: str) -> Domain:
        """Make a domain from the text of a codebook, of mbi's sizes, or of a file in JSON that `read` knows."""
        return cls._of_document(parse_object(text.removeprefix("\ufeff")))

    @classmethod
    def _of_document(cls, document: dict[str, Any]) -> Domain:
        """Make a domain from the content of a file in any of the known formats."""
        # An attribute may be called margrave, but then its value is a size or a list.
        if document.get("margrave") == "domain":
            words = {key: document[key] for key in ("description", "draft", "reviewed") if key in document}
            # Either key means a draft, even where the other one is missing.
            if words.get("draft") == "" or (words.get("reviewed") is False and "draft" not in words):
                words["draft"] = _NOT_REVIEWED
            return cls(_codebook_attributes(document), **words)
        if not document:
            raise DomainError("the JSON object names no attribute", remedy='name at least one, as in {"age": 85}')
        from margrave.domain.foreign import foreign_attributes

        foreign = foreign_attributes(document)
        return cls.fromdict(document) if foreign is None else cls(foreign)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Domain:
        """Read a domain from a file in UTF-8.

        It may be a codebook, mbi's sizes, CSVW metadata, SDNist's data dictionary or schema, all of them JSON, or
        SmartNoise's metadata, which is YAML.
        """
        file = Path(path)
        try:
            if file.suffix.lower() in _YAML_ENDINGS:
                from margrave.domain.foreign import parse_yaml

                return cls._of_document(parse_yaml(read_text(file, most_bytes=MOST_BYTES_BY_HAND)))
            return cls.from_json(read_text(file))
        except OSError as error:
            raise DomainError(
                f"{file} cannot be read ({error.strerror})", remedy="give the path of a domain file"
            ) from error
        except DomainError as error:
            raise DomainError(f"{os.fspath(path)}: {error}") from error

    def to_json(self) -> str:
        """Return the text of the codebook, one attribute a line."""
        lines = ",\n    ".join(_json(member.entry()) for member in self)
        head = f'"margrave": "domain",\n  "schema": {_SCHEMA},\n  "description": {_json(self.description)}'
        # A draft says so on the very first line of its file; once it is reviewed it is a domain like any other.
        draft = f'"draft": {_json(self.draft)},\n  "reviewed": false,\n  ' if self.unreviewed else "\n  "
        return f'{{{draft}{head},\n  "attributes": [\n    {lines}\n  ]\n}}\n'

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the codebook to a file, which is replaced as a whole or, on failure, left as it was."""
        file = Path(path)
        try:
            # A draft was read from the private table, and is for this user's eyes only until it is reviewed.
            with replacing(file, private=self.unreviewed) as stream:
                stream.write(self.to_json().encode())
        except OSError as error:
            raise DomainError(f"{file} cannot be written ({error.strerror})", remedy="name another file") from error

    @property
    def unreviewed(self) -> bool:
        """Whether this is a draft that is not yet marked as reviewed; nothing is measured with such a domain."""
        return bool(self.draft) and not self.reviewed

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes, in order."""
        return tuple(member.name for member in self._members)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the attributes, in order."""
        return tuple(member.size for member in self._members)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of what is declared: names, values and policies, in order; not of descriptions.

        Two domains with the same fingerprint give the same counts. A ledger recognises the domain of a data set by it.
        """
        entries = [{**member.entry(), "description": None} for member in self]
        return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()

    def positions(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the positions of the named attributes in the domain: ascending, each once."""
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise DomainError(f"attributes are a list of names, got {names!r}", remedy=f"write ({names!r},) for one")
        return tuple(sorted({self._position(name) for name in names}))

    def names(self, positions: Iterable[int]) -> tuple[str, ...]:
        """Return the names of the attributes at these positions, in the order given."""
        chosen = tuple(positions)
        for position in chosen:
            if not 0 <= position < len(self):
                raise DomainError(f"no attribute at position {position}", remedy=f"they run from 0 to {len(self) - 1}")
        return tuple(self.attributes[position] for position in chosen)

    def project(self, names: Iterable[str]) -> Domain:
        """Return the domain of the named attributes alone, in the order of this domain."""
        members = [self._members[position] for position in self.positions(names)]
        return Domain(members, self.description, draft=self.draft, reviewed=self.reviewed)

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
        shown = [f"{visible(member.name)}: {member.size}" for member in self]
        if len(shown) > _MOST_NAMES_SHOWN:
            return f"Domain({shown[0]}, …, {shown[-1]}; {len(shown)} attributes)"
        return f"Domain({', '.join(shown)})"

    def _repr_html_(self) -> str:
        # The categories of a draft were read from private data.
        shown = [] if self.unreviewed else [_listed(member.categories) for member in self]
        names = ("attribute", "size", *(() if self.unreviewed else ("categories",)))
        rows = [(member.name, f"{member.size:,}", *shown[place : place + 1]) for place, member in enumerate(self)]
        kind = "PRIVATE draft, not reviewed" if self.unreviewed else "Domain"
        return html_table(f"{kind}: {len(self)} attributes", names, rows[:_MOST_ROWS_SHOWN], _left(len(rows)))

    @cached_property
    def _position_of(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.attributes)}

    def _position(self, name: object) -> int:
        """Return the position of the named attribute, or raise an error that lists the names."""
        if isinstance(name, str) and name in self._position_of:
            return self._position_of[name]
        hint = suggestion(name, self.attributes) if isinstance(name, str) else "; give its name"
        more = ["…"] if len(self) > _MOST_NAMES_SHOWN else []
        listing = ", ".join([*self.attributes[:_MOST_NAMES_SHOWN], *more]) or "none"
        raise DomainError(f"no attribute {name!r} in the domain{hint} (it has {listing})")


def _codebook_attributes(document: Mapping[str, Any]) -> list[Attribute]:
    """Return the attributes of a codebook."""
    schema = document.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise DomainError(f"the domain file has schema {schema!r}", remedy=f'write "schema": {_SCHEMA}')
    if schema > _SCHEMA:
        raise DomainError(f"the domain file has schema {schema}, this margrave reads {_SCHEMA}", remedy="upgrade it")
    check_keys("the domain file", document, _CODEBOOK_KEYS, needed="attributes")
    if not isinstance(document["attributes"], list):
        raise DomainError("the attributes of a domain file must be a list", remedy="write them in [ ]")
    return [_codebook_attribute(place, entry) for place, entry in enumerate(document["attributes"], start=1)]


def _codebook_attribute(place: int, entry: object) -> Attribute:
    """Return the attribute that one entry of a codebook describes."""
    if not isinstance(entry, dict):
        raise DomainError(
            f"attribute {place} of the domain file is not an object", remedy='write {"name": …, "size": …}'
        )
    check_keys(f"attribute {place} of the domain file", entry, attribute_keys(), needed="name")
    return Attribute.from_entry(entry)


def _listed(categories: tuple[str, ...]) -> str:
    """Return the first categories of an attribute, for people."""
    more = ["…"] if len(categories) > _MOST_CATEGORIES_SHOWN else []
    return ", ".join([*categories[:_MOST_CATEGORIES_SHOWN], *more])


def _left(rows: int) -> str:
    """Return how many attributes are not shown."""
    return f"… and {rows - _MOST_ROWS_SHOWN:,} more" if rows > _MOST_ROWS_SHOWN else ""
