"""The summary of a plan: plain values, and a table to print."""

from fractions import Fraction

import numpy as np
import pytest

from margrave.domain import Domain
from margrave.planning import plan
from margrave.privacy.budget import Budget
from margrave.workload import Workload

DOMAIN = Domain.fromdict({"age": 10, "sex": 2, "region": 200})
WORKLOAD = Workload(DOMAIN, [("age", "sex"), ("age", "region"), ("sex", "region"), ("age",)])
PLAN = plan(WORKLOAD, Budget.zcdp(rho=Fraction(1, 2)), contributions=1, objective="total_variance")


def test_rows_count_tables_cells_and_errors_by_order():
    summary = PLAN.summary()
    assert [(row.order, row.tables, row.cells) for row in summary.rows] == [(0, 0, 0), (1, 1, 10), (2, 3, 2420)]
    assert (summary.rows[0].smallest, summary.rows[0].median, summary.rows[0].largest) == (None, None, None)
    assert summary.rows[1].median == PLAN.standard_error("age")
    two = sorted(PLAN.standard_error(*names) for names in WORKLOAD if len(names) == 2)
    assert [summary.rows[2].smallest, summary.rows[2].median, summary.rows[2].largest] == two
    assert (summary.rho, summary.contributions, summary.objective) == (0.5, 1, "total_variance")


def test_shares_are_those_of_the_exact_costs():
    spent = [Fraction(0)] * 3
    for table in PLAN.measured.tolist():
        spent[len(PLAN.layout.sets[table])] += PLAN.cost(table)
    for row, cost in zip(PLAN.summary().rows, spent, strict=True):
        assert row.share == pytest.approx(float(cost / sum(spent)), rel=1e-12)


def test_as_text_it_is_a_table_to_print():
    lines = str(PLAN.summary()).splitlines()
    assert lines[0] == "rho = 0.5, 1 row per person, objective total_variance"
    assert lines[1].split("  ")[0] == "attributes"
    assert lines[2].split() == ["0", "0", "0", "–", "–", "–", lines[2].split()[-1]]
    assert lines[4].split()[1:3] == ["3", "2,420"]
    assert lines[4].endswith("%")
    assert len({len(line) for line in lines[1:]}) == 1
    many = plan(WORKLOAD, Budget.zcdp(rho=Fraction(1, 2)), contributions=1000).summary()
    assert str(many).startswith("rho = 0.5, at most 1,000 rows per person")


def test_a_plan_for_non_negative_tables_says_whose_errors_it_shows():
    made = plan(WORKLOAD, Budget.zcdp(rho=Fraction(1, 2)), contributions=1, objective="nonnegative")
    first = str(made.summary()).splitlines()[0]
    assert first.endswith("objective nonnegative (errors are those of the unbiased tables)")


def test_median_errors_are_those_of_all_tables_of_an_order():
    """Of every table of the closure, whether it was asked for or is inside another."""
    inside = {1: ["age", "sex", "region"], 2: [("age", "sex"), ("age", "region"), ("sex", "region")]}
    medians = [sorted(PLAN.standard_error(*np.atleast_1d(names)) for names in tables)[1] for tables in inside.values()]
    assert PLAN.median_errors() == pytest.approx([PLAN.standard_error(), *medians], rel=1e-12)
