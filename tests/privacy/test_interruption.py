"""Signals while a budget is spent: either nothing was charged, or what was paid for is kept and loads."""

import random
import signal
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from boundary import CountsSource, ScriptedSampler

from margrave.domain import Domain
from margrave.errors import PlanError
from margrave.measurements import Measurements
from margrave.mechanisms import spending
from margrave.mechanisms.gaussian_marginals import gaussian_marginals
from margrave.mechanisms.residual_planner import measure
from margrave.mechanisms.scalable_mwem import scalable_mwem
from margrave.mechanisms.spending import Interrupted, terminable
from margrave.planning.plans import plan
from margrave.privacy.budget import Budget
from margrave.privacy.ledger import Ledger
from margrave.release.publication import reconstruct
from margrave.workload import Workload

DOMAIN = Domain.fromdict(dict.fromkeys("abcdefg", 4))
WORKLOAD = Workload.all_kway(DOMAIN, 3)
BUDGET = Budget.zcdp(rho="0.5")
PLAN = plan(WORKLOAD, BUDGET, contributions=1)
SOURCE = CountsSource(np.ones(DOMAIN.shape, dtype=np.int64), DOMAIN)
ROUNDS = 12
VARIANCES = dict.fromkeys(WORKLOAD, 100)


class SignallingSampler(ScriptedSampler):
    """Draws zeros, slowly; signals the main thread at the named draws, and waits for its notice if told to."""

    def __init__(self, at=(), number=signal.SIGINT, seconds=0.0, noticed=None):
        super().__init__()
        self.at, self.number, self.seconds, self.noticed = tuple(at), number, seconds, noticed
        self.drawn, self.lock = 0, threading.Lock()

    def draw(self, variance, count):
        if count:
            with self.lock:
                place = self.drawn
                self.drawn += 1
            if place in self.at:
                signal.pthread_kill(threading.main_thread().ident, self.number)
                if self.noticed is not None:
                    self.noticed.wait(60)
            time.sleep(self.seconds)
        return np.zeros(count, dtype=np.int64)


def by_plan(sampler, **options):
    return measure(PLAN, SOURCE, sampler=sampler, **options)


def by_tables(sampler, **options):
    return gaussian_marginals(SOURCE, variances=VARIANCES, contributions=1, sampler=sampler, **options)


def by_rounds(sampler, **options):
    return scalable_mwem(SOURCE, WORKLOAD, BUDGET, contributions=1, rounds=ROUNDS, sampler=sampler, **options)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MECHANISMS = {"plan": by_plan, "tables": by_tables, "rounds": by_rounds}
# All that each mechanism draws, one draw a table.
DRAWS = {"plan": len(PLAN.measured), "tables": len(WORKLOAD), "rounds": 1 + ROUNDS}
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


@contextmanager
def handlers():
    """All signals raise KeyboardInterrupt, and are found as they were; gives the handler."""

    def stop(number, frame):
        raise KeyboardInterrupt

    former = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield stop
        assert {signal.getsignal(number) for number in former} == {stop}
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class Books:
    """A ledger and a file for the measurements in a folder of their own."""

    def __init__(self, folder):
        folder.mkdir()
        self.ledger, self.file, self.saves = Ledger(folder / "ledger", cap=100), folder / "kept.npz", 0

    def save(self, noisy):
        noisy.save(self.file)
        self.saves += 1

    @property
    def options(self):
        return {"ledger": self.ledger, "keep": self.save, "defer_signals": True}

    def check(self):
        """Either nothing was charged, or the measurements are there, load, and say what was charged; return them."""
        entries = self.ledger.entries()
        if not entries:
            assert not self.file.exists()
            return None
        (entry,) = entries
        noisy = Measurements.load(self.file)
        record = noisy.provenance
        assert (record.ledger_entry, record.ledger_hash, record.rho) == (1, entry.hash, entry.rho)
        return noisy


