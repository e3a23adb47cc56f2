"""The record of how measurements were made: exact amounts, plain words, and no way to say less than was spent."""

import json
import time
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import pytest

from margrave.domain import Domain
from margrave.errors import MeasurementError
from margrave.measurements import Measurements, Provenance, Step
from margrave.privacy.budget import Budget

RECORD = Provenance(
    mechanism="residual planner",
    steps=(Step("total", Fraction(1, 30)), Step("the rest × more", Fraction(3, 10))),
    rho=Fraction(1, 3),
    epsilon=5.25,
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


def test_a_record_says_whether_there_was_a_query_and_its_text_only_if_published():
    assert RECORD.queried is None
    asked = replace(RECORD, queried=True)
    assert Provenance.from_dict(json.loads(json.dumps(asked.to_dict()))) == asked
    told = replace(RECORD, queried=True, query="SELECT x\nFROM people -- 'é'")
    assert Provenance.from_dict(json.loads(json.dumps(told.to_dict()))) == told
    before = {name: value for name, value in RECORD.to_dict().items() if name not in ("queried", "query")}
    assert Provenance.from_dict(before) == RECORD


@pytest.mark.parametrize(
    "said", [{"queried": 1}, {"queried": "yes"}, {"queried": None}, {"queried": False}, {"query": ""}]
)
def test_a_record_of_a_query_that_cannot_be(said):
    with pytest.raises(
        MeasurementError, match=r"^(queried must be True, False or None|query must be the text of a query)"
    ):
        replace(RECORD, **{"queried": True, "query": "SELECT 1", **said})


def test_what_is_not_private_stays_so():
    insecure = replace(RECORD, private=False, sampler="margrave (insecure seeded source)")
    assert Provenance.from_dict(json.loads(json.dumps(insecure.to_dict()))).private is False


def test_a_record_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        RECORD.private = False


def test_a_record_may_say_more_than_its_steps_but_never_less():
    assert replace(RECORD, rho=Fraction(1), epsilon=10.0).rho == 1
    with pytest.raises(MeasurementError, match="more than the record says, ρ = 1/4; record all that was spent"):
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
        {"rho": 0.5},
        {"rho": "-1/3"},
        {"rho": "0"},
        {"rho": "1e999999999"},
        {"rho": "1e-999999999"},
        {"rho": "1/" + "9" * 5000},
        {"rho": "9" * 4000},
        {"steps": [{"purpose": "total", "rho": "1e999999999"}]},
        {"steps": [{"purpose": "total", "rho": "-1/30"}]},
        {"steps": [{"purpose": 7, "rho": "1/30"}]},
        {"steps": ["total"]},
        {"steps": 1},
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
    from margrave.release.facts import statement
    from margrave.release.store.descriptions import privacy_document

    assert "cut short" not in statement(RECORD)
    cut = replace(RECORD, cut_short="after 7 of 30 rounds")
    assert statement(cut).endswith(
        " The run was cut short after 7 of 30 rounds; its whole budget is charged all the same."
    )
    assert privacy_document(cut)["cut_short"] == "after 7 of 30 rounds"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        # ρ = 10⁶ gives ε of more than 10⁶ at every δ: the record would promise what was never kept.
        ({"rho": "1000000", "epsilon": 1e-6}, "the record says ε = 1e-06, and its ρ gives ε = 1.0091e+06"),
        ({"epsilon": 5.18}, "the record says ε = 5.18, and its ρ gives ε = 5.18588 at δ = 1e-09; state no less"),
        ({"epsilon": "5.25"}, "epsilon is '5.25' in a provenance; it must be a finite number"),
        ({"epsilon": True}, "epsilon is True in a provenance"),
        ({"epsilon": -1.0}, "epsilon is -1.0 in a provenance"),
        ({"epsilon": float("nan")}, "epsilon is nan in a provenance"),
        ({"epsilon": float("inf")}, "epsilon is inf in a provenance"),
        ({"epsilon": None}, "epsilon is None in a provenance"),
        ({"delta": "1e-9"}, "delta is '1e-9' in a provenance"),
        ({"delta": False}, "delta is False in a provenance"),
        ({"delta": 0}, "impossible numbers: delta must be above 0 and below 1"),
        ({"delta": 1.5}, "impossible numbers: delta must be above 0 and below 1"),
        ({"contributions": 0}, "contributions is 0 in a provenance; it must be at least 1 row"),
        ({"contributions": 1.5}, "contributions is 1.5 in a provenance"),
        ({"contributions": True}, "contributions is True in a provenance"),
        ({"contributions": "2"}, "contributions is '2' in a provenance"),
        ({"mechanism": 3}, "mechanism is 3 in a provenance; it must be text"),
        ({"sampler": None}, "sampler is None in a provenance; it must be text"),
        ({"sampler": "foreign: dice"}, "says private, and its sampler is 'foreign: dice', whose noise is not"),
        ({"sampler": "margrave (insecure seeded source)"}, "says private, and its sampler is 'margrave (insecure"),
        ({"adaptive": 1}, "adaptive is 1 in a provenance; it must be True or False"),
        ({"rho": "1/3 "}, "an amount is '1/3 '; it must be a text such as '1/3'"),
        ({"unheard_of": 1}, "it has the unknown key 'unheard_of'"),
    ],
)
def test_impossible_numbers_are_refused_in_words(damage, words):
    with pytest.raises(MeasurementError, match=r"^the provenance is damaged \(") as caught:
        Provenance.from_dict({**RECORD.to_dict(), **damage})
    assert words in str(caught.value)


