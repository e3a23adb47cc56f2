"""The ledger: exact sums under a hard cap, crashes, several processes, tampering, torn lines and full disks."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from margrave.errors import BudgetRefusedError, LedgerError, PlanError
from margrave.privacy import ledger_file
from margrave.privacy.budget import Budget, shown_epsilon
from margrave.privacy.ledger import Balance, Ledger
from margrave.privacy.ledger_file import _sealed, torn_amount

HEADER_KEYS = ["margrave", "schema", "cap", "created"]


def refused(text, kind=LedgerError):
    return pytest.raises(kind, match=re.escape(text))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "adult.ledger"


@pytest.fixture
def ledger(path):
    """A ledger with three charges, the last of them large enough to be seen if it is lost."""
    ledger = Ledger(path, cap=1)
    ledger.charge("0.1", "first", tables=455)
    ledger.charge(Fraction(1, 3), "second")
    ledger.charge("0.25", 'third, "quoted" …', rho="9/10", share=0.5)
    return ledger


def run(code, *words, **options):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


# Charging


def test_charges_are_kept_exactly_and_in_order(path):
    ledger = Ledger(path, cap=1.0)
    entry = ledger.charge("0.1", "measure", tables=455, plan="three-way")
    assert (entry.number, entry.rho, entry.purpose, entry.total) == (1, Fraction(1, 10), "measure", Fraction(1, 10))
    assert entry.details == {"tables": 455, "plan": "three-way"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", entry.time)
    ledger.charge(Budget.zcdp(rho=Fraction(1, 3)), "select")
    assert Ledger(path).entries()[0] == entry
    assert [entry.total for entry in ledger.entries()] == [Fraction(1, 10), Fraction(13, 30)]
    assert (ledger.cap, ledger.spent, ledger.remaining) == (1, Fraction(13, 30), Fraction(17, 30))
    assert ledger.path == path
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["cap"] == "1/1"
    assert (lines[1]["rho"], lines[2]["total"]) == ("1/10", "13/30")


def test_entries_are_frozen(ledger):
    entry = ledger.entries()[0]
    with pytest.raises(AttributeError):
        entry.rho = Fraction(0)
    with pytest.raises(TypeError):
        entry.details["tables"] = 0


def test_charges_that_add_up_to_exactly_the_cap_are_allowed(path):
    ledger = Ledger(path, cap=1)
    for _ in range(7):
        ledger.charge(Fraction(1, 7), "a seventh")
    assert ledger.remaining == 0
    assert not ledger.check(Fraction(1, 10**90))
    with refused("refuses ρ = 1e-90: 1 of the cap 1 is spent, 0 remains; ask for no more", BudgetRefusedError):
        ledger.charge(Fraction(1, 10**90), "a breath more")
    assert len(ledger.entries()) == 7


def test_what_would_pass_the_cap_is_refused_and_not_charged(ledger):
    before = ledger.path.read_bytes()
    text = "refuses ρ = 0.5: ≈0.683333 of the cap 1 is spent, ≈0.316667 remains; ask for no more than that"
    with refused(text, BudgetRefusedError):
        ledger.charge(0.5, "too much")
    assert ledger.path.read_bytes() == before
    assert ledger.check(Fraction(19, 60))
    assert not ledger.check(0.32)
    assert ledger.path.read_bytes() == before


@pytest.mark.parametrize(
    ("over", "explained"), [(Fraction(1, 10**10), True), (Fraction(9, 10**10), True), (Fraction(11, 10**10), False)]
)
def test_floats_are_explained_where_less_than_a_billionth_of_the_cap_is_missing(path, over, explained):
    ledger = Ledger(path, cap=2)
    with pytest.raises(BudgetRefusedError) as refusal:
        ledger.charge(2 + 2 * over, "a little too much")
    assert ("amounts are exact, and the float 0.1" in str(refusal.value)) is explained


def test_a_refusal_by_a_hair_explains_floats(path):
    ledger = Ledger(path, cap=1)
    for _ in range(9):
        ledger.charge(0.1, "a float")
    with refused("over by 5.6e-17 only: amounts are exact, and the float 0.1 is more than the text '0.1'"):
        ledger.charge(0.1, "the tenth float")
    with refused("the remainder is exactly 3602879701896395/36028797018963968"):
        ledger.charge(0.1, "the tenth float")


def test_the_cap_is_a_rho_or_a_budget_and_stays_what_it_was(path):
    budget = Budget.approx(epsilon=1, delta=1e-9)
    assert Ledger(path, cap=budget).cap == budget.rho
    Ledger(path, cap=budget).charge("0.001", "x")
    assert Ledger(path, cap=budget.rho).cap == Ledger(path).cap == budget.rho
    with refused("not ρ = 2; a cap is fixed when a ledger is created: leave the cap out or give the same"):
        Ledger(path, cap=2)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(amounts=st.lists(st.fractions(Fraction(1, 1000), 1, max_denominator=1000), max_size=12))
def test_sums_are_exact_and_never_pass_the_cap(tmp_path, amounts):
    path = tmp_path / f"{time.monotonic_ns()}.ledger"
    ledger, spent = Ledger(path, cap=2), Fraction(0)
    for amount in amounts:
        fits = spent + amount <= 2
        assert ledger.check(amount) == fits
        if fits:
            spent += ledger.charge(amount, "some").rho
        else:
            with pytest.raises(BudgetRefusedError):
                ledger.charge(amount, "some")
        assert (ledger.spent, ledger.remaining) == (spent, 2 - spent)


@pytest.mark.parametrize("bad", [0, -1, "much", float("nan"), True, None])
def test_amounts_must_be_positive_numbers(path, ledger, bad):
    with refused("a charge must be", PlanError):
        ledger.charge(bad, "x")
    with refused("a charge must be", PlanError):
        ledger.check(bad)
    if bad is not None:
        with refused("the cap of a ledger must be", PlanError):
            Ledger(path, cap=bad)


def test_fractions_of_thousands_of_digits_are_refused(path):
    ledger = Ledger(path, cap=1)
    with refused("a charge is a fraction of more than 2,000 bits; round it to a simpler one", PlanError):
        ledger.charge(Fraction(3**1499, 3**1500 + 1), "x")
    primes = (3, 5, 7, 11, 13, 17)
    amounts = [Fraction(power // 10, power) for power in (prime ** (1990 // prime.bit_length()) for prime in primes)]
    for amount in amounts[:-1]:
        ledger.charge(amount, "x")
    with refused("would be a fraction of thousands of digits; round the charge up to a fraction with a smaller"):
        ledger.charge(amounts[-1], "x")
    assert Ledger(path).spent == sum(amounts[:-1])


@pytest.mark.parametrize("bad", ["", "  ", None, 3])
def test_a_purpose_is_a_text(ledger, bad):
    with refused("the purpose of a charge must be a text, got"):
        ledger.charge("0.01", bad)


@pytest.mark.parametrize("bad", [None, [1], {"a": 1}, float("nan"), float("inf"), 10**400, Fraction(1, 2), b"x"])
def test_details_are_texts_and_finite_numbers(ledger, bad):
    with refused("detail 'note' of a charge must be a text or a finite number, got"):
        ledger.charge("0.01", "x", note=bad)
    assert len(ledger.entries()) == 3


def test_any_text_survives(ledger):
    purpose = 'line\nbreak \u2028 "quotes" \\ \x00 \ud800 é'
    ledger.charge("0.01", purpose, note=purpose)
    assert Ledger(ledger.path).entries()[-1].purpose == purpose
    assert len(ledger.path.read_bytes().splitlines()) == 5


def test_repr_says_what_is_spent_and_never_fails(ledger):
    assert repr(ledger) == f"Ledger('{ledger.path}', cap ρ = 1: spent ≈0.683333 in 3 charges, ≈0.316667 left)"
    ledger.path.write_bytes(ledger.path.read_bytes()[:-3])
    assert repr(Ledger(ledger.path)).endswith("left; torn last line, call repair())")
    ledger.path.unlink()
    assert "there is no ledger" in repr(ledger)


# Crashes and company

CHARGING = """
    import sys
    from margrave.privacy.ledger import Balance, Ledger
    ledger = Ledger(sys.argv[1], cap=10**6)
    print("ready", flush=True)
    while True:
        print(ledger.charge("1/7", "loop").number, flush=True)
