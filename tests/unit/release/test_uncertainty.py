"""Error bars: cells that are not there (the formulas are in tests/laws/test_uncertainty.py)."""

import re

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.errors import ReleaseError
from margrave.measurements import Measurements
from margrave.reconstruction.estimates import estimate_residuals
from margrave.release.uncertainty import cell_variance, covariance

DOMAIN = Domain.fromdict({"age": 4, "one": 1, "sex": 2})
LAYOUT = Layout.of(DOMAIN.shape, [(0, 1), (2,)])
ESTIMATES = estimate_residuals(Measurements.from_marginals(DOMAIN, [(("age",), np.zeros(4), 3.0)]), LAYOUT)


def test_an_attribute_of_one_value_changes_nothing():
    assert cell_variance(ESTIMATES, LAYOUT.places[(0, 1)]) == pytest.approx(3.0, rel=1e-15)
    assert covariance(ESTIMATES, {0: 1, 1: 0}, {0: 1}) == pytest.approx(3.0, rel=1e-14)
    assert covariance(ESTIMATES, {0: 1, 1: 0}, {0: 2}) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("cell", [{0: 1, 2: 0}, {7: 0}])
def test_a_cell_of_no_table_is_refused(cell):
    text = f"no table over the attributes at {tuple(cell)} in the closure; give a cell of one that is"
    with pytest.raises(ReleaseError, match=re.escape(text)):
        covariance(ESTIMATES, {0: 1}, cell)


@pytest.mark.parametrize("code", [4, -1])
def test_a_code_that_is_not_there_is_refused(code):
    with pytest.raises(ReleaseError, match=f"no code {code} for the attribute at 0; codes run from 0 to 3"):
        covariance(ESTIMATES, {0: code}, {0: 0})
