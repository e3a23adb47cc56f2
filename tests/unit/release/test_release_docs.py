"""The code of docs/release.md runs, and what the page says about the condition language is so."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "release.md").read_text(encoding="utf-8")


def run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    namespace = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/release.md", "exec"), namespace)
    return namespace


def test_the_python_of_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    names = run(tmp_path, monkeypatch)
    assert names["share"].note == ""
    assert not list(tmp_path.iterdir())


def test_every_condition_in_the_page_can_be_read(tmp_path, monkeypatch, capsys):
    release = run(tmp_path, monkeypatch)["release"]
    rows = re.findall(r"^\| (`.*`) \| .* \|$", PAGE, flags=re.MULTILINE)
    conditions = [code for row in rows for code in re.findall(r"`([a-z]+ [^`]+)`", row) if "…" not in code]
    readable = [code for code in conditions if code.split()[0] in release.workload.domain]
    assert len(readable) >= 10
    for condition in readable:
        assert release.query(condition).values >= 0
