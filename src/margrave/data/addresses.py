"""The addresses of databases: what their path names, and what of a text that may be one is shown."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote, urlsplit

from margrave.errors import DataError

SCHEMES = ("postgresql", "postgres")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+-]{0,19}")
# What addresses of databases have and names of files have not: a word for a password, two slashes, a user before an @.
_SECRET = re.compile(r"pass\w*\s*=|pwd\s*=|://|:.*@", re.IGNORECASE | re.DOTALL)


def shown(source: str) -> str:
    """Return the name of a file in quotes; in place of a text that may hold a password, words that say so."""
    return "(not shown: it may hold a password)" if _SECRET.search(source) else repr(source)


def shown_scheme(scheme: str) -> str:
    """Return what stands before ``://`` as words for it, if it is a scheme and no part of a password."""
    return f"a URL that begins with {scheme}://" if _SCHEME.fullmatch(scheme) else "an address of this kind"


def without_credentials(url: str) -> str:
    """Return the address of a database without user, password and options: scheme, host, port and path alone."""
    parts = _parts(url)
    if parts is None:
        return "(not shown: it may hold a password)"
    # A password with an unescaped / or # ends the host too early; what is left then begins with its user.
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return f"{parts.scheme}://(not shown: it may hold a password)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def split_url(url: str) -> tuple[str, str | None]:
    """Return the URL of a database, and the table that its path goes on to name.

    ``postgresql://host/db`` names none, ``postgresql://host/db/table`` and ``postgresql://host/db/schema/table`` do.
    """
    parts = _parts(url)
    if parts is None:  # raised here, and not where it failed, the error has no context that shows the password
        raise DataError("the URL of the database cannot be read; write postgresql://user@host:port/db, with %-escapes")
    database, _, table = parts.path.lstrip("/").partition("/")
    if table.count("/") > 1:
        raise DataError(
            "the path of the URL has more than database, schema and table; write postgresql://host/db/table"
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
