"""The objective "counts": curves against their definition, plans against a general solver, and what they promise."""

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.optimize import minimize

from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.planning import plan
from margrave.planning.allocation import GAIN, add_precisions, allocate, closure_weights, count_errors, floor_precisions
from margrave.planning.coefficients import cost_coefficients
from margrave.planning.counts import (
    STRAYS,
    ZIPF_EXPONENTS,
    Curves,
    Importance,
    add_spreads,
    best_precisions,
    curves_of,
    objective,
    prior_curves,
    varying_counts,
)
from margrave.privacy.budget import Budget
from margrave.workload import Workload

SIZES = (3, 2, 4)
DOMAIN = Domain.fromdict({f"a{k}": size for k, size in enumerate(SIZES)})
LARGER = Domain.fromdict({f"a{k}": size for k, size in enumerate((2, 3, 4, 10, 6, 5, 12))})


def closure_of(workload):
    return Layout.of(workload.domain.shape, workload.positions)


def curves_for(layout, rows):
    return prior_curves([layout.shape(table) for table in range(len(layout.sets))], rows)


def left_over(spread, cells, precision):
    """Equation (1) of ``counts``, as it stands."""
    return sum(n * s / np.sqrt(1 + s * s * precision) for s, n in zip(spread, cells, strict=True))


# Spreads on the half octaves of the histogram: nothing is rounded, and the sum is what the curves hold.
SPREAD, CELLS = np.array([1.0, 2.0, 16.0, 2.0**9.5]), np.array([100.0, 7.0, 3.0, 0.5])


def some_curves():
    spreads = np.zeros((1, 113))
    for spread, cells in zip(SPREAD, CELLS, strict=True):
        spreads[0, round(2 * (np.log2(spread) + 8))] = cells
    return curves_of(np.zeros(1, dtype=np.int64), spreads)


@pytest.mark.parametrize("exponent", [-90.0, -60.0, -20.5, -7.0, 0.0, 3.5, 24.0, 40.0])
def test_a_curve_is_what_is_left_of_all_cells_of_a_table(exponent):
    curves, precision = some_curves(), 2.0**exponent
    expected = left_over(SPREAD, CELLS, precision) ** 2
    # At the points of the grid exactly; beyond its end 1/√y is all that is left, to 1/(1 + s²y) of itself.
    assert curves.squared_errors(np.array([precision]))[0] == pytest.approx(expected, rel=1e-6)


def test_between_two_points_of_the_grid_a_curve_is_off_by_little():
    curves = some_curves()
    for exponent in np.arange(-40.0, 20.0, 0.17):
        found = curves.squared_errors(np.array([2.0**exponent]))[0]
        # A function whose slope in logarithms lies in −1 … 0 bends by at most 1 % within half an octave.
        assert found == pytest.approx(left_over(SPREAD, CELLS, 2.0**exponent) ** 2, rel=0.01)


@pytest.mark.parametrize("exponent", [-30.0, -12.0, -3.0, 5.0, 20.0, 33.0])
def test_the_precision_of_a_slope_is_where_the_curve_has_it(exponent):
    curves, precision = some_curves(), 2.0**exponent
    step = 1e-4 * precision
    below, above = (left_over(SPREAD, CELLS, precision + sign * step) ** 2 for sign in (-1, 1))
    slope = (below - above) / (2 * step)
    found = curves.precisions_at(np.array([np.log2(slope)]))[0]
    assert found == pytest.approx(precision, rel=1e-3)


def test_a_slope_steeper_than_any_is_nowhere():
    assert some_curves().precisions_at(np.array([300.0]))[0] == 0.0


@pytest.mark.parametrize(
    ("shape", "rows", "logarithms"),
    [((3, 4), 5_000.0, (-18.0, -12.0, -6.0, 0.0)), ((8, 7), 1e8, (-50.0, -40.0, -30.0, -20.0, -10.0))],
)
def test_expected_counts_before_anything_is_measured_are_those_of_zipf_attributes(shape, rows, logarithms):
    """Every mixture of exponents, cell by cell, against the histogram: the same spreads but for half octaves.

    Cells of the larger table differ so much that a histogram of equal cells is off by a third. Neither has an
    attribute of so many values that it may settle the other.
    """
    found = prior_curves([shape], rows)
    spread, cells = [], []
    for exponents in product(ZIPF_EXPONENTS, repeat=2):
        shares = [np.arange(1, n + 1.0) ** -a for n, a in zip(shape, exponents, strict=True)]
        table = np.multiply.outer(*(share / share.sum() for share in shares)) * rows
        part = np.prod([1 - 1 / n for n in shape])
        varying = varying_counts(table)
        # p u is the variance of a sample with these sums: hypergeometric, with N where that has N − 1.
        sums = table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True)
        np.testing.assert_allclose(part * varying, table * (1 - table / sums[0]) * (1 - table / sums[1]), rtol=1e-12)
        for kappa, probability in STRAYS[2]:
            assert (part * varying >= 1).all()
            spread += np.sqrt(part * (kappa * varying**2 + varying)).ravel().tolist()
            cells += [probability / len(ZIPF_EXPONENTS) ** 2] * table.size
    for exponent in logarithms:
        expected = left_over(spread, cells, 2.0**exponent) ** 2
        # Rounded to half octaves a count moves by up to 19 %, up as often as down.
        assert found.squared_errors(np.array([2.0**exponent]))[0] == pytest.approx(expected, rel=0.1)


