"""Conditions in words: what they mean, against a twin that asks every value by itself, and what cannot be read."""

import contextlib
import operator
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from margrave.domain import Attribute, Domain
from margrave.errors import DomainError, ReleaseError
from margrave.release.condition import both, read_condition

DOMAIN = Domain(
    [
        Attribute("age", cuts=(17, 34, 64.5), missing="unknown"),
        Attribute("sex", labels=("F", "M", 'it\'s "x"')),
        Attribute("persons", labels=(1, 2, 3.5, 4)),
        Attribute("region", size=5),
        Attribute("owner", labels=(True, False)),
        Attribute("household", labels=(1, 2), other="3 or more"),
        Attribute("grade", labels=(1, 2, "none"), missing="none"),
        Attribute("mixed", labels=(1, "two")),
        Attribute("income>50K", labels=("yes", "no")),
        Attribute("and", size=2),
        Attribute("hours-per.week", size=3),
        Attribute("größe", size=2),
    ]
)


def refused(text):
    return pytest.raises((DomainError, ReleaseError), match=re.escape(text))


def chosen(text):
    """The categories of each attribute that a condition means."""
    masks = read_condition(DOMAIN, text)
    return {
        name: [category for category, kept in zip(DOMAIN[name].categories, mask, strict=True) if kept]
        for name, mask in masks.items()
    }


MEANINGS = {
    "": {},
    "  \n ": {},
    "sex = 'F'": {"sex": ["F"]},
    'sex == "F"': {"sex": ["F"]},
    "sex = 'it''s \"x\"'": {"sex": ['it\'s "x"']},
    'sex = "it\'s ""x"""': {"sex": ['it\'s "x"']},
    "sex != 'F'": {"sex": ["M", 'it\'s "x"']},
    "sex <> 'F' AND sex ≠ 'M'": {"sex": ['it\'s "x"']},
    "age > 17": {"age": ["(17, 34]", "(34, 64.5]", "> 64.5"]},
    "age>17 and age<=64.5": {"age": ["(17, 34]", "(34, 64.5]"]},
    "age ≤ 17.0": {"age": ["≤ 17"]},
    "not age > 17": {"age": ["≤ 17", "unknown"]},
    "age = 'unknown' or age > 64.5": {"age": ["> 64.5", "unknown"]},
    "age in ('≤ 17', \"(17, 34]\")": {"age": ["≤ 17", "(17, 34]"]},
    "persons >= 2": {"persons": ["2", "3.5", "4"]},
    "persons > 2": {"persons": ["3.5", "4"]},
    "persons < 3.5": {"persons": ["1", "2"]},
    "persons = 2.0": {"persons": ["2"]},
    "persons = '3.5'": {"persons": ["3.5"]},
    "persons between 2 and 3.6": {"persons": ["2", "3.5"]},
    "persons not between 2 and 3.6": {"persons": ["1", "4"]},
    "persons in (1, 4)": {"persons": ["1", "4"]},
    "persons NOT IN (1, 4)": {"persons": ["2", "3.5"]},
    "persons > -1e3 and persons < +.4e1": {"persons": ["1", "2", "3.5"]},
    "region >= 3": {"region": ["3", "4"]},
    "region = 3.0": {"region": ["3"]},
    "region = '3'": {"region": ["3"]},
    "owner = true": {"owner": ["True"]},
    "owner in (TRUE, False)": {"owner": ["True", "False"]},
    "household in (2, '3 or more')": {"household": ["2", "3 or more"]},
    "grade >= 2": {"grade": ["2"]},
    "mixed = 1 or mixed = 'two'": {"mixed": ["1", "two"]},
    "`income>50K` = 'yes' and `and` = 1": {"income>50K": ["yes"], "and": ["1"]},
    "hours-per.week > 0 and größe = 0": {"hours-per.week": ["1", "2"], "größe": ["0"]},
    "((sex = 'F')) and (age > 64.5 or (age <= 17))": {"sex": ["F"], "age": ["≤ 17", "> 64.5"]},
    "sex = 'F' or sex = 'M' and sex = 'F'": {"sex": ["F"]},
    "(sex = 'F' or sex = 'M') and sex = 'M'": {"sex": ["M"]},
    "not not sex = 'F'": {"sex": ["F"]},
    "age > 64.5 and age <= 17": {"age": []},
}


