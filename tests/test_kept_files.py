"""Files that earlier versions wrote, kept as they were: every later version reads them and finds the same numbers."""

import json
import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from keep import COLUMNS, keep

import margrave as mg

KEPT = Path(__file__).parent / "kept"
# Versions from 0.2 on, whose files `make keep` wrote. Files of the version at work are read like the others, but its
# learned errors may still be computed in another way until it is released.
LATER = sorted(folder.name for folder in KEPT.iterdir() if folder.name != "0.1")
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
AT_WORK = ".".join(PROJECT["version"].split(".")[:2])
FIRST = KEPT / "0.1"
EXPECTED = json.loads((FIRST / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_kept_release_has_the_numbers_it_was_written_with(name):
    release = mg.load(FIRST / name)
    assert len(EXPECTED[name]["tables"]) == len(release.workload.closure)
    for expected in EXPECTED[name]["tables"].values():
        table = release.table(*expected["names"])
        assert table.values.ravel().tolist() == expected["count"]
        frame = table.to_arrow()
        for column in ("estimate", "std_error"):
            if expected[column] is not None:
                found = np.array(frame.column(column).to_pylist(), dtype=float)
                # The order of sums may change, and with it the last digits.
                np.testing.assert_allclose(found, np.array(expected[column], dtype=float), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_kept_release_has_the_name_of_its_method_and_says_that_its_options_are_not_recorded(name, tmp_path):
    release = mg.load(FIRST / name)
    assert isinstance(release.method, mg.methods.Unrecorded)
    assert release.method.name == json.loads((FIRST / name / "manifest.json").read_text(encoding="utf-8"))["method"]
    note = "options not recorded: the release was saved by margrave 0.1"
    assert release.method.options_text() == note
    # It can be saved again, and says the same then.
    release.save(tmp_path / "again")
    assert mg.load(tmp_path / "again").method == release.method


@pytest.mark.parametrize("kind", ["planned", "mwem", "foreign", "laplace"])
def test_kept_measurements_are_read_and_reconstruct(kind):
    noisy = mg.Measurements.load(FIRST / f"{kind}.npz")
    assert noisy.domain == mg.Domain.read(FIRST / "domain.json")
    if kind in ("planned", "mwem"):
        assert noisy.provenance is not None
        assert noisy.provenance.private
        assert noisy.provenance.rho == Fraction("8631380090799389/576460752303423488")
    else:
        assert noisy.provenance is None
    workload = mg.Workload(noisy.domain, [("age", "sex"), ("sex",)])
    expected = next((value for name, value in EXPECTED.items() if name == f"{kind}-mle"), None)
    table = mg.reconstruct(noisy, workload, method="mle").table("age", "sex")
    if expected is not None:
        np.testing.assert_allclose(
            table.values.ravel(), expected["tables"]["age × sex"]["count"], rtol=1e-12, atol=1e-9
        )
    assert np.isfinite(table.values).all()


def test_a_kept_ledger_goes_on_from_what_was_spent(tmp_path):
    copy = tmp_path / "survey.ledger"
    copy.write_bytes((FIRST / "survey.ledger").read_bytes())
    ledger = mg.Ledger(copy)
    spent = 2 * Fraction("8631380090799389/576460752303423488")
    assert ledger.spent == spent
    assert len(ledger.entries()) == 2
    assert ledger.cap == Fraction("4344439855288791/36028797018963968")
    ledger.charge(mg.Budget.zcdp(rho=0.001), "one more")
    assert mg.Ledger(copy).spent > spent


def check(folder, *, errors):
    """Read all files that `make keep` wrote, and compare their numbers with those that were noted."""
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    domain = mg.Domain.read(folder / "domain.json")
    assert domain["régio/n"].categories == ("nord, est", 'so"uth', "=1+1", "“west”\nland")
    for name, noted in expected["measurements"].items():
        noisy = mg.Measurements.load(folder / f"{name}.npz")
        assert noisy.domain == domain
        assert [list(names) for names in noisy.sets] == noted["sets"]
        if noted["rho"] is None:
            assert noisy.provenance is None
        else:
            assert noisy.provenance.private
            assert noisy.provenance.rho == Fraction(noted["rho"])
    for name, noted in expected["releases"].items():
        assert mg.verify(folder / name) == ()
        release = mg.load(folder / name)
        assert release.method.to_dict() == noted["method"]
        assert len(noted["tables"]) == len(release.workload.closure)
        for values in noted["tables"].values():
            table = release.table(*values["names"])
            assert table.values.ravel().tolist() == values["count"]
            frame = table.to_arrow()
            assert {column for column in COLUMNS if column in values} <= set(frame.column_names)
            for column in COLUMNS if errors else COLUMNS[:2]:
                if column in values:
                    found = np.array(frame.column(column).to_pylist(), dtype=float)
                    # The order of sums may change, and with it the last digits.
                    np.testing.assert_allclose(found, np.array(values[column], dtype=float), rtol=1e-12, atol=1e-12)
    ledger = mg.Ledger(folder / "survey.ledger")
    assert str(ledger.spent) == expected["ledger"]["spent"]
    assert str(ledger.cap) == expected["ledger"]["cap"]
    assert len(ledger.entries()) == expected["ledger"]["entries"]


def test_files_of_every_version_are_read_with_the_numbers_they_were_written_with():
    for version in LATER:
        check(KEPT / version, errors=version != AT_WORK)


def test_what_is_kept_at_a_release_can_be_written_and_read(tmp_path):
    keep(tmp_path / "kept")
    check(tmp_path / "kept", errors=True)
