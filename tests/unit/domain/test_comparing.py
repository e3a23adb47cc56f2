"""Ranges over bins of whole numbers: asked for by the whole numbers in them."""

import math
import re

import pytest

from margrave.domain import Attribute
from margrave.errors import DomainError

AGE = Attribute("age", cuts=(17, 64), whole=True)


@pytest.mark.parametrize(
    ("relation", "value", "bins"),
    [
        (">=", 65, [False, False, True]),
        (">", 64, [False, False, True]),
        ("<", 65, [True, True, False]),
        ("<=", 64, [True, True, False]),
        (">=", 18.0, [False, True, True]),
        ("<", 18, [True, False, False]),
    ],
)
def test_both_ways_to_say_a_range_of_whole_numbers(relation, value, bins):
    assert AGE.compare(relation, value).tolist() == bins


@pytest.mark.parametrize(
    ("relation", "value", "nearest"),
    [
        (">=", 64, "18 and 65"),
        ("<", 64, "18 and 65"),
        (">", 65, "65"),
        (">=", 64.5, "65"),
        ("<=", 17.5, "18 and 65"),
        (">=", math.inf, "65"),
        ("<", 3, "18"),
    ],
)
def test_what_would_split_a_bin_is_refused(relation, value, nearest):
    text = (
        f"age {relation} {value!r} would split a bin; write >= or < and the first whole number of a bin "
        f"(nearest: {nearest})"
    )
    with pytest.raises(DomainError, match=re.escape(text)):
        AGE.compare(relation, value)


def test_a_number_alone_names_no_bin():
    text = "no value 30 of attribute 'age'; name a bin in quotes, or a range by >= or < and the first number of a bin"
    with pytest.raises(DomainError, match=re.escape(text)):
        AGE.among([30])


def test_bins_can_be_named():
    assert AGE.among(["18–64"]).tolist() == [False, True, False]
