"""What a failure may say: engines put values, numbers of rows and passwords into their messages, so none gets through.

An error of margrave's own is raised again with its text alone. Of any other nothing is told but its type, and what
errors of that type mean. Neither has a cause or a context, in which the message of the engine would travel along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from margrave.errors import DataError, MargraveError

T = TypeVar("T")

_NOT_SHOWN = "nothing was charged, and what the engine said is not shown because it may hold values"
_NO_QUERY = (
    "could not be asked ({error}): the query is not one SELECT in its SQL, or names a table, column or function that "
    "is not there; run it in a client of the database to see what is wrong"
)
_NO_CONNECTION = (
    "could not be reached, or the connection was lost ({error}); see that the server runs, that host, port, database, "
    "user and password are right, and that this machine may connect"
)
_NO_TABLE = "has no such table ({error}); see how it is written, with its schema before a dot, as in survey.people"
_NO_FILE = (
    "may not open other files ({error}): a query or a view reads the tables of its database alone; give those files as "
    "DATA, or open them by a connection of your own and give the relation"
)
_READ_ONLY = "may not be changed ({error}): a query can read and do nothing else"
_NO_RIGHT = "may not be read by this user ({error}); ask for the right to read the table"
_OTHERWISE = "could not be read and counted ({error}); see that it is whole and within reach, and that its query runs"
# What the errors of each class mean, subclasses not included; by their names, since their libraries need not be there.
_MEANINGS = {
    "duckdb": {
        **dict.fromkeys(("ParserException", "BinderException", "CatalogException"), _NO_QUERY),
        "PermissionException": _NO_FILE,
    },
    "psycopg": {
        **dict.fromkeys(
            ("SyntaxError", "UndefinedTable", "UndefinedColumn", "UndefinedFunction", "UndefinedObject"), _NO_QUERY
        ),
        **dict.fromkeys(
            (
                "OperationalError",
                "AdminShutdown",
                "CrashShutdown",
                "CannotConnectNow",
                "ConnectionTimeout",
                "TooManyConnections",
            ),
            _NO_CONNECTION,
        ),
        "InvalidSchemaName": _NO_TABLE,
        "ReadOnlySqlTransaction": _READ_ONLY,
        "InsufficientPrivilege": _NO_RIGHT,
    },
    "ibis": {"TableNotFound": _NO_TABLE},
    "sqlglot": dict.fromkeys(("ParseError", "TokenError"), _NO_QUERY),
}


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
        problem = DataError(f"{what} {_meaning(type(error))}; {_NOT_SHOWN}")
    # Raised here, outside the handler, it has no context.
    raise problem


def _meaning(kind: type[Exception]) -> str:
    """Return what is known to be wrong when an error of this class is raised."""
    # DuckDB's classes live in a module with an underscore before its name, or without.
    library = kind.__module__.split(".")[0].removeprefix("_")
    words = _MEANINGS.get(library, {}).get(kind.__name__)
    return (words or _OTHERWISE).format(error=kind.__name__)


def quiet_items(items: Iterator[T], what: str) -> Iterator[T]:
    """Yield the items of an iterator over the private table; if it fails, raise an error that tells nothing of it."""
    end = object()
    while (item := quietly(lambda: next(items, end), what)) is not end:
        yield item  # type: ignore[misc]
