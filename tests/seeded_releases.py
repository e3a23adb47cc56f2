"""Releases of a made-up table with seeded noise and errors of their counts, beside the true tables."""

from functools import lru_cache

import numpy as np
from generated import SIZES, rows_of

import margrave as mg
from margrave.algebra.layout import Layout
from margrave.privacy.entropy import InsecureSeededSource
from margrave.privacy.noise import gaussian_sampler

DOMAIN = mg.Domain.fromdict(SIZES)
WORKLOAD = mg.Workload.all_kway(DOMAIN, 3)
LAYOUT = Layout.of(DOMAIN.shape, WORKLOAD.positions)
ROWS = rows_of()


def true_tables():
    tables = np.zeros(LAYOUT.cells)
    for place, members in enumerate(LAYOUT.sets):
        np.add.at(LAYOUT.view(tables, place), tuple(ROWS[:, member] for member in members), 1.0)
    tables[0] = len(ROWS)
    return tables


TRUTH = true_tables()


@lru_cache
def released(epsilon, seed, method="lnn"):
    budget = mg.Budget.approx(epsilon=epsilon, delta=1e-9)
    table = mg.CodedTable(DOMAIN, {name: ROWS[:, k] for k, name in enumerate(SIZES)})
    sampler = gaussian_sampler(source=InsecureSeededSource(seed))
    noisy = mg.measure(mg.plan(WORKLOAD, budget, contributions=1), table, sampler=sampler)
    return mg.reconstruct(noisy, WORKLOAD, method=method, errors=True)
