"""Files from others take no more time and memory than they have bytes, and end in one sentence.

Every case is a file of at most a few hundred kilobytes that took gigabytes, minutes or a trace before.
"""

import io
import json
import struct
import time
import tracemalloc
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from margrave.domain import Attribute, Domain
from margrave.errors import MargraveError, MeasurementError
from margrave.measurements import Gaussian, Laplace, Measurements, Provenance, Step
from margrave.measurements.archive import open_archive

DOMAIN = Domain([Attribute("age", cuts=[18, 65]), Attribute("sex", labels=["F", "Ä"]), Attribute("one", size=1)])
RECORD = Provenance(
    mechanism="made up",
    steps=(Step("all", Fraction(1, 8)),),
    rho=Fraction(1, 8),
    epsilon=4.0,
    delta=1e-9,
    contributions=1,
    sampler="margrave (system entropy)",
    private=True,
    version="0.1",
)
MOST_SECONDS, MOST_BYTES = 1.0, 200_000_000


def everything():
    generator = np.random.default_rng(8)
    return Measurements.from_residuals(
        DOMAIN,
        [
            (("sex", "age"), generator.normal(size=(1, 2)), Gaussian(1 / 3)),
            (("sex", "age"), generator.normal(size=(1, 2)), Gaussian(1.5)),
            (("age",), generator.normal(size=2), Gaussian(covariance=np.eye(2) + 0.5)),
            (("age",), generator.normal(size=2), Laplace(0.1)),
            ((), 12.0, Gaussian(3.0)),
        ],
    ).with_provenance(RECORD)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "noisy.npz"
    everything().save(path)
    return path


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def written(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def header_of(members):
    return json.loads(np.load(io.BytesIO(members["header.npy"])).tobytes())


def with_header(members, text):
    return {**members, "header.npy": packed(np.frombuffer(text.encode(), dtype=np.uint8))}


def edited(original, path, **changes):
    """The original file with other entries in its header."""
    members = members_of(original)
    return written(path, with_header(members, json.dumps({**header_of(members), **changes})))


def refusal(path):
    """The message of a refusal, which is one sentence within the limits of time and memory; None for no refusal."""
    tracemalloc.start()
    start, message = time.process_time(), None
    try:
        Measurements.load(path)
    except MargraveError as error:
        message = str(error)
    taken, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < MOST_SECONDS
    assert peak < MOST_BYTES
    assert message is None or ("\n" not in message and len(message) < 5000)
    return message


def test_what_is_untouched_is_read(original):
    assert refusal(original) is None


# --- amounts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", ["1e999999999", "1e-999999999", "1/1e99999999", "9" * 10_000, "1_000/3", "½"])
@pytest.mark.parametrize("place", ["rho", "steps"])
def test_a_fraction_that_fills_the_memory_is_not_made(original, tmp_path, amount, place):
    record = RECORD.to_dict()
    record[place] = amount if place == "rho" else [{"purpose": "all", "rho": amount}]
    message = refusal(edited(original, tmp_path / "noisy.npz", provenance=record))
    assert "the provenance is damaged (an amount is " in message
    assert "it must be a text such as '1/3'" in message


# --- arrays ----------------------------------------------------------------------------------------------------


def test_a_small_compressed_file_takes_no_gigabytes(original, tmp_path):
    members = members_of(original) | {"values.npy": packed(np.zeros(30_000_000, dtype=np.float64))}
    path = written(tmp_path / "noisy.npz", members, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 300_000
    assert "is compressed, as margrave never writes it" in refusal(path)


def test_one_compressed_array_among_others_is_found(original, tmp_path):
    path = tmp_path / "noisy.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members_of(original).items():
            kind = zipfile.ZIP_DEFLATED if name == "values.npy" else zipfile.ZIP_STORED
            archive.writestr(name, content, compress_type=kind)
    assert "'values' is compressed" in refusal(path)


@pytest.mark.parametrize("shape", ["(1000000000,)", "(1000000000, 1000000000)", "(4, 1000000000)"])
def test_an_array_that_claims_a_large_shape_is_not_allocated(original, tmp_path, shape):
    claimed = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(claimed)) + claimed + bytes(64)
    message = refusal(written(tmp_path / "noisy.npz", members_of(original) | {"values.npy": content}))
    assert f"its 'values' has shape {shape} of float64, not (12,) of float64; save it again" in message


def test_an_array_with_the_right_shape_and_too_few_numbers_is_refused(original, tmp_path):
    members = members_of(original)
    members["values.npy"] = members["values.npy"][:-8]
    assert "('values' has a wrong size)" in refusal(written(tmp_path / "noisy.npz", members))


def test_members_that_share_their_bytes_are_refused(original, tmp_path):
    """Each of a thousand entries of the list of members is the same array of a megabyte."""
    path = written(tmp_path / "noisy.npz", members_of(original) | {"large.npy": bytes(1_000_000)})
    with zipfile.ZipFile(path, "a") as archive:
        large = archive.getinfo("large.npy")
        for number in range(1000):
            copy = zipfile.ZipInfo(f"large_{number}.npy")
            copy.header_offset, copy.CRC = large.header_offset, large.CRC
            copy.file_size = copy.compress_size = large.file_size
            archive.filelist.append(copy)
        archive._didModify = True
    assert "its arrays are larger than the file" in refusal(path)


def test_a_file_of_nothing_but_its_list_of_members_is_refused(tmp_path):
    path = written(tmp_path / "noisy.npz", {f"{number}": b"" for number in range(20_000)})
    assert "it lists its members in" in refusal(path)


def test_members_of_one_name_are_refused(original, tmp_path):
    path = written(tmp_path / "noisy.npz", members_of(original))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("values.npy", members_of(original)["values.npy"])
    assert "'values' appears twice" in refusal(path)


@pytest.mark.parametrize("dtype", [object, np.complex128, np.float32, np.uint8, "U4", [("a", "f8")]])
def test_arrays_of_other_types_are_refused(original, tmp_path, dtype):
    stream = io.BytesIO()
    np.save(stream, np.zeros(12, dtype=dtype), allow_pickle=True)
    message = refusal(written(tmp_path / "noisy.npz", members_of(original) | {"values.npy": stream.getvalue()}))
    assert "is not of plain numbers" in message or "of uint8, not (12,) of float64" in message


def test_arrays_in_the_order_and_the_bytes_of_another_machine_are_read(original, tmp_path):
    members, before = members_of(original), everything()
    members["values.npy"] = packed(before.values.astype(">f8"))
    members["covariance_0.npy"] = packed(np.asfortranarray(before.others[0].noise.covariance))
    after = Measurements.load(written(tmp_path / "noisy.npz", members))
    assert after.values.tobytes() == before.values.tobytes()
    assert after.others[0].noise == before.others[0].noise


# --- the header ------------------------------------------------------------------------------------------------

DEEP = {
    "lists": "[" * 100_000,
    "objects": '{"a":' * 100_000,
    "lists that end": "[" * 5000 + "]" * 5000,
    "a list in the right place": '{"margrave": "measurements", "schema": 1, "others": ' + "[" * 500 + "]" * 500 + "}",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_json_without_bottom_is_refused_in_words(original, tmp_path, text):
    message = refusal(written(tmp_path / "noisy.npz", with_header(members_of(original), text)))
    assert "JSON with more than 32 lists and objects inside each other; write it with fewer" in message


@pytest.mark.parametrize("count", [20, 26, 40, 5000])
def test_a_header_that_names_a_table_of_very_many_attributes_is_refused_at_once(original, tmp_path, count):
    """The tables inside one of 26 attributes are 67 million; the file has numbers for four."""
    domain = Domain([Attribute(f"a{number}", size=1) for number in range(count)])
    path = edited(original, tmp_path / "noisy.npz", domain=domain.to_json(), tables=[list(domain.attributes)])
    message = refusal(path)
    assert "the tables have more than 4 tables inside them" in message or "too many sub-tables to list" in message


def test_many_tables_that_together_hold_too_many_others_are_refused_at_once(original, tmp_path):
    """None of the tables alone holds more than the file has numbers for; together they hold 40 million."""
    generator = np.random.default_rng(5)
    domain = Domain([Attribute(f"a{number}", size=1) for number in range(100)])
    tables = [[f"a{number}" for number in generator.choice(100, 14, replace=False)] for _ in range(2500)]
    members = members_of(original) | {
        "precisions.npy": packed(np.zeros(20_000)),
        "counts.npy": packed(np.zeros(20_000)),
    }
    header = {**header_of(members), "domain": domain.to_json(), "tables": tables}
    path = written(tmp_path / "noisy.npz", with_header(members, json.dumps(header)))
    assert "the tables have more than 20,000 tables inside them" in refusal(path)


@pytest.mark.parametrize("size", [10**18, 10**25, 10**399])
def test_an_attribute_of_more_values_than_can_be_numbered_is_refused(original, tmp_path, size):
    text = json.dumps({"margrave": "domain", "schema": 1, "attributes": [{"name": "age", "size": size}]})
    message = refusal(edited(original, tmp_path / "noisy.npz", domain=text, tables=[["age"]]))
    assert "does not hold measurements (the tables and what lies inside them have" in message


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"domain": "[" * 100_000}, "JSON with more than 32 lists and objects inside each other"),
        ({"domain": None}, "an entry of its header is not a text"),
        ({"tables": "age"}, "an entry of its header is not a list"),
        ({"tables": ["age"]}, "the attributes of a table are not a list of names"),
        ({"tables": [[["age"]]]}, "the attributes of a table are not a list of names"),
        ({"tables": [["a" * 200_000, "b" * 200_000]]}, "no attribute 'aaa"),
        ({"others": {"a": 1}}, "an entry of its header is not a list"),
        ({"others": [7]}, "does not hold measurements ("),
        ({"others": [{"attributes": ["age"], "noise": "laplace", "scale": 10**399}]}, "a scale is 1000"),
        ({"others": [{"attributes": ["age"], "noise": "laplace", "scale": "1"}]}, "a scale is '1'"),
        ({"others": [{"attributes": ["age"], "noise": "laplace", "scale": True}]}, "a scale is True"),
        ({"others": [{"attributes": ["age"], "noise": ["laplace"], "scale": 1}]}, "is not a text"),
        ({"provenance": []}, "does not hold measurements (the provenance is damaged"),
        ({"provenance": "none"}, "does not hold measurements (the provenance is damaged"),
        ({"provenance": {}}, "does not hold measurements (the provenance is damaged (it lacks 'steps')"),
    ],
)
def test_a_header_of_the_wrong_kind_is_refused_in_words(original, tmp_path, changes, text):
    assert text in refusal(edited(original, tmp_path / "noisy.npz", **changes))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 401, "1." + "0" * 400])
