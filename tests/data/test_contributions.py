"""At most so many rows of a person are kept, the same for all tables, whoever counts; and the record says so."""

from collections import Counter

import nasty
import numpy as np
import pyarrow as pa
import pytest

from margrave import CodedTable
from margrave.algebra.layout import Layout
from margrave.data.source import Data, open_source
from margrave.domain import Attribute, Domain
from margrave.errors import DataError, DomainError
from margrave.mechanisms.gaussian_marginals import gaussian_marginals
from margrave.mechanisms.residual_planner import measure
from margrave.mechanisms.scalable_mwem import scalable_mwem
from margrave.planning.plans import plan
from margrave.privacy.budget import Budget
from margrave.workload import Workload

ROWS = nasty.rows()
PERSONS = 57
DOMAIN = Domain([*nasty.DOMAIN, Attribute("person", size=PERSONS)])
TABLES = [("person", "code"), ("person", "flag"), ("name", "flag"), ("name", "income")]
MOST = 3


def counted(data, most=MOST, domain=DOMAIN, tables=TABLES):
    """The tables that were asked for, by name, with the rows of a person bounded."""
    layout = Layout.of(domain.shape, [domain.positions(names) for names in tables])
    counts = open_source(data, domain, contributions=most, privacy_id="person").count(layout)
    return {domain.names(members): table for members, table in layout.views(counts)}


def test_at_most_so_many_rows_of_a_person_are_kept_and_no_fewer(on_engine):
    """Rows that are dropped take no place of those that are kept."""
    tables = counted(on_engine(ROWS))
    kept = [row for row in ROWS if None not in [nasty.code(name, row[name]) for name in nasty.DOMAIN.attributes]]
    there = Counter(row["person"] for row in kept)
    assert max(there.values()) > MOST
    assert tables[("person",)].tolist() == [min(MOST, there[person]) for person in range(PERSONS)]
    # All tables count the same rows: what two of them share agrees, which draws of their own would not.
    assert np.array_equal(tables["flag", "person"].sum(axis=0), tables["code", "person"].sum(axis=0))
    assert np.array_equal(tables["name", "flag"].sum(axis=1), tables["name", "income"].sum(axis=1))
    assert np.array_equal(tables["name", "flag"].sum(axis=0), tables["flag", "person"].sum(axis=1))


def test_rows_are_kept_at_random(on_engine):
    """Of four rows one is kept. Each of 1,200 draws is even: a count beyond 300 ± 100 is 6.6 standard deviations off,
    a false alarm in 10⁻⁹ of the runs of each engine; a draw that prefers the first row gives 1,200."""
    template = {name: values[0] for name, values in nasty.VALUES.items()}
    table = [{"person": person, **template, "code": code} for code in range(4) for person in range(1200)]
    domain = Domain([Attribute("code", size=4)])
    counts = counted(on_engine(table), 1, domain, [("code",)])[("code",)]
    assert counts.sum() == 1200
    assert np.abs(counts - 300).max() < 100


def test_a_row_without_an_id_is_an_error(on_engine):
    table = [dict(row) for row in ROWS]
    table[-1]["person"] = None
    with pytest.raises(DataError, match=r"^column 'person' has rows without an id, and rows without an id cannot be"):
        counted(on_engine(table))


def test_ids_of_texts_floats_and_categories():
    texts = pa.array(["x", "X", "x", "y"])
    floats = pa.array([1.5, 2.5, 1.5, float("inf")])
    domain = Domain([Attribute("a", size=2)])
    for ids in (texts, texts.dictionary_encode(), floats, pa.array([1, 2, 1, 2**63 - 1])):
        data = pa.table({"a": [0, 1, 0, 1], "person": ids})
        assert counted(data, 1, domain, [("a",)])[("a",)].tolist() == [1, 2]
    with pytest.raises(DataError, match="column 'person' has rows without an id"):
        counted(pa.table({"a": [0], "person": [float("nan")]}), 1, domain, [("a",)])


SMALL = Domain([Attribute("code", size=4, other="3")])
WORKLOAD, BUDGET = Workload(SMALL, [("code",)]), Budget.zcdp(rho=1)
RUNS = {
    "plan": lambda data, **options: measure(plan(WORKLOAD, BUDGET, contributions=2), data, **options),
    "rounds": lambda data, **options: scalable_mwem(data, WORKLOAD, BUDGET, contributions=2, rounds=1, **options),
    "marginals": lambda data, **options: gaussian_marginals(
        data, variances={("code",): 4}, contributions=2, domain=SMALL, **options
    ),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_the_record_tells_whether_contributions_were_enforced_or_declared(run):
    table = nasty.arrow(ROWS)
    assert run(table).provenance.contributions_bounded == "declared"
    assert run(Data(table)).provenance.contributions_bounded == "declared"
    for noisy in (run(table, privacy_id="person"), run(Data(table, privacy_id="person"))):
        assert noisy.provenance.contributions_bounded == "enforced"
        assert noisy.provenance.contributions == 2
    assert run(Data(table, privacy_id="person"), privacy_id="person").provenance.contributions_bounded == "enforced"
    with pytest.raises(DataError, match="two different values of privacy_id are given; give it once"):
        run(Data(table, privacy_id="person"), privacy_id="name")
    with pytest.raises(DataError, match="a CodedTable has only codes and no column of ids; leave out privacy_id"):
        run(CodedTable(SMALL, {"code": [0]}), privacy_id="person")
    with pytest.raises(DataError, match="the table has no column 'persom'; did you mean 'person'"):
        run(table, privacy_id="persom")


def test_marginals_of_a_table_need_a_domain():
    with pytest.raises(DataError, match="the table has no declared domain; give one, as in domain=Domain"):
        gaussian_marginals(nasty.arrow(ROWS), variances={("code",): 4}, contributions=1)
    with pytest.raises(DomainError, match="expected a Domain, got a dict"):
        gaussian_marginals(nasty.arrow(ROWS), variances={("code",): 4}, contributions=1, domain={"code": 4})
