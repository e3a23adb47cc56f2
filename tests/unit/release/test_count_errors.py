"""Errors of counts as readers meet them: fields, intervals, words, files."""

import csv
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from releases import DOMAIN, WORKLOAD, adaptive, foreign, laplace, measured, reseal, same

import margrave as mg
from margrave.errors import DamageError, ReleaseError
from margrave.privacy.entropy import InsecureSeededSource
from margrave.privacy.noise import gaussian_sampler
from margrave.release.count_errors import Bounds, count_interval
from margrave.release.export.sdmx import write_sdmx

NOISY = measured(sampler=gaussian_sampler(source=InsecureSeededSource(4)))
METHODS = ["lnn", "mle", "trunc", "trunc+rescale"]


def with_errors(noisy, method="lnn"):
    return mg.reconstruct(noisy, WORKLOAD, method=method, errors=True)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("noisy", [NOISY, adaptive(), foreign()], ids=["planned", "adaptive", "foreign"])
def test_every_count_has_an_error_and_an_interval_around_it(noisy, method):
    release = with_errors(noisy, method)
    for names in WORKLOAD.closure:
        table = release.table(*names)
        shown = np.maximum(table.values, 0)
        assert (table.count_error > 0).all()
        assert (table.count_low >= 0).all()
        assert (table.count_low <= shown).all()
        assert (shown <= table.count_high).all() or method == "mle"
        assert (table.count_high >= 1).all()
        assert (table.count_high == np.floor(table.count_high)).all() or method == "mle"
        wider = release.table(*names, level=0.99)
        assert (wider.count_low <= table.count_low).all()
        assert (wider.count_high >= table.count_high).all()


def test_the_error_of_an_unbiased_count_is_its_standard_error():
    table = with_errors(NOISY, "mle").table("age", "sex")
    np.testing.assert_allclose(table.count_error, table.std_error, rtol=1e-12)
    np.testing.assert_array_equal(table.count_low, table.ci_low)
    np.testing.assert_array_equal(table.count_high, np.maximum(table.ci_high, 1))


def test_queries_have_errors_and_a_cell_asked_for_has_that_of_the_table():
    release = with_errors(NOISY)
    table, cell = release.table("age", "sex"), release.query("sex = 'M'", by=["age"])
    np.testing.assert_allclose(cell.count_error, table.count_error[:, 1], rtol=1e-12)
    assert release.query("age > 17").count_error > 0


def test_noise_without_a_single_variance_has_no_errors():
    release = with_errors(laplace())
    assert release.errors is None
    table = release.table("sex")
    assert (table.count_error, table.count_low, table.count_high, table.reliability()) == (None, None, None, None)


def test_without_errors_nothing_is_learned_and_columns_are_as_before():
    release = mg.reconstruct(NOISY, WORKLOAD)
    assert release.errors is None
    assert release.table("sex").to_arrow().column_names == [
        "sex",
        "count",
        "estimate",
        "std_error",
        "ci_low",
        "ci_high",
    ]


def test_whole_numbers_have_the_error_of_rounding_as_well():
    table = with_errors(NOISY).table("age", "sex")
    assert (table.rounded().count_error >= table.count_error).all()
    assert (table.rounded().count_error <= np.hypot(table.count_error, 1)).all()


def test_zero_is_never_certain():
    low, high = count_interval(np.array([0.0, 0.2]), np.array([0.1, 0.1]), np.array([-5.0, -5.0]), 0.1, 0.95)
    assert low.tolist() == [0, 0]
    assert high.tolist() == [1, 1]


def test_intervals_are_whole_contain_the_count_and_reach_the_estimate():
    low, high = count_interval(np.array([10.4]), np.array([1.0]), np.array([20.0]), 4.0, 0.95)
    # 1.96 × 1.2 below the count, and towards the estimate as far as the width of its own interval allows.
    assert (low, high) == (9, 24)
    low, high = count_interval(np.array([10.4]), np.array([0.1]), None, None, 0.95)
    assert (low, high) == (10, 11)


def test_intervals_reach_towards_the_estimate_but_not_beyond_what_contains_the_count():
    counts, errors, estimate = np.array([10.4, 10.4, 10.4]), np.array([1.0, 1.0, 1.0]), np.array([20.0, 20.0, -9.0])
    low, high = count_interval(counts, errors, estimate, 4.0, 0.95, largest=np.array([18.0, 11.0, 11.0]))
    # The count's own reach, to 12, stays even where what contains it ends before.
    assert high.tolist() == [18, 12, 12]
    assert low.tolist() == [9, 9, 0]


def test_an_estimate_of_a_first_measurement_counts_by_its_own_error_and_the_count_by_all_noise():
    counts, errors, estimate = np.array([100.0]), np.array([7.0]), np.array([104.0])
    low, high = count_interval(counts, errors, estimate, 20.0, 0.95, noise=5.0)
    # 0.65 × 1.96 × 20 around the estimate; by itself the count reaches 0.98 × 1.96 × 5.
    assert (low, high) == (79, 129)
    low, high = count_interval(counts, errors, None, None, 0.95, noise=5.0)
    assert (low, high) == (91, 109)


