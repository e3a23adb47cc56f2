"""The paper's matrices, written out by np.kron: slow, obvious, and the judge of everything else."""

from functools import reduce
from itertools import combinations

import numpy as np


def kron(factors):
    """Kronecker product of a list of matrices; of an empty list the 1 × 1 identity."""
    return reduce(np.kron, factors, np.ones((1, 1)))


def difference_matrix(size):
    """D_(k): row i has 1 at i and −1 at i + 1; shape (size − 1, size)."""
    return np.eye(size - 1, size) - np.eye(size - 1, size, 1)


def marginal_matrix(sizes, gamma):
    """M_γ: identity for attributes of γ, a row of ones for the others."""
    return kron([np.eye(n) if k in gamma else np.ones((1, n)) for k, n in enumerate(sizes)])


def residual_matrix(sizes, tau):
    """R_τ: D_(k) for attributes of τ, a row of ones for the others."""
    return kron([difference_matrix(n) if k in tau else np.ones((1, n)) for k, n in enumerate(sizes)])


def full_difference(sizes, tau):
    """D_τ on the flattened τ-marginal."""
    return kron([difference_matrix(sizes[k]) for k in tau])


def centering(sizes, tau):
    """C_τ on the flattened τ-marginal."""
    return kron([np.eye(sizes[k]) - 1 / sizes[k] for k in tau])


def expand_matrix(sizes, gamma, tau):
    """A_{γ,τ} = M_γ R_τ⁺, from the paper's Kronecker form with an explicit pseudo-inverse."""
    return kron(
        [np.linalg.pinv(difference_matrix(sizes[k])) if k in tau else np.ones((sizes[k], 1)) / sizes[k] for k in gamma]
    )


def extract_matrix(sizes, gamma, tau):
    """A⁺_{γ,τ}: D_(k) for attributes of τ, a row of ones for those of γ∖τ."""
    return kron([difference_matrix(sizes[k]) if k in tau else np.ones((1, sizes[k])) for k in gamma])


def subsets(gamma):
    """All subsets of a tuple, smallest first."""
    return [tau for size in range(len(gamma) + 1) for tau in combinations(gamma, size)]


def closure(family):
    """All subsets of all sets of a family, in canonical order."""
    return sorted({tau for gamma in family for tau in subsets(gamma)}, key=lambda s: (len(s), s))
