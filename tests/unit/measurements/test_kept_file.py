"""Measurements that are paid for: where they are kept, and what is refused before anything is spent."""

from collections import namedtuple

import numpy as np
import pytest

from margrave.domain import Domain
from margrave.errors import MeasurementError
from margrave.measurements import Measurements, archive
from margrave.measurements.archive import KeptFile

NOISY = Measurements.from_marginals(Domain.fromdict({"sex": 2}), [(("sex",), np.array([3.0, 4.0]), 1.0)])


def test_they_are_kept_beside_the_folder(tmp_path):
    kept = KeptFile.beside(tmp_path / "release")
    assert (kept.target, kept.path) == (tmp_path / "release.measurements.npz", None)
    kept.require_room(100)
    assert list(tmp_path.iterdir()) == []
    kept.save(NOISY)
    assert kept.path == kept.target
    with pytest.raises(MeasurementError, match="the measurements of a run that did not finish; they are paid for"):
        kept.require_room(100)
    kept.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_refused(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(archive.shutil, "disk_usage", lambda folder: usage(2, 1, 1_000_000))
    with pytest.raises(MeasurementError, match="has 1 MB left and the measurements alone may take 90 MB"):
        KeptFile(tmp_path / "x.npz").require_room(10_000_000)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_and_a_name_that_is_too_long_are_refused(tmp_path):
    with pytest.raises(MeasurementError, match="cannot be written"):
        KeptFile(tmp_path / "none" / "x.npz").require_room(1)
    with pytest.raises(MeasurementError, match="is too long for a file; choose a shorter one"):
        KeptFile(tmp_path / ("x" * 256)).require_room(1)


def test_where_they_cannot_be_kept_they_go_where_temporary_files_go(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "mkdtemp", lambda prefix: str(tmp_path))
    kept = KeptFile(tmp_path / "none" / "x.npz")
    kept.save(NOISY)
    assert len(Measurements.load(kept.path)) == len(NOISY)
    monkeypatch.setattr(archive, "mkdtemp", lambda prefix: str(tmp_path / "none"))
    with pytest.raises(MeasurementError, match="cannot be written"):
        KeptFile(tmp_path / "none" / "x.npz").save(NOISY)
