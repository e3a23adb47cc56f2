"""Margrave releases cross-tabulations of private tables under differential privacy."""

from margrave.domain import Attribute, Domain
from margrave.errors import MargraveError
from margrave.workload import Workload

__all__ = ["Attribute", "Domain", "MargraveError", "Workload", "__version__"]


def __getattr__(name: str) -> str:
    """Look the version up only when asked: reading package metadata takes longer than all else here."""
    if name == "__version__":
        from importlib.metadata import version

        return version("margrave")
    raise AttributeError(f"module 'margrave' has no attribute {name!r}")
