"""A table shows two products side by side, says why one has no error bar, and goes to frames in long form."""

import pickle
import re
import sys

import numpy as np
import pytest

from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.domain import Attribute, Domain
from margrave.domain.values import distinct_categories
from margrave.errors import ReleaseError
from margrave.measurements import Gaussian, Laplace, Measurements
from margrave.release.publication import reconstruct
from margrave.workload import Workload

DOMAIN = Domain(
    [
        Attribute("age", cuts=(17, 64), missing="unknown"),
        Attribute("sex", labels=("F", "M")),
        Attribute("region", labels=("north", "süd", "a/b")),
    ]
)
WORKLOAD = Workload(DOMAIN, [("age", "sex"), ("sex", "region")])
GENERATOR = np.random.default_rng(3)
NOISY = Measurements.from_marginals(
    DOMAIN,
    [
        (("age", "sex"), GENERATOR.normal(1, 3, size=(4, 2)), 4.0),
        (("sex", "region"), GENERATOR.normal(2, 3, size=(2, 3)), 1.0),
    ],
)
COLUMNS = ["count", "estimate", "std_error", "ci_low", "ci_high"]


@pytest.fixture(scope="module")
def release():
    return reconstruct(NOISY, WORKLOAD, method="lnn")


def test_the_estimate_is_the_maximum_likelihood_table_whatever_the_method(release):
    unbiased = reconstruct(NOISY, WORKLOAD, method="mle")
    for names in [("age", "sex"), ("sex", "age"), ("region",), ("sex",), ()]:
        expected = unbiased.table(*names).values
        assert np.array_equal(unbiased.table(*names).estimate, expected)
        for made in (release, reconstruct(NOISY, WORKLOAD, method="trunc")):
            # The sums are taken in another order, table by table: the last digits may differ.
            np.testing.assert_allclose(made.table(*names).estimate, expected, rtol=1e-13, atol=1e-13)
    assert (release.table("age", "sex").values >= 0).all()
    assert (release.table("age", "sex").estimate < 0).any()


def test_the_interval_belongs_to_the_estimate(release):
    table = release.table("sex", "age")
    reach = 1.959963984540054 * table.std_error
    np.testing.assert_allclose(table.ci_low_raw, table.estimate - reach, rtol=1e-14)
    np.testing.assert_allclose(table.ci_high_raw, table.estimate + reach, rtol=1e-14)
    assert table.std_error == table.variance**0.5
    assert (table.ci_low >= 0).all()
    assert table.level == 0.95
    assert table.note == ""


def test_the_level_can_be_set_for_a_table_or_asked_for_later(release):
    wide, usual = release.table("age", "sex", level=0.99), release.table("age", "sex")
    asked = usual.interval(0.99)
    assert asked.level == wide.level == 0.99
    for mine, other in [(wide.ci_low, asked.low), (wide.ci_high, asked.high), (wide.ci_low_raw, asked.low_raw)]:
        assert np.array_equal(mine, other)
    assert (wide.ci_high_raw > usual.ci_high_raw).all()
    for refuse in (lambda: release.table("age", level=95), lambda: usual.interval(95)):
        with pytest.raises(ReleaseError, match="the level is 95; give a probability above 0 and below 1"):
            refuse()


def test_an_attribute_may_be_called_level():
    domain = Domain.fromdict({"level": 2, "count": 3})
    noisy = Measurements.from_marginals(domain, [(("level", "count"), np.ones((2, 3)), 1.0)])
    table = reconstruct(noisy, Workload(domain, [("level", "count")])).table("level", "count", level=0.9)
    assert table.attributes == ("level", "count")
    assert table.level == 0.9


def test_arrays_of_a_table_are_read_only(release):
    table = release.table("sex", "age")
    for array in (table.values, table.estimate, table.ci_low, table.ci_high_raw, table.rounded().values):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_table_that_is_not_determined_has_neither_estimate_nor_interval_and_says_what_is_missing():
    release = reconstruct(NOISY, Workload(DOMAIN, [("age", "region"), ("age", "sex")]), method="mle")
    table = release.table("age", "region")
    assert not table.determined
    for number in (table.estimate, table.std_error, table.ci_low, table.ci_high, table.ci_low_raw, table.ci_high_raw):
        assert number is None
    assert table.interval(0.5) is None
    assert table.note == ("no interval: the measurements do not determine these counts (never measured: age × region)")
    assert repr(table) == f"Table(age × region, 12 cells; {table.note})"


