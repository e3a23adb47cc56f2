"""Exact counts of every table of a closure against a plain loop over the rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import families, seeds

from margrave import CodedTable
from margrave.algebra.layout import Layout
from margrave.data.counting.tally import MOST_COUNT, Tally, capped_sum, chunk_rows, code_type, count_closure
from margrave.domain import Domain
from margrave.errors import DataError


@given(families(), seeds)
@settings(deadline=None, max_examples=50)
def test_counts_equal_a_loop_over_the_rows(shape_and_family, seed):
    sizes, family = shape_and_family
    rows = np.random.default_rng(seed).integers(0, sizes, size=(37, len(sizes)))
    domain = Domain.fromdict({f"a{k}": n for k, n in enumerate(sizes)})
    layout = Layout.of(sizes, family)
    counts = CodedTable(domain, {f"a{k}": rows[:, k] for k in range(len(sizes))}).count(layout)
    assert counts.dtype == np.int64
    for attributes, table in layout.views(counts):
        expected = np.zeros(table.shape, dtype=np.int64)
        for row in rows:
            expected[tuple(row[k] for k in attributes)] += 1
        assert np.array_equal(table, expected)


def test_blocks_of_rows_and_threads_lose_nothing():
    generator = np.random.default_rng(0)
    sizes = (50, 40, 60)
    rows = generator.integers(0, sizes, size=(20_001, 3))
    domain = Domain.fromdict({"a": 50, "b": 40, "c": 60})
    layout = Layout.of(sizes, [(0, 1, 2)])
    counts = CodedTable(domain, {name: rows[:, k] for k, name in enumerate("abc")}).count(layout)
    flat = np.ravel_multi_index(rows.T, sizes)
    assert np.array_equal(counts[layout.inner_cells :], np.bincount(flat, minlength=120_000))
    assert counts[0] == 20_001


@given(families(), seeds, st.integers(1, 4))
@settings(deadline=None, max_examples=50)
def test_chunks_and_weights_add_up(shape_and_family, seed, chunks):
    """A row with weight w counts like w rows, however the rows are cut into chunks."""
    sizes, family = shape_and_family
    generator = np.random.default_rng(seed)
    rows, weights = generator.integers(0, sizes, size=(23, len(sizes))), generator.integers(0, 9, size=23)
    layout = Layout.of(sizes, family)
    tally = Tally(layout)
    for part, weight in zip(np.array_split(rows, chunks), np.array_split(weights, chunks), strict=True):
        tally.add(np.ascontiguousarray(part.T, dtype=np.uint8), weight)
    repeated = np.ascontiguousarray(np.repeat(rows, weights, axis=0).T, dtype=np.uint16)
    assert np.array_equal(tally.counts(), count_closure(layout, repeated))


@given(families(), seeds, st.integers(1, 4), st.sampled_from([2**36, 2**57, 2**60, 2**62 - 1]))
@settings(deadline=None, max_examples=80)
def test_counts_are_cut_off_and_never_wrap_around(shape_and_family, seed, chunks, largest):
    """Every cell of every table is min(count, 2⁶²), in Python's integers."""
    sizes, family = shape_and_family
    generator = np.random.default_rng(seed)
    rows = generator.integers(0, sizes, size=(23, len(sizes)))
    weights = generator.integers(0, largest, size=23, endpoint=True)
    layout = Layout.of(sizes, family)
    tally = Tally(layout)
    for part, weight in zip(np.array_split(rows, chunks), np.array_split(weights, chunks), strict=True):
        tally.add(np.ascontiguousarray(part.T, dtype=np.uint8), weight)
    for attributes, table in layout.views(tally.counts()):
        expected = np.zeros(table.shape, dtype=object)
        for row, weight in zip(rows, weights.tolist(), strict=True):
            expected[tuple(row[k] for k in attributes)] += weight
        assert np.array_equal(table, np.minimum(expected, MOST_COUNT))


@given(seeds, st.integers(1, 70))
@settings(deadline=None, max_examples=60)
def test_sums_near_the_cut_are_exact(seed, length):
    """Around 2⁶² in all, where carries and the cut itself are decided by the last bit."""
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(2**31, np.full(length, 1 / length), size=3).astype(np.int64) << 31
    counts += generator.integers(-2, 3, size=counts.shape)
    counts = np.clip(counts, 0, MOST_COUNT)
    found = capped_sum(counts.reshape(3, 1, length), (1, 2))
    assert found.tolist() == [min(sum(row), MOST_COUNT) for row in counts.tolist()]
    assert capped_sum(counts, ()).tolist() == counts.tolist()


def test_codes_take_as_few_bytes_as_they_can():
    assert [code_type((2, size)) for size in (256, 257, 2**16, 2**16 + 1)] == [
        np.uint8,
        np.uint16,
        np.uint16,
        np.uint32,
    ]
    assert code_type(()) is np.uint8
    sizes, codes = (70_000, 2), np.array([[69_999, 0, 69_999], [1, 0, 1]], dtype=np.uint32)
    layout = Layout.of(sizes, [(0, 1)])
    assert count_closure(layout, codes)[-1] == 2


def test_chunks_are_bounded_whatever_the_number_of_columns():
    assert chunk_rows(0, 1) == chunk_rows(1, 1) == 2**20
    assert chunk_rows(64, 1) == 2**18
    assert chunk_rows(10**6, 4) == 2**14


def test_an_empty_table_counts_to_zero():
    domain = Domain.fromdict({"a": 3})
    table = CodedTable(domain, {"a": np.empty(0, dtype=int)})
    assert not table.count(Layout.of((3,), [(0,)])).any()


def test_no_number_of_rows_is_shown():
    assert repr(CodedTable(Domain.fromdict({"a": 3}), {"a": [0, 1, 2]})) == "CodedTable(1 attributes)"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"a": [0, 1]}, "there is no column 'b'; give the codes of every attribute"),
        ({"a": [0, 1], "b": [0, 3]}, "column 'b' has codes outside 0 … 2; encode it by the declared domain"),
        ({"a": [0, -1], "b": [0, 1]}, "column 'a' has codes outside 0 … 1"),
        ({"a": [0.0, 1.0], "b": [0, 1]}, "column 'a' is not a list of whole numbers"),
        ({"a": [[0], [1]], "b": [0, 1]}, "column 'a' is not a list of whole numbers"),
        ({"a": [0, 1], "b": [0]}, "the columns have different lengths"),
    ],
)
def test_columns_that_do_not_fit_are_named_without_their_values(columns, text):
    with pytest.raises(DataError, match=text):
        CodedTable(Domain.fromdict({"a": 2, "b": 3}), columns)


def test_an_attribute_too_large_for_memory_is_refused():
    with pytest.raises(DataError, match="attribute 'a' has 70,000 values; at most 65,536 can be counted in memory"):
        CodedTable(Domain.fromdict({"a": 70_000}), {"a": [0]})
