"""Reconstruction methods: how tables are made from noisy measurements, each an object with its options.

``margrave.reconstruct(noisy, workload, method=…)`` takes one of these objects, or the short name of one with its usual
options.
"""

from __future__ import annotations

from collections.abc import Mapping

from margrave.errors import ReleaseError, suggestion
from margrave.methods.maximum_likelihood import MaximumLikelihood, Truncated
from margrave.methods.method import Method, Unrecorded
from margrave.methods.nonnegative import NonNegative

__all__ = ["MaximumLikelihood", "Method", "NonNegative", "Truncated", "Unrecorded", "find", "names", "read"]

# The registry. A method that is not listed here can be given as an object, but not by name, and no saved release of it
# can be loaded.
REGISTERED: list[Method] = [
    NonNegative(),
    MaximumLikelihood(),
    Truncated(),
    Truncated(rescale=True),
]
DEFAULT = REGISTERED[0].name
_MOST_NOTE = 1_000


def names() -> tuple[str, ...]:
    """Return the short names of all methods, the default first."""
    return tuple(method.name for method in REGISTERED)


def find(method: object) -> Method:
    """Return the method of a short name, with its usual options; a method itself is returned as it is."""
    if isinstance(method, Method):
        return method
    for one in REGISTERED:
        if one.name == method:
            return one
    hint = suggestion(method, names()) if isinstance(method, str) else ""
    raise ReleaseError(
        f"no method {method!r}{hint} (the names are {', '.join(names())}",
        remedy="an object of margrave.methods is taken too)",
    )


def read(document: object) -> Method:
    """Return the method of a dictionary form (`Method.to_dict`), as read from JSON.

    Parameters
    ----------
    document
        What was read. A method of which something was not recorded comes back as `Unrecorded`.
    """
    if not isinstance(document, Mapping) or not {"name", "options"} <= set(document) <= {"name", "options", "note"}:
        raise ReleaseError("a method is recorded by its name, its options and maybe a note", remedy="this is not one")
    name, options, note = document["name"], document["options"], document.get("note")
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        raise ReleaseError(f"the options of the method {name!r} are not a JSON object")
    if "note" in document and not (isinstance(note, str) and 0 < len(note) <= _MOST_NOTE):
        raise ReleaseError(f"the note of the method {name!r} is not a text of at most {_MOST_NOTE:,} characters")
    usual = find(name if isinstance(name, str) else None)
    made = type(usual).from_options(options)
    if note is not None:
        return Unrecorded(usual, note, tuple(options.items()))
    if made.name != name:
        raise ReleaseError(f"the options recorded for the method {name!r} are those of {made.name!r}")
    return made
