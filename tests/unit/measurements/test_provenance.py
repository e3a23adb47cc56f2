"""The record of how measurements were made: exact amounts, plain words, and no way to say less than was spent."""

import json
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import pytest

from margrave.domain import Domain
from margrave.errors import MeasurementError
from margrave.measurements import Measurements, Provenance, Step

RECORD = Provenance(
    mechanism="residual planner",
    steps=(Step("total", Fraction(1, 30)), Step("the rest × more", Fraction(3, 10))),
    rho=Fraction(1, 3),
    epsilon=3.25,
    delta=1e-9,
    contributions=2,
    sampler="margrave (system entropy)",
    private=True,
    version="0.1",
)


def test_a_record_survives_json_exactly():
    plain = json.loads(json.dumps(RECORD.to_dict(), ensure_ascii=False))
    assert plain["rho"] == "1/3"
    assert plain["steps"][0] == {"purpose": "total", "rho": "1/30"}
    assert plain["neighbours"] == "add or remove one person"
    assert plain["contributions_bounded"] == "declared"
    assert Provenance.from_dict(plain) == RECORD


def test_what_is_not_private_stays_so():
    insecure = replace(RECORD, private=False, sampler="margrave (insecure seeded source)")
    assert Provenance.from_dict(json.loads(json.dumps(insecure.to_dict()))).private is False


def test_a_record_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        RECORD.private = False


def test_a_record_may_say_more_than_its_steps_but_never_less():
    assert replace(RECORD, rho=Fraction(1)).rho == 1
    with pytest.raises(MeasurementError, match="the steps cost ρ = 1/3 and the record says 1/4; record all that was"):
        replace(RECORD, rho=Fraction(1, 4))
    with pytest.raises(MeasurementError, match="record all that was spent"):
        replace(RECORD, steps=(Step("refund", Fraction(-1, 2)), Step("more", Fraction(1, 2))))


@pytest.mark.parametrize("private", ["False", 1, None])
def test_private_is_true_or_false_and_nothing_that_looks_like_it(private):
    with pytest.raises(MeasurementError, match=r"private is .* in a provenance; it must be True or False"):
        replace(RECORD, private=private)


@pytest.mark.parametrize(
    "damage",
    [
        {"private": "False"},
        {"private": None},
        {"rho": "1/4"},
        {"rho": "1/0"},
        {"rho": "much"},
        {"rho": float("inf")},
        {"steps": [{"purpose": "total"}]},
        {"steps": None},
        {"unheard_of": 1},
    ],
)
def test_a_damaged_record_is_refused(damage):
    with pytest.raises(MeasurementError, match=r"the provenance is damaged \(.*\); save the measurements again"):
        Provenance.from_dict({**RECORD.to_dict(), **damage})


@pytest.mark.parametrize("missing", ["private", "rho", "steps", "contributions"])
def test_a_record_that_lacks_something_is_refused(missing):
    plain = RECORD.to_dict()
    del plain[missing]
    with pytest.raises(MeasurementError, match="the provenance is damaged"):
        Provenance.from_dict(plain)


def test_measurements_carry_their_record_into_the_file_and_back(tmp_path):
    domain = Domain.fromdict({"age": 2})
    noisy = Measurements.from_marginals(domain, [(("age",), [1.0, 2.0], 4.0)])
    assert noisy.provenance is None
    noisy.with_provenance(RECORD).save(tmp_path / "noisy.npz")
    assert Measurements.load(tmp_path / "noisy.npz").provenance == RECORD
    noisy.save(tmp_path / "foreign.npz")
    assert Measurements.load(tmp_path / "foreign.npz").provenance is None


def test_the_entry_of_the_ledger_travels_along_and_old_records_have_none():
    charged = replace(RECORD, ledger_entry=3, ledger_hash="0a" * 32, cut_short="after 7 of 30 rounds")
    assert Provenance.from_dict(json.loads(json.dumps(charged.to_dict()))) == charged
    old = {
        key: value for key, value in RECORD.to_dict().items() if key not in ("ledger_entry", "ledger_hash", "cut_short")
    }
    assert Provenance.from_dict(old) == RECORD
    assert (RECORD.ledger_entry, RECORD.ledger_hash, RECORD.cut_short) == (None, None, None)


@pytest.mark.parametrize(
    ("number", "digest"),
    [
        (0, "0a" * 32),
        (True, "0a" * 32),
        ("1", "0a" * 32),
        (1, None),
        (None, "0a" * 32),
        (1, "0A" * 32),
        (1, "0a"),
        (1, 2),
    ],
)
def test_an_entry_that_can_be_none_is_refused(number, digest):
    with pytest.raises(
        MeasurementError, match="must be the number of a charge, from 1, and its SHA-256 in hexadecimal"
    ):
        replace(RECORD, ledger_entry=number, ledger_hash=digest)


@pytest.mark.parametrize("words", ["", 7, True])
def test_where_a_run_was_cut_short_is_said_in_words(words):
    with pytest.raises(MeasurementError, match="cut_short must be words that say where a run ended, or None"):
        replace(RECORD, cut_short=words)


def test_a_run_that_was_cut_short_says_so_in_the_release():
    from margrave.release.store.paperwork import privacy_document, statement

    assert "cut short" not in statement(RECORD)
    cut = replace(RECORD, cut_short="after 7 of 30 rounds")
    assert statement(cut).endswith(
        " The run was cut short after 7 of 30 rounds; its whole budget is charged all the same."
    )
    assert privacy_document(cut)["cut_short"] == "after 7 of 30 rounds"
