"""GReM-LNN's optimum, judged by Clarabel on explicit matrices; its certificate, by the identity that proves it.

With f(r) = Σ w_τ ‖r_τ − z_τ‖², the best loss f*, the dual g, and any r' with non-negative tables μ',

    f(r') − g(λ) = λ·μ' + Σ w_τ ‖r'_τ − r_τ(λ)‖²,         Σ w_τ ‖r'_τ − r*_τ‖² ≤ f(r') − f*,                       (1)

the first because g(λ) is the least value of a quadratic function, the second because f − f* ≥ its quadratic part at an
optimum. So a relative gap is a bound on the weighted distance of tables, and every tolerance below comes from it.

Clarabel gets a problem scaled to a loss of at most 1 and stops at 1e-10: its loss is right to about 1e-9 of the scale.
"""

from itertools import combinations

import clarabel
import numpy as np
import pytest
from dual_ascent import dual_ascent, largest_safe_step
from hypothesis import assume, given, settings
from matrices import kron, marginal_matrix
from plain_rounds import plain_bound
from scipy import sparse
from strategies import families, seeds

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.errors import ReleaseError
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.nonnegative import Problem, State, Status, reconstruct_nonnegative, solver, solver_weights

ORACLE = 1e-9
TIGHT = {"tolerance": 1e-8, "max_steps": 60_000}
SHAPES = {
    "total only": ((3, 2), [()]),
    "one attribute": ((5,), [(0,)]),
    "chain": ((2, 3, 2, 4), [(0, 1), (1, 2), (2, 3)]),
    "cycle": ((2, 3, 4), [(0, 1), (1, 2), (0, 2)]),
    "nested": ((3, 2, 4), [(0, 1, 2), (1, 2), (2,), ()]),
    "apart": ((3, 2, 4, 2), [(0, 1), (2, 3)]),
    "mixed orders": ((2, 3, 2, 3, 2), [(0, 1, 2), (2, 3), (4,)]),
    "size one": ((3, 1, 4), [(0, 1, 2)]),
    "all sizes one": ((1, 1), [(0, 1)]),
    "order four": ((2, 3, 2, 3), [(0, 1, 2, 3)]),
    "order five": ((2, 3, 2, 2, 2), [(0, 1, 2, 3, 4)]),
}
KINDS = ("paper", "number", "noise", "array", "held total", "held one-way", "negative total", "total not measured")
cases = pytest.mark.parametrize("kind", KINDS)
shapes = pytest.mark.parametrize(("sizes", "family"), SHAPES.values(), ids=SHAPES)


def draw(generator, sizes, family, kind):
    """Noisy residuals of a positive table of about 100 people, some not measured, and the options of a kind."""
    layout = Layout.of(sizes, family)
    people = generator.uniform(0.1, 1, size=int(np.prod(sizes)))
    people *= 100 / people.sum()
    truth = transform.center(layout, np.concatenate([marginal_matrix(sizes, gamma) @ people for gamma in layout.sets]))
    counts = np.where(layout.degrees > 0, generator.integers(0, 4, size=len(layout.sets)), 0)
    values = truth + generator.choice([10, 50]) * transform.center(layout, generator.normal(size=layout.cells))
    options = {"weights": "paper", "eta": generator.choice([None, 0.3]), "hold": ()}
    held = {"held total": [0], "held one-way": np.flatnonzero(layout.index.order <= 1).tolist()}.get(kind, [])
    counts[0] = 0 if kind == "total not measured" else max(counts[0], 1)
    for table in range(len(layout.sets)):
        if table in held:
            layout.view(values, table)[...] = layout.view(truth, table)
        elif counts[table] == 0:
            layout.view(values, table)[...] = 0
    if kind == "negative total":
        values[0] = -generator.choice([10, 1e4])
    options["hold"] = tuple(held)
    if kind in ("number", "noise"):
        options["weights"] = kind if kind == "noise" else generator.choice([0.5, 1.0, 2.0, 8.0])
    if kind == "array":
        options["weights"] = weights = generator.uniform(0.05, 2, size=len(layout.sets))
        weights[generator.random(len(weights)) < 0.2] = np.nan
        # An infinite weight on a residual of the highest order, next to a total that is free, is always feasible.
        weights[-1] = np.inf if len(weights) > 1 else 1.0
    precisions = np.where(counts > 0, generator.uniform(0.1, 3, size=len(counts)), 0.0)
    return Estimates(layout, values, counts, precisions), options


