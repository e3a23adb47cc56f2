"""CSVW, the W3C's metadata for tables: the columns of ``tableSchema`` with their datatypes.

A column declares a finite set of values when its datatype is boolean (with a format such as ``Y|N`` these two texts),
when it is whole numbers with a minimum and a maximum, or when it is text whose format lists it, ``single|married``. Its
name in the table is its title if it has one. Unless it is required, values may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from margrave.domain.foreign.columns import HINT, MISSING, Column, text_of, whole_range
from margrave.errors import DomainError

_CONTEXT = "http://www.w3.org/ns/csvw"
_WHOLE = ("integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger", "unsignedInt")
_WHOLE_MORE = ("unsignedLong", "unsignedShort", "unsignedByte", "gYear")
_TEXT = ("string", "normalizedString", "token")
# A regular expression that is nothing but a list of texts, perhaps in parentheses and between anchors.
_LITERAL = r"(?:[^\\.^$*+?()\[\]{}|]|\\[^A-Za-z0-9])*"
_LISTED = re.compile(rf"\^?(?P<open>\((?:\?:)?)?(?P<texts>{_LITERAL}(?:\|{_LITERAL})+)(?(open)\))\$?", re.DOTALL)


def is_csvw(document: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is CSVW metadata."""
    context = document.get("@context")
    named = _CONTEXT in (context if isinstance(context, list) else [context])
    tables = document.get("tables")
    # An attribute may be called tables, but then its labels are texts or numbers.
    listed = isinstance(tables, list) and any(isinstance(table, dict) for table in tables)
    return named or listed or isinstance(document.get("tableSchema"), dict)


def csvw_columns(document: Mapping[str, Any]) -> list[Column]:
    """Return the columns of the one table that CSVW metadata describe."""
    tables = document.get("tables", [document])
    if not isinstance(tables, list) or len(tables) != 1 or not isinstance(tables[0], dict):
        raise DomainError("the CSVW file describes several tables or none", remedy="keep the one whose domain it is")
    schema = tables[0].get("tableSchema", document.get("tableSchema"))
    columns = schema.get("columns") if isinstance(schema, dict) else None
    if not isinstance(columns, list) or not all(isinstance(column, dict) for column in columns):
        raise DomainError(
            "the CSVW file has no list of columns", remedy='write it as "tableSchema": {"columns": [{…}, …]}'
        )
    inherited = {**document, **tables[0], **schema} if isinstance(schema, dict) else {}
    return [_column(column, inherited) for column in columns if column.get("virtual") is not True]


def _column(entry: Mapping[str, Any], inherited: Mapping[str, Any]) -> Column:
    """Return one column; its datatype and its null may be inherited from the table."""
    values, lacks = _values(entry.get("datatype", inherited.get("datatype", "string")))
    declared: dict[str, Any] = {"description": text_of(entry.get("dc:description", entry.get("rdfs:comment")))}
    if values is not None:
        declared |= _with_missing(values, entry, inherited)
    return Column(_name(entry), declared, lacks, entry.get(HINT))


def _name(entry: Mapping[str, Any]) -> str:
    """Return what the column is called in the table: its title, or else its name."""
    title = entry.get("titles", entry.get("name"))
    if isinstance(title, dict):
        title = next(iter(title.values()), None)
    if isinstance(title, list):
        title = title[0] if title else None
    if not isinstance(title, str) or not title:
        raise DomainError("a column of the CSVW file has neither titles nor a name", remedy='give it "name"')
    return title


def _values(datatype: object) -> tuple[list[Any] | None, str]:
    """Return the values that a datatype allows, or None and what it allows instead."""
    kind = {"base": datatype} if isinstance(datatype, str) else datatype
    if not isinstance(kind, dict):
        return None, "no datatype"
    base, form = kind.get("base", "string"), kind.get("format")
    if base == "boolean":
        return form.split("|") if isinstance(form, str) and form.count("|") == 1 else [False, True], ""
    if base in _WHOLE or base in _WHOLE_MORE:
        return whole_range(*_bounds(kind))
    listed = _LISTED.fullmatch(form) if base in _TEXT and isinstance(form, str) else None
    if listed is None:
        return None, f"any {base}"
    return list(dict.fromkeys(re.sub(r"\\(.)", r"\1", text) for text in _alternatives(listed["texts"]))), ""


def _alternatives(texts: str) -> list[str]:
    """Return the texts between the bars that are not escaped."""
    return re.findall(r"(?:^|\|)((?:[^\\|]|\\.)*)", texts, flags=re.DOTALL)


def _bounds(kind: Mapping[str, Any]) -> tuple[object, object]:
    """Return the smallest and the largest value that a datatype of whole numbers allows."""
    lower, upper = (_number(kind.get(f"{end}imum", kind.get(f"{end}Inclusive"))) for end in ("min", "max"))
    above, below = _number(kind.get("minExclusive")), _number(kind.get("maxExclusive"))
    lower = above + 1 if lower is None and isinstance(above, int) else lower
    return lower, below - 1 if upper is None and isinstance(below, int) else upper


def _number(value: object) -> object:
    """Return a whole number that is written as text as one; CSVW allows both."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,18}", value, re.ASCII) else value


def _with_missing(values: list[Any], entry: Mapping[str, Any], inherited: Mapping[str, Any]) -> dict[str, Any]:
    """Return labels, and the category of missing values unless a value is required."""
    null = entry.get("null", inherited.get("null", ""))
    names = [name for name in (null if isinstance(null, list) else [null]) if isinstance(name, str) and name]
    if len(names) > 1:
        raise DomainError(
            f"column {_name(entry)!r} of the CSVW file has {len(names)} texts for missing values",
            remedy="keep one of them",
        )
    if entry.get("required", inherited.get("required", False)) is True:
        return {"labels": values}
    # The file contains this text, so it is a label too; an empty field is missing without being declared.
    labels = [*values, *(name for name in names if name not in values)]
    return {"labels": labels, "missing": names[0] if names else MISSING}
