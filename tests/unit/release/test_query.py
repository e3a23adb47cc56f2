"""Queries and shares read off a release: sums of cells, groups, Python's form, and what no table can tell."""

import re

import numpy as np
import pytest

from margrave.domain import Attribute, Domain
from margrave.errors import DomainError, ReleaseError
from margrave.measurements import Laplace, Measurements
from margrave.release.publication import reconstruct
from margrave.workload import Workload

DOMAIN = Domain(
    [
        Attribute("age", cuts=(17, 64)),
        Attribute("sex", labels=("F", "M")),
        Attribute("region", labels=("north", "south", "west")),
        Attribute("persons", labels=(1, 2)),
    ]
)
WORKLOAD = Workload(DOMAIN, [("age", "sex", "region"), ("sex", "persons")])
CELLS = np.arange(18.0).reshape(3, 2, 3) * 10 + 100
NOISY = Measurements.from_marginals(
    DOMAIN, [(("age", "sex", "region"), CELLS, 4.0), (("sex", "persons"), [[600.0, 0.0], [100.0, 2000.0]], 1.0)]
)


def refused(text, kind=ReleaseError):
    return pytest.raises(kind, match=re.escape(text))


@pytest.fixture(scope="module", params=["mle", "lnn", "trunc"])
def release(request):
    return reconstruct(NOISY, WORKLOAD, method=request.param)


def test_a_query_adds_up_the_cells_that_meet_its_condition(release):
    cells = release.table("age", "sex", "region")
    answer = release.query("age > 17 and sex = 'F'", by=("region",))
    assert answer.attributes == ("region",)
    assert answer.categories == (("north", "south", "west"),)
    np.testing.assert_allclose(answer.values, cells.values[1:, 0].sum(axis=0), rtol=1e-14)
    np.testing.assert_allclose(answer.estimate, cells.estimate[1:, 0].sum(axis=0), rtol=1e-14)
    assert answer.ci_low.shape == (3,)
    assert answer.note == ""


def test_groups_come_in_the_order_asked_for_with_the_categories_that_meet_the_condition(release):
    answer = release.query("region != 'south' and age <= 64", by=["region", "age"])
    assert answer.attributes == ("region", "age")
    assert answer.categories == (("north", "west"), ("≤ 17", "(17, 64]"))
    expected = release.table("age", "region").values[:2, [0, 2]].T
    np.testing.assert_allclose(answer.values, expected, rtol=1e-14)
    assert answer.std_error == pytest.approx(release.table("age", "region").std_error, rel=1e-14)
    assert answer.to_arrow()["region"].to_pylist() == ["north", "north", "west", "west"]


def test_a_query_without_condition_is_a_table(release):
    assert np.array_equal(release.query(by=("sex", "age")).values, release.table("sex", "age").values)
    assert release.query().values == release.table().values
    assert release.query().std_error == release.table().std_error


def test_labels_by_attribute_are_a_condition_too(release):
    for where, text in [
        ({"sex": "F"}, "sex = 'F'"),
        ({"age": ["≤ 17", "> 64"], "region": ("north",)}, "not age = '(17, 64]' and region = 'north'"),
        ({"persons": 1}, "persons = 1"),
        ({"persons": np.int64(2)}, "persons = 2"),
        ({"persons": np.array([1.0, 2.0])}, "persons in (1, 2)"),
        ({"sex": {"M", "F"}}, "sex in ('F', 'M')"),
        ({"sex": np.array("F")}, "sex = 'F'"),
        ({"persons": [np.float64(2)]}, "persons = 2"),
        ({}, ""),
    ]:
        assert release.query(where).values == release.query(where=text).values
        assert release.query(where).std_error == release.query(text).std_error


def test_the_level_of_a_query_can_be_set(release):
    answer = release.query("sex = 'F'", level=0.5)
    assert answer.level == 0.5
    assert answer.ci_high_raw - answer.ci_low_raw == pytest.approx(2 * 0.6744897501960817 * answer.std_error)
    with refused("the level is 2; give a probability above 0 and below 1, such as 0.95", ReleaseError):
        release.query("sex = 'F'", level=2)
    with refused("the level is 2; give a probability above 0 and below 1, such as 0.95", ReleaseError):
        release.share("sex = 'F'", level=2)


