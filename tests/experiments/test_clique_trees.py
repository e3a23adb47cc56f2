"""Tables of a graphical model: from the cliques of its junction tree as from the table of everything."""

import itertools

import numpy as np
import pytest

from experiments.clique_trees import CliqueTree, Factor, multiply

SIZES = {"a": 2, "b": 3, "c": 4, "d": 2, "e": 3, "f": 2}

# Cliques, each with the place of its parent.
TREES = {
    "one clique": [("abcdef", None)],
    "chain": [("ab", None), ("bc", 0), ("cd", 1), ("de", 2), ("ef", 3)],
    "chain from its middle": [("cd", None), ("bc", 0), ("ab", 1), ("de", 0), ("ef", 3)],
    "star": [("abc", None), ("ad", 0), ("bce", 0), ("cf", 0)],
    "wide separators": [("abcd", None), ("bcde", 0), ("cdef", 1)],
    "branches below branches": [("ab", None), ("bc", 0), ("bd", 0), ("de", 2), ("cf", 1)],
    "forest": [("ab", None), ("bc", 0), ("de", None), ("f", None)],
}


def everything(cliques, zeros, seed=0):
    """The table of all attributes, a product of random factors on cliques, some of their cells zero."""
    draw = np.random.default_rng(seed)
    joint = np.ones(tuple(SIZES.values()))
    for names, _ in cliques:
        shape = [size if name in names else 1 for name, size in SIZES.items()]
        values = draw.gamma(0.5, size=shape)
        joint = joint * np.where(draw.random(shape) < zeros, 0.0, values)
    return joint / joint.sum()


def summed(joint, names):
    """A table of it, by adding up everything else."""
    table = joint.sum(axis=tuple(axis for axis, name in enumerate(SIZES) if name not in names))
    kept = [name for name in SIZES if name in names]
    return table.transpose([kept.index(name) for name in names])


@pytest.mark.parametrize("zeros", [0.0, 0.2])
@pytest.mark.parametrize("kind", TREES)
def test_every_table_is_that_of_the_joint_distribution(kind, zeros):
    cliques = TREES[kind]
    joint = everything(cliques, zeros)
    tree = CliqueTree(
        tuple(Factor(tuple(names), summed(joint, names)) for names, _ in cliques),
        tuple(parent for _, parent in cliques),
    )
    wanted = [names for order in range(5) for names in itertools.permutations(SIZES, order)]
    for names in wanted:
        found = tree.table(names)
        assert found.shape == tuple(SIZES[name] for name in names)
        np.testing.assert_allclose(found, summed(joint, names), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kept", ["", "a", "ab", "bd", "abcde", "ce"])
def test_a_product_of_factors_is_a_sum_over_cells(kept):
    draw = np.random.default_rng(1)
    left = Factor(("c", "a", "b"), draw.random((4, 2, 3)))
    right = Factor(("b", "d", "c", "e"), draw.random((3, 2, 4, 3)))
    found = multiply(left, right, kept)
    assert set(found.names) == set(kept)
    expected = np.einsum(f"cab,bdce->{''.join(found.names)}", left.values, right.values)
    np.testing.assert_allclose(found.values, expected, rtol=1e-12)


def test_what_never_occurs_has_no_distribution_given_it():
    given = Factor(("a", "b"), np.array([[0.0, 0.0, 0.0], [0.1, 0.3, 0.6]])).given({"a"})
    np.testing.assert_allclose(given.values, [[0, 0, 0], [0.1, 0.3, 0.6]])
