"""Which rows of the private table the counts of a release are of, in words.

Where rows were left out before anything was counted, noise is not all that lies between a release and the table, and an
interval covers the count of the rows that were kept. Whoever states an interval asks here what it covers.
"""

from __future__ import annotations

from margrave.domain import Domain
from margrave.measurements import Provenance


def rows_spoken(provenance: Provenance) -> str:
    """Return the most rows of one person in words."""
    return "one row" if provenance.contributions == 1 else f"{provenance.contributions:,} rows"


def is_enforced(provenance: Provenance | None) -> bool:
    """Tell whether rows of a person beyond the bound were left out, by an id."""
    return provenance is not None and provenance.contributions_bounded == "enforced"


def table_spoken(provenance: Provenance) -> str:
    """Return what the counted rows are rows of: the table, or the result of the query that was given."""
    return "the query's result" if provenance.queried else "the table"


def of_result(provenance: Provenance) -> str:
    """Return what follows after "rows" where these are rows of a query's result; nothing where there was no query."""
    return f" of {table_spoken(provenance)}" if provenance.queried else ""


def query_spoken(provenance: Provenance) -> str:
    """Return that a query was given, and what the guarantee is about then; nothing where there was none."""
    if not provenance.queried:
        return ""
    text = "is not published" if provenance.query is None else "is part of this record"
    return (
        f"The table is the result of a query, whose text {text}. Rows of a person are rows of that result: the "
        "guarantee is about results that differ by them."
    )


def kept_rows(domain: Domain, provenance: Provenance | None) -> str:
    """Return which rows were counted, in sentences; nothing where all of them were.

    Parameters
    ----------
    domain
        The codebook, which may drop rows.
    provenance
        How the measurements were made; None for numbers from elsewhere.
    """
    said = []
    if provenance is not None and is_enforced(provenance):
        said.append(f"at most {rows_spoken(provenance)}{of_result(provenance)} of each person")
    if any(attribute.outside == "drop" for attribute in domain):
        said.append("no row with a value that the codebook tells to drop")
    if not said:
        return ""
    return f"Counts and intervals are of the rows that were kept: {', and '.join(said)}. The table may hold more."


def covered(domain: Domain, provenance: Provenance | None) -> str:
    """Return what an interval covers, in words: "the true count", or that of the rows that were kept."""
    return "the true count of the rows that were kept" if kept_rows(domain, provenance) else "the true count"
