"""What a report says about privacy: what was promised to whom, or why nothing can be promised.

Written for readers who know neither statistics nor this project. Nothing is said that the release does not know: a
release without a record of its noise gets no statement about privacy, only a warning.
"""

from __future__ import annotations

from typing import Any

from margrave.measurements import Provenance
from margrave.release import facts
from margrave.release.formatting import equal_or_near, odds_factor, one_in, power_of_ten, rounded_up, surest
from margrave.release.rows import is_enforced

# What somebody may believe before they see the tables.
_PRIORS = (0.01, 0.1, 0.5)
# Beyond it somebody may become all but certain, and the page says so.
_WEAK = 7.0


def privacy(record: Provenance) -> dict[str, Any]:
    """Return what the page says about the guarantee."""
    joint = "; " if is_enforced(record) else ", as long as "
    return {
        "caveat": "" if record.private else "What follows would hold if the noise had been private. It was not.",
        "epsilon": rounded_up(record.epsilon),
        "factor": odds_factor(record.epsilon),
        "weak": record.epsilon > _WEAK,
        "delta": power_of_ten(record.delta),
        "one_in": one_in(record.delta),
        "rho": equal_or_near("ρ", record.rho),
        "beliefs": [(f"{100 * prior:g} %", surest(prior, record.epsilon)) for prior in _PRIORS],
        "neighbours": f"the difference between two tables, one made from the other by this: {record.neighbours}",
        "contributions": f"all of their rows{joint}{facts.row_limit(record)}.",
        "noise": f"{facts.noise(record)}.",
    }