def test_cells_where_nobody_is_expected_are_not_counted():
    spreads = np.zeros(113)
    add_spreads(spreads, np.array([0.002]), np.array([10_000.0]), 3, share=0.5)
    assert spreads.sum() == pytest.approx(10.0)  # single people, one in a cell
    assert spreads[16] == pytest.approx(10.0)  # and each strays by one


@pytest.mark.parametrize(("rows", "rho"), [(200.0, 0.01), (3_000.0, 0.1), (100_000.0, 1.0)])
def test_a_plan_is_as_good_as_what_a_general_solver_finds(rows, rho):
    workload = Workload.all_kway(DOMAIN, 2)
    layout = closure_of(workload)
    curves, cost = curves_for(layout, rows), cost_coefficients(layout)
    importance = Importance.of(layout, closure_weights(workload, layout))
    even = np.full(len(cost), 2 * rho / cost.sum())
    found, _ = best_precisions(layout, curves, importance, rho=rho, start=even)
    assert (cost @ found) / 2 == pytest.approx(rho, rel=1e-9)

    def value(logits):
        shares = np.exp(logits - logits.max())
        return objective(layout, curves, 2 * rho * shares / shares.sum() / cost, importance)

    starts = [np.zeros(len(cost)), np.log(np.maximum(found * cost, 1e-9 * rho))]
    best = min(minimize(value, start, method="Nelder-Mead", options={"maxiter": 6_000}).fun for start in starts)
    # A thousandth of a relative error: the curves are straight lines between half octaves.
    assert objective(layout, curves, found, importance) <= best + 2e-3


def test_what_is_there_already_is_not_bought_again():
    workload = Workload.all_kway(DOMAIN, 2)
    layout = closure_of(workload)
    curves, importance = curves_for(layout, 1_000.0), Importance.of(layout, closure_weights(workload, layout))
    cost, known = cost_coefficients(layout), np.zeros(len(layout.sets))
    place = layout.places[(0,)]
    known[place] = 1e6
    even = np.full(len(cost), 0.2 / cost.sum())
    found, _ = best_precisions(layout, curves, importance, rho=0.1, start=even, known=known)
    assert found[place] == 0.0
    assert (np.delete(found, place) > 0).any()


def shares_by_order(made):
    return np.array([row.share for row in made.summary().rows])


def test_with_less_to_spend_the_large_tables_get_a_smaller_share():
    workload = Workload.all_kway(LARGER, 3)
    shares = [
        shares_by_order(plan(workload, Budget.zcdp(rho=rho), contributions=1, objective="counts", rows=2_000))[3]
        for rho in (1e-4, 1e-2, 1.0, 100.0)
    ]
    # The floor is the least; at 1e-6 of it plans differ by rounding.
    assert all(less <= more * (1 + 1e-6) for less, more in pairwise(shares))
    assert shares[0] < 0.05 < 0.3 < shares[-1]


def test_every_residual_is_measured_whatever_the_budget():
    workload = Workload.all_kway(LARGER, 3)
    for rho in (1e-8, 1e-3, 1e4):
        made = plan(workload, Budget.zcdp(rho=rho), contributions=1, objective="counts", rows=500)
        plain = plan(workload, Budget.zcdp(rho=rho), contributions=1)
        # The floor: a sixty-fourth of what "nonnegative" would give each.
        assert (made.precisions >= plain.precisions / 64 * (1 - 1e-4)).all()


def test_rows_of_a_person_count_like_a_smaller_budget():
    workload = Workload.all_kway(LARGER, 2)
    one = plan(workload, Budget.zcdp(rho=Fraction(1, 9)), contributions=1, objective="counts", rows=1_000)
    three = plan(workload, Budget.zcdp(rho=1), contributions=3, objective="counts", rows=1_000)
    np.testing.assert_allclose(three.integer_variances, one.integer_variances, rtol=1e-5)


def test_a_table_of_more_weight_is_measured_better():
    heavy = Workload(LARGER, [("a0", "a1"), ("a2", "a3"), ("a4", "a5")], weights=[1, 50, 1])
    even = Workload(LARGER, [("a0", "a1"), ("a2", "a3"), ("a4", "a5")])
    errors = [
        plan(one, Budget.zcdp(rho=0.05), contributions=1, objective="counts", rows=3_000).standard_error("a2", "a3")
        for one in (heavy, even)
    ]
    assert errors[0] < 0.9 * errors[1]