def test_intervals_are_not_wider_than_those_of_the_estimate():
    draw = np.random.default_rng(5)
    counts, errors, estimate = draw.gamma(1, 40, 4000), draw.gamma(1, 20, 4000) + 0.1, draw.normal(40, 40, 4000)
    low, high = count_interval(counts, errors, estimate, 8.0, 0.95)
    # Of methods that do not add to the noise.
    near = (np.abs(counts - estimate) < 8) & (errors <= 12)
    # One person for ends that are whole numbers around the count.
    assert ((high - low)[near] <= 2 * 1.96 * 8 + 1).all()
    assert (low <= counts).all()
    assert (high >= counts).all()


def test_counts_that_a_method_makes_worse_have_intervals_of_their_own_error():
    low, high = count_interval(np.array([500.0]), np.array([100.0]), np.array([400.0]), 5.0, 0.95)
    assert low <= 500 - 1.96 * 100
    assert high >= 500 + 1.96 * 100


def test_words_follow_the_relative_error_with_a_floor_for_small_counts():
    counts, errors = np.array([100.0, 100, 100, 0, 2, 2]), np.array([12.0, 40, 41, 0.9, 2.9, 3.1])
    care, uncertain = "use with care", "too uncertain to quote"
    assert Bounds().judge(counts, errors).tolist() == ["reliable", care, uncertain, "reliable", care, uncertain]
    assert Bounds(reliable=0.5, care=0.5).judge(counts, errors).tolist()[:3] == ["reliable"] * 3


@pytest.mark.parametrize("method", METHODS)
def test_errors_are_saved_and_read_back(tmp_path, method):
    release = with_errors(NOISY, method)
    release.save(tmp_path / "out", csv=True)
    loaded = mg.load(tmp_path / "out", strict=True)
    assert same(release, loaded)
    assert (loaded.errors.seed, loaded.errors.draws) == (release.errors.seed, release.errors.draws)
    assert mg.verify(tmp_path / "out") == ()
    parquet = pq.read_table(tmp_path / "out" / "tables" / "age.sex.parquet")
    with (tmp_path / "out" / "tables" / "age.sex.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    table = release.table("age", "sex")
    for name, values in (("count_error", table.count_error), ("count_low", table.count_low)):
        np.testing.assert_array_equal(parquet[name].to_numpy(), values.ravel())
        np.testing.assert_array_equal([float(row[name]) for row in rows], values.ravel())
    assert (
        [row["reliability"] for row in rows]
        == parquet["reliability"].to_pylist()
        == table.reliability().ravel().tolist()
    )
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "`count_error`: how far, typically, `count` is from the true count" in page


def test_errors_of_earlier_versions_are_read_as_they_were_meant(tmp_path):
    """Their files have neither spread nor noise: the squared error is B g."""
    release = with_errors(NOISY)
    older = replace(release, errors=replace(release.errors, spread=None, noise=None))
    older.save(tmp_path / "out")
    loaded = mg.load(tmp_path / "out", strict=True)
    assert loaded.errors.spread is None
    assert loaded.errors.noise is None
    table, before = (one.table("age", "sex") for one in (loaded, older))
    np.testing.assert_array_equal(table.count_error, before.count_error)
    assert (table.count_error != release.table("age", "sex").count_error).any()


def test_after_several_measurements_errors_are_of_all_of_them(tmp_path):
    """The estimate is of the first measurement alone, the count of all: it is not held by the interval of the first."""
    rows = np.random.default_rng(2).integers(0, [attribute.size for attribute in DOMAIN], (4000, len(DOMAIN)))
    source = mg.CodedTable(DOMAIN, {attribute.name: rows[:, k] for k, attribute in enumerate(DOMAIN)})
    noisy = mg.adaptive_planner(
        source,
        WORKLOAD,
        mg.Budget.zcdp(rho=0.5),
        contributions=1,
        sampler=gaussian_sampler(source=InsecureSeededSource(6)),
    )
    release = with_errors(noisy)
    table = release.table("age", "sex")
    assert table.noise < 0.9 * table.std_error
    release.save(tmp_path / "out")
    assert mg.load(tmp_path / "out").table("age", "sex").noise == table.noise


def test_a_release_of_some_tables_has_the_errors_of_the_whole():
    """What a worker writes: an outer table with all that is inside."""
    release = with_errors(NOISY)
    layout = release.estimates.layout
    for place in range(layout.outer, len(layout.sets)):
        names = DOMAIN.names(layout.sets[place])
        part, whole = release.restricted(place, place + 1).table(*names), release.table(*names)
        np.testing.assert_array_equal(part.count_error, whole.count_error)
        np.testing.assert_array_equal(part.count_high, whole.count_high)
        assert part.noise == whole.noise


def test_errors_that_are_damaged_are_refused(tmp_path):
    with_errors(NOISY).save(tmp_path / "out")
    file = tmp_path / "out" / "errors.npz"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"\1")
    with pytest.raises(DamageError, match="its checksum is wrong"):
        mg.load(tmp_path / "out")
    file.write_bytes(b"nothing")
    reseal(tmp_path / "out")
    with pytest.raises(DamageError, match=r"errors\.npz"):
        mg.load(tmp_path / "out")
    release = with_errors(NOISY)
    for wrong, words in (
        ({"noise": -np.ones_like(release.errors.noise)}, "a variance is negative or no number"),
        ({"spread": -np.ones_like(release.errors.spread)}, "an error is negative or no finite number"),
    ):
        replace(release, errors=replace(release.errors, **wrong)).save(tmp_path / words)
        with pytest.raises(DamageError, match=words):
            mg.load(tmp_path / words)


