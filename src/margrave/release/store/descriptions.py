"""The files that describe a release: README.md for readers, privacy.json and csvw-metadata.json for programs.

Title, description, names and the words of a record are texts from outside. They enter README.md escaped, and JSON as
they are.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from margrave.domain.values import table_label
from margrave.errors import StoreError
from margrave.escaping import guarded, markdown, markdown_paragraphs
from margrave.release import facts
from margrave.release.facts import covered, float_above, kept_rows
from margrave.release.store.tables import COUNT_MEASURES, MEASURES, safe_word

if TYPE_CHECKING:
    from margrave.domain.domain import Domain
    from margrave.measurements.provenance import Provenance
    from margrave.methods.method import Method
    from margrave.release.count_errors import Bounds
    from margrave.release.store import TableEntry

# What a privacy statement cannot do without; everything else that a provenance knows is compared where it is there.
_GUARANTEE = ("mechanism", "rho", "epsilon", "delta", "contributions", "neighbours", "private")
_MOST_SHOWN = 20
_HEADING = "Cross-tabulations"
# The first sentence where the domain has no description of its own.
_PRIVATE, _NOISY = (
    "Cross-tabulations with noise that protects the people in them.",
    "Cross-tabulations of noisy counts.",
)
_DOCUMENTS = {
    "imprint.json": "what the release is called and who publishes it, as the report says it",
    "report.html": "what was released, how private and how exact it is, with tables to look at; opens in any browser",
    "registry.yaml": "a draft entry for the registry of deployments of differential privacy",
}
_INTERVAL = (
    "The interval from `ci_low` to `ci_high` {coverage}. Its ends are rounded\n"
    "inwards to whole numbers and not below 0. It belongs to `estimate`, not to `count`. Where it is empty, the\n"
    "measurements do not determine the table, or their noise is not Gaussian."
)
_ERRORS = (
    ";\n- `count_error`: how far, typically, `count` is from the true count, as learned from the measurements;\n"
    "- `count_low`, `count_high`: an interval around `count`, meant to hold the true count in 95 of 100 cases; unlike\n"
    "  that of `estimate` it is calibrated on test data and not proven;\n"
    "- `reliability`: `reliable` (`count_error` up to {bounds.reliable:.3g} of the count, or up to {bounds.floor:g}),\n"
    "  `use with care` (up to {bounds.care:.3g} of it, or up to {three:g}) or `too uncertain to quote`"
)
_EMPTY = "The columns `std_error`, `ci_low` and `ci_high` are empty."
_README = """# {heading}

{description}

## How private it is

{privacy}

`privacy.json` has every number, exactly.

## What is here

{files}

Each table is in tidy long form, one row per cell: one column for each attribute, then

- `count`: {count};
- `estimate`: the unbiased estimate, right on average and the one to add up or average over many cells;
- `std_error`: how far, typically, the estimate is from {covered};
- `ci_low`, `ci_high`: an interval for {covered}, made from `estimate`{errors}.

{interval}

Parquet is read by pandas, Polars, R (arrow), DuckDB and others:

    import pandas as pd
    pd.read_parquet("{first}")

and the whole release, with queries and any sub-table, by margrave:

    import margrave as mg
    release = mg.load(".")

`domain.json` says what the categories mean, `csvw-metadata.json` says the same of the columns for programs that know
the W3C's CSV on the Web. `measurements.npz` and `subtables.npz` hold the noisy measurements and the smaller tables, as
plain numpy arrays; `manifest.json` lists all files with their SHA-256 checksums. `mg.load` verifies that of a file
before it uses the file; `mg.load(".", strict=True)` verifies all of them at once. Do not add or remove
files in this folder.

## How to cite

