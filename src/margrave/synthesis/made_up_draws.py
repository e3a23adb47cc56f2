"""Random draws for made-up rows: seeded and repeatable, so never noise that anything private could hide behind.

Rows are made from tables that are published already. Nothing here protects anybody, and nothing has to: whoever knows
the seed and the release can make the same rows again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from margrave.errors import ReleaseError

_LARGEST_SEED = 2**63 - 1


class MadeUpDraws:
    """A seeded source of draws.

    Parameters
    ----------
    seed
        A whole number from 0 on; None takes one that nobody chose. ``seed`` tells which it was.
    """

    def __init__(self, seed: int | None) -> None:
        self.seed = fresh_seed() if seed is None else checked_seed(seed)
        self._generator = np.random.default_rng(self.seed)

    def order(self, count: int) -> NDArray[np.int64]:
        """Return the numbers 0 … count − 1 in a random order."""
        return self._generator.permutation(count)

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Return so many numbers between 0 and 1, 1 excluded."""
        return self._generator.random(count)


def checked_seed(seed: object) -> int:
    """Return the seed if it is a whole number that files can hold."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= _LARGEST_SEED:
        raise ReleaseError(f"the seed is {seed!r}", remedy=f"give a whole number from 0 to {_LARGEST_SEED:,}")
    return int(seed)


def fresh_seed() -> int:
    """Return a seed from the system's entropy, short enough to be typed in again."""
    return int(np.random.default_rng().integers(2**32))
