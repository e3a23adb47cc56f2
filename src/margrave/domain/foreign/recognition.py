"""Which tool a file comes from, recognised by its content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from margrave.domain.attribute import Attribute
from margrave.domain.foreign.columns import Column, attributes_of
from margrave.domain.foreign.csvw import csvw_columns, is_csvw
from margrave.domain.foreign.sdnist import is_sdnist, sdnist_columns
from margrave.domain.foreign.smartnoise import is_smartnoise, smartnoise_columns
from margrave.errors import DomainError

YAML_ENDINGS = (".yaml", ".yml")
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
        raise DomainError("a YAML file needs the package PyYAML; install it, or write the file as JSON") from None
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = "" if place is None else f" at line {place.line + 1}"
        raise DomainError(f"not YAML{where}; write the metadata of SmartNoise, or a codebook in JSON") from None
    if not isinstance(document, dict):
        raise DomainError("not a YAML mapping; write the metadata of SmartNoise, or a codebook in JSON")
    return document
