"""What is wrong with an address of PostgreSQL is told apart, without a word of the driver or of the address."""

import pytest

from margrave.algebra.layout import Layout
from margrave.data.source import Data, open_source
from margrave.domain import Domain
from margrave.errors import DataError

DOMAIN = Domain.fromdict({"a": 2})
SECRET = "Geheimnisvoll"


def refused(url, **options):
    with pytest.raises(DataError) as caught:
        open_source(Data(url, **options), DOMAIN, contributions=1).count(Layout.of((2,), [(0,)]))
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None
    return str(caught.value)


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ("FATAL:  password authentication failed for user", None, "user or password is wrong (28P01); check the user"),
        ("ein Fehler in einer anderen Sprache", "28P01", "user or password is wrong (28P01)"),
        ("fe_sendauth: no password supplied", None, "it asks for a password, and none was given; set PGPASSWORD"),
        (f'FATAL:  database "{SECRET}" does not exist', None, "the server has no such database (3D000)"),
        ("etwas anderes", "3D000", "the server has no such database (3D000)"),
        (f'FATAL:  role "{SECRET}" does not exist', None, "the server rejects this user (28000)"),
        (f"failed to resolve host '{SECRET}': [Errno -2] Name or service not known", None, "the host is unknown"),
        ("connection failed: Connection refused", None, "no server listens there; check host and port"),
        ("connection timeout expired", None, "the server did not answer in time"),
        (f'definition of service "{SECRET}" not found', None, "the service file has no such service"),
        ("something else", None, "could not be reached, or the connection was lost (OperationalError)"),
    ],
)
def test_faults_of_a_connection_are_told_apart(monkeypatch, said, code, words):
    psycopg = pytest.importorskip("psycopg", reason="PostgreSQL needs margrave[postgres]")

    def connect(*_, **__):
        error = psycopg.OperationalError(f"{said} {SECRET}")
        error.sqlstate = code
        raise error

    monkeypatch.setattr(psycopg, "connect", connect)
    assert words in refused("postgresql://somebody@somewhere/people", table="people")


def test_a_server_says_what_is_missing(postgres):
    psycopg = pytest.importorskip("psycopg", reason="PostgreSQL needs margrave[postgres]")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS people_of_town; CREATE TABLE people_of_town (a int)")
        connection.execute("CREATE SCHEMA IF NOT EXISTS survey; CREATE TABLE IF NOT EXISTS survey.answers (a int)")
    message = refused(postgres, table="people_of_twon")
    assert "has no table 'people_of_twon'; did you mean 'people_of_town'? (this user may see " in message
    assert "survey.answers" in message
    assert "did you mean 'survey.answers'?" in refused(postgres, table="survey.answer")
    head, _, rest = postgres.partition("?")
    gone = f"{head.rpartition('/')[0]}/{SECRET}{'?' if rest else ''}{rest}"
    assert "the server has no such database (3D000)" in refused(gone, table="people")


def test_an_unknown_host_and_a_port_where_nobody_listens():
    pytest.importorskip("psycopg", reason="PostgreSQL needs margrave[postgres]")
    pytest.importorskip("ibis", reason="PostgreSQL needs margrave[postgres]")
    assert "no server listens there" in refused("postgresql://somebody@127.0.0.1:1/people", table="people")
