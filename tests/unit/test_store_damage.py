"""Every kind of damage is found and named; even where somebody has made all checksums right again."""

import io
import json
import os
import re
import shutil
import time
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from releases import WORKLOAD, edit, foreign, made, measured, reseal, same

from margrave.domain import Attribute, Domain
from margrave.errors import MargraveError, StoreError
from margrave.measurements import Measurements
from margrave.release.publication import reconstruct
from margrave.release.store import checksum
from margrave.release.store.loading import load as load_lazily
from margrave.release.store.loading import verify
from margrave.release.store.saving import save
from margrave.release.store.tables import page_sizes
from margrave.workload import Workload

RELEASE = made(measured(), "lnn")
DOCUMENTS = ("README.md", "csvw-metadata.json", "report.html")
FILES = (
    *DOCUMENTS,
    "domain.json",
    "manifest.json",
    "measurements.npz",
    "privacy.json",
    "subtables.npz",
    "tables/age.sex.csv",
    "tables/age.sex.parquet",
)


def load(folder, *, strict=False):
    """A release with all of its tables read, which are otherwise read when they are asked for."""
    release = load_lazily(folder, strict=strict)
    release.counts.everything()
    return release


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store") / "out"
    save(RELEASE, folder, csv=True, documents={"report.html": "<p>a report of some length</p>"})
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "out")


def refused(text):
    return pytest.raises(MargraveError, match=re.escape(text))


def test_an_untouched_copy_is_whole(folder):
    assert same(RELEASE, load(folder))


def anew(folder):
    return f"; margrave reconstruct {folder / 'measurements.npz'} … rebuilds it at no privacy cost"


