"""Repairs: tables without negative cells that agree and keep what is held, from any state of the rounds."""

from itertools import combinations

import numpy as np
import pytest

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.reconstruction.nonnegative import Problem, Splitting, repair
from margrave.reconstruction.nonnegative.outer import REPAIR, LocalParts
from margrave.reconstruction.nonnegative.repair import Repairer, interior_point, lift, mix

LAYOUT = Layout.of((3, 2, 1), [(0, 1, 2)])
INF = np.inf


def noisy(sizes, family, total, weights=None, seed=0):
    """A problem with noise that is large against the cells, the total held unless weights are given."""
    layout = Layout.of(sizes, family)
    values = 6 * transform.center(layout, np.random.default_rng(seed).normal(size=layout.cells))
    values[0] = total
    return Problem(layout, values, np.where(layout.index.order == 0, INF, 1.0) if weights is None else weights)


def repaired(problem, rounds):
    """Tables after some rounds, before and after the repair, and the repair."""
    layout = problem.layout
    state = Splitting(problem)
    state.run(rounds)
    residuals = state.residuals(np.empty(layout.cells), np.empty(layout.facet_cells))
    before = transform.reconstruct(layout, residuals)
    found = Repairer(problem).repair(state)
    assert found.violation == pytest.approx(max(0.0, -before[layout.inner_cells :].min()), rel=1e-9, abs=1e-12)
    return before, state.parts.result(found.inner), found


def lifted(layout, residuals, total):
    """The weight of the lift of the tables of these residuals, and the lifted tables."""
    problem = Problem(layout, residuals, np.ones(len(layout.sets)))
    parts, tables = LocalParts(problem), transform.reconstruct(layout, residuals)
    parts.part.point(REPAIR)[:] = tables[layout.inner_cells :]
    inner = tables[: layout.inner_cells].copy()
    return lift(problem, parts, inner, total), parts.result(inner)


def disagreement(layout, tables):
    """How far the tables are from those of one set of residuals."""
    return np.abs(transform.reconstruct(layout, transform.center(layout, tables)) - tables).max()


TRIPLES = ((5, 4, 3, 6, 2), list(combinations(range(5), 3)))


@pytest.mark.parametrize("rounds", [0, 1, 5, 30])
@pytest.mark.parametrize(
    ("sizes", "family"),
    [TRIPLES, ((7, 6), [(0, 1)]), ((3, 4, 2, 3), [(0, 1, 2, 3)]), ((4, 3, 5), [(0,), (1, 2)])],
    ids=["triples", "one table", "order four", "mixed orders"],
)
def test_repaired_tables_have_no_negative_cell_and_agree(sizes, family, rounds):
    problem = noisy(sizes, family, 50.0)
    before, after, found = repaired(problem, rounds)
    # Sums of up to 720 cells, each right to 2⁻⁵³ of the total.
    close = 50 * 720 * 2.0**-52
    assert after.min() >= -close
    assert disagreement(problem.layout, after) <= close
    assert after[0] == pytest.approx(50.0, rel=1e-14)
    if before.min() < 0:
        outer = slice(problem.layout.inner_cells, None)
        moved = 0.5 * np.abs(after - before)[outer].sum() / 50 / (len(problem.layout.sets) - problem.layout.outer)
        assert found.moved >= moved * (1 - 1e-9) - close
    else:
        assert found.moved == found.rounds == 0


def test_a_repair_ends_after_finitely_many_rounds_without_a_lift():
    """The theorem that the module rests on: there are positive tables, so the iteration ends exactly."""
    for seed in range(5):
        problem = noisy(*TRIPLES, 200.0, seed=seed)
        before, after, found = repaired(problem, 10)
        assert before.min() < 0
        assert 0 < found.rounds < repair.FIRST_ROUNDS
        assert after[problem.layout.inner_cells :].min() >= -1e-13
        outer = slice(problem.layout.inner_cells, None)
        moved = 0.5 * np.abs(after - before)[outer].sum() / 200 / (len(problem.layout.sets) - problem.layout.outer)
        # Nothing was mixed in: all that is reported is what moved.
        assert found.moved == pytest.approx(moved, rel=1e-9)


