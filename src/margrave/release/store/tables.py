"""Tables as files: Parquet (or CSV) in tidy long form, and counts that are checked when they are read back.

File names are readable, unique, and safe on every file system, whatever the attributes are called.

The reader of Parquet believes what the header of a page says, and takes that much memory, whatever the summary at the
end of the file says. A column is a row of pages, each with a small header in Thrift's compact protocol that says how
many bytes the page has in the file and how many after decompression. So the headers are read first, and nothing else
of the pages (`page_sizes`).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from margrave.domain.values import distinct_categories
from margrave.errors import MargraveError
from margrave.escaping import guarded
from margrave.release.store import damage

if TYPE_CHECKING:
    import pyarrow as pa

    from margrave.algebra.kernels import Floats
    from margrave.domain.domain import Domain

Names = tuple[str, ...]

# The columns of numbers, which come after those of the attributes; and those of errors of the counts, if learned.
MEASURES = ("count", "estimate", "std_error", "ci_low", "ci_high")
COUNT_MEASURES = ("count_error", "count_low", "count_high", "reliability")
# Most of its bits are noise: they take less room byte by byte than number by number.
_SPLIT = "estimate"
# These have few distinct numbers, or else the writer gives the dictionary up by itself.
_REPEATED = ("std_error", "ci_low", "ci_high", "count_low", "count_high", "reliability")
# What a column of n doubles may take in the file before it is read: headers of pages come on top of the numbers.
_LARGEST_OVERHEAD = 1 << 20
_TOTAL = "total"
_LONGEST_WORD, _LONGEST_STEM = 40, 120
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
# Windows takes these for devices, whatever follows the first dot.
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
# Kinds of fields in Thrift's compact protocol: two for true and false, whole numbers, bytes, a structure.
_TRUTHS, _BYTE, _WHOLE, _BINARY, _STRUCTURE = (1, 2), 3, (4, 5, 6), 8, 12
_LONGEST_HEADER = 1 << 16
# Fields of a page's header.
_SIZE, _SIZE_IN_FILE = 2, 3


def table_stems(domain: Domain, sets: Sequence[Names]) -> tuple[str, ...]:
    """Return a file name without its ending for each table, no two alike even where case does not count.

    Parameters
    ----------
    domain
        The attributes that the sets name.
    sets
        The tables, by names of attributes; () is the total.
    """
    word_of = {name: _word(name, place) for place, name in enumerate(domain.attributes, start=1)}
    taken: set[str] = set()
    repeats: dict[str, int] = {}
    stems: list[str] = []
    for names in sets:
        base = ".".join(word_of[name] for name in names)[:_LONGEST_STEM].rstrip(".") or _TOTAL
        stem = base
        while stem.casefold() in taken:
            repeats[base] = repeats.get(base, 1) + 1
            stem = f"{base}-{repeats[base]}"
        taken.add(stem.casefold())
        stems.append(stem)
    return tuple(stems)


def safe_word(text: str) -> str:
    """Return the letters, digits, ``_`` and ``-`` of a text, accents taken off and all else as ``_``; may be empty."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return _UNSAFE.sub("_", plain).strip("_-")


def write_parquet(table: pa.Table, file: Path, note: Mapping[str, object]) -> None:
    """Write a table in long form to a Parquet file, with a note in its schema that says what it is.

    Parameters
    ----------
    table
        Columns of the attributes, then `MEASURES`.
    file
        The file.
    note
        What JSON can hold.
    """
    import pyarrow.parquet as pq

    attributes, numbers = _columns(table)
    metadata = {**(table.schema.metadata or {}), b"margrave": json.dumps(note, ensure_ascii=False).encode()}
    pq.write_table(
        table.replace_schema_metadata(metadata),
        file,
        compression="zstd",
        use_dictionary=[*attributes, *(numbers[name] for name in _REPEATED if name in numbers)],
        use_byte_stream_split=[numbers[_SPLIT]],
    )


def write_csv(table: pa.Table, file: Path) -> None:
    """Write a table in long form to a CSV file in UTF-8; numbers so that they can be read back exactly.

    Labels and names of columns are guarded, so that no spreadsheet computes with them; numbers are numbers.
    """
    import pyarrow.csv

    attributes, _ = _columns(table)
    for place in [*range(len(attributes)), *([table.num_columns - 1] if _has_errors(table) else [])]:
        table = table.set_column(place, table.field(place).name, _guarded_labels(table.column(place)))
    pyarrow.csv.write_csv(table.rename_columns([guarded(name) for name in table.column_names]), file)


