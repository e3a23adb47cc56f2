"""The code in the README runs, and the commands it names exist."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import documents
import numpy as np
import pytest
import yaml

import margrave
from margrave.domain import Domain

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
# docs/release.md has a test of its own, tests/unit/release/test_release_docs.py.
# Pages that need a Spark session.
ON_SPARK = ("howto/spark.md",)
PAGES = [page for page in documents.pages() if page.name != "release.md"]


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


def marked(page):
    """A page by its name; pages that need Spark are heavy."""
    name = str(page.relative_to(ROOT / "docs"))
    return pytest.param(page, id=name, marks=[pytest.mark.engines] if name in ON_SPARK else [])


@pytest.mark.parametrize("page", [marked(page) for page in PAGES])
def test_what_a_page_says_runs_from_top_to_bottom(page, tmp_path, monkeypatch, capsys, request, demo):
    if page.name == "postgresql.md":
        owner = database(request.getfixturevalue("postgres"))
        monkeypatch.setenv("OWNER", owner)
        # The page reads as a role that may do nothing else, and creates it.
        monkeypatch.setenv("DATABASE", urlsplit(owner)._replace(netloc="reader@").geturl())
    if str(page.relative_to(ROOT / "docs")) in ON_SPARK:
        request.getfixturevalue("spark")
    documents.run(page, tmp_path, monkeypatch, demo)


def database(server):
    """The address of a new, empty database on the server of the tests."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE pages")
    return urlsplit(server)._replace(path="/pages").geturl()


def census(rows, dot=""):
    """Rows in the form of the census file: no header, blanks, ``?``, an empty line at the end; a dot after labels."""
    draw, lines = np.random.default_rng(rows), []
    for _ in range(rows):
        words = [draw.choice(["Private", "State-gov", "?"]), "HS-grad", "Divorced", "Sales", "Husband", "White", "Male"]
        work, school, married, job, relation, race, sex = words
        income = draw.choice(["<=50K", ">50K"]) + dot
        row = (draw.integers(17, 91), work, 77516, school, 9, married, job, relation, race, sex, 0, 0)
        lines.append(", ".join(map(str, (*row, draw.integers(1, 99), "United-States", income))))
    return "\n".join(lines) + "\n\n"


def test_the_commands_for_the_census_file_take_a_file_of_its_form(tmp_path):
    """They are only shown on the page, since the file itself is not here."""
    section = (ROOT / "docs" / "start.md").read_text(encoding="utf-8").split("## The census file")[1].split("\n## ")[0]
    script = "".join(re.findall(r"^```shell\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL))
    (tmp_path / "adult.data").write_text(census(300), encoding="utf-8")
    (tmp_path / "adult.test").write_text("|1x3 Cross validator\n" + census(200, "."), encoding="utf-8")
    program = f'margrave() {{ "{sys.executable}" -m margrave "$@"; }}\nset -euo pipefail\n'
    done = subprocess.run(["bash", "-c", program + script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the table fits the domain" in done.stdout
    release = margrave.load(tmp_path / "adult")
    assert release.workload.domain["income"].categories == ("<=50K", ">50K")
    # By chance it is further away than that in one of 10¹⁴ runs.
    assert abs(release.table().estimate - 500) < 8 * release.table().std_error


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


def test_commands_of_the_readme_run_from_top_to_bottom(tmp_path, monkeypatch, capsys, demo):
    from margrave.cli.app import run

    monkeypatch.chdir(tmp_path)
    ran = []
    for words in commands():
        if words[0] == "cd":
            monkeypatch.chdir(Path.cwd() / words[1])
        elif words == ["margrave", "demo"]:
            shutil.copytree(demo, "margrave-demo")
            ran.append("demo")
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


REFERENCE = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md")}
PUBLIC = [*margrave.__all__, *(f"methods.{name}" for name in margrave.methods.__all__)]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_its_docstring_and_an_example_in_the_reference(name):
    (text,) = [text for text in REFERENCE.values() if f"\n## {name}\n" in text]
    section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
    assert name == "__version__" or re.search(rf"\.\. auto\w+:: margrave\.{re.escape(name)}\n", section)
    (example,) = re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    assert f"mg.{name}" in example or name == "Release"


def test_every_page_has_its_place_in_the_site():
    """Sphinx finds pages that are in no table of contents; this test does so without it."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    named = [line for block in re.findall(r"```{toctree}\n(.*?)```", index, flags=re.DOTALL) for line in block.split()]
    found = {str(page.relative_to(ROOT / "docs"))[:-3] for page in (ROOT / "docs").rglob("*.md")}
    assert found - {"index"} <= set(named)


def test_every_picture_is_shown_small_and_drawn_by_the_script():
    drawn = (ROOT / "docs" / "draw.py").read_text(encoding="utf-8")
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    for picture in (ROOT / "docs" / "pictures").iterdir():
        assert picture.stat().st_size < 200_000, picture.name
        assert picture.stem in drawn
        assert f"pictures/{picture.name}" in pages


def test_the_version_is_the_same_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'version: "{version}"' in (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_conda_recipe_asks_for_what_the_package_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))

    def listed(requirements):
        """The requirements as conda writes them, where DuckDB for Python has a name of its own."""
        return [re.sub(r"^duckdb", "python-duckdb", one).replace(">=", " >=") for one in requirements]

    python = "python " + project["project"]["requires-python"]
    required = recipe["requirements"]
    assert required["run"] == [python, *listed(project["project"]["dependencies"])]
    assert required["host"] == [python, "pip", *listed(project["build-system"]["requires"])]
    assert required["run_constraints"] == listed(project["project"]["optional-dependencies"]["report"])
    scripts = [f"{name} = {target}" for name, target in project["project"]["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    assert recipe["about"]["license"] == project["project"]["license"]


def test_workflows_run_what_is_there_on_the_interpreters_that_are_named():
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    named = [one.rpartition(" ")[2] for one in classifiers if re.search(r"Python :: 3\.\d+$", one)]
    workflows = {
        path.name: yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        for path in (ROOT / ".github" / "workflows").iterdir()
    }
    assert workflows["ci.yml"]["run"]["strategy"]["matrix"]["python-version"] == named
    commands = {
        step["run"] for jobs in workflows.values() for job in jobs.values() for step in job["steps"] if "run" in step
    }
    assert commands == {".ci/run", "make dist"}
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_options_of_hooks_are_whole():
    """In a list of YAML, a comma ends an option that is not quoted."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    given = [option for group in config["repos"] for hook in group["hooks"] for option in hook.get("args", [])]
    assert given
    assert all(option.startswith("--") for option in given)


def test_every_check_of_the_repository_that_is_left_out_is_explained():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "maintaining.md").read_text(encoding="utf-8")
    for check in settings["tool"]["repo-review"]["ignore"]:
        assert f"| {check} " in page


def test_project_files_that_readers_are_sent_to_exist():
    for file in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "CITATION.cff", "Dockerfile", "LICENSE"):
        assert (ROOT / file).is_file()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", readme):
        assert (ROOT / target).exists(), target
