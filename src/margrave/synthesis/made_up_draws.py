r"""Seeded draws for what is made up: repeatable, so never noise that anything private could hide behind. NOT PRIVATE.

Rows are made from tables that are published already (`MadeUpDraws`): with the seed and the release, anyone can make the
same rows again. Errors of published counts need to know how a reconstruction changes when the measurements change, so
measurements that are public already are moved a little, again and again, and reconstructed (`pretended_noise`); the
seed is written into the release.

What is drawn here protects nobody and is added to nothing that is private: this module cannot reach data, boundary,
mechanisms or the privacy room (tests/test_architecture.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from margrave.algebra import transform
from margrave.errors import ReleaseError

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import Layout

_LARGEST_SEED = 2**63 - 1


class MadeUpDraws:
    """A seeded source of draws.

    Parameters
    ----------
    seed
        A whole number from 0 on; None takes a random one, which ``seed`` then has.
    """

    def __init__(self, seed: int | None) -> None:
        self.seed = fresh_seed() if seed is None else checked_seed(seed)
        self._generator = np.random.default_rng(self.seed)

    def order(self, count: int) -> NDArray[np.int64]:
        """Return the numbers 0 … count − 1 in a random order."""
        return self._generator.permutation(count)

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Return this many numbers between 0 and 1, 1 excluded."""
        return self._generator.random(count)


def checked_seed(seed: object) -> int:
    """Return the seed if it is a whole number that files can hold."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= _LARGEST_SEED:
        raise ReleaseError(f"the seed is {seed!r}", remedy=f"give a whole number from 0 to {_LARGEST_SEED:,}")
    return int(seed)


def fresh_seed() -> int:
    """Return a seed from the system's entropy, short enough to be typed in again."""
    return int(np.random.default_rng().integers(2**32))


def pretended_noise(layout: Layout, variances: Floats, *, seed: int, draws: int) -> Iterator[Floats]:
    """Yield residuals of noise alone: independent, of covariance σ²_τ C_τ each; the same for the same seed.

    Parameters
    ----------
    layout
        The closure.
    variances
        Shape (tables,); σ²_τ of each residual, zero where it stays as it is.
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