def deviations(size):
    """An orthonormal basis of the numbers that sum to zero, shape (size, size − 1)."""
    basis, _ = np.linalg.qr(np.column_stack([np.ones(size), np.eye(size, size - 1)]))
    return basis[:, 1:]


def optimum(estimates, weights):
    """The best loss and its residuals by Clarabel, with every table of the closure constrained, and the scale.

    Variables: x_τ = √w_τ Q_τᵀ r_τ / scale with Q_τ an orthonormal basis of the centred arrays, so that the objective is
    ‖x − c‖² for the same of z; residuals that are held are constants.
    """
    layout, z = estimates.layout, estimates.values
    free = np.flatnonzero(np.isfinite(weights)).tolist()
    if not free:
        return 0.0, z.copy(), 0.0
    bases = {t: kron([deviations(layout.sizes[k]) for k in layout.sets[t]]) for t in free}
    target = np.concatenate([np.sqrt(weights[t]) * bases[t].T @ layout.view(z, t).ravel() for t in free])
    constant = z.copy()
    for t in free:
        layout.view(constant, t)[...] = 0
    offset = transform.reconstruct(layout, constant)
    columns = [synthesis(layout, t) @ bases[t] / np.sqrt(weights[t]) for t in free]
    matrix = np.hstack(columns)
    scale = max(float(np.linalg.norm(target)), float(np.abs(offset).max()), 1e-9)
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-10
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix(2 * np.eye(len(target))),
        -2 * target / scale,
        sparse.csc_matrix(-matrix),
        offset / scale,
        [clarabel.NonnegativeConeT(len(offset))],
        options,
    ).solve()
    assert str(solution.status) == "Solved"
    x = np.array(solution.x) * scale
    residuals, begin = constant, 0
    for t in free:
        part = x[begin : begin + bases[t].shape[1]] / np.sqrt(weights[t])
        layout.view(residuals, t)[...] = (bases[t] @ part).reshape(layout.shape(t))
        begin += bases[t].shape[1]
    return float(((x - target) ** 2).sum()), residuals, scale**2


def synthesis(layout, tau):
    """The column of S for residual τ: broadcast · n_τ/n_γ into every table γ ⊇ τ, zero into the others."""
    sizes, inside = layout.sizes, layout.sets[tau]
    width = int(np.prod(layout.shape(tau)))
    return np.vstack(
        [
            kron([np.eye(sizes[k]) if k in inside else np.full((sizes[k], 1), 1 / sizes[k]) for k in gamma])
            if set(inside) <= set(gamma)
            else np.zeros((int(np.prod([sizes[k] for k in gamma])), width))
            for gamma in layout.sets
        ]
    )


def weighted(layout, weights, difference):
    """Σ w_τ ‖d_τ‖² over the residuals that are not held."""
    return sum(weights[t] * (layout.view(difference, t) ** 2).sum() for t in np.flatnonzero(np.isfinite(weights)))


def loss(estimates, weights, solution):
    return weighted(estimates.layout, weights, residuals_of(estimates.layout, solution) - estimates.values)


def residuals_of(layout, solution):
    return transform.center(layout, solution.marginals)


def absolute_gap(estimates, weights, solution):
    """The bound on f − f* that the relative gap stands for; it is absolute where the loss is next to nothing."""
    found = loss(estimates, weights, solution)
    relative = found > 1e-12 * weighted(estimates.layout, weights, estimates.values)
    return solution.gap * (found if relative else 1.0)


