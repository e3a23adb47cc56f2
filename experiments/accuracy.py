r"""How far tables are from the truth: the paper's workload error, in L1 and L2.

With N rows, tables γ of the workload and n_γ cells in each,

    l1 = mean_γ ‖μ̂_γ − μ_γ‖₁ / N,            l2 = mean_γ ‖μ̂_γ − μ_γ‖₂ / N,                                     (1)
    l1_cells = mean_γ ‖μ̂_γ − μ_γ‖₁ / n_γ,    l2_cells = mean_γ ‖μ̂_γ − μ_γ‖₂ / n_γ.                               (2)

(1) is what the paper prints; (2) is what its code computes. Ratios of methods can differ between the two, because (2)
counts small tables for more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.datasets import Dataset
from margrave.algebra.kernels import Floats


@dataclass(frozen=True)
class Accuracy:
    """The errors (1) and (2) of all tables of a workload."""

    l1: float
    l2: float
    l1_cells: float
    l2_cells: float


def accuracy(dataset: Dataset, marginals: Floats) -> Accuracy:
    """Return the errors of the tables in a buffer of the data set's closure.

    Parameters
    ----------
    dataset
        The truth.
    marginals
        Shape (dataset.layout.cells,); the tables of the workload in it are judged, all others are not.
    """
    offset = dataset.layout.index.offset
    places = np.array([dataset.layout.places[members] for members in dataset.workload.positions])
    cells = (offset[places + 1] - offset[places]).astype(np.float64)
    sums, squares = np.empty(len(places)), np.empty(len(places))
    for number, place in enumerate(places.tolist()):
        table = slice(offset[place], offset[place + 1])
        difference = marginals[table] - dataset.truth[table]
        sums[number] = np.abs(difference).sum()
        squares[number] = np.sqrt(np.dot(difference, difference))
    return Accuracy(
        l1=float(sums.mean() / dataset.rows),
        l2=float(squares.mean() / dataset.rows),
        l1_cells=float((sums / cells).mean()),
        l2_cells=float((squares / cells).mean()),
    )
