"""Ranges over bins of whole numbers: asked for by the whole numbers in them."""

import pytest

from margrave.attribute import Attribute
from margrave.errors import QueryError
from margrave.release.matching import among, compare

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
    assert compare(AGE, relation, value).tolist() == bins


@pytest.mark.parametrize(("relation", "value"), [(">=", 64), ("<", 64), (">", 65), (">=", 64.5), ("<=", 17.5)])
def test_what_would_part_a_bin_is_refused(relation, value):
    with pytest.raises(QueryError, match="would part a bin of attribute 'age'"):
        compare(AGE, relation, value)


def test_bins_can_be_named():
    assert among(AGE, ["18–64"]).tolist() == [False, True, False]