def check_damage(folder, name, text):
    """A file of numbers is refused with a remedy; a document only if asked, and it is named."""
    if name in DOCUMENTS:
        assert same(RELEASE, load(folder))
    else:
        with refused(text) as caught:
            load(folder)
        whole = name != "measurements.npz"
        assert str(caught.value).endswith(anew(folder) if whole else "; get the release again")
    with refused(text):
        load(folder, strict=True)
    (said,) = verify(folder)
    assert text in said


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_is_named(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    check_damage(folder, name, str(folder / name))


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found_and_the_file_is_named(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    check_damage(folder, name, str(folder / name))


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    check_damage(folder, name, f"{folder / name} is missing; ")


@pytest.mark.parametrize("name", ["tables/age.sex.parquet", "tables/age.sex.csv"])
def test_a_damaged_table_is_refused_when_it_is_asked_for_and_others_are_read(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    release = load_lazily(folder)
    assert release.table("sex").values.tobytes() == RELEASE.table("sex").values.tobytes()
    for _ in range(2):  # a failure is not taken for the table
        with refused(f"{folder / name} is damaged: its checksum is wrong{anew(folder)}"):
            release.table("age", "sex")
    with refused(f"{folder / name} is damaged: its checksum is wrong{anew(folder)}"):
        release.query("age > 17", by=["sex"])
    with refused(str(folder / name)):
        release.marginals  # noqa: B018
    assert len(verify(folder)) == 1


def test_a_table_that_goes_after_loading_is_missed(folder):
    release = load_lazily(folder)
    (folder / "tables" / "age.sex.parquet").unlink()
    with refused("tables/age.sex.parquet cannot be read (No such file or directory); margrave reconstruct"):
        release.table("age", "sex")


def test_all_damage_is_listed_at_once(folder):
    assert verify(folder) == ()
    (folder / "report.html").unlink()
    (folder / "notes.txt").write_text("x")
    (folder / "README.md").write_text("x")
    content = bytearray((folder / "tables/age.sex.parquet").read_bytes())
    content[9] ^= 1
    (folder / "tables/age.sex.parquet").write_bytes(content)
    said = verify(folder)
    assert [sentence.split(str(folder))[1].split(" ")[0] for sentence in said] == [
        "/report.html",
        "/notes.txt",
        "/README.md",
        "/tables/age.sex.parquet",
    ]
    assert said[0] == f"{folder / 'report.html'} is missing{anew(folder)}"
    assert said[1] == f"{folder / 'notes.txt'} is not part of the release; take it out of the folder"
    assert said[3].endswith(f"its checksum is wrong{anew(folder)}")


def test_what_only_a_reader_would_find_is_listed_too(folder):
    edit(folder, "privacy.json", put("epsilon", 0.1))
    (said,) = verify(folder)
    assert "its 'epsilon' is not what measurements.npz says; get the release again" in said
    with refused(f"there is no folder {folder / 'more'}"):
        verify(folder / "more")


def test_what_cannot_be_read_is_listed(folder, monkeypatch):
    def broken(*_, **__):
        raise OSError(5, "Input/output error")

    def breaking(*names):
        return lambda file: broken() if file.name in names else checksum(file)

    monkeypatch.setattr("margrave.release.store.loading.checksum", breaking("domain.json"))
    assert f"{folder / 'domain.json'} cannot be read (Input/output error){anew(folder)}" in verify(folder)
    monkeypatch.setattr("margrave.release.store.loading.checksum", breaking("domain.json", "measurements.npz"))
    assert f"{folder / 'domain.json'} cannot be read (Input/output error); get the release again" in verify(folder)
    monkeypatch.undo()
    monkeypatch.setattr("os.walk", broken)
    (said,) = verify(folder)
    assert said == f"{folder} cannot be read ([Errno 5] Input/output error){anew(folder)}"


@pytest.mark.parametrize("name", ["notes.txt", "more/x"])
def test_a_file_too_many_is_named_if_asked(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("x")
    assert same(RELEASE, load(folder))
    with refused(f"{folder / name} is not part of the release; take it out of the folder"):
        load(folder, strict=True)


def test_a_table_too_many_is_refused(folder):
    (folder / "tables" / "age.sex.region.parquet").write_text("x")
    with refused("age.sex.region.parquet is not part of the release; take it out of the folder"):
        load(folder)


def test_what_the_desktop_leaves_in_folders_is_no_damage(folder):
    (folder / ".DS_Store").write_bytes(b"x")
    assert same(RELEASE, load(folder))


@pytest.mark.parametrize("name", ["README.md", "tables/age.sex.parquet", "measurements.npz"])
def test_a_link_is_not_followed(folder, name):
    elsewhere = folder.parent / "elsewhere"
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    check_damage(folder, name, f"{folder / name} is a link or a device, not a file; ")


def test_a_folder_that_is_a_link_is_not_entered(folder):
    (folder / "tables").rename(folder.parent / "elsewhere")
    (folder / "tables").symlink_to(folder.parent / "elsewhere")
    with refused(f" is missing{anew(folder)}"):
        load(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(folder):
    for name in ("README.md", "measurements.npz", "manifest.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        with pytest.raises(StoreError):
            load(folder, strict=True)
        assert verify(folder)


def test_a_folder_that_is_none(folder, tmp_path):
    with refused(f"there is no folder {tmp_path / 'nowhere'}; give the folder of a release"):
        load(tmp_path / "nowhere")
    with refused(f"there is no folder {folder / 'README.md'}"):
        load(folder / "README.md")
    with refused(f"{tmp_path} has no manifest.json; give the folder of a release"):
        load(tmp_path)
    with refused(r"there is no folder \x00"):
        load("\0")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is damaged: not JSON"),
        (b"[]", "is damaged: not a JSON object"),
        (b'{"margrave": "domain"}', "holds 'domain', not a release; give the folder of a release"),
        (b'{"margrave": "release"}', "has schema None; a version is a whole number from 1"),
        (b'{"margrave": "release", "schema": true}', "has schema True; a version is a whole number from 1"),
        (b'{"margrave": "release", "schema": 3}', "has schema 3, this margrave reads up to 2; upgrade it"),
        (b'{"margrave": "release", "schema": 1}', "is damaged (its checksum is wrong); margrave reconstruct "),
        (b"\xff", "is damaged: not UTF-8 at byte 0; margrave reconstruct "),
        (b'{"a": 1, "a": 2}', "key 'a' appears twice"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b"[" * 100_000, "is damaged: JSON with more than 32 lists and objects inside each other"),
    ],
)
def test_a_manifest_that_is_none_is_refused(folder, content, text):
    (folder / "manifest.json").write_bytes(content)
    with refused(text):
        load(folder)


def test_a_manifest_without_end_is_not_read(folder, monkeypatch):
    size = (folder / "manifest.json").stat().st_size
    monkeypatch.setattr("margrave.files.read_text.__kwdefaults__", {"most_bytes": size - 1})
    with refused(f"manifest.json is damaged: larger than {size - 1:,} bytes"):
        load(folder)


def test_a_manifest_that_cannot_be_read_is_named(folder, monkeypatch):
    def broken(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pathlib.Path.open", broken)
    with refused(f"{folder / 'manifest.json'} cannot be read (Input/output error); give the folder of a release"):
        load(folder)


@pytest.mark.parametrize("name", ["README.md", "csvw-metadata.json", "domain.json"])
def test_a_file_that_not_even_the_manifest_knows_is_missed(folder, name):
    (folder / name).unlink()
    edit(folder, "manifest.json", lambda document: document["files"].pop(name))
    check_damage(folder, name, f"{folder / name} is missing{anew(folder)}")


def test_a_manifest_that_knows_no_measurements_offers_none(folder):
    edit(folder, "manifest.json", lambda document: document["files"].pop("measurements.npz"))
    (folder / "domain.json").unlink()
    with refused(f"{folder / 'domain.json'} is missing; get the release again"):
        load(folder)


def put(*path):
    """A change of a document: the value at a path is replaced by the last argument."""
    *keys, last, value = path

    def change(document):
        for key in keys:
            document = document[key]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            put("method", "name", "magic"),
            "was made by the method 'magic', this margrave knows lnn, mle, trunc, tr",
        ),
        (put("method", "name", 3), "is damaged (an entry is not text)"),
        (put("method", "lnn"), "is damaged (an entry is not a JSON object)"),
        (
            put("method", "options", []),
            "not record a method (the options of the method 'lnn' are not",
        ),
        (
            put("method", "options", "eta", -1),
            "not record a method (eta is -1; give a positive number",
        ),
        (
            put("method", "options", "speed", 1),
            "not record a method (NonNegative has no option 'speed'",
        ),
        (
            put("method", "note", "x" * 1001),
            "not record a method (the note of the method 'lnn' is not a text of at",
        ),
        (
            put("method", "more", 1),
            "not record a method (a method is recorded by its name, its options",
        ),
        (
            put("method", {"name": "trunc", "options": {"rescale": True}}),
            "the method 'trunc' are those of 'trunc+r",
        ),
        (put("more", 3), "is damaged (its keys are not margrave, schema"),
        (put("files", []), "is damaged (an entry is not a JSON object)"),
        (put("tables", {}), "is damaged (an entry is not a JSON list)"),
        (put("tables", []), "the workload names no table"),
        (put("tables", 0, "file", "../../etc/passwd"), "'../../etc/passwd' is not the name of a file in the folder"),
        (put("tables", 0, "file", "/etc/passwd"), "'/etc/passwd' is not the name of a file in the folder"),
        (put("tables", 0, "file", "tables/other.parquet"), "its list of files lacks tables/other.parquet"),
        (put("tables", 0, "file", "tables/age.sex.parquet"), "is damaged (it names a file twice)"),
        (put("tables", 0, "file", "README.md"), "README.md is damaged (Parquet magic bytes not found in footer"),
        (put("tables", 0, "weight", -1), "is damaged (a weight is not a positive number)"),
        (put("tables", 0, "weight", 10**400), "is damaged: a number of 401 characters"),
        (put("tables", 0, "cells", 3), "tables/sex.parquet is damaged: domain.json has other sizes"),
        (put("tables", 0, "cells", 3.5), "is damaged (a number of bytes or cells is not a whole number)"),
        (put("tables", 0, "attributes", ["who"]), "no attribute 'who' in the domain"),
        (put("tables", 0, "attributes", ["age", "sex"]), "its manifest does not list each table once"),
        (put("tables", 0, "attributes", "sex"), "is damaged (an entry is not a JSON list)"),
        (put("solution", "status", "LUCKY"), "its solution is not a report of the solver ('LUCKY')"),
        (put("solution", "gap", "small"), "its solution is not a report of the solver (could not convert"),
        (put("solution", {}), "its solution is not a report of the solver ('status')"),
        (put("files", "../x", {"bytes": 1, "sha256": "0" * 64}), "'../x' is not the name of a file in the folder"),
        (put("files", "y", {"bytes": 1, "sha256": "0" * 64}), None),
        (put("files", "y", {"bytes": 1, "sha256": "x"}), "is damaged (a checksum is not 64 hexadecimal digits)"),
        (put("files", "manifest.json", {"bytes": 1, "sha256": "0" * 64}), "is damaged (it names a file twice)"),
    ],
)
def test_an_edited_manifest_with_right_checksums_is_refused(folder, change, text):
    edit(folder, "manifest.json", change)
    with refused(text or "/y is missing; margrave reconstruct"):
        load(folder, strict=text is None)  # a document that is missing is refused only if asked


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("privacy.json", put("epsilon", 0.1), "its 'epsilon' is not what measurements.npz says; get the release again"),
        ("privacy.json", put("rho", "1/1000"), "its 'rho' is not what measurements.npz says"),
        ("privacy.json", put("known", False), "its 'known' is not what measurements.npz says"),
        ("privacy.json", lambda document: document.pop("delta"), "its 'delta' is not what measurements.npz says"),
        ("domain.json", put("attributes", 1, "labels", ["M", "F"]), "measurements.npz and domain.json differ"),
        ("domain.json", put("attributes", 1, "labels", ["F", "M", "X"]), "domain.json has other sizes"),
        ("domain.json", put("attributes", []), "no attribute 'sex' in the domain"),
    ],
)
def test_papers_that_contradict_the_measurements_are_refused(folder, name, change, text):
    edit(folder, name, change)
    with refused(text):
        load(folder)


