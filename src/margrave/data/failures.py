"""What a failure may say: engines put values, numbers of rows and passwords into their messages, so none gets through.

An error of margrave's own is raised again with its text alone. Of any other nothing is told but its type. Neither has
a cause or a context, in which the message of the engine would travel along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from margrave.errors import DataError, MargraveError

T = TypeVar("T")


def quietly(work: Callable[[], T], what: str) -> T:
    """Return what ``work`` returns; if it fails, raise an error that holds nothing of the table.

    Parameters
    ----------
    work
        Reads the private table.
    what
        What is read, as in "the table in memory".
    """
    problem: MargraveError
    try:
        return work()
    except MargraveError as error:
        problem = type(error)(str(error))
    except Exception as error:
        problem = DataError(
            f"{what} could not be read and counted ({type(error).__name__}); see that it is whole and within reach, "
            "and that its query runs; nothing was charged, and what the engine said is not shown because it may hold "
            "values"
        )
    # Raised here, outside the handler, it has no context.
    raise problem


def quiet_items(items: Iterator[T], what: str) -> Iterator[T]:
    """Yield the items of an iterator over the private table; if it fails, raise an error that tells nothing of it."""
    end = object()
    while (item := quietly(lambda: next(items, end), what)) is not end:
        yield item  # type: ignore[misc]
