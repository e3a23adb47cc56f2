"""SmartNoise's metadata, a YAML file: databases, schemas, tables, and the type and bounds of each column.

A column declares a finite set of values when it is boolean, or of whole numbers with bounds. Columns of private
identifiers, and those of unknown type, which SmartNoise ignores, are left out. Unless a column says ``nullable: False``
values may be missing; ``missing_value`` names the category that counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from margrave.domain.foreign.columns import HINT, MISSING, Column, whole_range
from margrave.errors import DomainError

_QUOTES = ('""', "``", "[]")


def is_smartnoise(document: Mapping[Any, Any]) -> bool:
    """Return whether an object is metadata of SmartNoise: columns with a type, three levels down."""
    return any(
        isinstance(column, dict) and "type" in column
        for table in _tables(document).values()
        for column in table.values()
    )


def smartnoise_columns(document: Mapping[Any, Any]) -> list[Column]:
    """Return the columns of the one table that SmartNoise's metadata describe."""
    tables = _tables(document)
    if len(tables) != 1:
        raise DomainError(
            f"the SmartNoise file describes the tables {', '.join(tables)}", remedy="keep the one whose domain it is"
        )
    (table,) = tables.values()
    columns = {str(name): entry for name, entry in table.items() if isinstance(entry, dict)}
    return [_column(name, entry) for name, entry in columns.items() if not _ignored(entry)]


def _tables(document: Mapping[Any, Any]) -> dict[str, Mapping[Any, Any]]:
    """Return the tables of all schemas of all databases, by their names."""
    schemas = [schema for schema in document.values() if isinstance(schema, dict)]
    tables = [
        (name, table)
        for schema in schemas
        for part in schema.values()
        if isinstance(part, dict)
        for name, table in part.items()
    ]
    return {str(name): table for name, table in tables if isinstance(table, dict)}


def _ignored(entry: Mapping[str, Any]) -> bool:
    return entry.get("private_id") is True or entry.get("type") == "unknown"


def _column(name: str, entry: Mapping[str, Any]) -> Column:
    """Return one column by its type and bounds."""
    kind = entry.get("type")
    labels: list[Any] | None = None
    lacks = f"any {kind}"
    if kind == "boolean":
        labels = [False, True]
    elif kind == "int":
        labels, lacks = whole_range(entry.get("lower"), entry.get("upper"))
    declared: dict[str, Any] = {}
    if labels is not None:
        declared["labels"] = labels
        if entry.get("missing_value") is not None:
            declared["missing"] = str(entry["missing_value"])
        elif entry.get("nullable", True) is not False:
            declared["missing"] = MISSING
    return Column(_unquoted(name), declared, lacks, entry.get(HINT))


def _unquoted(name: str) -> str:
    """Return the name of a column without the quotes of SQL."""
    return name[1:-1] if len(name) > 2 and name[0] + name[-1] in _QUOTES else name
