"""Job files and domain files with slips of every kind: an error of one line or a correct plan, never a trace."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from margrave.cli.app import run

JOB = """data = "people.csv"
domain = "domain.json"
kway = 2
epsilon = 1.0
delta = 1e-9
contributions = 1
ledger = "people.ledger"
cap-epsilon = 2.0
out = "release"
csv = true
title = "A survey"
"""
DOMAIN = json.dumps(
    {
        "margrave": "domain",
        "schema": 1,
        "description": "a survey",
        "attributes": [
            {"name": "age", "cuts": [17, 64], "whole": True, "description": "in years"},
            {"name": "sex", "labels": ["F", "M"], "missing": "unknown"},
            {"name": "region", "size": 4, "outside": "drop"},
            {"name": "household", "labels": [1, 2, 3], "other": "more"},
        ],
    },
    indent=1,
)
# What people, editors and other programs put where something else belongs.
PIECES = [
    *("nan", "inf", "-1", "0", "1e400", "1e-400", "999999999999999999999999", "true", "null", '""', "''", "[]", "{}"),
    *(
        "[",
        "]",
        "{",
        "}",
        '"',
        "\\",
        "=",
        ",",
        ":",
        "#",
        "\n",
        "\r\n",
        "\t",
        "\x00",
        "\ufeff",
        "é",
        "日本",
        "😀",
        "\u202e",
    ),
    *("1.5", '"age"', "kway", "up-to = 2", 'tables = [["age", "sex"]]', "rho = 0.1", "1979-05-27", "0x1F", "[table]"),
    *('"labels": []', '"cuts": [1, 0]', '"size": 1e9', '"schema": 2', '"draft": "x"', '"reviewed": true', "\ud800"),
]


@st.composite
def mutated(draw, text):
    """The text after one to four cuts, copies, swaps and insertions."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        kind = draw(st.sampled_from(["cut", "copy", "insert", "replace", "end"]))
        piece = draw(st.sampled_from(PIECES))
        if kind == "cut":
            text = text[:start] + text[end:]
        elif kind == "copy":
            text = text[:end] + text[start:end] + text[end:]
        elif kind == "insert":
            text = text[:start] + piece + text[start:]
        elif kind == "replace":
            text = text[:start] + piece + text[end:]
        else:
            text = text[: max(start, 1)]
    return text


def check(words, capsys):
    code = run(words)
    shown = capsys.readouterr()
    # 1 would be an error that nobody foresaw.
    assert code in (0, 2, 3), shown.err
    if code == 0:
        assert json.loads(shown.out)["tables"] >= 1
        assert shown.err == ""
    else:
        assert shown.out == ""
        assert (shown.err.startswith("error: "), shown.err.count("\n")) == (True, 1), shown.err


quick = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(text=mutated(JOB))
def test_mutated_job_files(text, tmp_path, capsys):
    (tmp_path / "domain.json").write_text(DOMAIN, encoding="utf-8")
    (tmp_path / "job.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    check(["plan", "--job", str(tmp_path / "job.toml"), "--json"], capsys)


@quick
@given(text=mutated(DOMAIN))
def test_mutated_domain_files(text, tmp_path, capsys):
    (tmp_path / "domain.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    options = ["--kway", "2", "--rho", "0.1", "--contributions", "1", "--json"]
    check(["plan", "--domain", str(tmp_path / "domain.json"), *options], capsys)
