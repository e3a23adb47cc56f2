"""The code in the README runs, and the commands it names exist."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest

from margrave.domain import Domain

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
# Pages of docs/ whose Python is run; docs/release.md has a test of its own.
TUTORIALS = [
    "docs/data.md",
    "docs/domain.md",
    "docs/folder.md",
    "docs/intervals.md",
    "docs/precision.md",
    "docs/rows.md",
    "docs/scale.md",
]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_the_python_of_the_readme_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    # As after `make demo`, in its folder: there is a release, and the packages of `make demo` alone are installed.
    (tmp_path / "release").mkdir()
    for package in ("polars", "ibis", "pyspark"):
        monkeypatch.setitem(sys.modules, package, None)
    # pyarrow looks for pandas by itself, so that it cannot be hidden here.
    code = "\n".join(line.partition("#")[0] for block in blocks("python") for line in block.splitlines())
    assert "pandas" not in code
    monkeypatch.chdir(tmp_path)
    namespace = {}
    assert blocks("python")
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)


@pytest.mark.parametrize("page", TUTORIALS)
def test_the_python_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert found
    for block in found:
        exec(compile(block, page, "exec"), namespace)


def test_the_domain_file_of_the_page_is_one():
    text = (ROOT / "docs" / "domain.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```json\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert Domain.from_json(block).shape == (6, 3, 3, 5, 2, 3, 17)


def commands():
    return [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("words", [c for c in commands() if c[:1] == ["make"]], ids=" ".join)
def test_make_targets_of_the_readme_exist(words):
    for target in words[1:]:
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target


def test_commands_of_the_readme_run_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    from margrave.cli.app import run

    monkeypatch.chdir(tmp_path)
    ran = []
    for words in commands():
        if words[0] == "cd":
            monkeypatch.chdir(Path.cwd() / words[1])
        elif words[0] == "margrave":
            assert run(words[1:]) == 0, (words, capsys.readouterr().err)
            ran.append(words[1])
        else:
            assert words[0] == "make"
    assert {"demo", "domain", "validate", "plan", "release", "query", "export", "ledger"} <= set(ran)


def test_every_target_is_listed_by_make_help():
    targets = re.search(r"^\.PHONY: (.*)$", MAKEFILE, flags=re.MULTILINE).group(1).split()
    for target in targets:
        assert re.search(rf"^{target}:.*## \S", MAKEFILE, flags=re.MULTILINE), target


def test_the_page_of_the_command_line_is_current():
    specification = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generate)
    assert generate.PAGE.read_text(encoding="utf-8") == generate.page(), "run make docs"
