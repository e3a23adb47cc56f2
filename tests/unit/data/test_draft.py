"""A domain drafted from a table: what becomes labels, what is cut, what is left out."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from margrave.data.draft import MANY, WARNING, Profile, draft_domain, round_cuts
from margrave.data.source import Data
from margrave.data.validation import validate
from margrave.domain import Attribute, Domain
from margrave.errors import DataError

ROWS = 400
PEOPLE = np.random.default_rng(7)


def drafted(column, **options):
    """The attribute that is drafted for a column, or the reason why there is none."""
    draft = draft_domain(Data(pa.table({"x": column}), **options))
    return draft.domain["x"] if "x" in draft.domain else draft.left_out["x"]


def test_few_texts_become_labels_in_order():
    assert drafted(["b", "a", "ä", "b", ""]) == Attribute("x", labels=["", "a", "b", "ä"])


def test_missing_values_get_a_category():
    assert drafted(["b", None, "b"]) == Attribute("x", labels=["b"], missing="missing")
    assert drafted([1.0, float("nan"), 2.0]) == Attribute("x", labels=[1, 2], missing="missing")


def test_truth_values_are_two_whatever_was_seen():
    assert drafted([True, True]) == Attribute("x", labels=[False, True])


def test_few_numbers_become_labels():
    assert drafted(pa.array([3, 1, 2, 3], pa.uint8())) == Attribute("x", labels=[1, 2, 3])
    assert drafted([3.0, 0.5, -0.0]) == Attribute("x", labels=[0, 0.5, 3])
    assert drafted([Decimal("1.50"), Decimal("2.00"), Decimal("2.00")]) == Attribute("x", labels=[1.5, 2])


def test_many_numbers_are_cut_at_round_ones():
    ages = PEOPLE.integers(17, 91, ROWS)
    assert drafted(ages) == Attribute("x", cuts=[20, 30, 40, 50, 60, 70, 80], whole=True)
    assert drafted(ages.astype(np.float32)) == drafted(ages)


def test_measurements_are_no_identifiers_though_none_comes_twice():
    assert drafted(PEOPLE.normal(size=ROWS)).cuts == (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)
    assert drafted(PEOPLE.normal(size=2 * MANY)).cuts == (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)


def test_outliers_do_not_spread_the_cuts():
    incomes = np.append(PEOPLE.integers(0, 100, ROWS) * 1000.5, [1e12, -1e12, np.inf])
    assert max(drafted(incomes).cuts) < 200_000


@pytest.mark.parametrize(
    ("lower", "upper", "cuts"),
    [
        (17, 88, [20, 30, 40, 50, 60, 70, 80]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.1, 0.1, [0.1]),
        (0, 0, [0]),
        (-1e300, 1e300, []),
        (float("nan"), 1, []),
        (3, 24, [5, 10, 15, 20]),
        (1001, 1009, [1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009]),
    ],
)
def test_cuts_are_round_numbers(lower, upper, cuts):
    found = round_cuts(lower, upper)
    assert found[: len(cuts)] == cuts
    if found:
        assert Attribute("x", cuts=found).cuts == tuple(found)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ([None, None], "it has no values"),
        (pa.nulls(2), "it has no values"),
        (pa.array([], pa.int64()), "it has no values"),
        (list(range(ROWS)), "an identifier: no value comes twice"),
        ([f"person {place}" for place in range(ROWS)], "an identifier: no value comes twice"),
        (list(range(2 * MANY)), "an identifier: no value comes twice"),
        ([f"text {place // 2}" for place in range(ROWS)], "more than 100 different texts; group them first"),
        ([f"text {place // 2}" for place in range(4 * MANY)], "more than 100 different texts; group them first"),
        (
            [date.fromordinal(1 + place // 2) for place in range(ROWS)],
            "dates; derive years or months from them",
        ),
        ([datetime(2024, 1, 1)], "timestamps, bytes or other values; derive a column with few values from it"),
        ([b"x"], "timestamps, bytes or other values; derive a column with few values from it"),
        ([1e300 * place for place in range(1, 30)] * 2, "values out of range for bins; declare it by hand"),
    ],
)
def test_what_is_left_out_is_named_with_the_reason(column, reason):
    assert drafted(column) == reason


def test_few_dates_become_labels():
    assert drafted([date(2024, 2, 29), date(2024, 2, 28)]) == Attribute("x", labels=["2024-02-28", "2024-02-29"])


def drafted_text(tmp_path, texts, **options):
    """What is drafted for a column of a file without types: attribute or reason, and the texts among its numbers."""
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["x;y", *(f"{text};1" for text in texts)]), encoding="utf-8")
    draft = draft_domain(Data(path, delimiter=";", **options))
    return draft.domain["x"] if "x" in draft.domain else draft.left_out["x"], draft.odd.get("x", ())


def test_a_text_among_many_numbers_does_not_make_them_texts(tmp_path):
    ages = [str(place % 70 + 18) for place in range(199)]
    cuts = {"cuts": [30, 40, 50, 60, 70, 80], "whole": True}
    assert drafted_text(tmp_path, [*ages, "NA"]) == (
        Attribute("x", **cuts, missing="missing", other="missing"),
        ("NA",),
    )
    assert drafted_text(tmp_path, ["old", *ages]) == (Attribute("x", **cuts, other="other"), ("old",))
    assert drafted_text(tmp_path, [*ages, "old", "NA", ""]) == (
        Attribute("x", **cuts, missing="missing", other="other"),
        ("NA", "old"),
    )
    assert drafted_text(tmp_path, [*"0123" * 30, "k.A."]) == (
        Attribute("x", labels=[0, 1, 2, 3], missing="missing", other="missing"),
        ("k.A.",),
    )


def test_the_texts_among_numbers_are_not_named_in_the_draft(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["age", *("123456789" * 10), "my secret"]), encoding="utf-8")
    draft = draft_domain(Data(path))
    assert draft.domain.draft == f'{WARNING} There are texts among the numbers of age: see where "other" puts them.'
    assert "secret" not in draft.domain.to_json()
    assert validate(Data(path), draft.domain).fits


def test_what_is_text_for_one_in_ten_is_text(tmp_path):
    texts = [*"123" * 30, *["x"] * 10]
    assert drafted_text(tmp_path, texts) == (Attribute("x", labels=["1", "2", "3", "x"]), ())


def test_codes_with_a_zero_before_are_texts_however_few(tmp_path):
    assert drafted_text(tmp_path, [*["10117", "80331"] * 40, "01067"]) == (
        Attribute("x", labels=["01067", "10117", "80331"]),
        (),
    )


COMMA = "they look like numbers with a decimal comma; give decimal=',' (--decimal ,)"
THOUSANDS = (
    "they look like numbers with marks between thousands; write them without, and if a comma separates the "
    "fraction, give decimal=',' (--decimal ,)"
)
DATES = "dates; derive years or months from them"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (lambda k: f"{k},5", COMMA),
        (lambda k: f"{k},5" if k % 2 else str(k), COMMA),
        (lambda k: f"{k},125" if k else "0,5", COMMA),
        (lambda k: f"{k % 9 + 1},{k + 100}", THOUSANDS),
        (lambda k: f"1.{k + 100},25", THOUSANDS),
        (lambda k: f"1,{k + 100},000", THOUSANDS),
        (lambda k: f"2024-{k % 12 + 1:02}-{k % 28 + 1:02}", DATES),
        (lambda k: f"{k % 28 + 1}.{k % 12 + 1}.1999", DATES),
        (lambda k: f"{k % 12 + 1}/{k % 28 + 1}/99", DATES),
        (lambda k: f"2024-{k % 12 + 1:02}-{k % 28 + 1:02} 12:30:00", DATES),
    ],
)
def test_numbers_and_dates_that_are_written_otherwise(tmp_path, text, reason):
    assert drafted_text(tmp_path, [text(k // 2) for k in range(200)]) == (reason, ())


def test_decimal_commas_are_read_where_they_are_said_to_be(tmp_path):
    found, _ = drafted_text(tmp_path, [f"{k // 2},5" for k in range(200)], decimal=",")
    assert found == Attribute("x", cuts=[20, 40, 60, 80])
    assert drafted_text(tmp_path, ["0,5", "1", "2,0"] * 5, decimal=",")[0] == Attribute("x", labels=[0.5, 1, 2])
    assert drafted_text(tmp_path, [f"1.{k // 2 + 100},5" for k in range(200)], decimal=",")[0] == THOUSANDS
    # What has a point is no number there, not even one that a comma would have been.
    assert drafted_text(tmp_path, ["1.5", "2.5"] * 5, decimal=",")[0] == Attribute("x", labels=["1.5", "2.5"])


def test_few_dates_of_a_file_become_labels(tmp_path):
    assert drafted_text(tmp_path, ["31.12.2024", "1.1.2025"] * 3)[0] == Attribute(
        "x", labels=["1.1.2025", "31.12.2024"]
    )


def test_a_privacy_id_that_is_not_there_is_refused(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("person,sex\n1,F\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"^the table has no column 'persn'; did you mean 'person'\?$"):
        draft_domain(Data(path, privacy_id="persn"))
    with pytest.raises(
        DataError, match=r"'x'; name the column that identifies the person of each row by privacy_id=… \(--privacy"
    ):
        draft_domain(Data(path, privacy_id="x"), ["sex"])


def test_the_privacy_id_is_left_out():
    draft = draft_domain(Data(pa.table({"id": [1, 1, 2], "sex": ["F", "F", "M"]}), privacy_id="id"))
    assert draft.domain == Domain.fromdict({"sex": ["F", "M"]})
    assert draft.left_out == {"id": "the privacy id"}


def test_the_draft_says_what_it_is_and_what_it_leaves_out():
    draft = draft_domain(Data(pa.table({"empty": pa.nulls(2), "sex": ["F", "M"]})))
    assert draft.domain.unreviewed
    assert draft.domain.draft == f"{WARNING} Left out: empty."
    assert draft_domain(Data(pa.table({"sex": ["F", "M"]}))).domain.draft == WARNING


def test_columns_may_be_chosen():
    table = pa.table({"age": [1, 2], "sex": ["F", "M"]})
    assert draft_domain(Data(table), ["sex"]).domain.attributes == ("sex",)
    with pytest.raises(DataError, match=r"^the table has no column 'sax'; did you mean 'sex'\?$"):
        draft_domain(Data(table), ["sax"])


def test_a_table_without_columns_is_refused():
    with pytest.raises(DataError, match="the table has no columns; there is nothing to draft"):
        draft_domain(Data(pa.table({"x": [1]})), [])


def test_a_file_without_types_is_read(tmp_path):
    path = tmp_path / "people.csv"
    lines = [f"{place % 3},{place % 7 + 0.5},0{place % 2},{place % 2 == 0},{place % 4 or ''}" for place in range(60)]
    path.write_text("\n".join(["whole,real,code,truth,gaps", *lines]), encoding="utf-8")
    data = Data(str(path))
    domain = draft_domain(data).domain
    assert domain == Domain(
        [
            Attribute("whole", labels=[0, 1, 2]),
            Attribute("real", labels=[0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5]),
            Attribute("code", labels=["00", "01"]),
            Attribute("truth", labels=[False, True]),
            Attribute("gaps", labels=[1, 2, 3], missing="missing"),
        ]
    )
    assert validate(data, domain).fits


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b", None]).dictionary_encode(),
        pa.array(["a", "b", None], pa.string_view()),
        pa.array(["a", "b", None], pa.large_string()),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array(["a", "b", None])),
    ],
    ids=lambda column: str(column.type),
)
def test_texts_of_every_type(column):
    profile = Profile(untyped=False)
    profile.add(column)
    assert (profile.kind, profile.distinct, profile.missing) == ("texts", {"a", "b"}, True)


def test_the_sample_stays_small_and_covers_all_rows():
    profile = Profile(untyped=False)
    for begin in range(0, 10**6, 10**5):
        profile.add(pa.array(np.arange(begin, begin + 10**5, dtype=np.float64)))
    sample = profile.sample()
    assert 2**14 < sample.size <= 2**16
    # Every n-th of evenly spaced numbers: quantiles are off by a few steps at most.
    assert abs(np.quantile(sample, 0.5) - 5e5) < 2e4


def test_a_draft_is_not_shown_by_its_repr():
    assert "secret" not in repr(draft_domain(Data(pa.table({"x": ["secret"]}))))


def test_a_number_beyond_all_doubles_is_no_label(tmp_path):
    """It is whole, and has 401 digits; the other numbers of its column are cut."""
    (tmp_path / "far.csv").write_text("x\n" + "1e400\n2\n" * 40)
    attribute = draft_domain(Data(tmp_path / "far.csv")).domain["x"]
    assert attribute.labels is None
    assert attribute.cuts is not None
