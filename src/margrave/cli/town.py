"""A made-up town for the demonstration: 50,000 inhabitants drawn from a fixed public recipe, not real people.

Attributes depend on each other as in a real register: older people are married or widowed, live in smaller households
and work less; income follows work and education; who does not work does not commute.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from margrave.domain.attribute import Attribute
from margrave.domain.domain import Domain

Codes = NDArray[np.int64]

INHABITANTS = 50_000
# A constant, so that the town is the same everywhere; there is nothing to protect here.
_SEED = 1289

DOMAIN = Domain(
    [
        Attribute("age", cuts=(14, 24, 34, 44, 54, 64, 74), whole=True, description="age in completed years"),
        Attribute("sex", labels=("female", "male")),
        Attribute("district", labels=("old town", "harbour", "hill", "north", "south", "villages")),
        Attribute("birthplace", labels=("here", "elsewhere in the country", "abroad")),
        Attribute("marital", labels=("single", "married", "divorced", "widowed"), description="marital status"),
        Attribute("household", labels=(1, 2, 3, 4), other="5 or more", description="persons in the household"),
        Attribute("dwelling", labels=("rented", "owned", "institution")),
        Attribute("education", labels=("none yet", "school", "trade", "college", "university")),
        Attribute("work", labels=("not working", "part time", "full time", "self-employed")),
        Attribute("income", cuts=(500, 1500, 2500, 4000), whole=True, description="monthly income"),
        Attribute("commute", labels=("none", "foot or bicycle", "bus", "car")),
        Attribute("health", labels=("good", "fair", "poor"), missing="not stated", description="as people see it"),
    ],
    description="a made-up town",
)

# Tendencies, row by value of the attribute before: how likely each value is, not normalised.
_AGE = [14, 11, 15, 14, 14, 13, 10, 9]
_DISTRICT = [9, 12, 8, 26, 31, 14]
_BIRTHPLACE = [[60, 28, 12], [44, 26, 30], [66, 30, 4], [58, 26, 16], [62, 24, 14], [82, 16, 2]]
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
_HOUSEHOLD_OF_CHILDREN = [2, 12, 28, 36, 22]
_HOUSEHOLD = [[48, 24, 14, 9, 5], [3, 38, 22, 26, 11], [54, 26, 12, 6, 2], [76, 17, 4, 2, 1]]
_DWELLING = [[78, 20, 2], [52, 46, 2], [36, 62, 2], [28, 71, 1], [26, 74, 0]]
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
_COMMUTE = [[0, 52, 22, 26], [0, 34, 36, 30], [0, 40, 26, 34], [0, 26, 34, 40], [0, 22, 32, 46], [0, 8, 12, 80]]
_HEALTH = [
    [94, 4, 1, 1],
    [92, 6, 1, 1],
    [88, 9, 2, 1],
    [82, 14, 3, 1],
    [73, 20, 6, 1],
    [60, 28, 10, 2],
    [48, 35, 15, 2],
    [34, 38, 25, 3],
]
# The years and the incomes that a group spans, for people to have one of their own; the last ones are open in the cuts.
_YEARS = (0, 14, 24, 34, 44, 54, 64, 74, 99)
_INCOMES = (0, 500, 1500, 2500, 4000, 12_000)


@cache
def inhabitants() -> dict[str, Codes]:
    """Return the town: for each attribute of ``DOMAIN`` the code of each inhabitant."""
    generator = np.random.default_rng(_SEED)
    every = np.zeros(INHABITANTS, dtype=np.int64)
    age = _draw(generator, [_AGE], every)
    district = _draw(generator, [_DISTRICT], every)
    marital = _draw(generator, _MARITAL, age)
    education = _draw(generator, _EDUCATION, age)
    work = _draw(generator, _WORK, age)
    pay = np.clip(work + (generator.random(INHABITANTS) < 0.18 * education) - (work == 0), 0, 3)
    income = _draw(generator, _INCOME, pay)
    with_parents = (age == 0) | ((age == 1) & (generator.random(INHABITANTS) < 0.6))
    household = np.where(
        with_parents, _draw(generator, [_HOUSEHOLD_OF_CHILDREN], every), _draw(generator, _HOUSEHOLD, marital)
    )
    dwelling = _draw(generator, _DWELLING, income)
    in_care = (age == 7) & (generator.random(INHABITANTS) < 0.15)
    people = {
        "age": age,
        "sex": (generator.random(INHABITANTS) < 0.505 - 0.02 * age).astype(np.int64),
        "district": district,
        "birthplace": _draw(generator, _BIRTHPLACE, district),
        "marital": marital,
        "household": household,
        "dwelling": np.where(in_care, 2, dwelling),
        "education": education,
        "work": work,
        "income": income,
        "commute": np.where(work == 0, 0, _draw(generator, _COMMUTE, district)),
        "health": _draw(generator, _HEALTH, age),
    }
    return {name: people[name] for name in DOMAIN.attributes}


def write_csv(path: Path) -> None:
    """Write the town as a table that people would have: years, incomes and words instead of codes."""
    people, generator = inhabitants(), np.random.default_rng(_SEED + 1)
    named = {name: DOMAIN[name].categories for name in people}
    columns = {name: [named[name][code] for code in codes.tolist()] for name, codes in people.items()}
    columns["age"] = _within(generator, people["age"], _YEARS)
    columns["income"] = _within(generator, people["income"], _INCOMES)
    larger = (5 + generator.integers(0, 4, INHABITANTS)).tolist()
    columns["household"] = [
        str(code + 1 if code < 4 else more) for code, more in zip(people["household"].tolist(), larger, strict=True)
    ]
    columns["health"] = ["" if value == "not stated" else value for value in columns["health"]]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(DOMAIN.attributes)
        writer.writerows(zip(*(columns[name] for name in DOMAIN.attributes), strict=True))


def count(names: Sequence[str]) -> NDArray[np.float64]:
    """Return the exact cross-tabulation of the inhabitants by the named attributes."""
    people = inhabitants()
    counts = np.zeros([DOMAIN[name].size for name in names])
    np.add.at(counts, tuple(people[name] for name in names), 1)
    return counts


def _draw(generator: np.random.Generator, tendencies: list[list[int]], rows: Codes) -> Codes:
    """Draw a value for each inhabitant from the row of tendencies that belongs to them."""
    shares = np.cumsum(np.array(tendencies, dtype=np.float64), axis=1)
    shares /= shares[:, -1:]
    codes: Codes = np.sum(generator.random(len(rows))[:, None] >= shares[rows], axis=1, dtype=np.int64)
    return codes


def _within(generator: np.random.Generator, groups: Codes, edges: tuple[int, ...]) -> list[str]:
    """Return a whole number for each inhabitant inside the right-closed group that they belong to."""
    lower, upper = np.array(edges[:-1])[groups], np.array(edges[1:])[groups]
    return [str(value) for value in (lower + 1 + generator.integers(0, upper - lower)).tolist()]
