"""A release is there as a whole or not at all: failures, full disks, kills and folders that must not be touched."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from releases import foreign, made, measured, same

from margrave.errors import StoreError
from margrave.release.store.loading import load

OLD, NEW = made(foreign()), made(measured(), "trunc")
TESTS = Path(__file__).parents[1]


def refused(text):
    return pytest.raises(StoreError, match=re.escape(text))


def run(code, folder, **options):
    """Run some code in a process of its own, which has a release to save and the folder to save it to."""
    setup = "import os, resource, signal, sys\nfrom releases import made, measured\n"
    setup += "release, folder = made(measured()), sys.argv[1]\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "MARGRAVE_THREADS": "1"}
    command = [sys.executable, "-c", setup + code, str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False, **options)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_rename_that_fails_leaves_what_was_there(tmp_path, monkeypatch, failing):
    OLD.save(tmp_path / "out")
    real, calls = os.replace, []

    def replace(source, target, **options):
        if Path(target).parent == tmp_path:
            calls.append(target)
            if len(calls) == failing:
                raise OSError(5, "Input/output error")
        real(source, target, **options)

    monkeypatch.setattr(os, "replace", replace)
    if failing < 3:
        with refused(
            f"{tmp_path / 'out'} cannot be written (Input/output error); nothing was left there; free some space"
        ):
            NEW.save(tmp_path / "out", overwrite=True)
    else:
        NEW.save(tmp_path / "out", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert same(OLD if failing < 3 else NEW, load(tmp_path / "out"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError, SystemExit])
def test_an_interrupt_in_the_middle_leaves_nothing(tmp_path, error):
    def progress(done, tables):
        if done == 2:
            raise error

    with pytest.raises(error):
        NEW.save(tmp_path / "out", progress=progress)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_killed_process_leaves_no_half_release(tmp_path, overwrite):
    if overwrite:
        OLD.save(tmp_path / "out")
    code = f"release.save(folder, overwrite={overwrite}, progress=lambda done, _: os.kill(os.getpid(), signal.SIGKILL))"
    assert run(code, tmp_path / "out").returncode == -signal.SIGKILL
    left = [path for path in tmp_path.iterdir() if path.name != "out"]
    assert [path.suffix for path in left] == [".draft"]
    assert left[0].name.startswith(".out.")
    assert (tmp_path / "out").exists() is overwrite
    if overwrite:
        assert same(OLD, load(tmp_path / "out"))
    NEW.save(tmp_path / "out", overwrite=overwrite)
    assert same(NEW, load(tmp_path / "out"))


def test_a_kill_between_the_two_renames_is_explained(tmp_path):
    OLD.save(tmp_path / "out")
    code = (
        "real, calls = os.replace, []\n"
        "def replace(source, target, **options):\n"
        "    real(source, target, **options)\n"
        "    if str(target).endswith('.former'): os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.replace = replace\n"
        "release.save(folder, overwrite=True)"
    )
    assert run(code, tmp_path / "out").returncode == -signal.SIGKILL
    former = next(path for path in tmp_path.iterdir() if path.suffix == ".former")
    with refused(
        f"an interrupted replacement has left the release that was there as {former}; rename it back, or save"
    ):
        load(tmp_path / "out")
    assert same(OLD, load(former))


@pytest.mark.parametrize("limit", [0, 300, 1500, 3000])
def test_a_full_disk_is_an_error_in_words_and_leaves_nothing(tmp_path, limit):
    code = (
        "from margrave.errors import StoreError\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "try:\n    release.save(folder, csv=True)\nexcept StoreError as error:\n    print(error)"
    )
    done = run(code, tmp_path / "out")
    assert done.stdout.startswith(f"{tmp_path / 'out'} cannot be written ("), done.stderr
    assert "File too large" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path):
    with refused(
        f"{tmp_path / 'nowhere'} is not a folder, so 'out' cannot be written there; create it, or name another one"
    ):
        NEW.save(tmp_path / "nowhere" / "out")
    (tmp_path / "file").write_text("x")
    with refused(f"{tmp_path / 'file'} is not a folder, so 'out' cannot be written there"):
        NEW.save(tmp_path / "file" / "out")
    with refused("is not a folder, so '' cannot be written there"):
        NEW.save("/")
    with refused("'\\x00' cannot be written to ("):
        NEW.save("\0")
    with refused("cannot be written (File name too long); nothing was left there"):
        NEW.save(tmp_path / ("x" * 300))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_without_permission_is_an_error_in_words(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    # Root may write everywhere, and so becomes nobody first, once all that is needed is imported.
    code = (
        "from margrave.errors import StoreError\n"
        "release.save(folder + '-first')\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try:\n    release.save(folder + '/closed/out')\nexcept StoreError as error:\n    print(error)"
    )
    tmp_path.chmod(0o755)
    done = run(code, tmp_path)
    shutil.rmtree(f"{tmp_path}-first")
    assert "Permission denied" in done.stdout, done.stderr
    assert not list((tmp_path / "closed").iterdir())


def test_what_is_there_is_refused_unless_it_may_be_replaced(tmp_path):
    NEW.save(tmp_path / "out")
    with refused(f"{tmp_path / 'out'} already exists; name another folder, or replace it with overwrite=True"):
        OLD.save(tmp_path / "out")
    assert same(NEW, load(tmp_path / "out"))
    OLD.save(tmp_path / "out", overwrite=True)
    assert same(OLD, load(tmp_path / "out"))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_only_a_release_and_an_empty_folder_are_ever_replaced(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    NEW.save(target, overwrite=True)
    (target / "thesis.txt").write_text("years of work")
    with refused(f"{target / 'thesis.txt'} is not part of the release there and would be lost; move it elsewhere"):
        NEW.save(target, overwrite=True)
    (target / "manifest.json").unlink()
    with refused(f"{target} is not a release, and only a release is replaced; name another folder"):
        NEW.save(target, overwrite=True)
    (target / "manifest.json").write_text('{"margrave": "plan", "files": {"thesis.txt": 1}}')
    with refused(f"{target} is not a release, and only a release is replaced; name another folder"):
        NEW.save(target, overwrite=True)
    (target / "manifest.json").write_text("{")
    with refused("manifest.json is damaged: not JSON"):
        NEW.save(target, overwrite=True)
    assert (target / "thesis.txt").read_text() == "years of work"
    (tmp_path / "file").write_text("x")
    with refused(f"{tmp_path / 'file'} is a file, which is never replaced; name a folder"):
        NEW.save(tmp_path / "file", overwrite=True)


def test_a_damaged_release_may_be_replaced(tmp_path):
    OLD.save(tmp_path / "out")
    (tmp_path / "out" / "README.md").unlink()
    shutil.rmtree(tmp_path / "out" / "tables")
    NEW.save(tmp_path / "out", overwrite=True)
    assert same(NEW, load(tmp_path / "out"))


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    OLD.save(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    NEW.save(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert same(NEW, load(tmp_path / "real"))


def test_the_folder_can_be_read_by_those_whom_the_mask_allows(tmp_path):
    NEW.save(tmp_path / "out")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode
