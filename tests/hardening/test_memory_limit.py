"""A limit on memory that does not suffice: the run is refused before the charge, never ended in the middle of it."""

import subprocess
import sys

import pytest

pytest.importorskip("resource", reason="this system has no resource limits")

# 364 tables of 8,000 cells: 23 MB an array. The limit is what the process has mapped already and so much more.
RUN = """
import resource, sys
from pathlib import Path
sys.path[:0] = {paths!r}
import numpy as np
import margrave as mg
measure = getattr(mg, {mechanism!r})
domain = mg.Domain([mg.Attribute(f"a{{k}}", size=20) for k in range(14)])
workload = mg.Workload.all_kway(domain, 3)
table = mg.CodedTable(domain, {{one.name: np.arange(1000) % 20 for one in domain}})
mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + {room}, mapped + {room}))
ledger = mg.Ledger({ledger!r}, cap=1)
try:
    noisy = measure(table, workload, mg.Budget.zcdp(rho="0.5"), contributions=1, ledger=ledger)
except mg.MargraveError as error:
    print("refused", "before" if ledger.is_new else "after", error)
    sys.exit()
try:
    mg.reconstruct(noisy, workload)
    print("done")
except mg.MargraveError as error:
    print("measured", error)
"""


def outcome(tmp_path, mechanism, megabytes):
    text = RUN.format(
        paths=[one for one in sys.path if one],
        mechanism=mechanism,
        room=megabytes * 10**6,
        ledger=str(tmp_path / f"ledger {megabytes}"),
    )
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_too_little_memory_is_refused_before_the_charge(tmp_path):
    text = outcome(tmp_path, "residual_planner", 350)
    assert text.startswith("refused before counting and measuring needs 71.3 MB of memory and ")
    assert "leave these out (Workload.filter)" in text


@pytest.mark.engines
@pytest.mark.parametrize("mechanism", ["residual_planner", "adaptive_planner", "scalable_mwem", "gaussian_marginals"])
def test_no_limit_ends_a_run_between_the_charge_and_the_measurements(tmp_path, mechanism):
    """From where the first call is refused to where all is done, in steps of 25 MB."""
    found = [outcome(tmp_path, mechanism, room) for room in range(375, 800, 25)]
    words = [text.split(" ", 2)[:2] for text in found]
    assert ["refused", "before"] in words
    assert all(word == ["refused", "before"] or word[0].strip() in ("measured", "done") for word in words), found