def read_counts(file: Path, domain: Domain, names: Names, *, negative: bool) -> Floats:
    """Return the counts of a table from its Parquet file, if it is the table that it should be.

    Parameters
    ----------
    file
        A file of `write_parquet`; of the columns of numbers only the first is read.
    domain
        What the labels must agree with.
    names
        The attributes of the table, in domain order.
    negative
        Whether counts may be below zero.
    """
    import pyarrow.parquet as pq

    shape = tuple(domain[name].size for name in names)
    with _damage_named(file), pq.ParquetFile(file, read_dictionary=list(names)) as parquet:
        labels = max((sum(len(text.encode()) + 8 for text in domain[name].categories) for name in names), default=0)
        _check_outline(file, parquet, names, domain.cells(names), labels)
        _check_pages(file, parquet, len(names) + 1)
        table = parquet.read(columns=[parquet.schema_arrow.names[place] for place in range(len(names) + 1)])
        for axis, name in enumerate(names):
            _check_labels(file, table.column(axis), shape, axis, distinct_categories(domain[name].categories))
        counts = np.concatenate([_numbers(chunk) for chunk in table.column(len(names)).chunks] or [np.empty(0)])
    if not np.isfinite(counts).all():
        raise damage(f"{file} is damaged: a count is missing or no finite number")
    if not negative and (counts < 0).any():
        raise damage(f"{file} is damaged: a count is negative, which its method rules out")
    return counts.reshape(shape)


def _guarded_labels(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of categories as texts for a CSV file; each category is looked at once, not each cell."""
    import pyarrow as pa

    codes = column.combine_chunks()
    labels = pa.array([guarded(label) for label in codes.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([labels.take(codes.indices)])


def _columns(table: pa.Table) -> tuple[list[str], dict[str, str]]:
    """Return the names of the columns of attributes, and those of the columns of numbers by measure."""
    names = table.column_names
    measures = (*MEASURES, *COUNT_MEASURES) if _has_errors(table) else MEASURES
    first = len(names) - len(measures)
    return names[:first], dict(zip(measures, names[first:], strict=True))


def _has_errors(table: pa.Table) -> bool:
    """Tell whether a table has the columns of errors of its counts: then the last column holds words."""
    import pyarrow as pa

    return bool(pa.types.is_dictionary(table.schema.field(table.num_columns - 1).type))


def _check_outline(
    file: Path,
    parquet: Any,  # noqa: ANN401 — pyarrow has no types
    names: Names,
    cells: int,
    labels: int,
) -> None:
    """Refuse, before anything is decompressed, a file that does not have the rows, columns and sizes of the table."""
    import pyarrow as pa

    outline, schema = parquet.metadata, parquet.schema_arrow
    if outline.num_rows != cells:
        raise damage(f"{file} is damaged: {outline.num_rows:,} rows, not {cells:,}")
    wanted = len(schema)
    possible = [len(names) + len(measures) for measures in (MEASURES, MEASURES + COUNT_MEASURES)]
    if wanted not in possible or outline.num_columns != wanted or tuple(schema.names[: len(names)]) != names:
        raise damage(f"{file} is damaged: its columns are not those of the table")
    if len(set(schema.names)) != wanted or schema.field(len(names)).type != pa.float64():
        raise damage(f"{file} is damaged: its counts are not a column of numbers")
    rows = [outline.row_group(group).num_rows for group in range(outline.num_row_groups)]
    if sum(rows) != cells or min(rows, default=0) < 0:
        raise damage(f"{file} is damaged: its groups of rows have {sum(rows):,} rows, not {cells:,}")
    for group, count in enumerate(rows):
        for place in range(len(names) + 1):
            column = outline.row_group(group).column(place)
            bound = 9 * cells + labels + _LARGEST_OVERHEAD
            if not 0 <= column.total_uncompressed_size <= bound or column.num_values != count:
                raise damage(f"{file} is damaged: a column claims more than it can hold")


def _check_pages(
    file: Path,
    parquet: Any,  # noqa: ANN401 — pyarrow has no types
    columns: int,
) -> None:
    """Refuse, before anything is decompressed, pages that would take more memory than their column says."""
    with file.open("rb") as stream:
        for group in range(parquet.metadata.num_row_groups):
            for place in range(columns):
                column = parquet.metadata.row_group(group).column(place)
                first = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
                pages = page_sizes(stream, min(first, column.data_page_offset), column.total_compressed_size)
                if sum(pages) > column.total_uncompressed_size:
                    raise damage(f"{file} is damaged: a page claims more than its column can hold")


def _check_labels(file: Path, column: pa.ChunkedArray, shape: tuple[int, ...], axis: int, categories: Names) -> None:
    """Refuse a column of labels that is not that of an axis: rows run through the cells, the last attribute fastest."""
    import pyarrow as pa

    along = [1] * len(shape)
    along[axis] = shape[axis]
    expected = np.broadcast_to(np.arange(shape[axis], dtype=np.int32).reshape(along), shape).ravel()
    begin = 0
    for chunk in column.chunks:
        if not pa.types.is_dictionary(chunk.type) or chunk.null_count or chunk.dictionary.null_count:
            raise damage(f"{file} is damaged: its labels are not categories")
        codes = _codes(chunk.dictionary.to_pylist(), categories)
        if not np.array_equal(codes[_numbers(chunk.indices)], expected[begin : begin + len(chunk)]):
            raise damage(f"{file} is damaged: its labels are not those of domain.json")
        begin += len(chunk)


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Return the numbers of an array without nulls; pyarrow's own way to numpy imports pandas where it can."""
    if array.null_count:
        raise ValueError("a count is missing or no finite number")
    numbers = np.frombuffer(array.buffers()[1], dtype=np.dtype(str(array.type)))
    return numbers[array.offset : array.offset + len(array)]


def _codes(labels: list[object], categories: Names) -> NDArray[np.int32]:
    """Return the code of each label; −1 for one that there is not."""
    code_of: dict[object, int] = {category: code for code, category in enumerate(categories)}
    return np.array([code_of.get(label, -1) for label in labels], dtype=np.int32)


@contextmanager
def _damage_named(file: Path) -> Iterator[None]:
    """Turn what the Parquet reader raises about a file that is none into an error with its name."""
    import pyarrow as pa

    try:
        yield
    except MargraveError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, MemoryError) as error:
        raise damage(f"{file} is damaged ({_first_line(error)})") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _word(name: str, place: int) -> str:
    """Return what stands for an attribute in file names."""
    word = safe_word(name)[:_LONGEST_WORD] or f"attribute{place}"
    return f"{word}_" if word.casefold() in _DEVICES else word


