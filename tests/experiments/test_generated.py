"""Generated tables: alike whenever they are made, within their domains, and of the kinds that they are named for."""

import itertools
import math
import subprocess
import sys
import time
from functools import cache

import numpy as np
import pytest

from experiments.generated import CHOOSING, FRESH, JUDGING, generate, generated, names

ALL = [*names(CHOOSING), *names(JUDGING), *names(FRESH)]


def test_there_are_three_sets_with_nothing_in_common():
    assert [len(names(kind)) for kind in (CHOOSING, JUDGING, FRESH)] == [15, 12, 8]
    assert len(set(ALL)) == 35
    assert [name for name, _, _ in generated(JUDGING)] == list(names(JUDGING))


@pytest.mark.parametrize("name", ALL)
def test_a_table_is_made_alike_quickly_and_within_its_domain(name):
    started = time.process_time()
    sizes, rows = generate(name)
    assert time.process_time() - started < 2
    again = generate(name)
    assert sizes == again[0]
    np.testing.assert_array_equal(rows, again[1])
    assert rows.min() >= 0
    assert (rows.max(axis=0) < list(sizes.values())).all()
    assert 1500 <= len(rows) <= 150_000
    assert 8 <= len(sizes) <= 30
    assert sum(map(math.prod, itertools.combinations(sizes.values(), 3))) <= 4_000_000
    # Hardly an attribute is constant (two of the sparse binary table are), and no table is a few rows over and over.
    assert sum(len(np.unique(column)) == 1 for column in rows.T) <= 2
    assert len(np.unique(rows, axis=0)) > 200


@pytest.mark.parametrize(
    "name", [name for name in ALL if name.startswith("binary") or name in ("panel", "signs", "magnets")]
)
def test_binary_tables_are_binary(name):
    assert set(generate(name)[0].values()) == {2}


def entropies(rows, sizes):
    """A function from places of attributes to the entropy of their table, in bits."""
    lengths = list(sizes.values())

    @cache
    def entropy(*places):
        flat = np.ravel_multi_index(rows[:, places].T, [lengths[place] for place in places])
        counts = np.bincount(flat)
        shares = counts[counts > 0] / len(rows)
        return float(-(shares * np.log2(shares)).sum())

    return entropy


@pytest.mark.parametrize("name", ["functional-1", "functional-2", "functional-3"])
def test_functional_attributes_are_nearly_determined_by_two_others(name):
    """Of the attributes, half at least are left with a quarter of their entropy by some pair of others."""
    sizes, rows = generate(name)
    entropy, places = entropies(rows[:3000], sizes), range(len(sizes))
    settled = 0
    for place in places:
        others = [k for k in places if k != place]
        left = min(entropy(place, *pair) - entropy(*pair) for pair in itertools.combinations(others, 2))
        settled += left < 0.25 * entropy(place)
    assert settled >= len(sizes) / 2


def test_a_checksum_shows_in_triples_and_hardly_in_pairs():
    """In some triple, the three together say 1.5 bits beyond what the pairs do, and these a fifth of it at most."""
    sizes, rows = generate("checksums")
    entropy = entropies(rows, sizes)
    found = []
    for triple in itertools.combinations(range(len(sizes)), 3):
        one = [entropy(k) for k in triple]
        pairs = [entropy(*pair) for pair in itertools.combinations(triple, 2)]
        # Mutual information of the pairs, and what the three have beyond it.
        shared = sum(one) * 2 - sum(pairs)
        found.append((sum(one) - entropy(*triple) - shared, shared))
    assert any(beyond > 1.5 > 5 * shared for beyond, shared in found)


@pytest.mark.parametrize("name", ["spiky-1", "spiky-2", "spiky-3", "payroll", "claims"])
def test_spiky_tables_have_heavy_cells_a_long_tail_and_zeros(name):
    sizes, rows = generate(name)
    largest = max(range(len(sizes)), key=lambda place: list(sizes.values())[place])
    counts = np.sort(np.bincount(rows[:, largest], minlength=list(sizes.values())[largest]))[::-1] / len(rows)
    heaviest = max(np.bincount(column).max() / len(rows) for column in rows.T)
    assert max(sizes.values()) >= 40
    assert heaviest > 0.5
    assert counts[len(counts) // 2] < 0.02


def test_numpy_is_all_it_needs():
    code = (
        "import sys; from importlib.util import spec_from_file_location as s, module_from_spec as m; "
        f"spec = s('generated', {generate.__code__.co_filename!r}); made = m(spec); sys.modules['generated'] = made; "
        "spec.loader.exec_module(made); made.generate('binary-1'); "
        "print(sorted(name for name in ('margrave', 'numba', 'pandas', 'jax') if name in sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_unknown_names_and_kinds_are_told():
    with pytest.raises(ValueError, match=r"no generated table 'binary-9'; there are binary-1, binary-2, .*checksums"):
        generate("binary-9")
    with pytest.raises(ValueError, match="kind is 'both'; give 'choosing', 'judging' or 'fresh'"):
        names("both")
