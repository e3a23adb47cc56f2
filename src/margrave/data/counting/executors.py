"""One pass on a cluster: the compiled counter runs where the rows are, and the engine adds up the counts.

Every partition of the table is counted by the loops that count fetched rows, in a Python process next to the engine
(`mapInArrow` of Spark). It returns the cells that are not empty, as rows (cell, count); a cell is a place in the buffer
of all tables, which identifies the table too. The engine adds up the counts of equal cells. The table is read once,
however many tables are counted, and this process receives no more than the counts.

Sending a value from the engine to Python costs more than counting it. So the engine codes what is cheap for it to code
(`margrave.data.counting.engine_codes`) and packs the codes of a row into words of 63 bits. Other columns are sent as
they are, and the encoder of fetched rows codes them on the worker.

Where the rows of a person are limited, a first function returns the person and the codes of each row instead of counts;
the engine chooses rows by the rule of `margrave.data.persons`, and only kept rows reach the second function, which
counts.

A function never raises an error, because an engine would write its text, and with it possibly a value, into logs. It
returns the problem as a row instead, in words that contain nothing of the table.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from margrave.algebra.kernels import Integers, compiled
from margrave.algebra.layout import Layout
from margrave.data.counting.engine_codes import Key
from margrave.data.counting.fetch import RowCoder, Rows, join_rows, read_attributes
from margrave.data.counting.tally import Codes, Tally, chunk_rows, code_type, sum_inner
from margrave.data.encoding import DROPPED
from margrave.data.engines.engine import Engine, require_columns, require_ids
from margrave.data.engines.spark import chosen_on_spark
from margrave.data.persons import PERSON, ROW, Choice
from margrave.data.redaction import quietly
from margrave.errors import DataError, MargraveError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from margrave.domain.domain import Domain

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_WORD, _RAW, _DIGIT = "margrave_word_{}", "margrave_raw_{}", "margrave_digit_{}"
_WORD_BITS = 63
# Marks lie in −4 … −1. Their last bits, in two's complement, are the highest digits, above those of codes.
_MARKS = 4
_ERROR = -2  # in `Packed.codes`; below DROPPED
# Columns with more values to compare are coded faster by the worker's Python process than by the engine.
_MOST_ENGINE_VALUES = 24
CELL, COUNT, PROBLEM = "margrave_cell", "margrave_count", "margrave_problem"
_COUNTED = pa.schema([(CELL, pa.int64()), (COUNT, pa.int64()), (PROBLEM, pa.string())])
_SPARK_TYPES = {pa.int64(): "bigint", pa.string(): "string"}
# What a worker that cannot count returns as its problem.
NOT_INSTALLED = "margrave is missing"
_EMITTED_ROWS = 2**17
# How many cells one task of the engine adds up.
_CELLS_A_PART = 2**17


@dataclass(frozen=True)
class Packed:
    """Where the codes of an attribute are, and what each of its digits means.

    Attributes
    ----------
    attribute
        The place of the attribute in the domain.
    word, shift, bits
        Which word, and which bits of it.
    codes
        The code of each digit; ``DROPPED`` if its rows are dropped, less if it is an error.
    problems
        The text of the error, for each digit that is one.
    """

    attribute: int
    word: int
    shift: int
    bits: int
    codes: NDArray[np.int32]
    problems: Mapping[int, str] = field(default_factory=dict)

    def unpack(self, words: Integers, codes: Codes) -> NDArray[np.bool_] | None:
        """Write the codes of the rows, and return which rows are dropped; None if none is."""
        mask = (1 << self.bits) - 1
        if not words.size or unpack_digits(words, self.shift, mask, codes) < self._unmarked:
            return None
        found = self.codes[(words >> self.shift) & mask]
        if found.min() < DROPPED:
            digits = (words >> self.shift) & mask
            raise DataError(self.problems[int(digits[found < DROPPED].min())])
        codes[:] = found  # DROPPED wraps around in the unsigned type; the caller removes these rows
        dropped: NDArray[np.bool_] = found == DROPPED
        return dropped if dropped.any() else None

    @cached_property
    def _unmarked(self) -> int:
        """How many digits are equal to their code; the digits of marks come after them."""
        others = np.flatnonzero(self.codes != np.arange(self.codes.size))
        return int(others[0]) if others.size else self.codes.size


@compiled
def unpack_digits(words: Integers, shift: int, mask: int, codes: Codes) -> int:
    """Write the digit of each row, and return the highest of them."""
    highest = 0
    for i in range(words.size):
        digit = (words[i] >> shift) & mask
        highest = max(highest, digit)
        codes[i] = digit
    return highest


def placed(bits: Mapping[int, int]) -> tuple[dict[int, tuple[int, int]], int]:
    """Return the word and the shift of each attribute, and how many words there are.

    Parameters
    ----------
    bits
        How many bits the digit of each attribute takes, at most 63.
    """
    places: dict[int, tuple[int, int]] = {}
    word, used = 0, 0
    for attribute, width in bits.items():
        if used + width > _WORD_BITS:
            word, used = word + 1, 0
        places[attribute] = (word, used)
        used += width
    return places, word + 1 if places else 0


@dataclass(frozen=True)
class Coder:
    """How batches become rows of codes on the workers.

    Attributes
    ----------
    domain
        The declared domain.
    packed
        The attributes whose codes are in words.
    raw
        The attributes whose columns are sent as the table has them.
    privacy_id
        The column that identifies the person of each row, if rows are to be chosen.
    """

    domain: Domain
    packed: tuple[Packed, ...]
    raw: tuple[int, ...] = ()
    privacy_id: str | None = None

    def begin(self) -> Callable[[pa.RecordBatch], Rows]:
        """Return a function that codes the batches of one partition."""
        sent = {self.domain.attributes[k]: _RAW.format(k) for k in self.raw}
        if self.privacy_id is not None:
            sent[self.privacy_id] = PERSON
        coder = RowCoder(self.domain, self.raw, untyped=False, privacy_id=self.privacy_id)

        def code(batch: pa.RecordBatch) -> Rows:
            columns = {name: batch.column(column) for name, column in sent.items()}
            rows, dropped = coder.coded(pa.RecordBatch.from_pydict(columns) if columns else batch, map)
            words: dict[int, Integers] = {}
            for one in self.packed:
                if one.word not in words:
                    words[one.word] = batch.column(_WORD.format(one.word)).to_numpy()
                gone = one.unpack(words[one.word], rows.codes[one.attribute])
                if gone is not None:
                    dropped = gone if dropped is None else dropped | gone
            return rows.without(dropped)

        return code


@dataclass(frozen=True)
class Count:
    """The function that counts the rows of a partition.

    Attributes
    ----------
    coder
        How rows become codes.
    sizes, sets
        The tables to count.
    """

    coder: Coder
    sizes: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of what it returns."""
        return _COUNTED

    def trouble(self, problem: str) -> pa.RecordBatch:
        """Return a row that says what is wrong."""
        return _counted(np.array([-1]), np.array([0]), problem)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the cells of all tables that are not empty."""
        layout, code = Layout.of(self.sizes, self.sets), self.coder.begin()
        tally = Tally(layout)
        enough = chunk_rows(len(layout.sizes), np.dtype(code_type(layout.sizes)).itemsize) // 2
        waiting: list[Rows] = []
        for batch in batches:
            waiting.append(code(batch))
            if sum(rows.codes.shape[1] for rows in waiting) >= enough:
                tally.add(join_rows(waiting).codes)
                waiting = []
        if waiting:
            tally.add(join_rows(waiting).codes)
        counts = tally.counts()
        cells = np.flatnonzero(counts[layout.inner_cells :]) + layout.inner_cells
        for begin in range(0, cells.size, _EMITTED_ROWS):
            part = cells[begin : begin + _EMITTED_ROWS]
            yield _counted(part, counts[part])


@dataclass(frozen=True)
class Encode:
    """The function that returns the person and the codes of each row, so that the engine can choose rows of persons.

    Attributes
    ----------
    coder
        How rows become codes.
    places, words
        The word and the shift of each attribute that is counted, and how many words there are.
    """

    coder: Coder
    places: Mapping[int, tuple[int, int]]
    words: int

    @property
    def schema(self) -> pa.Schema:
        """The columns of what it returns."""
        words = [(_WORD.format(word), pa.int64()) for word in range(self.words)]
        return pa.schema([(PERSON, pa.string()), (ROW, pa.string()), *words, (PROBLEM, pa.string())])

    def trouble(self, problem: str) -> pa.RecordBatch:
        """Return a row that says what is wrong; it belongs to no person, so that no row of a person displaces it."""
        words = [pa.array([0])] * self.words
        columns = [pa.nulls(1, pa.string()), pa.array([""]), *words, pa.array([problem])]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are not dropped."""
        code = self.coder.begin()
        for batch in batches:
            yield self._encoded(code(batch))

    def _encoded(self, rows: Rows) -> pa.RecordBatch:
        """Return rows with the text of their person, the text of their codes, and their codes."""
        count = rows.codes.shape[1]
        texts = [pa.array(rows.codes[k]).cast(pa.string()) for k in sorted(self.places)]
        row = pc.binary_join_element_wise(*texts, ",") if texts else pa.array([""] * count, pa.string())
        words = np.zeros((self.words, count), dtype=np.int64)
        for k, (word, shift) in self.places.items():
            words[word] |= rows.codes[k].astype(np.int64) << shift
        columns = [_person_texts(rows.persons), row, *map(pa.array, words), pa.nulls(count, pa.string())]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _counted(cells: Integers, counts: Integers, problem: str | None = None) -> pa.RecordBatch:
    """Return cells with their counts, and a problem if there is one."""
    problems = pa.nulls(cells.size, pa.string()) if problem is None else pa.array([problem])
    return pa.RecordBatch.from_arrays([pa.array(cells), pa.array(counts), problems], schema=_COUNTED)


