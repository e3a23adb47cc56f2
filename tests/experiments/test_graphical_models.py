"""Private-PGM by our own steps: those of mbi, and the right answer where there is one."""

import itertools
import math

import numpy as np
import pytest

from experiments.graphical_models import Model, NoisyTable, cells_within, estimated_total
from experiments.junction_trees import junction_tree, model_megabytes

SIZES = {"a": 3, "b": 4, "c": 2, "d": 5, "e": 3}


def people(seed=0, rows=5000):
    """A distribution of all attributes, as counts."""
    draw = np.random.default_rng(seed)
    table = draw.gamma(0.4, size=tuple(SIZES.values()))
    return rows * table / table.sum()


def table_of(full, names):
    axes = tuple(axis for axis, name in enumerate(SIZES) if name not in names)
    return full.sum(axis=axes).ravel()


def noisy_model(sets, variance=100.0, seed=1):
    full, draw = people(), np.random.default_rng(seed)
    model = Model(SIZES)
    for names in sets:
        values = table_of(full, names)
        model.add(NoisyTable(names, values + math.sqrt(variance) * draw.standard_normal(len(values)), variance))
    return model


def brute_force(model):
    """The whole distribution that the potentials stand for."""
    logs = np.zeros(tuple(SIZES.values()))
    for names, potential in model.potentials.items():
        logs += potential[cells_within(SIZES, tuple(SIZES), names)].reshape(logs.shape)
    found = np.exp(logs - logs.max())
    return found / found.sum()


SHAPES = {
    "tree": [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")],
    "cycle": [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")],
    "two parts": [("a", "b", "c"), ("d", "e")],
    "one-way": [("a",), ("b",), ("c",), ("d",), ("e",)],
    "nested": [("a", "b", "d"), ("a", "b"), ("b",), ("c", "e"), ("d", "e")],
}


@pytest.mark.parametrize("sets", SHAPES.values(), ids=SHAPES)
def test_the_calibrated_tables_are_those_of_the_potentials(sets):
    """After a hundred steps by multiplication, the junction tree is still what exp Σ θ says, for every triple."""
    model = noisy_model(sets)
    model.fit(steps=100)
    full = brute_force(model)
    for names in itertools.chain(itertools.combinations(SIZES, 1), itertools.combinations(SIZES, 3)):
        np.testing.assert_allclose(model.tree.table(names).ravel(), table_of(full, names), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sets", SHAPES.values(), ids=SHAPES)
def test_the_gradient_vanishes_at_the_optimum_within_the_model(sets):
    """In the optimum, Σ_M g_M over all cells of the domain is least, and the same, where people are."""
    model = noisy_model(sets, variance=25.0)
    model.fit(steps=2000)
    full = brute_force(model) * model.total
    slope = np.zeros(full.shape)
    for names, table in model.measured.items():
        gradient = (table_of(full, names) - table.values) / table.variance
        slope += gradient[cells_within(SIZES, tuple(SIZES), names)].reshape(full.shape)
    # The Frank–Wolfe gap: how much the loss could still fall.
    gap = float((full * slope).sum() - full.sum() * slope.min())
    cells = sum(len(table.values) for table in model.measured.values())
    assert gap > -1e-9
    assert gap < 0.05 * cells


def test_a_second_fit_goes_on_where_the_first_ended():
    sets = SHAPES["cycle"]
    model = noisy_model(sets)
    model.fit(steps=300)
    first = model.loss
    model.fit(steps=1)
    assert model.loss <= first * (1 + 1e-12)  # but for rounding
    before = {names: model.tree.table(names) for names in sets}
    model.add(NoisyTable(("c", "e"), table_of(people(), ("c", "e")), 1e12))
    model.fit(steps=1)
    for names in sets:
        np.testing.assert_allclose(model.tree.table(names), before[names], atol=1e-4)


def test_repeats_are_the_same_least_squares():
    """Two tables of the same attributes pull like their mean by precision; the losses differ by one constant."""
    twice, once = Model(SIZES), Model(SIZES)
    one, other = np.arange(12.0), np.linspace(5, 9, 12)
    twice.add(NoisyTable(("a", "b"), one, 4.0))
    twice.add(NoisyTable(("a", "b"), other, 12.0))
    once.add(NoisyTable(("a", "b"), 0.75 * one + 0.25 * other, 3.0))
    kept = twice.measured["a", "b"]
    np.testing.assert_allclose(kept.values, once.measured["a", "b"].values)
    assert kept.variance == pytest.approx(3.0)


def test_the_total_is_the_best_mean_of_the_sums():
    tables = [NoisyTable(("a",), np.full(3, 10.0), 1.0), NoisyTable(("b",), np.full(4, 10.0), np.full(4, 3.0))]
    assert estimated_total(tables) == pytest.approx((30 / 3 + 40 / 12) / (1 / 3 + 1 / 12))
    assert estimated_total([NoisyTable(("a",), np.full(3, -10.0), 1.0)]) == 1.0


def test_a_model_that_is_not_fitted_says_so():
    with pytest.raises(ValueError, match="has not been fitted; call fit first"):
        _ = Model(SIZES).tree


@pytest.mark.parametrize("seed", range(8))
def test_junction_trees_hold_what_was_measured_and_run_through(seed):
    """Every measured set is in a clique, and the cliques of each attribute hang together."""
    draw = np.random.default_rng(seed)
    sizes = {f"x{place}": int(draw.integers(2, 9)) for place in range(9)}
    names = list(sizes)
    sets = [tuple(names[k] for k in sorted(draw.choice(9, draw.integers(1, 4), replace=False))) for _ in range(10)]
    tree = junction_tree(sizes, sets)
    for one in [*sets, *((name,) for name in names)]:
        assert any(set(one) <= set(clique) for clique in tree.cliques)
    for name in names:
        holders = [place for place, clique in enumerate(tree.cliques) if name in clique]
        tops = [place for place in holders if tree.parents[place] is None or name not in tree.separator(place)]
        assert len(tops) == 1
    assert all(parent is None or parent < place for place, parent in enumerate(tree.parents))
    cells = sum(math.prod(sizes[name] for name in clique) for clique in tree.cliques)
    assert model_megabytes(sizes, sets) == pytest.approx(8 * cells / 2**20)


@pytest.mark.engines
@pytest.mark.parametrize("sets", [SHAPES["cycle"], SHAPES["nested"]], ids=["cycle", "nested"])
def test_the_steps_are_those_of_mbi(sets):
    """The same tables after 100 steps, to rounding; the same total and the same size of the model."""
    jax = pytest.importorskip("jax", reason="mbi of the extra pgm runs on JAX")
    mbi = pytest.importorskip("mbi", reason="Private-PGM is the package mbi, of the extra pgm")
    jax.config.update("jax_enable_x64", True)
    model = noisy_model(sets)
    model.fit(steps=100)
    domain = mbi.Domain(tuple(SIZES), tuple(SIZES.values()))
    measured = [
        mbi.LinearMeasurement(table.values, names, stddev=table.variance**0.5)
        for names, table in model.measured.items()
    ]
    theirs = mbi.estimation.MirrorDescent().estimate(domain, measured, iters=100)
    assert float(theirs.total) == pytest.approx(model.total, rel=1e-12)
    for names in model.measured:
        np.testing.assert_allclose(
            model.tree.table(names).ravel() * model.total,
            np.asarray(theirs.project(names).datavector()),
            rtol=1e-8,
            atol=1e-8 * model.total,
        )
    assert model_megabytes(SIZES, sets) == pytest.approx(mbi.junction_tree.hypothetical_model_size(domain, sets))
