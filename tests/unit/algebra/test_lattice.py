"""Closures, facets and maximal sets against brute force."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import closure as slow_closure

from margrave.algebra import layout as lattice

families = st.lists(st.sets(st.integers(0, 6), max_size=5), min_size=1, max_size=8)


def test_canonical_order_is_by_size_then_lexicographic_and_drops_repeats():
    assert lattice.canonical([(2, 0), (1,), (0, 2), (), (0, 1)]) == ((), (1,), (0, 1), (0, 2))


@given(families)
@settings(deadline=None)
def test_closure_and_maximal_equal_brute_force(family):
    sets = lattice.canonical(family)
    assert list(lattice.closure(sets)) == slow_closure(sets)
    largest = [s for s in sets if not any(set(s) < set(other) for other in sets)]
    assert list(lattice.maximal(sets)) == largest


@given(families)
@settings(deadline=None)
def test_facets_point_to_the_set_without_one_member(family):
    levels = lattice.closure_levels(lattice.by_size(lattice.canonical(family)))
    for below, level in itertools.pairwise(levels):
        for row, places in zip(level.members.tolist(), level.facets.tolist(), strict=True):
            for j, place in enumerate(places):
                assert below.members[place].tolist() == row[:j] + row[j + 1 :]


def test_an_empty_family_has_no_closure():
    assert lattice.closure_levels({}) == ()
    assert lattice.closure(()) == ()
    assert lattice.maximal(()) == ()


def test_keys_too_long_for_64_bits_are_ranked_on_the_way():
    """Thirteen members below 60 need 77 bits as one number; the rows must still be told apart."""
    generator = np.random.default_rng(0)
    rows = [tuple(sorted(generator.choice(60, size=13, replace=False).tolist())) for _ in range(3)]
    distinct, place = lattice._distinct_rows(np.array(rows + rows[:1], dtype=np.int64))
    assert [tuple(row) for row in distinct.tolist()] == sorted(set(rows))
    assert [tuple(row) for row in distinct[place].tolist()] == [*rows, rows[0]]


def test_repeats_and_the_order_of_sets_and_members_do_not_matter():
    assert lattice.closure([(2, 0), (1,), (0, 2)]) == ((), (0,), (1,), (2,), (0, 2))
