"""The record of how a release was made, for specialists: words and decimals first, exact numbers after them."""

from __future__ import annotations

from margrave.measurements import Provenance
from margrave.release import facts
from margrave.release.formatting import counted, power_of_ten_above, with_fraction
from margrave.release.release import Release
from margrave.release.report.statements import tables_spoken
from margrave.release.rows import of_result

Rows = list[tuple[str, str]]


def record_rows(release: Release) -> Rows:
    """Return the record as names and texts."""
    cells = counted(release.workload.cells, "cell")
    rows = [
        ("Tables", f"{tables_spoken(release)}; {cells} in all"),
        ("Counts", f"{release.method.words.counts} ({release.method.name})"),
        ("Options of the method", release.method.options_text()),
    ]
    if release.provenance is not None:
        rows += _measured(release.provenance)
    if release.solution is not None:
        rows.append(("Solver", release.solution.status.value))
        near = power_of_ten_above(release.solution.gap)
        rows.append(
            ("Certificate", f"within {near} of the best fit, in proportion, after {release.solution.steps:,} rounds")
        )
    return rows


def _measured(record: Provenance) -> Rows:
    """Return how the noise was drawn, and what was promised."""
    return [
        ("Mechanism", record.mechanism),
        *([] if record.description is None else [("What was measured", record.description)]),
        ("Guarantee", f"zero-concentrated differential privacy, {with_fraction('ρ', record.rho)}"),
        ("Stated as", facts.stated(record)),
        ("Neighbours", record.neighbours),
        ("Rows of a person", f"at most {record.contributions:,}{of_result(record)}, {facts.limit_known(record)}"),
        *([("Query", facts.query_known(record))] if record.queried else []),
        ("Sampler", record.sampler),
        ("Private noise", "yes" if record.private else "NO"),
        ("Measured by", f"margrave {record.version}"),
        *_charged(record),
    ]


def _charged(record: Provenance) -> Rows:
    """Return where the charge is recorded, and whether all that it paid for was measured."""
    rows = []
    if record.ledger_entry is not None:
        rows.append(("Ledger", f"entry {record.ledger_entry:,}, hash {record.ledger_hash}"))
    if record.cut_short is not None:
        rows.append(("Cut short", f"{record.cut_short}; the whole budget is charged"))
    return rows