def check_tables(layout, marginals):
    """No cell below zero, and any two tables agree on what they share, to 1e-9 of the total."""
    assert (marginals >= 0).all()
    tables = [(set(attributes), attributes, table) for attributes, table in layout.views(marginals)]
    close = 1e-9 * marginals[0]
    for one, names, table in tables:
        for other, other_names, second in tables:
            left = table.sum(axis=tuple(i for i, k in enumerate(names) if k not in other))
            right = second.sum(axis=tuple(i for i, k in enumerate(other_names) if k not in one))
            np.testing.assert_allclose(left, right, rtol=0, atol=close)


def check_against_clarabel(estimates, options):
    layout = estimates.layout
    weights = solver_weights(estimates, **options)
    best, residuals, scale = optimum(estimates, weights)
    solution = reconstruct_nonnegative(estimates, **options, **TIGHT)
    assert solution.status is Status.SOLVED
    check_tables(layout, solution.marginals)
    slack, found = absolute_gap(estimates, weights, solution), loss(estimates, weights, solution)
    assert -ORACLE * scale <= found - best <= slack + ORACLE * scale
    distance = weighted(layout, weights, residuals_of(layout, solution) - residuals)
    assert np.sqrt(distance) <= np.sqrt(slack) + np.sqrt(ORACLE * scale)
    for table in np.flatnonzero(np.isinf(weights) & (layout.degrees > 0)).tolist():
        held = layout.view(residuals_of(layout, solution), table)
        # Rounding of sums of a few hundred numbers of the size of the residuals.
        close = 1e-12 * max(1.0, float(np.abs(estimates.values).max()))
        np.testing.assert_allclose(held, layout.view(estimates.values, table), rtol=0, atol=close)


@cases
@shapes
def test_the_optimum_is_clarabels(sizes, family, kind):
    check_against_clarabel(*draw(np.random.default_rng(len(sizes)), sizes, family, kind))


@cases
@shapes
def test_the_bound_and_the_multipliers_are_clarabels(sizes, family, kind):
    """g(λ) is Clarabel's best loss, and Sᵀ λ = 2 w (r* − z) at its residuals: λ is not unique, Sᵀ λ is.

    By (1) the residuals that λ stands for, z + κ Sᵀ λ, are as near to r* as the gap allows.
    """
    estimates, options = draw(np.random.default_rng(3 + len(sizes)), sizes, family, kind)
    layout, weights = estimates.layout, solver_weights(estimates, **options)
    best, residuals, scale = optimum(estimates, weights)
    solution = reconstruct_nonnegative(estimates, **options, **TIGHT)
    problem = Problem(layout, estimates.values, weights)
    multipliers = solution.state.multipliers(layout)
    bound = plain_bound(problem, multipliers)
    pulled = transform.adjoint(
        layout,
        np.concatenate([np.zeros(layout.inner_cells), multipliers]),
        weights=transform.outer_weights(layout),
    )
    slack = absolute_gap(estimates, weights, solution) + ORACLE * scale
    # Rounding of the terms of g, as in the law of the gap below.
    terms = weighted(layout, weights, estimates.values) + multipliers.sum() * solution.marginals[0]
    assert best - slack - 1e-13 * terms <= bound <= best + ORACLE * scale + 1e-13 * terms
    moved = estimates.values + np.repeat(problem.curvatures, np.diff(layout.index.offset)) * pulled
    assert np.sqrt(weighted(layout, weights, moved - residuals)) <= 2 * np.sqrt(slack + 1e-13 * terms)