def test_tables_that_are_asked_for_count_more_than_tables_inside_others():
    asked = Importance.of(*_weighted(Workload.up_to(DOMAIN, 3)))
    inside = Importance.of(*_weighted(Workload.all_kway(DOMAIN, 3)))
    assert inside.orders.tolist() == [0.0, 1 / 30, 1 / 10, 1.0]
    assert (asked.orders[1:3] > inside.orders[1:3]).all()
    for order in (1, 2, 3):
        assert inside.tables[_weighted(Workload.all_kway(DOMAIN, 3))[0].index.order == order].sum() == pytest.approx(1)


def _weighted(workload):
    layout = closure_of(workload)
    return layout, closure_weights(workload, layout)


def test_a_workload_of_the_total_alone_spends_all_on_it():
    workload = Workload(DOMAIN, [()])
    made = plan(workload, Budget.zcdp(rho=0.5), contributions=1, objective="counts", rows=10)
    assert made.standard_error() == pytest.approx(1.0, rel=1e-5)


def test_attributes_of_one_value_are_not_measured():
    domain = Domain.fromdict({"one": 1, "two": 2})
    workload = Workload.all_kway(domain, 2)
    layout = closure_of(workload)
    found = allocate(workload, layout, "counts", rho=0.1, rows=100.0)
    assert found.variances[layout.places[(0, 1)]] == found.variances[layout.places[(0,)]] == 0.0
    assert np.isnan(found.gap)
    assert found.steps >= 1


def test_the_steps_are_few():
    layout, weights = _weighted(Workload.all_kway(LARGER, 3))
    for rho in (1e-4, 1e-1, 10.0):
        assert count_errors(layout, weights, rho=rho, rows=20_000.0).steps <= 20
    assert isinstance(curves_for(layout, 1.0), Curves)


def test_what_is_hardly_worth_measuring_again_is_left_alone_and_all_is_spent():
    """The total and one table are known far better than the rest: nothing is added to them, but to all others."""
    workload = Workload.all_kway(DOMAIN, 2)
    layout = closure_of(workload)
    weights, cost = closure_weights(workload, layout), cost_coefficients(layout)
    known = np.zeros(len(layout.sets))
    precise = [layout.places[()], layout.places[(0,)]]
    known[precise] = 1e6
    floor = floor_precisions(layout, weights, rho=0.1)
    added, _ = add_precisions(
        layout, Importance.of(layout, weights), curves_for(layout, 500.0), rho=0.1, known=known, floor=floor
    )
    assert added[precise].tolist() == [0.0, 0.0]
    others = np.delete(np.arange(len(known)), precise)
    assert (added[others] >= floor[others]).all()
    assert cost @ added / 2 == pytest.approx(0.1, rel=1e-12)


def test_where_nothing_was_measured_the_floor_is_paid_first_and_the_rest_divided_best():
    workload = Workload.all_kway(DOMAIN, 2)
    layout, rho = closure_of(workload), 0.1
    weights, cost, curves = closure_weights(workload, layout), cost_coefficients(layout), curves_for(layout, 500.0)
    importance, nothing = Importance.of(layout, weights), np.zeros(len(layout.sets))
    floor = 8 * floor_precisions(layout, weights, rho=rho)  # an eighth of the budget, so that it matters
    left = rho - sum(cost * floor) / 2
    best, _ = best_precisions(layout, curves, importance, rho=left, start=floor * (left / (rho - left)))
    added, _ = add_precisions(layout, importance, curves, rho=rho, known=nothing, floor=floor)
    np.testing.assert_allclose(added, floor + best, rtol=1e-9)


def test_nothing_is_measured_again_for_a_small_gain():
    """What was measured is left alone, or becomes more precise by a share of ``GAIN`` at least; some of each here."""
    workload = Workload.all_kway(DOMAIN, 2)
    layout = closure_of(workload)
    curves, nothing = curves_for(layout, 500.0), np.zeros(len(layout.sets))
    importance = Importance.of(layout, closure_weights(workload, layout))
    even = np.full(len(layout.sets), 0.1 / cost_coefficients(layout).sum())
    known = best_precisions(layout, curves, importance, rho=0.1, start=even)[0]
    known *= np.where(layout.index.order == 2, 0.3, 1.2)
    added, _ = add_precisions(layout, importance, curves, rho=0.05, known=known, floor=nothing)
    gains = added / known
    assert ((gains == 0) | (gains >= GAIN)).all()
    assert 0 < np.count_nonzero(gains) < len(gains)
    unrestricted, _ = best_precisions(layout, curves, importance, rho=0.05, start=known, known=known)
    assert ((unrestricted > 0) & (unrestricted < GAIN * known)).any()
