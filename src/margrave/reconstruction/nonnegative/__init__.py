r"""GReM-LNN: the residuals nearest to their estimates whose tables have no negative cell ([ReM] sec. 4.3, app. F).

- ``problem``: the loss, the weights, and what is held;
- ``outer``: the outer tables, where nearly all cells are, and the passes over them, with their ``kernels``;
- ``splitting``: the rounds, ADMM with exact solves in the space of residuals;
- ``repair``: from an unfinished state to tables that are exactly non-negative and agree;
- ``solver``: when to stop, with a lower bound, so that the tables come with a proof of how good they are;
- ``workers``: the outer tables divided among processes on this or other machines.
"""

from margrave.reconstruction.nonnegative.problem import Problem, solver_weights
from margrave.reconstruction.nonnegative.solver import (
    Solution,
    State,
    Status,
    check_options,
    reconstruct_nonnegative,
)
from margrave.reconstruction.nonnegative.splitting import Splitting

__all__ = [
    "Problem",
    "Solution",
    "Splitting",
    "State",
    "Status",
    "check_options",
    "reconstruct_nonnegative",
    "solver_weights",
]
