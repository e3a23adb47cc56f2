"""Files by which other tools describe the columns of a table, read as declarations of attributes.

In every such file a column may carry the key ``margrave``: with an object such as ``{"cuts": [18, 65]}``, whose keys
are those of an attribute in a codebook and override what the file says, or with ``false``, which leaves the column
out. The tool that wrote a file is recognised by its content.

**CSVW**, the W3C's metadata for tables. A column declares a finite set of values when its datatype is boolean (with a
format such as ``Y|N`` these two texts), when it is whole numbers with a minimum and a maximum, or when it is text whose
format lists it, ``single|married``. Its name in the table is its title if it has one. Unless it is required, values may
be missing.

**SmartNoise**'s metadata, a YAML file. A column declares a finite set of values when it is boolean, or of whole numbers
with bounds. Columns of private identifiers, and those of unknown type, which SmartNoise ignores, are left out. Unless a
column says ``nullable: False`` values may be missing; ``missing_value`` names the category that counts them.

**SDNist**, NIST's benchmark for synthetic data. Its data dictionary says of each column what its codes mean,
``{"SEX": {"description": …, "values": {"1": "Male", …}}}``, and gives numbers by ``min`` and ``max``. Its schema,
``{"schema": {"SEX": {"dtype": "int64", "values": [1, 2]}, …}}``, lists the values themselves and says what stands for a
missing one. Codes that are all whole numbers are numbers; otherwise they are texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from margrave.domain.attribute import Attribute, attribute_keys
from margrave.domain.kinds import declaring_keys
from margrave.errors import DomainError
from margrave.files import LONGEST_NUMBER, MOST_DEPTH, check_keys

HINT = "margrave"
# What missing values are called where a file allows them and does not name them.
MISSING = "missing"
# A longer range of numbers is rarely meant as a list of categories.
_LONGEST_RANGE = 1000
_MOST_SHOWN = 12
_CSVW_CONTEXT = "http://www.w3.org/ns/csvw"
_CSVW_WHOLE = ("integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger", "unsignedInt")
_CSVW_WHOLE_MORE = ("unsignedLong", "unsignedShort", "unsignedByte", "gYear")
_CSVW_TEXT = ("string", "normalizedString", "token")
# A regular expression that is only a list of texts, optionally in parentheses and between anchors.
_LITERAL = r"(?:[^\\.^$*+?()\[\]{}|]|\\[^A-Za-z0-9])*"
_LISTED = re.compile(rf"\^?(?P<open>\((?:\?:)?)?(?P<texts>{_LITERAL}(?:\|{_LITERAL})+)(?(open)\))\$?", re.DOTALL)
_SMARTNOISE_QUOTES = ('""', "``", "[]")
_SDNIST_WORDS = (
    "description",
    "details",
    "link",
    "dtype",
    "kind",
    "has_null",
    "null_value",
    "step_size",
    "min",
    "max",
    HINT,
)
_SDNIST_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}", re.ASCII)


@dataclass(frozen=True)
class Column:
    """A column of a file of another tool.

    Parameters
    ----------
    name
        What the column is called in the table.
    declared
        What the file says about it, as keywords of `Attribute`.
    lacks
        Why this is not a finite set of values; empty if it is.
    hint
        The value of the key ``margrave``, if there is one.
    """

    name: str
    declared: Mapping[str, Any] = field(default_factory=dict)
    lacks: str = ""
    hint: object = None


def attributes_of(columns: Iterable[Column]) -> list[Attribute]:
    """Return the attributes that columns declare; refuse columns without a finite set that are not left out."""
    found, lacking = [], []
    for column in columns:
        keywords = _keywords(column)
        if keywords is None:
            continue
        if any(key in keywords for key in declaring_keys()):
            found.append(Attribute.from_entry(keywords))
        else:
            lacking.append(f"{column.name} ({column.lacks})")
    if lacking:
        more = [f"and {len(lacking) - _MOST_SHOWN} more"] if len(lacking) > _MOST_SHOWN else []
        raise DomainError(
            f"these columns do not declare a finite set of values: {', '.join([*lacking[:_MOST_SHOWN], *more])}",
            remedy=f'add to each "{HINT}": {{"cuts": […]}} or {{"labels": […]}}, or "{HINT}": false to leave it out',
        )
    if not found:
        raise DomainError("the file describes no column", remedy="name at least one with its values")
    return found


def _keywords(column: Column) -> dict[str, Any] | None:
    """Return the keywords of the attribute; the hint overrides the file. None for a column to leave out."""
    hint = {} if column.hint is None else column.hint
    if hint is False:
        return None
    if not isinstance(hint, dict):
        raise DomainError(
            f'column {column.name!r} has "{HINT}": {hint!r}', remedy="write an object with its values, or false"
        )
    given = {**hint, "name": column.name}
    check_keys(f'the "{HINT}" of column {column.name!r}', given, attribute_keys(), needed="name")
    values = declaring_keys()
    replaced = values if any(key in hint for key in values) else ()
    declared = {key: value for key, value in column.declared.items() if key not in replaced}
    return {**declared, **given}


def whole_range(lower: object, upper: object) -> tuple[list[int] | None, str]:
    """Return the whole numbers from lower to upper, or None and why they cannot be a list of categories."""
    if not _is_whole(lower) or not _is_whole(upper):
        return None, f"numbers from {lower} to {upper}" if _is_number(lower) and _is_number(upper) else "no values"
    first, last = int(str(lower)), int(str(upper))
    if last < first:
        return None, f"no whole number from {first} to {last}"
    if last - first >= _LONGEST_RANGE:
        return None, f"{last - first + 1:,} whole numbers"
    return list(range(first, last + 1)), ""


def meanings(description: str, codes: Mapping[str, object]) -> str:
    """Return a description with the meaning of each code, unless there are too many of them."""
    if not codes or len(codes) > _MOST_SHOWN:
        return description
    listed = "; ".join(f"{code} = {meaning}" for code, meaning in codes.items())
    return f"{description}: {listed}" if description else listed


def text_of(value: object) -> str:
    """Return a text of a file, or an empty one for a value of another type."""
    return value if isinstance(value, str) else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_csvw(document: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is CSVW metadata."""
    context = document.get("@context")
    named = _CSVW_CONTEXT in (context if isinstance(context, list) else [context])
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
    return [_csvw_column(column, inherited) for column in columns if column.get("virtual") is not True]