def test_what_the_tables_cannot_tell_is_refused(release):
    with refused(
        "no table of this release covers persons × age; tables that cover some of it: sex × persons, age × sex × region"
        "; put it into the workload and reconstruct again",
        ReleaseError,
    ):
        release.query("age > 17", by=("persons",))
    with refused("no value of attribute 'age' meets the condition; the count would always be 0"):
        release.query("age > 64 and age <= 17")
    with refused("no value of attribute 'sex' meets the condition; the count would always be 0"):
        release.query({"sex": []})


def test_what_is_no_query_is_refused(release):
    with refused("by is 'region'; give a list of attributes, as in ('region',)"):
        release.query("sex = 'F'", by="region")
    with refused("by is 3; give a list of attributes"):
        release.query("sex = 'F'", by=3)
    with refused("by names an attribute twice in sex × sex; name each once"):
        release.query(by=("sex", "sex"))
    with refused("no attribute 'regio' in the domain; did you mean 'region'?", DomainError):
        release.query(by=("regio",))
    with refused("no attribute ['sex'] in the domain", DomainError):
        release.query(by=[["sex"]])
    with refused("no attribute 'sexx' in the domain; did you mean 'sex'?", DomainError):
        release.query({"sexx": "F"})
    with refused("no value None of attribute 'sex' (it has 'F', 'M')", DomainError):
        release.query({"sex": None})
    with refused("no value ['F'] of attribute 'sex' (it has 'F', 'M')", DomainError):
        release.query({"sex": [["F"]]})
    with refused(
        "a condition cannot be 3; write it as a text, as in \"sex = 'F'\", or as labels by attribute, as in "
        "{'sex': 'F'}"
    ):
        release.query(3)


def test_a_residual_that_the_query_does_not_need_may_be_unmeasured():
    noisy = Measurements.from_marginals(DOMAIN, [(("sex",), [30.0, 20.0], 2.0)])
    release = reconstruct(noisy, Workload(DOMAIN, [("age", "sex")]), method="mle")
    free = release.query("sex = 'F' and (age <= 64 or age > 64)")
    assert free.determined
    assert free.estimate == pytest.approx(30.0, rel=1e-14)
    assert free.std_error == pytest.approx(2**0.5, rel=1e-14)
    bound = release.query("sex = 'F' and age <= 64")
    assert not bound.determined
    assert bound.estimate is None
    assert bound.note == (
        "no interval: the measurements do not determine these counts (never measured: age, age × sex)"
    )


def test_a_share_divides_two_counts_of_one_table(release):
    cells = release.table("age", "sex", "region")
    share = release.share("sex = 'F'", of="age > 17", by=("region",))
    whole = cells.values[1:].sum(axis=(0, 1))
    np.testing.assert_allclose(share.values, cells.values[1:, 0].sum(axis=0) / whole, rtol=1e-14)
    whole = cells.estimate[1:].sum(axis=(0, 1))
    np.testing.assert_allclose(share.estimate, cells.estimate[1:, 0].sum(axis=0) / whole, rtol=1e-14)
    assert share.std_error.shape == (3,)
    # Far from zero Fieller's interval is that of the linear approximation.
    np.testing.assert_allclose(share.ci_low_raw, share.estimate - 1.959963984540054 * share.std_error, rtol=1e-3)
    np.testing.assert_allclose(share.ci_high_raw, share.estimate + 1.959963984540054 * share.std_error, rtol=1e-3)
    assert share.note == ""
    assert repr(share) == "Share(3 groups by region; intervals at level 0.95)"
    assert repr(release.share({"sex": "F"}, level=0.9)) == "Share(1 group; intervals at level 0.9)"


def test_the_share_of_all_is_one_without_error():
    release = reconstruct(NOISY, WORKLOAD, method="mle")
    share = release.share("sex in ('F', 'M')", of="region = 'north'")
    assert share.estimate == 1
    assert share.std_error == pytest.approx(0, abs=1e-8)
    assert share.ci_high <= 1


