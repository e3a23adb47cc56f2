"""A release answers any subset of its tables, in any order of the axes, and says what it does not cover."""

import dataclasses
import re

import numpy as np
import pytest

from margrave.domain import Domain
from margrave.errors import DomainError, ReleaseError
from margrave.measurements import Laplace, Measurements
from margrave.release.publication import reconstruct
from margrave.workload import Workload

DOMAIN = Domain.fromdict({"age": 4, "sex": 2, "region": 3, "income": 2})
WORKLOAD = Workload(DOMAIN, [("age", "sex"), ("sex", "region"), ("sex",)])
TABLES = [
    (("age", "sex"), np.random.default_rng(1).normal(3, 2, size=(4, 2)), 1.0),
    (("sex", "region"), np.random.default_rng(2).normal(3, 2, size=(2, 3)), 2.0),
]
NOISY = Measurements.from_marginals(DOMAIN, TABLES)


def refused(text, kind=ReleaseError):
    return pytest.raises(kind, match=re.escape(text))


def test_tables_follow_the_order_asked_for():
    release = reconstruct(NOISY, WORKLOAD, method="mle")
    straight, turned = release.table("age", "sex"), release.table("sex", "age")
    assert straight.attributes == ("age", "sex")
    assert turned.attributes == ("sex", "age")
    assert straight.values.shape == (4, 2)
    assert np.array_equal(turned.values, straight.values.T)
    assert straight.variance == turned.variance


@pytest.mark.parametrize("method", ["mle"])
def test_subsets_are_sums_of_any_table_that_holds_them(method):
    release = reconstruct(NOISY, WORKLOAD, method=method)
    sex = release.table("sex").values
    np.testing.assert_allclose(sex, release.table("age", "sex").values.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(sex, release.table("region", "sex").values.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(release.table().values, sex.sum(), rtol=1e-13)
    assert release.table().values.shape == ()


@pytest.mark.parametrize("method", ["trunc", "trunc+rescale"])
def test_truncated_tables_answer_for_themselves_and_others_are_summed_from_the_first_that_holds_them(method):
    tables = [(names, values - 3, variance) for names, values, variance in TABLES]
    release = reconstruct(Measurements.from_marginals(DOMAIN, tables), WORKLOAD, method=method)
    age, sex = release.table("age").values, release.table("sex").values
    assert np.array_equal(age, release.table("age", "sex").values.sum(axis=1))
    # ("sex",) was truncated by itself, and is not what the larger table, with more cells cut off, adds up to.
    assert not np.allclose(sex, release.table("age", "sex").values.sum(axis=0))
    # ("sex",) is the first table of the workload that holds the total.
    assert release.table().values == pytest.approx(sex.sum())
    assert all((table.values >= 0).all() for table in release.tables())


def test_rescaled_tables_have_the_total_of_maximum_likelihood():
    total = reconstruct(NOISY, WORKLOAD, method="mle").table().values
    release = reconstruct(NOISY, WORKLOAD, method="trunc+rescale")
    for table in release.tables():
        assert table.values.sum() == pytest.approx(total, rel=1e-14)


def test_all_tables_of_the_workload_come_in_canonical_order():
    release = reconstruct(NOISY, WORKLOAD, method="mle")
    assert [table.attributes for table in release.tables()] == list(WORKLOAD.sets)
    assert repr(release) == "Release(3 tables by 'mle')"
    assert repr(reconstruct(NOISY, Workload(DOMAIN, [()]), method="trunc")) == "Release(1 table by 'trunc')"


def test_tables_say_whether_they_are_determined_and_how_sure_they_are():
    workload = Workload(DOMAIN, [("age", "region"), ("sex", "region"), ("income",)])
    release = reconstruct(NOISY, workload, method="mle")
    assert release.table("sex", "region").determined
    assert 0 < release.table("sex", "region").variance < 2.0
    assert release.table("age").determined
    for names in [("age", "region"), ("income",)]:
        assert not release.table(*names).determined
        assert release.table(*names).variance is None


def test_noise_without_a_single_variance_leaves_a_determined_table_without_error_bar():
    noisy = Measurements.from_residuals(DOMAIN, [((), 10.0, Laplace(1.0)), (("sex",), [4.0], Laplace(1.0))])
    table = reconstruct(noisy, Workload(DOMAIN, [("sex",)]), method="mle").table("sex")
    assert table.values.tolist() == [7.0, 3.0]
    assert table.determined
    assert table.variance is None


def test_a_release_is_frozen():
    release = reconstruct(NOISY, WORKLOAD, method="mle")
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.method = "lnn"
    for array in (release.marginals, release.table("age").values, release.table("sex", "age").values):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.table("age").variance = 0.0
    assert release.solution is None
    assert release.workload is WORKLOAD


def test_what_no_table_covers_is_refused_with_what_comes_near():
    release = reconstruct(NOISY, WORKLOAD, method="mle")
    with refused(
        "no table of this release covers age × sex × region; tables that cover some of it: "
        "age × sex, sex × region, sex; put it into the workload and reconstruct again"
    ):
        release.table("age", "sex", "region")
    with refused("no attribute 'agee' in the domain; did you mean 'age'?", DomainError):
        release.table("agee")
    with refused("the table age × age names an attribute twice; name each once"):
        release.table("age", "age")
    total = reconstruct(NOISY, Workload(DOMAIN, [()]), method="mle")
    with refused("no table of this release covers age; put it into the workload"):
        total.table("age")


def test_only_tables_that_share_an_attribute_are_called_near():
    with refused("no table of this release covers income; put it into the workload"):
        reconstruct(NOISY, WORKLOAD, method="mle").table("income")


@pytest.mark.parametrize("method", ["mle", "lnn", "trunc"])
def test_noise_that_was_not_private_stays_marked_in_every_release(method):
    from fractions import Fraction

    from margrave.measurements import Provenance, Step

    record = Provenance(
        mechanism="experiment",
        steps=(Step("all", Fraction(1)),),
        rho=Fraction(1),
        epsilon=10.0,
        delta=1e-9,
        contributions=1,
        sampler="seeded",
        private=False,
        version="0",
    )
    release = reconstruct(NOISY.with_provenance(record), WORKLOAD, method=method)
    assert release.provenance is record
    assert reconstruct(NOISY, WORKLOAD, method=method).provenance is None


def test_measurements_that_depend_on_earlier_noise_give_no_standard_error():
    from margrave import CodedTable
    from margrave.mechanisms.scalable_mwem import scalable_mwem
    from margrave.privacy.budget import Budget

    table = CodedTable(DOMAIN, {a.name: [0, 1] for a in DOMAIN})
    noisy = scalable_mwem(table, WORKLOAD, Budget.zcdp(rho=1), contributions=1, rounds=2)
    assert noisy.provenance.adaptive
    release = reconstruct(noisy, WORKLOAD, method="mle")
    assert all(table.variance is None for table in release.tables())
