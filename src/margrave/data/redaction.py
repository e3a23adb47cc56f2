"""What messages may say about a table: nothing of its rows and nothing of its credentials.

Engines put values, numbers of rows and passwords into their messages, so no message of an engine gets through. An error
of margrave's own is raised again with its text alone. Of any other error only the type is shown, with what errors of
that type mean. Neither has a cause or a context that would carry the message of the engine along. Addresses of
databases are shown without user, password and options. Some tools print the variables of every function that an error
has passed through: what held rows or exact counts is emptied before an error gets out.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from margrave.errors import DataError, MargraveError

T = TypeVar("T")

_NOT_SHOWN = "nothing was charged, and what the engine said is not shown because it may hold values"
_NO_QUERY = (
    "could not be queried ({error}): the query is not one SELECT in its SQL, or names a table, column or function that "
    "is not there; run it in a client of the database to see what is wrong"
)
_NO_CONNECTION = (
    "could not be reached, or the connection was lost ({error}); check that the server runs, that host, port, "
    "database, user and password are right, and that this machine may connect"
)
_NO_TABLE = "has no such table ({error}); check its name, with its schema before a dot, as in survey.people"
_NO_FILE = (
    "may not open other files ({error}): a query or a view reads the tables of its database alone; give those files as "
    "DATA, or open them with your own connection and give the relation"
)
_READ_ONLY = "may not be changed ({error}): a query can read and do nothing else"
_NO_RIGHT = "may not be read by this user ({error}); request permission to read the table"
_OTHERWISE = "could not be read and counted ({error}); check that it is complete and reachable, and that its query runs"
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
SCHEMES = ("postgresql", "postgres")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+-]{0,19}")
# What occurs in addresses of databases but not in names of files: a word for a password, ://, a user before an @.
_SECRET = re.compile(r"pass\w*\s*=|pwd\s*=|://|:.*@", re.IGNORECASE | re.DOTALL)


def quietly(work: Callable[[], T], what: str) -> T:
    """Return the result of ``work``; if it fails, raise an error that contains nothing of the table.

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
        problem = DataError(f"{what} {_meaning(type(error))}", remedy=f"{_NOT_SHOWN}")
    except BaseException as error:  # such as Ctrl-C, which says nothing but where it came
        empty_frames(error)
        raise
    # Raised here, outside the handler, it has no context.
    raise problem


def empty_frames(error: BaseException) -> None:
    """Empty the variables of all functions that an error, and those it was raised from, came through and left.

    Parameters
    ----------
    error
        What was raised; its text and its lines stay.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            waiting += [one.__cause__, one.__context__]


def _meaning(kind: type[Exception]) -> str:
    """Return what an error of this class means."""
    # DuckDB's classes live in a module with an underscore before its name, or without.
    library = kind.__module__.split(".")[0].removeprefix("_")
    words = _MEANINGS.get(library, {}).get(kind.__name__)
    return (words or _OTHERWISE).format(error=kind.__name__)


def shown(source: str) -> str:
    """Return the name of a file in quotes; a text that may contain a password is replaced by words that say so."""
    return "(not shown: it may hold a password)" if _SECRET.search(source) else repr(source)


def shown_scheme(scheme: str) -> str:
    """Return the scheme before ``://`` in words, unless it may be a part of a password."""
    return f"a URL that begins with {scheme}://" if _SCHEME.fullmatch(scheme) else "an address of this kind"


def without_credentials(url: str) -> str:
    """Return the address of a database without user, password and options: only scheme, host, port and path."""
    parts = _parts(url)
    if parts is None:
        return "(not shown: it may hold a password)"
    # A password with an unescaped / or # ends the host too early; what is left then begins with its user.
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return f"{parts.scheme}://(not shown: it may hold a password)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def split_url(url: str) -> tuple[str, str | None]:
    """Return the URL of a database, and the table that its path names after the database.

    ``postgresql://host/db`` names none, ``postgresql://host/db/table`` and ``postgresql://host/db/schema/table`` do.
    """
    parts = _parts(url)
    if parts is None:  # raised here, and not where it failed, the error has no context that shows the password
        raise DataError(
            "the URL of the database cannot be read", remedy="write postgresql://user@host:port/db, with %-escapes"
        )
    database, _, table = parts.path.lstrip("/").partition("/")
    if table.count("/") > 1:
        raise DataError(
            "the path of the URL has more than database, schema and table", remedy="write postgresql://host/db/table"
        )
    # By hand: where there is no host, as with a socket, urlunsplit would leave out the slashes.
    query = f"?{parts.query}" if parts.query else ""
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    address = f"{parts.scheme}://{parts.netloc}/{database}{query}{fragment}"
    return address, unquote(table).replace("/", ".") or None


def _parts(url: str) -> SplitResult | None:
    """Return the parts of a URL, or None if it has none."""
    try:
        return urlsplit(url)
    except ValueError:
        return None