def test_the_multipliers_of_one_table_are_clarabels():
    """One table: S is invertible, so that λ is unique. Sᵀ λ = 2 w (r* − z) is solved for it by least squares."""
    estimates, options = draw(np.random.default_rng(8), (3, 4, 2), [(0, 1, 2)], "number")
    layout, weights = estimates.layout, solver_weights(estimates, **options)
    _, residuals, _ = optimum(estimates, weights)
    solution = reconstruct_nonnegative(estimates, **options, tolerance=1e-11, max_steps=60_000)
    outer = slice(layout.inner_cells, None)
    rows, wanted = [], []
    for table in range(len(layout.sets)):
        centering = kron([np.eye(n) - 1 / n for n in layout.shape(table)])
        rows.append(centering @ synthesis(layout, table)[outer].T)
        wanted.append(
            2 * weights[table] * (layout.view(residuals, table) - layout.view(estimates.values, table)).ravel()
        )
    unique, _, rank, _ = np.linalg.lstsq(np.vstack(rows), np.concatenate(wanted), rcond=None)
    assert rank == 24
    # Clarabel's residuals are right to √(1e-9) of the scale of the loss, about 1e-3 of a multiplier of this size.
    assert unique.max() > 1
    np.testing.assert_allclose(solution.state.multipliers(layout), np.maximum(unique, 0), atol=1e-2 * unique.max())


@pytest.mark.parametrize("weights", ["paper", 1.0])
def test_rounds_do_not_grow_with_the_number_of_attributes(weights):
    """Six to sixteen attributes of four values: the width that made a dual method slow is nothing to this one."""
    steps = []
    for attributes in (6, 10, 16):
        generator = np.random.default_rng(attributes)
        layout = Layout.of((4,) * attributes, list(combinations(range(attributes), 3)))
        values = 20 * transform.center(layout, generator.normal(size=layout.cells))
        values[0] = 1000.0
        ones = np.ones(len(layout.sets))
        solution = reconstruct_nonnegative(Estimates(layout, values, ones.astype(np.int64), ones), weights=weights)
        assert solution.status is Status.SOLVED
        steps.append(solution.steps)
    assert max(steps) <= 2 * min(steps), steps


@given(families(max_sets=4), seeds)
@settings(deadline=None, max_examples=40)
def test_the_optimum_is_clarabels_on_any_workload(shape_and_family, seed):
    sizes, family = shape_and_family
    assume(Layout.of(sizes, family).cells <= 200)
    generator = np.random.default_rng(seed)
    check_against_clarabel(*draw(generator, sizes, family, generator.choice(KINDS)))


@cases
@pytest.mark.parametrize(("tolerance", "steps"), [(1e-1, 3), (1e-2, 20), (1e-3, 60), (1e-3, 2000)])
def test_the_gap_is_honest_however_early_the_solver_stops(kind, tolerance, steps):
    """f(r') − f* ≤ gap · f(r'), up to what Clarabel knows."""
    for number, (sizes, family) in enumerate(SHAPES.values()):
        estimates, options = draw(np.random.default_rng(100 + number), sizes, family, kind)
        weights = solver_weights(estimates, **options)
        best, _, scale = optimum(estimates, weights)
        solution = reconstruct_nonnegative(estimates, **options, tolerance=tolerance, max_steps=steps)
        check_tables(estimates.layout, solution.marginals)
        assert 0 <= solution.gap < np.inf
        found = loss(estimates, weights, solution)
        assert found - best <= absolute_gap(estimates, weights, solution) * (1 + 1e-9) + ORACLE * scale
        assert solution.steps <= steps
        if solution.status is Status.SOLVED:
            assert solution.gap <= tolerance


