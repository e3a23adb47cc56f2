"""The tables do not depend on the order in which attributes and their labels are declared.

The same noisy tables are given over the domain as it is, and over one whose attributes and labels stand in another
order. Every step is a sum, a scaling or a look-up, taken in an order that the numbers themselves decide; what is left
is rounding. A cell is the result of some thousand operations on numbers of at most the size of the largest cell, each
rounded to 2⁻⁵³, which is 1e-13 of it; a thousand times that is allowed.
"""

from functools import lru_cache
from itertools import combinations

import numpy as np
import pytest

import margrave as mg

ROUNDING = 1e-10
SIZES = {"age": 6, "sex": 2, "region": 5, "work": 4, "income": 3}
EQUAL = {"a": 4, "b": 4, "c": 4, "d": 4, "e": 4}
TURNS = ["attributes", "labels", "both"]


def counts(sizes, rows=3_000):
    """The joint table of made-up rows: every second attribute follows a hidden one, all are skewed."""
    draw = np.random.default_rng(1)
    hidden = draw.integers(0, 5, rows)
    columns = [
        np.minimum(hidden * (k % 2) + draw.geometric(0.4, rows) - 1, n - 1) for k, n in enumerate(sizes.values())
    ]
    joint = np.zeros(tuple(sizes.values()))
    np.add.at(joint, tuple(columns), 1)
    return joint


def noisy_tables(sizes, sets, variance):
    """The tables over some sets of names, each with a variance of its own, as (names, table, variance)."""
    joint, names, draw = counts(sizes), list(sizes), np.random.default_rng(2)
    for members in sets:
        others = tuple(k for k, name in enumerate(names) if name not in members)
        table = joint.sum(axis=others)
        own = variance * draw.uniform(0.5, 2)
        yield members, table + draw.normal(0, own**0.5, table.shape), own


def reordered(sizes, turn):
    """The names in another order, and for each a new order of its labels."""
    draw = np.random.default_rng(3)
    names = list(draw.permutation(list(sizes))) if turn != "labels" else list(sizes)
    labels = {name: draw.permutation(size) if turn != "attributes" else np.arange(size) for name, size in sizes.items()}
    return [str(name) for name in names], labels


def reconstructed(sizes, measured, order, **options):
    """All tables of an order over the domain with these sizes."""
    domain = mg.Domain.fromdict(sizes)
    noisy, method = mg.Measurements.from_marginals(domain, measured), mg.methods.NonNegative(**options)
    return mg.reconstruct(noisy, mg.Workload.all_kway(domain, order), method=method)


@lru_cache(maxsize=1)
def as_declared(sizes, sets, variance, order, options):
    """The noisy tables, and what is made of them over the domain as it is; for the turns that follow each other."""
    measured = list(noisy_tables(dict(sizes), sets, variance))
    return measured, reconstructed(dict(sizes), measured, order, **dict(options))


def check(sizes, sets, variance, order, turn, **options):
    """Reconstruct all tables of an order from the same noisy tables over both domains, and compare."""
    names, labels = reordered(sizes, turn)
    assert names != list(sizes) or turn == "labels"
    measured, one = as_declared(tuple(sizes.items()), tuple(sets), variance, order, tuple(options.items()))
    turned = [(members, table[np.ix_(*(labels[name] for name in members))], own) for members, table, own in measured]
    other = reconstructed({name: sizes[name] for name in names}, turned, order, **options)
    largest = max(float(one.table(*members).values.max()) for members in combinations(sizes, order))
    for members in combinations(sizes, order):
        expected = one.table(*members).values[np.ix_(*(labels[name] for name in members))]
        axes = [other.table(*members).attributes.index(name) for name in members]
        found = other.table(*members).values.transpose(axes)
        np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING * largest)


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("variance", [1.0, 100.0, 2_500.0])
@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("sizes", [SIZES, EQUAL], ids=["sizes differ", "sizes are equal"])
def test_the_automatic_rule_where_everything_was_measured(sizes, order, variance, turn):
    check(sizes, combinations(sizes, order), variance, order, turn)


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("variance", [1.0, 100.0, 2_500.0])
@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("sizes", [SIZES, EQUAL], ids=["sizes differ", "sizes are equal"])
def test_the_automatic_rule_where_tables_are_completed(sizes, order, variance, turn):
    """Three tables and the total, as after Scalable MWEM: some pairs are known only through a third attribute."""
    triples = list(combinations(sizes, 3))
    check(sizes, [(), triples[0], triples[3], triples[-1]], variance, order, turn)


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("weights", ["paper", "noise", 2.0])
def test_the_other_weights(weights, turn):
    check(SIZES, combinations(SIZES, 2), 25.0, 2, turn, weights=weights, tolerance=1e-3)
