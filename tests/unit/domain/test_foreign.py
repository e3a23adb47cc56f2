"""Domain files that people have: CSVW, SDNist's dictionary and schema, SmartNoise's metadata."""

from __future__ import annotations

import builtins
import json
import re
import time
from itertools import pairwise

import pytest

from margrave.domain import Attribute, Domain
from margrave.errors import DomainError


def refused(text):
    return pytest.raises(DomainError, match=re.escape(text))


def read(document):
    return Domain.from_json(json.dumps(document))


# CSVW

CSVW = {
    "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
    "url": "survey.csv",
    "tableSchema": {
        "columns": [
            {"name": "sex", "titles": "Sex", "required": True, "datatype": {"base": "string", "format": "female|male"}},
            {"name": "age", "datatype": {"base": "integer", "minimum": "0", "maximum": 3}, "dc:description": "years"},
            {"titles": {"en": "owner"}, "datatype": {"base": "boolean", "format": "Y|N"}, "null": "NA"},
            {"titles": ["active", "aktiv"], "datatype": "boolean", "required": True},
            {"name": "income", "datatype": "decimal", "margrave": {"cuts": [1000, 5000], "missing": "not told"}},
            {"name": "remarks", "margrave": False},
            {"name": "about", "virtual": True, "propertyUrl": "schema:about"},
        ]
    },
}


def test_csvw_metadata():
    assert read(CSVW) == Domain(
        [
            Attribute("Sex", labels=["female", "male"]),
            Attribute("age", labels=[0, 1, 2, 3], missing="missing", description="years"),
            Attribute("owner", labels=["Y", "N", "NA"], missing="NA"),
            Attribute("active", labels=[False, True]),
            Attribute("income", cuts=[1000, 5000], missing="not told"),
        ]
    )


def test_csvw_metadata_of_one_table_in_a_group():
    schema = {"columns": [{"name": "sex", "datatype": {"format": "F|M"}}], "required": True}
    assert read({"tables": [{"url": "a.csv", "tableSchema": schema}]}) == Domain.fromdict({"sex": ["F", "M"]})


def csvw(**column):
    return read({"tableSchema": {"columns": [{"name": "x", "required": True, **column}]}})["x"]


@pytest.mark.parametrize(
    ("pattern", "labels"),
    [
        ("a|b", ["a", "b"]),
        ("^(a|b c|)$", ["a", "b c", ""]),
        ("(?:A-1|B-2)", ["A-1", "B-2"]),
        (r"1\+|2\||é", ["1+", "2|", "é"]),
        (r"a\\|b", ["a\\", "b"]),
        ("a|b|a", ["a", "b"]),
    ],
)
def test_a_format_that_lists_texts_declares_them(pattern, labels):
    assert csvw(datatype={"base": "string", "format": pattern}).labels == tuple(labels)


@pytest.mark.parametrize("pattern", ["[a-z]|b", "a+|b", r"\d|x", "a", "(a|b", "a|(b|c)", "a|b.", None])
def test_other_regular_expressions_declare_no_finite_set(pattern):
    with refused("these columns do not declare a finite set of values: x (any string); add to each"):
        csvw(datatype={"base": "string", "format": pattern})


@pytest.mark.parametrize(
    ("bounds", "labels"),
    [
        ({"minInclusive": 1, "maxInclusive": 3}, (1, 2, 3)),
        ({"minExclusive": 1, "maxExclusive": "4"}, (2, 3)),
        ({"minimum": -1, "maxExclusive": 1}, (-1, 0)),
    ],
)
def test_bounds_of_whole_numbers(bounds, labels):
    assert csvw(datatype={"base": "integer", **bounds}).labels == labels


@pytest.mark.parametrize(
    ("datatype", "reason"),
    [
        ("date", "any date"),
        ({"base": "number", "minimum": 0, "maximum": 1}, "any number"),
        ({"base": "integer"}, "no values"),
        ({"base": "integer", "minimum": 0}, "no values"),
        ({"base": "integer", "minimum": 0, "maximum": 1.5}, "numbers from 0 to 1.5"),
        ({"base": "integer", "minimum": 0, "maximum": 1000}, "1,001 whole numbers"),
        ({"base": "integer", "minimum": 2, "maximum": 1}, "no whole number from 2 to 1"),
        (3, "no datatype"),
    ],
)
def test_a_column_without_a_finite_set_is_named_with_the_reason(datatype, reason):
    with refused(
        f"these columns do not declare a finite set of values: x ({reason}); add to each "
        '"margrave": {"cuts": […]} or {"labels": […]}, or "margrave": false to leave it out'
    ):
        csvw(datatype=datatype)


def test_only_a_dozen_columns_are_named():
    columns = [{"name": f"c{place}"} for place in range(15)]
    with refused("c11 (any string), and 3 more; add to each"):
        read({"tableSchema": {"columns": columns}})