def test_foreign_numbers_cannot_be_called_private_afterwards(tmp_path):
    made(foreign()).save(tmp_path / "out")
    edit(tmp_path / "out", "privacy.json", put("private", True))
    with refused("its 'private' is not what measurements.npz says"):
        load(tmp_path / "out")


def rewritten(change):
    """A change of the Parquet file of a table: what it holds is replaced, in good order."""

    def apply(folder):
        file = folder / "tables" / "age.sex.parquet"
        pq.write_table(change(pq.read_table(file)), file)
        reseal(folder)

    return apply


def counts(values):
    return lambda table: table.set_column(2, "count", pa.array(values, pa.float64()))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (counts([1.0, 2, 3, 4, 5, np.nan]), "a count is missing or no finite number"),
        (counts([1.0, 2, 3, 4, 5, np.inf]), "a count is missing or no finite number"),
        (counts([1.0, 2, 3, 4, 5, None]), "a count is missing or no finite number"),
        (counts([1.0, 2, 3, 4, 5, -1e-9]), "a count is negative, which its method rules out"),
        (lambda table: table.slice(1), "5 rows, not 6"),
        (lambda table: pa.concat_tables([table, table]), "12 rows, not 6"),
        (lambda table: table.drop_columns(["estimate"]), "its columns are not those of the table"),
        (lambda table: table.select([1, 0, *range(2, 7)]), "its columns are not those of the table"),
        (lambda table: table.take([1, 0, 2, 3, 4, 5]), "its labels are not those of domain.json"),
        (lambda table: table.set_column(1, "sex", pa.array([*"FMFMFX"])), "its labels are not those of domain.json"),
        (lambda table: table.set_column(1, "sex", pa.array([*"FMFMF", None])), "its labels are not categories"),
        (lambda table: table.set_column(1, "sex", pa.array(range(6))), "is damaged"),
        (lambda table: table.set_column(2, "count", pa.array(range(6))), "its counts are not a column of numbers"),
        (lambda table: table.set_column(2, "count", pa.array([*"123456"])), "its counts are not a column of numbers"),
        (lambda table: table.rename_columns(["age", "sex", *"nnnnn"]), "its counts are not a column of numbers"),
        (
            lambda table: table.set_column(1, "sex", pa.array(["F" * 3_000_000 + str(n) for n in range(6)])),
            "a column claims more than it can hold",
        ),
    ],
)
def test_a_table_with_bad_content_and_right_checksums_is_refused(folder, change, text):
    rewritten(change)(folder)
    with refused(f"{folder / 'tables' / 'age.sex.parquet'} is damaged") as caught:
        load(folder)
    assert text in str(caught.value)


