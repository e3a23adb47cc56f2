"""How a table fits a domain: counted by hand, for every policy."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from margrave.data.source import Data
from margrave.data.validation import Persons, validate
from margrave.domain import Attribute, Domain
from margrave.errors import DataError

TABLE = pa.table({"sex": ["F", "M", "X", None, "X"], "age": [17, 18, 70, None, 3], "region": [0, 1, 9, 9, 1]})


def fitted(*attributes, table=TABLE):
    return validate(Data(table), Domain(attributes))


def summary(found):
    return [(one.outside, one.missing, one.empty, one.problem) for one in found.attributes]


def test_a_table_that_fits():
    found = fitted(
        Attribute("sex", labels=["F", "M", "X", "D"], missing="?"), Attribute("age", cuts=[17, 65, 80], missing="?")
    )
    assert found.fits
    assert found.dropped == 0
    assert summary(found) == [(0, 1, ("D",), ""), (0, 1, ("> 80",), "")]


def test_values_outside_and_missing_are_counted_and_shown():
    (sex,) = fitted(Attribute("sex", labels=["F", "D"])).attributes
    assert (sex.outside, sex.missing, sex.examples, sex.empty) == (3, 1, ("'M'", "'X'"), ("D",))
    assert sex.problem == (
        'values that are not declared: declare them, an "other" category, or "outside": "drop"; '
        'missing values: declare a category for them, as in "missing": "unknown"'
    )


def test_policies_make_it_fit():
    found = fitted(
        Attribute("sex", labels=["F"], other="other", missing="D"), Attribute("region", size=2, outside="drop")
    )
    assert found.fits
    assert found.dropped == 2
    assert summary(found) == [(3, 1, (), ""), (2, 0, (), "")]


def test_a_row_that_two_attributes_drop_is_dropped_once():
    sex = Attribute("sex", labels=["F", "M"], outside="drop", missing="?")
    found = fitted(sex, Attribute("region", size=2, outside="drop"))
    assert found.dropped == 3


def test_categories_that_only_other_values_fill_are_not_empty():
    found = fitted(Attribute("sex", labels=["F", "M", "X"], missing="D", other="E"))
    assert summary(found) == [(0, 1, ("E",), "")]


def test_a_missing_column_and_a_wrong_kind_are_problems_of_their_attribute():
    found = fitted(Attribute("sexx", labels=["F"]), Attribute("sex", size=2), Attribute("region", size=10))
    assert not found.fits
    assert [one.present for one in found.attributes] == [False, True, True]
    assert [one.problem for one in found.attributes] == [
        "the table has no such column; did you mean 'sex'?",
        "column 'sex' holds texts and its attribute declares numbers; declare what the column holds, or convert the "
        "column",
        "",
    ]


def test_a_table_without_any_of_the_columns():
    found = fitted(Attribute("x", size=2))
    assert (found.fits, found.dropped) == (False, 0)


def test_an_empty_table_fits_and_all_is_empty():
    found = fitted(Attribute("sex", labels=["F"]), table=TABLE[:0])
    assert (found.fits, summary(found)) == (True, [(0, 0, ("F",), "")])


def test_examples_are_few_and_short():
    table = pa.table({"x": [f"{place} " + "long" * 100 for place in range(50)]})
    (one,) = fitted(Attribute("x", labels=["a"]), table=table).attributes
    assert len(one.examples) == 5
    assert all(len(example) <= 41 for example in one.examples)


def test_a_file_without_types(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,sex\n17,F\n,M\nold,\n", encoding="utf-8")
    found = validate(Data(str(path)), Domain([Attribute("age", cuts=[20]), Attribute("sex", labels=["F", "M"])]))
    assert [(one.outside, one.missing, one.examples) for one in found.attributes] == [(1, 1, ("'old'",)), (0, 1, ())]


def test_numbers_with_a_decimal_comma(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text('age,height\n1,"1,5"\nold,"1,75"\n', encoding="utf-8")
    domain = Domain([Attribute("age", cuts=[20]), Attribute("height", cuts=[1.6])])
    found = [one.hint for one in validate(Data(path), domain).attributes]
    assert found[0] == ""
    assert found[1].endswith("some look like numbers with a decimal comma: give decimal=',' (--decimal ,)")
    assert [one.outside for one in validate(Data(path, decimal=","), domain).attributes] == [1, 0]


def test_a_value_that_looks_like_a_label_is_told_apart():
    table = pa.table({"x": ["De\u0301pt", "other"]})
    (one,) = fitted(Attribute("x", labels=["D\u00e9pt"]), table=table).attributes
    assert one.examples == ("'De\u0301pt' (a declared one in another Unicode form)", "'other'")


def persons(ids, table=None, **options):
    source = pa.table({"id": ids}) if table is None else table
    return validate(Data(source, privacy_id="id"), Domain([Attribute("x", size=2)], **options)).persons


IDS = ["a"] * 12 + ["b"] * 4 + ["c", "d", "e", "f"]


@pytest.mark.parametrize(
    "ids",
    [
        IDS,
        pa.array(IDS).dictionary_encode(),
        pa.array([ord(one) for one in IDS], pa.int16()),
        pa.array([ord(one) / 2 for one in IDS]),
    ],
    ids=["texts", "categories", "numbers", "floats"],
)
def test_the_rows_of_persons_are_counted(ids):
    found = persons(ids)
    assert (found.rows, found.most, found.without_id, found.problem) == (20, 12, 0, "")
    assert found.lost == {1: 14 / 20, 2: 12 / 20, 3: 10 / 20, 5: 7 / 20, 10: 2 / 20}


def test_rows_of_persons_are_counted_over_many_batches(monkeypatch):
    monkeypatch.setattr("margrave.data.validation._MOST_COUNTS", 10)
    counter = Persons("id", untyped=True)
    for _ in range(5):
        counter.add(pa.array([*IDS, "", None]))
    found = counter.fit()
    assert (found.rows, found.most, found.without_id) == (110, 60, 10)
    assert found.lost[10] == (50 + 10) / 100


def test_rows_without_an_id_do_not_fit():
    found = validate(
        Data(pa.table({"id": ["a", None], "x": [0, 1]}), privacy_id="id"), Domain([Attribute("x", size=2)])
    )
    assert (found.persons.rows, found.persons.without_id) == (2, 1)
    assert found.persons.problem == "rows without an id: give every row one, or leave such rows out by a query"
    assert not found.fits
    assert persons([1.0, float("nan")]).without_id == 1


def test_rows_that_are_dropped_count_for_no_person():
    table = pa.table({"id": ["a"] * 5 + ["b"], "x": [0, 9, 9, 9, 1, 1]})
    found = validate(Data(table, privacy_id="id"), Domain([Attribute("x", size=2, outside="drop")]))
    assert (found.dropped, found.persons.rows, found.persons.most) == (3, 3, 2)
    assert found.persons.lost[1] == 1 / 3


def test_a_privacy_id_that_is_an_attribute_or_of_an_empty_table():
    table = pa.table({"x": [0, 1, 1]})
    found = validate(Data(table, privacy_id="x"), Domain([Attribute("x", size=2)]))
    assert (found.persons.rows, found.persons.most, found.attributes[0].empty) == (3, 2, ())
    found = validate(Data(table[:0], privacy_id="x"), Domain([Attribute("x", size=2)])).persons
    assert (found.rows, found.most, found.lost[1]) == (0, 0, 0)


def test_a_privacy_id_that_is_not_there():
    with pytest.raises(DataError, match=r"^the table has no column 'sexx'; did you mean 'sex'\?$"):
        validate(Data(TABLE, privacy_id="sexx"), Domain([Attribute("sex", labels=["F"])]))


def test_a_fit_is_not_shown_by_its_repr():
    found = fitted(Attribute("sex", labels=["F"]))
    assert "'X'" not in repr(found)
    assert "'X'" not in repr(found.attributes)
    # Its repr is that of any object: its class and an address, whose digits mean nothing.
    assert re.fullmatch(r"<margrave\.data\.[\w.]+ object at 0x[0-9a-f]+>", repr(persons(IDS)))


def test_a_file_that_is_not_there():
    with pytest.raises(DataError, match="there is no file"):
        validate(Data("nowhere.csv"), Domain([Attribute("x", size=2)]))


def test_ids_that_cannot_tell_persons_apart_are_refused():
    ids = pa.array([1, 2], pa.duration("ns"))
    with pytest.raises(DataError, match=r"^column 'id' has ids of type duration\[ns\], so that one person could pass"):
        persons(ids, pa.table({"id": ids, "x": [0, 1]}))