def _csvw_column(entry: Mapping[str, Any], inherited: Mapping[str, Any]) -> Column:
    """Return one column; its datatype and its null may be inherited from the table."""
    values, lacks = _csvw_values(entry.get("datatype", inherited.get("datatype", "string")))
    declared: dict[str, Any] = {"description": text_of(entry.get("dc:description", entry.get("rdfs:comment")))}
    if values is not None:
        declared |= _with_missing(values, entry, inherited)
    return Column(_csvw_name(entry), declared, lacks, entry.get(HINT))


def _csvw_name(entry: Mapping[str, Any]) -> str:
    """Return what the column is called in the table: its title, or else its name."""
    title = entry.get("titles", entry.get("name"))
    if isinstance(title, dict):
        title = next(iter(title.values()), None)
    if isinstance(title, list):
        title = title[0] if title else None
    if not isinstance(title, str) or not title:
        raise DomainError("a column of the CSVW file has neither titles nor a name", remedy='give it "name"')
    return title


def _csvw_values(datatype: object) -> tuple[list[Any] | None, str]:
    """Return the values that a datatype allows, or None and what it allows instead."""
    kind = {"base": datatype} if isinstance(datatype, str) else datatype
    if not isinstance(kind, dict):
        return None, "no datatype"
    base, form = kind.get("base", "string"), kind.get("format")
    if base == "boolean":
        return form.split("|") if isinstance(form, str) and form.count("|") == 1 else [False, True], ""
    if base in _CSVW_WHOLE or base in _CSVW_WHOLE_MORE:
        return whole_range(*_bounds(kind))
    listed = _LISTED.fullmatch(form) if base in _CSVW_TEXT and isinstance(form, str) else None
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
            f"column {_csvw_name(entry)!r} of the CSVW file has {len(names)} texts for missing values",
            remedy="keep one of them",
        )
    if entry.get("required", inherited.get("required", False)) is True:
        return {"labels": values}
    # The file contains this text, so it is a label too; an empty field is missing without being declared.
    labels = [*values, *(name for name in names if name not in values)]
    return {"labels": labels, "missing": names[0] if names else MISSING}


def is_smartnoise(document: Mapping[Any, Any]) -> bool:
    """Return whether an object is metadata of SmartNoise: columns with a type, three levels down."""
    return any(
        isinstance(column, dict) and "type" in column
        for table in _smartnoise_tables(document).values()
        for column in table.values()
    )


def smartnoise_columns(document: Mapping[Any, Any]) -> list[Column]:
    """Return the columns of the one table that SmartNoise's metadata describe."""
    tables = _smartnoise_tables(document)
    if len(tables) != 1:
        raise DomainError(
            f"the SmartNoise file describes the tables {', '.join(tables)}", remedy="keep the one whose domain it is"
        )
    (table,) = tables.values()
    columns = {str(name): entry for name, entry in table.items() if isinstance(entry, dict)}
    return [_smartnoise_column(name, entry) for name, entry in columns.items() if not _smartnoise_ignored(entry)]


def _smartnoise_tables(document: Mapping[Any, Any]) -> dict[str, Mapping[Any, Any]]:
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


def _smartnoise_ignored(entry: Mapping[str, Any]) -> bool:
    return entry.get("private_id") is True or entry.get("type") == "unknown"


