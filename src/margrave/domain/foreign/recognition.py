"""Which tool a file comes from, recognised by its content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from margrave.domain.attribute import Attribute
from margrave.domain.foreign.columns import Column, attributes_of
from margrave.domain.foreign.csvw import csvw_columns, is_csvw
from margrave.domain.foreign.sdnist import is_sdnist, sdnist_columns
from margrave.domain.foreign.smartnoise import is_smartnoise, smartnoise_columns
from margrave.errors import DomainError
from margrave.strict_json import LONGEST_NUMBER, MOST_DEPTH

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
        raise DomainError(
            "a YAML file needs the package PyYAML", remedy="install it, or write the file as JSON"
        ) from None
    try:
        document = yaml.load(text, _loader(yaml))
    except (ValueError, ArithmeticError, RecursionError):
        # A date that does not exist, a number beyond all floats.
        raise DomainError(
            "YAML with a value that cannot be read", remedy="write the metadata of SmartNoise, or a codebook in JSON"
        ) from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = "" if place is None else f" at line {place.line + 1}"
        raise DomainError(
            f"not YAML{where}", remedy="write the metadata of SmartNoise, or a codebook in JSON"
        ) from None
    if not isinstance(document, dict):
        raise DomainError("not a YAML mapping", remedy="write the metadata of SmartNoise, or a codebook in JSON")
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
