"""Conditions as people write them, ``age > 64 and sex = 'F'``, and what they mean: which categories of each attribute.

    condition    conjunction ["or" conjunction …]
    conjunction  factor ["and" factor …]
    factor       comparison | "not" factor | "(" condition ")"
    comparison   name (= | != | < | <= | > | >=) value | name ["not"] "in" "(" value ["," value …] ")"
                 | name ["not"] "between" value "and" value

What a table can answer is a product: a set of categories for each attribute. So ``and`` may join anything, but ``or``
only conditions on one attribute, and ``not`` may negate only such a one. Values are numbers, ``true``, ``false``,
and texts in single or double quotes (a quote inside is doubled). Names with other characters than letters, digits and
``_ . -``, and names that are words of the language, stand in `backquotes`. The words of the language may be in any
case; ``==``, ``<>``, ``≤``, ``≥``, ``≠`` are understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from margrave.domain.values import RELATIONS, Label
from margrave.errors import ReleaseError
from margrave.release.uncertainty import Mask

if TYPE_CHECKING:
    from margrave.domain.attribute import Attribute
    from margrave.domain.domain import Domain

Masks = dict[str, Mask]

_TOKENS = re.compile(
    r"""(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    | (?P<word>[^\W\d][\w.\-]*)
    | (?P<name>`(?:[^`]|``)*`)
    | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    | (?P<sign><=|>=|!=|<>|==|[=<>≤≥≠(),])""",
    re.VERBOSE,
)
_WORDS = ("and", "or", "not", "in", "between", "true", "false")
_SIGNS = {"==": "=", "<>": "!=", "≤": "<=", "≥": ">=", "≠": "!="}
_TRUTH: dict[str, Label] = {"true": True, "false": False}
_DEEPEST = 50
# Python refuses to read longer whole numbers; none that counts people is near.
_LONGEST_NUMBER = 300
_EXAMPLE = "age > 64 and sex = 'F'"


@dataclass(frozen=True)
class _Token:
    """One word of a condition: its kind ("number", "name", "text", "sign", "end" or a word), value and place."""

    kind: str
    value: Label
    place: int


def read_condition(domain: Domain, text: str) -> Masks:
    """Return which categories of each named attribute meet a condition; nothing for an empty text.

    Parameters
    ----------
    domain
        The attributes.
    text
        The condition, in the language of this module.
    """
    if not text.strip():
        return {}
    return _Reader(domain, text).read()


def both(one: Masks, other: Masks) -> Masks:
    """Return what meets two conditions."""
    shared = {name: one[name] & other[name] for name in one if name in other}
    return {**one, **other, **shared}


class _Reader:
    """Reads one condition by recursive descent."""

    def __init__(self, domain: Domain, text: str) -> None:
        self._domain, self._text = domain, text
        self._tokens = list(_tokens(text))
        self._next, self._depth = 0, 0

    def read(self) -> Masks:
        masks = self._alternatives()
        if self._token.kind != "end":
            raise self._refusal("'and', 'or' or the end of the condition")
        return masks

    def _alternatives(self) -> Masks:
        """Read conditions joined by ``or``."""
        masks = self._conjunction()
        while self._accept("or"):
            masks = self._either(masks, self._conjunction())
        return masks

    def _conjunction(self) -> Masks:
        """Read conditions joined by ``and``."""
        masks = self._factor()
        while self._accept("and"):
            masks = both(masks, self._factor())
        return masks

    def _factor(self) -> Masks:
        """Read a comparison, a condition in parentheses, or the opposite of either."""
        if self._accept("not"):
            return self._opposite(self._nested(self._factor))
        if not self._accept("("):
            return self._comparison()
        masks = self._nested(self._alternatives)
        self._expect(")", "a closing parenthesis")
        return masks

    def _nested(self, read: Callable[[], Masks]) -> Masks:
        """Read one level down, not too deep for the interpreter."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ReleaseError(
                f"the condition is nested more than {_DEEPEST} deep", remedy="write it with fewer parentheses"
            )
        masks = read()
        self._depth -= 1
        return masks

    def _comparison(self) -> Masks:
        """Read a name and what it is compared with."""
        token = self._expect("name", "the name of an attribute")
        attribute = self._domain[str(token.value)]
        turned = self._accept("not")
        mask = self._relation(attribute, turned)
        return {attribute.name: ~mask if turned else mask}

    def _relation(self, attribute: Attribute, turned: bool) -> Mask:
        """Read what follows a name."""
        if self._accept("in"):
            return attribute.among(self._list())
        if self._accept("between"):
            low = self._value()
            self._expect("and", "'and', as in between 20 and 29")
            return attribute.compare(">=", low) & attribute.compare("<=", self._value())
        if not turned and self._accept("="):
            return attribute.among([self._value()])
        if not turned and self._accept("!="):
            return ~attribute.among([self._value()])
        for sign in () if turned else RELATIONS:
            if self._accept(sign):
                return attribute.compare(sign, self._value())
        raise self._refusal("'in' or 'between'" if turned else "a comparison (= != < <= > >= in between)")

    def _list(self) -> list[Label]:
        """Read values in parentheses."""
        self._expect("(", "a list of values in parentheses")
        values = [self._value()]
        while self._accept(","):
            values.append(self._value())
        self._expect(")", "a comma or a closing parenthesis")
        return values

    def _value(self) -> Label:
        """Read a number, a boolean or a text."""
        token = self._token
        if token.kind in _TRUTH:
            value = _TRUTH[token.kind]
        elif token.kind in ("number", "text"):
            value = token.value
        else:
            raise self._refusal("a number, or a label in quotes")
        self._next += 1
        return value

    def _either(self, one: Masks, other: Masks) -> Masks:
        """Return what meets one of two conditions on the same attribute."""
        names = list(dict.fromkeys([*one, *other]))
        if len(names) > 1:
            raise ReleaseError(
                f"'or' joins conditions on {' and '.join(names)}",
                remedy="it may join conditions on one attribute only, so "
                "group by these attributes and add up the cells",
            )
        return {name: one[name] | other[name] for name in names}

    def _opposite(self, masks: Masks) -> Masks:
        """Return what does not meet a condition on one attribute."""
        if len(masks) > 1:
            raise ReleaseError(
                f"'not' negates a condition on {' and '.join(masks)}",
                remedy="it may negate conditions on one attribute only, "
                "so count all and subtract those who meet the condition",
            )
        return {name: ~mask for name, mask in masks.items()}

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, kind: str) -> bool:
        """Go past the next token if it is of this kind."""
        found = self._token.kind == kind
        self._next += found
        return found

    def _expect(self, kind: str, what: str) -> _Token:
        """Return the next token and go past it, or say what should stand there."""
        token = self._token
        if not self._accept(kind):
            raise self._refusal(what)
        return token

    def _refusal(self, wanted: str) -> ReleaseError:
        return _refusal(self._text, self._token.place, wanted)


def _tokens(text: str) -> Iterator[_Token]:
    """Iterate over the words of a condition, and an end after them."""
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        match = _TOKENS.match(text, place)
        if match is None:
            raise _refusal(text, place, "a name, a sign, a number, or a label in closed quotes")
        yield _token(text, match)
        place = match.end()
    yield _Token("end", "", len(text))


def _token(text: str, match: re.Match[str]) -> _Token:
    """Return one word of a condition by its kind."""
    found, kind = match.group(), str(match.lastgroup)
    if kind == "number":
        if len(found) > _LONGEST_NUMBER:
            raise _refusal(text, match.start(), f"a number of at most {_LONGEST_NUMBER} characters")
        return _Token(kind, int(found) if found.lstrip("+-").isdecimal() else float(found), match.start())
    if kind in ("name", "text"):
        return _Token(kind, found[1:-1].replace(found[0] * 2, found[0]), match.start())
    if kind == "word":
        lower = found.lower()
        return _Token(lower if lower in _WORDS else "name", found, match.start())
    return _Token(_SIGNS.get(found, found), found, match.start())


def _refusal(text: str, place: int, wanted: str) -> ReleaseError:
    """Return the error for a condition that cannot be read at some place."""
    rest = text[place : place + 20]
    where = f"at character {place + 1}, before {rest!r}" if rest else "at its end"
    return ReleaseError(f"the condition cannot be read {where}", remedy=f"{wanted} must stand there, as in {_EXAMPLE}")
