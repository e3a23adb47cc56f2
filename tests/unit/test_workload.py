"""The workload: which tables, in which order, with which weight."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from margrave.domain import Domain
from margrave.errors import DomainError, PlanError
from margrave.workload import Workload

SURVEY = Domain.fromdict({"age": 85, "sex": 2, "region": 17, "income": 10})
HUNDRED = Domain.fromdict({f"a{place}": 2 + place for place in range(100)})

families = st.lists(st.sets(st.sampled_from(SURVEY.attributes)), min_size=1, max_size=8)
weights = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


def refused(text):
    return pytest.raises(PlanError, match=re.escape(text))


def in_order(sets):
    """The canonical order, slowly: take all subsets of the domain by size and keep those asked for."""
    wanted = {frozenset(names) for names in sets}
    subsets = itertools.chain.from_iterable(
        itertools.combinations(SURVEY.attributes, size) for size in range(len(SURVEY) + 1)
    )
    return tuple(names for names in subsets if frozenset(names) in wanted)


def subsets_of(names):
    return itertools.chain.from_iterable(itertools.combinations(names, size) for size in range(len(names) + 1))


# Sets


def test_sets_and_their_names_come_in_canonical_order():
    workload = Workload(SURVEY, [("region", "sex"), ("income",), ["sex", "age"], ()])
    assert workload.sets == ((), ("income",), ("age", "sex"), ("sex", "region"))
    assert workload.positions == ((), (3,), (0, 1), (1, 2))
    assert workload.weights.tolist() == [1.0, 1.0, 1.0, 1.0]
    assert workload.domain is SURVEY


@given(families, st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_matters(family, chance):
    shuffled = [chance.sample(sorted(names), len(names)) for names in family * 2]
    chance.shuffle(shuffled)
    workload = Workload(SURVEY, shuffled)
    assert workload == Workload(SURVEY, family)
    assert hash(workload) == hash(Workload(SURVEY, family))
    assert workload.sets == in_order(family)
    assert workload.positions == tuple(SURVEY.positions(names) for names in workload.sets)


@given(families)
def test_closure_and_maximal_sets_agree_with_brute_force(family):
    workload = Workload(SURVEY, family)
    below = [subset for names in family for subset in subsets_of(sorted(names))]
    tops = [names for names in family if not any(names < other for other in family)]
    assert workload.closure == in_order(below)
    assert workload.maximal == in_order(tops)


@given(families)
def test_cells_and_largest_agree_with_brute_force(family):
    workload = Workload(SURVEY, family)
    cells = {names: math.prod(SURVEY[name].size for name in names) for names in in_order(family)}
    assert workload.cells == sum(cells.values())
    assert workload.bytes == 8 * sum(cells.values())
    assert workload.largest(3) == tuple(sorted(cells, key=lambda names: -cells[names])[:3])


def test_a_workload_is_iterated_by_its_sets():
    workload = Workload(SURVEY, [("sex",), ("age",)])
    assert len(workload) == 2
    assert list(workload) == [("age",), ("sex",)]


def test_membership_does_not_depend_on_order():
    workload = Workload(SURVEY, [("age", "sex")])
    assert ("age", "sex") in workload
    assert ["sex", "age", "sex"] in workload
    assert frozenset({"age", "sex"}) in workload
    assert ("age",) not in workload
    assert () not in workload
    assert ("age", "zip") not in workload
    assert 3 not in workload


def test_a_text_is_refused_where_a_set_is_meant():
    text = (
        "a table is a collection of attribute names, got the text 'age'; write ('age',) for the table of one attribute"
    )
    with refused(text):
        Workload(SURVEY, ["age", "sex"])
    with refused(text):
        Workload(SURVEY, [("sex",)], weights={"age": 1.0})
    with refused(text):
        assert "age" in Workload(SURVEY, [("age",)])


@pytest.mark.parametrize("sets", ["age", {("age",): 2.0}])
def test_a_text_or_a_mapping_is_refused_as_the_list_of_sets(sets):
    with refused(
        f"the sets of a workload must be a list of collections of names, got {sets!r}; "
        "write [('age', 'sex')] for one table, and give weights as weights=…"
    ):
        Workload(SURVEY, sets)


def test_an_unknown_attribute_is_refused_by_the_domain():
    with pytest.raises(DomainError, match=r"no attribute 'agee' in the domain; did you mean 'age'\?"):
        Workload(SURVEY, [("agee",)])


def test_an_empty_workload_is_refused():
    with refused("the workload names no table; give at least one set of attributes, or () for the total"):
        Workload(SURVEY, [])


def test_the_total_alone_is_a_workload():
    workload = Workload(SURVEY, [()])
    assert (workload.sets, workload.closure, workload.maximal, workload.cells) == (((),), ((),), ((),), 1)


# Weights


def test_a_list_of_weights_follows_the_sets_as_given():
    workload = Workload(SURVEY, [("sex", "age"), ("sex",), ()], weights=[3, 2.5, Fraction(1, 2)])
    assert dict(zip(workload, workload.weights.tolist(), strict=True)) == {
        (): 0.5,
        ("sex",): 2.5,
        ("age", "sex"): 3.0,
    }


def test_a_mapping_of_weights_names_sets_in_any_order():
    mapping = {("sex", "age"): 3.0, frozenset({"sex"}): np.float32(2.5), (): 1}
    workload = Workload(SURVEY, [("age", "sex"), ("sex",), ()], weights=mapping)
    assert workload.weights.tolist() == [1.0, 2.5, 3.0]


def test_a_set_named_twice_keeps_its_largest_weight():
    sets = [("age", "sex"), ("sex",), ("sex", "age"), ("age", "sex")]
    assert Workload(SURVEY, sets, weights=[2, 1, 5, 3]).weights.tolist() == [1.0, 5.0]
    mapping = {("age", "sex"): 2.0, ("sex", "age"): 5.0, ("sex",): 1.0}
    assert Workload(SURVEY, sets, weights=mapping).weights.tolist() == [1.0, 5.0]


@given(st.lists(st.tuples(st.sets(st.sampled_from(SURVEY.attributes)), weights), min_size=1, max_size=8))
def test_weights_stay_with_their_sets(pairs):
    workload = Workload(SURVEY, [names for names, _ in pairs], weights=[weight for _, weight in pairs])
    expected = [max(w for names, w in pairs if names == set(own)) for own in workload.sets]
    assert workload.weights.tolist() == expected
    assert workload.weights.dtype == np.float64


def test_weights_are_read_only_and_a_copy():
    mine = np.array([1.0, 2.0])
    workload = Workload(SURVEY, [(), ("age",)], weights=mine)
    mine[0] = 7.0
    assert workload.weights.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        workload.weights[0] = 7.0


@pytest.mark.parametrize(
    "weight",
    [0, -1.0, math.nan, math.inf, -math.inf, True, np.True_, "1", None, 10**400, Fraction(1, 10**400)],
)
def test_a_weight_must_be_a_positive_finite_number(weight):
    with refused(f"a weight is {weight!r}; give a positive finite number"):
        Workload(SURVEY, [("age",)], weights=[weight])
    with refused(f"a weight is {weight!r}; give a positive finite number"):
        Workload(SURVEY, [("age",)], weights={("age",): weight})


@pytest.mark.parametrize("count", [1, 3])
def test_there_must_be_as_many_weights_as_sets(count):
    with refused(f"{count} weights for 2 sets; give one number for each set"):
        Workload(SURVEY, [("age",), ("sex",)], weights=[1.0] * count)


@pytest.mark.parametrize("wrong", [2.0, "12", {1.0, 2.0}])
def test_weights_must_have_an_order_or_names(wrong):
    with refused(f"weights must be a list or a mapping, got {wrong!r}; give one number for each set"):
        Workload(SURVEY, [("age",), ("sex",)], weights=wrong)


def test_a_mapping_must_name_every_set_and_no_other():
    with refused("no weight for ('sex',); give one for every set"):
        Workload(SURVEY, [("age",), ("sex",)], weights={("age",): 1.0})
    with refused("a weight for ('age', 'sex'), which the workload does not name; leave it out"):
        Workload(SURVEY, [("age",)], weights={("age",): 1.0, ("sex", "age"): 1.0})


# Families


@pytest.mark.parametrize("k", range(5))
def test_all_k_way_sets_are_the_combinations(k):
    workload = Workload.all_kway(SURVEY, k)
    assert workload.sets == tuple(itertools.combinations(SURVEY.attributes, k))
    assert workload == Workload(SURVEY, itertools.combinations(SURVEY.attributes, k))


@pytest.mark.parametrize("k", range(5))
def test_sets_up_to_k_include_the_total(k):
    workload = Workload.up_to(SURVEY, np.int64(k))
    expected = [names for names in subsets_of(SURVEY.attributes) if len(names) <= k]
    assert workload.sets == tuple(expected)
    assert workload == Workload(SURVEY, expected)


@pytest.mark.parametrize("k", [-1, 5, 2.0, True, "2", None])
def test_k_must_be_a_number_of_attributes(k):
    for family in (Workload.all_kway, Workload.up_to):
        with refused(f"k is {k!r}; give a whole number from 0 to 4, the attributes there are"):
            family(SURVEY, k)


def test_more_tables_than_fit_in_memory_are_refused_at_once():
    with refused(f"k = 50 makes {math.comb(100, 50):,} tables, the most is 10,000,000; choose a smaller k"):
        Workload.all_kway(HUNDRED, 50)


def test_a_hundred_attributes_have_161700_triples():
    workload = Workload.all_kway(HUNDRED, 3)
    cells = workload.cells
    # Third elementary symmetric polynomial of the sizes, by Newton's identity.
    one, two, three = (sum(size**power for size in HUNDRED.shape) for power in (1, 2, 3))
    assert len(workload) == math.comb(100, 3)
    assert cells == (one**3 - 3 * one * two + 2 * three) // 6
    assert workload.sets[0] == ("a0", "a1", "a2")
    assert workload.sets[-1] == ("a97", "a98", "a99")
    assert len(workload.closure) == sum(math.comb(100, size) for size in range(4))
    assert workload.maximal == workload.sets


def test_up_to_three_of_a_hundred_attributes_has_the_triples_as_maximal_sets():
    workload = Workload.up_to(HUNDRED, 3)
    assert len(workload) == 1 + 100 + 4950 + 161_700
    assert workload.closure == workload.sets
    assert workload.maximal == workload.sets[1 + 100 + 4950 :]


def test_the_number_of_cells_is_exact_beyond_sixty_four_bits():
    workload = Workload.all_kway(HUNDRED, 100)
    assert workload.cells == math.factorial(101)
    assert workload.bytes == 8 * math.factorial(101)


# Filter and union


def test_filtering_keeps_the_tables_that_fit_with_their_weights():
    workload = Workload(SURVEY, [("age", "region"), ("age", "sex"), ("sex",)], weights=[3, 2, 1])
    assert workload.filter(max_cells=170) == Workload(SURVEY, [("sex",), ("age", "sex")], weights=[1, 2])
    assert workload.filter(max_cells=169) == Workload(SURVEY, [("sex",)])
    assert workload.filter(max_cells=85 * 17) == workload


def test_filtering_must_leave_a_table():
    with refused("no table has at most 1,000 cells; the smallest has 1,445: allow more"):
        Workload(SURVEY, [("age", "region")]).filter(max_cells=1000)


@pytest.mark.parametrize("max_cells", [0, -5, 1e6, True, "9", None])
def test_max_cells_must_be_a_positive_whole_number(max_cells):
    with refused(f"max_cells is {max_cells!r}; give a whole number of at least 1"):
        Workload.all_kway(SURVEY, 1).filter(max_cells=max_cells)


def test_a_union_keeps_the_larger_weight():
    one = Workload(SURVEY, [("age",), ("sex",)], weights=[1, 4])
    other = Workload(SURVEY, [("sex",), ("age", "sex"), ("age",)], weights=[3, 2, 5])
    expected = Workload(SURVEY, [("age",), ("sex",), ("age", "sex")], weights=[5, 4, 2])
    assert one.union(other) == expected
    assert other | one == expected


def test_low_orders_unite_to_all_orders_up_to_the_highest():
    united = Workload.all_kway(SURVEY, 2) | Workload.all_kway(SURVEY, 0) | Workload.all_kway(SURVEY, 1)
    assert united == Workload.up_to(SURVEY, 2)


def test_workloads_over_different_domains_do_not_unite():
    other = Domain.fromdict({"age": 85, "sex": ["F", "M"]})
    with refused(
        f"the workloads are over different domains, {SURVEY!r} and {other!r}; "
        "make both over one (labels and descriptions count too)"
    ):
        Workload(SURVEY, [("age",)]).union(Workload(other, [("age",)]))


def test_only_workloads_unite():
    with pytest.raises(TypeError, match="unsupported operand"):
        Workload(SURVEY, [("age",)]) | [("sex",)]


# Values


def test_workloads_are_equal_by_domain_sets_and_weights():
    workload = Workload(SURVEY, [("age",), ("sex",)])
    assert workload == Workload(SURVEY, [("sex",), ("age",)], weights=[1, 1])
    assert workload != Workload(SURVEY, [("sex",), ("age",)], weights=[1, 2])
    assert workload != Workload(SURVEY, [("age",)])
    assert workload != Workload(Domain(list(SURVEY), "another"), [("age",), ("sex",)])
    assert workload != workload.sets


def test_a_workload_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Workload(SURVEY, [()]).domain = HUNDRED


def test_the_largest_tables_come_first():
    workload = Workload.all_kway(SURVEY, 1)
    assert workload.largest() == (("age",), ("region",), ("income",), ("sex",))
    assert workload.largest(1) == (("age",),)


def test_tables_of_equal_size_come_in_canonical_order():
    even = Domain.fromdict(dict.fromkeys("dcba", 3))
    assert Workload.all_kway(even, 1).largest(3) == (("d",), ("c",), ("b",))


@pytest.mark.parametrize("count", [0, -1, 1.0, True])
def test_the_count_of_largest_tables_must_be_a_positive_whole_number(count):
    with refused(f"count is {count!r}; give a whole number of at least 1"):
        Workload.all_kway(SURVEY, 1).largest(count)


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        ([()], "Workload(1 table of 0 attributes, 1 cell)"),
        ([("age",)], "Workload(1 table of 1 attribute, 85 cells)"),
        ([("age", "region"), ("age", "sex")], "Workload(2 tables of 2 attributes, 1,615 cells)"),
        ([(), ("age", "region")], "Workload(2 tables of 0 to 2 attributes, 1,446 cells)"),
    ],
)
def test_the_repr_counts_tables_and_cells(sets, text):
    assert repr(Workload(SURVEY, sets)) == text


def test_a_table_that_names_an_attribute_twice_is_refused():
    with refused("the table age × age names an attribute twice; name each once"):
        Workload(SURVEY, [("sex",), ("age", "age")])
    with refused("the table sex × age × sex names an attribute twice; name each once"):
        Workload(SURVEY, [("sex", "age")], weights={("sex", "age", "sex"): 2.0})
    # A generator is used up by looking at it once.
    assert Workload(SURVEY, [(name for name in ("sex", "age"))]).sets == (("age", "sex"),)


def test_the_fingerprint_is_of_the_tables_and_their_weights():
    sets = [("age",), ("sex", "region")]
    workload = Workload(SURVEY, sets)
    # Pinned: ledgers keep it, so it must never change.
    assert workload.fingerprint == "b4db6a56b09e3796bd42ffb46e7268264c1dc11926a975b503861e1a5bf10231"
    assert Workload(SURVEY, sets[::-1]).fingerprint == workload.fingerprint
    assert Workload(SURVEY, sets, weights=[1, 2]).fingerprint != workload.fingerprint
    assert Workload(SURVEY, [("age",), ("sex",), ("region",)]).fingerprint != workload.fingerprint
