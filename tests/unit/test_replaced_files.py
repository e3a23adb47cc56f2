"""Files are replaced as a whole, through no link, and private ones are for one user."""

import os
import stat

import pytest

from margrave.domain import Attribute, Domain
from margrave.files import replacing


def mode(file):
    return stat.S_IMODE(file.stat().st_mode)


def test_the_file_is_there_with_all_of_it(tmp_path):
    with replacing(tmp_path / "a") as stream:
        stream.write(b"new")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "a").write_bytes(b"old")

    def fail():
        with replacing(tmp_path / "a") as stream:
            stream.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_private_files_are_for_one_user_and_others_follow_the_umask(tmp_path):
    before = os.umask(0o022)
    try:
        for name, private, expected in (("a", True, 0o600), ("b", False, 0o644)):
            with replacing(tmp_path / name, private=private) as stream:
                stream.write(b"x")
            assert mode(tmp_path / name) == expected
    finally:
        os.umask(before)


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "a").symlink_to(tmp_path / "victim")
    with replacing(tmp_path / "a") as stream:
        stream.write(b"new")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "a").is_symlink()


def test_a_draft_of_a_domain_is_private_until_it_is_reviewed(tmp_path):
    sex = Attribute("sex", labels=("F", "M"))
    Domain([sex], draft="read from private data").write(tmp_path / "draft.json")
    assert mode(tmp_path / "draft.json") == 0o600
