"""The methods that the experiments compare: how each plans, how it reconstructs, and how figures show it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from experiments import ExperimentError
from experiments.published import published_tables
from margrave.algebra.kernels import Floats
from margrave.errors import suggestion
from margrave.measurements import Measurements
from margrave.methods import MaximumLikelihood, NonNegative, Truncated
from margrave.methods import Method as Reconstruction
from margrave.planning.plans import Plan, plan
from margrave.privacy.budget import Budget
from margrave.release.publication import reconstruct
from margrave.workload import Workload

RESIDUAL_PLANNER, MWEM = "residual-planner", "mwem"
# The one method that is not margrave's; it runs in a process of its own, under limits.
PRIVATE_PGM = "private-pgm"
OURS, PIPELINE, PAPER = "ours", "pipeline", "lnn-paper"
PAPER_PLAN, OUR_PLAN = "paper", "ours"
# Nothing but the defaults: what a user gets who knows nothing about weights.
_OURS = NonNegative()


@dataclass(frozen=True)
class Method:
    """A way to get tables from measurements.

    Attributes
    ----------
    key
        What files and options call it.
    label
        What figures and tables call it.
    colour
        Its colour in figures; all of them can be told apart by colour-blind people.
    reconstruction
        How margrave makes the tables; None for the methods that have a function of their own.
    plan
        Which plan the measurements are made by (ResidualPlanner only).
    """

    key: str
    label: str
    colour: str
    reconstruction: Reconstruction | None = None
    plan: str = PAPER_PLAN


@dataclass(frozen=True, eq=False)
class Applied:
    """What a method gave: the tables of the workload's closure, and how the non-negative solver came to them."""

    marginals: Floats
    steps: int = 0
    gap: float = math.nan


def _experiment(base: str, *others: Method) -> dict[str, Method]:
    """Return the methods of an experiment, in the order of figures and tables."""
    methods = (
        Method("mle", base, "#6B7280", MaximumLikelihood()),
        Method("trunc", "Trunc", "#CC79A7", Truncated()),
        Method("trunc+rescale", "Trunc+Rescale", "#E69F00", Truncated(rescale=True)),
        Method(PAPER, "GReM-LNN (paper)", "#56B4E9"),
        Method(OURS, "margrave", "#0072B2", _OURS),
    )
    return {method.key: method for method in (*methods, *others)}


METHODS: dict[str, dict[str, Method]] = {
    RESIDUAL_PLANNER: _experiment(
        "ResidualPlanner",
        Method(PIPELINE, "margrave, own plan", "#D55E00", _OURS, plan=OUR_PLAN),
    ),
    MWEM: _experiment("Scalable MWEM (EMP)", Method(PRIVATE_PGM, "Private-PGM", "#009E73")),
}


def find_methods(experiment: str, keys: list[str] | None) -> list[str]:
    """Return the methods of an experiment by their keys, in the order of figures; all of them for None."""
    known = METHODS[experiment]
    for key in keys or ():
        if key not in known:
            raise ExperimentError(f"no method {key!r}{suggestion(key, known)} (there are {', '.join(known)})")
    return [key for key in known if keys is None or key in keys]


def make_plan(name: str, workload: Workload, budget: Budget) -> Plan:
    """Return the paper's plan for a workload, or ours."""
    objective = "total_variance" if name == PAPER_PLAN else "nonnegative"
    return plan(workload, budget, contributions=1, objective=objective)


def apply_method(method: Method, measurements: Measurements, workload: Workload, *, max_steps: int) -> Applied:
    """Return the tables of a workload by a method of margrave.

    Parameters
    ----------
    method
        Any but Private-PGM.
    measurements
        What was measured.
    workload
        The tables wanted.
    max_steps
        The most rounds of the non-negative solver; it need not have reached its tolerance by then.
    """
    if method.key == PAPER:
        return Applied(published_tables(measurements, workload, steps=max_steps), max_steps)
    reconstruction = method.reconstruction
    if reconstruction is None:
        raise ExperimentError(f"method {method.key!r} has a function of its own; call that")
    if isinstance(reconstruction, NonNegative):
        reconstruction = replace(reconstruction, strict=False, max_steps=max_steps)
    release = reconstruct(measurements, workload, method=reconstruction)
    if release.solution is None:
        return Applied(release.marginals)
    return Applied(release.marginals, release.solution.steps, release.solution.gap)
