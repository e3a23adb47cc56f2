"""Work that cannot fit is refused before it starts, with the tables to leave out."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from margrave import memory
from margrave.domain import Domain
from margrave.errors import MemoryLimitError, StoreError
from margrave.memory import large_array, on_disk
from margrave.workload import Workload


@pytest.fixture
def workload():
    return Workload.all_kway(Domain.fromdict({"age": 100, "sex": 2, "town": 500, "job": 40}), 2)


def test_what_fits_passes(workload, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**9)
    workload.require_memory(5, "the test")


def test_what_does_not_fit_names_the_largest_tables_and_a_remedy(workload, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**6)
    with pytest.raises(MemoryLimitError) as caught:
        workload.require_memory(5, "reconstruction")
    text = str(caught.value)
    # 50,000 + 200 + 4,000 + 1,000 + 80 + 20,000 cells of 8 bytes, five times
    assert text.startswith("reconstruction needs 3.01 MB of memory and 900 kB can be used;")
    assert "age × town (400 kB), town × job (160 kB), age × job (32 kB)" in text
    assert "leave these out (Workload.filter)" in text


def test_a_table_of_any_size_has_a_readable_need(monkeypatch):
    huge = Workload(Domain.fromdict({f"a{i}": 10 for i in range(30)}), [[f"a{i}" for i in range(30)]])
    with pytest.raises(MemoryLimitError, match=r"needs 8\.0e\+18 TB of memory"):
        huge.require_memory(1, "it")


def test_a_limit_on_the_address_space_counts(monkeypatch):
    resource = pytest.importorskip("resource", reason="this system has no resource limits")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (305_000_000, 305_000_000))
    monkeypatch.setattr(memory, "_mapped_bytes", lambda: 1_000_000)
    assert memory.available_bytes() == 4_000_000  # and 300 MB for threads and compiled code
    monkeypatch.setattr(memory, "_mapped_bytes", lambda: 6_000_000)
    assert memory.available_bytes() == 0


def test_without_any_information_the_whole_machine_counts(monkeypatch):
    def missing(self, *args, **kwargs):
        raise FileNotFoundError

    monkeypatch.setattr("pathlib.Path.read_text", missing)
    assert memory.available_bytes() >= 2**26


def test_what_is_taken_already_is_known_where_the_system_tells():
    assert memory._mapped_bytes() >= 0


def test_a_container_leaves_its_limit_less_what_is_used(monkeypatch):
    contents = {"memory.max": "1000000\n", "memory.current": "400000\n"}
    monkeypatch.setattr("pathlib.Path.read_text", lambda self: contents[self.name])
    assert memory._container_bytes() == 600_000
    contents["memory.max"] = "max\n"
    assert memory._container_bytes() == 2**62


def test_arrays_on_disk_are_files_without_a_name(tmp_path):
    with on_disk(tmp_path):
        array = large_array(1000)
        array[:] = np.arange(1000)
        assert not list(tmp_path.iterdir())
        assert array.flags.writeable
        assert large_array(0).size == 0
    assert array.sum() == 499_500
    maps = Path("/proc/self/maps")
    # Linux shows where the file was, and that it has gone.
    assert not maps.exists() or f"{tmp_path}/" in maps.read_text()
    with on_disk(None):
        assert large_array(5).base is None


def test_a_disk_that_is_too_small_is_refused_before_it_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1_000_000))
    text = f"an array of 1.6 MB does not fit into {tmp_path}, where 1 MB are free; name a folder on a larger disk"
    with on_disk(tmp_path), pytest.raises(MemoryLimitError, match=re.escape(text)):
        large_array(200_000)


def test_arrays_are_put_into_folders_alone(tmp_path):
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "missing", tmp_path / "file"):
        text = f"{wrong} is not a folder that can be written to"
        with pytest.raises(StoreError, match=re.escape(text)), on_disk(wrong):
            pass
