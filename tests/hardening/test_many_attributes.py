"""A thousand attributes: what can be done is done, and what cannot is refused at once."""

import numpy as np
import pytest

import margrave as mg
from margrave.errors import MargraveError

ATTRIBUTES = 1000


@pytest.fixture(scope="module")
def domain():
    return mg.Domain([mg.Attribute(f"a{k}", size=1 + k % 4) for k in range(ATTRIBUTES)])


@pytest.fixture(scope="module")
def table(domain):
    draw = np.random.default_rng(1)
    return mg.CodedTable(domain, {one.name: draw.integers(0, one.size, 500) for one in domain})


def test_one_way_tables(domain, table):
    workload = mg.Workload.all_kway(domain, 1)
    noisy = mg.residual_planner(table, workload, mg.Budget.zcdp(rho=100), contributions=1)
    release = mg.reconstruct(noisy, workload)
    values = [one.values for one in release.tables()]
    assert len(values) == ATTRIBUTES
    assert all((one >= 0).all() for one in values)
    assert np.allclose([one.sum() for one in values], float(release.table().values), atol=1e-6)


def test_three_way_tables_are_refused_at_once(domain):
    with pytest.raises(MargraveError, match=r"^k = 3 makes 166,167,000 tables, the most is 10,000,000; choose a small"):
        mg.Workload.all_kway(domain, 3)


def test_one_table_of_all_attributes_is_refused_at_once(domain, table):
    with pytest.raises(MargraveError, match=r"^tables of 1,?000 attributes have too many sub-tables to list"):
        mg.plan(mg.Workload(domain, [domain.attributes]), mg.Budget.zcdp(rho=1), contributions=1)


@pytest.mark.engines
def test_two_way_tables(domain, table):
    workload = mg.Workload.all_kway(domain, 2)
    noisy = mg.residual_planner(table, workload, mg.Budget.zcdp(rho=100), contributions=1)
    release = mg.reconstruct(noisy, workload, method="mle")
    one, other = release.table("a1", "a2").values, release.table("a2", "a999").values
    assert np.allclose(one.sum(0), other.sum(1), atol=1e-6)
