"""The functions that count on the workers of a cluster, run here on batches as an engine would send them."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from margrave.algebra.layout import Layout
from margrave.data.counting.executors import (
    CELL,
    COUNT,
    NOT_INSTALLED,
    PROBLEM,
    Coder,
    Count,
    Encode,
    Packed,
    placed,
    run,
    shipped,
)
from margrave.data.persons import PERSON, ROW
from margrave.domain import Attribute, Domain

DOMAIN = Domain([Attribute("a", size=3), Attribute("b", size=2, outside="drop"), Attribute("c", labels=("x", "y"))])
SETS = ((0, 1), (2,))
# Digits are the last three bits, so that marks are 4 … 7: −2, which is outside, is 6, and −3, missing, is 5.
A = Packed(0, 0, 0, 3, np.array([0, 1, 2, -2, -2, -2, -2, -2], np.int32), {5: "a is missing", 6: "a is undeclared"})
B = Packed(1, 0, 3, 3, np.array([0, 1, -2, -2, -2, -2, -1, -2], np.int32), {5: "b is missing"})


def batch(a, b, c, **more):
    words = (np.array(a, np.int64) & 7) | (np.array(b, np.int64) & 7) << 3
    return pa.RecordBatch.from_pydict({"margrave_word_0": words, "margrave_raw_2": pa.array(c), **more})


def counted(batches, function=None):
    """The cells that are not empty, and the problems, in the order in which they come."""
    function = function or Count(Coder(DOMAIN, (A, B), (2,)), DOMAIN.shape, SETS)
    found = pa.Table.from_batches(run(function, iter(batches)), schema=function.schema)
    cells = dict(zip(found[CELL].to_pylist(), found[COUNT].to_pylist(), strict=True))
    return cells, found[PROBLEM].drop_null().to_pylist()


def test_words_and_columns_become_the_counts_of_all_outer_tables():
    layout = Layout.of(DOMAIN.shape, SETS)
    cells, problems = counted([batch([0, 2, 2], [1, 0, -2], ["x", "y", "y"]), batch([2], [0], ["y"])])
    expected = np.zeros(layout.cells, int)
    # The third row is dropped from every table.
    pairs, singles = (layout.index.offset[layout.sets.index(one)] for one in SETS)
    expected[[pairs + 0 * 2 + 1, pairs + 2 * 2 + 0, singles + 0, singles + 1]] = [1, 2, 1, 2]
    assert problems == []
    assert cells == {cell: expected[cell] for cell in np.flatnonzero(expected)}


def test_a_partition_without_rows_has_no_cells():
    assert counted([]) == ({}, [])
    assert counted([batch([], [], pa.array([], pa.string()))]) == ({}, [])


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (([0, -3], [0, 0], ["x", "x"]), "a is missing"),
        (([-2, 0], [0, 0], ["x", "x"]), "a is undeclared"),
        (([0], [-3], ["x"]), "b is missing"),
        # A row that is dropped is looked at all the same.
        (([-2], [-2], ["x"]), "a is undeclared"),
        (([0], [0], ["Katharina Geheim"]), "column 'c' has values that its attribute does not declare"),
        (([0], [0], [None]), "column 'c' has missing values and its attribute no category for them"),
    ],
)
def test_an_error_is_returned_as_a_row_and_nothing_of_the_table_with_it(rows, problem):
    taken = []
    batches = (
        taken.append(place) or one
        for place, one in enumerate([batch([0], [0], ["x"]), batch(*rows), batch([1], [1], ["y"])])
    )
    cells, [said] = counted(batches)
    assert cells == {-1: 0}
    assert said.startswith(problem)
    assert "Katharina" not in said
    assert taken == [0, 1, 2]  # what the engine still sends is taken


def test_an_error_of_a_library_is_returned_without_its_text():
    with pytest.raises(KeyError):
        batch([0], [0], ["x"]).drop_columns(["margrave_raw_2"]).column("margrave_raw_2")
    _, [said] = counted([batch([0], [0], ["x"]).drop_columns(["margrave_raw_2"])])
    assert said.startswith("the PySpark frame could not be read and counted (KeyError)")


def test_rows_for_choosing_have_their_person_and_the_text_of_their_codes():
    places, words = placed({0: 2, 2: 1})
    encode = Encode(Coder(DOMAIN, (A, B), (2,), "p"), places, words)
    rows = batch([2, 0, 1], [1, 1, -2], ["y", "x", "x"], margrave_person=pa.array([7, 8, 9]))
    found = pa.Table.from_batches(run(encode, iter([rows])), schema=encode.schema)
    assert found[PERSON].to_pylist() == ["7", "8"]
    assert found[ROW].to_pylist() == ["2,1", "0,0"]
    assert found["margrave_word_0"].to_pylist() == [2 | 1 << 2, 0]
    assert found[PROBLEM].null_count == 2
    # Without an id: one row that is nobody's, and what is counted from it is the problem alone.
    rows = batch([2], [1], ["y"], margrave_person=pa.array([None], pa.int64()))
    trouble = list(run(encode, iter([rows])))
    assert trouble[-1][PERSON].null_count == 1
    plain = (
        Packed(0, *places[0], 2, np.arange(3, dtype=np.int32)),
        Packed(2, *places[2], 1, np.arange(2, dtype=np.int32)),
    )
    cells, [said] = counted(trouble, Count(Coder(DOMAIN, plain), DOMAIN.shape, SETS[1:]))
    assert cells == {-1: 0}
    assert said.startswith("column 'p' has rows without an id")


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        (pa.array([b"\x00\xff"]), ["00FF"]),
        (pa.array([-0.0]), ["0"]),
        (pa.array(["a "]), ["a "]),
        (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
    ],
)
def test_ids_are_written_as_the_rule_hashes_them(ids, texts):
    encode = Encode(Coder(DOMAIN, (A, B), (2,), "p"), *placed({}))
    [found] = run(encode, iter([batch([0], [0], ["x"], margrave_person=ids)]))
    assert found[PERSON].to_pylist() == texts
    assert found[ROW].to_pylist() == [""]


def test_digits_fill_words_and_never_cross_from_one_to_the_next():
    bits = dict(enumerate([30, 30, 4, 63, 1, 62, 1]))
    places, words = placed(bits)
    assert places == {0: (0, 0), 1: (0, 30), 2: (1, 0), 3: (2, 0), 4: (3, 0), 5: (3, 1), 6: (4, 0)}
    assert words == 5
    assert placed({}) == ({}, 0)
    taken = [(word, bit) for k, (word, shift) in places.items() for bit in range(shift, shift + bits[k])]
    assert len(set(taken)) == len(taken)
    assert max(bit for _, bit in taken) < 63


def test_a_worker_that_lacks_margrave_says_so(monkeypatch):
    function = Count(Coder(DOMAIN, (A, B), (2,)), DOMAIN.shape, SETS)
    rows = [batch([0], [0], ["x"])]
    import margrave

    assert [one[PROBLEM].null_count for one in shipped(function, margrave.__version__)(iter(rows))] == [2]
    [other] = shipped(function, "0.0")(iter(rows))
    assert other[PROBLEM].to_pylist() == [NOT_INSTALLED]
    work = shipped(function, margrave.__version__)
    monkeypatch.setitem(__import__("sys").modules, "margrave", None)
    [lacking] = work(iter(rows))
    assert lacking[PROBLEM].to_pylist() == [NOT_INSTALLED]


def test_large_domains_are_counted_as_small_ones():
    """Codes of two bytes, several words, against a plain count."""
    generator = np.random.default_rng(1)
    domain = Domain.fromdict({"a": 300, "b": 2, "c": 70_000, "d": 5})
    codes = [generator.integers(0, size, 2000) for size in domain.shape]
    bits = {k: (size + 3).bit_length() + 24 for k, size in enumerate(domain.shape)}
    places, words = placed(bits)
    assert words > 1
    columns = np.zeros((words, 2000), np.int64)
    for k, (word, shift) in places.items():
        columns[word] |= codes[k] + 4 << shift
    packed = tuple(
        Packed(k, *places[k], bits[k], np.arange(-4, size, dtype=np.int32)) for k, size in enumerate(domain.shape)
    )
    table = pa.table({f"margrave_word_{word}": column for word, column in enumerate(columns)})
    sets = tuple(itertools.combinations((0, 1, 3), 2))
    cells, problems = counted(table.to_batches(max_chunksize=99), Count(Coder(domain, packed), domain.shape, sets))
    layout, expected = Layout.of(domain.shape, sets), {}
    for one in sets:
        start = layout.index.offset[layout.sets.index(one)]
        for pair in zip(codes[one[0]], codes[one[1]], strict=True):
            cell = start + int(pair[0]) * domain.shape[one[1]] + int(pair[1])
            expected[cell] = expected.get(cell, 0) + 1
    assert (cells, problems) == (expected, [])