def test_bounds_of_a_release_are_saved_and_decide_about_every_word(tmp_path):
    bounds = Bounds(reliable=0.01, care=0.02, floor=0)
    release = mg.reconstruct(NOISY, WORKLOAD, errors=True, bounds=bounds)
    release.save(tmp_path / "out", csv=True)
    loaded = mg.load(tmp_path / "out", strict=True)
    assert loaded.errors.bounds == bounds
    table, usual = loaded.table("age", "sex"), with_errors(NOISY).table("age", "sex")
    np.testing.assert_array_equal(table.reliability(), bounds.judge(table.values, table.count_error))
    np.testing.assert_array_equal(table.reliability(Bounds()), usual.reliability())
    assert (table.reliability() != usual.reliability()).any()
    share = loaded.share("sex = 'M'", by=["age"])
    assert (share.reliability() != share.reliability(Bounds(10, 10, 10))).any()
    assert mg.verify(tmp_path / "out") == ()
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "`reliable` (`count_error` up to 0.01 of the count, or up to 0)" in page


@pytest.mark.parametrize("wrong", [(0.5, 0.4, 1), (-0.1, 0.4, 1), (0.1, 0.4, -1), (float("nan"), 1, 1), ("a", 1, 1)])
def test_bounds_that_say_nothing_are_refused(wrong):
    with pytest.raises(ReleaseError, match=r"the bounds are .*; give the relative error up to which"):
        Bounds(*wrong)


def test_sdmx_has_errors_and_codes_of_observation_status(tmp_path):
    release = with_errors(NOISY)
    write_sdmx(release, tmp_path / "data.csv", agency="OFFICE", dataflow="SURVEY", tables=[("age", "sex")])
    with (tmp_path / "data.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    table = release.table("age", "sex")
    codes = {"reliable": "A", "use with care": "U", "too uncertain to quote": "N"}
    assert [row["OBS_STATUS"] for row in rows] == [codes[word] for word in table.reliability().ravel()]
    assert [float(row["COUNT_HIGH"]) for row in rows] == table.count_high.ravel().tolist()
    write_sdmx(release, tmp_path / "both.csv", agency="OFFICE", dataflow="SURVEY", labels="both")
    with (tmp_path / "both.csv").open(encoding="utf-8", newline="") as stream:
        found = {row["OBS_STATUS: reliability of the count"] for row in csv.DictReader(stream)}
    assert found
    assert found <= {"A: Normal value", "U: Low reliability", "N: Not significant"}


def test_an_attribute_may_be_called_as_a_column_of_errors(tmp_path):
    domain = mg.Domain.fromdict({"reliability": 2, "count_error": 3})
    workload = mg.Workload.all_kway(domain, 2)
    noisy = mg.Measurements.from_marginals(
        domain, [(("reliability", "count_error"), np.arange(6.0).reshape(2, 3), 1.0)]
    )
    release = mg.reconstruct(noisy, workload, errors=True)
    release.save(tmp_path / "out", csv=True)
    assert "reliability_" in release.table("reliability", "count_error").to_arrow().column_names
    assert mg.load(tmp_path / "out", strict=True).errors is not None
    plain = mg.reconstruct(noisy, workload)
    plain.save(tmp_path / "plain", csv=True)
    assert mg.load(tmp_path / "plain", strict=True).errors is None


def test_frames_have_the_errors_too():
    table = with_errors(NOISY).table("age", "sex")
    assert table.to_pandas()["count_error"].tolist() == table.count_error.ravel().tolist()
    assert table.to_polars()["reliability"].to_list() == table.reliability().ravel().tolist()
    assert len(DOMAIN) == 4


def test_weights_of_the_paper_have_no_errors_where_plain_means_are_taken():
    tables = [(("age", "sex"), np.arange(6.0).reshape(3, 2), 1.0), (("sex",), np.array([6.0, 9.0]), 1.0)]
    noisy = mg.Measurements.from_marginals(DOMAIN, tables)
    workload = mg.Workload(DOMAIN, [("age", "sex")])
    paper = mg.methods.NonNegative(weights="paper", strict=False)
    assert mg.reconstruct(noisy, workload, method=paper, errors=True).errors is None
    once = mg.Measurements.from_marginals(DOMAIN, tables[:1])
    assert mg.reconstruct(once, workload, method=paper, errors=True).errors is not None
