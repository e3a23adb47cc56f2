"""Time and memory of a step are those of the step."""

import os
import sys
import time

import numpy as np
import pytest

from experiments.cost import costed, peak_bytes, resident_bytes


def test_the_time_is_that_of_the_work():
    value, cost = costed(lambda: time.sleep(0.05) or "done")
    assert value == "done"
    assert 0.05 <= cost.seconds < 5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget the largest size of a process")
def test_the_memory_of_one_step_does_not_count_for_the_next():
    _, small = costed(lambda: None)
    _, large = costed(lambda: np.ones(30_000_000).sum())
    _, after = costed(lambda: None)
    assert large.megabytes > small.megabytes + 200
    assert after.megabytes < large.megabytes - 200


def test_sizes_of_processes():
    assert 1e6 < resident_bytes(os.getpid()) <= peak_bytes()
    if sys.platform == "linux":
        assert resident_bytes(2**22 + 1) == 0  # beyond the largest process number
