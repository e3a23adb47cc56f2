r"""Pretended noise: seeded Gaussian numbers of the recorded variances, to see how tables react to noise. NOT PRIVATE.

Errors of published counts (``count_errors``) need to know how a reconstruction changes when the measurements change. So
measurements that are public already are moved a little, again and again, and reconstructed. What is drawn here protects
nobody and is added to nothing that is private: this module cannot reach data, boundary, mechanisms or the privacy room
(tests/test_architecture.py), and its numbers come from a seed that is written into the release.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout


def pretended_noise(layout: Layout, variances: Floats, *, seed: int, draws: int) -> Iterator[Floats]:
    """Yield residuals of noise alone: independent, of covariance σ²_τ C_τ each; the same for the same seed.

    Parameters
    ----------
    layout
        The closure.
    variances
        Shape (tables,); σ²_τ of each residual, zero where it shall stay as it is.
    seed
        Where the draws begin; a whole number from zero on.
    draws
        How many to yield; shape (layout.cells,) each.
    """
    generator = np.random.default_rng(seed)
    deviations = np.repeat(np.sqrt(variances), np.diff(layout.index.offset))
    for _ in range(draws):
        noise = generator.standard_normal(layout.cells)
        noise *= deviations
        yield transform.center(layout, noise, out=noise)
