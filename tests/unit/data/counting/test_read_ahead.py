"""Reading ahead changes nothing but the thread."""

import threading

import pytest

from margrave.data.counting.fetch import read_ahead
from margrave.errors import DataError


def test_all_items_come_in_order_from_another_thread():
    threads = set()

    def items():
        for k in range(100):
            threads.add(threading.current_thread())
            yield k

    assert list(read_ahead(items())) == list(range(100))
    assert threads.isdisjoint({threading.current_thread()})


def test_a_failure_comes_where_it_happened():
    def items():
        yield 1
        raise DataError("broken")

    read = read_ahead(items())
    assert next(read) == 1
    with pytest.raises(DataError, match="broken"):
        next(read)


def test_a_reader_that_is_left_stops_its_thread():
    closed = threading.Event()

    def items():
        try:
            yield from range(10**9)
        finally:
            closed.set()

    source = items()
    read = read_ahead(source)
    assert [next(read) for _ in range(3)] == [0, 1, 2]
    before = threading.active_count()
    read.close()
    assert threading.active_count() == before - 1
    source.close()
    assert closed.is_set()


def test_an_interrupt_of_the_reader_reaches_the_one_who_waits():
    def items():
        yield 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(read_ahead(items()))
