"""The algebra on real tables at full size, against plain sums: too slow for every run."""

from itertools import combinations

import numpy as np
import pytest
from datasets import need_dataset

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.domain import Domain

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("name", ["titanic", "adult", "adult-coarse", "nist-taxi", "salary"])
def test_counts_of_a_real_table_survive_the_round_trip(name):
    table, domain_file = need_dataset(name)
    domain = Domain.read(domain_file)
    header = np.loadtxt(table, delimiter=",", dtype=str, max_rows=1)
    codes = np.loadtxt(table, delimiter=",", dtype=np.int64, skiprows=1)
    column = {attribute: codes[:, place] for place, attribute in enumerate(header)}
    layout = Layout.of(domain.shape, list(combinations(range(len(domain)), 3)))
    counts = np.zeros(layout.cells)
    for place, attributes in enumerate(layout.sets):
        if attributes:
            flat = np.ravel_multi_index([column[n] for n in domain.names(attributes)], layout.shape(place))
            view = layout.view(counts, place)
            view[...] = np.bincount(flat, minlength=view.size).reshape(view.shape)
    counts[0] = len(codes)
    residuals = transform.decompose(layout, counts)
    # Cells are sums of eight terms below the number of rows: rounding stays below 8 · rows · 2⁻⁵².
    np.testing.assert_allclose(
        transform.reconstruct(layout, residuals), counts, rtol=0, atol=8 * len(codes) * 2.0**-52 * 10
    )
