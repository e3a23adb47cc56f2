"""CSV files as offices write them: other marks, other encodings, decimal commas; and files that are something else."""

import gzip

import numpy as np
import pyarrow as pa
import pytest

from margrave.algebra.layout import Layout
from margrave.data.engines import files
from margrave.data.source import Data, open_source
from margrave.domain import Attribute, Domain
from margrave.errors import DataError

SECRET = "Geheimnisvoll"
TOWNS = Attribute("Ort", labels=("Köln", "Zürich", "1,5"))
HEIGHT = Attribute("Größe", cuts=(1.5, 1.75), other="keine")
DOMAIN = Domain([TOWNS, HEIGHT])
TEXT = 'Ort;Größe\r\nKöln;1,5\r\nZürich;1,51\r\nKöln;2\r\n1,5;1.6\r\n"Köln";\'1,7\r\nZürich;1,75e0\r\n'
COUNTS = [[1, 0, 1, 1], [0, 2, 0, 0], [0, 0, 0, 1]]


def counted(source, domain=DOMAIN, **options):
    layout = Layout.of(domain.shape, [tuple(range(len(domain)))])
    counts = open_source(Data(source, **options), domain, contributions=1).count(layout)
    return counts[-np.prod(domain.shape) :].reshape(domain.shape).tolist()


def refused(source, text, **options):
    with pytest.raises(DataError, match=text) as caught:
        counted(source, **options)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("encoding", ["windows-1252", "latin-1", "utf-16", "utf-16-le", "utf-8", "utf-8-sig", "cp850"])
@pytest.mark.parametrize("packed", [False, True])
def test_semicolons_decimal_commas_and_any_encoding(tmp_path, encoding, packed):
    content = TEXT.encode(encoding)
    path = tmp_path / ("leute.csv.gz" if packed else "leute.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    assert counted(path, delimiter=";", encoding=encoding, decimal=",") == COUNTS


def test_a_mark_of_byte_order_is_no_part_of_the_first_name(tmp_path):
    path = tmp_path / "leute.csv"
    for encoding, mark in [("utf-8", "\ufeff"), ("utf-16-le", "\ufeff")]:
        path.write_bytes((mark + TEXT).encode(encoding))
        assert counted(path, delimiter=";", encoding=encoding, decimal=",") == COUNTS


def test_several_files_in_another_encoding(tmp_path):
    for k in range(2):
        (tmp_path / f"leute-{k}.csv").write_bytes(TEXT.encode("windows-1252"))
    found = counted(f"{tmp_path}/leute-*.csv", delimiter=";", encoding="windows-1252", decimal=",")
    assert found == (2 * np.array(COUNTS)).tolist()


def test_the_copy_in_utf_8_is_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "leute.csv").write_bytes(TEXT.encode("windows-1252"))
    counted(tmp_path / "leute.csv", delimiter=";", encoding="windows-1252", decimal=",")
    (tmp_path / "leute.csv").write_bytes(TEXT.encode("windows-1252") + b"1;2;3\r\n")
    with pytest.raises(DataError, match="have different lengths"):
        counted(tmp_path / "leute.csv", delimiter=";", encoding="windows-1252", decimal=",")
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("delimiter", ["tab", r"\t", "\t", "|", ";", "§", " "])
def test_delimiters(tmp_path, delimiter):
    mark = "\t" if delimiter in ("tab", r"\t") else delimiter
    path = tmp_path / "people.txt"
    path.write_text(f"a{mark}b\n0{mark}1\n1{mark}1\n", encoding="utf-8")
    assert counted(path, Domain.fromdict({"a": 2, "b": 2}), delimiter=delimiter) == [[0, 1], [0, 1]]


def test_a_point_is_no_decimal_mark_where_a_comma_is(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("x\n1.5\n2\n1e3\n-4\n", encoding="utf-8")
    domain = Domain([Attribute("x", cuts=(0, 10), other="no number")])
    assert counted(path, domain, decimal=",") == [1, 1, 1, 1]
    assert counted(path, domain) == [1, 2, 1, 0]
    path.write_text('x\n"0,1"\n"9007199254740993"\n"1,0"\n', encoding="utf-8")
    domain = Domain([Attribute("x", labels=(0.1, 2**53 + 1, 1), other="no number")])
    assert counted(path, domain, decimal=",") == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("name", "header", "text"),
    [
        (
            "x.csv",
            "a;b",
            r"has semicolons and no commas; give delimiter=';' \(--delimiter ';'\), or delimiter=',' if it",
        ),
        ("x.csv", "a\tb", r"has tabs and no commas; give delimiter='tab' \(--delimiter 'tab'\), or delimiter=','"),
        ("x.csv", "a|b", r"has bars and no commas; give delimiter='\|' \(--delimiter '\|'\)"),
        (
            "x.tsv",
            "a,b",
            r"has commas and no tabs; give delimiter=',' \(--delimiter ','\), or delimiter='tab' if it is",
        ),
        ("x.tsv", "a;b", "has semicolons and no tabs; give delimiter=';'"),
    ],
)
def test_a_header_that_was_parted_otherwise(tmp_path, name, header, text):
    (tmp_path / name).write_text(f"{header}\n{SECRET}\n", encoding="utf-8")
    refused(tmp_path / name, f"^the header of '.*' {text}")


