"""The domain: attributes, names, and the codebook file."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from margrave.domain import Attribute, Domain
from margrave.errors import DomainError

SURVEY = Domain(
    [
        Attribute("age", cuts=(18, 65), description="age in years"),
        Attribute("sex", labels=("F", "M")),
        Attribute("region", size=17),
    ],
    description="a survey",
)
HUNDRED = Domain.fromdict({f"a{place}": 2 + place for place in range(100)})

finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(max_size=6)
scalars = words | st.integers() | finite | st.booleans()
names = st.text(min_size=1, max_size=6)


@st.composite
def attributes(draw, name):
    kind = draw(st.sampled_from(["size", "labels", "cuts"]))
    if kind == "size":
        values = draw(st.integers(1, 10**12))
    elif kind == "labels":
        # ``unique`` goes by ==, as the domain does: 1 and True never stand together.
        values = draw(st.lists(scalars, min_size=1, max_size=5, unique=True))
    else:
        cut = st.integers(-(2**53), 2**53) | finite
        values = sorted(draw(st.lists(cut, min_size=1, max_size=5, unique=True)))
    return Attribute(name, **{kind: values}, description=draw(words))


@st.composite
def domains(draw):
    chosen = draw(st.lists(names, max_size=5, unique=True))
    return Domain([draw(attributes(name)) for name in chosen], draw(words))


def refused(text):
    return pytest.raises(DomainError, match=re.escape(text))


# Attributes


def test_an_attribute_may_have_a_size_alone():
    attribute = Attribute("region", size=3)
    assert (attribute.name, attribute.size, attribute.labels, attribute.cuts) == ("region", 3, None, None)
    assert attribute.categories == ("0", "1", "2")


def test_the_size_follows_from_the_labels():
    attribute = Attribute("sex", labels=["F", "M"])
    assert (attribute.size, attribute.labels, attribute.categories) == (2, ("F", "M"), ("F", "M"))


def test_cuts_make_one_bin_more_with_open_ends():
    attribute = Attribute("age", cuts=[18, 65])
    assert (attribute.size, attribute.cuts) == (3, (18, 65))
    assert attribute.categories == ("≤ 18", "(18, 65]", "> 65")


def test_one_cut_makes_two_bins():
    assert Attribute("age", cuts=[18.0]).categories == ("≤ 18", "> 18")


def test_categories_show_fractions_in_full():
    assert Attribute("share", cuts=[-0.0, 0.1, 1e300]).categories == (
        "≤ 0",
        "(0, 0.1]",
        "(0.1, 1e+300]",
        "> 1e+300",
    )


def test_labels_of_all_kinds_are_shown_as_text():
    assert Attribute("x", labels=("", 2, 2.5, True, "é")).categories == ("", "2", "2.5", "True", "é")


def test_the_size_may_be_given_beside_labels_and_cuts():
    assert Attribute("sex", size=2, labels=("F", "M")) == Attribute("sex", labels=("F", "M"))
    assert Attribute("age", size=3, cuts=(18, 65)) == Attribute("age", cuts=(18, 65))


def test_numpy_numbers_become_python_numbers():
    attribute = Attribute("x", size=np.int32(3), labels=np.array([1, 2, 3]))
    assert type(attribute.size) is int
    assert [type(label) for label in attribute.labels] == [int, int, int]
    assert [type(label) for label in Attribute("x", labels=np.array([True, False])).labels] == [bool, bool]
    assert [type(label) for label in Attribute("x", labels=np.array(["a", "b"])).labels] == [str, str]
    assert [type(cut) for cut in Attribute("x", cuts=np.array([0.5, 1.5])).cuts] == [float, float]


def test_an_attribute_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Attribute("x", size=3).size = 4


def test_attributes_are_equal_by_value():
    assert Attribute("x", cuts=[1, 2]) == Attribute("x", cuts=(1.0, 2.0))
    assert hash(Attribute("x", cuts=[1, 2])) == hash(Attribute("x", cuts=(1.0, 2.0)))
    assert Attribute("x", size=2) != Attribute("x", labels=("0", "1"))
    assert Attribute("x", size=2) != Attribute("x", size=2, description="two")
    assert Attribute("x", size=2) != "x"


def test_numbers_and_truth_values_are_different_labels():
    assert Attribute("x", labels=(0, 1)) != Attribute("x", labels=(False, True))
    assert Attribute("x", labels=(0, 1)) != Attribute("x", labels=(0.0, 1.0))


@pytest.mark.parametrize("name", [None, 3, b"age"])
def test_a_name_must_be_text(name):
    with refused(f"the name of an attribute must be text, got {name!r}; write it in quotes"):
        Attribute(name, size=2)


def test_a_name_must_not_be_empty():
    with refused("the name of an attribute is empty; give it at least one character"):
        Attribute("", size=2)


def test_half_a_character_is_refused_because_no_file_could_hold_it():
    with refused(r"the name of an attribute contains an unpaired surrogate, '\ud800'; write whole characters only"):
        Attribute("\ud800", size=2)
    with refused("attribute 'x': a label contains an unpaired surrogate"):
        Attribute("x", labels=["\udfff"])


def test_a_description_must_be_text():
    with refused("the description of attribute 'x' must be text, got 3; write it in quotes"):
        Attribute("x", size=2, description=3)
    with refused("the description of a domain must be text, got None; write it in quotes"):
        Domain([], None)


@pytest.mark.parametrize("size", [0, -1, True, np.True_, 2.0, np.float64(2), "2", math.nan])
def test_a_size_must_be_a_whole_number_of_at_least_one(size):
    with refused(f"attribute 'x': the size is {size!r}; give a whole number of at least 1"):
        Attribute("x", size=size)


def test_some_set_of_values_must_be_declared():
    with refused("attribute 'x' has neither size nor labels nor cuts nor groups; give one of them"):
        Attribute("x")


def test_labels_and_cuts_exclude_each_other():
    with refused("attribute 'x' has both labels and cuts; keep one of them"):
        Attribute("x", labels=("a", "b"), cuts=(1,))


def test_a_size_that_contradicts_the_labels_is_refused():
    with refused("attribute 'x' has size 3 but 2 values; leave the size out"):
        Attribute("x", size=3, labels=("a", "b"))


def test_an_empty_list_of_labels_is_refused():
    with refused("attribute 'x': the list of labels is empty; give at least one label"):
        Attribute("x", labels=())


@pytest.mark.parametrize("labels", ["FM", b"FM", {"F", "M"}, frozenset("F"), {"F": 1}, 3])
def test_labels_must_have_an_order(labels):
    with refused(f"attribute 'x': the labels must be a list, got {labels!r}; write them in order in [ ]"):
        Attribute("x", labels=labels)


class Sex(enum.StrEnum):
    F = "F"


@pytest.mark.parametrize("label", [None, math.nan, math.inf, (1, 2), 1j, np.datetime64("2020-01-01"), Sex.F])
def test_a_label_must_be_what_a_json_file_can_hold(label):
    with pytest.raises(
        DomainError,
        match=r"attribute 'x': the label .* cannot be written to a file; give texts, finite numbers or booleans",
    ):
        Attribute("x", labels=[label])


@pytest.mark.parametrize("pair", [("F", "F"), (1, True), (1, 1.0), (False, 0.0)])
def test_equal_labels_are_refused_even_of_different_types(pair):
    one, other = pair
    with refused(f"attribute 'x': labels {one!r} and {other!r} are equal; give each value one label"):
        Attribute("x", labels=["a", one, other])


@pytest.mark.parametrize("cut", [math.nan, math.inf, -math.inf, True, "18", None, 2**53 + 1, 10**400])
def test_a_cut_must_be_a_finite_number(cut):
    with refused(f"attribute 'x': the cut {cut!r} is not allowed; give finite numbers, whole ones within ±2⁵³"):
        Attribute("x", cuts=[cut])


@pytest.mark.parametrize("cuts", [(1, 1), (2, 1), (0, -0.0), (0.1, 0.3, 0.2)])
def test_cuts_must_increase_strictly(cuts):
    with pytest.raises(DomainError, match=r"attribute 'x': the cut .* comes after .*; sort the cuts, each once"):
        Attribute("x", cuts=cuts)


def test_an_empty_list_of_cuts_is_refused():
    with refused("attribute 'x': the list of cuts is empty; give at least one number to cut at"):
        Attribute("x", cuts=[])


@pytest.mark.parametrize("cuts", ["18", 18])
def test_cuts_must_be_a_list(cuts):
    with refused(f"attribute 'x': the cuts must be a list, got {cuts!r}"):
        Attribute("x", cuts=cuts)


# Domains


def test_a_domain_keeps_the_order_of_its_attributes():
    assert SURVEY.attributes == ("age", "sex", "region")
    assert SURVEY.shape == (3, 2, 17)
    assert len(SURVEY) == 3
    assert [attribute.name for attribute in SURVEY] == ["age", "sex", "region"]


def test_an_attribute_is_found_by_name():
    assert SURVEY["sex"] == Attribute("sex", labels=("F", "M"))
    assert "sex" in SURVEY
    assert "agee" not in SURVEY
    assert 0 not in SURVEY
    assert ["sex"] not in SURVEY


def test_a_domain_is_made_from_sizes_and_labels():
    domain = Domain.fromdict({"age": np.int64(85), "sex": ["F", "M"]})
    assert domain == Domain([Attribute("age", size=85), Attribute("sex", labels=("F", "M"))])


def test_a_text_in_place_of_labels_is_refused():
    with refused("attribute 'sex': the labels must be a list, got 'FM'"):
        Domain.fromdict({"sex": "FM"})


def test_two_attributes_of_one_name_are_refused():
    with refused("attribute 'age' is given twice; give each its own name"):
        Domain([Attribute("age", size=2), Attribute("age", size=3)])


def test_a_domain_holds_attributes_only():
    with refused("a domain holds Attribute values, got 'age'; try Domain.fromdict"):
        Domain({"age": 85})


def test_positions_are_ascending_and_distinct():
    assert SURVEY.positions(["region", "age", "region"]) == (0, 2)
    assert SURVEY.positions(()) == ()
    assert SURVEY.positions(name for name in ("sex",)) == (1,)


def test_names_come_in_the_order_of_the_positions_given():
    assert SURVEY.names([2, 0]) == ("region", "age")
    assert SURVEY.names(()) == ()


@pytest.mark.parametrize("position", [-1, 3])
def test_a_position_outside_the_domain_is_refused(position):
    with refused(f"no attribute at position {position}; they run from 0 to 2"):
        SURVEY.names([0, position])


@given(st.permutations(HUNDRED.attributes[:7]), st.integers(0, 7))
def test_the_order_of_names_does_not_matter(shuffled, count):
    chosen = shuffled[:count]
    expected = [name for name in HUNDRED.attributes if name in chosen]
    assert HUNDRED.project(chosen).attributes == tuple(expected)
    assert HUNDRED.names(HUNDRED.positions(chosen)) == tuple(expected)
    assert HUNDRED.cells(chosen) == math.prod(HUNDRED[name].size for name in chosen)


def test_a_projection_keeps_attributes_and_description_whole():
    projected = SURVEY.project({"sex", "age"})
    assert projected == Domain([SURVEY["age"], SURVEY["sex"]], description="a survey")
    assert SURVEY.project(()) == Domain([], description="a survey")


def test_the_number_of_cells_is_exact_beyond_sixty_four_bits():
    assert SURVEY.cells(()) == 1
    assert SURVEY.cells(["age", "region", "age"]) == 51
    assert HUNDRED.cells(HUNDRED.attributes) == math.factorial(101)


def test_an_unknown_name_is_refused_with_the_nearest_one():
    text = "no attribute 'agee' in the domain; did you mean 'age'? (it has age, sex, region)"
    for ask in (SURVEY.positions, SURVEY.project, SURVEY.cells):
        with refused(text):
            ask(["sex", "agee"])
    with refused(text):
        SURVEY["agee"]


def test_an_unknown_name_like_no_other_gets_no_suggestion():
    with refused("no attribute 'zip' in the domain (it has age, sex, region)"):
        SURVEY["zip"]
    with refused("no attribute 'zip' in the domain (it has none)"):
        Domain([])["zip"]


def test_only_a_dozen_names_are_listed():
    first = ", ".join(HUNDRED.attributes[:12])
    with refused(f"(it has {first}, …)"):
        HUNDRED["zip"]


@pytest.mark.parametrize("name", [0, None, ("age",), ["age"]])
def test_attributes_are_known_by_name_alone(name):
    with refused(f"no attribute {name!r} in the domain; give its name (it has age, sex, region)"):
        SURVEY[name]


@pytest.mark.parametrize("wrong", ["age", 3])
def test_a_name_in_place_of_a_collection_is_refused(wrong):
    for ask in (SURVEY.positions, SURVEY.project, SURVEY.cells):
        with refused(f"attributes are a list of names, got {wrong!r}; write ({wrong!r},) for one"):
            ask(wrong)


def test_domains_are_equal_by_value():
    again = Domain(list(SURVEY), "a survey")
    assert again == SURVEY
    assert hash(again) == hash(SURVEY)
    assert Domain(list(SURVEY)) != SURVEY
    assert Domain(reversed(list(SURVEY)), "a survey") != SURVEY
    assert SURVEY.attributes != SURVEY


def test_a_domain_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SURVEY.description = "another"


def test_the_repr_is_short():
    assert repr(SURVEY) == "Domain(age: 3, sex: 2, region: 17)"
    assert repr(Domain([])) == "Domain()"
    assert repr(HUNDRED) == "Domain(a0: 2, …, a99: 101; 100 attributes)"
    twelve = HUNDRED.project(HUNDRED.attributes[:12])
    assert repr(twelve) == f"Domain({', '.join(f'a{place}: {2 + place}' for place in range(12))})"


# Codebooks

ENTRIES = [
    {"name": "age", "cuts": [18, 65], "description": "age in years"},
    {"name": "sex", "labels": ["F", "M"]},
    {"name": "region", "size": 17},
]


def codebook(**changes):
    return {"margrave": "domain", "schema": 1, "description": "a survey", "attributes": ENTRIES, **changes}


def test_the_codebook_is_the_documented_json():
    assert json.loads(SURVEY.to_json()) == codebook()


def test_a_codebook_has_one_attribute_a_line():
    assert '\n    {"name": "sex", "labels": ["F", "M"]},\n' in SURVEY.to_json()


def test_a_codebook_is_read(tmp_path):
    path = tmp_path / "domain.json"
    path.write_text(json.dumps(codebook()), encoding="utf-8")
    assert Domain.read(path) == SURVEY
    assert Domain.read(str(path)) == SURVEY


def test_the_description_of_a_codebook_may_be_left_out():
    text = json.dumps({"margrave": "domain", "schema": 1, "attributes": ENTRIES[2:]})
    assert Domain.from_json(text) == Domain.fromdict({"region": 17})


def test_the_sizes_of_mbi_are_read_in_order():
    assert Domain.from_json('{"sex": 2, "age": 85}') == Domain.fromdict({"sex": 2, "age": 85})


def test_an_attribute_called_margrave_is_still_read_as_mbi():
    assert Domain.from_json('{"margrave": 4, "schema": 9}').shape == (4, 9)


@given(domains())
def test_what_is_written_is_read_back(domain):
    again = Domain.from_json(domain.to_json())
    assert again == domain
    assert [attribute.categories for attribute in again if attribute.size < 100] == [
        attribute.categories for attribute in domain if attribute.size < 100
    ]


def test_a_file_keeps_names_and_labels_of_any_script(tmp_path):
    domain = Domain([Attribute("größe\n年齢", labels=("♀", "é", "𝔐", '"', "\\"), description="Ω")], "описание")
    path = tmp_path / "область.json"
    domain.write(path)
    assert Domain.read(path) == domain
    assert "♀" in path.read_text(encoding="utf-8")


def test_a_byte_order_mark_is_accepted(tmp_path):
    path = tmp_path / "domain.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"age": 85}')
    assert Domain.read(path) == Domain.fromdict({"age": 85})


def test_writing_replaces_the_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "domain.json"
    path.write_text("old", encoding="utf-8")
    SURVEY.write(path)
    assert Domain.read(path) == SURVEY
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_cannot_be_written_to(tmp_path):
    path = tmp_path / "nowhere" / "domain.json"
    with refused(f"{path} cannot be written (No such file or directory); name another file"):
        SURVEY.write(path)


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    folder = tmp_path / "domain.json"
    folder.mkdir()
    with refused(f"{folder} cannot be written (Is a directory); name another file"):
        SURVEY.write(folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_missing_file_and_a_folder_cannot_be_read(tmp_path):
    missing = tmp_path / "domain.json"
    with refused(f"{missing} cannot be read (No such file or directory); give the path of a domain file"):
        Domain.read(missing)
    with refused(f"{tmp_path} cannot be read (Is a directory); give the path of a domain file"):
        Domain.read(tmp_path)


def test_a_file_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "domain.json"
    path.write_bytes('{"größe": 3}'.encode("latin-1"))
    with refused(f"{path}: not UTF-8 at byte 4; save it in UTF-8"):
        Domain.read(path)


def test_an_error_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "domain.json"
    path.write_text('{"age": 0}', encoding="utf-8")
    with refused(f"{path}: attribute 'age': the size is 0; give a whole number of at least 1"):
        Domain.read(path)


@pytest.mark.parametrize("text", ["", "age,sex\n39,F\n", '{"age": 85', "[" * 20, "{'age': 85}"])
def test_what_is_not_json_is_refused(text):
    with pytest.raises(DomainError, match=r'^not JSON \(.*\); write a JSON object such as {"age": 85}$'):
        Domain.from_json(text)


@pytest.mark.parametrize("text", ["[]", "3", "null", '"age"', '[{"age": 39}]'])
def test_what_is_not_an_object_is_refused(text):
    with refused('not a JSON object; write one such as {"age": 85}'):
        Domain.from_json(text)


def test_a_json_error_does_not_show_the_text():
    with pytest.raises(DomainError) as caught:
        Domain.from_json("secretvalue")
    assert "secretvalue" not in str(caught.value)


def test_an_empty_object_is_refused():
    with refused('the JSON object names no attribute; name at least one, as in {"age": 85}'):
        Domain.from_json("{}")


@pytest.mark.parametrize(
    "text", ['{"age": 3, "age": 4}', '{"margrave": "domain", "attributes": [{"age": 1, "age": 1}]}']
)
def test_a_key_that_stands_twice_is_refused(text):
    with refused("key 'age' appears twice in one JSON object; keep the one that is meant"):
        Domain.from_json(text)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_have_are_refused(constant):
    with refused(f"{constant} is not a JSON number; write finite numbers only"):
        Domain.from_json(f'{{"age": {constant}}}')


@pytest.mark.parametrize("value", ["2.0", "true", "null", "0"])
def test_a_size_in_a_file_must_be_a_whole_number(value):
    with pytest.raises(DomainError, match=r"attribute 'age'(: the size is| has neither size)"):
        Domain.from_json(f'{{"age": {value}}}')


def test_a_number_too_large_for_a_float_is_no_cut():
    with refused("1e999 is out of the range of floating-point numbers; write finite numbers only"):
        Domain.from_json('{"margrave": "domain", "schema": 1, "attributes": [{"name": "age", "cuts": [1e999]}]}')


def test_a_newer_schema_asks_for_an_upgrade():
    with refused("the domain file has schema 2, this margrave reads 1; upgrade it"):
        Domain.from_json(json.dumps(codebook(schema=2, novelty=True)))


@pytest.mark.parametrize("schema", [0, -1, True, 1.0, "1", None])
def test_a_schema_must_be_a_positive_whole_number(schema):
    with refused(f'the domain file has schema {schema!r}; write "schema": 1'):
        Domain.from_json(json.dumps(codebook(schema=schema)))


def test_a_misspelt_key_is_not_ignored():
    entry = {"name": "sex", "size": 2, "lables": ["F", "M"]}
    with refused(
        "attribute 1 of the domain file has the unknown key 'lables'; did you mean 'labels'? "
        "(it may have name, size, labels, cuts, whole, groups, missing, other, outside, description)"
    ):
        Domain.from_json(json.dumps(codebook(attributes=[entry])))
    with refused("the domain file has the unknown key 'descripton'; did you mean 'description'?"):
        Domain.from_json(json.dumps(codebook(descripton="")))


def test_what_a_codebook_needs_must_be_there():
    with refused("attribute 2 of the domain file has no 'name'; add it"):
        Domain.from_json(json.dumps(codebook(attributes=[ENTRIES[0], {"size": 3}])))
    with refused("the domain file has no 'attributes'; add it"):
        Domain.from_json('{"margrave": "domain", "schema": 1}')


@pytest.mark.parametrize("wrong", [{"age": 85}, "age", None])
def test_the_attributes_of_a_codebook_are_a_list(wrong):
    with refused("the attributes of a domain file must be a list; write them in [ ]"):
        Domain.from_json(json.dumps(codebook(attributes=wrong)))


@pytest.mark.parametrize("wrong", ["age", 85, ["age", 85], None])
def test_each_attribute_of_a_codebook_is_an_object(wrong):
    with refused('attribute 4 of the domain file is not an object; write {"name": …, "size": …}'):
        Domain.from_json(json.dumps(codebook(attributes=[*ENTRIES, wrong])))


def test_every_pair_of_kinds_survives_the_file(tmp_path):
    members = [Attribute("a", size=2), Attribute("b", labels=(1, "1", 2.5)), Attribute("c", cuts=(-1.5, 3))]
    for place, pair in enumerate(itertools.permutations(members, 2)):
        path = tmp_path / f"{place}.json"
        Domain(pair).write(path)
        assert Domain.read(path) == Domain(pair)


def test_the_fingerprint_is_of_what_is_declared_and_not_of_the_words_for_it():
    # Pinned: ledgers keep it, so it must never change.
    assert SURVEY.fingerprint == "bdcc1269956e6124f8f7b6cfaaf24429e26788e81c0919d1552f6bdf5273c9fc"
    members = list(SURVEY)
    reworded = [Attribute("age", cuts=(18, 65), description="in years"), *members[1:]]
    assert Domain(reworded, description="other words").fingerprint == SURVEY.fingerprint
    assert Domain(members, draft="a draft").fingerprint == SURVEY.fingerprint
    others = [
        members[::-1],
        members[:2],
        [*members[:2], Attribute("region", size=18)],
        [*members[:2], Attribute("region", size=17, outside="drop")],
        [members[0], Attribute("sex", labels=("M", "F")), members[2]],
        [Attribute("age", cuts=(18, 66)), *members[1:]],
        [Attribute("Age", cuts=(18, 65)), *members[1:]],
    ]
    assert len({SURVEY.fingerprint, *(Domain(other).fingerprint for other in others)}) == 1 + len(others)
