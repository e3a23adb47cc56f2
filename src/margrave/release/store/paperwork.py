"""The papers of a release: how private it is (privacy.json), and what the columns mean (CSVW)."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from margrave.domain import Domain
from margrave.errors import StoreError
from margrave.escaping import guarded
from margrave.measurements import Provenance
from margrave.release import facts
from margrave.release.formatting import float_above
from margrave.release.store.manifest import TableEntry
from margrave.release.store.names import safe_word
from margrave.release.store.readme import spoken
from margrave.release.store.tables import MEASURES

# What a privacy statement cannot do without; everything else that a provenance knows is compared where it is there.
_GUARANTEE = ("mechanism", "rho", "epsilon", "delta", "contributions", "neighbours", "private")


def privacy_document(provenance: Provenance | None) -> dict[str, Any]:
    """Return the content of privacy.json."""
    head: dict[str, Any] = {"margrave": "privacy", "schema": 1, "statement": facts.statement(provenance)}
    head["known"] = provenance is not None
    if provenance is None:
        head["private"] = None
    else:
        head |= provenance.to_dict()
        head["rho_decimal"] = float_above(provenance.rho)
        head["definition"] = "zero-concentrated differential privacy (zCDP); every rho is exact"
        head["unit"] = facts.unit(provenance)
    packages = {name: version(name) for name in ("margrave", "numpy", "pyarrow")}
    return {**head, "saved_with": {**packages, "python": platform.python_version()}}


def check_privacy(document: Mapping[str, Any], provenance: Provenance | None, where: str) -> None:
    """Refuse a privacy.json that says something else than the measurements themselves."""
    plain = {"private": None} if provenance is None else _plain(provenance)
    needed = () if provenance is None else _GUARANTEE
    wrong = [key for key, value in plain.items() if document.get(key, value) != value]
    wrong += [key for key in needed if key not in document]
    if wrong or document.get("known") is not (provenance is not None):
        what = wrong[0] if wrong else "known"
        raise StoreError(f"{where} is damaged: its {what!r} is not what measurements.npz says; get the release again")


def csvw_document(domain: Domain, tables: Sequence[TableEntry], title: str) -> dict[str, Any]:
    """Return the content of csvw-metadata.json: each table's file and the meaning of its columns, after W3C's CSVW."""
    return {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "dc:title": title,
        "dc:description": domain.description,
        "tables": [_csvw_table(domain, table) for table in tables],
    }


def as_json(document: Mapping[str, Any]) -> str:
    """Return a document as text for people and programs."""
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _plain(provenance: Provenance) -> dict[str, Any]:
    # As it comes back from a file: tuples are lists there.
    plain: dict[str, Any] = json.loads(json.dumps(provenance.to_dict()))
    return plain


def _csvw_table(domain: Domain, table: TableEntry) -> dict[str, Any]:
    taken: set[str] = set()
    keys = [_csvw_name(name, place, taken) for place, name in enumerate(table.attributes, start=1)]
    columns = [_csvw_attribute(domain, name, key) for name, key in zip(table.attributes, keys, strict=True)]
    columns += [_csvw_measure(name, table.attributes, taken) for name in MEASURES]
    if table.csv is not None:
        columns = [{**column, "titles": guarded(column["titles"])} for column in columns]
    schema: dict[str, Any] = {"columns": columns, "primaryKey": keys} if keys else {"columns": columns}
    kind = {} if table.csv is not None else {"dc:format": "application/vnd.apache.parquet"}
    return {"url": quote(table.csv or table.file), **kind, "dc:title": spoken(table), "tableSchema": schema}


def _csvw_attribute(domain: Domain, name: str, key: str) -> dict[str, Any]:
    described = domain[name].description
    words = {"dc:description": described} if described else {}
    return {"name": key, "titles": name, "datatype": "string", "required": True, **words}


def _csvw_measure(name: str, attributes: Sequence[str], taken: set[str]) -> dict[str, Any]:
    title = name
    while title in attributes:
        title += "_"
    key = _csvw_name(name, 0, taken)
    meaning = f"the {facts.COLUMNS[name].name}{facts.COLUMNS[name].details}"
    return {"name": key, "titles": title, "datatype": "double", "dc:description": meaning}


def _csvw_name(name: str, place: int, taken: set[str]) -> str:
    """Return a name for a column that CSVW allows and no other column has."""
    key = safe_word(name).replace("-", "_") or f"attribute{place}"
    while key in taken:
        key += "_"
    taken.add(key)
    return key
