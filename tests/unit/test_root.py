"""The guest's root: found by its key, and compared with the list of its files."""

import hashlib
import os

import pytest

from outcast.engines.guest import files_list, parts, roots
from outcast.engines.guest.parts import TIME_S
from outcast.engines.guest.roots import Root
from outcast.errors import FeatureMissingError, RootError


@pytest.fixture
def root(tmp_path, monkeypatch) -> Root:
    """A small root in a cache, pinned."""
    made = tmp_path / "made" / "root"
    (made / "usr/bin").mkdir(parents=True)
    (made / "usr/bin/dash").write_bytes(b"\x7fELF dash")
    (made / "usr/bin/dash").chmod(0o700)
    (made / "usr/bin/sh").symlink_to("dash")
    listed = files_list.settle(made)
    key = hashlib.sha256(listed.encode()).hexdigest()[:20]
    (made.parent / "files.tsv").write_text(listed)
    record = '{"format": 1, "lock": "abc", "packages": {"dash": "1"}}'
    (made.parent / "root.json").write_text(record)
    (tmp_path / "roots").mkdir()
    made.parent.rename(tmp_path / "roots" / key)
    monkeypatch.setattr(parts, "PINNED", parts.PINNED._replace(runtime=key))
    found = roots.find(folder=tmp_path / "roots")
    assert found is not None
    return found


def test_a_root_is_found_by_its_key(root, tmp_path):
    assert root.packages == {"dash": "1"}
    assert roots.find("build", tmp_path / "roots") is None
    roots.verify(root, every_byte=True)


def test_the_environment_may_name_another_folder(root, tmp_path, monkeypatch):
    monkeypatch.setenv(parts.VARIABLE, str(tmp_path))
    assert roots.find() == root
    monkeypatch.setenv(parts.VARIABLE, str(tmp_path / "other"))
    with pytest.raises(FeatureMissingError, match=r"OUTCAST_GUEST: .*/other/roots/\w+ is missing"):
        roots.find()


def test_modes_and_times_are_the_same_on_every_machine(root):
    for item in root.list_items():
        status = (root.folder / item.path).lstat()
        assert status.st_mtime_ns == TIME_S * 10**9, item.path
        if not item.target:
            assert status.st_mode & 0o7777 == item.mode, item.path


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda at: (at / "usr/bin/dash").write_bytes(b"\x7fELF dasH"), "usr/bin/dash"),
        (lambda at: (at / "usr/bin/dash").chmod(0o700), "usr/bin/dash"),
        (lambda at: (at / "usr/bin/new").touch(), "usr/bin"),
        (lambda at: (at / "usr/bin/dash").unlink(), "usr/bin"),
        (lambda at: (at.parent / "files.tsv").write_text(""), "files.tsv"),
    ],
    ids=["changed", "mode", "added", "removed", "list"],
)
def test_a_damaged_root_is_refused_at_once(root, damage, what):
    damage(root.folder)
    with pytest.raises(RootError, match=f"is damaged: {what} is not as it was kept; scripts/guest"):
        roots.verify(root)


def test_what_hides_behind_its_size_and_time_is_found_by_hashing(root):
    path = root.folder / "usr/bin/dash"
    path.write_bytes(b"\x7fELF DASH")
    os.utime(path, (TIME_S, TIME_S))
    roots.verify(root)
    with pytest.raises(RootError, match="usr/bin/dash is not as it was kept"):
        roots.verify(root, every_byte=True)