@pytest.mark.parametrize(("text", "meaning"), MEANINGS.items())
def test_conditions_mean_what_they_say(text, meaning):
    assert chosen(text) == meaning


REFUSALS = {
    "age >= 65": "age >= 65 would split a bin; write > or <= and one of its edges, each of "
    "which lies in the bin below it (nearest: 64.5)",
    "age < 34": "age < 34 would split a bin; write > or <= and one of its edges, each of "
    "which lies in the bin below it (nearest: 34)",
    "age > 20": "(nearest: 17 and 34)",
    "age <= 3": "(nearest: 17)",
    "age between 17 and 34": "age >= 17 would split a bin",
    "age = 30": "no value 30 of attribute 'age'; name a bin in quotes, or a range by > or <= and an edge (it has "
    "'≤ 17', '(17, 34]', '(34, 64.5]', '> 64.5', 'unknown')",
    "age > '17'": "age > '17' does not compare with a number; write one, without quotes",
    "age > true": "age > True does not compare with a number; write one, without quotes",
    "sex = 'f'": "no value 'f' of attribute 'sex' (it has 'F', 'M', 'it\\'s \"x\"')",
    "household = '3 or mor'": "no value '3 or mor' of attribute 'household'; did you mean '3 or more'?",
    "sex > 1": "sex > 1 has no meaning: its labels are not all numbers; list the categories you mean with in (…)",
    "mixed > 1": "mixed > 1 has no meaning: its labels are not all numbers",
    "owner > 0": "owner > 0 has no meaning: its labels are not all numbers",
    "household >= 2": "household >= 2 is not clear: category '3 or more' counts values outside the declared "
    "ones, which may lie on either side; list the categories you mean, as in household in (…)",
    "owner = 1": "no value 1 of attribute 'owner' (it has 'True', 'False')",
    "persons = true": "no value True of attribute 'persons'",
    "mixed = 2": "no value 2 of attribute 'mixed' (it has '1', 'two')",
    "region = 5": "no value 5 of attribute 'region' (it has '0', '1', '2', '3', '4')",
    "region = 2.5": "no value 2.5 of attribute 'region'",
    "sex = 'F' or age > 17": "'or' joins conditions on sex and age; it may join conditions on one attribute only, so "
    "group by these attributes and add up the cells",
    "not (sex = 'F' and age > 17)": "'not' negates a condition on sex and age; it may negate conditions on one "
    "attribute only, so count all and subtract those who meet the condition",
    "sex = F": "the condition cannot be read at character 7, before 'F'; a number, or a label in quotes must stand "
    "there, as in age > 64 and sex = 'F'",
    "sex = ": "the condition cannot be read at its end; a number, or a label in quotes must stand there",
    "sex = 'F": 'before "\'F"; a name, a sign, a number, or a label in closed quotes must stand there',
    "sex $ 'F'": "at character 5, before \"$ 'F'\"; a name, a sign, a number, or a label in closed quotes",
    "sex 'F'": "a comparison (= != < <= > >= in between) must stand there",
    "sex not = 'F'": "'in' or 'between' must stand there",
    "sex = 'F' age > 17": "at character 11, before 'age > 17'; 'and', 'or' or the end of the condition must",
    "(sex = 'F'": "at its end; a closing parenthesis must stand there",
    "sex in 'F'": "a list of values in parentheses must stand there",
    "sex in ()": "a number, or a label in quotes must stand there",
    "sex in ('F' 'M')": "a comma or a closing parenthesis must stand there",
    "persons between 1, 2": "'and', as in between 20 and 29 must stand there",
    "17 < age": "at character 1, before '17 < age'; the name of an attribute must stand there",
    "and = 1": "the name of an attribute must stand there",
    "sex = 'F' and": "at its end; the name of an attribute must stand there",
    "persons = " + "9" * 301: "a number of at most 300 characters must stand there",
    "(" * 51 + "sex = 'F'" + ")" * 51: "the condition is nested more than 50 deep; write it with fewer parentheses",
    "not " * 51 + "sex = 'F'": "the condition is nested more than 50 deep; write it with fewer parentheses",
}


