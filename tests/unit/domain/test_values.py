"""An attribute's values are an object: what each kind owes the rest, and how a new kind is added."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import margrave as mg
from margrave.algebra.layout import Layout
from margrave.data.source import Data, open_source
from margrave.domain import Attribute, Domain, kinds
from margrave.domain.kinds import Bins, Codes, Groups, Labels
from margrave.domain.values import Intervals, ListedNumbers, Range, Values, checked_list, checked_text
from margrave.errors import DataError, DomainError
from margrave.release.export.sdmx import write_sdmx
from margrave.release.report import report

KEPT = Path(__file__).parents[2] / "kept" / "0.1"


def refused(text, error=DomainError):
    return pytest.raises(error, match=re.escape(text))


# The kinds there are


@pytest.mark.parametrize(
    ("values", "keywords"),
    [
        (Labels(["F", "M"]), {"labels": ["F", "M"]}),
        (Labels([0, 1]), {"labels": [0, 1]}),
        (Bins([17, 64]), {"cuts": [17, 64]}),
        (Bins([17, 64], whole=True), {"cuts": [17, 64], "whole": True}),
        (Codes(17), {"size": 17}),
        (Groups({"week": ["Mon", 1], "weekend": ["Sat", 6]}), {"groups": {"week": ["Mon", 1], "weekend": ["Sat", 6]}}),
    ],
)
def test_values_are_given_as_an_object_or_by_keywords(values, keywords):
    attribute = Attribute("x", values=values, missing="?")
    assert attribute == Attribute("x", **keywords, missing="?")
    assert hash(attribute) == hash(Attribute("x", **keywords, missing="?"))
    assert attribute.values == values
    assert json.loads(json.dumps(values.entry())) == keywords
    assert repr(attribute).startswith("Attribute('x', ")
    assert eval(repr(attribute), {"Attribute": Attribute}) == attribute


def test_kinds_differ_even_where_their_categories_do_not():
    alike = [Labels(["0", "1"]), Labels([0, 1]), Labels([0.0, 1.0]), Codes(2)]
    assert [one == other for one in alike for other in alike] == [one is other for one in alike for other in alike]
    assert Bins([1, 2]) == Bins([1.0, 2.0]) != Bins([1, 2], whole=True)


def test_values_are_given_once():
    with refused("attribute 'x' has both values and labels; keep one of them"):
        Attribute("x", values=Codes(2), labels=["a", "b"])
    with refused("attribute 'x' has both values and whole; keep one of them"):
        Attribute("x", values=Bins([1]), whole=True)
    with refused("attribute 'x': expected values such as Labels(['F', 'M']), got ['F', 'M']; or give labels"):
        Attribute("x", values=["F", "M"])


def test_an_entry_of_a_codebook_is_an_attribute():
    entry = {"name": "age", "cuts": [17, 64], "whole": True, "missing": "?", "outside": "drop", "description": "years"}
    assert json.loads(json.dumps(Attribute.from_entry(entry).entry())) == entry
    with refused("the name of an attribute must be text, got 3"):
        Attribute.from_entry({"name": 3, "size": 2})
    with refused("attribute 'x' has neither size nor labels nor cuts nor groups; give one of them"):
        Attribute.from_entry({"name": "x", "size": None})


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (["a"], "the groups must be lists of values by name, got ['a']; write them as"),
        ({}, "there are no groups; give at least one"),
        ({"a": []}, "the list of labels is empty"),
        ({1: ["x"]}, "the name of a group must be text, got 1"),
        ({"a": ["x", 1], "b": [1.0]}, "the value 1.0 is in the groups 'a' and 'b'; keep it in one"),
        ({"a": ["x"], "b": ["x"]}, "the value 'x' is in the groups 'a' and 'b'; keep it in one"),
    ],
)
def test_groups_share_no_value(groups, said):
    with refused(f"attribute 'x': {said}"):
        Attribute("x", groups=groups)


def test_values_are_counted_in_their_group():
    day = Attribute("day", groups={"week": ["Mon", 5], "weekend": ["Sat", 6, True]}, other="else", missing="else")
    assert day.categories == ("week", "weekend", "else")
    assert day.values.texts == {"Mon": 0, "Sat": 1}
    assert (day.values.truths, day.values.numbers().exact(Fraction(6))) == ({True: 1}, 1)
    assert counted(Data(pd.DataFrame({"day": ["Mon", "Sat", "Mon", "Sun", None]})), Domain([day])) == [2, 1, 2]


def test_kept_codebooks_are_written_again_byte_by_byte():
    files = sorted(KEPT.rglob("domain.json"))
    assert len(files) >= 4
    for file in files:
        assert Domain.read(file).to_json().encode() == file.read_bytes()


numbers = st.integers(-4, 12) | st.integers(-8, 24).map(lambda value: value / 2)


@given(
    st.lists(numbers, min_size=1, max_size=6, unique=True).map(sorted),
    st.sampled_from(["listed", "intervals", "range"]),
    st.lists(st.fractions(-5, 13, max_denominator=4), min_size=1, max_size=20),
)
def test_comparisons_give_the_code_that_the_set_gives(declared, shape, values):
    """What an engine is asked to compare, one by one, against the codes of the set itself."""
    sets = {
        "listed": ListedNumbers({number: code % 3 for code, number in enumerate(declared)}),
        "intervals": Intervals(declared),
        "range": Range(len(declared)),
    }
    ordered, rest = sets[shape].comparisons()
    for value in values:
        met = (code for relation, number, code in ordered if holds(relation, value, number))
        first = next(met, rest)
        assert sets[shape].exact(value) == (value if first is None else first)


def holds(relation, value, number):
    if relation == "below":
        return value.denominator == 1 and 0 <= value < number
    return value == Fraction(number) if relation == "=" else value <= Fraction(number)


# A new kind: one class, and one line in the registry


@dataclass(frozen=True)
class Initials(Values):
    """Texts by their first letter: ``["A–F", "G–Z"]`` divides names into two groups."""

    keys = ("initials",)
    initials: tuple[str, ...]

    def __init__(self, initials):
        ranges = tuple(checked_text("a range of letters", one) for one in checked_list("the ranges", initials))
        if not all(re.fullmatch("[A-Z]–[A-Z]", one) for one in ranges):
            raise DomainError(f"the ranges are {ranges!r}; write ranges of capital letters, such as 'A–F'")
        object.__setattr__(self, "initials", ranges)

    @property
    def categories(self):
        return self.initials

    def entry(self):
        return {"initials": self.initials}

    @property
    def text_rule(self):
        return lambda text: next(
            (code for code, one in enumerate(self.initials) if one[0] <= text[:1].upper() <= one[2]), None
        )


@pytest.fixture
def new_kinds(monkeypatch):
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, Initials))


CODEBOOK = """{
  "margrave": "domain",
  "schema": 1,
  "description": "people",
  "attributes": [
    {"name": "surname", "initials": ["A–F", "G–Z"], "missing": "unknown", "other": "elsewhere"},
    {"name": "day", "groups": {"week": ["Mon", "Fri", 1, 5], "weekend": ["Sat", 6]}, "outside": "drop"}
  ]
}
"""
PEOPLE = {
    "surname": ["Abel", "grimm", "Fox", "Žižek", None, "Zuse", "Abel", "Ng"],
    "day": ["Mon", "Fri", "Sat", "Mon", "Sat", "Fri", "Sun", "Sat"],
}
# Rows are A–F, G–Z, elsewhere, unknown; the Sunday is dropped.
COUNTS = [[1, 1], [2, 1], [1, 0], [0, 1]]


def counted(data, domain):
    layout = Layout.of(domain.shape, [domain.positions(domain.attributes)])
    tables = dict(layout.views(open_source(data, domain, contributions=1).count(layout)))
    return tables[tuple(range(len(domain)))].tolist()


def test_a_new_kind_is_written_and_read(new_kinds, tmp_path):
    domain = Domain.from_json(CODEBOOK)
    assert domain["surname"].categories == ("A–F", "G–Z", "elsewhere", "unknown")
    assert domain.to_json() == CODEBOOK
    domain.write(tmp_path / "domain.json")
    assert Domain.read(tmp_path / "domain.json") == domain
    assert domain.fingerprint != Domain.from_json(CODEBOOK.replace("G–Z", "G–Y")).fingerprint
    assert domain["surname"] == Attribute(
        "surname", values=Initials(["A–F", "G–Z"]), missing="unknown", other="elsewhere"
    )


def test_a_new_kind_is_checked_as_the_others_are(new_kinds):
    with refused("attribute 'x': the ranges are ('a-z',); write ranges of capital letters, such as 'A–F'"):
        Attribute.from_entry({"name": "x", "initials": ["a-z"]})
    with refused("attribute 'x' has both labels and initials; keep one of them"):
        Attribute.from_entry({"name": "x", "initials": ["A–Z"], "labels": ["a"]})
    with refused("attribute 'x' has size 2 but 1 values; leave the size out"):
        Attribute.from_entry({"name": "x", "initials": ["A–Z"], "size": 2})
    with refused("unknown key 'initial'; did you mean 'initials'?"):
        Domain.from_json(CODEBOOK.replace('"initials"', '"initial"'))
    with refused("attribute 'x' has neither size nor labels nor cuts nor groups nor initials; give one of them"):
        Attribute.from_entry({"name": "x"})


def test_a_new_kind_may_be_declared_in_the_file_of_another_tool(new_kinds):
    columns = [{"name": "surname", "datatype": "string", "margrave": {"initials": ["A–Z"]}}]
    domain = Domain.from_json(json.dumps({"tableSchema": {"columns": columns}}))
    assert domain == Domain([Attribute("surname", values=Initials(["A–Z"]))])


def test_a_new_kind_is_counted_from_frames_files_and_engines(new_kinds, tmp_path):
    domain = Domain.from_json(CODEBOOK)
    frame = pd.DataFrame(PEOPLE)
    frame.to_csv(tmp_path / "people.csv", index=False)
    frame.to_parquet(tmp_path / "people.parquet")
    sources = [frame, frame.astype("category"), tmp_path / "people.csv", tmp_path / "people.parquet"]
    assert [counted(Data(source), domain) for source in sources] == [COUNTS] * len(sources)
    relation = duckdb.connect().from_df(frame)
    days = domain.project(["day"])
    assert counted(Data(relation, counting="push-down"), days) == np.sum(COUNTS, axis=0).tolist()
    numbers = duckdb.connect().sql("SELECT unnest([1, 5, 6, 7, 1]) AS day")
    assert (
        counted(Data(numbers, counting="push-down"), days) == counted(Data(numbers, counting="fetch"), days) == [3, 1]
    )
    with refused("attribute 'surname' declares texts by a rule that engines do not know; count by", DataError):
        counted(Data(relation, counting="push-down"), domain)


def test_a_rule_sees_what_is_not_declared_and_nothing_is_read_as_a_number(new_kinds, tmp_path):
    (tmp_path / "people.csv").write_text("surname\nabel\n\n17\ntrue\n", encoding="utf-8")
    names = Domain([Attribute("surname", values=Initials(["A–Z"]), missing="?", other="!")])
    assert counted(Data(tmp_path / "people.csv"), names) == [2, 1, 1]
    with refused("column 'surname' holds numbers and its attribute declares texts", DataError):
        counted(Data(pd.DataFrame({"surname": [1, 2]})), names)


@pytest.mark.parametrize("code", [2, -1, -5])
def test_a_kind_that_gives_codes_it_does_not_have_is_refused(code):
    class Wrong(Initials):
        text_rule = property(lambda self: lambda text: code if text == "Zuse" else 0)

    domain = Domain([Attribute("surname", values=Wrong(["A–F", "G–Z"]), missing="unknown", other="elsewhere")])
    text = "the values of attribute 'surname' give codes that the attribute does not have; correct the class Wrong"
    with refused(text, DataError):
        counted(Data(pd.DataFrame(PEOPLE)), domain)


@pytest.mark.parametrize("error", [ValueError, DomainError])
def test_a_rule_that_fails_tells_nothing_of_the_table(error):
    class Failing(Initials):
        def text_rule(self, text):
            raise error(f"cannot place {text}")

    domain = Domain([Attribute("surname", values=Failing(["A–Z"]))])
    with refused(f"the rule that codes texts failed ({error.__name__})", DataError) as caught:
        counted(Data(pd.DataFrame({"surname": ["Abel"]})), domain)
    assert "Abel" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_new_kind_is_released_asked_and_reported(new_kinds, tmp_path):
    domain = Domain.from_json(CODEBOOK)
    workload = mg.Workload(domain, [("surname", "day")])
    plan = mg.plan(workload, mg.Budget.zcdp(rho=10**6), contributions=1)
    release = mg.reconstruct(mg.measure(plan, pd.DataFrame(PEOPLE)), workload, method="mle")
    release.save(tmp_path / "folder", csv=True)
    release = mg.load(tmp_path / "folder")
    assert release.workload.domain == domain
    # The noise has a standard error far below one half, and counts are whole numbers.
    assert release.table("surname", "day").values.round().tolist() == COUNTS
    asked = release.query("surname in ('A–F', 'G–Z') and day = 'weekend'")
    assert asked.values.round() == 2
    assert "A–F" in report(release)
    assert "A–F" in (tmp_path / "folder" / "tables" / "surname.day.csv").read_text(encoding="utf-8")
    write_sdmx(release, tmp_path / "sdmx.csv", agency="A", dataflow="D", labels="both")
    assert "A–F" in (tmp_path / "sdmx.csv").read_text(encoding="utf-8")
    with refused("surname > 3 is not clear: category 'elsewhere' counts values outside", DomainError):
        release.query("surname > 3")
    with refused("day > 3 has no meaning: its categories are not all numbers; list the categories", DomainError):
        release.query("day > 3")
    with refused("no value 6 of attribute 'day'; name a group in quotes (it has 'week', 'weekend')", DomainError):
        release.query("day = 6")


# Making up: a value of each category


@pytest.mark.parametrize(
    "values",
    [
        Codes(4),
        Labels([3, 1, 2]),
        Labels([0.5, 2]),
        Labels([True, False]),
        Bins((17, 34, 64), whole=True),
        Bins((0, 5), whole=True),
        Bins((-3, 0), whole=True),
        Bins((7,), whole=True),
        Bins((0.0, 0.1, 2.5)),
        Bins((-1.5, 1e-300)),
        Bins((1e300, 1.5e300)),
        Bins((2.5,)),
    ],
)
@pytest.mark.parametrize("within", [0.0, 0.37, np.nextafter(1, 0)])
def test_a_made_up_value_is_coded_back_to_its_category(values, within):
    codes = np.arange(values.size)
    found = values.made_up(codes, np.full(values.size, within))
    if found.dtype == bool:
        assert [values.truths[bool(value)] for value in found] == codes.tolist()
    elif found.dtype.kind == "i":
        assert values.numbers().whole(found).tolist() == codes.tolist()
    else:
        assert values.numbers().real(found).tolist() == codes.tolist()


@pytest.mark.parametrize("values", [Labels(["F", "M"]), Labels([1, "1"]), Labels([True, 2]), Labels([10**30, 1])])
def test_values_without_a_column_of_numbers_go_by_their_names(values):
    assert values.made_up(np.zeros(3, dtype=np.int64), np.zeros(3)) is None


def test_outer_bins_are_as_wide_as_their_neighbours_and_not_below_zero_where_no_cut_is():
    ends = [0.0, np.nextafter(1, 0)]

    def spread(values, code):
        return values.made_up(np.full(2, code), np.array(ends)).tolist()

    ages = Bins((17, 34, 64), whole=True)
    assert [spread(ages, code) for code in range(4)] == [[1, 17], [18, 34], [35, 64], [65, 94]]
    assert spread(Bins((4, 34), whole=True), 0) == [0, 4]
    assert spread(Bins((-4, 6), whole=True), 0) == [-13, -4]
    assert spread(Bins((0.0, 10.0)), 0) == [0.0, 0.0]
    low, high = sorted(spread(Bins((2.0, 10.0)), 0))
    assert 0 < low < 1e-12
    assert high == 2
