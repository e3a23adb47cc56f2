"""Measurements that are paid for: where they are kept, and what is refused before anything is spent."""

from collections import namedtuple

import numpy as np
import pytest

from margrave.cli import keeping
from margrave.domain import Domain
from margrave.errors import JobError, MeasurementError
from margrave.measurements import Measurements

NOISY = Measurements.from_marginals(Domain.fromdict({"sex": 2}), [(("sex",), np.array([3.0, 4.0]), 1.0)])


def test_they_are_kept_beside_the_folder(tmp_path):
    file = keeping.kept_file(tmp_path / "release")
    assert file == tmp_path / "release.measurements.npz"
    keeping.require_room(file, 100)
    assert list(tmp_path.iterdir()) == []
    assert keeping.keep(NOISY, file) == file
    with pytest.raises(JobError, match="the measurements of a run that did not end; they are paid for"):
        keeping.require_room(file, 100)


def test_a_disk_without_room_is_refused(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(keeping.shutil, "disk_usage", lambda folder: usage(2, 1, 1_000_000))
    with pytest.raises(JobError, match="has 1 MB left and the measurements alone may take 90 MB"):
        keeping.require_room(tmp_path / "x.npz", 10_000_000)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(JobError, match="cannot be written"):
        keeping.require_room(tmp_path / "none" / "x.npz", 1)


def test_where_they_cannot_be_kept_they_go_where_temporary_files_go(tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "mkdtemp", lambda prefix: str(tmp_path))
    kept = keeping.keep(NOISY, tmp_path / "none" / "x.npz")
    assert len(Measurements.load(kept)) == len(NOISY)
    monkeypatch.setattr(keeping, "mkdtemp", lambda prefix: str(tmp_path / "none"))
    with pytest.raises(MeasurementError, match="cannot be written"):
        keeping.keep(NOISY, tmp_path / "none" / "x.npz")
