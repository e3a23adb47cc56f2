"""Errors of engines are told by their class alone; nothing of their text gets through."""

import pytest

from margrave.data.redaction import quietly
from margrave.errors import DataError, PlanError


def test_errors_of_engines_become_our_own_and_ours_lose_their_context():
    def foreign():
        raise ValueError("row 123457 secret")

    def chained():
        try:
            foreign()
        except ValueError as error:
            raise PlanError("a sentence of our own") from error

    for work, kind, text in [
        (foreign, DataError, r"^the table could not be read and counted \(ValueError\); check that it is complete"),
        (chained, PlanError, "^a sentence of our own$"),
    ]:
        with pytest.raises(kind, match=text) as caught:
            quietly(work, "the table")
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert quietly(lambda: 3, "the table") == 3
    with pytest.raises(KeyboardInterrupt):
        quietly(lambda: (_ for _ in ()).throw(KeyboardInterrupt), "the table")


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        (
            "_duckdb",
            "ParserException",
            r"^the table could not be queried \(ParserException\): the query is not one SELECT in its SQL",
        ),
        ("duckdb", "CatalogException", r"^the table could not be queried \(CatalogException\)"),
        ("psycopg.errors", "UndefinedColumn", r"^the table could not be queried \(UndefinedColumn\)"),
        ("sqlglot.errors", "ParseError", r"^the table could not be queried \(ParseError\)"),
        (
            "psycopg",
            "OperationalError",
            r"^the table could not be reached, or the connection was lost \(OperationalErr",
        ),
        (
            "psycopg.errors",
            "TooManyConnections",
            r"^the table could not be reached, or the connection was lost \(TooMa",
        ),
        (
            "psycopg.errors",
            "InsufficientPrivilege",
            r"^the table may not be read by this user \(InsufficientPrivilege\)",
        ),
        ("ibis.common.exceptions", "TableNotFound", r"^the table has no such table \(TableNotFound\); check its name"),
        (
            "psycopg.errors",
            "DiskFull",
            r"^the table could not be read and counted \(DiskFull\); check that it is complete",
        ),
        ("elsewhere", "ParserException", r"^the table could not be read and counted \(ParserException\)"),
    ],
)
def test_errors_of_engines_are_told_by_their_class(module, name, text):
    foreign = type(name, (Exception,), {"__module__": module})

    def fails():
        raise foreign("row 123457 secret")

    with pytest.raises(DataError, match=text) as caught:
        quietly(fails, "the table")
    assert str(caught.value).endswith("what the engine said is not shown because it may hold values")
    assert "secret" not in str(caught.value)
