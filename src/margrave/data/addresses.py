"""The addresses of databases: what their path names."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit, urlunsplit

from margrave.errors import DataError

SCHEMES = ("postgresql", "postgres")


def split_url(url: str) -> tuple[str, str | None]:
    """Return the URL of a database, and the table that its path goes on to name.

    ``postgresql://host/db`` names none, ``postgresql://host/db/table`` and ``postgresql://host/db/schema/table`` do.
    """
    parts = urlsplit(url)
    database, _, table = parts.path.lstrip("/").partition("/")
    if table.count("/") > 1:
        raise DataError(
            "the path of the URL has more than database, schema and table; write postgresql://host/db/table"
        )
    return urlunsplit(parts._replace(path=f"/{database}")), unquote(table).replace("/", ".") or None