@every_mechanism
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_drawing_waits_until_what_was_paid_for_is_kept(name, number, tmp_path, capfd):
    place = random.Random(f"{name}{number}").randrange(DRAWS[name] - 1)
    books, sampler = Books(tmp_path / "books"), SignallingSampler([place], number)
    with handlers(), pytest.raises(Interrupted, match=r"^interrupted; ρ = .* is charged in full, and .* is kept$"):
        MECHANISMS[name](sampler, **books.options)
    noisy = books.check()
    said = capfd.readouterr().err
    assert said.startswith(f"{'Ctrl-C' if number == signal.SIGINT else number.name} received while ρ = ")
    assert "A second Ctrl-C ends it at once and loses what is not kept by then.\n" in said
    if name == "rounds":
        # The total is drawn first, and then one table a round.
        assert (sampler.drawn, noisy.provenance.cut_short) == (place + 1, f"after {place} of {ROUNDS} rounds")
        assert sum(step.rho for step in noisy.provenance.steps) < noisy.provenance.rho == BUDGET.rho
        assert (reconstruct(noisy, WORKLOAD).table("a", "b", "c").values >= 0).all()
    else:
        assert (sampler.drawn, books.saves, noisy.provenance.cut_short) == (DRAWS[name], 1, None)


@pytest.mark.parametrize("name", ["plan", "rounds"])
def test_signals_at_fifty_moments_lose_nothing(name, tmp_path):
    """The moments are spread evenly over a little more than the time that an undisturbed run takes."""
    for turn in ("first", "warm"):
        begin = time.perf_counter()
        MECHANISMS[name](SignallingSampler(seconds=0.002), **Books(tmp_path / turn).options)
        duration = time.perf_counter() - begin
    drawing, charged = random.Random(name), 0
    for turn in range(50):
        books, sampler = Books(tmp_path / str(turn)), SignallingSampler(seconds=0.002)
        number, moment = SIGNALS[turn % 3], duration * (turn + drawing.random()) / 45

        def send(moment=moment, number=number):
            time.sleep(moment)
            signal.pthread_kill(threading.main_thread().ident, number)

        sender = threading.Thread(target=send)
        with handlers():
            try:
                sender.start()
                MECHANISMS[name](sampler, **books.options)
                sender.join()
                time.sleep(0.01)  # a signal that was late takes effect here
            except KeyboardInterrupt:
                sender.join()
        charged += books.check() is not None
        assert sampler.drawn <= DRAWS[name]  # nothing is drawn twice
    assert charged  # a run that is over before its signal is charged in any case


@every_mechanism
def test_a_second_ctrl_c_ends_at_once_and_says_what_is_lost(name, tmp_path, monkeypatch):
    monkeypatch.setattr(spending, "_ONE_PRESS_SECONDS", 0.0)
    monkeypatch.setenv("MARGRAVE_THREADS", "1")
    noticed, said = threading.Event(), []
    monkeypatch.setattr(spending, "_say", lambda text: (said.append(text), noticed.set()))
    books, sampler = Books(tmp_path / "books"), SignallingSampler([3, 4], seconds=0.01, noticed=noticed)
    if name == "rounds":
        # Both within one round, which has one draw only.
        sampler = SignallingSampler([3])
        draw = sampler.draw

        def twice(variance, count):
            noise = draw(variance, count)
            if count and sampler.drawn == 4:
                signal.raise_signal(signal.SIGINT)
            return noise

        sampler.draw = twice
    lost = {"rounds": "is charged in full; what was measured since the last stage was kept is lost"}
    usual = "is charged and nothing that it paid for is kept: it is lost"
    with handlers(), pytest.raises(Interrupted, match=f"^ended at once; ρ = .* {lost.get(name, usual)}$"):
        MECHANISMS[name](sampler, **books.options)
    assert len(said) == 1
    assert len(books.ledger.entries()) == 1
    assert sampler.drawn < DRAWS[name]
    if name == "rounds":
        assert books.check().provenance.cut_short == f"after 2 of {ROUNDS} rounds"


def test_one_press_that_arrives_twice_is_one(tmp_path):
    """Programs that pass signals on deliver each of them twice."""
    books = Books(tmp_path / "books")
    with handlers(), pytest.raises(Interrupted, match="all that was measured is kept"):
        by_plan(SignallingSampler([3, 4]), **books.options)
    assert books.check() is not None


