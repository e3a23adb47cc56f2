"""Samples against the exact probabilities: χ², moments, signs, low bits, independence, and OpenDP's sampler.

All seeds are fixed, so that nothing here fails by chance. *False-alarm rate*: a χ² test rejects below p = 10⁻⁶; other
limits are five standard errors, 6·10⁻⁷. *Power*: the same χ² test must reject samples whose scale is wrong by 2 %
either way, and with a million samples it misses them with odds below 10⁻⁶ for every family and parameter (a test too).
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import chi2, chi2_contingency, ncx2

from margrave.privacy.entropy import InsecureSeededSource
from margrave.privacy.noise import discrete_gaussian, discrete_laplace

COUNT = 1_000_000
FALSE_ALARM = 1e-6
WRONG = (Fraction(102, 100), Fraction(98, 100))
# 64/9 is no dyadic number; 900 and 90,000 have blocks of 1 and 16 numbers; 1/4 and 9/100 are nearly all zeros.
VARIANCES = [
    Fraction(9, 100),
    Fraction(1, 4),
    Fraction(1),
    Fraction(9, 4),
    Fraction(64, 9),
    Fraction(100),
    *map(Fraction, (900, 90_000, 10**6)),
]
LARGE_VARIANCES = [Fraction(10**12), Fraction(10**18, 7), Fraction(9 * 10**29)]
SCALES = [Fraction(1, 4), Fraction(1), Fraction(7, 3), Fraction(30), Fraction(1000, 3)]
DRAW = {"gaussian": discrete_gaussian, "laplace": discrete_laplace}
CASES = [("gaussian", v) for v in VARIANCES] + [("laplace", s) for s in SCALES]


def parameter(family, value, factor):
    """The parameter whose standard deviation is so many times as large."""
    return value * factor**2 if family == "gaussian" else value * factor


@cache
def weights(family, value):
    """e^−f(y) for y = 0, 1, … to below 10⁻⁴⁰, to 50 digits, from one exponential and products."""
    with localcontext() as context:
        context.prec = 60
        rate = 1 / (2 * value) if family == "gaussian" else 1 / value
        ratio = (-Decimal(rate.numerator) / Decimal(rate.denominator)).exp()
        growth = ratio * ratio if family == "gaussian" else Decimal(1)
        values = [Decimal(1)]
        while values[-1] > Decimal("1e-40"):
            values.append(values[-1] * ratio)
            ratio *= growth
        total = values[0] + 2 * sum(values[1:])
        return [value / total for value in values]


def signed_weights(family, value):
    """The whole numbers in order, each with its exact probability."""
    half = weights(family, value)
    magnitudes = range(len(half))
    return [*((-m, half[m]) for m in reversed(magnitudes)), *((m, half[m]) for m in magnitudes[1:])]


def bin_ends(family, value):
    """Upper ends of about 40 bins, all but the last of which stay open; single numbers where 30 samples make one."""
    ends, mass = [], Decimal(0)
    share = Decimal(1) / 40 if value >= 4 else Decimal(30) / COUNT
    for y, weight in signed_weights(family, value):
        mass += weight
        if mass >= share:
            ends.append(y)
            mass = Decimal(0)
    # The last bin takes what is left above it.
    return np.array(ends[:-1])


def bin_probabilities(family, value, ends):
    """The exact probability of each bin, and of the one above the last end."""
    numbers, masses = zip(*signed_weights(family, value), strict=True)
    bins = np.searchsorted(ends, np.array(numbers))
    return np.bincount(bins, weights=np.array([float(mass) for mass in masses]), minlength=len(ends) + 1)


def chi_square(samples, ends, probabilities):
    """The p-value of Pearson's χ² test."""
    observed = np.bincount(np.searchsorted(ends, samples), minlength=len(probabilities))
    expected = probabilities * len(samples)
    return chi2.sf(((observed - expected) ** 2 / expected).sum(), len(probabilities) - 1)


@pytest.mark.parametrize(("family", "value"), CASES, ids=str)
def test_samples_have_the_exact_probabilities_and_a_wrong_scale_is_rejected(family, value):
    ends = bin_ends(family, value)
    probabilities = bin_probabilities(family, value, ends)
    assert abs(probabilities.sum() - 1) < 1e-12
    samples = DRAW[family](value, COUNT, source=InsecureSeededSource(11))
    assert chi_square(samples, ends, probabilities) > FALSE_ALARM
    for factor in WRONG:
        wrong = DRAW[family](parameter(family, value, factor), COUNT, source=InsecureSeededSource(12))
        assert chi_square(wrong, ends, probabilities) < FALSE_ALARM


