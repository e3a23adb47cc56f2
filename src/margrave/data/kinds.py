"""What a table is, by the type of an object or the ending of a name alone, and how the text in a CSV file is written.

Nothing is opened here, and nothing heavy is loaded: a description of a table is checked by it before anything is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path

from margrave.data.redaction import SCHEMES, shown, shown_scheme
from margrave.errors import DataError


class SourceKind(Enum):
    """What a private table is; the value is the words for it."""

    FILE = "file"
    DUCKDB_FILE = "DuckDB file"
    POSTGRES_URL = "PostgreSQL database"
    PANDAS = "pandas frame"
    POLARS = "Polars frame"
    LAZY_POLARS = "lazy Polars frame"
    ARROW_TABLE = "Arrow table"
    ARROW_BATCH = "Arrow record batch"
    ARROW_READER = "Arrow record batch reader"
    ARROW_DATASET = "Arrow dataset"
    ARROW_STREAM = "Arrow stream"
    DUCKDB_RELATION = "DuckDB relation"
    IBIS = "Ibis table"
    SPARK = "PySpark frame"

    def __str__(self) -> str:
        return self.value


# The library and the name of the class of each kind of object.
_CLASSES = {
    ("pandas", "DataFrame"): SourceKind.PANDAS,
    ("polars", "DataFrame"): SourceKind.POLARS,
    ("polars", "LazyFrame"): SourceKind.LAZY_POLARS,
    ("pyarrow", "Table"): SourceKind.ARROW_TABLE,
    ("pyarrow", "RecordBatch"): SourceKind.ARROW_BATCH,
    ("pyarrow", "RecordBatchReader"): SourceKind.ARROW_READER,
    ("pyarrow", "Dataset"): SourceKind.ARROW_DATASET,
    ("duckdb", "DuckDBPyRelation"): SourceKind.DUCKDB_RELATION,
    ("_duckdb", "DuckDBPyRelation"): SourceKind.DUCKDB_RELATION,
    ("ibis", "Table"): SourceKind.IBIS,
    ("pyspark", "DataFrame"): SourceKind.SPARK,
}
# Objects that lead to tables, and how each gives one.
_READERS = {
    (
        "pyspark",
        "SparkSession",
    ): "give one of its frames, as spark.table('catalog.schema.table') or spark.sql(…) returns",
    ("deltalake", "DeltaTable"): "give the dataset that its to_pyarrow_dataset() returns",
    ("pyiceberg", "Table"): "give the reader that its scan().to_arrow_batch_reader() returns",
}
_OTHER_URLS = "give a file, a postgresql:// URL, or open it with DuckDB or Ibis and give the relation or the table"
_SUITABLE = (
    "a path, a postgresql:// URL, a pandas, Polars or PySpark frame, Arrow data, a DuckDB relation, an Ibis table or a "
    "CodedTable"
)

SEPARATED = {".csv": ",", ".tsv": "\t"}
# The name does not say what these contain: with a delimiter they are read as CSV files.
PLAIN = (".txt", ".dat")
JSON = (".json", ".ndjson", ".jsonl")
PARQUET = (".parquet", ".pq")
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
DATABASES = (".duckdb", ".ddb")
DECIMALS = (".", ",")
# How people type a tab on a command line.
_TABS = ("tab", r"\t")

_AS_CSV = "save it as CSV (UTF-8) there and give that file"
_FOREIGN = {
    (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods"): f"is a spreadsheet; {_AS_CSV}",
    (".sav", ".zsav", ".por"): f"is an SPSS file; {_AS_CSV}",
    (".dta",): f"is a Stata file; {_AS_CSV} (export delimited), or read it with pandas and give the frame",
    (".sas7bdat", ".xpt"): f"is a SAS file; {_AS_CSV}, or read it with pandas and give the frame",
    (".rds", ".rdata", ".rda"): "is an R file; write it as CSV or Parquet there and give that file",
    (".mdb", ".accdb"): f"is an Access file; {_AS_CSV}, a table at a time",
    (".feather", ".arrow", ".ipc"): "is an Arrow file; open it with pyarrow and give the table or the dataset",
    (".zip", ".7z", ".rar"): "is an archive; unpack it and give the file that was in it",
    PLAIN: "does not say by its ending how fields are separated; give delimiter=… (--delimiter), as in ';' or 'tab'",
    (".db", ".sqlite", ".sqlite3"): (
        "looks like a database: if it is a DuckDB file, give it the ending .duckdb; open a SQLite file with "
        "Ibis or DuckDB, and give its table"
    ),
}


def kind_of(source: object) -> SourceKind:
    """Return what a source is, without a look inside; raise `DataError` if it is nothing that can be read."""
    if isinstance(source, str | os.PathLike):
        return _kind_of_name(os.fspath(source))
    for parent in type(source).__mro__:
        named = (parent.__module__.split(".")[0], parent.__name__)
        if named in _READERS:
            raise DataError(f"a {parent.__name__} is not a table by itself", remedy=_READERS[named])
        if named in _CLASSES:
            return _CLASSES[named]
    if hasattr(type(source), "__arrow_c_stream__"):
        return SourceKind.ARROW_STREAM
    raise DataError(f"a {type(source).__name__} is not a table", remedy=f"give {_SUITABLE}")


def _kind_of_name(name: str | bytes) -> SourceKind:
    """Return whether a name is that of a file, of a DuckDB file or of a database."""
    if isinstance(name, bytes):
        raise DataError("the path is given as bytes", remedy="give it as text")
    scheme, found, _ = name.partition("://")
    if not found:
        return SourceKind.DUCKDB_FILE if name.lower().endswith(DATABASES) else SourceKind.FILE
    if scheme.lower() in SCHEMES:
        return SourceKind.POSTGRES_URL
    raise DataError(f"{shown_scheme(scheme)} cannot be opened", remedy=f"{_OTHER_URLS}")


@dataclass(frozen=True)
class TextFormat:
    """How the text in a CSV file is written.

    Parameters
    ----------
    delimiter
        The character between fields, "tab" for a tab; None: a comma, in TSV files a tab.
    encoding
        How characters are stored, by any name that Python knows; None: UTF-8.
    decimal
        The mark before the fraction of a number, "." or ",".
    trim
        Whether blanks and tabs at the edges of fields are left out; None: they are not.
    null
        Texts that say that a value is missing, as "?" does; an empty field always says so.
    header
        Whether the first row has the names of the columns; None: it has them, unless ``names`` are given.
    names
        The names of the columns of a file without a header; None: column1, column2 …
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str = "."
    trim: bool | None = None
    null: tuple[str, ...] = ()
    header: bool | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what no file can be written with."""
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _checked_delimiter(self.delimiter))
        if self.encoding is not None:
            _check_encoding(self.encoding)
        if self.decimal not in DECIMALS:
            raise DataError(f"decimal (--decimal) is {self.decimal!r}", remedy="give '.' or ','")
        for word in ("trim", "header"):
            value = getattr(self, word)
            if value is not None and not isinstance(value, bool):
                raise DataError(f"{word} (--{word}) is {value!r}", remedy="give True or False")
        object.__setattr__(self, "null", _checked_texts("null", self.null))
        if self.names is not None:
            object.__setattr__(self, "names", _checked_names(self.names, header=self.header))

    @property
    def given(self) -> str:
        """The first of them that was given, as it is typed; empty if none was."""
        return next(
            (f"{one.name} (--{one.name})" for one in fields(self) if getattr(self, one.name) != one.default), ""
        )

    @property
    def has_header(self) -> bool:
        """Whether the first row has the names of the columns."""
        return self.names is None if self.header is None else self.header

    def delimiter_of(self, path: str) -> str:
        """Return the character between the fields of a file."""
        return self.delimiter or SEPARATED[format_of(path)]


def _checked_delimiter(delimiter: object) -> str:
    """Return the delimiter if it can separate fields."""
    if delimiter in _TABS:
        return "\t"
    if (
        not isinstance(delimiter, str)
        or len(delimiter) != 1
        or delimiter.isalnum()
        or delimiter in "\"'\r\n\0\ufeff"
        or 0xD800 <= ord(delimiter) < 0xE000  # half a character
    ):
        raise DataError(
            f"delimiter (--delimiter) is {delimiter!r}",
            remedy="give one character other than a letter, digit or quotation mark, such as ';' or '|', or 'tab'",
        )
    return delimiter


def _checked_texts(word: str, given: object) -> tuple[str, ...]:
    """Return texts as a tuple; a text alone is one of them."""
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, Iterable):
        raise DataError(f"{word} (--{word}) is a {type(given).__name__}", remedy="give a text, or a list of texts")
    listed = tuple(texts)
    if not all(isinstance(one, str) for one in listed):
        raise DataError(f"{word} (--{word}) has values that are not texts", remedy="give a text, or a list of texts")
    return listed


def _checked_names(given: object, *, header: bool | None) -> tuple[str, ...]:
    """Return the names of columns if they can be those of a file without a header."""
    names = _checked_texts("names", given)
    if header:
        raise DataError("names (--names) are given for a file with a header", remedy="leave out one of the two")
    if not names or not all(names) or len(set(names)) != len(names):
        raise DataError("names (--names) has an empty name, or one twice", remedy="give each column its own name")
    return names


def _check_encoding(encoding: object) -> None:
    """Refuse an encoding that Python does not know, or that stores no text."""
    try:
        known = isinstance(encoding, str) and bool(encoding) and bool("a".encode(encoding))
    except (LookupError, ValueError):
        known = False
    if not known:
        raise DataError(
            f"no encoding {encoding!r} (--encoding) is known",
            remedy="give one such as utf-8, windows-1252, latin-1 or utf-16",
        )


def format_of(path: str) -> str:
    """Return the ending that tells the format of a file, lower case, without that of its compression."""
    name = Path(path).name.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    return Path(name).suffix


def is_separated(path: str, delimiter: str | None = None) -> bool:
    """Return whether a file is read as CSV."""
    ending = format_of(path)
    # With a delimiter a file of any other name is one too: many are called .data, or have no ending.
    known = ending in (*JSON, *PARQUET, *DATABASES) or (ending not in PLAIN and is_foreign(path))
    return ending in SEPARATED or (delimiter is not None and not known)


def is_foreign(path: str) -> bool:
    """Return whether a file is of a kind that other programs make, and that has to be saved as another first."""
    return any(format_of(path) in endings for endings in _FOREIGN)


def wrong_ending(name: str) -> DataError:
    """Return the error that says why a file of this name cannot be opened, and what to do instead."""
    ending = format_of(name)
    for endings, words in _FOREIGN.items():
        if ending in endings:
            return DataError(f"{shown(name)} {words}")
    return DataError(
        f"{shown(name)} ends in none of .csv, .tsv, .parquet, .json, .ndjson, .jsonl (all but Parquet also with .gz or "
        ".zst after it) or .duckdb",
        remedy="if it is a CSV file of another name, say what separates its fields: delimiter=',' (--delimiter ,); "
        "otherwise save it as one of these, or open it with DuckDB and give the relation",
    )
