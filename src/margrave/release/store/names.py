"""File names for tables: readable, unique, and safe on every file system whatever the attributes are called."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from margrave.domain import Domain

Names = tuple[str, ...]

_TOTAL = "total"
_LONGEST_WORD, _LONGEST_STEM = 40, 120
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
# Windows takes these for devices, whatever follows the first dot.
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


def table_stems(domain: Domain, sets: Sequence[Names]) -> tuple[str, ...]:
    """Return a file name without its ending for each table, no two alike even where case does not count.

    Parameters
    ----------
    domain
        The attributes that the sets name.
    sets
        The tables, by names of attributes; () is the total.
    """
    word_of = {name: _word(name, place) for place, name in enumerate(domain.attributes, start=1)}
    taken: set[str] = set()
    repeats: dict[str, int] = {}
    stems: list[str] = []
    for names in sets:
        base = ".".join(word_of[name] for name in names)[:_LONGEST_STEM].rstrip(".") or _TOTAL
        stem = base
        while stem.casefold() in taken:
            repeats[base] = repeats.get(base, 1) + 1
            stem = f"{base}-{repeats[base]}"
        taken.add(stem.casefold())
        stems.append(stem)
    return tuple(stems)


def safe_word(text: str) -> str:
    """Return the letters, digits, ``_`` and ``-`` of a text, accents taken off and all else as ``_``; may be empty."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return _UNSAFE.sub("_", plain).strip("_-")


def _word(name: str, place: int) -> str:
    """Return what stands for an attribute in file names."""
    word = safe_word(name)[:_LONGEST_WORD] or f"attribute{place}"
    return f"{word}_" if word.casefold() in _DEVICES else word