def page_sizes(stream: BinaryIO, begin: int, length: int) -> Iterator[int]:
    """Iterate over the sizes, after decompression, of the pages in a range of a file; ValueError if these are none.

    Parameters
    ----------
    stream
        The file.
    begin, length
        Where the pages of a column begin, and how many bytes they have.
    """
    end = begin + length
    while begin < end:
        stream.seek(begin)
        header = _Header(stream.read(min(_LONGEST_HEADER, end - begin)))
        fields = header.structure()
        size, in_file = fields.get(_SIZE, -1), fields.get(_SIZE_IN_FILE, -1)
        if size < 0 or in_file < 0:
            raise ValueError("a page does not say how large it is")
        yield size
        begin += header.position + in_file
    if begin != end:
        raise ValueError("the pages of a column do not fill it")


class _Header:
    """The bytes of a header, read from front to back."""

    def __init__(self, content: bytes) -> None:
        self._content, self.position = content, 0

    def structure(self, depth: int = 0) -> dict[int, int]:
        """Return the whole numbers of a structure by the number of their field, and go behind it."""
        if depth > 4:
            raise ValueError("the header of a page has structures inside each other")
        found: dict[int, int] = {}
        field = 0
        while (mark := self._byte()) != 0:
            step, kind = mark >> 4, mark & 15
            field = field + step if step else self._signed()
            if kind in _WHOLE:
                found[field] = self._signed()
            elif kind == _STRUCTURE:
                self.structure(depth + 1)
            elif kind == _BINARY:
                length = self._varint()
                self.position += length
            elif kind == _BYTE:
                self._byte()
            elif kind not in _TRUTHS:
                raise ValueError("the header of a page has a field of another kind")
        return found

    def _byte(self) -> int:
        if self.position >= len(self._content):
            raise ValueError("the header of a page has no end")
        self.position += 1
        return self._content[self.position - 1]

    def _varint(self) -> int:
        """Return a whole number of 7 bits a byte, the lowest first."""
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("the header of a page has a number without end")

    def _signed(self) -> int:
        """Return a whole number whose sign is its lowest bit."""
        number = self._varint()
        return number >> 1 ^ -(number & 1)
