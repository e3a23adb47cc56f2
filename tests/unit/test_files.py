"""JSON is read strictly and within limits: what is too long, too deep or ambiguous is refused before it is made."""

import json
import re
import time
import tracemalloc

import pytest

from margrave.errors import DomainError, MargraveError, MemoryLimitError, suggestion
from margrave.files import parse_object, read_text


def refused(text, kind=DomainError):
    return pytest.raises(kind, match=re.escape(text))


def test_an_object_is_read_as_python_would():
    text = '{"a": [1, 2.5, -3e-7, "x", true, false, null, {}], "ä": {"b": "[[[[{{\\"\\\\"}, "c": 123456789012345678901}'
    assert parse_object(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "b": 2, "a": 1}', "key 'a' appears twice in one JSON object; keep the one that is meant"),
        ('{"a": NaN}', "NaN is not a JSON number; write finite numbers only"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ('{"a": 1e309}', "1e309 is out of the range of floating-point numbers; write finite numbers only"),
        ('{"a": ' + "1" * 401 + "}", "a number of 401 characters; write at most 400"),
        ('{"a": 0.' + "1" * 400 + "}", "a number of 402 characters; write at most 400"),
        ("[1]", "not a JSON object; write one such as"),
        ('{"a": 1', "not JSON ("),
        ("}" * 100, "not JSON ("),
    ],
)
def test_what_json_leaves_open_is_refused(text, words):
    with refused(words):
        parse_object(text)


def test_brackets_may_stand_thirty_two_deep():
    assert parse_object('{"a":' * 32 + "1" + "}" * 32)
    for text in ('{"a":' * 33 + "1" + "}" * 33, '{"a": ' + "[" * 32 + "]" * 32 + "}", '{"a":' * 10**6):
        with refused("JSON with more than 32 lists and objects inside each other; write it with fewer"):
            parse_object(text)


def test_brackets_in_texts_do_not_count():
    text = json.dumps({"a": "[" * 1000, "b\\": '"' + "{" * 1000, "c": ["\\" * 999, '\\"[']})
    assert parse_object(text) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        '"' + '\\"' * 500_000,
        '{"' + "\\" * 1_000_001,
        '"' * 1_000_001,
        '{"a":' + "[" * 10,
        "[]" * 500_000,
        "{[" * 500_000,
    ],
    ids=["escaped quotes", "backslashes", "quotes", "open", "pairs", "two kinds"],
)
def test_no_text_takes_more_than_time_in_proportion(text):
    start = time.process_time()
    with pytest.raises(MargraveError):
        parse_object(text)
    assert time.process_time() - start < 1


def test_lists_of_nothing_are_counted_before_they_are_made(monkeypatch):
    monkeypatch.setattr("margrave.files._MOST_VALUES", 300_000)
    text = '{"a": [' + "[]," * 300_000 + "[]]}"
    tracemalloc.start()
    with refused("JSON of 600,004 values; at most 300,000 are read: give a smaller file"):
        parse_object(text)
    assert tracemalloc.get_traced_memory()[1] < 4 * len(text)
    tracemalloc.stop()


def test_what_does_not_fit_in_memory_is_not_read(monkeypatch):
    monkeypatch.setattr("margrave.memory.available_bytes", lambda: 10**7)
    with refused("reading JSON of 600,015 characters needs 43 MB of memory and 9 MB can be used", MemoryLimitError):
        parse_object('{"a": [' + "[]," * 200_000 + "[]]}    ")


def test_a_file_is_read_up_to_a_limit(tmp_path):
    (tmp_path / "a.json").write_bytes(b" " * 1000 + b"{}")
    assert parse_object(read_text(tmp_path / "a.json")) == {}
    with refused("larger than 1,001 bytes; give a smaller file"):
        read_text(tmp_path / "a.json", most_bytes=1001)
    (tmp_path / "a.json").write_bytes(b"{\xff}")
    with refused("not UTF-8 at byte 1; save it in UTF-8"):
        read_text(tmp_path / "a.json")


def test_a_message_shows_the_ends_of_what_is_very_long():
    message = str(DomainError("no attribute " + "a" * 10**6 + "; give another"))
    assert len(message) < 4100
    assert message.startswith("no attribute aaa")
    assert message.endswith("aaa; give another")


@pytest.mark.parametrize(
    "name", ["ab:/" * 50_000 + "@", "@" + "ab:/" * 50_000, "pwd='" * 50_000, "pwd" + " " * 200_000]
)
def test_messages_with_hostile_names_are_shown_at_once(name):
    start = time.process_time()
    assert len(str(DomainError(f"no attribute {name}; give another"))) < 4100
    assert time.process_time() - start < 1


def test_names_of_any_length_are_compared_in_no_time():
    start = time.process_time()
    assert suggestion("ab" * 100_000, ["ba" * 100_000, "sex"]) == ""
    assert suggestion("sxe", ["ba" * 100_000, "sex"]) == "; did you mean 'sex'?"
    assert time.process_time() - start < 1