def _person_texts(persons: pa.Array) -> pa.Array:
    """Return canonical ids as the texts that are hashed; bytes as hexadecimal digits."""
    if pa.types.is_large_binary(persons.type):
        return pa.array([value.hex().upper() for value in persons.to_pylist()], pa.string())
    return persons.cast(pa.string())


def run(function: Count | Encode, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what a function returns; if it fails, or if rows come with a problem, end with a row that says so.

    Parameters
    ----------
    function
        What is run on a worker.
    batches
        The rows of a partition.
    """
    problem = ""

    def sound() -> Iterator[pa.RecordBatch]:
        nonlocal problem
        for batch in batches:
            place = batch.schema.get_field_index(PROBLEM)
            if place >= 0 and batch.column(place).null_count < len(batch):
                problem = batch.column(place).drop_null()[0].as_py()
                return
            yield batch

    returned, end = function(sound()), object()
    while True:
        try:
            batch = quietly(lambda: next(returned, end), "the PySpark frame")
        except MargraveError as error:
            problem = problem or str(error)
            break
        if batch is end:
            break
        yield batch
    if problem:
        for _ in batches:  # the engine sends all batches and must not be left waiting
            pass
        yield function.trouble(problem)


def shipped(function: Count | Encode, version: str) -> Function:
    """Return a function for the workers; the problem ``NOT_INSTALLED`` if they lack this version of margrave.

    It is sent by value, so it imports what it needs of margrave on the worker.

    Parameters
    ----------
    function
        What is to be run.
    version
        The version of margrave that it needs.
    """
    payload, not_installed = pickle.dumps(function), function.trouble(NOT_INSTALLED)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The function is sent without the names of this module.
        import os
        import pickle

        os.environ.setdefault("MARGRAVE_THREADS", "1")  # the engine gives the other cores to other partitions
        try:
            import margrave
            from margrave.data.counting.executors import run

            loaded = pickle.loads(payload) if margrave.__version__ == version else None
        except Exception:
            loaded = None
        if loaded is not None:
            yield from run(loaded, batches)
        else:
            yield not_installed

    return work


class OnePass:
    """The counting of a table by the workers of its cluster.

    Parameters
    ----------
    engine
        The table.
    domain, layout
        What is declared, and the tables to count.
    choice
        Whose row it is, how many rows of one person are kept, and the salt that decides which; None keeps all rows.
    """

    def __init__(self, engine: Engine, domain: Domain, layout: Layout, choice: Choice | None = None) -> None:
        self._engine, self._domain, self._layout, self._choice = engine, domain, layout, choice
        self._needed = list(layout.attributes)
        self._read = read_attributes(domain, self._needed)
        privacy_id = None if choice is None else choice.privacy_id
        require_columns(engine, tuple(domain.attributes[k] for k in self._read), privacy_id=privacy_id)
        if privacy_id is not None:
            require_ids(engine, privacy_id)

    def count(self, version: str) -> Integers | None:
        """Return the exact counts of every table of a closure, in one buffer; None if the workers cannot. PRIVATE.

        Parameters
        ----------
        version
            The version of margrave that the workers must have.
        """
        try:
            summed = self._engine.collected(self._summed(version))
        except Exception as error:
            # Our functions never raise: the worker could not load them because a package is missing.
            if type(error).__name__ in ("PythonException", "PicklingError"):
                return None
            raise
        problems = summed.column(PROBLEM).drop_null().to_pylist()
        if NOT_INSTALLED in problems:
            return None
        if problems:
            raise DataError(min(problems))
        counts = np.zeros(self._layout.cells, dtype=np.int64)
        counts[summed.column(0).to_numpy()] = summed.column(2).to_numpy()
        sum_inner(self._layout, counts)
        return counts

    def _summed(self, version: str) -> Any:  # noqa: ANN401 - a PySpark frame
        """Return the cells that are not empty with their counts, as a frame."""
        rows, coder = self._sent()
        if self._choice is not None:
            places, words = placed({k: _bits(self._domain.shape[k]) for k in self._needed})
            encode = Encode(coder, places, words)
            rows = rows.mapInArrow(shipped(encode, version), _declared(encode.schema))
            columns = [name for name in encode.schema.names if name not in (PERSON, ROW)]
            rows = chosen_on_spark(rows, columns, self._choice)
            coder = Coder(self._domain, tuple(self._plain(k, *places[k]) for k in self._needed))
        sets = self._layout.sets[self._layout.outer :]
        count = Count(coder, self._layout.sizes, sets)
        counted = rows.mapInArrow(shipped(count, version), _declared(count.schema))
        # As few parts as hold the cells: starting Spark's default of 200 tasks takes longer than adding up.
        parts = 1 + self._layout.cells // _CELLS_A_PART
        return counted.repartition(parts, CELL).groupBy(CELL, PROBLEM).sum(COUNT)

    def _sent(self) -> tuple[Any, Coder]:
        """Return the rows that are sent to the workers, and how they become codes there."""
        engine, domain = self._engine, self._domain
        keys = self._keys()
        places, words = placed({k: _bits(domain[domain.attributes[k]].declared + _MARKS) for k in keys})
        coded = tuple(self._marked(k, keys[k], *places[k]) for k in keys)
        columns = [keys[k].expression().alias(_DIGIT.format(k)) for k in keys]
        raw = tuple(k for k in self._read if k not in keys)
        columns += [nw.col(engine.column(domain.attributes[k])).alias(_RAW.format(k)) for k in raw]
        privacy_id = None if self._choice is None else self._choice.privacy_id
        if privacy_id is not None:
            columns.append(nw.col(engine.column(privacy_id)).alias(PERSON))
        # A frame needs at least one column, even if only the number of rows is counted. Selecting just a constant would
        # give one row, so it is added to the columns first.
        frame = engine.lazy()
        rows = frame.select(*columns) if columns else frame.with_columns(nw.lit(0).alias(CELL)).select(CELL)
        native = engine.native(rows)
        if coded:
            # Spark checks sums and products for overflow, but not shifts; the checks would be a quarter of its work.
            packed = [f"{_packed(coded, word)} AS {_WORD.format(word)}" for word in range(words)]
            others = [*(_RAW.format(k) for k in raw), *([] if privacy_id is None else [PERSON])]
            native = native.selectExpr(*packed, *others)
        return native, Coder(domain, coded, raw, privacy_id)

    def _keys(self) -> dict[int, Key]:
        """Return the attributes that the engine codes, each with its key."""
        engine, names = self._engine, {k: self._domain.attributes[k] for k in self._read}
        schema = engine.lazy().collect_schema()
        keys = {
            k: Key(self._domain[name], schema[engine.column(name)], engine.column(name)) for k, name in names.items()
        }
        bytewise = engine.bytewise([key.name for key in keys.values() if key.compares_texts])
        return {
            k: key
            for k, key in keys.items()
            if not key.refusal
            and key.compared <= _MOST_ENGINE_VALUES
            and (not key.compares_texts or key.name in bytewise)
        }

    def _marked(self, k: int, key: Key, word: int, shift: int) -> Packed:
        """Return where the codes and the marks of an attribute are."""
        declared = self._domain[key.name].declared
        bits = _bits(declared + _MARKS)
        codes = np.full(2**bits, _ERROR, dtype=np.int32)
        codes[:declared] = np.arange(declared)
        problems = {}
        for mark, settled in key.marks.items():
            digit = mark % 2**bits
            codes[digit] = _ERROR if isinstance(settled, str) else settled
            if isinstance(settled, str):
                problems[digit] = settled
        return Packed(k, word, shift, bits, codes, problems)

    def _plain(self, k: int, word: int, shift: int) -> Packed:
        """Return where the codes of an attribute are once no marks are left."""
        size = self._domain.shape[k]
        return Packed(k, word, shift, _bits(size), np.arange(size, dtype=np.int32))


def _packed(coded: Sequence[Packed], word: int) -> str:
    """Return the Spark expression that packs the digits of a word."""
    digits = [
        f"shiftleft({_DIGIT.format(one.attribute)} & {2**one.bits - 1}, {one.shift})"
        for one in coded
        if one.word == word
    ]
    return " | ".join(digits)


def _bits(digits: int) -> int:
    """Return how many bits a digit with this many values takes."""
    return max((digits - 1).bit_length(), 1)


def _declared(schema: pa.Schema) -> str:
    """Return a schema in the syntax of Spark."""
    return ", ".join(f"{column.name} {_SPARK_TYPES[column.type]}" for column in schema)