@pytest.mark.parametrize(("family", "value"), CASES, ids=str)
@pytest.mark.parametrize("factor", WRONG, ids=str)
def test_the_test_above_has_the_power_that_it_claims(family, value, factor):
    """Under the wrong scale the statistic is about noncentral χ²: odds of a miss from the exact probabilities."""
    ends = bin_ends(family, value)
    right = bin_probabilities(family, value, ends)
    wrong = bin_probabilities(family, parameter(family, value, factor), ends)
    freedom = len(right) - 1
    noncentrality = COUNT * ((wrong - right) ** 2 / right).sum()
    assert ncx2.cdf(chi2.isf(FALSE_ALARM, freedom), freedom, noncentrality) < FALSE_ALARM


def normal_bins(variance, bins=100):
    """Bins of a wide Gaussian, with probabilities that are off by less than 0.02/variance (midpoint rule)."""
    deviation = float(variance) ** 0.5
    ends = np.round(np.linspace(-3, 3, bins - 1) * deviation).astype(np.int64)
    below = ndtr((ends.astype(np.float64) + 0.5) / deviation)
    return ends, np.diff(np.concatenate([[0.0], below, [1.0]]))


@pytest.mark.parametrize("variance", LARGE_VARIANCES, ids=str)
def test_wide_gaussians_have_the_probabilities_of_the_normal_law(variance):
    ends, probabilities = normal_bins(variance)
    samples = discrete_gaussian(variance, COUNT, source=InsecureSeededSource(13))
    assert chi_square(samples, ends, probabilities) > FALSE_ALARM
    for factor in WRONG:
        wrong = discrete_gaussian(variance * factor**2, COUNT, source=InsecureSeededSource(13))
        assert chi_square(wrong, ends, probabilities) < FALSE_ALARM


@pytest.mark.parametrize("variance", LARGE_VARIANCES, ids=str)
@pytest.mark.parametrize("modulus", [2, 7, 4096])
def test_remainders_of_wide_gaussians_are_uniform(variance, modulus):
    """They are but for a part in e^(2π² variance / modulus²): blocks and their places leave no trace."""
    samples = discrete_gaussian(variance, COUNT, source=InsecureSeededSource(14))
    uniform = np.full(modulus, 1 / modulus)
    assert chi_square(samples % modulus, np.arange(modulus - 1), uniform) > FALSE_ALARM


@pytest.mark.parametrize(("family", "value"), CASES, ids=str)
def test_moments_signs_and_neighbours(family, value):
    """Mean, second moment, balance of signs and correlation of neighbours, each within five standard errors."""
    samples = DRAW[family](value, COUNT, source=InsecureSeededSource(15)).astype(np.float64)
    half = np.array([float(weight) for weight in weights(family, value)])
    squares = np.arange(len(half)) ** 2.0
    variance, fourth = 2 * (half * squares).sum(), 2 * (half * squares**2).sum()
    assert abs(samples.mean()) <= 5 * (variance / COUNT) ** 0.5
    assert abs((samples**2).mean() - variance) <= 5 * ((fourth - variance**2) / COUNT) ** 0.5
    signs = np.sign(samples)
    assert abs(signs.sum()) <= 5 * np.count_nonzero(signs) ** 0.5
    assert abs((samples[1:] * samples[:-1]).mean()) <= 5 * variance / COUNT**0.5


@pytest.mark.parametrize(
    "variance", [Fraction(1), Fraction(64, 9), Fraction(10**4), Fraction(10**12), Fraction(10**24)], ids=str
)
def test_opendp_draws_from_the_same_distribution(variance):
    """A two-sample χ² test on bins of about equal content; OpenDP has no seed: a false alarm once in a million runs.

    Power: 5,000 draws of twice the variance have p-values below 1e-200, in each of 200 simulated tries.
    """
    pytest.importorskip("opendp", reason="OpenDP is the oracle: pip install opendp")
    from margrave.privacy.noise import opendp_discrete_gaussian

    ours = discrete_gaussian(variance, 400_000, source=InsecureSeededSource(16))
    theirs = opendp_discrete_gaussian(variance, 40_000)
    wrong = opendp_discrete_gaussian(2 * variance, 5_000)
    ends = np.unique(np.quantile(ours, np.linspace(0.01, 0.99, 25), method="lower"))
    assert two_samples(ours, theirs, ends) > FALSE_ALARM
    assert two_samples(ours, wrong, ends) < FALSE_ALARM


def two_samples(first, second, ends):
    """The p-value of the hypothesis that two sets of samples come from one distribution."""
    counts = [np.bincount(np.searchsorted(ends, x), minlength=len(ends) + 1) for x in (first, second)]
    return chi2_contingency(np.array(counts))[1]