@cases
@shapes
def test_the_gap_is_what_complementarity_and_stationarity_lack(sizes, family, kind):
    """Identity (1), with S as an explicit matrix: a gap of zero is λ ≥ 0, μ ≥ 0, λ·μ = 0 and r = z + κ Sᵀ λ."""
    estimates, options = draw(np.random.default_rng(5), sizes, family, kind)
    layout, weights = estimates.layout, solver_weights(estimates, **options)
    outer = slice(layout.inner_cells, None)
    for tolerance in (1e-2, 1e-9):
        solution = reconstruct_nonnegative(estimates, **options, tolerance=tolerance, max_steps=60_000)
        multipliers = solution.state.multipliers(layout)
        assert (multipliers >= 0).all()
        stationary = estimates.values.copy()
        for table in np.flatnonzero(np.isfinite(weights)).tolist():
            move = synthesis(layout, table)[outer].T @ multipliers
            centered = kron([np.eye(n) - 1 / n for n in layout.shape(table)]) @ move
            layout.view(stationary, table)[...] += centered.reshape(layout.shape(table)) / (2 * weights[table])
        slack = float(multipliers @ solution.marginals[outer])
        distance = weighted(layout, weights, residuals_of(layout, solution) - stationary)
        proven = absolute_gap(estimates, weights, solution)
        # Terms as large as f(z → 0) cancel in the gap: rounding of 1e-13 of it, and of the holds times λ.
        scale = weighted(layout, weights, estimates.values) + multipliers.sum() * solution.marginals[0]
        assert slack + distance == pytest.approx(proven, rel=1e-9, abs=1e-13 * scale)


def cell_bound(estimates, weights, slack):
    """How far cells can be apart when losses are within ``slack`` of the best: |μ_γ| ≤ Σ_τ ‖d_τ‖ ≤ √(2^|γ| Σ ‖d‖²)."""
    free = weights[np.isfinite(weights)]
    return float(np.sqrt(2.0 ** estimates.layout.index.order.max() * slack / free.min()))


CYCLE = draw(np.random.default_rng(16), (3, 2, 4, 2), [(0, 1, 2), (1, 2, 3), (0, 3)], "paper")


def slack_of(estimates, weights, *solutions):
    """The squared sum of the distances that (1) allows: (Σ √slack)²."""
    return sum(np.sqrt(absolute_gap(estimates, weights, one)) for one in solutions) ** 2


@pytest.mark.parametrize("kind", ["paper", "held total", "held one-way"])
def test_the_order_of_the_attributes_does_not_matter(kind):
    sizes, family = (3, 2, 4, 2), [(0, 1, 2), (1, 2, 3), (0, 3)]
    estimates, options = draw(np.random.default_rng(3), sizes, family, kind)
    layout, weights = estimates.layout, solver_weights(estimates, **options)
    place = [2, 0, 3, 1]

    def renamed(attributes):
        return tuple(sorted(place[k] for k in attributes))

    def turned(attributes, table):
        return table.transpose(np.argsort([place[k] for k in attributes]).tolist())

    moved_sizes = tuple(sizes[place.index(k)] for k in range(4))
    moved = Layout.of(moved_sizes, [renamed(attributes) for attributes in family])
    to = [moved.places[renamed(attributes)] for attributes in layout.sets]
    values, counts, precisions = np.zeros(moved.cells), estimates.counts.copy(), estimates.precisions.copy()
    counts[to], precisions[to] = estimates.counts, estimates.precisions
    for table, (attributes, residual) in zip(to, layout.views(estimates.values), strict=True):
        moved.view(values, table)[...] = turned(attributes, residual)
    tighter = {"tolerance": 1e-12, "max_steps": 60_000}
    one = reconstruct_nonnegative(estimates, **options, **tighter)
    options["hold"] = tuple(to[table] for table in options["hold"])
    other_estimates = Estimates(moved, values, counts, precisions)
    other = reconstruct_nonnegative(other_estimates, **options, **tighter)
    # The weights of the other are those of the one in another order, and so is its loss.
    moved_weights = solver_weights(other_estimates, **options)
    slack = np.sqrt(absolute_gap(estimates, weights, one)) + np.sqrt(
        absolute_gap(other_estimates, moved_weights, other)
    )
    bound = cell_bound(estimates, weights, slack**2) + 1e-9
    assert bound < 1e-2
    for table, (attributes, found) in zip(to, layout.views(one.marginals), strict=True):
        np.testing.assert_allclose(moved.view(other.marginals, table), turned(attributes, found), rtol=0, atol=bound)


