"""The problem of the non-negative solver: weights by hand, and what holds fix."""

import re

import numpy as np
import pytest

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.errors import ReleaseError
from margrave.reconstruction.estimates import Estimates
from margrave.reconstruction.nonnegative.problem import Problem, check_holds, solver_weights

LAYOUT = Layout.of((3, 2, 1), [(0, 1, 2)])
# The total, three attributes, three pairs, the triple: k_τ, with nothing measured where an attribute has one value.
COUNTS = np.array([3, 1, 0, 0, 2, 0, 0, 0])
PRECISIONS = np.array([0.5, 2.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0])
INF = np.inf


def estimates_of(values=None, counts=COUNTS, precisions=PRECISIONS, layout=LAYOUT):
    return Estimates(layout, np.zeros(layout.cells) if values is None else values, counts, precisions)


def noisy(seed=0, total=20.0, layout=LAYOUT):
    generator = np.random.default_rng(seed)
    values = 6 * transform.center(layout, generator.normal(size=layout.cells))
    values[0] = total
    ones = np.ones(len(layout.sets))
    return Estimates(layout, values, ones.astype(np.int64), ones)


def refused(text):
    return pytest.raises(ReleaseError, match=re.escape(text))


@pytest.mark.parametrize(
    ("weights", "eta", "hold", "expected"),
    [
        ("paper", None, (), [3, 0.5, 40, INF, 0.5, INF, INF, INF]),
        ("paper", 0.1, (), [3, 0.5, 0.1, INF, 0.5, INF, INF, INF]),
        ("paper", None, (0, 4), [INF, 0.5, 40, INF, INF, INF, INF, INF]),
        (4, None, (), [1, 0.25, 40, INF, 0.0625, INF, INF, INF]),
        (0.5, 7, (2,), [1, 2, INF, INF, 4, INF, INF, INF]),
        ("noise", None, (), [0.5, 2, 160, INF, 4, INF, INF, INF]),
        ("noise", 0.3, (), [0.5, 2, 0.3, INF, 4, INF, INF, INF]),
        (np.array([1, INF, np.nan, 9, 2, 9, 9, 9.0]), 0.3, (), [1, INF, 0.3, INF, 2, INF, INF, INF]),
        (np.array([1, 5, 6, 9, 2, 9, 9, 9.0]), INF, (), [1, 5, 6, INF, 2, INF, INF, INF]),
    ],
)
def test_weights_by_hand(weights, eta, hold, expected):
    """40 is the paper's η; with "noise" it is 40 times the largest precision, 4; what cannot move weighs infinitely."""
    assert LAYOUT.sets == ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    found = solver_weights(estimates_of(), weights=weights, eta=eta, hold=hold)
    assert found.tolist() == expected


def test_weights_that_are_given_are_not_changed():
    given = np.full(8, np.nan)
    solver_weights(estimates_of(), weights=given, eta=None, hold=(0,))
    assert np.isnan(given).all()


@pytest.mark.parametrize("unknown", [np.where(COUNTS == 2, np.nan, PRECISIONS), None])
def test_noise_weights_need_variances(unknown):
    counts, precisions = (COUNTS, unknown) if unknown is not None else (0 * COUNTS, 0 * PRECISIONS)
    with refused("weights 'noise' need one variance for each measured residual"):
        solver_weights(estimates_of(counts=counts, precisions=precisions), weights="noise", eta=None, hold=())


def test_a_table_is_fixed_when_everything_inside_it_is_held():
    weights = np.array([INF, INF, 1.0, INF, INF, INF, INF, INF])
    problem = Problem(LAYOUT, noisy().values, weights)
    # Not (0, 1), because (1,) is free; the residuals with attribute 2 are identically zero.
    assert problem.fixed.tolist() == [True, True, False, True, False, True, False, False]


def test_check_holds_has_nothing_to_say_about_a_free_total():
    weights = np.where(LAYOUT.index.order == 1, INF, 1.0)
    check_holds(Problem(LAYOUT, noisy(total=-5.0).values, weights))
    weights[0] = INF
    with pytest.raises(ReleaseError):
        check_holds(Problem(LAYOUT, noisy(total=-5.0).values, weights))


def test_a_loss_by_rounding_is_told_from_a_loss():
    """Where all that is free was estimated as zero, the loss of zero is zero, and says nothing about rounding."""
    values = np.zeros(LAYOUT.cells)
    values[0] = 1e6
    problem = Problem(LAYOUT, values, np.array([INF, 2.0, 1.0, INF, 1.0, INF, INF, INF]))
    assert problem.loss_of_zero == 0.0
    # Rounding of 2⁻⁵² of a million in each of 11 cells, squared and weighted.
    assert 11 * 2 * (1e6 * 2.0**-52) ** 2 < problem.rounding_loss < 1e-6


def test_the_bound_on_the_loss_is_what_its_equation_says():
    layout = Layout.of((3, 2), [(0, 1)])
    values = transform.center(layout, np.arange(float(layout.cells)) ** 2)
    values[0] = 20.0
    weights = np.array([INF, 0.5, 2.0, 3.0])
    norms = [np.sqrt((layout.view(values, table) ** 2).sum()) for table in range(4)]
    problem = Problem(layout, values, weights)
    assert problem.largest_loss == pytest.approx(
        sum(w * (20 + n) ** 2 for w, n in zip(weights[1:], norms[1:], strict=True))
    )
    assert Problem(layout, values, np.ones(4)).largest_loss == INF
