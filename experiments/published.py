"""GReM-LNN as published: so many rounds of the solver, and what is negative then is cut off.

The published algorithm ends after a number of rounds as well. `reconstruct` with weights "paper" lifts its tables until
none is negative and all agree, which changes nothing when the solver has come to its end, and costs accuracy before.
It would be unfair to judge the published method by that: with measurements by Scalable MWEM thousands of rounds are not
enough on large tables, while the error of tables that are cut has settled by 400 (docs/experiments.md).
"""

from __future__ import annotations

import numpy as np

from margrave.algebra import transform
from margrave.algebra.kernels import Floats
from margrave.algebra.layout import Layout
from margrave.measurements import Measurements
from margrave.reconstruction.estimates import estimate_residuals, mean_residuals
from margrave.reconstruction.nonnegative import Problem, Splitting, solver_weights
from margrave.workload import Workload


def published_tables(measurements: Measurements, workload: Workload, *, steps: int) -> Floats:
    """Return the tables of the workload's closure after some rounds with the published weights (η = 40).

    Parameters
    ----------
    measurements
        What was measured.
    workload
        The tables wanted.
    steps
        How many rounds.
    """
    layout = Layout.of(workload.domain.shape, workload.positions)
    estimates = mean_residuals(measurements, estimate_residuals(measurements, layout))
    weights = solver_weights(estimates, weights="paper", eta=None, hold=())
    rounds = Splitting(Problem(layout, estimates.values, weights))
    rounds.run(steps)
    marginals = rounds.residuals(np.empty(layout.cells), np.empty(layout.facet_cells))
    transform.reconstruct(layout, marginals, out=marginals)
    return np.maximum(marginals, 0.0, out=marginals)