def test_csvw_metadata_that_are_not_what_they_must_be():
    with refused("the CSVW file describes several tables or none; keep the one whose domain it is"):
        read({"tables": [{}, {}]})
    with refused('the CSVW file has no list of columns; write it as "tableSchema": {"columns": [{…}, …]}'):
        read({"@context": "http://www.w3.org/ns/csvw", "url": "a.csv"})
    with refused('a column of the CSVW file has neither titles nor a name; give it "name"'):
        read({"tableSchema": {"columns": [{"titles": []}]}})
    with refused("column 'x' of the CSVW file has 2 texts for missing values; keep one of them"):
        csvw(datatype="boolean", null=["", "NA", "-"])
    with refused("the file describes no column; name at least one with its values"):
        read({"tableSchema": {"columns": []}})


def test_hints_are_checked():
    with refused("the \"margrave\" of column 'x' has the unknown key 'cust'; did you mean 'cuts'?"):
        csvw(margrave={"cust": [1]})
    with refused(
        "column 'x' has \"margrave\": true; write an object with its values, or false".replace("true", "True")
    ):
        csvw(margrave=True)


def test_a_hint_may_add_a_policy_alone():
    assert csvw(datatype="boolean", margrave={"outside": "drop"}) == Attribute(
        "x", labels=[False, True], outside="drop"
    )


def test_attributes_may_be_called_as_csvw_s_keys_are():
    assert Domain.from_json('{"tables": ["a", "b"], "tableSchema": 3}').shape == (2, 3)


# SDNist

DICTIONARY = {
    "PUMA": {"description": "Area", "values": {"25-00503": "Middlesex", "01-01301": "Birmingham"}},
    "AGEP": {"description": "Age", "values": {"min": 0, "max": 99}},
    "SEX": {"description": "Gender", "values": {"1": "Male", "2": "Female"}},
    "MSP": {"description": "Marital status", "values": {"N": "N/A", "1": "Married", "6": "Never"}},
    "NOC": {"values": {"N": "N/A", "0": "None", "min": 1, "max": 3}},
    "DECILE": {"description": "Income", "N": "N/A", "1": "Second", "0": "First"},
    "FIPST": {"values": {"01": "Alabama", "10": "Delaware"}},
    "RG": {"values": {"min": 0, "max": 2, "step_size": 1}},
}


def test_an_sdnist_data_dictionary():
    assert read(DICTIONARY) == Domain(
        [
            Attribute(
                "PUMA", labels=["25-00503", "01-01301"], description="Area: 25-00503 = Middlesex; 01-01301 = Birmingham"
            ),
            Attribute("AGEP", labels=range(100), description="Age"),
            Attribute("SEX", labels=[1, 2], description="Gender: 1 = Male; 2 = Female"),
            Attribute("MSP", labels=["N", "1", "6"], description="Marital status: N = N/A; 1 = Married; 6 = Never"),
            Attribute("NOC", labels=["N", "0", "1", "2", "3"], description="N = N/A; 0 = None"),
            Attribute("DECILE", labels=["N", "1", "0"], description="Income: N = N/A; 1 = Second; 0 = First"),
            Attribute("FIPST", labels=["01", "10"], description="01 = Alabama; 10 = Delaware"),
            Attribute("RG", labels=[0, 1, 2]),
        ]
    )


def test_many_codes_are_not_spelt_out_in_the_description():
    values = {str(code): "meaning" for code in range(13)}
    assert read({"x": {"description": "Many", "values": values}})["x"].description == "Many"


def test_an_sdnist_schema():
    schema = {
        "PUMA": {"dtype": "object", "values": ["48-02101", "48-02102"]},
        "AGEP": {"dtype": "int64", "min": 0, "max": 2},
        "SEX": {"dtype": "int64", "values": [1, 2]},
        "MSP": {"has_null": True, "null_value": "N", "dtype": "object", "values": ["N", "1"]},
        "POVPIP": {"has_null": True, "null_value": "N", "dtype": "object", "min": 0, "max": 2},
    }
    assert read({"schema": schema}) == Domain(
        [
            Attribute("PUMA", labels=["48-02101", "48-02102"]),
            Attribute("AGEP", labels=[0, 1, 2]),
            Attribute("SEX", labels=[1, 2]),
            Attribute("MSP", labels=["N", "1"], missing="N"),
            Attribute("POVPIP", labels=["0", "1", "2", "N"], missing="N"),
        ]
    )