def test_an_epsilon_may_state_more_than_rho_gives_and_be_rounded_to_a_neighbour():
    given = Budget(rho=RECORD.rho, delta=RECORD.delta).epsilon()
    assert replace(RECORD, epsilon=given).epsilon == given
    assert replace(RECORD, epsilon=given * (1 - 1e-13)).epsilon < given
    assert replace(RECORD, epsilon=100.0).epsilon == 100
    with pytest.raises(MeasurementError, match="state no less"):
        replace(RECORD, epsilon=given * (1 - 1e-11))


def test_the_costs_of_steps_are_compared_exactly():
    def record(costs, rho):
        return replace(RECORD, steps=tuple(Step("one", cost) for cost in costs), rho=rho, epsilon=1e3)

    costs = [Fraction(1, number) for number in range(1, 60)]
    assert record(costs, sum(costs)).rho == sum(costs)
    hair = Fraction(1, 10**1000)
    assert record(costs, sum(costs) + hair)
    with pytest.raises(MeasurementError, match="the steps cost more than the record says"):
        record(costs, sum(costs) - hair)
    with pytest.raises(MeasurementError, match="the steps cost more than the record says"):
        record(costs, sum(costs) * Fraction(99, 100))


def test_steps_whose_common_denominator_fills_the_memory_are_refused_at_once():
    # The k-th costs 2⁻ᵏ but for a hair, so that the sum is too close to 1 to be told from it by rounded numbers.
    hostile = [Step("one", Fraction(10**4000 // 2**k, 10**4000 + k)) for k in range(1, 1000)]
    hostile.append(Step("rest", 1 - sum((step.rho for step in hostile[:8]), Fraction(0)) - Fraction(1, 2**8)))
    start = time.process_time()
    with pytest.raises(MeasurementError, match="fractions too long to add up; round them up"):
        replace(RECORD, steps=tuple(hostile), rho=Fraction(1), epsilon=1e3)
    assert time.process_time() - start < 1


def test_no_record_makes_measurements_private_that_are_recorded_as_not_private():
    domain = Domain.fromdict({"age": 2})
    noisy = Measurements.from_marginals(domain, [(("age",), [1.0, 2.0], 4.0)])
    seeded = noisy.with_provenance(replace(RECORD, private=False))
    with pytest.raises(MeasurementError, match="recorded as not private, and no other record makes them private"):
        seeded.with_provenance(RECORD)
    assert seeded.with_provenance(replace(RECORD, private=False, cut_short="after 2 of 3 rounds")).provenance.cut_short
    assert not noisy.with_provenance(RECORD).with_provenance(replace(RECORD, private=False)).provenance.private


@pytest.mark.parametrize("record", [None, "private", RECORD.to_dict()])
def test_only_a_whole_record_is_taken(record):
    noisy = Measurements.from_marginals(Domain.fromdict({"age": 2}), [(("age",), [1.0, 2.0], 4.0)])
    shown = "None" if record is None else f"a {type(record).__name__}"
    with pytest.raises(MeasurementError, match=f"expected a Provenance, got {shown}"):
        noisy.with_provenance(record)


@pytest.mark.parametrize("words", ["", 3])
def test_what_was_measured_is_said_in_words(words):
    with pytest.raises(MeasurementError, match="description must be a sentence that says what was measured, or None"):
        replace(RECORD, description=words)
    assert Provenance.from_dict(replace(RECORD, description="All.").to_dict()).description == "All."
