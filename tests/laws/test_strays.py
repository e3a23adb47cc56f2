"""How far tables stray, learned from noisy residuals: the likelihood against that of a scaled χ², by simulation."""

import numpy as np
import pytest
from scipy.stats import gamma

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.measurements import Measurements
from margrave.planning import stages
from margrave.planning.counts import varying_counts

SHAPE = (5, 4)
LAYOUT = Layout.of(SHAPE, [(0, 1)])
TABLE = LAYOUT.places[0, 1]
EVEN = np.full(SHAPE, 50.0)


def noisy(kappa, sigma, draw):
    """A table whose cells stray by normal departures of variance q + κ q², and its measurement."""
    counts = EVEN + draw.standard_normal(SHAPE) * np.sqrt(EVEN + kappa * EVEN**2)
    buffer = np.zeros(LAYOUT.cells)
    LAYOUT.view(buffer, TABLE)[...] = counts + sigma * draw.standard_normal(SHAPE)
    values = transform.center(LAYOUT, buffer)
    precisions = np.where(np.arange(len(LAYOUT.sets)) == TABLE, sigma**-2.0, 1.0)
    domain = Domain.fromdict({"a": SHAPE[0], "b": SHAPE[1]})
    often = np.ones(len(LAYOUT.sets), dtype=np.int64)
    return Measurements.from_centered(domain, LAYOUT, values=values, precisions=precisions, counts=often)


@pytest.mark.parametrize("sigma", [2.0, 30.0])
@pytest.mark.parametrize("place", [0, 4, 6])
def test_the_likelihood_of_a_stray_is_that_of_the_distance_it_makes(place, sigma):
    """For even cells and normal departures ‖z − C q‖² is a scaled χ² of m degrees of freedom, exactly."""
    draw, degrees = np.random.default_rng(place), 12
    measured = noisy(stages.KAPPAS[place], sigma, draw)
    found = stages._log_likelihood(LAYOUT, measured, TABLE, EVEN, varying_counts(EVEN))
    distance = float(np.square(LAYOUT.view(measured.values, TABLE)).sum())
    variance = sigma**2 + 50 + stages.KAPPAS * 50**2
    exact = gamma(degrees / 2, scale=2 * variance).logpdf(distance) + np.log(distance)
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-9)


def test_strays_are_found_where_they_are():
    """Of sixty measured tables the mean κ is found to within a factor of two, for small and for large noise.

    A scaled χ² of 12 degrees of freedom varies by 41 %; over sixty tables the mean varies by 5 %, so that a factor of
    two is out of reach of chance, while steps of the grid are factors of about three and the prior counts four tables.
    """
    draw = np.random.default_rng(8)
    for kappa, sigma in ((0.1, 2.0), (1.0, 30.0)):
        told = {}
        for one in range(60):
            told[one] = stages._log_likelihood(LAYOUT, noisy(kappa, sigma, draw), TABLE, EVEN, varying_counts(EVEN))
        found = np.mean([part @ stages.KAPPAS for part in stages._posteriors(told, list(told), stages.PRIORS[2])])
        assert kappa / 2 < found < 2 * kappa
