"""The options that commands share, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from margrave.methods import names

_DATA, _TABLES, _BUDGET, _OUTPUT = "The private table", "The tables wanted", "The budget", "What is written"

JobFile = Annotated[Path | None, typer.Option("--job", help="A TOML file with options; those given here override it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]

DataArgument = Annotated[
    str | None,
    typer.Argument(metavar="DATA", help="CSV, Parquet or JSON file, glob, .duckdb file, or postgresql:// URL."),
]
TableOption = Annotated[
    str | None, typer.Option("--table", help="The table of a database.", rich_help_panel=_DATA, show_default=False)
]
QueryOption = Annotated[
    str | None,
    typer.Option(
        "--query",
        help="One SELECT for a database, in place of --table. Rows of a person are rows of its result.",
        rich_help_panel=_DATA,
    ),
]
PublishQuery = Annotated[
    bool | None,
    typer.Option(
        "--publish-query",
        help="Quote the query in the release, which otherwise says only that there was one.",
        rich_help_panel=_DATA,
        show_default=False,
    ),
]
PrivacyId = Annotated[
    str | None,
    typer.Option(
        "--privacy-id", help="The column that says whose row it is, to enforce --contributions.", rich_help_panel=_DATA
    ),
]
Counts = Annotated[
    str | None,
    typer.Option("--counts", help="The column of counts, if rows are counts made elsewhere.", rich_help_panel=_DATA),
]
Counting = Annotated[
    str | None, typer.Option("--counting", help="auto, fetch or push-down.", rich_help_panel=_DATA, show_default=False)
]

Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        help="The mark between fields of a CSV file, as ';' or tab.",
        rich_help_panel=_DATA,
        show_default=False,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", help="Of a CSV file: utf-8, windows-1252, latin-1, utf-16 …", rich_help_panel=_DATA),
]
Decimal = Annotated[
    str | None,
    typer.Option("--decimal", help="The decimal mark in a CSV file: . or ,", rich_help_panel=_DATA, show_default=False),
]

DomainFile = Annotated[
    str | None, typer.Option("--domain", help="The domain file, declared and reviewed.", rich_help_panel=_TABLES)
]
KWay = Annotated[int | None, typer.Option("--kway", help="All tables of K attributes.", rich_help_panel=_TABLES)]
UpTo = Annotated[int | None, typer.Option("--up-to", help="All tables of at most K.", rich_help_panel=_TABLES)]
Tables = Annotated[
    list[str] | None,
    typer.Option("--tables", help="One table, as age,sex; may be given again.", rich_help_panel=_TABLES),
]
MaxCells = Annotated[
    int | None, typer.Option("--max-cells", help="Leave out tables with more cells.", rich_help_panel=_TABLES)
]

Epsilon = Annotated[float | None, typer.Option("--epsilon", help="ε, together with --delta.", rich_help_panel=_BUDGET)]
Delta = Annotated[float | None, typer.Option("--delta", help="δ; 1e-9 is usual.", rich_help_panel=_BUDGET)]
Rho = Annotated[float | None, typer.Option("--rho", help="ρ of zCDP, instead of ε.", rich_help_panel=_BUDGET)]
Contributions = Annotated[
    int | None,
    typer.Option(
        "--contributions",
        help="The most rows of one person in the table, or in the query's result.",
        rich_help_panel=_BUDGET,
    ),
]
LedgerFile = Annotated[
    str | None, typer.Option("--ledger", help="The spending record of the data set.", rich_help_panel=_BUDGET)
]
CapEpsilon = Annotated[
    float | None,
    typer.Option("--cap-epsilon", help="Begin the ledger with this cap (at --delta).", rich_help_panel=_BUDGET),
]
CapRho = Annotated[float | None, typer.Option("--cap-rho", help="The same as ρ.", rich_help_panel=_BUDGET)]
LedgerAnyDomain = Annotated[
    bool | None,
    typer.Option(
        "--ledger-any-domain",
        help="Charge a ledger that was charged for another domain: the same people, declared otherwise.",
        rich_help_panel=_BUDGET,
        show_default=False,
    ),
]
Objective = Annotated[
    str | None,
    typer.Option(
        "--objective",
        help="nonnegative (for method lnn), total_variance, table_variance or max_variance.",
        rich_help_panel=_BUDGET,
        show_default=False,
    ),
]
Method = Annotated[
    str | None,
    typer.Option("--method", help=f"One of {', '.join(names())}; the first by default.", rich_help_panel=_OUTPUT),
]

Out = Annotated[str | None, typer.Option("--out", help="The folder to write.", rich_help_panel=_OUTPUT)]
Overwrite = Annotated[
    bool | None, typer.Option("--overwrite", help="Replace a release that is there.", rich_help_panel=_OUTPUT)
]
Csv = Annotated[bool | None, typer.Option("--csv/--no-csv", help="Tables as CSV too.", rich_help_panel=_OUTPUT)]
Report = Annotated[
    bool | None, typer.Option("--report/--no-report", help="Write report.html beside it.", rich_help_panel=_OUTPUT)
]
Title = Annotated[str | None, typer.Option("--title", help="The title of the report.", rich_help_panel=_OUTPUT)]


def named_tables(tables: list[str] | None) -> tuple[tuple[str, ...], ...] | None:
    """Return the tables of ``--tables age,sex --tables age,region`` as tuples of names."""
    if not tables:
        return None
    return tuple(tuple(name.strip() for name in text.split(",") if name.strip()) for text in tables)


def text_options(delimiter: str | None, encoding: str | None, decimal: str | None) -> dict[str, Any]:
    """Return what `margrave.Data` is told about the text of a CSV file; nothing where nothing was said."""
    given = {"delimiter": delimiter, "encoding": encoding, "decimal": decimal}
    return {name: value for name, value in given.items() if value is not None}