def test_the_note_names_no_more_than_three_missing_tables():
    noisy = Measurements.from_marginals(DOMAIN, [((), 9.0, 1.0)])
    note = reconstruct(noisy, WORKLOAD, method="mle").table("age", "sex").note
    assert note.endswith("(never measured: age, sex, age × sex)")
    workload = Workload(DOMAIN, [("age", "sex", "region")])
    note = reconstruct(noisy, workload, method="mle").table("age", "sex", "region").note
    assert note.endswith("(never measured: age, sex, age × sex, …)")


@pytest.mark.parametrize(
    "noise", [Laplace(1.0), Gaussian(covariance=np.diag([1.0, 4.0, 9.0]))], ids=["Laplace", "several variances"]
)
def test_noise_without_a_single_variance_leaves_an_estimate_without_interval(noise):
    noisy = Measurements.from_residuals(DOMAIN, [((), 12.0, Gaussian(1.0)), (("age",), [1.0, 1.0, 0.0], noise)])
    table = reconstruct(noisy, Workload(DOMAIN, [("age",)]), method="mle").table("age")
    assert table.estimate.sum() == pytest.approx(12.0, rel=1e-14)
    assert table.std_error is None
    assert table.ci_low is None
    assert table.note == "no interval: the noise is not Gaussian with a single variance"


def test_adaptive_measurements_leave_an_estimate_without_interval(adaptive_release):
    table = adaptive_release.table("sex")
    assert np.array_equal(table.estimate, table.values)
    assert table.std_error is None
    assert table.interval(0.9) is None
    assert table.note == (
        "no interval: what was measured was chosen after seeing earlier noise (adaptive measurements)"
    )


@pytest.fixture
def adaptive_release():
    from margrave import CodedTable
    from margrave.mechanisms.scalable_mwem import scalable_mwem
    from margrave.privacy.budget import Budget

    domain = Domain.fromdict({"sex": 2})
    workload = Workload(domain, [("sex",)])
    source = CodedTable(domain, {"sex": [0, 1, 1]})
    noisy = scalable_mwem(source, workload, Budget.zcdp(rho=1), contributions=1, rounds=1)
    return reconstruct(noisy, workload, method="mle")


def test_the_long_form_has_a_row_a_cell_in_the_order_asked_for(release):
    table = release.table("region", "sex")
    arrow = table.to_arrow()
    assert arrow.column_names == ["region", "sex", *COLUMNS]
    assert arrow["region"].to_pylist() == ["north", "north", "süd", "süd", "a/b", "a/b"]
    assert arrow["sex"].to_pylist() == ["F", "M"] * 3
    assert arrow["count"].to_pylist() == table.values.ravel().tolist()
    assert arrow["estimate"].to_pylist() == table.estimate.ravel().tolist()
    assert arrow["std_error"].to_pylist() == [table.std_error] * 6
    assert arrow["ci_low"].to_pylist() == table.ci_low.ravel().tolist()
    assert arrow["ci_high"].to_pylist() == table.ci_high.ravel().tolist()
    assert arrow.schema.field("region").type.ordered
    assert arrow.schema.metadata == {b"level": b"0.95", b"note": b""}


def test_the_total_in_long_form_is_one_row(release):
    arrow = release.table().to_arrow()
    assert arrow.column_names == COLUMNS
    assert arrow.num_rows == 1
    assert arrow["count"].to_pylist() == [float(release.table().values)]


def test_numbers_that_do_not_exist_are_nulls():
    release = reconstruct(NOISY, Workload(DOMAIN, [("age", "region")]), method="mle")
    arrow = release.table("age", "region").to_arrow()
    assert arrow["count"].null_count == 0
    for name in COLUMNS[1:]:
        assert arrow[name].null_count == 12
    assert b"never measured: age \xc3\x97 region" in arrow.schema.metadata[b"note"]


def test_pandas_gets_ordered_categoricals(release):
    frame = release.table("age", "sex").to_pandas()
    assert list(frame.columns) == ["age", "sex", *COLUMNS]
    assert list(frame["age"].cat.categories) == ["≤ 17", "(17, 64]", "> 64", "unknown"]
    assert frame["age"].cat.ordered
    wide = frame.pivot_table(index="age", columns="sex", values="count", observed=False)
    assert np.array_equal(wide.to_numpy(), release.table("age", "sex").values)


def test_polars_gets_enums(release):
    import polars as pl

    frame = release.table("region", "sex").to_polars()
    assert frame.schema["region"] == pl.Enum(["north", "süd", "a/b"])
    assert frame.columns == ["region", "sex", *COLUMNS]
    assert np.array_equal(frame["count"].to_numpy(), release.table("region", "sex").values.ravel())
    assert frame.sort("region")["region"].to_list()[0] == "north"


