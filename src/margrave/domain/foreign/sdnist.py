"""Files of SDNist, NIST's benchmark for synthetic data: the data dictionary and the schema of a table.

The dictionary says of each column what its codes mean, ``{"SEX": {"description": …, "values": {"1": "Male", …}}}``, and
gives numbers by ``min`` and ``max``. The schema, ``{"schema": {"SEX": {"dtype": "int64", "values": [1, 2]}, …}}``,
lists the values themselves and says what stands for a missing one. Codes that are all whole numbers are numbers;
otherwise they are texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from margrave.domain.foreign.columns import HINT, Column, meanings, text_of, whole_range

_WORDS = ("description", "details", "link", "dtype", "kind", "has_null", "null_value", "step_size", "min", "max", HINT)
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}", re.ASCII)


def is_sdnist(document: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is a data dictionary, or a schema, of SDNist."""
    columns = document.get("schema", document)
    return isinstance(columns, dict) and bool(columns) and all(isinstance(entry, dict) for entry in columns.values())


def sdnist_columns(document: Mapping[str, Any]) -> list[Column]:
    """Return the columns that a data dictionary or a schema of SDNist describes."""
    columns = document.get("schema", document)
    return [_column(name, entry) for name, entry in columns.items()]


def _column(name: str, entry: Mapping[str, Any]) -> Column:
    """Return one column. Some dictionaries lack the object ``values`` and list its content beside the description."""
    listed = entry.get("values")
    values = entry if listed is None else listed
    described = text_of(entry.get("description"))
    if isinstance(values, list):
        labels, lacks = values or None, "no values"
    else:
        codes = {code: meaning for code, meaning in values.items() if code not in _WORDS}
        labels, lacks = _labels(values, codes, as_text=entry.get("dtype") in ("object", "str"))
        described = meanings(described, codes)
    declared: dict[str, Any] = {"description": described}
    if labels:
        declared["labels"] = labels
        if entry.get("has_null") is True and "null_value" in entry:
            declared["missing"] = str(entry["null_value"])
            # The table contains this value, so it is a label like the others.
            declared["labels"] = list(dict.fromkeys([*labels, entry["null_value"]]))
    return Column(name, declared, lacks, entry.get(HINT))


def _labels(
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
    whole = not as_text and all(_WHOLE.fullmatch(text) for text in texts)
    return ([int(text) for text in texts] if whole else texts), ""
