"""Files: JSON from people and from others is read strictly and within limits, and files are replaced as a whole.

A mistake is found and not silently ignored: duplicate keys, unknown keys, NaN, Infinity and numbers out of the range of
floats are refused. What would take all memory or all time is refused before anything is made of it. The
limits are the same for every file of text that margrave reads; what it writes itself stays far below them (the manifest
of all 161,700 tables of three out of a hundred attributes has 60 MB and 3 million values).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from uuid import uuid4

from margrave.errors import DomainError, suggestion
from margrave.memory import require_memory

# A file of more bytes is not read.
MOST_BYTES = 2**28
# What people write by hand, and what is not read in one go by a parser in C, is shorter.
MOST_BYTES_BY_HAND = 2**18
# Lists and objects inside each other.
MOST_DEPTH = 32
# Numbers, texts, lists and objects in one file.
_MOST_VALUES = 20_000_000
# Characters of one number; the longest float takes 24.
LONGEST_NUMBER = 400
# The memory that a value takes, at most, in addition to its text: an empty object with its place in a list.
_BYTES_A_VALUE, _BYTES_A_CHARACTER = 100, 5
# What any machine holds.
_SMALL = 2**24
# A text in quotes, also one that the file ends in; possessive, so that no text is looked at twice.
_QUOTED = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_INNERMOST = re.compile(r"[\[{][^\[\]{}]*+[\]}]")


def read_text(file: Path, *, most_bytes: int = MOST_BYTES) -> str:
    """Return the text of a file in UTF-8, if it is within the limit.

    Parameters
    ----------
    file
        The file; also a pipe, of which no more is read than the limit.
    most_bytes
        How many bytes it may have.
    """
    with file.open("rb") as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise DomainError(f"larger than {most_bytes:,} bytes", remedy="give a smaller file")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DomainError(f"not UTF-8 at byte {error.start}", remedy="save it in UTF-8") from None


def parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object that the text holds; refuse what JSON leaves open, and what is beyond the limits."""
    _check_structure(text)
    try:
        document = json.loads(
            text,
            object_pairs_hook=_distinct_keys,
            parse_constant=_refuse_constant,
            parse_int=_whole_number,
            parse_float=_finite_number,
        )
    except DomainError:
        raise
    except ValueError as error:
        raise DomainError(f"not JSON ({error})", remedy='write a JSON object such as {"age": 85}') from error
    if not isinstance(document, dict):
        raise DomainError("not a JSON object", remedy='write one such as {"age": 85}')
    return document


def _check_structure(text: str) -> None:
    """Refuse, before anything is made of it, a text that is too long, too deep, or of too many values."""
    if len(text) > MOST_BYTES:
        raise DomainError(
            f"JSON of {len(text):,} characters", remedy=f"at most {MOST_BYTES:,} are read: give a smaller file"
        )
    bare = _QUOTED.sub("", text)
    values = 1 + sum(map(bare.count, ",[{"))
    if values > _MOST_VALUES:
        raise DomainError(
            f"JSON of {values:,} values", remedy=f"at most {_MOST_VALUES:,} are read: give a smaller file"
        )
    needed = _BYTES_A_VALUE * values + _BYTES_A_CHARACTER * len(text)
    if needed > _SMALL:
        require_memory(needed, f"reading JSON of {len(text):,} characters", [], advice="give a smaller file")
    for _ in range(MOST_DEPTH):
        bare, found = _INNERMOST.subn("", bare)
        if not found:
            break
    # What is left are brackets deeper than that, or brackets without their partner: a few of those the parser names.
    if _INNERMOST.search(bare) or sum(map(bare.count, "[{")) > MOST_DEPTH:
        raise DomainError(
            f"JSON with more than {MOST_DEPTH} lists and objects inside each other", remedy="write it with fewer"
        )


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object; the parser alone would silently keep the last of two equal keys."""
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DomainError(f"key {key!r} appears twice in one JSON object", remedy="keep the one that is meant")
            seen.add(key)
    return document


def _refuse_constant(constant: str) -> NoReturn:
    """Refuse the NaN and Infinity that Python reads although JSON has none."""
    raise DomainError(f"{constant} is not a JSON number", remedy="write finite numbers only")


def _whole_number(digits: str) -> int:
    """Return a whole number of a reasonable length."""
    _check_length(digits)
    return int(digits)


def _finite_number(digits: str) -> float:
    """Return a number with a point or an exponent, if a float can hold it."""
    _check_length(digits)
    number = float(digits)
    if not math.isfinite(number):
        raise DomainError(f"{digits} is out of the range of floating-point numbers", remedy="write finite numbers only")
    return number


def _check_length(digits: str) -> None:
    if len(digits) > LONGEST_NUMBER:
        raise DomainError(f"a number of {len(digits):,} characters", remedy=f"write at most {LONGEST_NUMBER}")


def check_keys(what: str, entry: Mapping[str, Any], known: tuple[str, ...], *, needed: str) -> None:
    """Refuse unknown keys, such as a misspelt one, and the lack of the key that is needed."""
    for key in entry:
        if key not in known:
            hint = suggestion(key, known)
            raise DomainError(f"{what} has the unknown key {key!r}{hint} (it may have {', '.join(known)})")
    if needed not in entry:
        raise DomainError(f"{what} has no {needed!r}", remedy="add it")


@contextmanager
def replacing(file: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Give a stream to write to; the file is there with all of it when the block ends, and nothing changes if it fails.

    It is written under an unpredictable name, never through a link, and is on disk before it is renamed.

    Parameters
    ----------
    file
        The file to write or replace.
    private
        Whether only this user may read it.
    """
    draft = file.parent / f".margrave-{uuid4().hex}.draft"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(draft, flags, 0o600 if private else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    finally:
        with suppress(OSError):
            draft.unlink()