@pytest.mark.parametrize(("package", "method"), [("pandas", "to_pandas"), ("polars", "to_polars")])
def test_a_frame_library_that_is_not_there_is_named(release, package, method, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    text = f"{package} is not installed; install it with 'pip install {package}', or use to_arrow() instead"
    with pytest.raises(ReleaseError, match=re.escape(text)):
        getattr(release.table("sex"), method)()


def test_attributes_keep_their_names_and_numbers_give_way():
    domain = Domain.fromdict({"count": 2, "count_": 2, "estimate": 2})
    noisy = Measurements.from_marginals(domain, [(("count", "count_", "estimate"), np.ones((2, 2, 2)), 1.0)])
    release = reconstruct(noisy, Workload(domain, [("count", "count_", "estimate")]))
    table = release.table("count", "count_", "estimate")
    expected = ["count", "count_", "estimate", "count__", "estimate_", "std_error", "ci_low", "ci_high"]
    assert table.to_arrow().column_names == expected
    assert list(table.to_pandas().columns) == expected
    assert table.to_polars().columns == expected


def test_categories_that_read_the_same_are_told_apart():
    domain = Domain([Attribute("code", labels=(1, "1", "1 (code 1)"))])
    noisy = Measurements.from_marginals(domain, [(("code",), [1.0, 2.0, 3.0], 1.0)])
    table = reconstruct(noisy, Workload(domain, [("code",)])).table("code")
    names = ["1", "1 (code 1)′", "1 (code 1)"]
    assert table.to_arrow()["code"].to_pylist() == names
    assert table.to_pandas()["code"].tolist() == names
    assert table.to_polars()["code"].to_list() == names
    assert distinct_categories(["a", "b"]) == ("a", "b")


def test_rounded_tables_hold_whole_numbers_that_keep_the_total(release):
    table = release.table("age", "sex")
    rounded = table.rounded()
    assert rounded.values.sum() == round(table.values.sum())
    assert rounded.to_arrow().schema.field("count").type == "int64"
    assert rounded.whole
    assert not table.whole
    assert np.array_equal(rounded.estimate, table.estimate)
    with pytest.raises(ReleaseError, match="the table has negative counts, and whole numbers are for tables without"):
        reconstruct(NOISY, WORKLOAD, method="mle").table("age", "sex").rounded()


def test_a_table_shows_what_it_is_and_no_more(release):
    table = release.table("age", "sex")
    assert repr(table) == f"Table(age × sex, 8 cells; standard error of the estimate {table.std_error:.4g})"
    assert repr(release.table()).startswith("Table(the total, 1 cell; standard error of the estimate ")


def test_a_release_keeps_the_measurements_it_was_made_from():
    for method in ("lnn", "mle", "trunc", "trunc+rescale"):
        assert reconstruct(NOISY, WORKLOAD, method=method).measurements is NOISY


# A table is a plain value


@pytest.mark.parametrize("name", ["age", "sex"])
def test_a_table_pickles_as_large_as_its_cells_and_comes_back_read_only(release, name):
    table = release.table(name)
    assert table.ci_low is not None  # what was computed from the fields is not taken along
    text = pickle.dumps(table)
    assert len(text) < 600 + 16 * table.values.size
    back = pickle.loads(text)
    assert back.attributes == table.attributes
    assert back.categories == table.categories
    assert (back.variance, back.note, back.level, back.whole, back.direct) == (
        table.variance,
        table.note,
        table.level,
        table.whole,
        table.direct,
    )
    for mine, other in [(back.values, table.values), (back.estimate, table.estimate), (back.ci_low, table.ci_low)]:
        assert np.array_equal(mine, other)
        assert not mine.flags.writeable


@pytest.mark.parametrize("method", ["lnn", "mle", "trunc"])
def test_an_estimate_is_made_of_the_residuals_inside_its_table_alone(method, monkeypatch):
    release = reconstruct(NOISY, WORKLOAD, method=method)
    laid_out = []
    of = Layout.of.__func__
    monkeypatch.setattr(
        Layout, "of", classmethod(lambda cls, *given, **kw: laid_out.append(1) or of(cls, *given, **kw))
    )
    everything = transform.reconstruct(release.estimates.layout, np.array(release.estimates.values))
    for names in WORKLOAD.closure:
        table = release.table(*names)
        place = release.estimates.layout.places[DOMAIN.positions(names)]
        expected = release.estimates.layout.view(everything, place)
        # The sums are taken in another order than in one pass over all tables: the last digits may differ.
        np.testing.assert_allclose(table.estimate, expected, rtol=1e-13, atol=1e-13)
    assert release.query("sex = 'F'").estimate is not None
    assert not laid_out
