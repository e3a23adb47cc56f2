"""Margrave releases cross-tabulations of private tables under differential privacy."""

from typing import TYPE_CHECKING

from margrave.domain import Attribute, Domain
from margrave.errors import MargraveError
from margrave.workload import Workload

if TYPE_CHECKING:
    from margrave.measurements import Gaussian, Laplace, Measurements
    from margrave.release.reconstruct import reconstruct
    from margrave.release.release import Release

__all__ = [
    "Attribute",
    "Domain",
    "Gaussian",
    "Laplace",
    "MargraveError",
    "Measurements",
    "Release",
    "Workload",
    "__version__",
    "reconstruct",
]

# Names whose modules load compiled loops: they come when they are asked for.
_LATE = {
    "Gaussian": "margrave.measurements",
    "Laplace": "margrave.measurements",
    "Measurements": "margrave.measurements",
    "Release": "margrave.release.release",
    "reconstruct": "margrave.release.reconstruct",
}


def __getattr__(name: str) -> object:
    """Look up late what takes longer than all else here: modules with compiled loops, and the package's metadata."""
    if name in _LATE:
        from importlib import import_module

        return getattr(import_module(_LATE[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("margrave")
    raise AttributeError(f"module 'margrave' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the late names too."""
    return sorted({*globals(), *__all__})