Name the publisher, the title, the date of the release ({date}), the method (`{method}`; its options are in
`manifest.json`) and the `sha256` of `measurements.npz` in `manifest.json`. No other release has that number, and it
stays the same when a report is renewed. The tables were made with margrave, after Mullins et al., *Efficient and
Private Marginal Reconstruction with Local Non-Negativity* (arXiv:2410.01091).
"""


def readme(
    domain: Domain,
    tables: Sequence[TableEntry],
    method: Method,
    provenance: Provenance | None,
    *,
    date: str,
    title: str | None = None,
    documents: Iterable[str] = (),
    bounds: Bounds | None = None,
) -> str:
    """Return the page for readers, as Markdown.

    Parameters
    ----------
    domain
        The codebook.
    tables
        Where the tables are.
    method
        How they were made.
    provenance
        How the measurements were made; None for numbers from elsewhere.
    date
        When it was saved.
    title
        What it is called.
    documents
        Names of the further texts in the folder.
    bounds
        Where counts stop being reliable; None if their errors were not learned.
    """
    what = covered(domain, provenance)
    interval = _INTERVAL.format(coverage=facts.coverage(domain, provenance))
    if facts.is_adaptive(provenance):
        interval = f"{facts.NO_INTERVALS}\n{_EMPTY}"
    kept = kept_rows(domain, provenance)
    return _README.format(
        heading=markdown(title or "") or _HEADING,
        description=markdown_paragraphs(domain.description) or (_NOISY if facts.caution(provenance) else _PRIVATE),
        privacy=markdown(facts.statement(provenance)),
        files="\n".join([*_listed(documents), *_tables(tables, _is_guarded(domain))]),
        count=method.words.column,
        covered=what,
        interval=f"{kept}\n\n{interval}" if kept else interval,
        errors="" if bounds is None else _ERRORS.format(bounds=bounds, three=3 * bounds.floor),
        first=tables[0].file,
        date=date,
        method=method.name,
    )


def _title(table: TableEntry) -> str:
    """Return the attributes of a table in words."""
    return table_label(table.attributes)


def _listed(documents: Iterable[str]) -> list[str]:
    """Return a line for each document."""
    return [f"- `{name}`: {_DOCUMENTS.get(name, 'put here by the publisher')}" for name in sorted(documents)]


def _is_guarded(domain: Domain) -> bool:
    """Tell whether some text of the domain is guarded in CSV files."""
    texts = (text for member in domain for text in (member.other, member.missing, *member.values.free_texts))
    return any(text is not None and guarded(text) != text for text in (*domain.attributes, *texts))


def _tables(tables: Sequence[TableEntry], apostrophes: bool) -> list[str]:
    """Return a line for each table, not too many, and one about CSV if there is any."""
    lines = [f"- `{table.file}`: {markdown(_title(table))}" for table in tables[:_MOST_SHOWN]]
    if len(tables) > _MOST_SHOWN:
        lines.append(f"- … and {len(tables) - _MOST_SHOWN:,} more, listed in `manifest.json`")
    if tables[0].csv is not None:
        guard = "; a text that a spreadsheet would read as a formula has an apostrophe in front" if apostrophes else ""
        lines.append(f"- `{tables[0].csv}` and so on: the same tables as CSV{guard}")
    return lines


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
        raise StoreError(
            f"{where} is damaged: its {what!r} is not what measurements.npz says", remedy="get the release again"
        )


def csvw_document(domain: Domain, tables: Sequence[TableEntry], title: str, *, errors: bool = False) -> dict[str, Any]:
    """Return the content of csvw-metadata.json: each table's file and the meaning of its columns, after W3C's CSVW."""
    return {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "dc:title": title,
        "dc:description": domain.description,
        "tables": [_csvw_table(domain, table, errors=errors) for table in tables],
    }


def as_json(document: Mapping[str, Any]) -> str:
    """Return a document as text for people and programs."""
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _plain(provenance: Provenance) -> dict[str, Any]:
    # As it comes back from a file: tuples are lists there.
    plain: dict[str, Any] = json.loads(json.dumps(provenance.to_dict()))
    return plain


def _csvw_table(domain: Domain, table: TableEntry, *, errors: bool) -> dict[str, Any]:
    taken: set[str] = set()
    keys = [_csvw_name(name, place, taken) for place, name in enumerate(table.attributes, start=1)]
    columns = [_csvw_attribute(domain, name, key) for name, key in zip(table.attributes, keys, strict=True)]
    columns += [
        _csvw_measure(name, table.attributes, taken) for name in (*MEASURES, *(COUNT_MEASURES if errors else ()))
    ]
    if table.csv is not None:
        columns = [{**column, "titles": guarded(column["titles"])} for column in columns]
    schema: dict[str, Any] = {"columns": columns, "primaryKey": keys} if keys else {"columns": columns}
    kind = {} if table.csv is not None else {"dc:format": "application/vnd.apache.parquet"}
    return {"url": quote(table.csv or table.file), **kind, "dc:title": _title(table), "tableSchema": schema}


def _csvw_attribute(domain: Domain, name: str, key: str) -> dict[str, Any]:
    described = domain[name].description
    words = {"dc:description": described} if described else {}
    return {"name": key, "titles": name, "datatype": "string", "required": True, **words}


def _csvw_measure(name: str, attributes: Sequence[str], taken: set[str]) -> dict[str, Any]:
    title = name
    while title in attributes:
        title += "_"
    key = _csvw_name(name, 0, taken)
    column = {**facts.COLUMNS, **facts.COUNT_COLUMNS}[name]
    kind = "string" if name == "reliability" else "double"
    return {"name": key, "titles": title, "datatype": kind, "dc:description": f"the {column.name}{column.details}"}


def _csvw_name(name: str, place: int, taken: set[str]) -> str:
    """Return a name for a column that CSVW allows and no other column has."""
    key = safe_word(name).replace("-", "_") or f"attribute{place}"
    while key in taken:
        key += "_"
    taken.add(key)
    return key
