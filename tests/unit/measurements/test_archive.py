"""Saved measurements come back bit by bit; what is damaged, foreign or newer is refused in words."""

import json
import re

import numpy as np
import pytest

from margrave.domain import Attribute, Domain
from margrave.errors import MeasurementError
from margrave.measurements import Gaussian, Laplace, Measurements
from margrave.measurements.archive import write_archive

DOMAIN = Domain([Attribute("age", cuts=[18, 65]), Attribute("sex", labels=["F", "Ä"]), Attribute("one", size=1)], "ö")


def everything():
    generator = np.random.default_rng(8)
    root = generator.normal(size=(2, 2))
    return Measurements.from_residuals(
        DOMAIN,
        [
            (("sex", "age"), generator.normal(size=(1, 2)), Gaussian(1 / 3)),
            (("age",), generator.normal(size=2), Gaussian(covariance=root @ root.T + np.eye(2))),
            (("age",), generator.normal(size=2), Laplace(0.1)),
            ((), 12.0, Gaussian(3.0)),
        ],
    )


def refused(text):
    return pytest.raises(MeasurementError, match=re.escape(text))


def test_measurements_come_back_bit_by_bit(tmp_path):
    before = everything()
    before.save(tmp_path / "noisy.npz")
    after = Measurements.load(tmp_path / "noisy.npz")
    assert after.domain == before.domain
    assert after.layout.sets == before.layout.sets
    for name in ("values", "precisions", "counts"):
        assert getattr(after, name).tobytes() == getattr(before, name).tobytes()
        assert getattr(after, name).dtype == getattr(before, name).dtype
    assert [one.positions for one in after.others] == [one.positions for one in before.others]
    assert [one.noise for one in after.others] == [one.noise for one in before.others]
    assert [one.values.tolist() for one in after.others] == [one.values.tolist() for one in before.others]
    assert after.sets == before.sets


def test_noisy_marginals_come_back_under_the_name_given(tmp_path):
    before = Measurements.from_marginals(DOMAIN, [(("age", "sex", "one"), np.arange(6.0).reshape(3, 2, 1), 2.0)])
    before.save(str(tmp_path / "noisy"))
    assert [path.name for path in tmp_path.iterdir()] == ["noisy"]
    assert np.array_equal(Measurements.load(tmp_path / "noisy").values, before.values)


def test_noise_of_ones_own_cannot_be_saved(tmp_path):
    class Own:
        loss = gradient = lambda *_: 0.0

    measurements = Measurements.from_residuals(DOMAIN, [(("age",), np.zeros(2), Own())])
    with refused("the noise of age is an object of your own, which no file can hold; save measurements with"):
        measurements.save(tmp_path / "noisy.npz")
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    with refused("folder cannot be written ("):
        everything().save(tmp_path / "folder")
    with refused("noisy.npz cannot be written (No such file or directory); name another file"):
        everything().save(tmp_path / "nowhere" / "noisy.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_missing_file_is_named(tmp_path):
    with refused("noisy.npz cannot be read (No such file or directory); give the path of a saved file"):
        Measurements.load(tmp_path / "noisy.npz")


@pytest.mark.parametrize("content", [b"", b"not a file of arrays", b"PK\x03\x04 but no more"])
def test_foreign_files_are_refused(tmp_path, content):
    (tmp_path / "noisy.npz").write_bytes(content)
    with refused("noisy.npz is damaged or was not written by margrave ("):
        Measurements.load(tmp_path / "noisy.npz")


def test_a_file_of_one_array_is_refused(tmp_path):
    np.save(tmp_path / "noisy.npy", np.zeros(3))
    with refused("noisy.npy holds a single array; give a file that margrave has written"):
        Measurements.load(tmp_path / "noisy.npy")


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_damage_anywhere_is_found(tmp_path, place):
    path = tmp_path / "noisy.npz"
    everything().save(path)
    content = bytearray(path.read_bytes())
    path.write_bytes(content[: int(place * len(content))])
    with refused("noisy.npz is damaged or was not written by margrave ("):
        Measurements.load(path)


def test_a_changed_number_is_found(tmp_path):
    path = tmp_path / "noisy.npz"
    measurements = everything()
    measurements.save(path)
    content = path.read_bytes()
    number = measurements.values[measurements.values != 0][0].tobytes()
    assert number in content
    path.write_bytes(content.replace(number, np.float64(1.5).tobytes(), 1))
    with refused("noisy.npz is damaged or was not written by margrave ("):
        Measurements.load(path)


def test_no_pickle_is_ever_read(tmp_path):
    np.savez(tmp_path / "noisy.npz", header=np.array([{"margrave": "measurements"}], dtype=object))
    with refused("noisy.npz is damaged or was not written by margrave ("):
        Measurements.load(tmp_path / "noisy.npz")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"margrave": "plan"}, "holds 'plan', not 'measurements'; give a file of measurements"),
        ({"schema": 2}, "has schema 2, this margrave reads up to 1; upgrade it"),
        ({"schema": "1"}, "has schema '1'; a version is a whole number from 1"),
        ({"schema": True}, "has schema True; a version is a whole number from 1"),
        ({"tables": [["nobody"]]}, "does not hold measurements (no attribute 'nobody' in the domain"),
        ({"tables": [["age"]]}, "is damaged: its 'counts' has shape (4,) of int64, not (2,) of int64; save it again"),
        ({"domain": 3}, "does not hold measurements ("),
        ({"others": [{"attributes": ["age"], "noise": "cauchy"}]}, "does not hold measurements (it lacks 'cauchy')"),
        ({"others": [{"attributes": ["age"], "noise": "laplace"}]}, "does not hold measurements (it lacks 'scale')"),
    ],
)
def test_headers_that_say_something_else_are_refused(tmp_path, changes, text):
    path = tmp_path / "noisy.npz"
    everything().save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("header").tobytes())
    write_archive(path, {**header, **changes}, arrays)
    with refused(f"noisy.npz {text}"):
        Measurements.load(path)


def test_a_header_that_is_no_object_is_refused(tmp_path):
    np.savez(tmp_path / "noisy.npz", header=np.frombuffer(b"[1]", dtype=np.uint8))
    with refused("noisy.npz is damaged or was not written by margrave (not a JSON object;"):
        Measurements.load(tmp_path / "noisy.npz")
