"""Kernels are compiled when they are first called, whoever calls them, and give what the function gives."""

import subprocess
import sys
import threading
import time
import types

import numba
import numpy as np

from margrave.algebra.kernels import Kernel, compiler

compiled = compiler(nogil=True)


def module(name, source, **names):
    """A module that exists in this test alone."""
    made = types.ModuleType(name)
    made.__dict__.update(compiled=compiled, **names)
    exec(compile(source, name, "exec"), made.__dict__)
    return made


def test_kernels_call_each_other_within_and_across_modules():
    below = module("below", "@compiled\ndef one(x):\n    return x + 1\n")
    above = module(
        "above",
        "@compiled\ndef two(x):\n    return three(one(x))\n\n@compiled\ndef three(x):\n    return 3 * x\n",
        one=below.one,
    )
    assert isinstance(above.two, Kernel)
    first = above.two
    assert first(1) == 6
    assert first(2.5) == 10.5
    assert not isinstance(above.three, Kernel)  # replaced by what was compiled
    assert above.three(2) == 6
    assert below.one(1) == 2


def test_a_kernel_is_described_as_its_function():
    @compiled
    def described(x):
        """Return the same."""
        return x

    assert (described.__name__, described.__doc__) == ("described", "Return the same.")
    assert described.__wrapped__(3) == 3


def test_threads_may_call_a_kernel_for_the_first_time_at_once():
    kernel = module("threads", "@compiled\ndef total(x):\n    return x.sum()\n").total
    found, start = [], threading.Barrier(4)

    def call():
        start.wait()
        found.append(kernel(np.arange(10.0)))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [45.0] * 4


def test_no_thread_sees_a_kernel_before_those_it_calls_are_there(monkeypatch):
    slow = numba.njit

    def njit(**options):
        def decorator(function):
            time.sleep(0.05)  # long enough for the others to come
            return slow(**options)(function)

        return decorator

    monkeypatch.setattr(numba, "njit", njit)
    names = ("one", "two", "three")
    source = "@compiled\ndef total(x):\n    return one(x) + two(x) + three(x)\n\n" + "\n".join(
        f"@compiled\ndef {name}(x):\n    return x + {place}\n" for place, name in enumerate(names)
    )
    made, found = module("slow", source), []

    def call(wait):
        time.sleep(wait)
        found.append(made.total(1))

    threads = [threading.Thread(target=call, args=(wait,)) for wait in (0, 0.06, 0.11, 0.16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [6] * 4


def test_importing_kernels_does_not_import_the_compiler():
    code = "import sys, margrave.algebra.transform, margrave.reconstruction.estimates; print('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