def test_a_header_of_one_name_with_a_semicolon_can_be_meant(tmp_path):
    (tmp_path / "x.csv").write_text("a;b\n0\n1\n1\n", encoding="utf-8")
    assert counted(tmp_path / "x.csv", Domain.fromdict({"a;b": 2}), delimiter=",") == [1, 2]


def test_files_that_are_something_else(tmp_path):
    path = tmp_path / "people.csv"
    for beginning in (b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        path.write_bytes(beginning + SECRET.encode())
        refused(path, "^the file '.*' is an Excel file or an archive, despite its name; .* save it as CSV UTF-8")
    path.write_bytes(TEXT.encode("utf-16"))
    refused(path, r"^the file '.*' is UTF-16; give encoding='utf-16' \(--encoding utf-16\)$")
    path.write_text("PK,a\nx,1\n", encoding="utf-8")
    assert counted(path, Domain.fromdict({"a": 2})) == [0, 1]


def test_files_that_are_not_in_their_encoding(tmp_path):
    path = tmp_path / "people.csv"
    text = r"^the file '.*' is not UTF-8; give encoding=… \(--encoding windows-1252 is usual for files of older Windows"
    path.write_bytes(TEXT.encode("windows-1252"))
    refused(path, text)
    refused(path, text, delimiter=";")
    path.write_bytes(b"Ort;n\n" + b"x;1\n" * 100_000 + b"K\xf6ln;1\n")
    refused(path, text, delimiter=";", domain=Domain([Attribute("Ort", labels=("x", "Köln"))]))
    wrong = r"^the file '.*' is not written in {}; give the encoding=… \(--encoding\) that it was saved in$"
    for encoding in ("ascii", "utf-16-le", "windows-1252"):
        path.write_bytes(b"Ort;x\nA;B\n" + b"\x81\xd8\x00\xdc\xd8" * 3 + b"\n")
        refused(path, wrong.format(encoding), delimiter=";", encoding=encoding)
    path.write_bytes(b"Ort;x\n" + b"A;B\n" * 100_000 + b"\x81;B\n")
    refused(path, wrong.format("windows-1252"), delimiter=";", encoding="windows-1252")


def test_what_is_wrong_is_told_only_as_far_as_it_is_known(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("a\n1\n", encoding="utf-8")
    assert files.fault_of([str(path)], Data(path).text_format) is None
    gone = tmp_path / "gone.csv"
    assert files.fault_of([str(gone)], Data(gone).text_format) is None
    packed = tmp_path / "people.csv.gz"
    packed.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 10_000)[:-20])
    assert files.fault_of([str(packed)], Data(packed).text_format) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.xlsx", r"is a spreadsheet; save it as CSV \(UTF-8\) there and give that file$"),
        ("x.ods", "is a spreadsheet; save it as CSV"),
        ("x.sav", "is an SPSS file; save it as CSV"),
        ("x.dta", "is a Stata file; save it as CSV"),
        ("x.sas7bdat", "is a SAS file; save it as CSV"),
        ("x.rds", "is an R file; write it as CSV or Parquet there"),
        ("x.accdb", "is an Access file; save it as CSV"),
        ("x.feather", "is an Arrow file; open it with pyarrow"),
        ("x.zip", "is an archive; unpack it"),
        ("x.txt", r"does not say by its ending how fields are separated; give delimiter=… \(--delimiter\)"),
        ("x.db", r"looks like a database: if it is a DuckDB file, give it the ending \.duckdb"),
        ("x.unheard", r"ends in none of \.csv, \.tsv, .* save it as one of these, or open it with DuckDB"),
    ],
)
def test_files_of_other_programs_are_never_to_be_renamed(tmp_path, name, text):
    (tmp_path / name).write_text("x", encoding="utf-8")
    refused(tmp_path / name, text)
    with pytest.raises(DataError) as caught:
        counted(tmp_path / name)
    assert "rename" not in str(caught.value)


def test_an_id_that_is_not_there_is_suggested(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("Person,a\np,1\n", encoding="utf-8")
    domain = Domain.fromdict({"a": 2})
    refused(path, r"^the table has no column 'person'; did you mean 'Person'\?$", domain=domain, privacy_id="person")
    remedy = r"; name the column that identifies the person of each row by privacy_id=… \(--privacy-id\)$"
    refused(path, f"^the table has no column 'who'{remedy}", domain=domain, privacy_id="who")
    table = pa.table({"a": [0, 1]})
    for counting in ("fetch", "push-down"):
        refused(table, f"^the table has no column 'who'{remedy}", domain=domain, privacy_id="who", counting=counting)
    remedy = r"; name the column that says how often each row counts by counts=… \(--counts\)$"
    refused(path, f"^the table has no column 'times'{remedy}", domain=domain, counts="times")


def test_names_that_look_alike_are_told_apart(tmp_path):
    apart, together = "De\u0301pt", "D\u00e9pt"
    text = (
        rf"'{together}'; did you mean '{apart}'\? The two look alike but differ in Unicode form \(é as one or as two\)$"
    )
    path = tmp_path / "people.csv"
    path.write_text(f"{apart}\n1\n", encoding="utf-8")
    refused(path, text, domain=Domain.fromdict({together: 2}))
    refused(pa.table({apart: [1]}), text, domain=Domain.fromdict({together: 2}))
