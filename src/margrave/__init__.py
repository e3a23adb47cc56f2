"""Margrave releases cross-tabulations of private tables under differential privacy."""

from importlib import import_module
from typing import TYPE_CHECKING

from margrave.errors import MargraveError

if TYPE_CHECKING:
    from margrave import methods
    from margrave.data.counting.tally import CodedTable
    from margrave.data.source import Data
    from margrave.domain import Attribute, Domain
    from margrave.job import Job
    from margrave.measurements import Gaussian, Laplace, Measurements
    from margrave.mechanisms.adaptive_planner import adaptive_planner
    from margrave.mechanisms.gaussian_marginals import gaussian_marginals
    from margrave.mechanisms.residual_planner import measure, residual_planner
    from margrave.mechanisms.scalable_mwem import scalable_mwem
    from margrave.planning.plans import Plan, budget_for_margin, plan
    from margrave.privacy.budget import Budget
    from margrave.privacy.ledger import Ledger
    from margrave.release.export import export
    from margrave.release.publication import Publication, reconstruct
    from margrave.release.release import Release
    from margrave.release.report import write_report
    from margrave.release.store.loading import load, verify
    from margrave.workload import Workload

    __version__: str

__all__ = [
    "Attribute",
    "Budget",
    "CodedTable",
    "Data",
    "Domain",
    "Gaussian",
    "Job",
    "Laplace",
    "Ledger",
    "MargraveError",
    "Measurements",
    "Plan",
    "Publication",
    "Release",
    "Workload",
    "__version__",
    "adaptive_planner",
    "budget_for_margin",
    "draft_domain",
    "export",
    "gaussian_marginals",
    "load",
    "measure",
    "methods",
    "plan",
    "reconstruct",
    "residual_planner",
    "scalable_mwem",
    "validate",
    "verify",
    "write_report",
]

# What needs numpy or the compiled loops is imported when it is first used: the command line must answer at once.
_LATE = {
    "Attribute": "margrave.domain",
    "Budget": "margrave.privacy.budget",
    "CodedTable": "margrave.data.counting.tally",
    "Data": "margrave.data.source",
    "Domain": "margrave.domain",
    "Gaussian": "margrave.measurements",
    "Job": "margrave.job",
    "Laplace": "margrave.measurements",
    "Ledger": "margrave.privacy.ledger",
    "Measurements": "margrave.measurements",
    "Plan": "margrave.planning.plans",
    "Publication": "margrave.release.publication",
    "Release": "margrave.release.release",
    "Workload": "margrave.workload",
    "adaptive_planner": "margrave.mechanisms.adaptive_planner",
    "budget_for_margin": "margrave.planning.plans",
    "draft_domain": "margrave.data.draft",
    "export": "margrave.release.export",
    "gaussian_marginals": "margrave.mechanisms.gaussian_marginals",
    "load": "margrave.release.store.loading",
    "measure": "margrave.mechanisms.residual_planner",
    "plan": "margrave.planning.plans",
    "reconstruct": "margrave.release.publication",
    "residual_planner": "margrave.mechanisms.residual_planner",
    "scalable_mwem": "margrave.mechanisms.scalable_mwem",
    "validate": "margrave.data.validation",
    "verify": "margrave.release.store.loading",
    "write_report": "margrave.release.report",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used; likewise the version, which takes long to look up."""
    if name == "__version__":
        from importlib.metadata import version

        globals()[name] = version("margrave")
        return globals()[name]
    if name == "methods":
        return import_module("margrave.methods")
    if name in _LATE:
        value = getattr(import_module(_LATE[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'margrave' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, the late ones too."""
    return sorted(__all__)
