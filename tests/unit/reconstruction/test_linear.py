"""Maximum likelihood: where it writes, and which tables it calls determined (laws: tests/laws/test_emp.py)."""

import numpy as np

from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.measurements import Measurements
from margrave.reconstruction.estimates import determined, estimate_residuals, maximum_likelihood

DOMAIN = Domain.fromdict({"age": 4, "sex": 2, "one": 1})


def estimates_of(layout):
    tables = [(("age",), np.arange(4.0), 1.0), (("sex", "one"), np.array([[2.0], [4.0]]), 1.0)]
    return estimate_residuals(Measurements.from_marginals(DOMAIN, tables), layout)


def test_it_writes_where_it_is_told_and_leaves_the_estimates():
    layout = Layout.of(DOMAIN.shape, [(0, 1)])
    estimates = estimates_of(layout)
    before = estimates.values.copy()
    out = np.empty(layout.cells)
    assert maximum_likelihood(estimates, out=out) is out
    assert np.array_equal(out, maximum_likelihood(estimates))
    assert np.array_equal(estimates.values, before)


def test_tables_agree_with_each_other():
    layout = Layout.of(DOMAIN.shape, [(0, 1)])
    marginals = maximum_likelihood(estimates_of(layout))
    table = layout.view(marginals, layout.places[(0, 1)])
    # The two tables say 6 with variances 4 and 2 for the total: any mean of the two is 6.
    np.testing.assert_allclose(layout.view(marginals, layout.places[()]), 6.0, rtol=1e-15)
    np.testing.assert_allclose(table.sum(axis=1), np.arange(4.0), atol=1e-14)
    np.testing.assert_allclose(table.sum(axis=0), [2.0, 4.0], atol=1e-14)


def test_a_table_is_determined_when_all_its_residuals_with_freedom_are_measured():
    layout = Layout.of(DOMAIN.shape, [(0, 1, 2)])
    flags = determined(estimates_of(layout))
    known = {attributes for attributes, flag in zip(layout.sets, flags.tolist(), strict=True) if flag}
    assert known == {(), (0,), (1,), (2,), (0, 2), (1, 2)}