def _smartnoise_column(name: str, entry: Mapping[str, Any]) -> Column:
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
    return name[1:-1] if len(name) > 2 and name[0] + name[-1] in _SMARTNOISE_QUOTES else name


def is_sdnist(document: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is a data dictionary, or a schema, of SDNist."""
    columns = document.get("schema", document)
    return isinstance(columns, dict) and bool(columns) and all(isinstance(entry, dict) for entry in columns.values())


def sdnist_columns(document: Mapping[str, Any]) -> list[Column]:
    """Return the columns that a data dictionary or a schema of SDNist describes."""
    columns = document.get("schema", document)
    return [_sdnist_column(name, entry) for name, entry in columns.items()]


def _sdnist_column(name: str, entry: Mapping[str, Any]) -> Column:
    """Return one column. Some dictionaries lack the object ``values`` and list its content next to the description."""
    listed = entry.get("values")
    values = entry if listed is None else listed
    described = text_of(entry.get("description"))
    if isinstance(values, list):
        labels, lacks = values or None, "no values"
    else:
        codes = {code: meaning for code, meaning in values.items() if code not in _SDNIST_WORDS}
        labels, lacks = _sdnist_labels(values, codes, as_text=entry.get("dtype") in ("object", "str"))
        described = meanings(described, codes)
    declared: dict[str, Any] = {"description": described}
    if labels:
        declared["labels"] = labels
        if entry.get("has_null") is True and "null_value" in entry:
            declared["missing"] = str(entry["null_value"])
            # The table contains this value, so it is a label like the others.
            declared["labels"] = list(dict.fromkeys([*labels, entry["null_value"]]))
    return Column(name, declared, lacks, entry.get(HINT))


def _sdnist_labels(
    values: Mapping[str, Any], codes: Mapping[str, object], *, as_text: bool
) -> tuple[list[str] | list[int] | None, str]:
    """Return the codes and the range of numbers that are declared together, in the order of the file."""
    numbers, lacks = whole_range(values.get("min"), values.get("max")) if "min" in values else ([], "no values")
    if numbers is None or values.get("step_size", 1) != 1:
        return None, lacks or "numbers in steps"
    ranged = [str(number) for number in numbers]
    texts = list(
        dict.fromkeys(code for key in values for code in ([key] if key in codes else ranged if key == "min" else []))
    )
    if not texts:
        return None, lacks
    whole = not as_text and all(_SDNIST_WHOLE.fullmatch(text) for text in texts)
    return ([int(text) for text in texts] if whole else texts), ""


# How each format is recognised and read; the first that is recognised counts.
_FORMATS: tuple[tuple[Callable[[Mapping[str, Any]], bool], Callable[[Mapping[str, Any]], list[Column]]], ...] = (
    (is_csvw, csvw_columns),
    (is_smartnoise, smartnoise_columns),
    (is_sdnist, sdnist_columns),
)


def foreign_attributes(document: Mapping[str, Any]) -> list[Attribute] | None:
    """Return the attributes that the file of another tool declares, or None if no known tool wrote it."""
    columns = next((columns for recognises, columns in _FORMATS if recognises(document)), None)
    return None if columns is None else attributes_of(columns(document))


def parse_yaml(text: str) -> dict[str, Any]:
    """Return the object that a YAML text holds."""
    try:
        import yaml
    except ImportError:
        raise DomainError(
            "a YAML file needs the package PyYAML", remedy="install it, or write the file as JSON"
        ) from None
    try:
        document = yaml.load(text, _loader(yaml))
    except (ValueError, ArithmeticError, RecursionError):
        # A date that does not exist, a number too large for a float.
        raise DomainError(
            "YAML with a value that cannot be read", remedy="write the metadata of SmartNoise, or a domain file in JSON"
        ) from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = "" if place is None else f" at line {place.line + 1}"
        raise DomainError(
            f"not YAML{where}", remedy="write the metadata of SmartNoise, or a domain file in JSON"
        ) from None
    if not isinstance(document, dict):
        raise DomainError("not a YAML mapping", remedy="write the metadata of SmartNoise, or a domain file in JSON")
    return document


def _loader(yaml: ModuleType) -> type:
    """Return a loader of plain values that refuses aliases, depth and long numbers: a few bytes of them take hours."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc,name-defined]
        depth = 0

        def compose_node(self, parent: object, index: object) -> object:
            self.depth += 1
            if self.depth > MOST_DEPTH or self.check_event(yaml.AliasEvent):
                raise yaml.composer.ComposerError(None, None, "too deep, or an alias", self.peek_event().start_mark)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_scalar(self, node: Any) -> Any:  # noqa: ANN401
            value = super().construct_scalar(node)
            if node.tag.endswith((":int", ":float")) and len(value) > LONGEST_NUMBER:
                raise yaml.constructor.ConstructorError(None, None, "a long number", node.start_mark)
            return value

    return Loader
