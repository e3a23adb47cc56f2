"""JSON files that people write: read strictly, so that a slip is found and not silently ignored.

Keys that stand twice, keys that nobody would read, NaN and Infinity are refused; messages say where.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from margrave.errors import DomainError, suggestion


def read_text(file: Path) -> str:
    """Return the text of a file in UTF-8."""
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise DomainError(f"{file} is not UTF-8 at byte {error.start}; save it as JSON in UTF-8") from None
    except OSError as error:
        raise DomainError(f"{file} cannot be read ({error.strerror}); give the path of a codebook") from error


def parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object that the text holds; refuse what JSON leaves open."""
    try:
        document = json.loads(text, object_pairs_hook=_distinct_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DomainError(f'not JSON ({error}); write a JSON object such as {{"age": 85}}') from error
    if not isinstance(document, dict):
        raise DomainError('not a JSON object; write one such as {"age": 85}')
    return document


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object; the parser alone would silently keep the last of two equal keys."""
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise DomainError(f"key {key!r} stands twice in one JSON object; keep the one that is meant")
        document[key] = value
    return document


def _refuse_constant(constant: str) -> NoReturn:
    """Refuse the NaN and Infinity that Python reads although JSON has none."""
    raise DomainError(f"{constant} is not a JSON number; write finite numbers only")


def check_keys(what: str, entry: Mapping[str, Any], known: tuple[str, ...], *, needed: str) -> None:
    """Refuse keys that nobody would read, such as a misspelt one, and the lack of the key that is needed."""
    for key in entry:
        if key not in known:
            hint = suggestion(key, known)
            raise DomainError(f"{what} has the unknown key {key!r}{hint} (it may have {', '.join(known)})")
    if needed not in entry:
        raise DomainError(f"{what} has no {needed!r}; add it")
