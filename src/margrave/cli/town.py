"""A made-up town for the demonstration: 50,000 inhabitants drawn from a fixed public recipe, nobody's data.

Attributes depend on each other as in a real register: older people are married or widowed and work less, income
follows work and education.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from margrave.domain import Attribute, Domain

Codes = NDArray[np.int64]

INHABITANTS = 50_000
# A constant, so that the town is the same everywhere; there is nothing to protect here.
_SEED = 1289

DOMAIN = Domain(
    [
        Attribute("age", cuts=(14, 24, 34, 44, 54, 64, 74), description="age in completed years"),
        Attribute("sex", labels=("female", "male")),
        Attribute("district", labels=("old town", "harbour", "hill", "north", "south", "villages")),
        Attribute("marital", labels=("single", "married", "divorced", "widowed")),
        Attribute("education", labels=("none yet", "school", "trade", "college", "university")),
        Attribute("work", labels=("not working", "part time", "full time", "self-employed")),
        Attribute("income", cuts=(500, 1500, 2500, 4000), description="monthly income"),
    ],
    description="a made-up town",
)

# Tendencies, row by value of the attribute before: how likely each value is, not normalised.
_AGE = [14, 11, 15, 14, 14, 13, 10, 9]
_DISTRICT = [9, 12, 8, 26, 31, 14]
_MARITAL = [
    [1, 0, 0, 0],
    [95, 5, 0, 0],
    [55, 42, 3, 0],
    [28, 62, 10, 0],
    [18, 66, 15, 1],
    [12, 68, 16, 4],
    [8, 66, 12, 14],
    [6, 44, 7, 43],
]
_EDUCATION = [
    [80, 20, 0, 0, 0],
    [4, 46, 24, 20, 6],
    [3, 18, 30, 22, 27],
    [3, 18, 33, 20, 26],
    [4, 22, 36, 18, 20],
    [6, 28, 36, 15, 15],
    [9, 36, 34, 11, 10],
    [14, 44, 28, 8, 6],
]
_WORK = [
    [1, 0, 0, 0],
    [48, 22, 29, 1],
    [15, 18, 60, 7],
    [12, 22, 56, 10],
    [12, 21, 56, 11],
    [28, 22, 40, 10],
    [86, 8, 3, 3],
    [97, 2, 0, 1],
]
_INCOME = [[60, 28, 9, 2, 1], [12, 50, 28, 8, 2], [1, 18, 44, 28, 9], [8, 24, 28, 22, 18]]


@cache
def inhabitants() -> dict[str, Codes]:
    """Return the town: for each attribute of ``DOMAIN`` the code of each inhabitant."""
    generator = np.random.default_rng(_SEED)
    every = np.zeros(INHABITANTS, dtype=np.int64)
    age = _draw(generator, [_AGE], every)
    sex = (generator.random(INHABITANTS) < 0.505 - 0.02 * age).astype(np.int64)
    education = _draw(generator, _EDUCATION, age)
    work = _draw(generator, _WORK, age)
    pay = np.clip(work + (generator.random(INHABITANTS) < 0.18 * education) - (work == 0), 0, 3)
    return {
        "age": age,
        "sex": sex,
        "district": _draw(generator, [_DISTRICT], every),
        "marital": _draw(generator, _MARITAL, age),
        "education": education,
        "work": work,
        "income": _draw(generator, _INCOME, pay),
    }


def _draw(generator: np.random.Generator, tendencies: list[list[int]], rows: Codes) -> Codes:
    """Draw a value for each inhabitant from the row of tendencies that belongs to them."""
    shares = np.cumsum(np.array(tendencies, dtype=np.float64), axis=1)
    shares /= shares[:, -1:]
    codes: Codes = np.sum(generator.random(len(rows))[:, None] >= shares[rows], axis=1, dtype=np.int64)
    return codes


def count(names: Sequence[str]) -> NDArray[np.float64]:
    """Return the exact cross-tabulation of the inhabitants by the named attributes."""
    people = inhabitants()
    counts = np.zeros([DOMAIN[name].size for name in names])
    np.add.at(counts, tuple(people[name] for name in names), 1)
    return counts
