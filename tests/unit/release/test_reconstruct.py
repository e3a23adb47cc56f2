"""The verb: which method runs, and which requests are refused before anything is done."""

import re

import numpy as np
import pytest

import margrave
from margrave import methods
from margrave.domain import Domain
from margrave.errors import MeasurementError, MemoryLimitError, PlanError, ReleaseError
from margrave.measurements import Measurements
from margrave.methods import MaximumLikelihood, NonNegative, Truncated
from margrave.release.publication import reconstruct
from margrave.workload import Workload

DOMAIN = Domain.fromdict({"age": 4, "sex": 2, "region": 3})
WORKLOAD = Workload(DOMAIN, [("age", "sex"), ("sex", "region")])
NOISY = Measurements.from_marginals(DOMAIN, [(("age", "sex"), np.random.default_rng(1).normal(2, 2, (4, 2)), 1.0)])


def refused(text, error=ReleaseError):
    return pytest.raises(error, match=re.escape(text))


def test_a_start_must_be_a_solution_of_the_same_workload():
    linear = reconstruct(NOISY, WORKLOAD, method="mle")
    with refused("the release to start from was made by 'mle'; start from one by 'lnn'"):
        reconstruct(NOISY, WORKLOAD, start=linear)
    other = reconstruct(NOISY, Workload(DOMAIN, [("age",)]))
    with refused("the release to start from has other tables; start from one of the same workload"):
        reconstruct(NOISY, WORKLOAD, start=other)


@pytest.mark.parametrize("method", ["mle", "trunc", "trunc+rescale"])
def test_methods_without_rounds_start_from_nothing_and_report_no_progress(method):
    with refused(f"method {method!r} does not use a start; leave start out"):
        reconstruct(NOISY, WORKLOAD, method=method, start=reconstruct(NOISY, WORKLOAD))
    calls = []
    reconstruct(NOISY, WORKLOAD, method=method, progress=lambda steps, gap: calls.append(steps))
    assert not calls


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("lnn", NonNegative()),
        ("mle", MaximumLikelihood()),
        ("trunc", Truncated()),
        ("trunc+rescale", Truncated(rescale=True)),
    ],
)
def test_a_name_stands_for_a_method_with_its_usual_options(name, method):
    by_name, by_object = (reconstruct(NOISY, WORKLOAD, method=one) for one in (name, method))
    assert by_name.method == by_object.method == method
    assert by_name.method.name == name
    np.testing.assert_array_equal(by_name.marginals, by_object.marginals)


def test_a_method_that_is_not_there_is_refused_with_a_suggestion():
    known = "(the names are lnn, mle, trunc, trunc+rescale; an object of margrave.methods is taken too)"
    with pytest.raises(ReleaseError, match=re.escape(f"no method 'trunk'; did you mean 'trunc'? {known}")):
        reconstruct(NOISY, WORKLOAD, method="trunk")
    with pytest.raises(ReleaseError, match=re.escape(f"no method 3 {known}")):
        reconstruct(NOISY, WORKLOAD, method=3)


def test_a_workload_over_another_domain_is_refused():
    other = Domain.fromdict({"age": 4, "sex": ["F", "M"], "region": 3})
    text = "the workload is over Domain(age: 4, sex: 2, region: 3) and the measurements over Domain("
    with pytest.raises(PlanError, match=re.escape(text)):
        reconstruct(NOISY, Workload(other, [("age",)]), method="mle")


@pytest.mark.parametrize(("method", "arrays"), [("mle", 2.5), ("trunc", 2.5), ("trunc+rescale", 2.5), ("lnn", 4.2)])
def test_memory_is_checked_before_anything_is_laid_out(method, arrays):
    domain = Domain.fromdict({"a": 10**6, "b": 10**6})
    noisy = Measurements.from_marginals(domain, [((), 3.0, 1.0)])
    needed = f"{8 * arrays:.3g} TB"
    text = f"reconstruction of 1 table by {method!r} needs {needed} of memory"
    with pytest.raises(MemoryLimitError, match=re.escape(text)):
        reconstruct(noisy, Workload(domain, [("a", "b")]), method=method)
    # The same function is asked before a budget is spent.
    with pytest.raises(MemoryLimitError, match=re.escape(text)):
        methods.find(method).require_memory(Workload(domain, [("a", "b")]))


def test_the_public_names_are_there():
    assert margrave.reconstruct is reconstruct
    assert margrave.Measurements is Measurements
    assert margrave.methods.NonNegative is NonNegative
    assert {"Gaussian", "Laplace", "Release", "methods", "reconstruct"} <= set(dir(margrave))
    with pytest.raises(AttributeError, match="module 'margrave' has no attribute 'nothing'"):
        _ = margrave.nothing


def test_arguments_of_the_wrong_kind_are_named():
    with refused("expected Measurements, got a str; give Measurements, then the Workload", MeasurementError):
        reconstruct("noisy.npz", WORKLOAD)
    with refused("expected a Workload, got a list; make one, as in Workload.all_kway(domain, 3)", PlanError):
        reconstruct(NOISY, [("age", "sex")])
    with refused("expected a Release to start from, got a str"):
        reconstruct(NOISY, WORKLOAD, start="release")


@pytest.mark.parametrize("method", [NonNegative(weights=2.0), NonNegative(), NonNegative(weights="paper")], ids=str)
def test_arrays_on_disk_change_no_number(method, tmp_path):
    in_memory = reconstruct(NOISY, WORKLOAD, method=method)
    on_disk = reconstruct(NOISY, WORKLOAD, method=method, scratch=tmp_path)
    np.testing.assert_array_equal(on_disk.marginals, in_memory.marginals)
    assert not list(tmp_path.iterdir())
    on_disk.save(tmp_path / "saved")
    np.testing.assert_array_equal(margrave.load(tmp_path / "saved").marginals, in_memory.marginals)


def test_what_does_not_fit_into_memory_is_solved_on_disk(tmp_path, monkeypatch):
    """Twenty attributes of ten values, 1.2 million cells, of which one array in three would fit."""
    domain = Domain.fromdict({f"attribute{k}": 10 for k in range(20)})
    workload, generator = Workload.all_kway(domain, 3), np.random.default_rng(0)
    tables = [((name,), generator.normal(500, 40, 10), 1600.0) for name in domain.attributes]
    noisy = Measurements.from_marginals(domain, tables)
    method = NonNegative(weights=2.0)
    monkeypatch.setattr("margrave.memory.available_bytes", lambda: 8 * workload.cells / 3)
    with pytest.raises(MemoryLimitError, match="reconstruction of 1,140 tables by 'lnn' needs"):
        reconstruct(noisy, workload, method=method)
    # Learning errors works in memory, wherever the tables are.
    with pytest.raises(MemoryLimitError, match=re.escape("publish counts without errors (--no-errors, errors=False)")):
        reconstruct(noisy, workload, method=method, scratch=tmp_path, errors=True)
    release = reconstruct(noisy, workload, method=method, scratch=tmp_path)
    assert release.solution.marginals.min() >= 0
    total = release.table().values
    np.testing.assert_allclose(release.table("attribute0", "attribute7", "attribute19").values.sum(), total)