def test_negative_counts_are_fine_where_the_method_allows_them(tmp_path):
    made(foreign()).save(tmp_path / "out")
    assert load(tmp_path / "out").table("age", "sex").values.min() < 0


def repacked(name, change, *, compression=zipfile.ZIP_STORED):
    """A change of an archive of arrays: its members are replaced, by name, and packed again."""

    def apply(folder):
        with zipfile.ZipFile(folder / name) as archive:
            members = {member: archive.read(member) for member in archive.namelist()}
        change(members)
        with zipfile.ZipFile(folder / name, "w", compression) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        reseal(folder)

    return apply


def packed(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def false_shape(members):
    members["values.npy"] = members["values.npy"].replace(b"'shape': (", b"'shape': (1000000000, ")


@pytest.mark.parametrize(
    ("apply", "text"),
    [
        (
            repacked("subtables.npz", lambda m: m.update({"counts.npy": packed(np.ones(3))})),
            "it does not hold a count",
        ),
        (
            repacked("subtables.npz", lambda m: m.update({"counts.npy": packed(np.ones(30))})),
            "has shape (30,) of ",
        ),
        (repacked("subtables.npz", lambda m: m.pop("counts.npy")), "is damaged: it lacks 'counts'; margrave reconst"),
        (
            repacked("subtables.npz", lambda m: m.update({"counts.npy": packed(np.full(9, np.nan))})),
            "is damaged: a count is NaN or infinite",
        ),
        (repacked("subtables.npz", lambda m: m.pop("header.npy")), "is damaged: it lacks 'header'"),
        (
            repacked("measurements.npz", lambda m: m.update({"values.npy": packed(np.ones(3))})),
            "measurements.npz is damaged: its 'values' has shape (3,) of float64, not (",
        ),
        (
            repacked("measurements.npz", false_shape),
            "an array says nothing about its shape",
        ),
        (
            repacked("measurements.npz", lambda m: None, compression=zipfile.ZIP_DEFLATED),
            "'header' is compressed, as margrave never writes it); get the release again",
        ),
        (
            repacked("measurements.npz", lambda m: m.update({"values.npy": packed([{}], allow_pickle=True)})),
            "measurements.npz",
        ),
        (
            repacked("measurements.npz", lambda m: m.update({"header.npy": b"no array"})),
            "a member is not an array",
        ),
    ],
)
def test_archives_with_bad_content_and_right_checksums_are_refused(folder, apply, text):
    apply(folder)
    with refused(text):
        load(folder)


def column_of(file, place):
    """Where the pages of a column are, and how many bytes they say that they have."""
    column = pq.ParquetFile(file).metadata.row_group(0).column(place)
    first = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    return min(first, column.data_page_offset), column.total_compressed_size, column.total_uncompressed_size


def test_a_page_that_claims_more_than_its_column_is_not_decompressed(folder):
    file = folder / "tables" / "age.regio_n.parquet"
    begin, _, whole = column_of(file, 2)
    content = bytearray(file.read_bytes())
    size = 8 * 12 + 6  # twelve numbers, and that none of them is missing
    # Type of the page, its size as a number of 7 bits a byte, twice the number for its sign.
    assert content[begin + 2 : begin + 5] == bytes([0x15, 2 * size & 127 | 128, 2 * size >> 7])
    content[begin + 3 : begin + 5] = bytes([254, 127])
    assert whole < 8191
    file.write_bytes(content)
    reseal(folder)
    with refused("age.regio_n.parquet is damaged: a page claims more than its column can hold"):
        load(folder)


def test_the_pages_of_a_column_are_weighed_by_their_headers(tmp_path):
    numbers = np.random.default_rng(3).normal(size=100_000)
    pq.write_table(pa.table({"x": numbers}), tmp_path / "x", use_dictionary=False, data_page_size=2**16)
    begin, length, whole = column_of(tmp_path / "x", 0)
    with (tmp_path / "x").open("rb") as stream:
        sizes = list(page_sizes(stream, begin, length))
        assert len(sizes) > 5
        assert numbers.nbytes <= sum(sizes) < whole
        for wrong in ((begin, length - 1), (begin, length + 1), (begin + 1, length), (0, length)):
            with pytest.raises(ValueError, match="page"):
                list(page_sizes(stream, *wrong))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x15",
        b"\x15\x00\x00",
        b"\x15\x00\x15\xff" + b"\xff" * 20,
        b"\x1c" * 50,
        b"\x19",
        b"\x15\x00\x15\x01\x15\x02\x00",
    ],
)
def test_headers_of_pages_that_are_none_are_refused(header):
    with pytest.raises(ValueError, match="page"):
        list(page_sizes(io.BytesIO(header), 0, 100))


