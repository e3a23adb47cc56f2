"""The papers of a release: how private it is (privacy.json), what the columns mean (CSVW), and a page for readers."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from margrave.domain import Domain
from margrave.errors import StoreError
from margrave.measurements import Provenance
from margrave.release.store.manifest import TableEntry
from margrave.release.store.names import safe_word
from margrave.release.store.tables import MEASURES

# What a privacy statement cannot do without; everything else that a provenance knows is compared where it is there.
_GUARANTEE = ("mechanism", "rho", "epsilon", "delta", "contributions", "neighbours", "private")
_MEANINGS = {
    "count": "the count by the method of the release",
    "estimate": "the unbiased estimate; may be negative; empty where the measurements do not determine the table",
    "std_error": "the standard error of the estimate; empty where it is not known",
    "ci_low": "the lower end of the 95 % interval of the estimate, rounded inwards and not below 0",
    "ci_high": "the upper end of the 95 % interval of the estimate, rounded inwards and not below 0",
}
_UNKNOWN = (
    "The noisy numbers behind these tables came from elsewhere. Margrave does not know how they were protected, and "
    "states no guarantee: ask whoever published them."
)
_SEEDED = (
    "NOT PRIVATE. The noise was drawn from a seed and can be computed again by anybody; these tables protect nobody. "
    "They are an experiment, and must not be published if they were made from data about people."
)


def rho_above(rho: Fraction) -> float:
    """Return ρ as a decimal number that is no less: a statement of privacy is never rounded in its own favour."""
    nearest = float(rho)
    return nearest if Fraction(nearest) >= rho else math.nextafter(nearest, math.inf)


def shown_above(number: float) -> str:
    """Return a number with at most six digits, rounded up."""
    return f"{Context(prec=6, rounding=ROUND_CEILING).create_decimal(repr(number)).normalize():g}"


def statement(provenance: Provenance | None) -> str:
    """Return, in words, how private a release is."""
    if provenance is None:
        return _UNKNOWN
    if not provenance.private:
        return _SEEDED
    bound = "which was enforced" if provenance.contributions_bounded == "enforced" else "as the publisher declared"
    epsilon, delta = shown_above(provenance.epsilon), shown_above(provenance.delta)
    return (
        f"Made by the mechanism {provenance.mechanism!r} with exact random noise. It is differentially private for one "
        f"person more or less who has at most {rows_spoken(provenance)} in the table ({bound}): ε = {epsilon} at "
        f"δ = {delta}, from ρ = {shown_above(rho_above(provenance.rho))} of zero-concentrated differential privacy "
        "(all rounded up). Everything after the noise is post-processing and costs nothing."
    )


def rows_spoken(provenance: Provenance) -> str:
    """Return the most rows of one person in words."""
    return "one row" if provenance.contributions == 1 else f"{provenance.contributions:,} rows"


def privacy_document(provenance: Provenance | None) -> dict[str, Any]:
    """Return the content of privacy.json."""
    head: dict[str, Any] = {"margrave": "privacy", "schema": 1, "statement": statement(provenance)}
    head["known"] = provenance is not None
    if provenance is None:
        head["private"] = None
    else:
        head |= provenance.to_dict()
        head["rho_decimal"] = rho_above(provenance.rho)
        head["definition"] = "zero-concentrated differential privacy (zCDP); every rho is exact"
        head["unit"] = f"one person with at most {rows_spoken(provenance)}"
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


def readme(domain: Domain, tables: Sequence[TableEntry], method: str, provenance: Provenance | None, date: str) -> str:
    """Return the page for readers, as Markdown."""
    what = {
        "lnn": "non-negative counts that agree with each other in every sum",
        "mle": "the unbiased estimate itself, which may be negative",
        "trunc": "the unbiased estimate with negative counts set to zero; tables do not agree with each other",
        "trunc+rescale": "the unbiased estimate with negative counts set to zero, scaled to the estimated total; "
        "tables do not agree with each other",
    }.get(method, f"by the method {method}")
    adaptive = provenance is not None and provenance.adaptive
    shown = "\n".join(f"- `{table.file}`: {_spoken(table)}" for table in tables[:_MOST_SHOWN])
    hidden = len(tables) - _MOST_SHOWN
    more = f"\n- … and {hidden:,} more, listed in `manifest.json`" if hidden > 0 else ""
    return _README.format(
        description=domain.description or "Cross-tabulations with noise that protects the people in them.",
        privacy=statement(provenance),
        count=what,
        interval=_ADAPTIVE if adaptive else _INTERVAL,
        tables=shown + more,
        first=tables[0].file,
        date=date,
    )


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
    schema: dict[str, Any] = {"columns": columns, "primaryKey": keys} if keys else {"columns": columns}
    kind = {} if table.csv is not None else {"dc:format": "application/vnd.apache.parquet"}
    return {"url": quote(table.csv or table.file), **kind, "dc:title": _spoken(table), "tableSchema": schema}


def _csvw_attribute(domain: Domain, name: str, key: str) -> dict[str, Any]:
    described = domain[name].description
    words = {"dc:description": described} if described else {}
    return {"name": key, "titles": name, "datatype": "string", "required": True, **words}


def _csvw_measure(name: str, attributes: Sequence[str], taken: set[str]) -> dict[str, Any]:
    title = name
    while title in attributes:
        title += "_"
    key = _csvw_name(name, 0, taken)
    return {"name": key, "titles": title, "datatype": "double", "dc:description": _MEANINGS[name]}


def _csvw_name(name: str, place: int, taken: set[str]) -> str:
    """Return a name for a column that CSVW allows and no other column has."""
    key = safe_word(name).replace("-", "_") or f"attribute{place}"
    while key in taken:
        key += "_"
    taken.add(key)
    return key


def _spoken(table: TableEntry) -> str:
    return " × ".join(table.attributes) or "the total"


_MOST_SHOWN = 20
_INTERVAL = (
    "`ci_low` to `ci_high` covers the true count in 95 of 100 such releases; its ends are rounded inwards to whole\n"
    "numbers and not below 0. It belongs to `estimate`, not to `count`. Where it is empty, the measurements do not\n"
    "determine the table, or their noise is not Gaussian."
)
_ADAPTIVE = (
    "There are no intervals: which tables were measured depended on earlier noise, and an interval that ignores this\n"
    "would be wrong. The columns `std_error`, `ci_low` and `ci_high` are empty."
)
_README = """# Cross-tabulations