def test_a_repair_moves_little_where_little_is_negative():
    """Mixing would pay for each of ten tables separately; a repair moves about what is negative."""
    problem = noisy(*TRIPLES, 200.0)
    layout = problem.layout
    before, _, found = repaired(problem, 10)
    negative = np.maximum(-before, 0)[layout.inner_cells :].sum() / (len(layout.sets) - layout.outer) / 200
    assert 0 < found.moved < 10 * negative
    weight, _ = lifted(layout, transform.center(layout, before), 200.0)
    assert found.moved < weight / 3


def test_what_equal_penalties_leave_others_mend(monkeypatch):
    """No lift here either: what is reported is what moved."""
    monkeypatch.setattr(repair, "FIRST_ROUNDS", 2)
    problem = noisy(*TRIPLES, 200.0)
    before, after, found = repaired(problem, 10)
    assert found.rounds > 2
    assert after[problem.layout.inner_cells :].min() >= -1e-13
    outer = slice(problem.layout.inner_cells, None)
    moved = 0.5 * np.abs(after - before)[outer].sum() / 200 / (len(problem.layout.sets) - problem.layout.outer)
    assert found.moved == pytest.approx(moved, rel=1e-9)


def test_what_rounds_leave_is_lifted(monkeypatch):
    monkeypatch.setattr(repair, "FIRST_ROUNDS", 1)
    monkeypatch.setattr(repair, "LAST_ROUNDS", 1)
    problem = noisy(*TRIPLES, 20.0)
    before, after, found = repaired(problem, 0)
    assert before.min() < -1
    assert after.min() >= -1e-12
    assert found.rounds == 2
    assert after[0] == pytest.approx(20.0, rel=1e-14)
    assert 0 < found.moved < INF


def test_holds_are_kept():
    layout = Layout.of(*TRIPLES)
    weights = np.where(layout.index.order <= 1, INF, 1.0)
    problem = noisy(*TRIPLES, 300.0, weights=weights)
    people = np.random.default_rng(1).uniform(0.3, 1, size=layout.sizes)
    people *= 300 / people.sum()
    values = problem.z.copy()
    for table in np.flatnonzero(layout.index.order == 1).tolist():
        (attribute,) = layout.sets[table]
        counts = people.sum(axis=tuple(k for k in range(5) if k != attribute))
        layout.view(values, table)[...] = counts - counts.mean()
    held = Problem(layout, values, weights)
    before, after, _ = repaired(held, 5)
    assert before.min() < 0 <= after.min() + 1e-12
    residuals = transform.center(layout, after)
    inside = np.repeat(layout.index.order <= 1, np.diff(layout.index.offset))
    np.testing.assert_allclose(residuals[inside], values[inside], atol=1e-10)


def test_tables_of_nobody_are_zero():
    """A total far below zero that is free: nothing near has a positive total."""
    layout = LAYOUT
    problem = Problem(layout, np.where(np.arange(layout.cells) == 0, -100.0, 0.0), np.ones(8))
    state = Splitting(problem)
    found = Repairer(problem).repair(state)
    tables = state.parts.result(found.inner)
    assert tables.min() >= -1e-12
    assert np.isfinite(found.moved)


@pytest.mark.parametrize("holds_total", [True, False])
def test_an_interior_point_keeps_the_holds_and_is_positive(holds_total):
    weights = np.where(LAYOUT.index.order == 1, INF, 1.0)
    weights[0] = INF if holds_total else 1.0
    values = np.zeros(LAYOUT.cells)
    values[0] = 10.0
    LAYOUT.view(values, LAYOUT.places[(0,)])[...] = np.array([9.8, 0.1, 0.1]) - 10 / 3
    LAYOUT.view(values, LAYOUT.places[(1,)])[...] = [4.9, -4.9]
    problem = Problem(LAYOUT, values, weights)
    point = interior_point(problem)
    np.testing.assert_array_equal(Repairer(problem).interior, point)
    # With the total held: independence, since the held tables spread evenly have a cell of 0.1/2 − 4.9/3.
    assert transform.reconstruct(LAYOUT, point).min() > 0
    for table in (1, 2, 0)[: 3 if holds_total else 2]:
        np.testing.assert_allclose(LAYOUT.view(point, table), LAYOUT.view(values, table), atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-3])
