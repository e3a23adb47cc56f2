"""Whole runs with everything drawn at random (``soak.py``): a few here, more of them with the heavy tests."""

import pytest
from hardening.soak import one_run

FEW, MORE = range(8), range(100, 160)


@pytest.mark.parametrize("number", FEW)
def test_a_run_holds_what_is_promised(number, tmp_path):
    one_run(number, 3, tmp_path)


@pytest.mark.engines
@pytest.mark.parametrize("number", MORE)
def test_more_runs_hold_what_is_promised(number, tmp_path):
    one_run(number, 3, tmp_path)