@pytest.mark.parametrize("start", ["solution", "garbage", "negative", "another weighting"])
def test_the_start_does_not_change_the_answer(start):
    estimates, options = CYCLE
    weights = solver_weights(estimates, **options)
    cold = reconstruct_nonnegative(estimates, **options, **TIGHT)
    generator = np.random.default_rng(1)
    begin = {
        "solution": lambda: cold.state,
        "garbage": lambda: State(1e3 * generator.normal(size=cold.state.point.size), cold.state.penalties),
        "negative": lambda: State(-generator.random(cold.state.point.size), 1e3 * cold.state.penalties),
        "another weighting": lambda: reconstruct_nonnegative(estimates, weights=8.0).state,
    }[start]()
    before = begin.point.copy()
    warm = reconstruct_nonnegative(estimates, **options, **TIGHT, start=begin)
    assert np.array_equal(begin.point, before)
    assert warm.status is Status.SOLVED
    bound = cell_bound(estimates, weights, slack_of(estimates, weights, cold, warm))
    np.testing.assert_allclose(warm.marginals, cold.marginals, rtol=0, atol=bound)
    if start == "solution":
        # The first look comes after one round, and needs to be the only one.
        assert warm.steps == 1 < cold.steps


def test_redundant_tables_of_the_workload_change_nothing():
    sizes, family = (3, 2, 4), [(0, 1, 2)]
    estimates, options = draw(np.random.default_rng(2), sizes, family, "paper")
    more = Layout.of(sizes, [(0,), (0, 1, 2), (), (1, 2), (0, 1, 2)])
    again = Estimates(more, estimates.values, estimates.counts, estimates.precisions)
    one, other = (reconstruct_nonnegative(given, **options) for given in (estimates, again))
    assert np.array_equal(one.marginals, other.marginals)


def test_threads_change_no_bit(monkeypatch):
    """20 tables of 8,000 cells are shared out to threads; smaller workloads are not."""
    sizes, generator = (20,) * 6, np.random.default_rng(0)
    family = [(a, b, c) for a in range(6) for b in range(a) for c in range(b)]
    layout = Layout.of(sizes, [tuple(sorted(members)) for members in family])
    values = transform.center(layout, generator.normal(size=layout.cells))
    values[0] = 500.0
    ones = np.ones(len(layout.sets))
    estimates = Estimates(layout, values, ones.astype(np.int64), ones)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("MARGRAVE_THREADS", threads)
        found.append(reconstruct_nonnegative(estimates, max_steps=60))
    assert found[0].gap == found[1].gap
    assert found[0].violation > 0
    assert np.array_equal(found[0].marginals, found[1].marginals)
    assert np.array_equal(found[0].state.point, found[1].state.point)


@pytest.mark.parametrize("every_table", [False, True], ids=["outer tables", "every table"])
@pytest.mark.parametrize("seed", [21, 32, 38])
def test_the_corrected_dual_ascent_converges_to_the_same_tables(every_table, seed):
    """Both weigh residuals as the objective of the paper does; a factor 2 at η would move cells by more than one count.

    Gradient ascent with the step 1/L converges linearly once the cells at zero are found; 2,000 rounds reach rounding
    here, 4,000 leave room. A gap of 1e-12 of a loss of about 1e4 leaves 1e-4 by (1), and in fact far less; 1e-5 is
    between what is allowed and what a wrong weight would do.
    """
    estimates, options = draw(np.random.default_rng(seed), (3, 2, 3), [(0, 1), (1, 2), (0, 2)], "paper")
    options["eta"] = 0.7
    tables = range(len(estimates.layout.sets)) if every_table else None
    step = largest_safe_step(estimates, tables=tables, eta=0.7) / 2
    ascent = dual_ascent(estimates, tables=tables, eta=0.7, rounds=4_000, step=step)
    ours = reconstruct_nonnegative(estimates, **options, tolerance=1e-12, max_steps=60_000)
    np.testing.assert_allclose(ascent, ours.marginals, rtol=0, atol=1e-5)
    halved = reconstruct_nonnegative(estimates, weights="paper", eta=0.35, tolerance=1e-12, max_steps=60_000)
    assert np.abs(halved.marginals - ours.marginals).max() > 1.0


