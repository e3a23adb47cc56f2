"""Names of files and addresses of databases: what they mean, and that no password in them is ever shown."""

import traceback

import pyarrow as pa
import pytest

from margrave.algebra.layout import Layout
from margrave.data.redaction import split_url, without_credentials
from margrave.data.source import Data, open_source
from margrave.domain import Attribute, Domain
from margrave.errors import DataError

CODE = Domain([Attribute("x", size=2)])


def counted(data, **options):
    layout = Layout.of(CODE.shape, [(0,)])
    return open_source(data, CODE, contributions=1, **options).count(layout)[-2:].tolist()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("host=db password=hunter2 dbname=x", r"^\(not shown: it may hold a password\) ends in none of \.csv"),
        (
            "host=db PASSWORD = hunter2 dbname=x.csv",
            r"^there is no file \(not shown: it may hold a password\); check",
        ),
        ("postgresql:/me:hunter2@db/x", r"^\(not shown: it may hold a password\) ends in none of"),
        ("postgresql//me:hunter2@db/x.csv", r"^there is no file \(not shown: it may hold a password\)"),
        ("postgresql//me:hunter2@db/x.xlsx", r"^\(not shown: it may hold a password\) is a spreadsheet"),
        ("me:hunter2@h://x", "^an address of this kind cannot be opened; give a file, a postgresql:// URL"),
        ("hunter2 postgresql://me@h/x", "^an address of this kind cannot be opened"),
        ("jdbc:postgresql://me:hunter2@h/x", "^an address of this kind cannot be opened"),
        ("mysql://me:hunter2@h/x", "^a URL that begins with mysql:// cannot be opened"),
        ("postgresql://me:hun[ter2@db/x/t", r"^the URL of the database cannot be read; write postgresql://user@host"),
        ("postgresql://me:hunter2\u2100@db/x/t", r"^the URL of the database cannot be read"),
    ],
)
def test_a_password_is_never_shown(address, text):
    with pytest.raises(DataError, match=text) as caught:
        counted(Data(address))
    assert caught.value.__context__ is None
    # Without the lines of this file, which hold the address themselves.
    shown = traceback.format_exception_only(caught.value)
    assert not any(secret in "".join(shown) for secret in ("hunter2", "hun[ter2"))


def test_a_socket_has_no_host():
    assert split_url("postgresql:///db?host=/run/postgresql") == ("postgresql:///db?host=/run/postgresql", None)
    assert split_url("postgresql:///db/people?host=/run") == ("postgresql:///db?host=/run", "people")


def test_a_database_behind_a_socket(postgres):
    import psycopg

    with psycopg.connect(postgres) as connection:
        info = connection.info
        connection.execute("DROP TABLE IF EXISTS socket_people; CREATE TABLE socket_people AS SELECT 1 AS x")
        url = f"postgresql:///{info.dbname}?host={info.host}&port={info.port}&user={info.user}"
    assert counted(Data(url, table="socket_people")) == [0, 1]


@pytest.mark.parametrize("ending", ["csv", "ndjson", "json"])
def test_the_name_of_a_folder_is_no_value(tmp_path, ending):
    """``x=0/`` does not take the place of a column of the file, and ``p=1/`` not that of the ids."""
    rows = {"csv": "x,p\n1,k\n", "ndjson": '{"x": 1, "p": "k"}\n', "json": '[{"x": 1, "p": "k"}]'}[ending]
    for name in ("x=0", "p=1", "p=2", "p=c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"rows.{ending}").write_text(rows)
    assert counted(tmp_path / "x=0" / f"rows.{ending}") == [0, 1]
    assert counted(f"{tmp_path}/p=*/rows.{ending}", privacy_id="p") == [0, 1]
    assert counted(f"{tmp_path}/p=*/rows.{ending}") == [0, 3]


def test_names_that_differ_only_in_case_are_refused(tmp_path):
    (tmp_path / "late.ndjson").write_text('{"x": 1}\n' * 30_000 + '{"X": 1}\n')
    (tmp_path / "both.json").write_text('[{"x": 1, "X": 0}]')
    (tmp_path / "both.csv").write_text("x,X\n1,0\n")
    for name in ("late.ndjson", "both.json", "both.csv"):
        with pytest.raises(
            DataError, match=r"^two columns have names that differ only in case; give each its own name"
        ):
            counted(tmp_path / name)


def test_keys_that_come_late_and_values_that_are_no_objects(tmp_path):
    (tmp_path / "late.ndjson").write_text('{"y": 1, "x": 0}\n' * 30_000 + '{"x": 1, "z": 2}\n')
    assert counted(tmp_path / "late.ndjson") == [30_000, 1]
    (tmp_path / "mixed.ndjson").write_text('{"x": 1}\n3\n{"x": 1}\n')
    with pytest.raises(DataError, match=r"^the file could not be read and counted"):
        counted(tmp_path / "mixed.ndjson")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql://me:hunter2@db.example:5432/survey/people", "postgresql://db.example:5432/survey/people"),
        ("postgres://me@db/survey?password=hunter2&sslmode=require#x", "postgres://db/survey"),
        ("postgresql:///survey?host=/tmp/sockets", "postgresql:///survey"),
        ("postgresql://me:a@hunter2@db/survey", "postgresql://db/survey"),
        ("postgresql://me:hunt/er2@db/survey", "postgresql://(not shown: it may hold a password)"),
        ("postgresql://me:hunt?er2@db/survey", "postgresql://(not shown: it may hold a password)"),
        ("postgresql://me:hunt#er2@db/survey", "postgresql://(not shown: it may hold a password)"),
        ("postgresql://me:hun[ter2@db/survey", "(not shown: it may hold a password)"),
    ],
)
def test_the_address_for_the_ledger_has_no_credentials(url, address):
    assert without_credentials(url) == address
    assert "hunt" not in address


def test_what_the_ledger_is_told_of_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def named(source, **options):
        return open_source(Data(source, **options), CODE, contributions=1).named

    assert named("people.csv") == {"address": str(tmp_path / "people.csv")}
    assert named("waves/*.parquet") == {"address": str(tmp_path / "waves/*.parquet")}
    assert named("x.duckdb", query="SELECT 1 AS x") == {"address": str(tmp_path / "x.duckdb"), "query": "SELECT 1 AS x"}
    assert named("postgresql://me:hunter2@db/survey", table="people") == {
        "address": "postgresql://db/survey",
        "table": "people",
    }
    assert named("host=db password=hunter2 dbname=x.csv") == {"address": "(not shown: it may hold a password)"}
    assert named(pa.table({"x": [0, 1]})) == {"address": "Arrow table"}
