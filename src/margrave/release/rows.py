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
        said.append(f"at most {rows_spoken(provenance)} of each person")
    if any(attribute.outside == "drop" for attribute in domain):
        said.append("no row with a value that the codebook tells to drop")
    if not said:
        return ""
    return f"Counts and intervals are of the rows that were kept: {', and '.join(said)}. The table may hold more."


def covered(domain: Domain, provenance: Provenance | None) -> str:
    """Return what an interval covers, in words: "the true count", or that of the rows that were kept."""
    return "the true count of the rows that were kept" if kept_rows(domain, provenance) else "the true count"
