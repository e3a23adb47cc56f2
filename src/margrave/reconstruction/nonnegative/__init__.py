r"""GReM-LNN: the residuals nearest to their estimates whose tables have no negative cell ([ReM] sec. 4.3, app. F).

- ``problem``: the loss, the weights, and what is held;
- ``splitting``: the rounds, ADMM with exact solves in the space of residuals, and their ``kernels``;
- ``repair``: from an unfinished state to tables that are exactly non-negative and agree;
- ``certificate``: a lower bound, so that the tables come with a proof of how good they are;
- ``solver``: all of them together.
"""

from margrave.reconstruction.nonnegative.problem import Problem, solver_weights
from margrave.reconstruction.nonnegative.solver import (
    Solution,
    Status,
    check_options,
    reconstruct_nonnegative,
)
from margrave.reconstruction.nonnegative.splitting import Splitting

__all__ = [
    "Problem",
    "Solution",
    "Splitting",
    "Status",
    "check_options",
    "reconstruct_nonnegative",
    "solver_weights",
]
