"""The sdist and the wheel, built from this tree and tried in an empty environment outside of it."""

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
# What a tree may hold that nobody wants to ship.
_UNWANTED = {"__pycache__", ".venv", "build", "dist", ".hypothesis", ".git", "margrave-demo"}


def run(*command, folder, **settings):
    """Run a command in a folder that is not this tree, with nothing of this tree on its path."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env={**environment, **settings}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from it as a packager does."""
    pytest.importorskip("build", reason="packages need the package build")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    return folder / f"margrave-{VERSION}.tar.gz", folder / f"margrave-{VERSION}-py3-none-any.whl"


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built[0]) as archive:
        # Python before 3.11.4 has no filters.
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder / f"margrave-{VERSION}"


def test_the_wheel_holds_the_package_and_nothing_else(built):
    names = zipfile.ZipFile(built[1]).namelist()
    assert {name.split("/")[0] for name in names} == {"margrave", f"margrave-{VERSION}.dist-info"}
    shipped = {name for name in names if name.endswith(".py")}
    assert shipped == {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert "margrave/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_sdist_holds_all_that_a_packager_needs(unpacked):
    for part in ("src", "tests", "docs", "examples", "experiments", "benchmarks"):
        here = {path.relative_to(ROOT) for path in (ROOT / part).rglob("*") if path.is_file()}
        wanted = {path for path in here if not _UNWANTED & set(path.parts)}
        there = {path.relative_to(unpacked) for path in (unpacked / part).rglob("*") if path.is_file()}
        assert wanted <= there, sorted(map(str, wanted - there))[:5]
    for file in ("LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "Makefile", "constraints.txt", "Dockerfile"):
        assert (unpacked / file).is_file(), file


def test_the_sdist_runs_its_tests(unpacked, tmp_path):
    chosen = ["tests/unit/domain", "tests/test_kept_files.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    shown = run(*command, folder=unpacked, PYTHONPATH=str(unpacked / "src"))
    assert " passed" in shown
    where = "import margrave; print(margrave.__file__)"
    assert run(sys.executable, "-c", where, folder=tmp_path, PYTHONPATH=str(unpacked / "src")).startswith(str(unpacked))


def test_the_wheel_works_in_an_empty_environment(built, tmp_path):
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*install, "--constraint", ROOT / "constraints.txt", f"{built[1]}[report]", folder=tmp_path)
    margrave = python.with_name("margrave")
    assert run(margrave, "--version", folder=tmp_path) == f"margrave {VERSION}\n"
    assert "report" in run(margrave, "demo", folder=tmp_path)
    assert (tmp_path / "margrave-demo" / "release" / "report.html").stat().st_size > 100_000
    asked = ["query", "margrave-demo/release", "age >= 65", "--by", "sex", "--json"]
    assert '"female"' in run(margrave, *asked, folder=tmp_path)
    # No package of development came along.
    listed = run(python, "-m", "pip", "list", "--format", "freeze", folder=tmp_path).lower()
    assert not any(name in listed for name in ("pytest", "pyspark", "pandas", "jax"))
