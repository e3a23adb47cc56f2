"""Threads, forked and spawned processes, and many releases in one process."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import margrave as mg
from margrave.errors import BudgetRefusedError
from margrave.privacy.ledger_file import locked
from margrave.privacy.noise import gaussian_sampler

DOMAIN = mg.Domain([mg.Attribute("a", size=3), mg.Attribute("b", size=4), mg.Attribute("c", size=2)])
WORKLOAD = mg.Workload.all_kway(DOMAIN, 2)
BUDGET = mg.Budget.zcdp(rho="0.1")


def table(rows=500, seed=1):
    draw = np.random.default_rng(seed)
    return mg.CodedTable(DOMAIN, {one.name: draw.integers(0, one.size, rows) for one in DOMAIN})


def released(ledger=None):
    noisy = mg.residual_planner(table(), WORKLOAD, BUDGET, contributions=1, ledger=ledger)
    return mg.reconstruct(noisy, WORKLOAD)


def drawn(sampler, queue):
    queue.put(sampler.draw(Fraction(10**20), 20).tolist())


@pytest.mark.parametrize("name", ["margrave", "opendp"])
def test_forked_processes_never_share_random_words(name):
    """Noise of a standard deviation of 10¹⁰: two equal numbers among 80 are a false alarm in less than 10⁻⁶ of runs.

    A generator that is copied by a fork gives all 20 numbers again."""
    sampler = gaussian_sampler(name)
    sampler.draw(Fraction(10**20), 5)
    forking = multiprocessing.get_context("fork")
    queue = forking.Queue()
    children = [forking.Process(target=drawn, args=(sampler, queue)) for _ in range(3)]
    for child in children:
        child.start()
    numbers = [*sampler.draw(Fraction(10**20), 20).tolist()]
    for _ in children:
        numbers += queue.get(timeout=60)
    for child in children:
        child.join(60)
    assert len(set(numbers)) == 80


def measure_into(queue):
    queue.put(released().provenance.rho)


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_release_in_a_process_that_was_started_after_a_release(way, monkeypatch):
    monkeypatch.setenv("MARGRAVE_THREADS", "2")
    released()
    starting = multiprocessing.get_context(way)
    queue = starting.Queue()
    child = starting.Process(target=measure_into, args=(queue,))
    child.start()
    assert queue.get(timeout=120) == Fraction(1, 10)
    child.join(60)
    assert child.exitcode == 0


def test_threads_share_a_ledger_and_never_overspend(tmp_path):
    """Eight releases at once where there is room for five."""
    ledger = mg.Ledger(tmp_path / "ledger", cap="0.5")
    results = []

    def attempt(_):
        try:
            results.append(released(ledger))
        except BudgetRefusedError:
            results.append(None)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(attempt, range(8)))
    made = [one for one in results if one is not None]
    assert len(made) == 5
    assert ledger.spent == Fraction(1, 2)
    assert len({one.provenance.ledger_hash for one in made}) == 5
    assert len({one.table("a", "b").values.tobytes() for one in made}) == 5
    for one in made:
        assert (one.table("a", "b").values >= 0).all()
        assert np.allclose(one.table("a", "b").values.sum(1), one.table("a", "c").values.sum(1), atol=1e-6)


def test_a_lock_ends_although_a_forked_process_has_the_file_open(tmp_path):
    ledger = mg.Ledger.create(tmp_path / "ledger", cap=1)
    with locked(ledger.path, write=True):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    try:
        charging = threading.Thread(target=ledger.charge, args=("0.1", "test"), daemon=True)
        charging.start()
        charging.join(20)
        assert not charging.is_alive()
        assert ledger.spent == Fraction(1, 10)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


AGAIN = """
import resource, sys
sys.path[:0] = {paths!r}
from hardening.test_processes import released
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
for _ in range(10):
    released()
before = peak()
for _ in range(50):
    released()
print(peak() - before)
"""


@pytest.mark.engines
def test_fifty_releases_take_no_more_memory_than_ten():
    """A release of 30 cells holds about a hundred kilobytes: one that is never let go would take 5 MB in fifty."""
    paths = [one for one in sys.path if one]
    output = subprocess.run(
        [sys.executable, "-c", AGAIN.format(paths=paths)], capture_output=True, text=True, timeout=600
    )
    assert output.returncode == 0, output.stderr
    assert float(output.stdout) < 4, output.stdout