def test_sdnist_columns_without_a_finite_set_are_named():
    document = {
        "DENSITY": {"values": {"min": 16.3, "max": 52864.7}},
        "INDP": {"description": "Industry codes", "link": "https://example.org"},
        "PINCP": {"description": "Income", "N": "N/A", "min": -9000, "max": 1341000},
        "TABWGT": {"values": {"min": 0, "max": 9, "step_size": 0.001}},
        "NONE": {"values": []},
        "SEX": {"values": {"1": "Male"}},
    }
    with refused(
        "these columns do not declare a finite set of values: DENSITY (numbers from 16.3 to 52864.7), INDP "
        "(no values), PINCP (1,350,001 whole numbers), TABWGT (numbers in steps), NONE (no values); add to each "
    ):
        read(document)
    for name in ("INDP", "TABWGT", "NONE"):
        document[name]["margrave"] = False
    document["DENSITY"]["margrave"] = document["PINCP"]["margrave"] = {"cuts": [0, 1000.5]}
    assert read(document).shape == (3, 3, 1)


# SmartNoise

YAML = """
"":
  PUMS:
    PUMS:
      row_privacy: True
      rows: 1000
      pid: {private_id: True, type: int}
      ignored: {type: unknown}
      age:
        type: int
        lower: 0
        upper: 100
      '"married-now"':
        type: boolean
        nullable: False
      "`region`": {type: int, lower: 1, upper: 4, missing_value: 4}
      income:
        type: float
        lower: 0
        upper: 500000
        margrave: {cuts: [10000, 50000]}
"""


@pytest.mark.parametrize("ending", ["yaml", "yml", "YAML"])
def test_smartnoise_metadata(ending, tmp_path):
    path = tmp_path / f"PUMS.{ending}"
    path.write_text(YAML, encoding="utf-8")
    assert Domain.read(path) == Domain(
        [
            Attribute("age", labels=range(101), missing="missing"),
            Attribute("married-now", labels=[False, True]),
            Attribute("region", labels=[1, 2, 3, 4], missing="4"),
            Attribute("income", cuts=[10000, 50000]),
        ]
    )


def test_smartnoise_columns_without_a_finite_set_are_named(tmp_path):
    path = tmp_path / "metadata.yaml"
    table = "{name: {type: string, cardinality: 5}, height: {type: float, lower: 0, upper: 2.5}, n: {type: int}}"
    path.write_text(f"db: {{s: {{t: {table}}}}}", encoding="utf-8")
    with refused(
        f"{path}: these columns do not declare a finite set of values: name (any string), height (any float), "
        "n (no values); add to each"
    ):
        Domain.read(path)


def test_smartnoise_metadata_of_two_tables_are_refused(tmp_path):
    path = tmp_path / "metadata.yaml"
    path.write_text("db: {s: {t: {a: {type: boolean}}, u: {a: {type: boolean}}}}", encoding="utf-8")
    with refused("the SmartNoise file describes the tables t, u; keep the one whose domain it is"):
        Domain.read(path)


def test_sizes_may_be_written_in_yaml_too(tmp_path):
    path = tmp_path / "domain.yaml"
    path.write_text("age: 85\nsex: [F, M]\n", encoding="utf-8")
    assert Domain.read(path) == Domain.fromdict({"age": 85, "sex": ["F", "M"]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not YAML at line 1; write the metadata of SmartNoise, or a domain file in JSON"),
        ("\x00", "not YAML; write the metadata of SmartNoise, or a domain file in JSON"),
        ("- 1", "not a YAML mapping; write the metadata of SmartNoise, or a domain file in JSON"),
        ("", "not a YAML mapping; write the metadata of SmartNoise, or a domain file in JSON"),
    ],
)
def test_what_is_no_yaml_is_refused(text, message, tmp_path):
    path = tmp_path / "domain.yaml"
    path.write_text(text, encoding="utf-8")
    with refused(message):
        Domain.read(path)


def test_without_the_package_the_error_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "domain.yaml"
    path.write_text("age: 85", encoding="utf-8")
    load = builtins.__import__

    def without(name, *rest):
        if name == "yaml":
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with refused("a YAML file needs the package PyYAML; install it, or write the file as JSON"):
        Domain.read(path)


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in pairwise("abcdefghij")
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "not YAML at line 2;"),
        ("age: &age [F, M]\nsex: *age\n", "not YAML at line 2;"),
        ("[" * 100_000, "not YAML at line 1;"),
        ("- " * 100_000, "not YAML at line 1;"),
        ("age: 2020-99-99\n", "YAML with a value that cannot be read;"),
        ("age: 1" + ":1" * 120_000 + "\n", "not YAML at line 1;"),
        ("age: 0x" + "f" * 100_000 + "\n", "not YAML at line 1;"),
        ("age: 3\n" * 50_000, "larger than 262,144 bytes; give a smaller file"),
    ],
    ids=["a bomb", "an alias", "lists", "dashes", "a date", "base sixty", "hexadecimal", "long"],
)
def test_yaml_is_read_within_limits(text, message, tmp_path):
    path = tmp_path / "domain.yaml"
    path.write_text(text, encoding="utf-8")
    start = time.process_time()
    with refused(f"{path}: {message}"):
        Domain.read(path)
    assert time.process_time() - start < 2
