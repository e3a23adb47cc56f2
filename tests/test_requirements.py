"""Skips are told with a reason, and are failures where nothing may be missing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = {
    "test_one.py": """
import pytest
def test_engine(): pytest.importorskip("no_such_engine", reason="the engine is not there")
@pytest.mark.skipif(True, reason="no Java")
def test_marked(): pass
@pytest.fixture
def server(): pytest.skip("no server")
def test_fixture(server): pass
def test_data(): pytest.skip("the data set adult is not in shared")
@pytest.mark.skipif(True, reason="root may write everywhere")
def test_root(): pass
def test_runs(): pass
""",
    "test_two.py": 'import pytest\npytest.importorskip("no_such_package", reason="the package is not there")\n',
}


@pytest.mark.parametrize(("required", "failed", "skipped"), [("", 0, 6), ("1", 4, 2)])
def test_a_skip_is_a_failure_where_all_is_required(tmp_path, required, failed, skipped):
    for name, text in {"conftest.py": (Path(__file__).parent / "conftest.py").read_text(), **TESTS}.items():
        (tmp_path / name).write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-ra",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        "-c",
        os.devnull,
    ]
    command += ["--continue-on-collection-errors", str(tmp_path)]
    environment = {**os.environ, "MARGRAVE_REQUIRE_ALL": required}
    shown = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path).stdout
    found = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", shown)}
    assert found.get("failed", 0) + found.get("error", 0) == failed, shown
    assert (found["skipped"], found["passed"]) == (skipped, 1)
    assert "the engine is not there" in shown
