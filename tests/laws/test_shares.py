"""Intervals of shares cover as often as they say, however small the denominator is.

Statistical tests: n = 20,000 independent draws. Fieller's set covers with probability 0.95 exactly, and answering "0 to
1" where it is no interval only adds to that; so the count of hits is compared with Binomial(n, 0.95) from below, and
where the denominator is 8 standard errors or more from both sides, at a false-alarm rate of 1e-6 a case: the band
begins at 0.9424. The delta method covers 0.911 or less of the draws in some cases, and is caught with probability over
1 − 1e-9. Seeds are fixed.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from margrave.domain import Domain
from margrave.measurements import Measurements
from margrave.release.publication import reconstruct
from margrave.release.share import Share
from margrave.release.table import Table
from margrave.release.uncertainty import quantile
from margrave.workload import Workload

DRAWS = 20_000
DEVIATION = 2.0
LOW, HIGH = binom.ppf([1e-6, 1 - 1e-6], DRAWS, 0.95)
# True denominator in standard errors, true share.
CASES = [(clear, share) for clear in (0.5, 1, 1.5, 2, 3, 4, 5, 8, 12, 20) for share in (0.0, 0.1, 0.5, 1.0)]


@pytest.fixture(scope="module")
def drawn():
    """The share of one of two cells of equal noise, in every case and draw, and the true shares."""
    domain = Domain.fromdict({"part": 2, "case": len(CASES), "draw": DRAWS})
    wholes = np.array([clear * DEVIATION * math.sqrt(2) for clear, _ in CASES])
    shares = np.array([share for _, share in CASES])
    truth = np.stack([wholes * shares, wholes * (1 - shares)])
    noisy = np.random.default_rng(77).normal(np.repeat(truth[..., None], DRAWS, axis=-1), DEVIATION)
    measurements = Measurements.from_marginals(domain, [(("part", "case", "draw"), noisy, DEVIATION**2)])
    release = reconstruct(measurements, Workload(domain, [("part", "case", "draw")]), method="mle")
    return release.share("part = 0", by=("case", "draw")), shares[:, None], noisy


def test_intervals_of_shares_cover_at_least_as_often_as_they_say_at_any_denominator(drawn):
    share, true, _ = drawn
    hits = np.count_nonzero((share.ci_low <= true) & (true <= share.ci_high), axis=1)
    assert (hits >= LOW).all()
    # Cutting to 0 … 1 loses nothing: every true share lies there. Shares of 0 and 1 gain by it.
    raw = np.count_nonzero((share.ci_low_raw <= true) & (true <= share.ci_high_raw), axis=1)
    assert (hits >= raw).all()
    assert (raw >= LOW).all()
    clear = np.array([clear >= 8 for clear, _ in CASES])
    assert (raw[clear] <= HIGH).all()


def test_the_test_of_coverage_catches_the_delta_method(drawn):
    _, true, noisy = drawn
    part, whole = noisy[0], noisy.sum(axis=0)
    ratio = part / whole
    spread = DEVIATION * np.sqrt(1 - 2 * ratio + 2 * ratio**2) / np.abs(whole)
    hits = np.count_nonzero(np.abs(ratio - true) <= quantile(0.95) * spread, axis=1)
    assert binom.cdf(LOW, DRAWS, hits.min() / DRAWS) > 1 - 1e-9
    assert (hits < LOW).sum() >= 5


def test_where_the_denominator_may_be_zero_nothing_is_known(drawn):
    share, _, noisy = drawn
    may_be_zero = noisy.sum(axis=0) <= quantile(0.95) * DEVIATION * math.sqrt(2)
    assert may_be_zero.any()
    assert (share.ci_low[may_be_zero] == 0).all()
    assert (share.ci_high[may_be_zero] == 1).all()
    assert np.isinf(share.ci_low_raw[may_be_zero]).all()
    assert np.isfinite(share.ci_low_raw[~may_be_zero]).all()
    assert np.isnan(share.std_error[may_be_zero]).all()
    assert share.note == (
        "no information where the denominator is within 1.96 standard errors of zero: the share may be anything from 0 "
        "to 1; no standard error where the denominator is less than 5 standard errors above zero"
    )


def table(estimate, variance, level):
    value = np.array([estimate])
    return Table(("g",), value, value, variance, (("one",),), "", level)


@given(
    st.floats(-100, 100),
    st.floats(-100, 100),
    st.floats(0.01, 50),
    st.floats(0.01, 50),
    st.floats(-0.99, 0.99),
    st.sampled_from([0.5, 0.9, 0.95, 0.999]),
    st.floats(-2, 3),
)
@settings(deadline=None)
def test_the_interval_holds_those_shares_that_are_within_z_errors(part, whole, v, w, correlation, level, candidate):
    """By the definition: R is inside where |N − R D| ≤ z √(v − 2Rc + R²w), away from ties by 1e-9 of the terms."""
    covariance, z = correlation * math.sqrt(v * w), quantile(level)
    share = Share.of(table(part, v, level), table(whole, w, level), covariance)
    if whole <= z * math.sqrt(w):
        assert (share.ci_low, share.ci_high) == (0, 1)
        return
    spread = z * math.sqrt(v - 2 * candidate * covariance + candidate**2 * w)
    distance, near = abs(part - candidate * whole), 1e-9 * (abs(part) + abs(candidate * whole) + spread)
    if distance <= spread - near:
        assert share.ci_low_raw <= candidate + 1e-6 * abs(candidate) + 1e-9
        assert candidate <= share.ci_high_raw + 1e-6 * abs(share.ci_high_raw) + 1e-9
    if distance >= spread + near:
        outside = share.ci_low_raw >= candidate - 1e-6 * abs(candidate) - 1e-9
        assert outside or candidate >= share.ci_high_raw - 1e-6 * abs(share.ci_high_raw) - 1e-9


def test_a_denominator_too_small_to_divide_by_has_no_ratio():
    share = Share.of(table(1.0, 1.0, 0.95), table(5e-324, 1.0, 0.95), 0.0)
    assert np.isnan(share.values).all()
    assert np.isnan(share.estimate).all()
    assert (share.ci_low, share.ci_high) == (0, 1)


def test_a_sure_denominator_gives_the_interval_of_a_count_divided_by_it():
    share = Share.of(table(30.0, 4.0, 0.95), table(100.0, 1e-12, 0.95), 0.0)
    assert share.ci_low == pytest.approx((30 - 1.959963984540054 * 2) / 100)
    assert share.ci_high == pytest.approx((30 + 1.959963984540054 * 2) / 100)
    assert share.std_error == pytest.approx(0.02)
    assert share.note == ""
    assert repr(share) == "Share(1 group by g; intervals at level 0.95)"
