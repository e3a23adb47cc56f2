"""Plans against published figures, general solvers, explicit matrices, exact fractions and Monte Carlo."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations

import clarabel
import numpy as np
import pytest
from discrete_sums import slow_variance
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from matrices import closure, full_difference, kron, marginal_matrix, residual_matrix
from scipy import sparse
from scipy.stats import chi2
from strategies import families, seeds

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.planning import allocation, budget_for_margin, plan
from margrave.planning.allocation import max_variance, optimal_variances
from margrave.planning.coefficients import (
    cell_variances,
    cost_bound,
    cost_coefficients,
    exact_cost,
    squared_sensitivity,
    variance_coefficients,
)
from margrave.privacy.budget import Budget
from margrave.workload import Workload

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
CPS = (50, 100, 7, 4, 2)
LOANS = (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)
HALF = Budget.zcdp(rho=Fraction(1, 2))  # pcost = 2ρ = 1
OBJECTIVES = ["total_variance", "table_variance", "max_variance", "nonnegative"]


def domain_of(sizes):
    return Domain.fromdict({f"a{k}": n for k, n in enumerate(sizes)})


def workload_of(sizes, family, weights=None):
    return Workload(domain_of(sizes), [[f"a{k}" for k in gamma] for gamma in family], weights=weights)


def named_workload(sizes, orders):
    domain = domain_of(sizes)
    return Workload.up_to(domain, 3) if orders == "≤3" else Workload.all_kway(domain, orders)


def root_mean_square(made):
    cells = np.array([made.workload.domain.cells(names) for names in made.workload], dtype=float)
    return math.sqrt((cells * made.predictions() ** 2).sum() / cells.sum())


def total_cost(made):
    """The exact sum of all costs; equal ones are multiplied, because fractions of many denominators grow long."""
    kinds = Counter((made.layout.shape(t), float(made.integer_variances[t])) for t in made.measured.tolist())
    return sum(
        (count * exact_cost(shape, Fraction(noise), made.contributions) for (shape, noise), count in kinds.items()),
        Fraction(0),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Published figures: [RP] arXiv 2305.08175, tables of RMSE and of the largest variance, recomputed to the digits printed


@pytest.mark.parametrize(
    ("sizes", "figures"),
    [
        (ADULT, (3.047, 6.359, 10.515, 10.665)),
        (CPS, (1.744, 2.035, 2.048, 2.276)),
        (LOANS, (2.875, 5.634, 8.702, 8.876)),
    ],
    ids=["adult", "cps", "loans"],
)
def test_published_root_mean_squared_errors(sizes, figures):
    for orders, figure in zip((1, 2, 3, "≤3"), figures, strict=True):
        made = plan(named_workload(sizes, orders), HALF, contributions=1, objective="total_variance")
        # Half a unit of the last digit printed; variances are rounded up by 2⁻²⁰, errors by 2⁻²¹.
        assert root_mean_square(made) == pytest.approx(figure, abs=5e-4 + 2**-21 * figure), orders


@pytest.mark.parametrize(
    ("attributes", "figure"),
    [
        (10, 9.348),
        (20, 26.917),
        (30, 49.713),
        (50, 107.258),
        (100, 303.216),
        pytest.param(200, 855.330, marks=pytest.mark.engines),
    ],
)
def test_published_root_mean_squared_errors_of_many_attributes(attributes, figure):
    made = plan(named_workload((10,) * attributes, "≤3"), HALF, contributions=1, objective="total_variance")
    assert root_mean_square(made) == pytest.approx(figure, abs=5e-4 + 2**-21 * figure)
    assert HALF.rho * (1 - Fraction(1, 2**18)) <= total_cost(made) <= HALF.rho


@pytest.mark.parametrize(
    ("sizes", "figures"),
    [
        (ADULT, (12.047, 67.802, 236.843, 253.605)),
        (CPS, (4.346, 7.897, 7.706, 13.216)),
        (LOANS, (10.640, 52.217, 156.638, 180.817)),
    ],
    ids=["adult", "cps", "loans"],
)
def test_published_largest_variances(sizes, figures):
    for orders, figure in zip((1, 2, 3, "≤3"), figures, strict=True):
        workload = named_workload(sizes, orders)
        exact = plan(workload, HALF, contributions=1, objective="max_variance", tolerance=1e-7)
        assert exact.gap <= 1e-7
        # Half a unit of the last digit printed, the gap, and 2⁻²⁰ for noise rounded up.
        assert exact.predictions().max() ** 2 == pytest.approx(figure, abs=5e-4 + 2e-6 * figure), orders
        quick = plan(workload, HALF, contributions=1, objective="max_variance")
        assert quick.gap <= 1e-4
        assert quick.predictions().max() ** 2 <= (figure + 5e-4) * (1 + 1e-4 + 2**-20)


@pytest.mark.parametrize(
    ("attributes", "figure", "unit"), [(10, 105.031, 1e-3), (20, 768.94, 1e-2), (50, 11597, 1), (100, 91960.9, 0.1)]
)
def test_published_largest_variances_of_many_attributes(attributes, figure, unit):
    workload = named_workload((10,) * attributes, "≤3")
    made = plan(workload, HALF, contributions=1, objective="max_variance")
    assert made.gap <= 1e-4
    largest = made.predictions().max() ** 2
    assert (figure - unit / 2) * (1 - 1e-7) <= largest <= (figure + unit / 2) * (1 + 1e-4 + 2**-20)


def test_the_published_example_of_discrete_noise():
    """n = 4, σ = 2/3: sensitivity² = 12, g² = 64/9, ρ = 27/32."""
    assert squared_sensitivity((4,)) == 12
    noise = Fraction(2, 3) ** 2 * 4**2
    assert noise == Fraction(64, 9)
    assert exact_cost((4,), noise, 1) == Fraction(27, 32)
    assert exact_cost((4,), noise, 3) == 9 * Fraction(27, 32)


# ---------------------------------------------------------------------------------------------------------------------
# Optimality, against general solvers


def variance_matrix(sizes, layout):
    """Factors of σ²_τ in Var_A for all tables of a closure, by the definition."""
    matrix = np.zeros((len(layout.sets), len(layout.sets)))
    for row, table in enumerate(layout.sets):
        for column, part in enumerate(layout.sets):
            if set(part) <= set(table):
                inside = math.prod((sizes[k] - 1) / sizes[k] for k in part)
                matrix[row, column] = inside * math.prod(sizes[k] ** -2.0 for k in table if k not in part)
    return matrix


def solve_cones(rows, cost, rho):
    """Solve min t subject to (rows s)_i ≤ t, Σ p u ≤ 2ρ, s u ≥ 1, a second-order cone program; return s and t.

    Solved for s and u in units of their size at equal shares of the budget, where its numbers are near one.
    """
    count = len(cost)
    unit = cost * count / (2 * rho)
    bounds = np.hstack([rows * unit, np.zeros(rows.shape), -np.full((len(rows), 1), (rows * unit).sum(axis=1).max())])
    budget = np.concatenate([np.zeros(count), np.full(count, 1 / count), [0.0]])[None, :]
    blocks, limits = [bounds, budget], [np.zeros(len(rows)), [1.0]]
    for tau in range(count):  # ‖(2, s − u)‖ ≤ s + u says s u ≥ 1
        block = np.zeros((3, 2 * count + 1))
        block[0, [tau, count + tau]] = -1, -1
        block[2, [tau, count + tau]] = -1, 1
        blocks.append(block)
        limits.append([0.0, 2.0, 0.0])
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-10
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix((2 * count + 1, 2 * count + 1)),
        np.concatenate([np.zeros(2 * count), [1.0]]),
        sparse.csc_matrix(np.vstack(blocks)),
        np.concatenate(limits),
        [clarabel.NonnegativeConeT(len(rows) + 1), *[clarabel.SecondOrderConeT(3) for _ in range(count)]],
        options,
    )
    solution = np.array(solver.solve().x)
    return solution[:count] * unit, solution[-1] * (rows * unit).sum(axis=1).max()


@given(seeds, st.integers(1, 8), st.floats(0.05, 20))
@settings(max_examples=30, deadline=None)
def test_the_closed_form_is_what_a_general_solver_finds(seed, count, rho):
    generator = np.random.default_rng(seed)
    cost, weight = generator.uniform(0.2, 1, count), np.exp(generator.uniform(-2, 2, count))
    found = optimal_variances(cost, weight, rho)
    assert 0.5 * (cost / found).sum() == pytest.approx(rho, rel=1e-13)
    variances, least = solve_cones(weight[None, :], cost, rho)
    assert (weight * found).sum() == pytest.approx(least, rel=1e-7)
    # The objective is flat at its minimum: variances agree to the square root of its accuracy.
    np.testing.assert_allclose(found, variances, rtol=1e-3)


@given(families(), seeds)
@example(((3, 4), [(0, 1), ()]), 0)
@settings(max_examples=30, deadline=None)
def test_the_largest_variance_is_what_a_general_solver_finds(problem, seed):
    sizes, family = problem
    layout = Layout.of(sizes, family)
    weights = np.zeros(len(layout.sets))
    for gamma in family:
        weights[layout.places[gamma]] = np.random.default_rng(seed).choice([0.25, 1, 3])
    solved = max_variance(layout, weights, rho=0.5, tolerance=1e-6)
    matrix, live = variance_matrix(sizes, layout), np.flatnonzero(cost_coefficients(layout))
    found = (weights * (matrix @ solved.variances)).max()
    rows = np.flatnonzero(weights)
    _, least = solve_cones(weights[rows, None] * matrix[np.ix_(rows, live)], cost_coefficients(layout)[live], 0.5)
    # Our gap above; the general solver stops at 1e-10, which thirty cones make about 1e-7.
    assert least * (1 - 1e-6) <= found <= least * (1 + 2e-6)
    assert solved.gap <= 1e-6


@given(families(), seeds)
@settings(max_examples=30, deadline=None)
def test_each_objective_is_best_at_what_it_minimises(problem, seed):
    sizes, family = problem
    weights = np.random.default_rng(seed).uniform(0.2, 5, len(family))
    workload = workload_of(sizes, family, weights)
    cells = np.array([workload.domain.cells(names) for names in workload], dtype=float)
    squares = {o: plan(workload, HALF, contributions=1, objective=o).predictions() ** 2 for o in OBJECTIVES}
    measures = {
        "total_variance": lambda variance: (workload.weights * cells * variance).sum(),
        "table_variance": lambda variance: (workload.weights * variance).sum(),
        "max_variance": lambda variance: (workload.weights * variance).max(),
    }
    for objective, measure in measures.items():
        for other in OBJECTIVES:
            assert measure(squares[objective]) <= measure(squares[other]) * (1 + 1e-4 + 2**-19)


def closure_measure(workload, made):
    """Σ_A √n_A 2^(−|A|) (largest weight of a table that contains A) Var_A over the closure, as it is written."""
    positions = dict(zip(workload.positions, workload.weights.tolist(), strict=True))
    total = 0.0
    for place, members in enumerate(made.layout.sets):
        weight = max(weight for wanted, weight in positions.items() if set(members) <= set(wanted))
        cells = math.prod(made.layout.shape(place))
        total += weight * math.sqrt(cells) / 2 ** len(members) * made.cell_variances[place]
    return total


@given(families(), seeds)
@settings(max_examples=30, deadline=None)
def test_the_non_negative_objective_counts_every_table_of_the_closure(problem, seed):
    sizes, family = problem
    weights = np.random.default_rng(seed).uniform(0.2, 5, len(family))
    workload = workload_of(sizes, family, weights)
    found = {o: closure_measure(workload, plan(workload, HALF, contributions=1, objective=o)) for o in OBJECTIVES}
    assert all(found["nonnegative"] <= other * (1 + 2**-19) for other in found.values())


# ---------------------------------------------------------------------------------------------------------------------
# Predicted errors, against explicit matrices and Monte Carlo


@given(families())
@settings(max_examples=30, deadline=None)
def test_coefficients_are_those_of_the_definition(problem):
    sizes, family = problem
    layout = Layout.of(sizes, family)
    generator = np.random.default_rng(0)
    variances, importance = generator.uniform(1, 2, len(layout.sets)), generator.uniform(1, 2, len(layout.sets))
    matrix = variance_matrix(sizes, layout)
    np.testing.assert_allclose(cell_variances(layout, variances), matrix @ variances, rtol=1e-13)
    np.testing.assert_allclose(variance_coefficients(layout, importance), matrix.T @ importance, rtol=1e-13)


@given(families(max_sets=3), st.sampled_from(OBJECTIVES), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_predicted_variance_is_that_of_least_squares_over_the_whole_domain(problem, objective, contributions):
    """The measurements y = R p + noise of covariance Σ determine M_γ p with covariance M_γ (Rᵀ Σ⁻¹ R)⁺ M_γᵀ."""
    sizes, family = problem
    assume(math.prod(sizes) <= 256)
    made = plan(workload_of(sizes, family), HALF, contributions=contributions, objective=objective)
    rows = []
    for t in made.measured.tolist():
        tau = made.layout.sets[t]
        d = full_difference(sizes, tau)
        whitener = np.linalg.inv(np.linalg.cholesky(made.variances[t] * d @ d.T))
        rows.append(whitener @ residual_matrix(sizes, tau))
    inverse = np.linalg.pinv(np.vstack(rows), rcond=1e-10)
    for gamma in closure(family):
        spread = marginal_matrix(sizes, gamma) @ inverse
        expected = np.sqrt((spread**2).sum(axis=1))
        # Rows of the whitened matrix differ in length by less than 1e4, so the pseudo-inverse keeps more than 8 digits.
        np.testing.assert_allclose(made.standard_error(*(f"a{k}" for k in gamma)), expected, rtol=1e-8)


def test_predicted_variance_is_that_of_repeated_draws():
    """χ² of squared errors against the predicted variance, one cell a table, both tails.

    False alarms: 1e-6 for all tables together (they are tested at 1e-6 divided by their number). With 20,000 draws a
    quantile that far is at ±5.2 %: a variance wrong by 10 % is caught with probability above 1 − 1e-5.
    """
    sizes, draws = (3, 2, 4, 1), 20_000
    made = plan(
        workload_of(sizes, [(0, 1, 3), (1, 2)]), Budget.zcdp(rho="0.3"), contributions=2, objective="total_variance"
    )
    layout, generator = made.layout, np.random.default_rng(20_240_917)
    noise = np.zeros((draws, layout.cells))
    for t in made.measured.tolist():
        piece = generator.normal(scale=math.sqrt(made.noise(t)), size=(draws, math.prod(layout.shape(t))))
        noise[:, layout.index.offset[t] : layout.index.offset[t + 1]] = piece / math.prod(layout.shape(t))
    # What the measurement does to its noise is linear: centre, then reconstruct.
    linear = np.array([transform.reconstruct(layout, transform.center(layout, unit)) for unit in np.eye(layout.cells)])
    errors = noise @ linear
    rate = 1e-6 / len(layout.sets) / 2
    for t, gamma in enumerate(layout.sets):
        predicted = made.standard_error(*(f"a{k}" for k in gamma)) ** 2
        cell = int(generator.integers(layout.index.offset[t], layout.index.offset[t + 1]))
        statistic = (errors[:, cell] ** 2).sum() / predicted
        assert chi2.ppf(rate, draws) < statistic < chi2.isf(rate, draws), gamma


# ---------------------------------------------------------------------------------------------------------------------
# Privacy cost, against explicit matrices and exact fractions

rhos = st.fractions(min_value=Fraction(1, 10**6), max_value=10**6)


@given(families(max_sets=3), rhos, st.integers(1, 5), st.sampled_from(OBJECTIVES))
@settings(max_examples=30, deadline=None)
def test_privacy_cost_is_the_largest_diagonal_of_the_explicit_matrix(problem, rho, contributions, objective):
    """2ρ = c² max_i (Rᵀ Σ⁻¹ R)_ii over the rows i that a person may have; here all i cost the same."""
    sizes, family = problem
    assume(math.prod(sizes) <= 256)
    made = plan(workload_of(sizes, family), Budget.zcdp(rho=rho), contributions=contributions, objective=objective)
    gram = np.zeros((math.prod(sizes), math.prod(sizes)))
    integer_gram = np.full(math.prod(sizes), Fraction(0), dtype=object)
    for t in made.measured.tolist():
        tau = made.layout.sets[t]
        d, r = full_difference(sizes, tau), residual_matrix(sizes, tau)
        gram += r.T @ np.linalg.inv(d @ d.T / made.precisions[t]) @ r
        # The integer query as it is asked: n I − 11ᵀ on the attributes of τ, sums over the others.
        query = kron([n * np.eye(n) - 1 if k in tau else np.ones((1, n)) for k, n in enumerate(sizes)])
        squares = (query**2).sum(axis=0).astype(int).tolist()
        integer_gram = integer_gram + np.array([Fraction(s) / made.noise(t) for s in squares], dtype=object)
    spent = sum((made.cost(t) for t in range(len(made.layout.sets))), Fraction(0))
    assert contributions**2 * max(integer_gram) == 2 * spent
    assert contributions**2 * np.diag(gram).max() == pytest.approx(float(2 * spent), rel=1e-9)
    assert spent <= made.rho == rho


@given(families(), rhos, st.integers(1, 1000), st.sampled_from(OBJECTIVES), seeds)
@settings(max_examples=60, deadline=None)
def test_exact_costs_add_up_to_the_budget_and_never_beyond(problem, rho, contributions, objective, seed):
    sizes, family = problem
    weights = 10 ** np.random.default_rng(seed).uniform(-3, 3, len(family))
    workload = workload_of(sizes, family, weights)
    made = plan(workload, Budget.zcdp(rho=rho), contributions=contributions, objective=objective)
    spent = sum((made.cost(t) for t in range(len(made.layout.sets))), Fraction(0))
    assert rho * (1 - Fraction(1, 2**18)) <= spent <= rho
    bound = Fraction(cost_bound(made.layout, made.integer_variances)) * contributions**2
    assert spent <= bound <= spent * (1 + Fraction(1, 2**39))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_exact_costs_of_a_large_plan_add_up(objective):
    budget = Budget.approx(epsilon=0.1, delta=1e-9)
    made = plan(named_workload(ADULT, 3), budget, contributions=7, objective=objective)
    assert budget.rho * (1 - Fraction(1, 2**18)) <= total_cost(made) <= budget.rho
    assert len(made.measured) == 470


@given(families(), rhos, st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_noise_is_short_and_rounded_up_by_little(problem, rho, contributions):
    sizes, family = problem
    made = plan(
        workload_of(sizes, family), Budget.zcdp(rho=rho), contributions=contributions, objective="total_variance"
    )
    layout = made.layout
    importance = np.zeros(len(layout.sets))
    for gamma in set(family):
        importance[layout.places[gamma]] = math.prod(sizes[k] for k in gamma)
    best = optimal_variances(cost_coefficients(layout), variance_coefficients(layout, importance), float(rho))
    for t in made.measured.tolist():
        noise, cells = made.noise(t), math.prod(layout.shape(t))
        assert noise.denominator & (noise.denominator - 1) == 0
        assert noise.numerator.bit_length() <= 23 or noise.denominator == 1
        assert float(noise) == made.integer_variances[t] == pytest.approx(cells**2 / made.precisions[t], rel=1e-15)
        # From 2.3 on the variance is the parameter to the last digit; sums over large noise would be long.
        variance = slow_variance(float(noise)) if noise < 20 else float(noise)
        assert made.variances[t] == pytest.approx(variance / cells**2, rel=1e-14)
        # The closed form itself is a float: 1e-13 of rounding on both sides.
        ratio = float(noise) / (best[t] * cells**2 * contributions**2)
        assert 1 - 1e-13 <= ratio <= 1 + 2**-20 + 1e-13


# ---------------------------------------------------------------------------------------------------------------------
# How a plan answers to what it is asked

SMALL = workload_of((3, 5, 2, 4), [(0, 1, 2), (1, 3), (2,)])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_four_times_the_budget_halves_every_error(objective):
    one = plan(SMALL, Budget.zcdp(rho="0.1"), contributions=1, objective=objective).predictions()
    four = plan(SMALL, Budget.zcdp(rho="0.4"), contributions=1, objective=objective).predictions()
    np.testing.assert_allclose(one, 2 * four, rtol=2**-20)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_contributions_multiply_every_error(objective):
    one = plan(SMALL, HALF, contributions=1, objective=objective).predictions()
    three = plan(SMALL, HALF, contributions=np.int64(3), objective=objective).predictions()
    np.testing.assert_allclose(three, 3 * one, rtol=2**-20)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_only_the_proportions_of_weights_count(objective):
    family, weights = [(0, 1), (1, 2), (3,)], np.array([1.0, 2, 5])
    small, large = (workload_of((3, 5, 2, 4), family, weights * factor) for factor in (1e-250, 1e250))
    noise = [plan(w, HALF, contributions=1, objective=objective).integer_variances for w in (small, large)]
    np.testing.assert_allclose(*noise, rtol=2**-20)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_table_with_more_weight_has_less_error(objective):
    family = [(0, 1), (1, 2), (3,)]
    even, uneven = (
        plan(workload_of((3, 5, 2, 4), family, [1, 1, weight]), HALF, contributions=1, objective=objective)
        for weight in (1, 9)
    )
    assert uneven.standard_error("a3") < 0.9 * even.standard_error("a3")
    assert uneven.standard_error("a0", "a1") > even.standard_error("a0", "a1")


def test_four_times_the_weight_asks_for_half_the_largest_error():
    workload = workload_of((30, 40), [(0,), (1,)], [1, 4])
    made = plan(workload, HALF, contributions=1, objective="max_variance", tolerance=1e-9)
    assert made.standard_error("a0") == pytest.approx(2 * made.standard_error("a1"), rel=2**-19)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("names", [("a0", "a1", "a2"), ("a3",), ()])
def test_the_budget_for_a_margin_is_the_least_that_keeps_it(objective, names):
    asked_for = ((12.5, 1, 0.95), (Fraction(1, 3), 4, 0.8), (200, 2, 0.999), (Fraction(1, 50), 1, 0.95))
    for margin, contributions, level in asked_for:
        asked = {"contributions": contributions, "objective": objective}
        budget = budget_for_margin(SMALL, attributes=names, margin=margin, level=level, **asked)
        kept = plan(SMALL, budget, **asked)
        assert kept.margin_of_error(*names, level=level) <= margin
        less = plan(SMALL, budget * (1 - Fraction(1, 2**18)), **asked)
        assert less.margin_of_error(*names, level=level) > margin


def test_more_tables_for_the_same_budget_have_more_error():
    few = plan(workload_of((3, 5, 2, 4), [(0, 1)]), HALF, contributions=1, objective="total_variance")
    many = plan(
        workload_of((3, 5, 2, 4), list(combinations(range(4), 2))), HALF, contributions=1, objective="total_variance"
    )
    assert few.standard_error("a0", "a1") < many.standard_error("a0", "a1")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_attribute_of_one_value_changes_nothing(objective):
    with_it = plan(workload_of((3, 1, 4), [(0, 1), (1, 2), (0,)]), HALF, contributions=1, objective=objective)
    layout = with_it.layout
    assert {layout.sets[t] for t in with_it.measured.tolist()} == {(), (0,), (2,)}
    assert all(with_it.variances[t] == 0 == with_it.cost(t) for t, s in enumerate(layout.sets) if 1 in s)
    assert with_it.standard_error("a0", "a1") == pytest.approx(with_it.standard_error("a0"), rel=1e-14)
    assert with_it.standard_error("a1") == pytest.approx(with_it.standard_error(), rel=1e-14)
    if objective == "max_variance":  # a table that is named twice counts twice in sums, once in the largest
        without = plan(workload_of((3, 4), [(0,), (1,)]), HALF, contributions=1, objective=objective)
        np.testing.assert_allclose(with_it.predictions().max(), without.predictions().max(), rtol=1e-4)


def test_the_total_is_always_there_to_measure():
    """p_∅ = 1: a workload that exists (it names a table) has something to measure, whatever its sizes."""
    for family in ([()], [(0,)], [(0, 1)]):
        made = plan(workload_of((1, 1), family), HALF, contributions=1, objective="total_variance")
        assert made.measured.tolist() == [0]
        assert made.cost(0) <= Fraction(1, 2)
        # Var = 1/2ρ, rounded up.
        assert 1 <= made.predictions()[0] ** 2 <= 1 + 2**-20


@given(families(max_sets=6), seeds)
@settings(deadline=None, max_examples=60)
def test_every_step_of_the_largest_variance_raises_its_bound_and_the_steps_converge(shape_and_family, seed):
    """Equations (5) and (6) of `max_variance`: G never falls, and log(G*/G_k) ≤ log(1/least first share)/4k.

    G* is known to the tolerance, 1e-7; sums of up to 32 numbers round at 1e-15 of themselves.
    """
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    weights = np.zeros(len(layout.sets))
    places = [layout.places[members] for members in set(family)]
    weights[places] = 10 ** np.random.default_rng(seed).uniform(-2, 0, len(places))
    bounds, closed_form = [], optimal_variances

    def recorded(cost, weight, rho):
        bounds.append(np.sqrt(cost * weight).sum())
        return closed_form(cost, weight, rho)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocation, "optimal_variances", recorded)
        found = max_variance(layout, weights, tolerance=1e-7, max_steps=100_000)
    assert len(bounds) == found.steps + 1
    assert (np.diff(bounds) >= -1e-13 * bounds[-1]).all()
    distance = np.log(weights.sum() / weights[places].min())
    best = bounds[-1] * np.sqrt(1 + found.gap)  # not below the true one
    for step, bound in enumerate(bounds[1:], start=1):
        assert np.log(bounds[-1] / bound) <= distance / (4 * step) + 1e-13
        assert bound <= best * (1 + 1e-13)
