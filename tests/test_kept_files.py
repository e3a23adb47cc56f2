"""Files that earlier versions wrote, kept as they were: every later version reads them and finds the same numbers."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import margrave as mg

KEPT = Path(__file__).parent / "kept"
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