def test_a_manifest_that_names_a_table_of_many_attributes_is_refused_at_once(tmp_path):
    """The tables inside one of 26 attributes are 67 million; the folder has files and counts for three."""
    domain = Domain([Attribute(f"a{number}", size=1) for number in range(26)])
    noisy = Measurements.from_marginals(domain, [(("a0", "a1"), [[5.0]], 1.0)])
    reconstruct(noisy, Workload(domain, [("a0", "a1")]), method="mle").save(tmp_path / "out")
    edit(tmp_path / "out", "manifest.json", put("tables", 0, "attributes", list(domain.attributes)))
    start = time.process_time()
    with refused("subtables.npz is damaged: it does not hold a count for every table inside others"):
        load(tmp_path / "out")
    assert time.process_time() - start < 1


def test_measurements_of_another_domain_are_refused(folder):
    other = Measurements.from_marginals(WORKLOAD.domain.project(["sex"]), [(("sex",), [1.0, 2.0], 1.0)])
    other.save(folder / "measurements.npz")
    reseal(folder)
    with refused("measurements.npz and domain.json differ"):
        load(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def mutations(draw):
    """What is done to a folder: to bytes, to a whole file, or to a value in a document; and whether it is resealed."""
    kind = draw(st.sampled_from(["bytes", "cut", "grow", "remove", "swap", "document", "header"]))
    name, other = draw(st.sampled_from(FILES)), draw(st.sampled_from(FILES))
    places = draw(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
    return kind, name, other, places, draw(JSON), draw(st.booleans())


def mutate(folder, mutation):
    kind, name, other, places, value, sealed = mutation
    content = bytearray((folder / name).read_bytes())
    if kind == "bytes":
        for place, byte in places:
            content[place % len(content)] = byte
        (folder / name).write_bytes(content)
    elif kind == "cut":
        (folder / name).write_bytes(content[: places[0][0] % len(content)])
    elif kind == "grow":
        (folder / name).write_bytes(content + bytes(byte for _, byte in places))
    elif kind == "remove":
        (folder / name).unlink()
    elif kind == "swap":
        (folder / name).write_bytes((folder / other).read_bytes())
    elif kind == "document":
        name = name if name.endswith(".json") else "manifest.json"
        document = json.loads((folder / name).read_text(encoding="utf-8"))
        replace_somewhere(document, [place for place, _ in places], value)
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    else:
        repacked("measurements.npz", lambda members: change_header(members, places, value))(folder)
    if sealed:
        try:
            reseal(folder)
        except (ValueError, OSError, AttributeError, RecursionError):
            return


def replace_somewhere(document, steps, value):
    """Walk into a document by some numbers, and replace what is there."""
    for number in steps:
        keys = list(document) if isinstance(document, dict) else range(len(document))
        if not keys:
            return
        key = keys[number % len(keys)]
        if number == steps[-1] or not isinstance(document[key], dict | list):
            document[key] = value
            return
        document = document[key]


def change_header(members, places, value):
    content = members["header.npy"]
    header = json.loads(np.load(io.BytesIO(content)).tobytes())
    replace_somewhere(header, [place for place, _ in places], value)
    members["header.npy"] = packed(np.frombuffer(json.dumps(header).encode(), dtype=np.uint8))


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutation=mutations())
def test_any_mutation_gives_the_release_or_an_error_in_words(original, tmp_path_factory, mutation):
    folder = shutil.copytree(original, tmp_path_factory.mktemp("mutated") / "out")
    mutate(folder, mutation)
    message = ""
    try:
        release = load(folder)
    except MargraveError as error:
        message = str(error)
    shutil.rmtree(folder.parent)
    assert "\n" not in message
    if not message:
        resealed = mutation[-1] or mutation[0] == "header"
        for names in release.workload:
            assert (release.table(*names).values >= 0).all()
        assert resealed or same(RELEASE, release)
