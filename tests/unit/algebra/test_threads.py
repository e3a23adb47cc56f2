"""Ranges cover every table once, on any number of threads, and an error in one of them comes out."""

import multiprocessing
import threading

import numpy as np
import pytest

from margrave.algebra.kernels import over_tables, thread_count

OFFSET = np.arange(0, 101) * 10_000


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_every_table_is_visited_exactly_once(monkeypatch, threads):
    monkeypatch.setenv("MARGRAVE_THREADS", threads)
    visits = np.zeros(100, dtype=int)
    lock = threading.Lock()

    def task(begin, end):
        with lock:
            visits[begin:end] += 1

    over_tables(task, 10, 100, OFFSET)
    assert visits.tolist() == [0] * 10 + [1] * 90


def test_no_tables_no_calls():
    calls = []
    over_tables(lambda begin, end: calls.append((begin, end)), 7, 7, OFFSET)
    assert calls == []


def test_an_error_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setenv("MARGRAVE_THREADS", "2")

    def task(begin, end):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        over_tables(task, 0, 100, OFFSET)


def test_the_environment_sets_the_number_of_threads(monkeypatch):
    monkeypatch.setenv("MARGRAVE_THREADS", "3")
    assert thread_count() == 3
    monkeypatch.setenv("MARGRAVE_THREADS", "none")
    assert thread_count() >= 1


def test_a_forked_process_has_threads_of_its_own(monkeypatch):
    """It has the pool of its parent, with none of its threads: without help it would wait for them for ever."""
    monkeypatch.setenv("MARGRAVE_THREADS", "2")
    over_tables(lambda begin, end: None, 0, 100, OFFSET)
    child = multiprocessing.get_context("fork").Process(target=over_tables, args=(lambda *_: None, 0, 100, OFFSET))
    child.start()
    child.join(30)
    alive = child.is_alive()
    child.kill()
    assert not alive
    assert child.exitcode == 0