{description}

## How private it is

{privacy}

`privacy.json` has every number, exactly.

## What is here

{tables}

Each table is in tidy long form, one row a cell: one column for each attribute, then

- `count`: {count};
- `estimate`: the unbiased estimate, right on average and the one to add up or average over many cells;
- `std_error`: how far, typically, the estimate is from the true count;
- `ci_low`, `ci_high`: an interval for the true count.

{interval}

Parquet is read by pandas, Polars, R (arrow), DuckDB and others:

    import pandas as pd
    pd.read_parquet("{first}")

and the whole release, with queries and any sub-table, by margrave:

    import margrave as mg
    release = mg.load(".")

`domain.json` says what the categories mean, `csvw-metadata.json` says the same of the columns for programs that know
the W3C's CSV on the Web. `measurements.npz` and `subtables.npz` hold the noisy measurements and the smaller tables, as
plain numpy arrays; `manifest.json` lists all files with their SHA-256 checksums, which `mg.load` verifies. Take nothing
out of this folder and put nothing in.

## How to cite

Name the publisher, the title, the date of the release ({date}) and the `checksum` in `manifest.json`, which no other
release has. The tables were made with margrave, after Mullins et al., *Efficient and Private Marginal Reconstruction
with Local Non-Negativity* (arXiv:2410.01091).
"""