def test_a_signal_during_the_charge_waits_too(tmp_path):
    books = Books(tmp_path / "books")
    charge = books.ledger.charge

    def charging(*words, **details):
        entry = charge(*words, **details)
        signal.raise_signal(signal.SIGTERM)
        return entry

    books.ledger.charge = charging
    with handlers(), pytest.raises(Interrupted, match="all that was measured is kept"):
        by_plan(SignallingSampler(), **books.options)
    assert books.check() is not None


def test_a_second_ctrl_c_during_the_charge_sends_to_the_ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(spending, "_ONE_PRESS_SECONDS", 0.0)
    books = Books(tmp_path / "books")

    def charging(*words, **details):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    books.ledger.charge = charging
    text = r"^ended at once; ρ = .* was about to be charged: the ledger tells whether it was; nothing was measured$"
    with handlers(), pytest.raises(Interrupted, match=text):
        by_plan(SignallingSampler(), **books.options)
    assert books.check() is None


def test_a_signal_just_before_the_charge_charges_nothing(tmp_path, monkeypatch):
    books = Books(tmp_path / "books")
    install = signal.signal

    def installed(number, handler):
        former = install(number, handler)
        if number == signal.SIGTERM and getattr(handler, "__name__", "") == "receive":
            signal.raise_signal(number)
        return former

    with handlers():
        monkeypatch.setattr(signal, "signal", installed)
        with pytest.raises(Interrupted, match=r"^interrupted; nothing was charged$"):
            by_plan(SignallingSampler(), **books.options)
        monkeypatch.undo()
    assert books.check() is None


@every_mechanism
def test_no_handler_is_installed_unless_asked_for(name, tmp_path):
    seen = []
    sampler = SignallingSampler()
    sampler.draw = lambda variance, count: (
        seen.append(signal.getsignal(signal.SIGINT)),
        np.zeros(count, dtype=np.int64),
    )[1]
    with handlers() as stop:
        MECHANISMS[name](sampler, keep=lambda noisy: None)
    assert set(seen) == {stop}


def test_outside_the_main_thread_and_where_signals_are_ignored_nothing_is_installed(tmp_path):
    seen, sampler = [], SignallingSampler()
    draw = sampler.draw
    sampler.draw = lambda *words: (seen.append(signal.getsignal(signal.SIGINT)), draw(*words))[1]
    books = Books(tmp_path / "books")
    with handlers() as stop:
        thread = threading.Thread(target=lambda: by_plan(sampler, **books.options))
        thread.start()
        thread.join()
        assert set(seen) == {stop}
        seen.clear()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        by_plan(sampler, **Books(tmp_path / "ignored").options)
        assert set(seen) == {signal.SIG_IGN}
        signal.signal(signal.SIGINT, stop)
    assert books.check() is not None


def test_handlers_are_put_back_after_an_error(tmp_path):
    def fail(noisy):
        raise OSError("the disk is full")

    with handlers(), pytest.raises(OSError, match="the disk is full"):
        by_plan(SignallingSampler(), keep=fail, defer_signals=True)


@every_mechanism
def test_what_cannot_be_kept_is_refused_before_anything_is_read(name):
    before = list(SOURCE.events)
    with pytest.raises(PlanError, match="signals can wait only for measurements that are kept; give keep=…"):
        MECHANISMS[name](SignallingSampler(), defer_signals=True)
    with pytest.raises(PlanError, match="keep is a str; give a function that saves Measurements"):
        MECHANISMS[name](SignallingSampler(), keep="kept.npz")
    assert SOURCE.events == before


def test_every_stage_is_handed_over_and_is_a_measurement_by_itself():
    handed = []
    whole = by_rounds(SignallingSampler(), keep=handed.append)
    assert [one.provenance.cut_short for one in handed] == [
        *(f"after {done} of {ROUNDS} rounds" for done in range(ROUNDS)),
        None,
    ]
    assert handed[-1] is whole
    assert [int(one.counts[0]) for one in handed] == list(range(1, ROUNDS + 2))
    assert all(one.provenance.rho == BUDGET.rho for one in handed)


@pytest.mark.parametrize("number", SIGNALS[1:])
def test_what_ends_a_process_is_like_ctrl_c_in_a_terminable_block(number):
    former = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), terminable():
            signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, former)
