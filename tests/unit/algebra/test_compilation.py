"""Kernels are compiled when they are first called, whoever calls them, and give what the function gives."""

import subprocess
import sys
import threading
import time
import types

import numba
import numpy as np

from margrave.algebra.kernels import Emitted, Kernel, compiler

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


def test_kernels_call_code_that_is_written_out():
    def added(_, one, other):
        def write(context, builder, signature, given):
            return builder.add(*given)

        return numba.int64(numba.int64, numba.int64), write

    made = module("written", "@compiled\ndef twice(x):\n    return 2 * added(x, 3)\n", added=Emitted(added))
    assert made.added.__wrapped__ is added  # so that machine code is thrown away when it changes
    assert made.twice(4) == 14
    assert made.added.__wrapped__ is added


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


def test_machine_code_is_kept_until_anything_that_went_into_it_changes(tmp_path):
    """A kernel that calls one of another module and takes a value from there; each change is seen, and only changes."""
    head = "from margrave.algebra.kernels import compiled\n"
    above = head + "from below import LIST, one\n\n\n@compiled\ndef two(x):\n    return one(x) * LIST[1]\n"
    below = head + "import numpy as np\nLIST, STEP = np.array([1, {entry}]), {step}\n\n\n"
    below += "@compiled\ndef one(x):\n    return x + STEP + {added}\n"
    (tmp_path / "above.py").write_text(above)
    code = "import above; two = above.two; two(5); print(two(5), sum(above.two.stats.cache_misses.values()))"

    def run(**values):
        (tmp_path / "below.py").write_text(below.format(**values))
        # Python itself takes a file for unchanged that has the same size and was written in the same second.
        done = subprocess.run([sys.executable, "-B", "-c", code], cwd=tmp_path, capture_output=True, text=True)
        return done.stdout.split() or done.stderr

    assert run(entry=2, step=1, added=1) == ["14", "1"]
    assert run(entry=2, step=1, added=1) == ["14", "0"]
    assert run(entry=3, step=1, added=1) == ["21", "1"]
    assert run(entry=3, step=2, added=1) == ["24", "1"]
    assert run(entry=3, step=2, added=4) == ["33", "1"]
    assert run(entry=3, step=2, added=4) == ["33", "0"]


def test_importing_kernels_does_not_import_the_compiler():
    code = "import sys, margrave.algebra.transform, margrave.reconstruction.estimates; print('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