def test_a_total_that_is_far_below_zero_gives_tables_of_nobody():
    """r = 0 is best when −∇f(0) = 2 w z has no positive table: then no tables with people pay."""
    layout = Layout.of((2, 3), [(0, 1)])
    values = np.zeros(layout.cells)
    values[0] = -50.0
    ones = np.ones(len(layout.sets))
    solution = reconstruct_nonnegative(Estimates(layout, values, ones.astype(np.int64), ones))
    assert solution.status is Status.SOLVED
    assert not solution.marginals.any()
    assert solution.gap <= 1e-4
    assert solution.lift == 0.0


def test_a_total_that_was_never_measured_is_the_least_that_pays():
    """One attribute of two values, r = (x, −x): minimise η T² + ½‖r − z‖² under T/2 ≥ |x|, so that T = 2x, by hand."""
    layout = Layout.of((2,), [(0,)])
    values = np.array([0.0, 6.0, -6.0])
    estimates = Estimates(layout, values, np.array([0, 1]), np.array([0.0, 1.0]))
    solution = reconstruct_nonnegative(estimates, eta=0.25, tolerance=1e-12)
    # f = 0.25 · 4x² + ½ · 2 (x − 6)², least at x = 3.
    np.testing.assert_allclose(solution.marginals, [6.0, 6.0, 0.0], atol=1e-5)


@pytest.mark.parametrize("share", [None, 0.0])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
@pytest.mark.parametrize("total", [1e-6, 1e-3, 1.0, 100.0])
def test_a_solution_is_called_solved_only_if_its_lift_weighs_little(total, tolerance, share, monkeypatch):
    """Ten times the tolerance at most. With few people the loss is all but constant and the gap is met at once, while
    the tables are still mostly the positive ones that were mixed in. What a look expects of the repair (``share``; 0:
    that it moves nothing) decides when a certificate is made, and never whether it is good."""
    if share is not None:
        monkeypatch.setattr(solver, "_SHARE", share)
    layout = Layout.of((8, 7, 6), [(0, 1, 2)])
    values = 6 * transform.center(layout, np.random.default_rng(0).normal(size=layout.cells))
    values[0] = total
    ones = np.ones(len(layout.sets))
    solution = reconstruct_nonnegative(
        Estimates(layout, values, ones.astype(np.int64), ones), hold=[0], tolerance=tolerance
    )
    assert solution.status is Status.SOLVED
    assert solution.lift <= 10 * tolerance


def triangle(same):
    """Pair tables of three yes/no attributes in which two people agree with probability ``same``; 100 people."""
    layout = Layout.of((2, 2, 2), [(0, 1, 2)])
    values = np.zeros(layout.cells)
    values[0] = 100.0
    for pair in ((0, 1), (0, 2), (1, 2)):
        layout.view(values, layout.places[pair])[...] = 100 * (same / 2 - 0.25) * np.array([[1, -1], [-1, 1]])
    ones = np.ones(len(layout.sets))
    holds = np.flatnonzero(layout.index.order <= 2).tolist()
    return Estimates(layout, values, ones.astype(np.int64), ones), holds