@pytest.mark.parametrize(("text", "message"), REFUSALS.items(), ids=[text[:30] for text in REFUSALS])
def test_what_cannot_be_read_or_answered_is_refused(text, message):
    with refused(message):
        read_condition(DOMAIN, text)


def test_an_attribute_that_is_not_there_is_the_domains_to_refuse():
    with pytest.raises(DomainError, match=re.escape("no attribute 'agee' in the domain; did you mean 'age'?")):
        read_condition(DOMAIN, "agee > 3")


def test_a_number_that_is_a_text_label_is_sent_to_its_quotes_and_long_lists_are_cut():
    domain = Domain([Attribute("code", labels=[str(number) for number in range(20)])])
    with refused("no value 3 of attribute 'code'; write it in quotes (it has '0', '1', "):
        read_condition(domain, "code = 3")
    with refused("'11', …)"):
        read_condition(domain, "code = 3")


def test_a_condition_may_be_long_and_nested_as_far_as_allowed():
    assert chosen("(" * 50 + "sex = 'F'" + ")" * 50) == {"sex": ["F"]}
    assert chosen(" or ".join(["sex = 'F'"] * 2_000)) == {"sex": ["F"]}


def test_both_conditions_meet_on_shared_attributes():
    one, other = (
        read_condition(DOMAIN, "persons > 1 and sex = 'F'"),
        read_condition(DOMAIN, "persons < 4 and region = 1"),
    )
    joined = both(one, other)
    assert list(joined) == ["persons", "sex", "region"]
    assert joined["persons"].tolist() == [False, True, True, False]


# A twin of the language for one attribute with the values 0 … 4: a text, and the set of values that it means.
SIGNS = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
VALUES = range(5)


@st.composite
def comparisons(draw):
    kind = draw(st.sampled_from([*SIGNS, "in", "not in", "between", "not between"]))
    one, other = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    if kind in SIGNS:
        return f"region {kind} {one}", {v for v in VALUES if getattr(operator, SIGNS[kind])(v, one)}
    listed = kind.endswith("in")
    inside = {one, other} if listed else {v for v in VALUES if one <= v <= other}
    text = f"region {kind} ({one}, {other})" if listed else f"region {kind} {one} and {other}"
    return text, set(VALUES) - inside if kind.startswith("not") else inside


def joined(parts):
    def negated(part):
        return f"not ({part[0]})", set(VALUES) - part[1]

    def either(pair):
        return f"({pair[0][0]}) or {pair[1][0]}", pair[0][1] | pair[1][1]

    def each(pair):
        return f"({pair[0][0]}) and ({pair[1][0]})", pair[0][1] & pair[1][1]

    pairs = st.tuples(parts, parts)
    return parts.map(negated) | pairs.map(either) | pairs.map(each)


@given(st.recursive(comparisons(), joined, max_leaves=6))
def test_conditions_agree_with_a_twin_that_asks_every_value(condition):
    text, values = condition
    assert set(np.flatnonzero(read_condition(DOMAIN, text)["region"]).tolist()) == values


@given(st.text(alphabet="agesxFM'\"`()=<>!,.-0123456789 \nandortinbe≤é", max_size=40) | st.text(max_size=20))
@example("age > 1e999")
@example("persons > 1e999")
@example("region = 1e999")
@example("persons < -1e999")
@example("```` = 1")
@example("\x00")
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ReleaseError, DomainError):
        assert set(read_condition(DOMAIN, text)) <= set(DOMAIN.attributes)
