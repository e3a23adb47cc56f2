"""Values become codes: columns of every Arrow type against a naive loop, the policies, and messages without values."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from margrave.data.encoding import DROPPED, Encoder
from margrave.domain import Attribute
from margrave.errors import DataError

NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE | re.ASCII)
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


def naive(attribute, value, *, untyped=False):
    """The code of one value, by one comparison after another."""
    kind = read(attribute, value) if untyped and isinstance(value, str) else value
    if kind is None or kind != kind:
        return attribute.missing_code
    if attribute.cuts is not None:
        return sum(below(cut, kind) for cut in attribute.cuts) if is_number(kind) else other(attribute)
    labels = range(attribute.declared) if attribute.labels is None else attribute.labels
    return next((code for code, label in enumerate(labels) if equal(label, kind)), other(attribute))


def other(attribute):
    return DROPPED if attribute.other_code is None else attribute.other_code


def read(attribute, text):
    """What a text in a file without types means for an attribute."""
    labels = attribute.labels or ()
    if any(label == text and isinstance(label, str) for label in labels):
        return text
    if text == "":
        return None
    if text.lower() in ("true", "false") and any(isinstance(label, bool) for label in labels):
        return text.lower() == "true"
    if attribute.labels is None or any(is_number(label) for label in labels):
        return int(text) if WHOLE.fullmatch(text) else float(text) if NUMBER.fullmatch(text) else text
    return text


def is_number(value):
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def below(cut, value):
    return Decimal(repr(cut)) < value if isinstance(value, Decimal) else cut < value


def equal(label, value):
    if is_number(label) and is_number(value):
        # Python compares whole numbers with doubles exactly.
        return Decimal(repr(label)) == value if isinstance(value, Decimal) else label == value
    if type(value) is date:
        return label == value.isoformat()
    if isinstance(value, datetime):
        return moment(label) == value
    return type(label) is type(value) and label == value


def moment(label):
    try:
        return datetime.fromisoformat(label)
    except (ValueError, TypeError):
        return None


def policies(attribute):
    """The same values with every choice of policies that is no error."""
    values = {"labels": attribute.labels, "cuts": attribute.cuts}
    size = attribute.declared if attribute.labels is None and attribute.cuts is None else None
    for added in ({"missing": "?", "other": "!"}, {"missing": "?", "outside": "drop"}, {"missing": "!", "other": "!"}):
        yield Attribute("x", size=size, **values, **added)


def shapes(array):
    """One column in the ways an engine may hand it over, and which of its rows each holds."""
    rows = list(range(len(array)))
    yield array, rows
    yield pa.concat_arrays([array, array])[len(array) :], rows
    yield pa.chunked_array([array[:2], array[2:2], array[2:]], array.type), rows
    yield pa.chunked_array([], array.type), []
    yield array[:0], []
    yield array[1:-1], rows[1:-1]
    narrow = pa.types.is_float16(array.type) or (pa.types.is_decimal(array.type) and array.type.bit_width < 128)
    if not narrow:  # Arrow makes no dictionary of these
        yield array.dictionary_encode(), rows
        yield array.dictionary_encode()[1:], rows[1:]


def check(attribute, array, values=None, *, untyped=False):
    """Compare every shape of a column, under every policy, with the loop."""
    for variant in policies(attribute):
        expected = [naive(variant, value, untyped=untyped) for value in values or array.to_pylist()]
        encoder = Encoder(variant, untyped=untyped)
        for column, rows in shapes(array):
            codes = encoder.encode(column)
            assert codes.dtype == np.int32
            assert codes.tolist() == [expected[row] for row in rows]


# Numbers

NUMERIC = [
    Attribute("x", size=3),
    Attribute("x", labels=[2, 0, 7]),
    Attribute("x", labels=[-5, 2**31, 2**53 + 1, 2**63 - 1, 2**64 - 1, 10**30, -(2**63)]),
    Attribute("x", labels=[0.5, 1, 2.0, 9007199254740992.0, 1e300]),
    Attribute("x", labels=["text", 1, 2, False]),
    Attribute("x", labels=[10**400, 3]),
    Attribute("x", cuts=[0]),
    Attribute("x", cuts=[-128, -1.5, 0.3, 1, 2.0, 100, 2**53]),
    Attribute("x", cuts=[-1e300, -(2**53), 127, 255, 1e19, 1e300]),
]
WIDTHS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
numeric = pytest.mark.parametrize("attribute", NUMERIC, ids=lambda a: str(a.labels or a.cuts or a.size)[:40])


@numeric
@pytest.mark.parametrize("width", WIDTHS)
def test_whole_numbers_of_every_width(attribute, width):
    limits = np.iinfo(width)
    wanted = [0, 1, 2, 3, 7, -1, -5, 127, 128, 2**31, 2**53, 2**53 + 1, limits.min, limits.min + 1, limits.max]
    values = [value for value in wanted if limits.min <= value <= limits.max]
    check(attribute, pa.array([None, *values, None, limits.max - 1], getattr(pa, width)()))


@numeric
def test_a_wide_range_of_whole_numbers(attribute):
    check(attribute, pa.array([-(2**62), 0, 1, 2**62, None, 7, 2**53 + 1]))


REALS = [
    0.0,
    -0.0,
    1.0,
    0.5,
    -1.5,
    0.3,
    2.0,
    2.5,
    7.0,
    None,
    math.nan,
    math.inf,
    -math.inf,
    2.0**53,
    1e300,
    -1e300,
    1e19,
]


@numeric
@pytest.mark.parametrize("width", ["float16", "float32", "float64"])
def test_floating_point_numbers(attribute, width):
    values = np.array([np.nan if value is None else value for value in REALS], dtype=np.float64)
    with np.errstate(over="ignore"):
        narrow = values.astype({"float16": "f2", "float32": "f4", "float64": "f8"}[width])
    missing = np.array([value is None for value in REALS])
    array = pa.array(narrow, getattr(pa, width)(), mask=missing)
    check(attribute, array, [None if gone else float(value) for value, gone in zip(narrow, missing, strict=True)])


@numeric
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.decimal32(5, 2), "0 1.00 -1.50 0.30 0.31 0.5 2 7 100.01"),
        (pa.decimal64(18, 3), "0 1 -1.5 0.3 0.301 2 7 99999.999"),
        (pa.decimal128(38, 0), "0 1 -5 2 7 9007199254740993 18446744073709551615 -9223372036854775808 1" + 30 * "0"),
        (pa.decimal128(38, 6), "0 1 0.300001 0.3 2.000000 -1.5 9007199254740993.000001 10000000000000000000.000001"),
        (pa.decimal128(38, 30), "0 1 2 0.3 0.300000000000000000000000000001 7"),
        (pa.decimal256(76, 2), "0 1 -1.5 2 1" + 60 * "0" + " -1" + 30 * "0" + " 1" + 30 * "0"),
        (pa.decimal128(5, -2), "0 100 -100 99900"),
    ],
    ids=lambda part: str(part)[:30],
)
def test_decimals(attribute, kind, values):
    array = pa.array([None, *(Decimal(text) for text in values.split()), None], kind)
    check(attribute, array)


def test_a_cut_is_meant_as_it_is_written():
    encoder = Encoder(Attribute("x", cuts=[0.3]))
    exact, double = pa.array([Decimal("0.3"), Decimal("0.31")], pa.decimal128(5, 2)), pa.array([0.3, 0.31])
    # The double next to 0.3 is less than 3/10.
    assert encoder.encode(exact).tolist() == encoder.encode(double).tolist() == [0, 1]


def test_neighbours_of_a_large_whole_number_are_not_confused():
    values = [2**53 - 1, 2**53, 2**53 + 1]
    assert Encoder(Attribute("x", cuts=[2**53])).encode(pa.array(values)).tolist() == [0, 0, 1]
    assert Encoder(Attribute("x", labels=values)).encode(pa.array(values[::-1])).tolist() == [2, 1, 0]


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-300, 300), min_size=1, max_size=5
    ),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300), max_size=30),
)
def test_whole_numbers_fall_into_the_right_bins(cuts, values):
    attribute = Attribute("x", cuts=sorted({float(cut) for cut in cuts}), missing="?")
    expected = [naive(attribute, value) for value in values]
    assert Encoder(attribute).encode(pa.array(values, pa.int64())).tolist() == expected


def test_few_numbers_in_many_rows_take_the_short_way():
    """More rows than different numbers: bins come from a table."""
    values = np.random.default_rng(0).integers(-128, 128, 5000).astype(np.int8)
    attribute = Attribute("x", cuts=[-100.5, 0, 126])
    for width in (np.int8, np.int64):
        codes = Encoder(attribute).encode(pa.array(values.astype(width)))
        assert codes.tolist() == [naive(attribute, int(value)) for value in values]


# Texts

WORDS = [
    "F",
    "f",
    " F",
    "F ",
    "",
    "M",
    "é",
    "e\u0301",
    "naïve",
    "\u0000",
    "F\u0000",
    "女",
    "💡",
    "nan",
    "1",
    "1.0",
    "True",
    None,
]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize(
    "labels",
    [["M", "F"], ["e\u0301", "é"], [""], ["F\u0000", "💡", "1", 1], WORDS[:-1]],
    ids=lambda labels: str(len(labels)),
)
def test_texts_are_compared_byte_for_byte(kind, labels):
    check(Attribute("x", labels=labels), pa.array(WORDS, kind))


def test_categories_that_no_row_has_are_not_looked_at():
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array(["M", "F", "secret"]))
    assert Encoder(Attribute("x", labels=["F", "M"], missing="?")).encode(column).tolist() == [0, 1, 2]


def test_a_dictionary_may_hold_a_missing_value():
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array(["M", None]))
    assert Encoder(Attribute("x", labels=["M"], missing="?")).encode(column).tolist() == [1, 0, 1]


def test_runs_are_decoded():
    column = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], pa.int32()), pa.array(["M", None, "F"]))
    assert Encoder(Attribute("x", labels=["F", "M"], missing="?")).encode(column).tolist() == [1, 1, 2, 0, 0]


# Texts of a file without types

WRITTEN = [
    *[
        "0",
        "1",
        "2",
        "-0",
        "+1",
        "01",
        "1.0",
        "1.",
        ".5",
        "-1.5",
        "1e0",
        "10E-1",
        "1e400",
        "-1e400",
        "inf",
        "-Infinity",
    ],
    *["NaN", "nan", "0x1", "1_000", "١", "1,5", "true", "TRUE", "False", "tRuE", "yes", "t", "M", "text", "1e", "."],
    *["9007199254740993", "18446744073709551615", "+2", "-128", "100", "0.3", "2", "1\n", "2\n", "true\n", "--1"],
    *[" 1", "1 ", "", None, "1" + 30 * "0", "-1" + 30 * "0", "9" * 5000, "-" + "9" * 5000, "+" + "0" * 30 + "2"],
]


@pytest.mark.parametrize(
    "attribute",
    [
        *NUMERIC,
        Attribute("x", labels=[True, False]),
        Attribute("x", labels=["1", "true", True, "M", 2, 0.5]),
        Attribute("x", labels=["", "nan", 2]),
        Attribute("x", labels=["9007199254740993", "1e400", "1.0", 1, 2**64 - 1]),
    ],
    ids=lambda a: str(a.labels or a.cuts or a.size)[:40],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.string_view()], ids=str)
def test_files_without_types_are_read(attribute, kind):
    # Python would not read so many digits; they mean no more than infinity does.
    values = [value if value is None or len(value) < 4000 else value[:1].strip("9") + "inf" for value in WRITTEN]
    check(attribute, pa.array(WRITTEN, kind), values, untyped=True)


def test_in_a_column_of_texts_numbers_are_not_guessed():
    for attribute in NUMERIC:
        if not any(isinstance(label, str) for label in attribute.labels or ()):
            with pytest.raises(
                DataError, match=r"^column 'x' holds texts and its attribute declares numbers; declare what"
            ):
                Encoder(attribute).encode(pa.array(["1"]))


# Truth values, dates, moments


@pytest.mark.parametrize("labels", [[True, False], [False], ["a", 0, True]], ids=str)
def test_truth_values(labels):
    check(Attribute("x", labels=labels), pa.array([True, None, False, True]))


def test_truth_values_kept_in_bytes():
    column = pa.array([1, 0, None, 5], pa.int8()).cast(pa.bool8())
    assert Encoder(Attribute("x", labels=[True, False], missing="?")).encode(column).tolist() == [0, 1, 2, 0]


DATES = [date(1970, 1, 1), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), None]
DATED = Attribute(
    "x", labels=["2024-02-29", "1969-12-31", "9999-12-31", "20240229", "2023-02-29", "2024-2-29", "0001-01-01"]
)


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()], ids=str)
def test_dates_are_compared_in_iso_form(kind):
    check(DATED, pa.array(DATES, kind))


def test_a_date_in_milliseconds_is_the_day_it_falls_in():
    column = pa.array([-1, 86_399_999], pa.int64()).view(pa.date64())
    assert Encoder(Attribute("x", labels=["1970-01-01", "1969-12-31"])).encode(column).tolist() == [1, 0]


TIMED = Attribute(
    "x", labels=["2024-02-29", "2024-02-29T12:30:00", "2024-02-29 12:30:00.25", "1969-12-31T23:59:59.999999", "noon"]
)
TIMES = [datetime(2024, 2, 29), datetime(2024, 2, 29, 12, 30), datetime(1969, 12, 31, 23, 59, 59, 999999), None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_are_compared_as_moments(unit):
    values = [*TIMES, datetime(2024, 2, 29, 12, 30, 0, 250000), datetime(2024, 2, 29, 12, 30, 1)]
    array = pa.array(values, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
    check(TIMED, array, [value and value.replace(tzinfo=None) for value in array.cast(pa.timestamp("us")).to_pylist()])


def test_nanoseconds_are_not_lost():
    column = pa.array([1, 2], pa.timestamp("ns"))
    attribute = Attribute("x", labels=["1970-01-01T00:00:00.000000002", "1970-01-01T00:00:00.000000001"])
    assert Encoder(attribute).encode(column).tolist() == [1, 0]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna"])
def test_timestamps_with_a_zone_are_moments_of_the_world(zone):
    attribute = Attribute("x", labels=["2024-02-29T12:30:00Z", "2024-02-29T13:30:00-01:30", "2024-02-29"], other="!")
    values = [datetime(2024, 2, 29, 12, 30, tzinfo=UTC) + timedelta(hours=hours) for hours in (0, 2.5, 1)]
    column = pa.array([value.replace(tzinfo=None) for value in values], pa.timestamp("us")).cast(
        pa.timestamp("us", zone)
    )
    column = pa.array(values, pa.timestamp("us", zone))
    assert Encoder(attribute).encode(column).tolist() == [0, 1, 3]


def test_two_labels_for_one_timestamp_are_refused():
    attribute = Attribute("x", labels=["2024-02-29", "2024-02-29T00:00:00"])
    assert Encoder(attribute).encode(pa.array([date(2024, 2, 29)])).tolist() == [0]
    text = "attribute 'x' has two labels for one timestamp, one of them '2024-02-29T00:00:00'"
    with pytest.raises(DataError, match=re.escape(text)):
        Encoder(attribute).encode(pa.array([datetime(2024, 2, 29)]))


# Columns that hold nothing, and columns of the wrong kind

KINDS = {
    "texts": pa.array(["secret"]),
    "numbers": pa.array([4711.5]),
    "booleans": pa.array([True]),
    "dates": pa.array([date(2024, 2, 29)]),
    "times without a zone": pa.array([datetime(2024, 2, 29)]),
    "times with a zone": pa.array([datetime(2024, 2, 29, tzinfo=UTC)]),
    "values of another kind": pa.array([b"secret"]),
}
DECLARED = {
    "texts": Attribute("x", labels=["a"]),
    "numbers": Attribute("x", cuts=[1]),
    "booleans": Attribute("x", labels=[True]),
}


@pytest.mark.parametrize("found", KINDS)
@pytest.mark.parametrize("declared", DECLARED)
def test_a_column_of_the_wrong_kind_is_refused_whatever_the_policies(found, declared):
    if found == declared:
        return
    attribute = DECLARED[declared]
    form = ", none of them of that form" if found.startswith(("dates", "times")) and declared == "texts" else ""
    text = (
        f"column 'x' holds {found} and its attribute declares {declared}{form}; declare what the column holds, or "
        "convert the column"
    )
    for variant in (attribute, *policies(attribute)):
        with pytest.raises(DataError, match=f"^{re.escape(text)}$"):
            Encoder(variant).encode(KINDS[found])


@pytest.mark.parametrize(
    "column",
    [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([timedelta(1)]), pa.array([b"x"], pa.large_binary())],
    ids=lambda column: str(column.type),
)
def test_values_of_no_declarable_kind(column):
    with pytest.raises(
        DataError, match=r"^column 'x' holds values of another kind and its attribute declares texts or numbers;"
    ):
        Encoder(Attribute("x", labels=["a", 1])).encode(column)


@pytest.mark.parametrize("attribute", [*DECLARED.values(), Attribute("x", size=3), DATED])
@pytest.mark.parametrize("kind", [*(column.type for column in KINDS.values()), pa.null(), pa.float16()], ids=str)
def test_a_column_without_values_fits_every_attribute(attribute, kind):
    (variant, *_) = policies(attribute)
    nothing = pa.nulls(3, kind)
    assert Encoder(variant).encode(nothing).tolist() == [variant.missing_code] * 3
    assert Encoder(attribute).encode(nothing[:0]).tolist() == []
    assert Encoder(attribute).encode(pa.chunked_array([], kind)).tolist() == []


def test_a_column_of_nan_alone_is_missing_too():
    column = pa.array([math.nan, None, math.nan])
    assert Encoder(Attribute("x", labels=["a"], missing="?")).encode(column).tolist() == [1, 1, 1]


# Policies


def test_a_value_outside_is_an_error_unless_something_else_is_declared():
    text = (
        "column 'sex' has values that its attribute does not declare; declare them, or give the attribute an \"other\" "
        'category or "outside": "drop" (margrave validate shows how a table fits)'
    )
    with pytest.raises(DataError, match=f"^{re.escape(text)}$"):
        Encoder(Attribute("sex", labels=["F"], missing="?")).encode(pa.array(["F", "secret", None]))


def test_a_missing_value_is_an_error_unless_a_category_is_declared():
    text = (
        "column 'sex' has missing values and its attribute no category for them; give it one, as in "
        '"missing": "unknown"'
    )
    for attribute in (Attribute("sex", labels=["F"], other="!"), Attribute("sex", labels=["F"], outside="drop")):
        with pytest.raises(DataError, match=f"^{re.escape(text)}$"):
            Encoder(attribute).encode(pa.array(["F", "secret", None]))


def test_a_declared_category_takes_them_in():
    attribute = Attribute("sex", labels=["F", "?"], missing="?", other="?")
    assert Encoder(attribute).encode(pa.array(["?", None, "F", "X"])).tolist() == [1, 1, 0, 1]


def test_an_attribute_with_more_values_than_codes_is_refused():
    with pytest.raises(
        DataError, match=r"^attribute 'x' has 10,000,000,000 values; at most 2,147,483,647 can be encoded$"
    ):
        Encoder(Attribute("x", size=10**10))


def test_the_column_is_left_as_it_is():
    column = pa.array([1, 9, None])
    Encoder(Attribute("x", size=3, missing="?", outside="drop")).encode(column)
    assert column.to_pylist() == [1, 9, None]