"""


def test_a_process_killed_at_any_moment_never_leaves_less_than_it_was_told(path):
    charged = 0
    for turn in range(12):
        process = run(CHARGING, path)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.004 * (turn % 5) + 0.001 * turn)
        process.send_signal(signal.SIGKILL)
        # Not communicate, which leaves out what came together with the first line.
        told = [int(line) for line in process.stdout.read().split("\n")[:-1]]
        process.communicate()
        ledger = Ledger(path, cap=10**6)
        if ledger.torn:
            ledger.repair()
        charged = max([charged, *told])
        # The one charge that was under way may be there as well, with nobody told.
        assert charged <= len(ledger.entries()) <= charged + turn + 1
        assert ledger.spent == Fraction(len(ledger.entries()), 7)
    assert charged > 12


def test_four_processes_cannot_overspend_together(path):
    code = """
        import sys
        from margrave.errors import BudgetRefusedError
        from margrave.privacy.ledger import Balance, Ledger
        ledger = Ledger(sys.argv[1], cap=5)
        try:
            while True:
                print(ledger.charge("1/12", "together", process=int(sys.argv[2])).number, flush=True)
        except BudgetRefusedError:
            pass
    """
    processes = [run(code, path, number) for number in range(4)]
    results = [process.communicate(timeout=120) for process in processes]
    assert [error for _, error in results] == [""] * 4
    told = sorted(int(line) for out, _ in results for line in out.split())
    assert told == list(range(1, 61))
    assert Ledger(path).spent == 5
    assert not list(path.parent.glob(".*.draft"))


def test_threads_of_one_process_exclude_each_other_too(path):
    ledger, refusals = Ledger(path, cap=1), []

    def spend():
        try:
            while True:
                ledger_of_thread.charge("1/40", "thread")
        except BudgetRefusedError as error:
            refusals.append(error)

    ledger_of_thread = ledger
    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(refusals), len(ledger.entries()), ledger.remaining) == (4, 40, 0)


def test_a_charge_is_on_disk_before_it_returns(path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (synced.append(str(Path(f"/proc/self/fd/{file}").readlink())), fsync(file))
    )
    if not Path("/proc/self/fd").exists() or hasattr(ledger_file._file_locks(), "F_FULLFSYNC"):
        pytest.skip("looks at /proc to see which file was synced")
    ledger = Ledger(path, cap=1)
    ledger.charge("0.1", "x")
    assert Path(synced[-2]).suffix == ".draft"
    assert synced[-1] == str(path.parent)
    ledger.charge("0.1", "x")
    assert synced[-1] == str(path)


def test_macos_is_asked_for_its_stronger_sync(ledger, monkeypatch):
    import fcntl

    asked = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda file, what: asked.append(what))
    ledger.charge("0.01", "x")
    assert asked == [51]


# Beginning


def test_a_ledger_is_begun_by_its_first_charge_and_not_before(path):
    ledger = Ledger(path, cap=1)
    assert (ledger.is_new, ledger.cap, ledger.spent, ledger.remaining, ledger.entries()) == (True, 1, 0, 1, ())
    assert (ledger.torn, ledger.check(1), ledger.check("1.01")) == (None, True, False)
    assert repr(ledger) == f"Ledger('{path}', cap ρ = 1: not begun yet)"
    with refused("refuses ρ = 2: 0 of the cap 1 is spent, 1 remains", BudgetRefusedError):
        ledger.charge(2, "too much")
    with refused("the purpose of a charge must be a text"):
        ledger.charge("0.1", "")
    assert list(path.parent.iterdir()) == []
    assert ledger.charge("0.1", "first").number == 1
    assert (ledger.is_new, ledger.charge("0.1", "second").number) == (False, 2)
    assert (Ledger(path).cap, Ledger(path).spent) == (1, Fraction(1, 5))


def test_two_that_begin_one_ledger_make_one_and_the_second_needs_the_same_cap(path):
    first, second, other = Ledger(path, cap=1), Ledger(path, cap=1), Ledger(path, cap=2)
    first.charge("0.5", "first")
    assert second.charge("0.25", "second").number == 2
    with refused("has the cap ρ = 1 (exactly 1/1), not ρ = 2; a cap is fixed when a ledger is created"):
        other.charge("0.1", "x")
    assert first.spent == Fraction(3, 4)


def test_a_ledger_that_is_begun_between_look_and_link_is_continued(path, monkeypatch):
    ledger, link = Ledger(path, cap=1), os.link

    def late(draft, target):
        monkeypatch.undo()
        Ledger(path, cap=1).charge("0.5", "somebody else")
        link(draft, target)

    monkeypatch.setattr(os, "link", late)
    assert (ledger.charge("0.25", "mine").number, ledger.spent) == (2, Fraction(3, 4))
    assert not list(path.parent.glob(".*.draft"))


def test_a_ledger_can_be_begun_without_a_charge_and_only_once(path):
    assert (Ledger.create(path, cap="0.5").cap, Ledger(path).entries()) == (Fraction(1, 2), ())
    with refused("already exists; a ledger is never started over: name another file"):
        Ledger.create(path, cap=1)
    with refused("cannot create ledger"):
        Ledger.create(path.parent / "none" / "x.ledger", cap=1)


# What was measured


def test_a_ledger_that_names_a_domain_refuses_another_unless_asked(path):
    Ledger(path, cap=1).charge("0.1", "in the old days, without a domain")
    ledger = Ledger(path)
    ledger.require_domain("a" * 64)
    ledger.charge("0.1", "x", domain="a" * 64)
    ledger.require_domain("a" * 64)
    text = "is charged for the domain aaaaaaaaaaaa… and this table has the domain bbbbbbbbbbbb…; nothing was read or"
    with refused(text):
        ledger.require_domain("b" * 64)
    with refused("if these are the same people, say so with any_domain=True (--ledger-any-domain)"):
        ledger.charge("0.1", "x", domain="b" * 64)
    assert ledger.spent == Fraction(1, 5)
    ledger.charge("0.1", "whoever names no domain is taken at his word")
    Ledger(path, any_domain=True).charge("0.1", "x", domain="b" * 64)
    # Once it was asked for, both are known.
    assert ledger.charge("0.1", "x", domain="b" * 64).number == ledger.charge("0.1", "x", domain="a" * 64).number - 1
    with refused("any_domain is 'yes'; give True or False"):
        Ledger(path, any_domain="yes")


def test_notes_go_into_every_charge(path):
    ledger = Ledger(path, cap=1, notes={"title": "Survey"})
    ledger.charge("0.1", "x", tables=3)
    ledger.charge("0.1", "y", title="another")
    assert [dict(entry.details) for entry in Ledger(path).entries()] == [
        {"title": "Survey", "tables": 3},
        {"title": "another"},
    ]
    with refused("detail 'title' of a charge must be a text or a finite number, got NoneType"):
        Ledger(path, notes={"title": None})


@pytest.mark.parametrize("delta", [1e-9, 1e-100])
def test_nothing_spent_is_an_epsilon_of_nothing_at_any_delta(delta):
    assert Balance(Fraction(1), Fraction(0), Fraction(1), delta).epsilon(Fraction(0)) == 0.0


def test_the_balance_states_the_epsilon_of_each_amount_and_that_they_do_not_add_up(path):
    ledger = Ledger(path, cap=1)
    assert (ledger.balance().delta, ledger.balance().epsilon(Fraction(0))) == (1e-9, 0.0)
    ledger.charge("0.25", "x", delta=1e-6)
    balance = ledger.balance()
    assert (balance.cap, balance.spent, balance.left, balance.delta) == (1, Fraction(1, 4), Fraction(3, 4), 1e-6)
    for rho in (balance.cap, balance.spent, balance.left):
        assert balance.epsilon(rho) == Budget.zcdp(rho=rho).epsilon(1e-6)
    assert balance.epsilon(balance.spent) + balance.epsilon(balance.left) > balance.epsilon(balance.cap)
    spent, cap, left = (shown_epsilon(balance.epsilon(rho)) for rho in (balance.spent, balance.cap, balance.left))
    assert str(balance) == (
        f"spent ρ = 0.25 (ε = {spent}), cap ρ = 1 (ε = {cap}), left ρ = 0.75 (ε = {left}), each ε at δ = 1e-06; "
        "ρ adds up, these ε do not"
    )
    assert ledger.balance(1e-9).delta == 1e-9
    assert balance.epsilon(Fraction(1, 10**120)) == 0.0  # too little to state, not too little to show
    with refused("delta must be above 0 and below 1", PlanError):
        ledger.balance(2)


# Torn lines


def test_a_line_torn_at_any_byte_is_found_explained_and_repaired(ledger):
    raw = ledger.path.read_bytes()
    start = raw[:-1].rindex(b"\n") + 1
    readable = raw.index(b'"purpose"', start) - 1
    before = Fraction(13, 30)
    for end in range(start + 1, len(raw)):
        ledger.path.write_bytes(raw[:end])
        torn = Ledger(ledger.path)
        assert "(line 4) is torn: a charge was being written when the process or the machine stopped" in torn.torn
        assert (torn.spent, len(torn.entries())) == (before, 2)
        assert not torn.check("0.01")
        with refused("and nothing was released for it; call repair() to book it"):
            torn.charge("0.01", "x")
        if end < readable:
            with refused("its amount cannot be read, so say what to book: repair(rho=…), where the remainder 17/30 is"):
                torn.repair()
            booked = torn.repair(rho="1/5")
        else:
            booked = torn.repair()
        assert booked.rho == (Fraction(1, 5) if end < readable else Fraction(1, 4))
        assert (booked.purpose, booked.number) == ("repair of a torn line", 3)
        assert raw[start:end].decode().startswith(booked.details["torn"])
        whole = Ledger(ledger.path)
        assert whole.torn is None
        assert whole.charge("0.01", "x").total == before + booked.rho + Fraction(1, 100)


@pytest.mark.parametrize("junk", [b"\x00" * 300, b"\x00" * 40 + b'"}\n', b'{"number":4,"ti', b"\xff\xfe\n", b"[1]\n"])
def test_junk_at_the_end_is_a_torn_line(ledger, junk):
    with ledger.path.open("ab") as file:
        file.write(junk)
    assert "(line 5) is torn" in ledger.torn
    assert ledger.repair(rho=0).total == Fraction(41, 60)
    assert ledger.torn is None


def test_a_repair_books_the_larger_amount_and_never_passes_the_cap(ledger):
    torn = b'{"number":4,"time":"2026","rho":"1/5","purp'
    whole = ledger.path.read_bytes()
    for stated, booked in ((None, Fraction(1, 5)), ("1/10", Fraction(1, 5)), ("3/10", Fraction(3, 10)), (7, None)):
        ledger.path.write_bytes(whole + torn)
        assert Ledger(ledger.path).repair(rho=stated).rho == (booked or Fraction(19, 60))
    ledger.path.write_bytes(whole + torn)
    assert Ledger(ledger.path).repair(Budget.zcdp(rho="1/4")).rho == Fraction(1, 4)


def test_repair_refuses_negative_amounts_and_whole_ledgers(ledger):
    with refused("a repair books at least ρ = 0, got -1; give 0 or more", PlanError):
        ledger.repair(rho=-1)
    with refused("is complete: there is nothing to repair"):
        ledger.repair()


def test_the_amount_of_a_torn_line_is_the_charge_and_not_a_detail():
    assert torn_amount(b'{"number":4,"time":"t","rho":"1/16","purpose"') == Fraction(1, 16)
    assert torn_amount(b'{"number":4,"time":"t","rho":"1/16') is None
    assert torn_amount(b'{"number":4,"time":"t","rho":"1/0"') is None
    assert torn_amount(b'{"number":4,"details":{"rho":"1/16"') is None


# Tampering


def lines_of(ledger):
    return ledger.path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("line", [1, 2, 3])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (rb'"rho":"[^"]*"', b'"rho":"1/100"'),
        (rb'"purpose":"', b'"purpose":"re'),
        (rb'"total":"[^"]*"', b'"total":"1/100"'),
        (rb'"time":"2', b'"time":"3'),
        (rb'"details":\{', b'"details": {'),
        (rb'"hash":"..', b'"hash":"zz'),
        (rb'"rho"', b'"ohr"'),
        (rb'"rho":"', b'"rho":"0'),
        (rb'\}$', b',"more":1}'),
        (rb'"details":\{.*\},', b'"details":3,'),
        (rb'"details":\{.*\},', b'"details":{"x":NaN},'),
    ],
)  # fmt: skip
def test_an_edited_line_is_found(ledger, line, old, new):
    lines = lines_of(ledger)
    edited = re.sub(old, new, lines[line].rstrip(b"\n"), count=1) + b"\n"
    assert edited != lines[line]
    ledger.path.write_bytes(b"".join([*lines[:line], edited, *lines[line + 1 :]]))
    with refused(
        f"was tampered with: line {line + 1} was edited, or the line before it was; what was spent is not known"
    ):
        Ledger(ledger.path)


def test_a_line_in_the_middle_that_is_no_json_is_tampering_and_not_a_tear(ledger):
    lines = lines_of(ledger)
    ledger.path.write_bytes(b"".join([*lines[:2], lines[2][:40] + b"\n", lines[3]]))
    with refused("line 3 was edited"):
        Ledger(ledger.path)
    ledger.path.write_bytes(b"".join([*lines[:3], b"junk\n", b"more junk"]))
    with refused("line 4 was edited"):
        Ledger(ledger.path)


@pytest.mark.parametrize("order", [[0, 2, 3], [0, 1, 3], [0, 2, 1, 3], [0, 1, 3, 2], [0, 1, 1, 2, 3], [0, 3]])
def test_removed_reordered_and_repeated_lines_are_found(ledger, order):
    lines = lines_of(ledger)
    ledger.path.write_bytes(b"".join(lines[place] for place in order))
    with refused("lines were removed or put in another order"):
        Ledger(ledger.path)


def test_an_edited_cap_is_found(ledger):
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b'"cap":"1/1"', b'"cap":"9/1"'))
    with refused("was tampered with: line 1 was edited"):
        Ledger(ledger.path)


def test_lines_cut_off_the_end_are_found_by_whoever_saw_them(ledger):
    lines = lines_of(ledger)
    ledger.path.write_bytes(b"".join(lines[:3]))
    for question in (lambda: ledger.spent, lambda: ledger.charge("0.01", "x")):
        with refused("no longer holds the 3 charges it held before: lines were removed or the file was replaced"):
            question()
    assert len(Ledger(ledger.path).entries()) == 2  # as the module says: the file alone cannot tell


def test_another_ledger_in_the_place_is_found(ledger):
    ledger.path.unlink()
    Ledger.create(ledger.path, cap=1)
    with refused("no longer holds the 3 charges"):
        ledger.charge("0.01", "x")


def test_sums_that_were_forged_with_right_hashes_are_found(path):
    header, digest = _sealed(dict(zip(HEADER_KEYS, ("ledger", 1, "1/1", "t"), strict=True)), "")
    for rho, total in (("1/2", "1/3"), ("2/1", "2/1")):
        record = {"number": 1, "time": "t", "rho": rho, "purpose": "x", "total": total, "details": {}}
        path.write_bytes(header + _sealed(record, digest)[0])
        with refused("line 2 does not add up with the lines before it"):
            Ledger(path)


# Files


def test_no_ledger_and_no_cap(path):
    with refused("there is no ledger"):
        Ledger(path)
    assert not path.exists()


def test_a_ledger_that_went_away_is_not_begun_again(ledger):
    ledger.path.unlink()
    with refused("check the name, or give a cap to create one"):
        ledger.charge("0.01", "x")
    assert not ledger.path.exists()


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"name,age\n", b'{"margrave":"domain","schema":1}\n', b"[1]\n", b"\xff\n"]
)
def test_a_file_that_is_no_ledger(path, content):
    path.write_bytes(content)
    for cap in (None, 1):
        with refused("is not a ledger: its first line is not a header; give the file of a ledger"):
            Ledger(path, cap=cap)
    assert path.read_bytes() == content


def test_deeply_nested_junk_is_no_ledger(path):
    path.write_bytes(b"[" * 200_000 + b"\n")
    with refused("is not a ledger"):
        Ledger(path)


def test_a_ledger_of_a_newer_margrave(path):
    path.write_bytes(b'{"margrave":"ledger","schema":2}\n')
    with refused("was written by a newer margrave (schema 2; this one reads up to 1); update margrave"):
        Ledger(path)


def test_a_folder_is_no_ledger(tmp_path):
    with refused("is a folder or a device, not a ledger; name a file"):
        Ledger(tmp_path, cap=1)
    os.mkfifo(tmp_path / "pipe")
    with refused("is a folder or a device"):
        Ledger(tmp_path / "pipe")


def test_a_folder_that_is_not_there(tmp_path):
    with refused("its folder must exist, be writable and have room"):
        Ledger(tmp_path / "nowhere" / "x.ledger", cap=1)
    with refused("cannot create ledger"):
        Ledger("nul\x00byte", cap=1)
    with refused("cannot open ledger"):
        Ledger("nul\x00byte")


def test_files_and_folders_without_permission(ledger, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may do everything")
    ledger.path.chmod(0o400)
    assert ledger.spent > 0
    with refused("Permission denied); check its permissions"):
        ledger.charge("0.01", "x")
    ledger.path.chmod(0o000)
    with refused("cannot open ledger"):
        Ledger(ledger.path)
    tmp_path.chmod(0o500)
    with refused("Permission denied); its folder must exist, be writable"):
        Ledger(tmp_path / "new.ledger", cap=1)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(("call", "text"), [("open", "cannot open ledger"), ("pread", "cannot read ledger")])
def test_errors_of_the_system_are_explained(ledger, monkeypatch, call, text):
    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, fail)
    with refused(f"{text} {str(ledger.path)!r} (Input/output error)"):
        ledger.spent  # noqa: B018 — the property reads the file


def test_a_file_system_without_locks_is_refused(ledger, monkeypatch):
    import fcntl

    def fail(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with refused("(No locks available); keep it on a local disk"):
        ledger.charge("0.01", "x")


def test_a_system_without_file_locks_is_told_so(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with refused("a ledger needs the file locks of Linux and macOS (Python's fcntl), which this system lacks"):
        Ledger(path, cap=1)
    assert not path.exists()


def test_a_ledger_replaced_while_waiting_for_its_lock_is_not_charged(ledger, monkeypatch):
    import fcntl

    flock = fcntl.flock

    def replace_first(file, kind):
        copy = ledger.path.with_suffix(".copy")
        copy.write_bytes(ledger.path.read_bytes())
        copy.replace(ledger.path)
        flock(file, kind)

    monkeypatch.setattr(fcntl, "flock", replace_first)
    with refused("was replaced while it was opened; find out what replaced it, then try again"):
        ledger.charge("0.01", "x")


def test_a_full_disk_charges_nothing_and_leaves_the_ledger_whole(ledger):
    """A limit on the size of files stops a write in the middle of a line, as a full disk does."""
    before = ledger.path.read_bytes()
    code = """
        import resource, signal, sys
        from margrave.errors import LedgerError
        from margrave.privacy.ledger import Balance, Ledger
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        ledger = Ledger(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
        for action in (lambda: ledger.charge("0.01", "x"), lambda: Ledger(sys.argv[1] + ".new", cap=1)):
            try:
                action()
            except LedgerError as error:
                print(error)
    """
    for room in (0, 1, 50, 150):
        process = run(code, ledger.path, len(before) + room if room else 10)
        out, error = process.communicate()
        assert error == ""
        assert "(File too large); nothing was charged: free or repair the disk, then retry" in out
        assert ("its folder must exist, be writable and have room" in out) == (room == 0)
        assert ledger.path.read_bytes() == before
    assert ledger.charge("0.01", "room again").number == 4


def test_a_piece_that_cannot_be_taken_back_is_found_as_a_torn_line(ledger, monkeypatch):
    pwrite = os.pwrite
    calls = []

    def half(file, data, at):
        if calls:
            raise OSError(28, "No space left on device")
        calls.append(at)
        return pwrite(file, data[: len(data) // 2], at)

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pwrite", half)
    monkeypatch.setattr(os, "ftruncate", fail)
    with refused("(No space left on device); nothing was charged"):
        ledger.charge("0.01", "x")
    monkeypatch.undo()
    assert "is torn" in ledger.torn
    assert ledger.repair().rho == Fraction(1, 100)


def test_a_repair_without_room_leaves_the_line_torn(ledger, monkeypatch):
    with ledger.path.open("ab") as file:
        file.write(b'{"number":4,"time":"t","rho":"1/16","purpose"')

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail)
    with refused("No space left on device"):
        ledger.repair()
    monkeypatch.undo()
    assert ledger.repair().rho == Fraction(1, 16)
