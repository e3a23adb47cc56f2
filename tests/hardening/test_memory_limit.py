"""A limit on memory that does not suffice: the run is refused before the charge, never ended in the middle of it."""

import re
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
    # Four arrays, and something for each thread.
    assert re.match(r"refused before counting and measuring needs 9[45]\.\d MB of memory and ", text)
    assert "leave these out (Workload.filter)" in text


REPORT = """
import resource, sys
sys.path[:0] = {paths!r}
import numpy as np
import margrave as mg
domain = mg.Domain.fromdict({{"a": 3, "b": 2}})
workload = mg.Workload(domain, [("a", "b")])
table = mg.CodedTable(domain, {{"a": np.arange(600) % 3, "b": np.arange(600) % 2}})
resource.setrlimit(resource.RLIMIT_AS, ({gigabytes} << 30, {gigabytes} << 30))
ledger = mg.Ledger({ledger!r}, cap=1)
publication = mg.Publication({folder!r}, report={report})
try:
    publication.check(workload)
except mg.MargraveError as error:
    print("refused", "before" if ledger.is_new else "after", error)
    sys.exit()
noisy = mg.residual_planner(table, workload, mg.Budget.zcdp(rho="0.5"), contributions=1, ledger=ledger)
publication.publish(noisy, workload)
print("done")
"""


@pytest.mark.parametrize(
    ("gigabytes", "report", "said"),
    [
        (16, True, "refused before the report needs 77.3 GB of address space, and the limit of this process (ulimit "
        "-v) is 17.2 GB; raise the limit, or leave the report out: report=False (--no-report)\n"),
        (16, False, "done\n"),
        (72, True, "done\n"),
    ],
)  # fmt: skip
def test_a_limit_on_addresses_does_not_end_the_process_that_draws_a_report(tmp_path, gigabytes, report, said):
    """The engine of the charts reserves 64 GiB of addresses, and ends the process where it may not."""
    places = {"ledger": str(tmp_path / "ledger"), "folder": str(tmp_path / "release")}
    text = REPORT.format(paths=[one for one in sys.path if one], gigabytes=gigabytes, report=report, **places)
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr[:2000]
    assert run.stdout == said
    assert (tmp_path / "release" / "report.html").exists() is (report and gigabytes > 64)


@pytest.mark.engines
@pytest.mark.parametrize("mechanism", ["residual_planner", "adaptive_planner", "scalable_mwem", "gaussian_marginals"])
def test_no_limit_ends_a_run_between_the_charge_and_the_measurements(tmp_path, mechanism):
    """From where the first call is refused to where all is done, in steps of 25 MB."""
    found = [outcome(tmp_path, mechanism, room) for room in range(375, 800, 25)]
    words = [text.split(" ", 2)[:2] for text in found]
    assert ["refused", "before"] in words
    assert all(word == ["refused", "before"] or word[0].strip() in ("measured", "done") for word in words), found


HELD = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
import numpy as np
import margrave as mg
from margrave.mechanisms import spending

def status(word):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(word))

def measured(size, attributes):
    draw = np.random.default_rng(1)
    domain = mg.Domain([mg.Attribute(f"a{{k}}", size=size) for k in range(attributes)])
    shared = draw.integers(0, size, 100_000)
    mixed = lambda: np.where(draw.random(100_000) < 0.8, shared, draw.integers(0, size, 100_000))
    table = mg.CodedTable(domain, {{one.name: mixed() for one in domain}})
    return getattr(mg, {mechanism!r})(table, mg.Workload.all_kway(domain, 3), mg.Budget.zcdp(rho=1), contributions=1)

measured(3, 4)  # what is compiled and loaded is no part of it
checked = spending.require_memory

def check(needed, *others, **options):
    global asked, before
    asked, before = needed, status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far

spending.require_memory = check
measured(20, 13)
print(asked, status("VmHWM") - before)
"""


@pytest.mark.engines
@pytest.mark.parametrize("mechanism", ["residual_planner", "adaptive_planner", "scalable_mwem", "gaussian_marginals"])
def test_as_much_memory_is_asked_for_as_is_used(mechanism):
    """Attributes depend on each other, so that the adaptive planner measures much of it again; 19 MB an array."""
    text = HELD.format(paths=[one for one in sys.path if one], mechanism=mechanism)
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    asked, used = map(int, run.stdout.split())
    assert used <= 1.05 * asked
    assert asked <= 2.5 * used
