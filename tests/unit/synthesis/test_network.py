"""First rows: what each attribute depends on, and values spread as evenly as whole rows can be."""

import itertools

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.errors import ReleaseError
from margrave.synthesis import network
from margrave.synthesis.fitting import count_rows
from margrave.synthesis.made_up_draws import MadeUpDraws, checked_seed
from margrave.synthesis.network import Link, draw_rows, links


def chain(rows=5000):
    """Attribute 3 drives 1, 1 drives 0, and 2 is by itself."""
    generator = np.random.default_rng(2)
    noise = generator.random((rows, 3))
    third = generator.integers(0, 4, rows)
    first = np.where(noise[:, 0] < 0.9, third, generator.integers(0, 4, rows))
    zeroth = np.where(noise[:, 1] < 0.8, first % 3, generator.integers(0, 3, rows))
    return np.column_stack([zeroth, first, generator.integers(0, 2, rows), third]).astype(np.int32)


SIZES = (3, 4, 2, 4)


def tables(sets, codes=None, sizes=SIZES):
    layout = Layout.of(sizes, sets)
    return layout, count_rows(layout, chain() if codes is None else codes)


def test_the_network_follows_the_strongest_relations():
    layout, marginals = tables(list(itertools.combinations(range(4), 2)))
    found = [(link.attribute, layout.sets[link.table]) for link in links(layout, marginals)]
    assert found[:3] == [(1, (1,)), (3, (1, 3)), (0, (0, 1))]
    assert found[3][0] == 2
    assert 2 in found[3][1]


def test_an_attribute_in_no_table_is_drawn_evenly_and_by_itself():
    layout, marginals = tables([(0, 1)])
    assert list(links(layout, marginals))[2:] == [Link(2, None), Link(3, None)]
    codes = draw_rows(layout, marginals, 1000, MadeUpDraws(0))
    assert np.bincount(codes[:, 3]).tolist() == [250] * 4
    paired = np.zeros((2, 4))
    np.add.at(paired, (codes[:, 2], codes[:, 3]), 1)
    # 125 each if they do not know of each other; four standard deviations are 37.
    assert np.abs(paired - 125).max() < 37


def test_tables_of_the_network_are_met_up_to_the_rounding_of_each_context():
    layout, marginals = tables([(0, 1, 3)])
    codes = draw_rows(layout, marginals, 5000, MadeUpDraws(1))
    drawn = count_rows(layout, codes)
    for table, members in enumerate(layout.sets):
        # The first attribute is met up to one, the second up to one in each of its contexts, and so on.
        contexts = 4 * 4 if len(members) == 3 else 4 * 4 * 3
        assert np.abs(layout.view(drawn, table) - layout.view(marginals, table)).max() <= contexts


def test_no_row_gets_a_value_that_its_context_never_has():
    codes = chain()
    codes[codes[:, 1] == 2, 0] = 0  # two empty cells in the table of 0 and 1
    layout, marginals = tables([(0, 1)], codes)
    drawn = draw_rows(layout, marginals, 5000, MadeUpDraws(3))
    assert count_rows(layout, drawn)[marginals == 0].sum() == 0


def test_a_context_that_counts_nobody_follows_the_attribute_alone():
    codes = np.zeros((100, 1), dtype=np.int32)
    conditional, usual = np.zeros((2, 3)), np.array([1.0, 0.0, 3.0])
    context = np.ones(100, dtype=np.int64)
    network.draw_column(codes, 0, context, conditional, usual, np.arange(100), np.array([0.5, 0.5]))
    assert np.bincount(codes[:, 0], minlength=3).tolist() == [25, 0, 75]


def test_entropies_are_those_of_shares():
    layout, marginals = tables([(0, 1, 2)])
    found = np.empty(len(layout.sets))
    network.entropies(marginals, layout.index.offset, found, 0, len(layout.sets))
    for table in range(len(layout.sets)):
        shares = layout.view(marginals, table).ravel() / 5000
        shares = shares[shares > 0]
        assert found[table] == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-12)


def test_the_search_agrees_with_one_that_tries_everything():
    codes = np.random.default_rng(4).integers(0, 3, (400, 6)).astype(np.int32)
    codes[:, 4] = (codes[:, 0] + codes[:, 1]) % 3
    codes[:, 5] = codes[:, 2] * (codes[:, 3] > 0)
    layout, marginals = tables(list(itertools.combinations(range(6), 3)), codes, (3,) * 6)
    entropy = np.empty(len(layout.sets))
    network.entropies(marginals, layout.index.offset, entropy, 0, len(entropy))
    done = []
    for link in links(layout, marginals):
        if done:
            best = max(
                entropy[layout.places[k,]] + entropy[layout.places[rest]] - entropy[layout.places[both]]
                for k in range(6)
                if k not in done
                for size in (1, 2)
                for rest in itertools.combinations(sorted(done), size)
                for both in [tuple(sorted((k, *rest)))]
            )
            members = layout.sets[link.table]
            rest = tuple(member for member in members if member != link.attribute)
            assert set(rest) <= set(done)
            told = entropy[layout.places[link.attribute,]] + entropy[layout.places[rest]] - entropy[link.table]
            assert told == pytest.approx(best, abs=1e-8)
        done.append(link.attribute)
    assert sorted(done) == list(range(6))


@pytest.mark.parametrize("seed", [-1, True, 1.5, "7", 2**63])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ReleaseError, match=r"the seed is .*; give a whole number from 0 to"):
        checked_seed(seed)


def test_a_seed_that_nobody_chose_is_told():
    draws = MadeUpDraws(None)
    assert (MadeUpDraws(draws.seed).order(50) == MadeUpDraws(draws.seed).order(50)).all()
    assert MadeUpDraws(np.int64(5)).seed == 5