def test_numbers_that_are_none_are_refused(original, tmp_path, number):
    text = json.dumps(header_of(members_of(original))).replace('"schema": 1', f'"schema": {number}')
    message = refusal(written(tmp_path / "noisy.npz", with_header(members_of(original), text)))
    assert "write finite numbers only" in message or "write at most 400" in message


def test_observations_that_the_layout_does_not_hold_are_refused(original, tmp_path):
    members = members_of(original)
    header = header_of(members)
    header["others"][1]["attributes"] = ["sex", "age", "one"]
    members["other_1.npy"] = packed(np.zeros((1, 2, 0)))
    message = refusal(written(tmp_path / "noisy.npz", with_header(members, json.dumps(header))))
    assert "an observation with other noise is not among the tables" in message


def test_more_observations_than_are_counted_are_refused(original, tmp_path):
    members = members_of(original)
    members["counts.npy"] = packed(np.minimum(np.load(io.BytesIO(members["counts.npy"])), 1))
    members.pop("averages.npy")
    assert "a residual has more measurements than it counts" in refusal(written(tmp_path / "noisy.npz", members))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_is_not_read(path):
    if not Path(path).exists():
        pytest.skip("this system has no such device")
    assert f"{path} is not a regular file; give the path of a saved file" in refusal(path)


