"""A new method is one class and one line in the registry: a toy goes from measurements to the command line."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import margrave as mg
from margrave import methods
from margrave.cli import app
from margrave.errors import ReleaseError, StoreError
from margrave.methods.method import Made, Method, Request, Words
from margrave.options import option
from margrave.release.export.registry import registry_entry
from margrave.release.report import report

DOMAIN = mg.Domain.fromdict({"age": 3, "sex": ["F", "M"]})
WORKLOAD = mg.Workload(DOMAIN, [("age", "sex"), ("sex",)])
NOISY = mg.Measurements.from_marginals(DOMAIN, [(("age", "sex"), [[10.4, 8], [2.2, -3], [5, 7]], 4.0)])


@dataclass(frozen=True)
class Toy(Method):
    """Unbiased tables rounded to multiples of a step: neither non-negative nor in agreement."""

    step: int = option(5, "What counts are rounded to.")

    arrays: ClassVar[float] = 3.0

    def __post_init__(self) -> None:
        if self.step not in range(1, 1000):
            raise ReleaseError(f"step is {self.step!r}; give a whole number from 1 to 999")

    @property
    def name(self) -> str:
        return "toy"

    @property
    def words(self) -> Words:
        return Words(
            counts="toy counts",
            count="toy count",
            column="the estimate, rounded by a toy",
            report="The toy count is the estimate rounded by a toy.",
            registry="Estimates rounded by a toy.",
        )

    def make(self, request: Request) -> Made:
        unbiased = methods.MaximumLikelihood().make(request)
        return Made(self.step * np.rint(unbiased.marginals / self.step))


@pytest.fixture
def registered(monkeypatch):
    """The one line, for the time of a test."""
    monkeypatch.setattr(methods, "REGISTERED", [*methods.REGISTERED, Toy()])


def test_a_method_outside_the_registry_is_taken_as_an_object_but_not_by_name():
    release = mg.reconstruct(NOISY, WORKLOAD, method=Toy(step=10))
    assert release.table("sex").values.tolist() == [20.0, 10.0]
    assert repr(release) == "Release(2 tables by 'toy')"
    with pytest.raises(ReleaseError, match=r"^no method 'toy' \(the names are lnn, mle, trunc, trunc\+rescale;"):
        mg.reconstruct(NOISY, WORKLOAD, method="toy")


def test_a_toy_goes_through_release_report_save_and_load(registered, tmp_path):
    release = mg.reconstruct(NOISY, WORKLOAD, method="toy")
    assert release.method == Toy()
    # Its tables do not agree: a table outside the workload is summed from the first one that holds it.
    assert release.table("age").values.tolist() == [20.0, -5.0, 10.0]
    other = mg.reconstruct(NOISY, WORKLOAD, method=Toy(step=1))
    page = report(other, title="Toys")
    for text in ("The toy count is the estimate rounded by a toy.", "toy counts (toy)", "step=1"):
        assert text in page
    assert "Estimates rounded by a toy." in registry_entry(other)
    other.save(tmp_path / "out")
    again = mg.load(tmp_path / "out")
    assert again.method == Toy(step=1)
    assert again.marginals.tobytes() == other.marginals.tobytes()
    assert "`count`: the estimate, rounded by a toy;" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_a_margrave_without_the_method_says_so(registered, monkeypatch, tmp_path):
    mg.reconstruct(NOISY, WORKLOAD, method="toy").save(tmp_path / "out")
    monkeypatch.undo()
    with pytest.raises(StoreError, match="was made by the method 'toy', this margrave knows lnn, mle, trunc"):
        mg.load(tmp_path / "out")


def test_a_toy_goes_through_the_command_line(registered, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    NOISY.save("noisy.npz")
    words = ["reconstruct", "noisy.npz", "--tables", "age,sex", "--tables", "sex", "--method", "toy", "--out", "out"]
    assert app.run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "toy"
    assert mg.load("out").method == Toy()
    assert app.run([*words, "--overwrite", "--step", "3"]) == 0
    assert mg.load("out").method == Toy(step=3)
    assert "toy counts (toy)" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", methods.REGISTERED, ids=lambda method: method.name)
def test_every_registered_method_keeps_what_it_promises(method, tmp_path):
    assert method.__doc__
    assert method == methods.read(json.loads(json.dumps(method.to_dict())))
    assert method.options_text() == ("rescale=True" if method.name == "trunc+rescale" else "the defaults")
    words = method.words
    assert all((words.counts, words.count, words.column, words.registry))
    assert bool(words.report) is not method.unbiased
    release = mg.reconstruct(NOISY, WORKLOAD, method=method)
    if method.nonnegative:
        assert (release.marginals >= 0).all()
    else:
        assert (release.marginals < 0).any()
    summed = release.table("age", "sex").values.sum(axis=0)
    assert np.allclose(summed, release.table("sex").values, rtol=1e-12) is method.agree
    assert np.allclose(release.table("age", "sex").values, release.table("age", "sex").estimate) is method.unbiased
    release.save(tmp_path / "out")
    assert mg.load(tmp_path / "out").method == method


def test_names_are_unique_and_the_default_is_the_first():
    assert methods.names() == ("lnn", "mle", "trunc", "trunc+rescale")
    assert methods.names()[0] == methods.DEFAULT
    assert mg.reconstruct(NOISY, WORKLOAD).method.name == methods.DEFAULT


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("lnn", "this is not one"),
        ({"name": "lnn"}, "this is not one"),
        ({"name": "lnn", "options": {}, "more": 1}, "this is not one"),
        ({"name": 3, "options": {}}, "no method"),
        ({"name": "lnn", "options": {1: 2}}, "the options of the method 'lnn' are not a JSON object"),
        ({"name": "mle", "options": {"step": 1}}, r"MaximumLikelihood has no option 'step' \(it has no options\)"),
        ({"name": "lnn", "options": {}, "note": ""}, "the note of the method 'lnn' is not a text of at most 1,000"),
        ({"name": "trunc", "options": {"rescale": 1}}, "rescale is 1; give True or False"),
    ],
)
def test_what_is_not_a_recorded_method_is_refused(document, text):
    with pytest.raises(ReleaseError, match=text):
        methods.read(document)
