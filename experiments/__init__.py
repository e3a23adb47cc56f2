"""The paper's experiments, and ours: NOT PRIVATE, because they compare with the true counts. For public data only.

They are no part of the package: ``make reproduce ARGS="residual-planner --data FOLDER"`` runs them from a clone.
"""

from margrave.errors import MargraveError


class ExperimentError(MargraveError):
    """An experiment cannot be run as asked, or a file of its results cannot be used."""