def test_a_path_that_can_be_none_is_refused():
    with pytest.raises(MeasurementError, match=r"cannot be read \(embedded null byte\)"), open_archive("\0", "plan", 1):
        pass


# --- anything --------------------------------------------------------------------------------------------------


def mutated(generator, members):
    """Some bytes of a member are changed, cut, doubled or replaced by those of another; zip's checksums are right."""
    name = generator.choice(list(members))
    content = bytearray(members[name])
    place = int(generator.integers(len(content) + 1))
    match generator.integers(6):
        case 0:
            for _ in range(int(generator.integers(1, 5))):
                content[int(generator.integers(len(content)))] = int(generator.integers(256))
        case 1:
            content = content[:place]
        case 2:
            content[place:place] = content[: int(generator.integers(200))]
        case 3:
            content = bytearray(members[generator.choice(list(members))])
        case 4:  # a number of the header becomes a large one
            digits = [at for at, byte in enumerate(content) if 48 <= byte < 58]
            if digits:
                at = digits[int(generator.integers(len(digits)))]
                content[at : at + 1] = b"9" * int(generator.integers(1, 40))
        case 5:
            return {key: value for key, value in members.items() if key != name}
    return {**members, name: bytes(content)}


def test_hundreds_of_mutated_archives_are_read_or_refused_in_words(original, tmp_path):
    generator, refused = np.random.default_rng(20_261_118), 0
    for number in range(300):
        members = mutated(generator, members_of(original))
        path = tmp_path / "noisy.npz"
        if number % 3:
            written(path, members)
        else:  # or the file itself is changed, with all that zip says about its members
            content = bytearray(original.read_bytes())
            for _ in range(int(generator.integers(1, 9))):
                content[int(generator.integers(len(content)))] = int(generator.integers(256))
            path.write_bytes(content[: len(content) - int(generator.integers(2)) * int(generator.integers(400))])
        refused += refusal(path) is not None
    assert refused > 200
