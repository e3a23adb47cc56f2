"""Documents are replaced with the manifest that vouches for them; nothing else is written into a release."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from releases import made, measured, same

from margrave.errors import StoreError
from margrave.release.store.folder import is_release, replace_document, require_outside
from margrave.release.store.loading import load, verify

RELEASE = made(measured())


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents") / "out"
    RELEASE.save(folder, documents={"report.html": "old"})
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "out")


def refused(text):
    return pytest.raises(StoreError, match=re.escape(text))


@pytest.mark.parametrize("name", ["report.html", "notes.txt"])
def test_a_document_is_replaced_or_added_and_the_folder_stays_whole(folder, name):
    before = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    replace_document(folder, name, "<p>ä\n</p>")
    assert (folder / name).read_bytes() == "<p>ä\n</p>".encode()
    assert verify(folder) == ()
    assert same(RELEASE, load(folder, strict=True))
    after = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert after.pop("checksum") != before.pop("checksum")
    assert after["files"].pop(name) != before["files"].pop(name, None)
    assert after == before


def test_a_damaged_document_is_mended(folder):
    (folder / "report.html").write_text("damaged")
    assert len(verify(folder)) == 1
    replace_document(folder, "report.html", "new")
    assert verify(folder) == ()


@pytest.mark.parametrize("name", ["README.md", "measurements.npz", "Manifest.json", "tables", "../x", "REPORT.html"])
def test_files_of_the_release_itself_are_no_documents(folder, name):
    with refused(f"a document cannot be called {name!r}; use ASCII letters"):
        replace_document(folder, name, "x")
    assert verify(folder) == ()


def test_only_a_release_has_documents(folder, tmp_path):
    with refused(f"{tmp_path} has no manifest.json; give the folder of a release"):
        replace_document(tmp_path, "report.html", "x")
    with refused(f"there is no folder {tmp_path / 'none'}"):
        replace_document(tmp_path / "none", "report.html", "x")
    with refused("the document 'report.html' must be text that can be written as UTF-8"):
        replace_document(folder, "report.html", "\ud800")


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failure_is_an_error_in_words_and_leaves_a_release_that_loads(folder, monkeypatch, failing):
    real, calls = Path.replace, []

    def replace(source, target):
        calls.append(target)
        if len(calls) == failing:
            raise OSError(28, "No space left on device")
        return real(source, target)

    monkeypatch.setattr(Path, "replace", replace)
    with refused(f"{folder / 'report.html'} cannot be written (No space left on device); free some space, or request"):
        replace_document(folder, "report.html", "new")
    assert same(RELEASE, load(folder))
    named = [sentence for sentence in verify(folder) if "report.html is damaged" in sentence]
    assert len(named) == len(verify(folder)) == failing - 1
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_a_kill_between_the_two_renames_leaves_a_release_that_loads(folder):
    code = (
        "import os, signal, sys\n"
        "from margrave.release.store.folder import replace_document\n"
        "real = os.replace\n"
        "def replace(source, target, **options):\n"
        "    real(source, target, **options)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.replace = replace\n"
        "replace_document(sys.argv[1], 'report.html', 'the new one')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (folder / "report.html").read_text() == "the new one"
    assert same(RELEASE, load(folder))
    (said,) = verify(folder)
    assert f"{folder / 'report.html'} is damaged: 11 bytes, not 3; margrave reconstruct" in said
    replace_document(folder, "report.html", "the new one")
    assert verify(folder) == ()


@pytest.mark.parametrize("name", ["report.html", "more", "tables/x.csv", "a/b/c"])
def test_paths_inside_a_release_are_refused(folder, monkeypatch, name):
    text = f"lies in the release {folder}, which holds what was saved and nothing else; write it elsewhere"
    with refused(text):
        require_outside(folder / name)
    monkeypatch.chdir(folder)
    with refused(f"{name!r} {text}"):
        require_outside(name)
    (folder.parent / "link").symlink_to(folder)
    with refused(text):
        require_outside(folder.parent / "link" / name)


def test_paths_elsewhere_are_not(folder, tmp_path):
    (tmp_path / "manifest.json").write_text('{"name": "a page of the web"}')
    for path in (tmp_path / "report.html", folder, f"{folder}-copy", "\0", os.devnull):
        require_outside(path)
    (tmp_path / "manifest.json").write_text("no JSON")
    assert not is_release(tmp_path)
    require_outside(tmp_path / "x")


def test_no_release_is_saved_inside_another(folder):
    with refused(f"lies in the release {folder}"):
        RELEASE.save(folder / "inner")
    assert verify(folder) == ()