def test_a_lift_weighs_no_more_than_the_uniform_table_would(scale):
    """The weight of tables made to measure against max (−μ n_γ) / (T + max (−μ n_γ)), that of a uniform table."""
    layout = Layout.of((4, 3, 5), [(0, 1), (1, 2), (0, 2)])
    residuals = scale * 6 * transform.center(layout, np.random.default_rng(1).normal(size=layout.cells))
    residuals[0] = 30.0
    tables = transform.reconstruct(layout, residuals)
    lacking = max(float(-layout.view(tables, t).min()) * layout.view(tables, t).size for t in range(layout.outer, 7))
    weight, after = lifted(layout, residuals, 30.0)
    if lacking <= 0:
        assert weight == 0.0
    else:
        # The floor is a power of two above the best one.
        assert 0 < weight <= 2 * lacking / (30 + lacking)
    assert after.min() >= -1e-13
    assert after[0] == pytest.approx(30.0, rel=1e-15)
    assert disagreement(layout, after) <= 1e-13


def pairs_held(seed, alpha=0.15):
    """A positive table of 3 × 3 × 3 whose pairs are held, and with them all below."""
    layout = Layout.of((3, 3, 3), [(0, 1, 2)])
    whole = 100 * np.random.default_rng(seed).dirichlet(np.full(27, alpha)).reshape(3, 3, 3) + 1e-3
    tables = [whole.sum(axis=tuple(k for k in range(3) if k not in members)).ravel() for members in layout.sets]
    residuals = transform.center(layout, np.concatenate(tables))
    return Problem(layout, residuals, np.where(layout.index.order < 3, INF, 1.0))


@pytest.mark.parametrize("seed", range(4))
def test_an_interior_point_that_has_to_be_looked_for_is_positive_and_keeps_the_holds(seed):
    problem = pairs_held(seed)
    layout, held = problem.layout, np.isinf(problem.weights)
    guess = problem.independent()
    for table in np.flatnonzero(held).tolist():
        layout.view(guess, table)[...] = layout.view(problem.z, table)
    assert transform.reconstruct(layout, guess).min() < 0  # the first guess does not do
    found = interior_point(problem)
    assert found is not None
    assert transform.reconstruct(layout, found).min() > 0
    for table in np.flatnonzero(held).tolist():
        assert layout.view(found, table) == pytest.approx(layout.view(problem.z, table), abs=1e-6)


def test_what_is_mixed_in_makes_tables_that_agree_and_are_not_negative():
    problem = noisy(*TRIPLES, 200.0)
    layout, parts = problem.layout, LocalParts(problem)
    tables = transform.reconstruct(layout, problem.z)
    assert tables.min() < -1
    parts.part.point(REPAIR)[:] = tables[layout.inner_cells :]
    inner = tables[: layout.inner_cells].copy()
    share = mix(problem, parts, inner, interior_point(problem))
    mixed = parts.result(inner)
    assert 0.1 < share < 1
    assert mixed[layout.inner_cells :].min() == pytest.approx(0, abs=1e-9)
    assert disagreement(layout, mixed) < 1e-9
    assert mixed[0] == pytest.approx(200)
    assert mix(problem, parts, inner, None) == np.inf


def test_the_largest_violation_is_that_of_the_worst_table():
    problem = noisy((3, 2, 4), [(0, 1), (1, 2)], 60.0)
    layout, parts = problem.layout, LocalParts(problem)
    tables = np.ones(layout.cells)
    first, second = (layout.view(tables, layout.places[members]) for members in [(0, 1), (1, 2)])
    first[0, 0], second[1, 2] = -3.0, -0.5
    parts.part.point(REPAIR)[:] = tables[layout.inner_cells :]
    found = parts.part.violations(REPAIR, 60.0)
    assert found.largest == pytest.approx(max(3.0 * 6, 0.5 * 8))
    assert found.mass == pytest.approx(3.0)