def test_ends_of_shares_are_clipped_to_0_and_1():
    noisy = Measurements.from_marginals(DOMAIN, [(("sex",), [100.0, 1.0], 100.0)])
    share = reconstruct(noisy, Workload(DOMAIN, [("sex",)]), method="mle").share("sex = 'F'")
    assert share.ci_high_raw > 1
    assert share.ci_high == 1
    other = reconstruct(noisy, Workload(DOMAIN, [("sex",)]), method="mle").share("sex = 'M'")
    assert other.ci_low_raw < 0
    assert other.ci_low == 0


def test_a_small_denominator_has_a_wide_interval_and_one_that_may_be_zero_tells_nothing():
    # Standard error of a region's count: 2 √2; five of them are 14.14.
    table = np.array([[7.0, 8.0, -3.0], [7.1, 8.0, 1.0]])
    noisy = Measurements.from_marginals(DOMAIN, [(("sex", "region"), table, 4.0)])
    release = reconstruct(noisy, Workload(DOMAIN, [("sex", "region")]), method="mle")
    share = release.share("sex = 'F'", by=("region",))
    assert np.isnan(share.std_error).tolist() == [True, False, True]
    np.testing.assert_allclose(share.estimate, [7 / 14.1, 0.5, np.nan], rtol=1e-14)
    # 0.5 ± z √(v(R) D² − …)/a by hand for 8 of 16: a = 256 − 8 z², b = 128 − 4 z², e = 64 − 4 z².
    z2 = 1.959963984540054**2
    a, b, e = 256 - 8 * z2, 128 - 4 * z2, 64 - 4 * z2
    assert share.ci_low[1] == pytest.approx((b - (b * b - a * e) ** 0.5) / a, rel=1e-12)
    assert share.ci_high[1] == pytest.approx((b + (b * b - a * e) ** 0.5) / a, rel=1e-12)
    assert 0 < share.ci_low[0] < 7 / 14.1 < share.ci_high[0] < 1
    assert (share.ci_low[2], share.ci_high[2]) == (0, 1)
    assert share.note == (
        "no information where the denominator is within 1.96 standard errors of zero: the share may be anything from 0 "
        "to 1; no standard error where the denominator is less than 5 standard errors above zero"
    )
    arrow = share.to_arrow()
    assert arrow.column_names == ["region", "share", "estimate", "std_error", "ci_low", "ci_high"]
    assert arrow["std_error"].to_pylist()[::2] == [None, None]
    assert arrow["ci_high"].to_pylist()[2] == 1
    assert arrow["estimate"].to_pylist()[2] is None
    assert share.to_pandas()["share"].isna().tolist() == [False, False, True]
    assert share.to_polars()["std_error"].null_count() == 2


def test_a_share_of_what_is_not_known_has_no_error_and_says_why():
    noisy = Measurements.from_residuals(DOMAIN, [((), 10.0, Laplace(1.0)), (("sex",), [4.0], Laplace(1.0))])
    workload = Workload(DOMAIN, [("sex",), ("sex", "persons")])
    release = reconstruct(noisy, workload, method="mle")
    share = release.share("sex = 'F'")
    assert share.estimate == pytest.approx(0.7)
    assert share.std_error is None
    assert share.ci_low is None
    assert share.ci_high is None
    assert share.note == "no interval: the noise is not Gaussian with a single variance"
    unknown = release.share("persons = 1", of="sex = 'F'")
    assert unknown.estimate is None
    assert unknown.values == pytest.approx(0.5)
    assert unknown.note.startswith("no interval: the measurements do not determine these counts (never measured: ")


def test_a_share_that_is_always_nothing_is_refused(release):
    with refused("no value of attribute 'age' meets the condition; the count would always be 0"):
        release.share("age <= 17", of="age > 17")


def test_a_share_grouped_by_its_own_condition_is_refused(release):
    with refused("the share is grouped by 'sex' and a condition on it; move the condition to of=…"):
        release.share("sex = 'F'", by=("sex",))


def test_shares_of_truncated_tables_do_not_pass_one():
    noisy = Measurements.from_marginals(
        DOMAIN, [(("sex", "persons"), [[10.0, -9.0], [3.0, 4.0]], 1.0), (("sex",), [2.0, 5.0], 1.0)]
    )
    release = reconstruct(noisy, Workload(DOMAIN, [("sex", "persons"), ("sex",)]), method="trunc")
    share = release.share("persons = 1", by=("sex",))
    assert (share.values <= 1).all()
