"""Wide tables hold every table exactly once, and are no larger than they may be."""

from itertools import combinations
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import families

from margrave.data.counting import tally
from margrave.data.counting.tally import cover


@given(families(), st.sampled_from([1, 10, 100, 2**16]))
@settings(deadline=None)
def test_every_table_is_held_once_by_a_table_that_contains_it(shape_and_family, most_cells):
    sizes, family = shape_and_family
    tables = list(dict.fromkeys(family))
    wide = cover(sizes, tables, most_cells=most_cells)
    assert sorted(place for table in wide for place in table.holds) == list(range(len(tables)))
    for table in wide:
        assert list(table.members) == sorted(set(table.members))
        assert all(set(tables[place]) <= set(table.members) for place in table.holds)
        itself = any(set(tables[place]) == set(table.members) for place in table.holds)
        assert itself or prod(sizes[k] for k in table.members) <= most_cells


def test_a_hundred_and_twenty_triples_are_held_by_a_few_wide_tables():
    wide = cover((10,) * 10, list(combinations(range(10), 3)), most_cells=10**5)
    assert {len(table.members) for table in wide} <= {3, 4, 5}
    assert len(wide) <= 30


def test_where_wide_tables_do_not_pay_every_table_is_its_own(monkeypatch):
    triples = list(combinations(range(6), 3))
    assert len(cover((4,) * 6, triples)) == 1
    monkeypatch.setattr(tally, "_ROOM", 0)
    assert [table.members for table in cover((4,) * 6, triples)] == triples
    monkeypatch.undo()
    monkeypatch.setattr(tally, "_MOST_INCIDENCES", 0)
    assert [table.members for table in cover((4,) * 6, triples)] == triples


@pytest.mark.parametrize("sets", [[()], [(0,)], []])
def test_the_smallest_families(sets):
    assert [table.members for table in cover((3,), sets)] == sets
