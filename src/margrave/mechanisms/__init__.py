"""The mechanisms: what is measured, in which order, and what each step is charged; by name, one line each.

A module is imported when its mechanism is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from margrave.errors import PlanError, suggestion

if TYPE_CHECKING:
    from margrave.mechanisms.mechanism import Mechanism


# Name, module and class; the first one is the default.
MECHANISMS = {
    "planner": "margrave.mechanisms.residual_planner.ResidualPlanner",
    "marginals": "margrave.mechanisms.gaussian_marginals.GaussianMarginals",
    "mwem": "margrave.mechanisms.scalable_mwem.ScalableMWEM",
}
DEFAULT = "planner"


def mechanism_class(name: str) -> type[Mechanism]:
    """Return the mechanism of a name.

    Parameters
    ----------
    name
        One of ``MECHANISMS``.
    """
    if name not in MECHANISMS:
        hint = suggestion(name, MECHANISMS) if isinstance(name, str) else ""
        raise PlanError(f"no mechanism {name!r}{hint} (there are {', '.join(MECHANISMS)})")
    module, _, own = MECHANISMS[name].rpartition(".")
    found: Any = getattr(import_module(module), own)
    return found  # type: ignore[no-any-return]
