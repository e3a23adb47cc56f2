"""Categories for missing and other values, rows that are dropped, and drafts that wait for a person."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from margrave.domain import Attribute, Domain
from margrave.errors import DomainError


def refused(text):
    return pytest.raises(DomainError, match=re.escape(text))


def codes(attribute):
    return attribute.declared, attribute.size, attribute.other_code, attribute.missing_code


def test_without_policies_there_is_nothing_but_what_is_declared():
    attribute = Attribute("sex", labels=("F", "M"))
    assert codes(attribute) == (2, 2, None, None)
    assert (attribute.missing, attribute.other, attribute.outside) == (None, None, "error")


def test_other_and_missing_values_get_a_category_each_after_the_declared_ones():
    attribute = Attribute("sex", labels=("F", "M"), missing="not told", other="another")
    assert codes(attribute) == (2, 4, 2, 3)
    assert attribute.categories == ("F", "M", "another", "not told")


def test_cuts_and_sizes_get_categories_too():
    age = Attribute("age", cuts=(18, 65), missing="not told")
    assert (codes(age), age.categories) == ((3, 4, None, 3), ("≤ 18", "(18, 65]", "> 65", "not told"))
    region = Attribute("region", size=2, other="abroad")
    assert (codes(region), region.categories) == ((2, 3, 2, None), ("0", "1", "abroad"))


def test_a_declared_category_can_take_them_in():
    attribute = Attribute("sex", labels=("F", "M", "?"), missing="?", other="?")
    assert codes(attribute) == (3, 3, 2, 2)
    assert attribute.categories == ("F", "M", "?")


def test_other_and_missing_values_can_share_a_category_of_their_own():
    attribute = Attribute("sex", labels=("F", "M"), missing="?", other="?")
    assert codes(attribute) == (2, 3, 2, 2)
    assert attribute.categories == ("F", "M", "?")


def test_a_declared_category_goes_by_the_name_that_people_see():
    assert codes(Attribute("x", labels=(1, 2, -9), missing="-9")) == (3, 3, None, 2)
    assert codes(Attribute("x", labels=(1, "1"), missing="1")) == (2, 2, None, 1)
    assert codes(Attribute("x", cuts=(0,), missing="≤ 0")) == (2, 2, None, 0)
    assert codes(Attribute("x", size=100, missing="99")) == (100, 100, None, 99)


@pytest.mark.parametrize("name", ["100", "07", "+7", " 7", "٧", "7.0", "", "1" * 5000])
def test_other_texts_are_no_codes_of_a_size(name):
    assert codes(Attribute("x", size=100, missing=name)) == (100, 101, None, 100)


def test_an_attribute_too_large_to_list_has_categories_by_code():
    assert codes(Attribute("x", size=10**12, other="rest")) == (10**12, 10**12 + 1, 10**12, None)


def test_rows_may_be_dropped():
    attribute = Attribute("sex", labels=("F", "M"), outside="drop", missing="?")
    assert (attribute.outside, codes(attribute)) == ("drop", (2, 3, None, 2))


def test_policies_are_part_of_the_value():
    one, *others = [
        Attribute("x", size=3),
        Attribute("x", size=3, outside="drop"),
        Attribute("x", size=3, other="2"),
        Attribute("x", size=3, missing="2"),
        Attribute("x", size=2, missing="2"),
    ]
    for first, second in itertools.pairwise([one, *others]):
        assert first != second
    assert Attribute("x", size=3, other="2") == Attribute("x", size=3, other="2")


@pytest.mark.parametrize("outside", ["Drop", "ignore", None, True, ["drop"]])
def test_what_is_done_with_values_outside_is_one_of_two_things(outside):
    with refused(f"attribute 'x' has outside {outside!r}; write 'error' or 'drop'"):
        Attribute("x", size=3, outside=outside)


def test_a_row_cannot_be_both_dropped_and_counted():
    with refused("attribute 'x' has outside 'drop' and an other category; keep one of them"):
        Attribute("x", size=3, outside="drop", other="rest")


def test_categories_are_texts():
    with refused("the missing category of attribute 'x' must be text, got -9; write it in quotes"):
        Attribute("x", size=3, missing=-9)
    with refused("the other category of attribute 'x' must be text, got True; write it in quotes"):
        Attribute("x", size=3, other=True)


def test_a_size_is_the_number_of_declared_values():
    with refused("attribute 'x' has size 3 but 2 values; leave the size out"):
        Attribute("x", size=3, labels=("a", "b"), missing="?")


# Codebooks


def test_policies_stand_in_the_codebook():
    domain = Domain(
        [Attribute("age", cuts=(18,), missing="?", description="years"), Attribute("region", size=2, outside="drop")]
    )
    assert json.loads(domain.to_json())["attributes"] == [
        {"name": "age", "cuts": [18], "missing": "?", "description": "years"},
        {"name": "region", "size": 2, "outside": "drop"},
    ]


@given(
    st.sampled_from([{"size": 3}, {"labels": ["a", 1, False]}, {"cuts": [0.5, 2]}]),
    st.none() | st.sampled_from(["a", "1", "?", ""]),
    st.none() | st.sampled_from(["a", "False", "?", "≤ 0.5"]),
)
def test_what_is_written_is_read_back(values, missing, other):
    attribute = Attribute("x", **values, missing=missing, other=other)
    (again,) = Domain.from_json(Domain([attribute]).to_json())
    assert again == attribute
    assert codes(again) == codes(attribute)
    assert again.categories == attribute.categories
    assert len(again.categories) == again.size
    for name, code in ((missing, again.missing_code), (other, again.other_code)):
        assert name is None or again.categories[code] == name


# Drafts

MEMBERS = [Attribute("sex", labels=("F", "M"))]
DRAFT = Domain(MEMBERS, draft="read from private data; check it")


def test_a_draft_is_unreviewed_until_somebody_says_so():
    assert DRAFT.unreviewed
    assert not Domain(MEMBERS, draft="check it", reviewed=True).unreviewed
    assert not Domain(MEMBERS).unreviewed
    assert not Domain(MEMBERS, reviewed=True).unreviewed


def test_the_warning_stands_on_the_first_line_of_the_file(tmp_path):
    path = tmp_path / "domain.json"
    DRAFT.write(path)
    first, second, *_ = path.read_text(encoding="utf-8").splitlines()
    assert (first, second) == ('{"draft": "read from private data; check it",', '  "reviewed": false,')
    again = Domain.read(path)
    assert (again.draft, again.reviewed, again.unreviewed) == (DRAFT.draft, False, True)


def test_a_person_reviews_a_draft_by_one_word(tmp_path):
    path = tmp_path / "domain.json"
    path.write_text(DRAFT.to_json().replace('"reviewed": false', '"reviewed": true'), encoding="utf-8")
    assert Domain.read(path).reviewed
    assert not Domain.read(path).unreviewed


def test_no_words_about_drafts_where_there_is_none_any_more():
    """The file of a reviewed draft is published with a release, which is no place for warnings about it."""
    assert "draft" not in Domain(MEMBERS, draft="read from private data", reviewed=True).to_json()
    assert "reviewed" not in Domain(MEMBERS).to_json()


def test_domains_are_equal_whatever_the_draft_says():
    assert DRAFT == Domain(MEMBERS) == Domain(MEMBERS, draft="other words", reviewed=True)
    assert hash(DRAFT) == hash(Domain(MEMBERS))


def test_a_part_of_a_draft_is_a_draft():
    assert DRAFT.project(["sex"]).unreviewed
    assert Domain(MEMBERS, draft="check it", reviewed=True).project([]).reviewed


@pytest.mark.parametrize("reviewed", ["true", 1, None])
def test_reviewed_is_true_or_false(reviewed):
    with refused(f"reviewed is {reviewed!r}; write true or false"):
        Domain(MEMBERS, reviewed=reviewed)


def test_the_warning_is_text():
    with refused("the draft's warning of a domain must be text, got True; write it in quotes"):
        Domain(MEMBERS, draft=True)


def test_bins_of_whole_numbers_are_named_by_the_numbers_in_them():
    age = Attribute("age", cuts=(17, 64, 65), whole=True)
    assert age.categories == ("≤ 17", "18–64", "65", "≥ 66")
    assert Domain.from_json(Domain([age]).to_json())["age"] == age
    assert age != Attribute("age", cuts=(17, 64, 65))
    assert Attribute("age", cuts=(17.0,), whole=True).categories == ("≤ 17", "≥ 18")


def test_whole_is_for_cuts_at_whole_numbers():
    with refused("attribute 'age': whole is for cuts at whole numbers, and not all of these are; leave it out"):
        Attribute("age", whole=True, cuts=(0.5,))


@pytest.mark.parametrize("values", [{"labels": (1, 2)}, {"size": 3}])
@pytest.mark.parametrize("whole", [True, "yes", None])
def test_whole_is_for_no_other_kind_of_values(values, whole):
    with refused("attribute 'age' has whole, which is for cuts; leave it out"):
        Attribute("age", whole=whole, **values)


def test_whole_is_true_or_false():
    with pytest.raises(DomainError, match="attribute 'age': whole is 1; write true or false"):
        Attribute("age", cuts=(17,), whole=1)


@pytest.mark.parametrize(
    "words", ['"reviewed": false', '"draft": ""', '"draft": "", "reviewed": false', '"draft": "x", "reviewed": false']
)
def test_whoever_writes_either_key_of_a_draft_means_one(words):
    text = f'{{{words}, "margrave": "domain", "schema": 1, "attributes": [{{"name": "sex", "size": 2}}]}}'
    assert Domain.from_json(text).unreviewed
    assert Domain.from_json(Domain.from_json(text).to_json()).unreviewed
