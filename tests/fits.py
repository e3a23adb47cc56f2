"""What tests let other processes do in place of real work: must be importable by name there."""

import os
import signal
import time


def never_ends(sender, problem):
    time.sleep(600)


def takes_memory(sender, problem):
    held = bytearray(400_000_000)
    for place in range(0, len(held), 4096):
        held[place] = 1
    time.sleep(600)


def dies(sender, problem):
    os.kill(os.getpid(), signal.SIGKILL)


def answers_uniformly(sender, problem):
    import numpy as np

    shapes = [tuple(problem.sizes[name] for name in names) for names in problem.wanted]
    sender.send(("done", "", [np.full(shape, problem.total / np.prod(shape)) for shape in shapes]))


def gives_up(sender, problem):
    sender.send(("failed", "ValueError: no", None))


def two_rows(task):
    yield (task, "first", os.environ.get("MARGRAVE_THREADS"))
    yield (task, "second", os.environ.get("MARGRAVE_THREADS"))


def fails_at_three(task):
    from margrave.errors import DataError

    if task == 3:
        raise DataError("three is not allowed; leave it out")
    yield task


def stumbles(task):
    yield 1 / task


def is_killed(task):
    yield task
    os.kill(os.getpid(), signal.SIGKILL)


def spins():
    while True:
        pass
