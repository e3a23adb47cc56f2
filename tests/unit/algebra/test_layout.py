"""Where tables live: no two overlap, facets are where they should be, and impossible families are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from matrices import closure, subsets
from strategies import families

from margrave.algebra.layout import Layout
from margrave.errors import MeasurementError, MemoryLimitError


@given(families())
@settings(deadline=None)
def test_tables_tile_the_buffer_inner_ones_first(shape_and_family):
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    assert sorted(layout.sets, key=lambda s: (len(s), s)) == closure(family)
    buffer = np.zeros(layout.cells)
    for attributes, table in layout.views(buffer):
        assert table.shape == tuple(sizes[k] for k in attributes)
        table += 1
    assert (buffer == 1).all()
    for place, attributes in enumerate(layout.sets):
        inside = any(set(attributes) < set(other) for other in layout.sets)
        assert inside == (place < layout.outer)
    orders = [len(s) for s in layout.sets[: layout.outer]]
    for order, (first, last) in enumerate(zip(layout.levels[:-1], layout.levels[1:], strict=True)):
        assert orders[first:last] == [order] * (last - first)


@given(families())
@settings(deadline=None)
def test_facets_and_subsets_are_found(shape_and_family):
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    for place, attributes in enumerate(layout.sets):
        for j in range(len(attributes)):
            facet = layout.index.facet[place, j]
            assert layout.sets[facet] == attributes[:j] + attributes[j + 1 :]
            above = layout.index.above_slot[layout.index.above_start[facet] : layout.index.above_start[facet + 1]]
            assert layout.index.slot[place, j] in above
        assert sorted(layout.sets[t] for t in layout.subsets(place)) == sorted(subsets(attributes))


@given(families())
@settings(deadline=None)
def test_slots_of_facets_do_not_overlap(shape_and_family):
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    used = np.zeros(layout.facet_cells)
    for place, attributes in enumerate(layout.sets):
        for j in range(len(attributes)):
            slot = layout.index.slot[place, j]
            used[slot : slot + np.prod([sizes[k] for i, k in enumerate(attributes) if i != j], dtype=int)] += 1
    assert (used == 1).all()


def test_degrees_of_freedom_add_up_to_the_cells_of_a_table():
    layout = Layout.of((3, 1, 4), [(0, 1, 2)])
    assert layout.degrees.sum() == 12
    assert layout.degrees[layout.places[(1,)]] == 0


def test_a_hundred_attributes_have_all_their_triples():
    layout = Layout.of([10] * 100, [(i, j, k) for i in range(100) for j in range(i) for k in range(j)])
    assert len(layout.sets) == 166_751
    assert layout.cells == 161_700 * 1000 + 4950 * 100 + 100 * 10 + 1


def test_a_buffer_of_the_wrong_length_is_refused():
    layout = Layout.of((2, 3), [(0, 1)])
    with pytest.raises(MeasurementError, match=r"has shape \(12,\), this one has \(3,\)"):
        layout.checked(np.zeros(3))


def test_tables_with_too_many_sub_tables_are_refused_before_they_are_listed():
    with pytest.raises(MemoryLimitError, match="tables of 40 attributes have too many sub-tables to list"):
        Layout.of([2] * 40, [tuple(range(40))])


def test_tables_with_more_cells_than_can_be_counted_are_refused():
    with pytest.raises(MemoryLimitError, match=r"1e\+20 cells; at most .* can be addressed"):
        Layout.of([10**10, 10**10], [(0, 1)])