def test_holds_that_contradict_each_other_are_proven_to():
    """Of three people two must agree: the three pairs agree with a probability that adds up to at least one."""
    estimates, holds = triangle(0.2)
    with pytest.raises(ReleaseError, match=r"held residuals contradict each other: no non-negative tables have"):
        reconstruct_nonnegative(estimates, hold=holds, max_steps=500)
    estimates, holds = triangle(0.33)
    with pytest.raises(ReleaseError, match="no non-negative tables were found within 5 steps that keep all"):
        reconstruct_nonnegative(estimates, hold=holds, max_steps=5)
    estimates, holds = triangle(0.34)
    check_tables(estimates.layout, reconstruct_nonnegative(estimates, hold=holds, max_steps=500).marginals)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("rarest", [0.1, 1e-7])
def test_tables_with_rare_cells_can_be_held(order, rarest):
    """A held cell of one in ten million leaves little room below it; the tables that keep it are found all the same."""
    sizes, generator = (3, 2, 4), np.random.default_rng(4)
    people = generator.uniform(0.2, 1, size=sizes)
    people[0] *= rarest
    layout = Layout.of(sizes, [(0, 1, 2)])
    tables = np.concatenate([marginal_matrix(sizes, gamma) @ people.ravel() for gamma in layout.sets])
    truth = transform.center(layout, tables)
    holds = np.flatnonzero(layout.index.order <= order).tolist()
    values = truth + transform.center(layout, generator.normal(size=layout.cells))
    for table in holds:
        layout.view(values, table)[...] = layout.view(truth, table)
    ones = np.ones(len(layout.sets))
    estimates = Estimates(layout, values, ones.astype(np.int64), ones)
    check_against_clarabel(estimates, {"weights": 2.0, "eta": None, "hold": holds})


def test_a_held_table_may_have_a_cell_of_zero():
    sizes = (3, 2, 4)
    people = np.random.default_rng(4).uniform(0.2, 1, size=sizes)
    people[0] = 0
    layout = Layout.of(sizes, [(0, 1, 2)])
    tables = np.concatenate([marginal_matrix(sizes, gamma) @ people.ravel() for gamma in layout.sets])
    values = transform.center(layout, tables)
    values[layout.inner_cells :] *= -1
    ones = np.ones(len(layout.sets))
    estimates = Estimates(layout, values, ones.astype(np.int64), ones)
    holds = np.flatnonzero(layout.index.order <= 1).tolist()
    solution = reconstruct_nonnegative(estimates, hold=holds, tolerance=1e-6)
    assert solution.status is Status.SOLVED
    check_tables(layout, solution.marginals)
    assert layout.view(solution.marginals, len(layout.sets) - 1)[0].max() <= 1e-9 * solution.marginals[0]


@pytest.mark.parametrize("total", [5e7, 1e10])
def test_large_totals_with_more_held_stay_consistent_and_honest(total):
    """Rounding is judged by what it adds up to: per cell it would let tables disagree by whole people."""
    sizes = (40, 40, 40)
    generator = np.random.default_rng(0)
    truth = np.zeros(sizes)
    truth[tuple(generator.integers(0, 40, (3, 300)))] = total / 300
    layout = Layout.of(sizes, [(0, 1, 2)])
    residuals = transform.decompose_marginal(truth + generator.normal(size=sizes))
    values = np.concatenate([residuals[members].ravel() for members in layout.sets])
    tables = len(layout.sets)
    estimates = Estimates(layout, values, np.ones(tables, dtype=np.int64), np.ones(tables))
    held = [layout.places[()], layout.places[(0,)]]
    solution = reconstruct_nonnegative(estimates, hold=held, max_steps=3000)
    whole = layout.view(solution.marginals, layout.places[(0, 1, 2)])
    first = layout.view(solution.marginals, layout.places[(0,)])
    np.testing.assert_allclose(whole.sum(axis=(1, 2)), first, rtol=0, atol=1e-9 * total)
    np.testing.assert_allclose(whole.sum(), values[0], rtol=1e-11)
    assert 0 < solution.gap < 1
