"""Whole numbers that add up: rounding by the largest remainders."""

from __future__ import annotations

import math

import numpy as np

from margrave.algebra.kernels import Floats
from margrave.errors import ReleaseError


def round_to_total(counts: Floats) -> Floats:
    """Return whole numbers near the counts of a table that add up to its rounded total.

    Every count is rounded down; then the cells with the largest remainders, the first ones among equals, get one each
    until the sum is the total, rounded half to even. No cell moves by one or more, and whole numbers stay as they are.

    Parameters
    ----------
    counts
        Any shape; no count negative.
    """
    if (counts < 0).any():
        raise ReleaseError(
            "the table has negative counts, and whole numbers are for tables without; reconstruct it with method='lnn'"
        )
    flat = counts.ravel()
    down = np.floor(flat)
    # The exact sum, so that its rounding is the same on every machine.
    lacking = round(math.fsum(flat)) - int(math.fsum(down))
    raised = np.argsort(down - flat, kind="stable")[:lacking]
    down[raised] += 1
    return down.reshape(counts.shape)
